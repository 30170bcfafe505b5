"""How good the shared trend's point forecast is, and what each idea in it gives.

    python benchmarks/forecast.py DATA [RUNS] [--from 2020-09-01] [--to 2022-06-30] --keep Germany
    python benchmarks/forecast.py DATA 5 --us --from 2020-10-06 --to 2021-02-23 --keep US

MAE relative to persistence, 7 days ahead, releases a week apart, from Tuesdays and from all
weekdays (seven times weekly), without privacy and at ε = 1 and 0.1, with noise of RUNS seeds. The
origins are drawn with replacement for the interval beside a ratio. The forecasts are those of
`epifed backtest`, without its intervals and therefore faster. `--us` takes the US counties, whose
negative counts are zero, from Tuesdays alone; `--keep` keeps all of it for the documentation.
"""

import argparse
import json
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from unittest.mock import patch

import numpy as np
import polars as pl
from holidays.countries.united_states import UnitedStates
from numpy.typing import NDArray

from epifed.data.panel import CasePanel
from epifed.data.readers import load_panel
from epifed.learners import growth, trend
from epifed.learners.base import Learner, make_learner, settings_for, smooth
from epifed.learners.growth import Releases
from epifed.privacy.plan import PrivacyPlan
from kept import RESULTS, keep, shown, table

Floats = NDArray[np.float64]

HORIZON = 7
TUESDAY = 1
DRAWS = 1000
LADDER = (
    "growth of the country",
    "+ holidays of the regions",
    "+ a level comes back",
    "+ growth by size",
    "+ growth by place",
)
LADDERS = ("Germany", "April to August 2020", "US")
RATIO = ("{:.2f}", "{:.3f} [{:.2f}, {:.2f}]", "{:.3f} ± {:.3f} [{:.2f}, {:.2f}]")


@dataclass(frozen=True)
class Errors:
    """Summed absolute errors: of the forecast [runs, origins], of persistence [origins]."""

    days: list[date]
    forecast: Floats
    persistence: Floats

    def ratio(self) -> list[float]:
        """The mean over runs, its deviation, and 95 % of the ratios of other draws of origins."""
        found, base = self.forecast, self.persistence
        runs = found.sum(axis=1) / base.sum()
        drawn = np.random.default_rng(0).integers(0, len(base), (DRAWS, len(base)))
        ratios = found.mean(axis=0)[drawn].sum(axis=1) / base[drawn].sum(axis=1)
        low, high = np.quantile(ratios, (0.025, 0.975))
        spread = [runs.std()] if len(runs) > 1 else []
        return [round(float(one), 5) for one in (runs.mean(), *spread, low, high)]

    def worst_month(self) -> tuple[float, str]:
        """The largest ratio of a month of targets, and the month."""
        months = np.array([(day + timedelta(days=HORIZON)).strftime("%Y-%m") for day in self.days])
        ratios = {
            month: self.forecast[:, months == month].mean(axis=0).sum()
            / self.persistence[months == month].sum()
            for month in np.unique(months)
        }
        worst = max(ratios, key=lambda month: ratios[month])
        return round(float(ratios[worst]), 5), worst


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
    country, holidays, level, size, place = LADDER
    without_level = patch.object(growth, "REVERTING", 0.0)
    with without_level:
        yield country, backtest(panel, days, math.inf, 1, holidays="none", modes=0)
        yield holidays, backtest(panel, days, math.inf, 1, modes=0)
    yield level, backtest(panel, days, math.inf, 1, modes=0)
    yield size, backtest(panel, days, math.inf, 1, modes=1)
    yield place, backtest(panel, days, math.inf, 1)


def us_counties(data: Path) -> CasePanel:
    """The US counties with the population and the calendar of their state."""
    states = {name: f"US-{code}" for name, code in UnitedStates.subdivisions_aliases.items()}
    places = pl.read_csv(data / "us_counties.csv", schema_overrides={"county": pl.String})
    cases = pl.read_parquet(data / "us_county_cases.parquet").join(
        places.with_columns(calendar=pl.col("state").replace_strict(states, default="US")),
        on="county",
    )
    table = cases.rename({"county": "region"}).with_columns(pl.col("cases").clip(lower_bound=0))
    return load_panel(table.drop("state"))


def main() -> None:
    """Print the ladder, then the table of budgets."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("runs", type=int, nargs="?", default=15)
    parser.add_argument("--from", dest="first", type=date.fromisoformat, default=date(2020, 9, 1))
    parser.add_argument("--to", dest="last", type=date.fromisoformat, default=date(2022, 6, 30))
    parser.add_argument("--us", action="store_true", help="the US counties")
    parser.add_argument("--tuesdays", action="store_true", help="no other weekdays")
    parser.add_argument("--keep", metavar="NAME", help="keep as this table of forecast.json")
    given = parser.parse_args()
    panel = us_counties(given.data) if given.us else load_panel(given.data)
    tuesdays = origins(panel, given.first, given.last, TUESDAY)
    steps = [[name, errors.ratio()] for name, errors in ladder(panel, tuesdays)]
    print(*(f"{name:30} {shown(ratio, RATIO)}" for name, ratio in steps), sep="\n", flush=True)
    rows = []
    for epsilon in (math.inf, 1.0, 0.1):
        parts = [backtest(panel, tuesdays, epsilon, given.runs)]
        if not given.tuesdays and not given.us:
            others = [weekday for weekday in range(7) if weekday != TUESDAY]
            days = [origins(panel, given.first, given.last, weekday) for weekday in others]
            parts = [*parts, *(backtest(panel, one, epsilon, given.runs) for one in days)]
        chosen = (parts[0], together(parts)) if len(parts) > 1 else (parts[0],)
        cells = [cell for errors in chosen for cell in (errors.ratio(), errors.worst_month()[0])]
        rows.append([f"{epsilon:g}".replace("inf", "∞"), *cells])
        months = " and ".join(errors.worst_month()[1] for errors in chosen)
        print(rows[-1][0], *(shown(cell, RATIO) for cell in cells), f"in {months}", flush=True)
    if given.keep:
        heads = ["Tuesdays", "worst month", "all weekdays", "worst month of all"][
            : len(rows[0]) - 1
        ]
        found = {
            given.keep: table(["ε per release", *heads], ["{}", *[RATIO] * len(heads)], rows),
            f"{given.keep} ladder": table(["step", "MAE / persistence"], ["{}", RATIO], steps),
        }
        command = " ".join(["python", *sys.argv]).replace(str(given.data), "../shared/data")
        print(keep("forecast", command, found))
        ladders = {name: kept_rows(f"{name} ladder") for name in LADDERS}
        beside = [[step, *(ladders[name].get(step) for name in LADDERS)] for step in LADDER]
        joined = table(["step", *LADDERS], ["{}", *["{:.3f}"] * len(LADDERS)], beside)
        keep("forecast", "python benchmarks/forecast.py, each --keep", {"ladders": joined})


def kept_rows(name: str) -> dict[str, float]:
    """The ratio of each step of a ladder that is kept; none of one that is not."""
    kept = json.loads((RESULTS / "forecast.json").read_text()).get(name, {"rows": []})
    return {step: ratio[0] for step, ratio in kept["rows"]}


if __name__ == "__main__":
    main()
