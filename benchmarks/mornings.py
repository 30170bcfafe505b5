"""Forecasts as of mornings: those whose list is known, and others made late by resampling.

    python benchmarks/mornings.py real --data DIR --runs 15     # 48 real mornings of autumn 2020
    python benchmarks/mornings.py resampled --data DIR          # other times, semi-synthetic

The real list is known as of the mornings of August to October 2020 alone. For other times the
final counts get a history: each county's day becomes known as a real day of the same county and
weekday did, weeks being drawn by their cases. That is **semi-synthetic**: the epidemic is real, its
lateness is resampled. Public holidays are reported like weekends, an office that is closed sends
nothing until the next morning, and now and then one falls silent for days. Results are kept for
docs/real-time.md.
"""

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from epifed.evaluate.knowledge import Knowledge
from epifed.evaluate.metrics import strata
from epifed.evaluate.scored import SCORES, scored
from epifed.forecasting import forecast
from epifed.holidays import closed, day_kinds
from epifed.learner import make_learner, settings_for
from epifed.panel import CasePanel
from epifed.seeds import seed_sequence
from epifed.settings import Settings
from epifed.sources import load_panel
from epifed.sources.vintages import load_vintages
from epifed.training import train
from epifed.vintages import Vintages
from epifed.windows import observed
from kept import keep

Floats = NDArray[np.float64]
DAY = timedelta(days=1)

FIRST_REAL, LAST_REAL = date(2020, 8, 3), date(2020, 10, 4)
"""The real reporting dates, whole weeks, whose lateness is resampled."""
LAGS = 14
"""Mornings of each that are known; what is missing then comes after four weeks."""
SETTLED = 28
CLOSED = 0.6
"""Chance that an office sends nothing on a public holiday."""
OUTAGE, LONGEST_OUTAGE = 0.001, 10
"""Chance that an office falls silent on a day, and for how many days at most."""
BEFORE, RELEASED = 35, 14
"""Mornings that are known before the first forecast that is scored, and releases."""
HORIZON = 7


@dataclass(frozen=True)
class Phase:
    """Mornings that are scored together, and whether constants were chosen on them."""

    name: str
    first: date
    last: date
    chosen_on: bool


REAL = (
    Phase("2020-09-01 to 2020-09-20", date(2020, 9, 1), date(2020, 9, 20), True),
    Phase("2020-09-21 to 2020-10-18", date(2020, 9, 21), date(2020, 10, 18), True),
)
PHASES = (
    Phase("rise, October 2020", date(2020, 10, 19), date(2020, 11, 8), False),
    Phase("turn, November 2020", date(2020, 11, 9), date(2020, 11, 30), False),
    Phase("second rise, December 2020", date(2020, 12, 1), date(2020, 12, 19), False),
    Phase("Christmas and New Year 2020", date(2020, 12, 20), date(2021, 1, 15), False),
    Phase("fall, winter 2021", date(2021, 1, 16), date(2021, 2, 28), False),
    Phase("third wave, March 2021", date(2021, 3, 1), date(2021, 3, 28), True),
    Phase("Easter and turn, April 2021", date(2021, 3, 29), date(2021, 5, 9), True),
    Phase("fourth wave, autumn 2021", date(2021, 9, 20), date(2021, 12, 19), True),
    Phase("Christmas and New Year 2021", date(2021, 12, 20), date(2022, 1, 15), True),
    Phase("Omicron, winter 2022", date(2022, 1, 16), date(2022, 3, 31), False),
    Phase("Easter and spring 2022", date(2022, 4, 1), date(2022, 6, 20), False),
)
TIMES = (PHASES[:5], PHASES[5:7], PHASES[7:9], PHASES[9:])
"""Times that are replayed in one go."""


def trajectories(panel: CasePanel, real: Vintages) -> tuple[Floats, Floats]:
    """Of real days [weeks, weekdays, counties] the share known [..., lags], and the final cases."""
    known = real.known(LAGS)
    for i in np.flatnonzero(np.isnan(known[:, 0, 0])):  # nobody looked: as on the morning before
        known[i, :, 1:], known[i, :, 0] = known[i - 1, :, :-1], 0.0
    days = (LAST_REAL - FIRST_REAL).days + 1
    first = (FIRST_REAL - real.first).days + 1
    at = panel.index(FIRST_REAL)
    final = panel.counts[:, at : at + days].T
    seen = np.stack([known[first + lag : first + lag + days, :, lag] for lag in range(LAGS)], -1)
    share = seen / np.maximum(final, 1)[..., None]
    weeks = days // 7
    return share.reshape(weeks, 7, -1, LAGS), final.reshape(weeks, 7, -1)


def pseudo_vintages(
    panel: CasePanel, real: Vintages, first: date, last: date, seed: int = 0
) -> Vintages:
    """A history of the final counts, from the morning of one day to that of another."""
    rng = np.random.default_rng([seed, first.toordinal()])
    start = first - SETTLED * DAY
    days = (last - start).days
    at = panel.index(start)
    final = panel.counts[:, at : at + days].T
    share = _drawn(panel, *trajectories(panel, real), start, days, rng)
    # [days, counties, mornings after the day]: rounded with one draw for all mornings of a day.
    so_far = np.floor(final[..., None] * share + rng.random(final.shape)[..., None])
    so_far = np.concatenate([np.zeros((*final.shape, 1)), so_far], axis=2)
    silent = _silent(panel, start, days, rng)
    for morning in range(1, days + 1):
        # so_far[..., 1 + lag] is what the morning knows, [..., lag] what the one before knew.
        for lag in range(min(SETTLED, morning)):
            stuck = morning - 1 - lag, silent[morning - 1]
            so_far[*stuck, 1 + lag] = so_far[*stuck, lag]
    change = np.diff(so_far, axis=2)
    d, county, k = np.nonzero(change)
    morning = np.maximum(d + 1 + k, SETTLED)
    inside = morning <= days
    d, county, k, morning = d[inside], county[inside], k[inside], morning[inside]
    ids = pl.Series(panel.regions, dtype=pl.String)
    origin = np.datetime64(start)
    late = pl.DataFrame(
        {
            "as_of": origin + morning,
            "region": ids.gather(county),
            "reported": origin + d,
            "cases": change[d, county, k].astype(np.int64),
        }
    )
    county, d = np.nonzero(panel.counts[:, :at])
    before = pl.DataFrame(
        {
            "as_of": np.full(len(d), np.datetime64(first)),
            "region": ids.gather(county),
            "reported": np.datetime64(panel.start) + d,
            "cases": panel.counts[county, d].astype(np.int64),
        }
    )
    looked = [first + i * DAY for i in range((last - first).days + 1)]
    return Vintages.from_changes(
        pl.concat([late, before]), source="resampled", regions=panel.regions, snapshots=looked
    )


def _drawn(
    panel: CasePanel, share: Floats, cases: Floats, start: date, days: int, rng: np.random.Generator
) -> Floats:
    """Shares known [days, counties, lags to `SETTLED`] as on real days that are drawn."""
    counties = share.shape[2]
    like = {code: day_kinds(code, start, days)[1] for code in set(panel.calendars)}
    weekday = np.stack([like[code] for code in panel.calendars], axis=1)
    county = np.arange(counties)
    by_week = cases.sum(axis=1) + 0.1
    by_day = cases + 1e-9
    found = np.ones((days, counties, SETTLED + 1))
    week = np.zeros(counties, dtype=np.int64)
    for day in range(days):
        if day % 7 == 0:
            week = _draw(by_week, rng)
        on = weekday[day]
        chosen = np.where(cases[week, on, county] > 0, week, _draw(by_day[:, on, county], rng))
        # Where a county never had a case on such a weekday, one of all counties' days.
        empty = cases[chosen, on, county] == 0
        other = np.where(empty, rng.integers(0, counties, counties), county)
        found[day, :, :LAGS] = share[chosen, on, other]
        none = cases[chosen, on, other] == 0
        found[day, none, :LAGS] = [0.5, 0.88, 0.94, 0.97, *[0.99] * (LAGS - 4)]
        found[day, :, LAGS:SETTLED] = found[day, :, LAGS - 1, None]
    return found


def _draw(weight: Floats, rng: np.random.Generator) -> NDArray[np.int64]:
    """One of the first axis for each of the second, by weight."""
    total = np.cumsum(weight, axis=0)
    picked: NDArray[np.int64] = (rng.random(total.shape[1]) * total[-1] >= total).sum(axis=0)
    return np.minimum(picked, len(weight) - 1)


def _silent(
    panel: CasePanel, start: date, days: int, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """On which days [days, counties] an office sends nothing."""
    off = {code: closed(code, start, days)[0] for code in set(panel.calendars)}
    silent = np.stack([off[code] for code in panel.calendars], axis=1)
    silent = silent & (rng.random(silent.shape) < CLOSED)
    for day, county in zip(*np.nonzero(rng.random(silent.shape) < OUTAGE), strict=True):
        silent[day : day + int(rng.integers(3, LONGEST_OUTAGE + 1)), county] = True
    return silent


class Replay:
    """Forecasts as of mornings with what was known, a release on each, scored on final counts."""

    def __init__(self, panel: CasePanel, vintages: Vintages, first: date, last: date) -> None:
        self.panel, self.known = panel, Knowledge(panel, vintages)
        looked = set(vintages.snapshots)
        days = (first + i * DAY for i in range((last - first).days + 1))
        self.origins = [
            day - DAY for day in days if day in looked and day + (HORIZON - 1) * DAY <= panel.end
        ]
        self.final = observed(panel.counts, "day")
        self.seen = {day: self.known.on(day) for day in self.origins}
        self.views: dict[date, Any] = {}

    def table(self, settings: Settings, scored_from: date) -> pl.DataFrame:
        """Forecasts beside what came; releases and noise are those of `epifed backtest`."""
        learner = make_learner(settings)
        state, before = None, self.origins[0]
        rows = []
        for day in self.origins:
            then = self.seen[day]
            if day not in self.views:
                self.views[day] = learner.view(then.panel, (then.panel.start, day))
            seeds = seed_sequence(settings.seed, "backtest", day.isoformat())
            fresh = learner.unpack(train(self.views[day], settings, seeds=seeds).vector)
            if state is not None:
                fresh = learner.join(learner.advance(state, (day - before).days), fresh)
            state, before = learner.unpack(learner.pack(fresh)), day
            if day + DAY >= scored_from:
                at = self.panel.index(day)
                made = forecast(then, learner, state, HORIZON)
                full = observed(learner.completed(then.panel, state).counts, "day")[:, -1]
                truth, now = self.final[:, at + HORIZON], self.final[:, at]
                rows.append(scored(made, truth, now, observed(then.reported, "day"), full))
        return pl.concat(rows)


def _scores(table: pl.DataFrame) -> dict[str, float]:
    known = pl.col("persistence"), pl.col("persistence_final")
    off = [(one - pl.col("truth")).abs().sum() for one in known]
    return table.select(*SCORES, as_known=off[0] / off[1]).row(0, named=True)


def _of(table: pl.DataFrame, phase: Phase) -> pl.DataFrame:
    return table.filter(pl.col("origin_date").is_between(phase.first - DAY, phase.last - DAY))


def _spread(values: Sequence[float], digits: int = 3) -> list[float]:
    """The mean, and with several runs their deviation."""
    mean = round(float(np.mean(values)), digits)
    return [mean, round(float(np.std(values, ddof=1)), digits)] if len(values) > 1 else [mean]


def real(data: Path, runs: int, command: str) -> None:
    """The mornings whose list is known: without privacy, and so many runs at each budget."""
    panel = load_panel(data)
    replay = Replay(panel, load_vintages(data, regions=panel.regions), REAL[0].first, REAL[-1].last)
    rows: list[list[Any]] = []
    for epsilon, times in ((math.inf, 1), (1.0, runs), (0.1, runs)):
        found: list[dict[str, float]] = []
        for seed in range(times):
            said = {"learner": "nowcast", "epsilon": epsilon, "seed": seed}
            table = replay.table(settings_for(panel, said), REAL[0].first)
            found.append(_scores(table))
            if epsilon == math.inf:
                _keep_exact(panel, table, command)
            shown = "∞" if epsilon == math.inf else f"{epsilon:g}"
            row = [shown, len(found), _spread([one["mae_ratio_final"] for one in found])]
            row += [
                round(float(np.mean([one[f"coverage_{level}"] for one in found])), 4)
                for level in (50, 95)
            ]
            rows = [one for one in rows if one[0] != shown] + [row]
            budgets = {
                "columns": [
                    "ε",
                    "runs",
                    "MAE over persistence on final data",
                    "in 50 %",
                    "in 95 %",
                ],
                "formats": ["{}", "{}", ["{:.3f}", "{:.3f} ± {:.3f}"], "{:.1%}", "{:.1%}"],
                "rows": rows,
            }
            keep("real-time", command, {"budgets": budgets})


def _keep_exact(panel: CasePanel, table: pl.DataFrame, command: str) -> None:
    """What is said of the forecasts without privacy: by phase, and the nowcast by size."""
    assert panel.population is not None
    phases = [(one.name, _scores(_of(table, one))) for one in REAL] + [("all", _scores(table))]
    sizes = []
    for name, members in strata(panel.population):
        inside = [r for r, here in zip(panel.regions, members, strict=True) if here]
        of = [table.filter(pl.col("region").is_in(inside))]
        of.append(_of(of[0], REAL[1]))
        late = (pl.col("persistence") == pl.col("persistence_final")).mean()
        nothing = 100 * float(of[0].select(late).item())
        ratios = [_scores(one)["nowcast_mae_ratio"] for one in of]
        sizes.append([name, len(inside), *(round(r, 3) for r in ratios), round(nothing, 1)])
    both = [table, _of(table, REAL[1])]
    sizes.append(["all", 400, *(round(_scores(one)["nowcast_mae_ratio"], 3) for one in both), None])
    keep(
        "real-time",
        command,
        {
            "phases": _phase_table(phases, "mornings"),
            "strata": {
                "columns": [
                    "inhabitants",
                    "counties",
                    "all mornings",
                    "after 2020-09-20",
                    "nothing late",
                ],
                "formats": ["{}", "{}", "{:.2f}", "{:.2f}", "{:.0f} %"],
                "rows": sizes,
            },
            "like-today-as-known": round(_scores(table)["as_known"], 3),
        },
    )


def _phase_table(rows: Sequence[tuple[str, dict[str, float]]], what: str) -> dict[str, Any]:
    names = ("mae_ratio_final", "nowcast_mae_ratio", "coverage_50", "coverage_95")
    return {
        "columns": [
            what,
            "MAE over persistence on final data",
            "nowcast over known",
            "in 50 %",
            "in 95 %",
        ],
        "formats": ["{}", "{:.3f}", "{:.2f}", "{:.1%}", "{:.1%}"],
        "rows": [[name, *(round(found[one], 4) for one in names)] for name, found in rows],
    }


def resampled(data: Path, every: int, command: str) -> None:
    """Other times, their lateness resampled: without privacy, by phase."""
    panel = load_panel(data)
    known = load_vintages(data, regions=panel.regions)
    found: dict[bool, list[tuple[str, dict[str, float]]]] = {True: [], False: []}
    for phases in TIMES:
        begin, last = phases[0].first - BEFORE * DAY, phases[-1].last
        late = pseudo_vintages(panel, known, begin, last)
        replay = Replay(panel, late, phases[0].first - RELEASED * DAY, last)
        settings = settings_for(panel, {"learner": "nowcast", "epsilon": math.inf})
        table = replay.table(settings, phases[0].first)
        table = table.filter(((pl.col("origin_date") - begin).dt.total_days() % every) == 0)
        for one in phases:
            found[one.chosen_on].append((one.name, _scores(_of(table, one))))
        for chosen, name in ((True, "resampled-chosen-on"), (False, "resampled-test")):
            if found[chosen]:
                keep(
                    "real-time", command, {name: _phase_table(found[chosen], "resampled mornings")}
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("which", choices=["real", "resampled"])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--runs", type=int, default=15, help="at each budget")
    parser.add_argument("--every", type=int, default=1, help="score each of so many mornings")
    options = parser.parse_args()
    command = "python benchmarks/mornings.py real; python benchmarks/mornings.py resampled"
    if options.which == "real":
        real(options.data, options.runs, command)
    else:
        resampled(options.data, options.every, command)


if __name__ == "__main__":
    main()
