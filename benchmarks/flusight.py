"""Influenza admissions of US states against FluSight-baseline, on exactly its tasks.

    python benchmarks/flusight.py ../shared/data [RUNS]

Every state is a client, every Saturday from `--from` on a release; the reference date of a hub's
round is the Saturday after the last week that was known. Truth is the file's, a later state than
what teams had. The season that is scored decided nothing in the learner.
"""

import argparse
import math
import tempfile
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import polars as pl

import epifed
from epifed.evaluate.scored import COVERAGES
from epifed.intervals import LEVELS, weighted_interval_score

BASELINE = "FluSight-baseline"
WEEK = timedelta(days=7)


def main() -> None:
    """Print the WIS relative to the baseline, by horizon and over all, for ε = ∞ and ε = 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("runs", type=int, nargs="?", default=15)
    parser.add_argument("--from", dest="first", type=date.fromisoformat, default="2022-09-03")
    given = parser.parse_args()
    admissions = pl.read_csv(
        given.data / "flu_admissions.csv", schema_overrides={"location": pl.String}
    ).filter(pl.col("location") != "US")
    panel = epifed.load_panel(admissions, region="location", cases="value")
    hub = pl.read_parquet(given.data / "flusight_forecasts.parquet")
    hub = hub.filter(pl.col("location") != "US", pl.col("quantile").is_not_null())
    scored = _scores(admissions, hub)
    for other in scored["model"].unique().sort():
        if other != BASELINE:
            print(f"{other:24}", _line(scored.filter(model=other), scored))
    for epsilon in (math.inf, 1.0):
        runs = given.runs if math.isfinite(epsilon) else 1
        ours = [
            _ours(panel, epsilon, seed, given.first, admissions, scored) for seed in range(runs)
        ]
        ratios = np.array([_ratios(one, scored) for one in ours])
        together = " ± ".join(f"{v:.3f}" for v in (ratios[:, 0].mean(), ratios[:, 0].std()))
        by_horizon = " / ".join(f"{v:.3f}" for v in ratios[:, 1:].mean(axis=0))
        covered = pl.concat(ours).select(
            *(
                pl.col("truth").is_between(f"low_{c}", f"high_{c}").mean().alias(c)
                for c in COVERAGES
            )
        )
        cover = " / ".join(f"{100 * v:.1f} %" for v in covered.row(0))
        print(
            f"epifed, ε = {epsilon:g}, {runs} runs: {together}; {by_horizon}; in 50/95 %: {cover}"
        )


def _scores(admissions: pl.DataFrame, forecasts: pl.DataFrame) -> pl.DataFrame:
    """The WIS of each model's forecast of each task whose truth is known."""
    keys = ["model", "reference_date", "target_end_date", "horizon", "location"]
    wide = (
        forecasts.with_columns(pl.col("quantile").round(4))
        .filter(pl.col("quantile").is_in(LEVELS))
        .sort("quantile")
        .group_by(keys)
        .agg(pl.col("value"))
    )
    truth = admissions.select(
        pl.col("date").cast(pl.String).str.to_date().alias("target_end_date"),
        "location",
        pl.col("value").alias("truth"),
    )
    known = wide.join(truth.drop_nulls(), on=["target_end_date", "location"])
    quantiles = np.array(known["value"].to_list())
    bounds = {
        f"{name}_{c}": quantiles[:, LEVELS.index(level)]
        for c, levels in COVERAGES.items()
        for name, level in zip(("low", "high"), levels, strict=True)
    }
    wis = weighted_interval_score(known["truth"].to_numpy(), quantiles)
    return known.drop("value").with_columns(wis=pl.Series(wis), **bounds)


def _ours(
    panel: epifed.CasePanel,
    epsilon: float,
    seed: int,
    first: date,
    admissions: pl.DataFrame,
    scored: pl.DataFrame,
) -> pl.DataFrame:
    """Our scores of the baseline's tasks."""
    last = max(scored["target_end_date"])
    tables = []
    for weeks in (1, 2, 3, 4):
        with tempfile.TemporaryDirectory() as out:
            found = epifed.backtest(
                panel, first, last, learner="trend", epsilon=epsilon, horizon=weeks, seed=seed,
                out=out,
            )  # fmt: skip
        tables += [
            one.to_long().select(
                pl.lit("epifed").alias("model"),
                (pl.col("origin_date") + WEEK).alias("reference_date"),
                pl.col("target_date").alias("target_end_date"),
                pl.lit(weeks - 1, dtype=pl.Int8).alias("horizon"),
                pl.col("region").alias("location"),
                pl.col("level").alias("quantile"),
                "value",
            )
            for one in found.forecasts
        ]
    tasks = scored.filter(model=BASELINE).select("reference_date", "horizon", "location")
    ours = _scores(admissions, pl.concat(tables))
    return tasks.join(ours, on=["reference_date", "horizon", "location"])


def _ratios(ours: pl.DataFrame, scored: pl.DataFrame) -> list[float]:
    """Over all horizons, then each: the sum of our WIS over the baseline's, on the same tasks."""
    keys = ["reference_date", "horizon", "location"]
    both = scored.filter(model=BASELINE).join(ours, on=keys, suffix="_ours")
    if len(both) != len(scored.filter(model=BASELINE)):
        raise SystemExit("found a task without a forecast of ours; expected all of them")
    parts = [both, *(both.filter(horizon=h) for h in sorted(both["horizon"].unique()))]
    return [float(one["wis_ours"].sum()) / float(one["wis"].sum()) for one in parts]


def _line(ours: pl.DataFrame, scored: pl.DataFrame) -> str:
    return " / ".join(f"{ratio:.3f}" for ratio in _ratios(ours, scored))


if __name__ == "__main__":
    main()
