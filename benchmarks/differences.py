"""Why some cells differ from the paper: experiments, each with one thing changed.

    python benchmarks/differences.py DATA WORK [PART ...]

PART is dates, averages, script, clipped, targets or populations.

Without privacy, where the runs differ least. `dates`: the line list by reporting date and by
reference date (onset where known, as memilio-epidata counts). `averages`: the trailing average,
which the authors' present script uses, beside the centered one. `script`: the test windows that
the authors' public script draws with its seed. `clipped`: on those of November, updates clipped
to S, as the script does on communities without privacy too. `targets`: the variance of the tested
targets, which the paper's MSE and R² give away, beside that of several splits. `populations`: the
numbers of the paper's Fig. 1. WORK keeps finished trainings; each part is kept when done.
"""

import math
import sys
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Any, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from epifed.data.panel import CasePanel
from epifed.data.readers import read_communities, read_prepared
from epifed.evaluation.experiment import Grid, code_digest, run_grid
from epifed.evaluation.metrics import scores
from epifed.evaluation.results_folder import FEDERATED, summary
from epifed.privacy.plan import ClippedPlan, PrivacyPlan
from epifed.report.tables import published
from epifed.settings import PERIODS, Settings, seed_sequence
from epifed.training.loop import Clients, make_clients, train
from kept import keep, table

COMMAND = "python benchmarks/differences.py ../shared/data WORK"
SEPTEMBER = {"2020-09": (date(2020, 9, 1), date(2020, 10, 1))}
"""The last 31 days whose onsets are nearly complete in the list of 2020-10-18."""
PARTS = ("dates", "averages", "script", "clipped", "targets", "populations")
RUNS, DATE_RUNS, SCRIPT_RUNS = 2, 1, 5
SCRIPT_SEED = 1832
"""The seed of the authors' public script."""
METRICS = ("mse", "mae", "mape", "r2")
HEADS = ["MSE", "MAE", "MAPE %", "R²"]
SHORT = ("{:short}", "{:short} ± {:short}")


def settings(smoothing: str = "centered") -> Settings:
    """The paper's county settings without privacy."""
    values: dict[str, Any] = {"epsilon": math.inf, "sampler": "fixed", "smoothing": smoothing}
    return Settings.paper(**values)


def measured(
    panel: CasePanel, work: Path, changed: str, runs: int = RUNS, **changes: Any
) -> list[list[Any]]:
    """A row for each period, split and method: mean and deviation of the paper's metrics."""
    values: dict[str, Any] = {
        "settings": settings(), "epsilons": (math.inf,), "baselines": ("persistence",)
    } | changes  # fmt: skip
    grid = Grid(runs=runs, **values)
    runs_table = run_grid(panel, grid, work / changed.replace(" ", "-"), workers=1).runs
    means = summary(runs_table).sort("period", "split", "method")
    return [
        [
            changed, row["period"], row["split"],
            "federated, ε = ∞" if row["method"] == FEDERATED else row["method"],
            *(cell(row[f"{m}_mean"], row[f"{m}_std"]) for m in METRICS),
        ]
        for row in means.iter_rows(named=True)
    ]  # fmt: skip


def cell(mean: float, deviation: float | None) -> list[float]:
    """Mean and deviation, six digits."""
    return [float(f"{value:.6g}") for value in (mean, deviation) if value is not None]


class ScriptShuffle:
    """The order in which the authors' script shuffles each county's windows, county by county."""

    def permuted(self, order: NDArray[np.int64], axis: int) -> NDArray[np.int64]:
        """Each row shuffled by NumPy's old generator, one after the other."""
        assert axis == 1
        generator, rows = np.random.RandomState(SCRIPT_SEED), order.copy()
        for row in rows:
            generator.shuffle(row)
        return rows


def script_split(panel: CasePanel, work: Path, *, clipped: bool = False) -> list[list[Any]]:
    """Persistence and the federation without privacy on the script's own test windows."""
    chosen = settings().but(split="shuffled")
    rows: list[list[Any]] = []
    changed = "the script's shuffle" + (", clipped" if clipped else "")
    for period in ("2020-11",) if clipped else PERIODS:
        days = PERIODS[period]
        clients = make_clients(panel, chosen, days, cast(np.random.Generator, ScriptShuffle()))
        truth = clients.test.targets.astype(np.float64)
        plan = (ClippedPlan if clipped else PrivacyPlan).of(chosen, len(clients))
        scored: dict[str, list[dict[str, float]]] = {"federated, ε = ∞": [], "persistence": []}
        scored["persistence"].append(scores(truth, clients.test.inputs[..., -1].astype(np.float64)))
        for run in range(SCRIPT_RUNS):
            path = work / code_digest()[:16] / f"{changed}_{period}_{run}.npy".replace(" ", "-")
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                seeds = seed_sequence(0, "script", period, run)
                training = train(clients.view, chosen, seeds=seeds, plan=plan)
                np.save(path, training.predict(clients.test.inputs))
            scored["federated, ε = ∞"].append(scores(truth, np.load(path)))
        for method, of_runs in scored.items():
            values = [[run[m] for run in of_runs] for m in METRICS]
            cells = [
                cell(float(np.mean(v)), float(np.std(v, ddof=1)) if len(v) > 1 else None)
                for v in values
            ]
            rows.append([changed, period, "shuffled", method, *cells])
    return rows


def targets(panel: CasePanel) -> dict[str, Any]:
    """The variance of the tested targets: MSE / (1 − R²), whatever was predicted.

    The paper rounds R² to two digits where it is near 1, so its rows of ε ≤ 0.5 are taken.
    """
    rows: list[list[Any]] = []
    wide = published().pivot(
        "metric", index=["table", "period", "epsilon"], values="published_mean"
    )
    exact = wide.filter(pl.col("epsilon") <= 0.5).group_by("table", "period")
    ratio = (pl.col("mse") / (1 - pl.col("r2"))).median()
    paper = {(name, period): value for name, period, value in exact.agg(ratio).rows()}
    for period, days in PERIODS.items():
        for smoothing in ("centered", "trailing"):
            chosen = settings(smoothing)
            shuffled = chosen.but(split="shuffled")
            script = cast(np.random.Generator, ScriptShuffle())
            others = [
                variance(make_clients(panel, shuffled, days, np.random.default_rng(seed)))
                for seed in range(30)
            ]
            rows.append(
                [
                    period, smoothing, paper["main", period],
                    variance(make_clients(panel, shuffled, days, script)),
                    [float(np.mean(others)), float(np.std(others, ddof=1))],
                    paper["s1", period],
                    variance(make_clients(panel, chosen.but(split="temporal"), days)),
                ]
            )  # fmt: skip
    heads = ["period", "average", "paper, main", "script's shuffle", "30 other shuffles",
             "paper, S1", "temporal"]  # fmt: skip
    formats = ["{}", "{}", *["{:,.0f}"] * 2, "{:,.0f} ± {:,.0f}", *["{:,.0f}"] * 2]
    return table(heads, formats, rows)


def variance(clients: Clients) -> float:
    """Of the tested targets."""
    return float(np.var(clients.test.targets.astype(np.float64)))


def populations(data: Path, counties: CasePanel) -> dict[str, Any]:
    """Regions and inhabitants of the paper's Fig. 1 beside those of our data."""
    assert counties.population is not None
    communities = read_communities(data)["population"].to_numpy()
    published_numbers = {
        "counties": (400, 147_524, 200_525),
        "communities": (10_786, 1_832, 7_827),
    }
    rows = [
        [level, who, number, median, mean, number * mean]
        for level, people in (("counties", counties.population), ("communities", communities))
        for who, (number, median, mean) in (
            ("paper", published_numbers[level]),
            ("here", (len(people), float(np.median(people)), float(np.mean(people)))),
        )
    ]
    heads = ["level", "source", "number", "median", "mean", "number times mean"]
    return table(heads, ["{}", "{}", *["{:,.0f}"] * 4], rows)


def line_list(data: Path, counties: CasePanel, *, reference: bool) -> CasePanel:
    """The list of 2020-10-18 as daily cases, by reporting date or by reference date."""
    rows = pl.read_parquet(data / "linelist_vintages.parquet")
    day = pl.coalesce("onset", "reported") if reference else pl.col("reported")
    daily = (
        rows.group_by(day.alias("day"), pl.col("county").alias("region"))
        .agg(pl.col("cases").sum().cast(pl.Float64).clip(0))
        .filter(pl.col("day").is_between(date(2020, 8, 1), date(2020, 10, 17)))
    )
    people = counties.population
    assert people is not None
    return CasePanel.from_long(
        daily,
        source="line list",
        regions=list(counties.regions),
        regions_given=True,
        population=dict(zip(counties.regions, map(int, people), strict=True)),
    )


def main(data: Path, work: Path, parts: Iterable[str]) -> None:
    """Run the parts and keep each."""
    counties = read_prepared(data)
    heads = ["changed", "period", "split", "method", *HEADS]
    formats = ["{}"] * 4 + [SHORT] * 4
    for part in parts:
        rows: list[list[Any]] = []
        if part == "dates":
            for changed in ("reporting date", "reference date"):
                panel = line_list(data, counties, reference=changed == "reference date")
                rows += measured(panel, work, changed, DATE_RUNS, periods=SEPTEMBER)
        elif part == "averages":
            rows = measured(counties, work, "trailing average", settings=settings("trailing"))
        elif part in ("script", "clipped"):
            rows = script_split(counties, work, clipped=part == "clipped")
        made = table(heads, formats, rows)
        if part == "targets":
            made = targets(counties)
        elif part == "populations":
            made = populations(data, counties)
        print(keep("differences", COMMAND, {part: made}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:] or PARTS)
