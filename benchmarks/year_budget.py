"""Does a budget that follows the released trend forecast better than the same for every week?

    python benchmarks/year_budget.py DATA [RUNS] [COUNTRY]

The shared trend on the German counties, Tuesdays from 2020-09-01 to 2022-06-30, in two plans of
equal length, each with its own cap; or on a simulated country. At each cap the weeks get the same,
or more while the released trend turns (`epifed ledger plan --year --rule trend`). Both rules of a
run have the same noise, scaled. MAE relative to persistence, 7 days ahead.
"""

import sys
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epifed.data.panel import CasePanel
from epifed.data.readers import load_panel
from epifed.learners import trend
from epifed.learners.base import Learner, make_learner, settings_for, smooth
from epifed.learners.growth import Releases, signals
from epifed.ledger.budget import RULES, Cap, Rule, plan_year, shares, spend, total_of
from kept import keep, table

CAPS = (0.1, 0.25, 0.5, 1.0, 2.0)
DELTA = 1e-5
HORIZON = 7
FIRST, LAST = date(2020, 9, 1), date(2022, 6, 30)
PLANS = 2


def ratios(
    panel: CasePanel, days: list[date], epsilon: float, rule: Rule, runs: int
) -> NDArray[np.float64]:
    """MAE over persistence of each run, all plans of the days together."""
    cap = Cap(epsilon, DELTA, "gaussian")
    weeks = len(days) // PLANS
    each = plan_year(cap, weeks, "uniform")[0].epsilon_alone
    settings = settings_for(panel, {"learner": "trend", "epsilon": each})
    learner: Learner[Releases, trend.LastDays] = make_learner(settings)
    clients = len(panel.regions)
    series = smooth(panel.counts, "trailing")
    rng = [np.random.default_rng(seed) for seed in range(runs)]
    nothing = learner.start(np.random.SeedSequence(0))
    states = [nothing] * runs
    left = np.zeros(runs)
    growth: list[list[float]] = [[] for _ in range(runs)]
    errors, base = np.zeros(runs), 0.0
    for i, day in enumerate(days[: PLANS * weeks]):
        if i % weeks == 0:
            left[:] = total_of(cap)
        so_far = panel.between(panel.start, day)
        sent = learner.contribute(nothing, learner.view(so_far, (so_far.start, day))).mean(axis=0)
        at = (day - panel.start).days
        truth = series[:, at + HORIZON]
        base += float(np.abs(series[:, at] - truth).sum())
        for run in range(runs):
            weight = shares(growth[run]) if rule == "trend" else 1.0
            taken = spend(left[run], weeks - i % weeks, weight)
            left[run] -= taken
            noise = settings.clip_norm / np.sqrt(taken) / clients
            noisy = (sent + noise * rng[run].standard_normal(sent.shape)).astype(np.float32)
            gap = (day - days[i - 1]).days if i else 0
            fresh = learner.step(nothing, noisy, noise)
            states[run] = learner.join(learner.advance(states[run], gap), fresh)
            growth[run].append(float(signals(states[run]).growth[0]))
            forecast = learner.hindcast(so_far, states[run], HORIZON)[:, -1]
            errors[run] += float(np.abs(forecast - truth).sum())
    return errors / base


def main(data: Path, runs: int, country: str) -> None:
    """Compare the rules at each cap and keep it."""
    panel = load_panel(data)
    first, last = max(FIRST, panel.start + timedelta(days=28)), min(LAST, panel.end)
    end = last - timedelta(days=HORIZON)
    every = [first + timedelta(days=i) for i in range((end - first).days + 1)]
    days = [day for day in every if day.weekday() == 1]
    rows: list[list[Any]] = []
    for epsilon in CAPS:
        by_rule = {rule: ratios(panel, days, epsilon, rule, runs) for rule in RULES}
        gain = by_rule["trend"] - by_rule["uniform"]
        cells = [[round(float(x.mean()), 5), round(float(x.std(ddof=1)), 5)]
                 for x in (*by_rule.values(), gain)]  # fmt: skip
        better = int((gain < 0).sum())
        rows.append([f"{epsilon:g}", *cells, f"{better} of {runs}"])
        print(rows[-1], flush=True)
        heads = ["ε of a plan", "uniform", "following the trend", "difference", "runs it helps"]
        formats = ["{}", *["{:.4f} ± {:.4f}"] * 3, "{}"]
        command = f"python benchmarks/year_budget.py ../shared/data {runs}"
        kept = {country: table(heads, formats, rows), f"{country} weeks": len(days) // PLANS}
        keep("year-budget", command, kept)


if __name__ == "__main__":
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else 15
    main(Path(sys.argv[1]), runs, sys.argv[3] if len(sys.argv) > 3 else "Germany")
