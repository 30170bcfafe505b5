"""How far one dishonest client of 400 moves the forecast of the shared trend.

    python benchmarks/liar.py DATA [RUNS] [--keep]

German counties, releases and forecasts 7 days ahead from Tuesdays. In one week a client sends a
vector of its choice in place of its own: in each direction, the one that moves the country's
forecast most is counted. Its length is the bound S, which a server without aggregators enforces;
the longest that the comparison with the last 12 weeks does not mark (`unusual`); or the longest
that the check of the whole sum lets pass (`total`). With noise, what it moves by itself is beside.
"""

import argparse
import math
import sys
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from epifed.data.readers import load_panel
from epifed.federation import secure_training
from epifed.learners.base import Learner, make_learner, settings_for, smooth
from epifed.privacy.noise import grid_deviation, longest_sum
from epifed.privacy.plan import PrivacyPlan
from forecast import HORIZON, TUESDAY, origins
from kept import keep, table

Floats = NDArray[np.float64]
CLIENTS, LIAR = 400, 0
LENGTHS = (*np.arange(1.0, 20.0), *np.geomspace(20, 2 * CLIENTS, 60))
"""Lengths of a false vector that are tried, in S."""


@dataclass
class Week:
    """What is known and sent on one day."""

    known: Any
    rows: Floats
    persistence: Floats
    truth: Floats


@dataclass
class Federation:
    """The clients' weeks, the learner, and the noise of two aggregators or none."""

    weeks: list[Week]
    learner: Learner[Any, Any]
    plan: PrivacyPlan
    clip_norm: float
    noise: float
    gap: int = 7

    def step(self, state: Any, released: Floats) -> Any:
        nothing = self.learner.start(np.random.SeedSequence(0))
        fresh = self.learner.step(nothing, released.astype(np.float32), self.noise)
        return self.learner.join(self.learner.advance(state, self.gap), fresh)

    def forecast(self, week: Week, state: Any) -> Floats:
        made: Floats = self.learner.hindcast(week.known, state, HORIZON)[:, -1]
        return made

    def marked(self, before: list[Floats], released: Floats) -> bool:
        order: Any = SimpleNamespace(settings=SimpleNamespace(clip_norm=self.clip_norm))
        with patch.object(secure_training, "_weeks", lambda *_: before):
            return secure_training.unlike(Path(), order, 1, released, self.noise)

    def impossible(self, released: Floats) -> bool:
        steps = longest_sum(CLIENTS, len(released), self.plan.noise_of_round(0))
        unit = longest_sum(1, 1, 0.0) - grid_deviation(0.0) * 11
        return bool(np.linalg.norm(released) * CLIENTS / self.clip_norm > steps / unit)


def federation(data: Path, epsilon: float) -> Federation:
    panel = load_panel(data)
    panel = panel.of(panel.regions[:CLIENTS])
    wish: dict[str, Any] = {"learner": "trend", "epsilon": epsilon}
    if math.isfinite(epsilon):
        wish |= {"noise": "aggregators", "aggregators": 2}
    settings = settings_for(panel, wish, {})
    learner: Learner[Any, Any] = make_learner(settings)
    plan = PrivacyPlan.of(settings, CLIENTS)
    series = smooth(panel.counts, "trailing")
    nothing = learner.start(np.random.SeedSequence(0))
    weeks = []
    for day in origins(panel, date(2020, 9, 1), date(2022, 6, 30), TUESDAY):
        known = panel.between(panel.start, day)
        at = (day - panel.start).days
        rows = learner.contribute(nothing, learner.view(known, (known.start, day)))
        weeks.append(Week(known, rows.astype(float), series[:, at], series[:, at + HORIZON]))
    return Federation(weeks, learner, plan, settings.clip_norm, plan.noise_std(0))


def lies(length: int) -> list[Floats]:
    """Unit vectors: each direction there and back."""
    return [sign * row for row in np.eye(length) for sign in (1.0, -1.0)]


def measured(fed: Federation, seed: int) -> dict[str, list[float]]:
    """By kind of lie: the country's relative change in each week, the errors, the lengths."""
    rng = np.random.default_rng(seed)
    state = fed.learner.start(np.random.SeedSequence(0))
    before: list[Floats] = []
    found: dict[str, list[float]] = {"persistence": [], "honest": [], "noise": []}

    def note(name: str, value: float) -> None:
        found.setdefault(name, []).append(float(value))

    quiet = state
    for week in fed.weeks:
        mean = week.rows.mean(axis=0)
        honest = mean + fed.noise * rng.standard_normal(mean.shape)
        left = honest - week.rows[LIAR] / CLIENTS
        after = fed.step(state, honest)
        quiet = fed.step(quiet, mean)
        made = fed.forecast(week, after)
        country = made.sum()
        note("persistence", np.abs(week.persistence - week.truth).sum())
        note("honest", np.abs(made - week.truth).sum())
        note("noise", country / fed.forecast(week, quiet).sum() - 1)

        def lied(
            unit: Floats, length: float, left: Floats = left, week: Week = week, state: Any = state
        ) -> Floats:
            released = left + unit * length * fed.clip_norm / CLIENTS
            return fed.forecast(week, fed.step(state, released))

        units = lies(len(mean))
        moves = [abs(lied(unit, 1.0).sum() / country - 1) for unit in units]
        unit = units[int(np.argmax(moves))]

        def passing(refused: Any, unit: Floats = unit, left: Floats = left) -> float:
            good = 1.0
            for length in LENGTHS:
                if refused(left + unit * length * fed.clip_norm / CLIENTS):
                    break
                good = float(length)
            return good

        lengths = {"bound": 1.0, "sum": passing(fed.impossible)}
        if len(before) >= secure_training.LEAST_WEEKS:
            earlier = before[-secure_training.MOST_WEEKS :]
            note("false alarm", fed.marked(earlier, honest))
            note("bound marked", fed.marked(earlier, left + unit * fed.clip_norm / CLIENTS))
            lengths["weeks"] = min(lengths["sum"], passing(partial(fed.marked, earlier)))
        for name, length in lengths.items():
            false = lied(unit, length)
            note(f"{name} moved", abs(false.sum() / country - 1))
            note(f"{name} error", np.abs(false - week.truth).sum())
            note(f"{name} base", np.abs(week.persistence - week.truth).sum())
            note(f"{name} length", length)
        state = after
        before.append(honest)
    return found


KINDS = {
    "bound": "S (enforced without aggregators)",
    "weeks": "longest that the comparison does not mark",
    "sum": "longest that the sum's check lets pass",
}
COLUMNS = {
    "ε": "{}",
    "length of the false vector": "{}",
    "in S": "{:.0f}",
    "country's forecast moved, median": "{:.2f} %",
    "largest": "{:.2f} %",
    "relative MAE with the lie": "{:.3f}",
    "without": "{:.3f}",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("runs", type=int, nargs="?", default=3)
    parser.add_argument("--keep", action="store_true")
    given = parser.parse_args()
    rows: list[list[Any]] = []
    about: dict[str, float] = {}
    for epsilon in (math.inf, 1.0):
        fed = federation(given.data, epsilon)
        runs = [measured(fed, seed) for seed in range(given.runs if fed.noise else 1)]
        found = {name: np.array([run[name] for run in runs]) for name in runs[0]}
        shown = f"{epsilon:g}".replace("inf", "∞")
        without = float(found["honest"].sum() / found["persistence"].sum())
        for kind, words in KINDS.items():
            moved = 100 * found[f"{kind} moved"]
            error = float(found[f"{kind} error"].sum() / found[f"{kind} base"].sum())
            length = float(np.median(found[f"{kind} length"]))
            numbers = [length, float(np.median(moved)), float(moved.max()), error, without]
            rows.append([shown, words, *numbers])
            print(*rows[-1], flush=True)
        about |= {
            f"noise {shown}": float(100 * np.median(np.abs(found["noise"]))),
            f"alarms {shown}": float(100 * found["false alarm"].mean()),
            f"marked {shown}": float(100 * found["bound marked"].mean()),
            "weeks": len(fed.weeks),
            "runs": given.runs,
            "numbers": fed.weeks[0].rows.shape[1],
        }
        print(about, flush=True)
    if given.keep:
        command = " ".join(["python", *sys.argv]).replace(str(given.data), "../shared/data")
        rows_kept = table([*COLUMNS], [*COLUMNS.values()], rows)
        print(keep("federation", command, {"liar": rows_kept, "liar about": about}))


if __name__ == "__main__":
    main()
