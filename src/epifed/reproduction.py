"""The reproduction number R(t) by the estimator of Cori et al. (2013), with its interval.

New cases are a Poisson number of mean R times the infectiousness of the past ones, weighted by the
generation time; R is constant over a week and has a gamma prior, so its posterior is a gamma too
(doi:10.1093/aje/kwt133, Web Appendix 1). No package that is kept up is known for Python.
"""

from dataclasses import dataclass
from datetime import date, timedelta

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.stats import gamma

from epifed.days import WEEK
from epifed.errors import EpifedError

Floats = NDArray[np.float64]

GENERATION_MEAN, GENERATION_SD = 4.7, 2.9
"""Days between two cases of a chain of COVID-19: Nishiura, Linton, Akhmetzhanov (2020),
doi:10.1016/j.ijid.2020.02.060."""
LONGEST = 21
"""Days after which nobody is infected any more."""
PRIOR_SHAPE, PRIOR_SCALE = 1.0, 5.0
"""The gamma prior of R, of mean and deviation 5, as the paper has it."""
LEVELS = (0.025, 0.25, 0.5, 0.75, 0.975)


@dataclass(frozen=True)
class Generation:
    """The generation time in days, as a gamma distribution shifted by one."""

    mean: float = GENERATION_MEAN
    sd: float = GENERATION_SD

    def __post_init__(self) -> None:
        """Refuse a time that is no generation's."""
        if not (self.mean > 1 and self.sd > 0):
            raise EpifedError(
                f"generation time: found {self.mean:g} ± {self.sd:g} days; expected a mean above 1 "
                "and a deviation above 0"
            )

    def weights(self) -> Floats:
        """The chance w[k] that the next case comes k days later, k from 0 (never) to `LONGEST`.

        >>> Generation(2.6, 1.5).weights()[:5].round(3).tolist()
        [0.0, 0.233, 0.359, 0.198, 0.103]
        """
        shape, scale = ((self.mean - 1) / self.sd) ** 2, self.sd**2 / (self.mean - 1)

        def below(day: Floats, more: float) -> Floats:
            return np.asarray(gamma.cdf(day, shape + more, scale=scale))

        k = np.arange(LONGEST + 1, dtype=np.float64)
        chance = k * below(k, 0) + (k - 2) * below(k - 2, 0) - 2 * (k - 1) * below(k - 1, 0)
        chance += shape * scale * (2 * below(k - 1, 1) - below(k - 2, 1) - below(k, 1))
        chance[0] = 0.0
        return np.maximum(chance, 0.0)


@dataclass(frozen=True)
class Reproduction:
    """R of the weeks that end on some days, with quantiles at `LEVELS`."""

    days: tuple[date, ...]
    regions: tuple[str, ...]
    quantiles: Floats
    """[regions, days, levels]"""

    def to_long(self) -> pl.DataFrame:
        """A row for each region and day."""
        regions, days, _ = self.quantiles.shape
        columns = {f"q{level:g}": self.quantiles[..., i].ravel() for i, level in enumerate(LEVELS)}
        return pl.DataFrame(
            {
                "region": np.repeat(np.array(self.regions, dtype=object), days),
                "date": np.tile(np.array(self.days, "datetime64[D]"), regions),
                **columns,
            },
            schema_overrides={"region": pl.String, "date": pl.Date},
        )


def posterior(cases: Floats, generation: Generation) -> tuple[Floats, Floats]:
    """The shape and scale of R's gamma posterior, for the week that ends on each day [..., days].

    Days before the first have no cases. The scale is that of EpiEstim: 1 / (1 / prior + Σ Λ).
    """
    weights = generation.weights()
    days = cases.shape[-1]
    pressure = np.zeros_like(cases)
    for k in range(1, min(len(weights), days)):
        pressure[..., k:] += weights[k] * cases[..., : days - k]
    shape = PRIOR_SHAPE + _week(cases)
    scale = 1 / (1 / PRIOR_SCALE + _week(pressure))
    return shape, scale


def reproduction(
    draws: Floats,
    regions: tuple[str, ...],
    last: date,
    shown: int,
    generation: Generation | None = None,
) -> Reproduction:
    """R of the weeks that end on each of the last days, from draws [draws, regions, days] of cases.

    The draws carry what is not known of the last days; each has its own posterior, and the
    quantiles are those of their mixture.
    """
    shape, scale = posterior(draws, generation or Generation())
    shape, scale = shape[..., -shown:], scale[..., -shown:]
    rng = np.random.default_rng(0)
    values = rng.gamma(shape, scale)
    quantiles = np.moveaxis(np.quantile(values, LEVELS, axis=0), 0, -1)
    days = tuple(last - timedelta(days=shown - 1 - i) for i in range(shown))
    return Reproduction(days, regions, quantiles)


def _week(values: Floats) -> Floats:
    """The sum of each day and the six before it."""
    zero = np.zeros((*values.shape[:-1], 1))
    total = np.concatenate([zero, np.cumsum(values, axis=-1)], axis=-1)
    days = values.shape[-1]
    first = np.maximum(np.arange(days) - WEEK + 1, 0)
    week: Floats = total[..., 1:] - total[..., first]
    return week
