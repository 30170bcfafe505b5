"""How far a nowcast of the last week can come, by size of county: rules that know the future.

    pip install scikit-learn
    python benchmarks/mornings.py real --runs 1
    python benchmarks/nowcast_bound.py out/mornings/*/real_inf_0.parquet

Errors relative to the count as known, on the same 48 mornings as docs/real-time.md: our rule, and
three that nobody could use on the morning. Medians fitted on the tested mornings themselves, for
each county and each pattern of its two newest days (none or some known), which flatters them; the
same fitted on all other weeks, earlier and later; and gradient boosting with absolute errors,
trained on all other weeks, that sees four weeks as known, our nowcast, and besides the final
counts of the weeks before and after and how late the county was on that weekday in other weeks.
"""

import argparse
from importlib import import_module
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from epifed.data.calendar import WEEK
from epifed.data.readers import load_panel
from epifed.data.readers.vintage_files import load_vintages
from epifed.evaluation.metrics import strata
from kept import keep, table

Floats = NDArray[np.float64]

LAGS = 28
BOOSTING = {
    "loss": "absolute_error",
    "max_iter": 60,
    "learning_rate": 0.12,
    "max_leaf_nodes": 15,
    "min_samples_leaf": 40,
    "random_state": 0,
}


class Mornings:
    """What was known and what came, [mornings, counties]."""

    def __init__(self, data: Path, made: pl.DataFrame) -> None:
        self.panel = load_panel(data)
        vintages = load_vintages(data, regions=self.panel.regions)
        known = np.nan_to_num(vintages.known(LAGS))
        days = sorted(made["origin_date"].unique())
        at = [self.panel.index(day) for day in days]
        final = self.panel.counts
        self.known = np.stack([known[(d - vintages.first).days + 1] for d in days]).clip(0)
        self.final = np.stack([final[:, a - LAGS + 1 : a + 1][:, ::-1] for a in at])
        self.after = np.stack([final[:, a + 1 : a + WEEK + 1].mean(axis=1) for a in at])
        self.late = (self.final - self.known)[..., :WEEK].sum(axis=2)
        ours = made.sort("origin_date", maintain_order=True)["nowcast"].to_numpy()
        self.ours = WEEK * ours.reshape(len(days), -1) - self.known[..., :WEEK].sum(axis=2)
        self.weekday = np.array([d.weekday() for d in days])
        self.week = np.array([(d - days[0]).days // WEEK for d in days])

    def medians(self, learned: NDArray[np.bool_], asked: NDArray[np.bool_]) -> Floats:
        """The late cases of some mornings, by medians of others with the same pattern."""
        pattern = 2 * (self.known[..., 0] > 0) + (self.known[..., 1] > 0)
        found: Floats = self.ours.copy()
        for county in range(self.late.shape[1]):
            for kind in range(4):
                alike = pattern[:, county] == kind
                if (alike & learned).any():
                    found[alike & asked, county] = np.median(self.late[alike & learned, county])
        return np.asarray(found[asked])

    def boosted(self, learned: NDArray[np.bool_], asked: NDArray[np.bool_]) -> Floats:
        """The same by boosting that sees more than anybody could."""
        forest = import_module("sklearn.ensemble").HistGradientBoostingRegressor(**BOOSTING)
        seen = np.concatenate([self.known, self._more(asked)], axis=2)
        forest.fit(seen[learned].reshape(-1, seen.shape[2]), self.late[learned].ravel())
        said: Floats = forest.predict(seen[asked].reshape(-1, seen.shape[2])).clip(0)
        return np.round(said.reshape(-1, self.late.shape[1]))

    def _more(self, asked: NDArray[np.bool_]) -> Floats:
        """Our nowcast, the weeks around, habits in weeks that are not asked for, and the day."""
        assert self.panel.population is not None
        share = np.zeros((*self.late.shape, 3))
        for day in range(WEEK):
            others = (self.weekday == day) & ~asked
            late = (self.final - self.known)[others][..., :3].sum(axis=0)
            share[self.weekday == day] = (late + 0.5) / (self.final[others][..., :3].sum(0) + 1)
        facts = [
            self.ours,
            self.after,
            *(self.final[..., k * WEEK : (k + 1) * WEEK].mean(axis=2) for k in (1, 2)),
            np.broadcast_to(self.weekday[:, None], self.late.shape),
            np.broadcast_to(np.log(self.panel.population), self.late.shape),
        ]
        return np.concatenate([np.stack(facts, axis=2), share], axis=2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("table", type=Path, help="out/mornings/…/real_inf_0.parquet")
    options = parser.parse_args()
    one = Mornings(options.data, pl.read_parquet(options.table))
    every = np.ones(len(one.week), dtype=np.bool_)
    other, boosted = np.zeros_like(one.late), np.zeros_like(one.late)
    for week in np.unique(one.week):
        asked = one.week == week
        other[asked], boosted[asked] = one.medians(~asked, asked), one.boosted(~asked, asked)
    rules = (one.ours, one.medians(every, every), other, boosted)
    assert one.panel.population is not None
    rows = [
        [name, *(round(_ratio(rule[:, inside], one.late[:, inside]), 3) for rule in rules)]
        for name, inside in strata(one.panel.population)
    ]
    columns = [
        "inhabitants",
        "ours",
        "medians fitted on these mornings",
        "medians of the other weeks",
        "boosting that knows the weeks around",
    ]
    kept = table(columns, ["{}", *["{:.2f}"] * len(rules)], rows)
    keep("nowcast-bound", "python benchmarks/nowcast_bound.py", {"strata": kept})


def _ratio(said: Floats, late: Floats) -> float:
    return float(np.abs(said - late).sum() / np.abs(late).sum())


if __name__ == "__main__":
    main()
