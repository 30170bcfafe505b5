"""How the widths of intervals are chosen, and whether they hold where nothing was chosen.

    python benchmarks/intervals.py choose DATA
    python benchmarks/intervals.py test DATA [RUNS] [--only German ...] [--keep]

`choose` prints what constants of `epifed.intervals` beyond a week would hold on Fridays: in
Germany, in the US before October 2020, and after. `test` scores forecasts from Tuesdays, with a
release every week at ε = 1 and the noise of RUNS seeds: WIS relative to the COVIDhub baseline, and
how many of 100 forecasts the central 50 and 95 % intervals hold. Brackets are 95 % of what other
draws of origins give, in blocks as long as the horizon: errors of overlapping weeks are alike.
"""

import argparse
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from epifed import intervals
from epifed.data.calendar import WEEK
from epifed.data.panel import CasePanel
from epifed.data.quality import clean
from epifed.data.readers import load_panel, read_communities
from epifed.evaluation.experiment import disaggregate
from epifed.evaluation.metrics import strata
from epifed.forecasting import PointForecast, reckoned
from epifed.intervals import LEVELS, hub_baseline, weighted_interval_score
from epifed.learners.base import Learner, make_learner, observed, settings_for
from epifed.learners.growth import Releases
from epifed.privacy.plan import PrivacyPlan
from epifed.simulate import SimulationSettings, simulate
from forecast import us_counties
from kept import keep, markdown, table

Floats = NDArray[np.float64]

TUESDAY, FRIDAY = 1, 4
HORIZONS = (1, 7, 14, 28)
NOMINAL = (0.5, 0.95)
DRAWS = 1000
"""Draws of origins."""
GRID = {"UNFORESEEN": (0.11, 0.12), "TELLING": (1.3, 1.5), "PRIOR_WEIGHT": (3.0, 5.0, 8.0)}
"""The constants that are chosen."""
GERMAN_FROM, GERMAN_TEST = date(2020, 4, 1), date(2020, 9, 1)
US_FROM, US_TEST = date(2020, 6, 1), date(2020, 10, 1)
SETTLED = timedelta(days=30)
"""Releases before the first forecast that is looked at."""


@dataclass(frozen=True)
class Case:
    """A forecast before its uncertainty is said, and what came."""

    made: PointForecast
    truth: Floats
    baseline: Floats
    """The score of the hub's baseline."""


def cases(
    panel: CasePanel,
    first: date,
    weekday: int,
    wanted: Callable[[date], bool],
    horizons: Sequence[int],
    runs: int,
    epsilon: float = 1.0,
) -> Iterator[tuple[int, int, Case]]:
    """Run, horizon and forecast from each wanted origin, of weekly releases from the first day."""
    settings = settings_for(panel, {"learner": "trend", "epsilon": epsilon})
    learner: Learner[Releases, Any] = make_learner(settings)
    clients = len(panel.regions)
    noise = PrivacyPlan.of(settings, clients).noise_std(clients)
    cleaned, final = clean(panel), observed(panel.counts, "day")
    rng = [np.random.default_rng(seed) for seed in range(runs)]
    nothing = learner.start(np.random.SeedSequence(0))
    states = [nothing] * runs
    day = first + timedelta(days=(weekday - first.weekday()) % WEEK)
    while day < panel.end:
        known, at = cleaned.until(day), panel.index(day)
        view = learner.view(known.panel, (panel.start, day))
        sent = learner.contribute(nothing, view).mean(axis=0)
        for run in range(runs):
            noisy = (sent + noise * rng[run].standard_normal(sent.shape)).astype(np.float32)
            fresh = learner.step(nothing, noisy, noise)
            states[run] = learner.join(learner.advance(states[run], WEEK), fresh)
        for horizon in horizons:
            if not wanted(day) or at + horizon >= final.shape[1]:
                continue
            truth = final[:, at + horizon]
            base = weighted_interval_score(truth, hub_baseline(final[:, : at + 1], horizon))
            for run in range(runs):
                made = reckoned(known, learner, states[run], horizon)
                yield run, horizon, Case(made, truth, base)
        day += timedelta(days=WEEK)


def inside(truth: Floats, quantiles: Floats, nominal: float) -> NDArray[np.bool_]:
    """Which truths lie in the central interval of that level."""
    low, high = (quantiles[:, LEVELS.index(round(0.5 + s * nominal / 2, 3))] for s in (-1, 1))
    return (low <= truth) & (truth <= high)


def choose(data: Path) -> None:
    """Print what each choice of constants holds, and its WIS against that of the baseline."""
    german, us = load_panel(data), us_counties(data)
    settled = US_FROM + SETTLED
    parts = (
        ("Germany", german, GERMAN_FROM, lambda day: day >= GERMAN_TEST),
        ("US, before", us, US_FROM, lambda day: settled <= day < US_TEST),
        ("US, after", us, US_FROM, lambda day: day >= US_TEST),
    )
    choices = list(itertools.product(*GRID.values()))
    rows = []
    for name, panel, first, wanted in parts:
        found: dict[tuple[int, tuple[float, ...]], list[list[float]]] = {}
        for _, horizon, case in cases(panel, first, FRIDAY, wanted, (14, 28), 1):
            for choice in choices:
                _set(choice)
                made = case.made.forecast().quantiles
                score = weighted_interval_score(case.truth, made).sum(), case.baseline.sum()
                held = [inside(case.truth, made, nominal).mean() for nominal in NOMINAL]
                found.setdefault((horizon, choice), []).append([*score, *held])
        for (horizon, choice), sums in sorted(found.items()):
            score, base, *held = np.mean(sums, axis=0)
            cells = [score / base, [100 * one for one in held]]
            rows.append([name, f"{horizon}", *choice, *cells])
    heads = ["Fridays", "days ahead", *GRID, "WIS / hub baseline", "in 50 and 95 %"]
    print(markdown(table(heads, ["{}", "{}", *["{:g}"] * 3, "{:.3f}", "{:.1f} / {:.1f}"], rows)))


def _set(values: Sequence[float]) -> None:
    for name, value in zip(GRID, values, strict=True):
        setattr(intervals, name, value)


@dataclass
class Sums:
    """Sums over the regions of each origin, by run and group of regions.

    Of score, the baseline's score, forecasts, and those held at 50 and at 95 %:
    [runs][origins][groups, 5].
    """

    groups: list[str]
    days: list[date]
    runs: list[list[Floats]]

    def add(self, run: int, case: Case, members: Sequence[NDArray[np.bool_]]) -> None:
        """Score a forecast."""
        quantiles = case.made.forecast().quantiles
        held = [inside(case.truth, quantiles, nominal) for nominal in NOMINAL]
        score = weighted_interval_score(case.truth, quantiles)
        one = np.ones(len(score))
        every = np.stack([score, case.baseline, one, *held], axis=1)
        after = case.made.past.after_holiday
        groups = [*members, after if after is not None else one == 0]
        self.runs[run].append(np.stack([every[group].sum(axis=0) for group in groups]))
        if run == 0:
            self.days.append(case.made.origin)

    def of(self, wanted: Callable[[date], bool]) -> "Sums":
        """The same of some origins."""
        places = [i for i, day in enumerate(self.days) if wanted(day)]
        runs = [[run[i] for i in places] for run in self.runs]
        return Sums(self.groups, [self.days[i] for i in places], runs)

    def row(self, horizon: int) -> list[Any]:
        """The line of a table."""
        whole = np.array(self.runs)  # [runs, origins, groups, sums]
        place = {group: i for i, group in enumerate(self.groups)}
        every = whole[:, :, place["all"]]
        cells: list[Any] = [f"{horizon}", _drawn(every, 0, 1, horizon)]
        cells += [_drawn(every, at, 2, horizon, 100) for at in (3, 4)]
        total = whole.mean(axis=0).sum(axis=0)
        inhabited = [i for group, i in place.items() if group not in ("all", "after a holiday")]
        inhabited = [i for i in inhabited if total[i, 2]]
        for at in (3, 4):
            held = [100 * total[i, at] / total[i, 2] for i in inhabited]
            cells.append([round(v, 2) for v in (min(held), max(held))] if held else None)
        after = total[place["after a holiday"]]
        cells.append([round(100 * after[at] / after[2], 2) for at in (3, 4)] if after[2] else None)
        return cells


def _drawn(sums: Floats, top: int, bottom: int, horizon: int, times: float = 1) -> list[float]:
    """A ratio's mean over runs, its deviation, and 95 % of it over other draws of origins."""
    ratios = times * sums[..., top].sum(axis=1) / sums[..., bottom].sum(axis=1)
    mean = sums.mean(axis=0)
    origins, block = len(mean), -(-horizon // WEEK)
    starts = np.random.default_rng(0).integers(0, origins, (DRAWS, -(-origins // block)))
    drawn = ((starts[..., None] + np.arange(block)) % origins).reshape(DRAWS, -1)[:, :origins]
    others = times * mean[drawn, top].sum(axis=1) / mean[drawn, bottom].sum(axis=1)
    low, high = np.quantile(others, (0.025, 0.975))
    return [round(float(v), 4) for v in (ratios.mean(), ratios.std(), low, high)]


def _share_inside(case: Case, nominal: float) -> Floats:
    """Of the probability of the whole number that came, the share inside the interval."""
    made = case.made
    days = WEEK * made.left
    ahead = np.maximum(made.point - made.now, 0.0) / made.left
    came = np.rint(days * (case.truth - made.now - made.reported) / made.left)
    width = made.past.width(ahead)
    days_ahead = made.past.horizon
    freedom = intervals.FREEDOM * max(WEEK / days_ahead, 1.0) ** -intervals.HEAVIER
    unit = stats.t.ppf(LEVELS[-1], freedom) / intervals.shape(days_ahead)[-1]

    def below(cases: Floats) -> Floats:
        daily = np.maximum(cases / days, -intervals.SOFTENING) + intervals.SOFTENING
        root = (daily / (ahead + intervals.SOFTENING)) ** intervals.POWER
        away = (root - 1) / intervals.POWER / width * unit
        return np.asarray(np.where(cases < 0, 0.0, stats.t.cdf(away, freedom)))

    low, high = below(came - 0.5), below(came + 0.5)
    held = np.minimum(high, 0.5 + nominal / 2) - np.maximum(low, 0.5 - nominal / 2)
    return np.asarray(np.clip(held, 0.0, None) / np.maximum(high - low, 1e-12))


def _expected(case: Case) -> Floats:
    """The cases of the target week that are to come, as forecast."""
    return np.asarray(np.maximum(case.made.point - case.made.now, 0.0) * WEEK)


def perfect(case: Case) -> list[float]:
    """How many of 100 the intervals of a forecaster hold who knows the rate, if it is ours."""
    ahead = _expected(case)
    tails = [((1 - nominal) / 2, (1 + nominal) / 2) for nominal in NOMINAL]
    bounds = [[stats.poisson.ppf(tail, ahead) for tail in pair] for pair in tails]
    held = [stats.poisson.cdf(b, ahead) - stats.poisson.cdf(a - 1, ahead) for a, b in bounds]
    return [float(h.mean()) for h in held]


def tested(
    panel: CasePanel,
    first: date,
    wanted: Callable[[date], bool],
    runs: int,
    horizons: Sequence[int] = HORIZONS,
) -> dict[int, Sums]:
    """The sums of each horizon."""
    named = list(strata(panel.population)) if panel.population is not None else []
    members = [np.ones(len(panel.regions), dtype=np.bool_), *(inside for _, inside in named)]
    groups = ["all", *(name for name, _ in named), "after a holiday"]
    found = {h: Sums(groups, [], [[] for _ in range(runs)]) for h in horizons}
    for run, horizon, case in cases(panel, first, TUESDAY, wanted, horizons, runs):
        found[horizon].add(run, case, members)
    return found


def some_communities(data: Path, counties: CasePanel, number: int) -> CasePanel:
    """Communities whose cases are drawn by population, some of them."""
    every = disaggregate(counties, read_communities(data), np.random.default_rng(0))
    chosen = np.random.default_rng(1).permutation(len(every.regions))[:number]
    return every.of([every.regions[i] for i in sorted(chosen)])


def whole_numbers(panel: CasePanel, wanted: Callable[[date], bool]) -> list[list[Any]]:
    """What is held where few cases are expected, and what a perfect forecaster would hold."""
    rows = []
    for horizon in HORIZONS:
        made = [c for *_, c in cases(panel, GERMAN_FROM, TUESDAY, wanted, (horizon,), 1)]
        few = [(_expected(case) < 2).mean() for case in made]
        shares = [[_share_inside(case, nominal).mean() for nominal in NOMINAL] for case in made]
        known = [perfect(case) for case in made]
        cells = [100 * np.mean(one, axis=0) for one in (few, shares, known)]
        rows.append([f"{horizon}", *(np.round(np.atleast_1d(c), 2).tolist() for c in cells)])
    return rows


def test(data: Path, runs: int, only: Sequence[str], kept: bool) -> None:
    """Print the tables, and keep them."""
    counties = load_panel(data)
    first = GERMAN_TEST
    columns = ["days ahead", "WIS / hub baseline", "in 50 %", "in 95 %",
               "strata, 50 %", "strata, 95 %", "after a holiday"]  # fmt: skip
    held = "{:.1f} ± {:.1f} [{:.0f}, {:.0f}]"
    formats = ["{}", "{:.3f} ± {:.3f} [{:.2f}, {:.2f}]", held, held,
               "{:.0f}–{:.0f}", "{:.0f}–{:.0f}", "{:.0f} / {:.0f}"]  # fmt: skip
    found: dict[str, Any] = {}

    def fourth(day: date) -> bool:
        return day >= first and (day - first).days % (4 * WEEK) == 0

    def put(name: str, sums: dict[int, Sums], wanted: Callable[[date], bool] = bool) -> None:
        rows = [one.of(wanted).row(horizon) for horizon, one in sums.items()]
        found[name] = table(columns, formats, rows) | {"runs": len(sums[7].runs)}
        print(name, markdown(found[name]), sep="\n", flush=True)

    if "German" in only:
        german = tested(counties, GERMAN_FROM, lambda day: day >= first, runs)
        put("German", german)
        put("German, even months", german, lambda day: day.month % 2 == 0)
    if "US" in only:
        put("US", tested(us_counties(data), US_FROM, lambda day: day >= US_TEST, runs))
    if "communities" in only:
        some = some_communities(data, counties, 1500)
        put("communities", tested(some, GERMAN_FROM, fourth, 1))
        heads = ["days ahead", "fewer than two cases expected, %", "by share", "perfect"]
        forms = ["{}", "{:.0f}", "{:.1f} / {:.1f}", "{:.1f} / {:.1f}"]
        rows = whole_numbers(some, fourth)
        found["whole numbers"] = table(heads, forms, rows)
        print(markdown(found["whole numbers"]))
    if "simulated" in only:
        autumn = simulate(SimulationSettings(preset="autumn-2020", seed=0)).county_panel
        begin = autumn.start + timedelta(days=42)
        put("simulated", tested(autumn, begin, bool, runs, (7, 14)))
    if kept:
        print(keep("intervals", " ".join(["python", *sys.argv]), found))


def main() -> None:
    """Choose, or test."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("choose", "test"))
    parser.add_argument("data", type=Path)
    parser.add_argument("runs", type=int, nargs="?", default=15)
    sets = ("German", "US", "communities", "simulated")
    parser.add_argument("--only", choices=sets, nargs="+", default=sets)
    parser.add_argument("--keep", action="store_true", help="keep it for the documentation")
    given = parser.parse_args()
    if given.what == "choose":
        choose(given.data)
    else:
        test(given.data, given.runs, given.only, given.keep)


if __name__ == "__main__":
    main()
