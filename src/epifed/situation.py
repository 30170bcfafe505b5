"""Where things stand on a morning: cases by reporting date and by onset, and R(t)."""

from dataclasses import dataclass
from datetime import date, timedelta

import polars as pl

from epifed import onsets
from epifed.intervals import LEVELS
from epifed.nowcast import Nowcast, nowcast
from epifed.onsets import OnsetNowcast
from epifed.reproduction import LEVELS as R_LEVELS
from epifed.reproduction import Generation, Reproduction, reproduction
from epifed.vintages import LEAST_MORNINGS, Vintages

BAND = (0.025, 0.975)
"""Ends of the interval that tables and pages show."""


@dataclass(frozen=True)
class Situation:
    """The nowcasts by reporting date and by onset, where the list has any, and R(t)."""

    reported: Nowcast
    onsets: OnsetNowcast | None
    number: Reproduction

    def to_long(self) -> pl.DataFrame:
        """A row for each region and day: cases as known and as estimated, and R, with intervals."""
        made, low, high = self.reported, *(LEVELS.index(level) for level in BAND)
        lowest, _, middle, _, highest = (f"q{level:g}" for level in R_LEVELS)
        cases = made.to_long().filter(level=0.5).drop("level", "value")
        return cases.with_columns(
            lower=pl.Series(made.quantiles[..., low].ravel()),
            upper=pl.Series(made.quantiles[..., high].ravel()),
        ).join(
            self.number.to_long().select(
                "region",
                "date",
                r=pl.col(middle),
                r_lower=pl.col(lowest),
                r_upper=pl.col(highest),
            ),
            on=["region", "date"],
            how="left",
            maintain_order="left",
        )


def situation(history: Vintages, generation: Generation | None = None) -> Situation:
    """The situation on the last morning of a history."""
    made = nowcast(history)
    fallen_ill = onsets.onset_nowcast(history, made)
    draws = fallen_ill.draws if fallen_ill else onsets.reported_draws(history, made)
    number = reproduction(draws, history.regions, made.days[-1], len(made.days), generation)
    return Situation(made, fallen_ill, number)


def nowcast_on(vintages: Vintages, day: date) -> pl.DataFrame | None:
    """The two weeks to a day as known on the next morning; none if too few mornings were before."""
    morning = day + timedelta(days=1)
    if (morning - vintages.first).days < LEAST_MORNINGS:
        return None
    return situation(vintages.until(morning)).to_long()
