"""How good the shared trend's point forecast is, and what each idea in it gives.

    python benchmarks/forecast.py DATA [RUNS] [--from 2020-09-01] [--to 2022-06-30] [--format tidy]

MAE relative to persistence, 7 days ahead, releases a week apart, from Tuesdays and from all
weekdays (seven times weekly), without privacy and at ε = 1 and 0.1, with noise of RUNS seeds. The
origins are drawn with replacement for the interval beside a ratio. The forecasts are those of
`epifed backtest`, without its intervals and therefore faster.
"""

import argparse
import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from epifed.learner import Learner, make_learner, settings_for
from epifed.learners import trend
from epifed.learners.releases import Releases
from epifed.panel import CasePanel
from epifed.privacy.plan import PrivacyPlan
from epifed.sources import load_panel
from epifed.windows import smooth

Floats = NDArray[np.float64]

HORIZON = 7
TUESDAY = 1
DRAWS = 1000


@dataclass(frozen=True)
class Errors:
    """Summed absolute errors: of the forecast [runs, origins], of persistence [origins]."""

    days: list[date]
    forecast: Floats
    persistence: Floats

    def ratio(self, chosen: NDArray[np.bool_] | slice = slice(None)) -> str:
        """The mean over runs, its deviation, and 95 % of the ratios of other draws of origins."""
        found, base = self.forecast[:, chosen], self.persistence[chosen]
        runs = found.sum(axis=1) / base.sum()
        drawn = np.random.default_rng(0).integers(0, len(base), (DRAWS, len(base)))
        ratios = found.mean(axis=0)[drawn].sum(axis=1) / base[drawn].sum(axis=1)
        low, high = np.quantile(ratios, (0.025, 0.975))
        return f"{runs.mean():.3f} ± {runs.std():.3f} [{low:.3f}, {high:.3f}]"

    def worst_month(self) -> str:
        """The month of targets with the largest ratio."""
        months = np.array([(day + timedelta(days=HORIZON)).strftime("%Y-%m") for day in self.days])
        ratios = {
            month: self.forecast[:, months == month].mean(axis=0).sum()
            / self.persistence[months == month].sum()
            for month in np.unique(months)
        }
        worst = max(ratios, key=lambda month: ratios[month])
        return f"{ratios[worst]:.3f} ({worst})"


def origins(panel: CasePanel, first: date, last: date, weekday: int) -> list[date]:
    """The days of a weekday whose target lies in the period."""
    end = min(last, panel.end) - timedelta(days=HORIZON)
    days = [first + timedelta(days=i) for i in range((end - first).days + 1)]
    return [day for day in days if day.weekday() == weekday]


def backtest(
    panel: CasePanel, days: list[date], epsilon: float, runs: int, **own: object
) -> Errors:
    """The errors of all runs, each with releases on the same days and noise of its own."""
    settings = settings_for(panel, {"learner": "trend", "epsilon": epsilon}, own)
    learner: Learner[Releases, trend.LastDays] = make_learner(settings)
    runs = runs if math.isfinite(epsilon) else 1
    noise = PrivacyPlan.of(settings, len(panel.regions)).noise_std(len(panel.regions))
    series = smooth(panel.counts, "trailing")
    rng = [np.random.default_rng(seed) for seed in range(runs)]
    nothing = learner.start(np.random.SeedSequence(0))
    states = [nothing] * runs
    forecast, persistence = np.zeros((runs, len(days))), np.zeros(len(days))
    for i, day in enumerate(days):
        known = panel.between(panel.start, day)
        sent = learner.contribute(nothing, learner.view(known, (known.start, day))).mean(axis=0)
        at = (day - panel.start).days
        truth = series[:, at + HORIZON]
        persistence[i] = np.abs(series[:, at] - truth).sum()
        for run in range(runs):
            noisy = (sent + noise * rng[run].standard_normal(sent.shape)).astype(np.float32)
            gap = (day - days[i - 1]).days if i else 0
            fresh = learner.step(nothing, noisy, noise)
            states[run] = learner.join(learner.advance(states[run], gap), fresh)
            made = learner.hindcast(known, states[run], HORIZON)[:, -1]
            forecast[run, i] = np.abs(made - truth).sum()
    return Errors(days, forecast, persistence)


def together(parts: list[Errors]) -> Errors:
    """All origins as one."""
    return Errors(
        [day for part in parts for day in part.days],
        np.concatenate([part.forecast for part in parts], axis=1),
        np.concatenate([part.persistence for part in parts]),
    )


def ladder(panel: CasePanel, days: list[date]) -> Iterator[tuple[str, Errors]]:
    """The forecast without privacy, one idea more from line to line."""
    without_level = patch.object(trend, "REVERTING", 0.0)
    with without_level:
        yield "growth of the country", backtest(panel, days, math.inf, 1, holidays="none", modes=0)
        yield "+ holidays of the regions", backtest(panel, days, math.inf, 1, modes=0)
    yield "+ a level comes back", backtest(panel, days, math.inf, 1, modes=0)
    yield "+ growth by size", backtest(panel, days, math.inf, 1, modes=1)
    yield "+ growth by place", backtest(panel, days, math.inf, 1)


def main() -> None:
    """Print the ladder, then the table of budgets."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data")
    parser.add_argument("runs", type=int, nargs="?", default=15)
    parser.add_argument("--from", dest="first", type=date.fromisoformat, default=date(2020, 9, 1))
    parser.add_argument("--to", dest="last", type=date.fromisoformat, default=date(2022, 6, 30))
    parser.add_argument("--format")
    parser.add_argument("--tuesdays", action="store_true", help="no other weekdays")
    given = parser.parse_args()
    panel = load_panel(given.data, given.format)
    tuesdays = origins(panel, given.first, given.last, TUESDAY)
    for name, errors in ladder(panel, tuesdays):
        print(f"{name:30} {errors.ratio()}", flush=True)
    for epsilon in (math.inf, 1.0, 0.1):
        parts = {TUESDAY: backtest(panel, tuesdays, epsilon, given.runs)}
        print(f"ε = {epsilon:g}, Tuesdays: {parts[TUESDAY].ratio()}", end="")
        print(f", worst month {parts[TUESDAY].worst_month()}", flush=True)
        if given.tuesdays:
            continue
        for weekday in range(7):
            if weekday != TUESDAY:
                days = origins(panel, given.first, given.last, weekday)
                parts[weekday] = backtest(panel, days, epsilon, given.runs)
        print(
            f"ε = {epsilon:g}, all weekdays: {together(list(parts.values())).ratio()}", flush=True
        )


if __name__ == "__main__":
    main()
