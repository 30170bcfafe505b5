"""Forecasts, observed counts and location codes of hubs, read into one form.

Forecasts come from a hubverse folder (`model-output/<model>/…`, CSV or parquet) or from one table
of several models. Observed counts are daily, or weekly by the last day. Models are scored on the
tasks that they share.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from epifed.data.calendar import WEEK, WEEKDAYS
from epifed.data.panel import Table, column_names, pick
from epifed.data.readers.tables import IN_MEMORY
from epifed.errors import EpifedError
from epifed.evaluation.metrics import of_points
from epifed.files import read_json
from epifed.intervals import LEVELS, weighted_interval_score
from epifed.settings import seed_sequence


@dataclass(frozen=True)
class Locations:
    """A hub's codes of regions; without any, the region's own id is its code."""

    codes: dict[str, str] = field(default_factory=dict)
    """The hub's code of each region."""
    levels: dict[str, str] = field(default_factory=dict)
    """The level of each code: state, nation."""

    @property
    def regions(self) -> dict[str, str]:
        """The region of each code."""
        return {code: region for region, code in self.codes.items()}

    def code(self, region: str, allowed: Collection[str] = ()) -> str:
        """The hub's code of a region: from the table, or its own id if the hub allows that.

        A region that the table lacks is refused.
        """
        if not self.codes or (region not in self.codes and region in allowed):
            return region
        if region not in self.codes:
            raise EpifedError(
                f"--locations: found no location of region '{region}'; expected one for each "
                "region that is forecast"
            )
        return self.codes[region]


def read_locations(path: Path | None) -> Locations:
    """Read the table of locations, with columns location, region and, if known, level."""
    if path is None:
        return Locations()
    table = read_table(path)
    if missing := [name for name in ("location", "region") if name not in table.columns]:
        raise EpifedError(
            f"{path}: found no column {missing[0]}; expected location, region, and perhaps level"
        )
    for name in ("location", "region"):
        if table[name].is_duplicated().any() or table[name].null_count():
            raise EpifedError(
                f"{path}: column {name}: found one empty or twice; expected each once"
            )
    codes = dict(table.select("region", "location").iter_rows())
    levels = {}
    if "level" in table.columns:
        levels = dict(table.select("location", "level").drop_nulls().iter_rows())
    return Locations(codes, levels)


TASK = ("reference_date", "horizon", "target_end_date", "location")
"""The columns that identify a forecast."""
FORECASTS = {
    "model": pl.String,
    "reference_date": pl.Date,
    "horizon": pl.Int64,
    "target_end_date": pl.Date,
    "location": pl.String,
    "level": pl.Float64,
    "value": pl.Float64,
}
NAMES: dict[str, tuple[str, ...]] = {
    "model": ("model", "model_id"),
    "reference_date": ("reference_date", "origin_date", "forecast_date"),
    "horizon": ("horizon", "weeks_ahead"),
    "target_end_date": ("target_end_date", "target_date"),
    "location": ("location",),
    "level": ("quantile", "output_type_id", "level"),
    "value": ("value",),
}
"""The names that hubs give to a column, the most usual first."""
TRUTH_NAMES: dict[str, tuple[str, ...]] = {
    "date": ("target_end_date", "date"),
    "location": ("location",),
    "value": ("observation", "value"),
}
LEAST_RISES, MOST_FALLS = 40, 0.02
"""Least number of rises from which a location's truth is checked, and the largest share of falls
per rise in an accumulated one."""
FILES = (".csv", ".parquet")
MODEL_OUTPUT = "model-output"


def read_forecasts(path: Path, target: str | None = None) -> pl.DataFrame:
    """The quantile forecasts of a hub's folder or of a table: a row for each quantile."""
    if path.is_dir():
        found = [
            _forecasts(file, read_table(file), target, model=file.parent.name)
            for file in model_files(path)
        ]
        if not found:
            raise EpifedError(f"{path}: found no file in {MODEL_OUTPUT}; expected a hub's folder")
        frame = pl.concat(found)
    else:
        frame = _forecasts(path, read_table(path), target)
    twice = frame.select("model", *TASK, "level").is_duplicated()
    if twice.any():
        row = frame.filter(twice).row(0, named=True)
        raise EpifedError(
            f"{path}: found quantile {row['level']} of {row['model']} for {row['location']}, "
            f"{row['target_end_date']} from {row['reference_date']}, more than once; expected once"
        )
    return frame


def model_files(hub: Path) -> list[Path]:
    """The forecast files of all models of a hub's folder."""
    folder = hub / model_output(hub)
    return sorted(file for file in folder.glob("*/*") if file.suffix in FILES)


def model_output(hub: Path) -> str:
    """The name of a hub's folder of forecasts, from its settings."""
    admin = hub / "hub-config" / "admin.json"
    said = read_json(admin, "expected a hub").get("model_output_dir") if admin.is_file() else None
    return said if isinstance(said, str) else MODEL_OUTPUT


def read_table(path: Path) -> pl.DataFrame:
    """Read a CSV or parquet table; possible codes stay text."""
    try:
        if path.suffix == ".parquet":
            return pl.read_parquet(path)
        if path.suffix == ".csv":
            return pl.read_csv(path, infer_schema=False)
    except OSError as error:
        raise EpifedError(f"{path}: cannot be read: {error.strerror or error}") from None
    except pl.exceptions.PolarsError as error:
        reason = str(error).splitlines()[0][:200]
        raise EpifedError(f"{path}: expected a table; {reason}") from None
    raise EpifedError(f"{path}: found neither a folder nor {' nor '.join(FILES)}; expected one")


def read_truth(path: Path, target: str | None = None) -> pl.DataFrame:
    """The observed counts in columns date, location, value; rows without a value are left out.

    A hub's folder is read by its `target-data.json`. Of several targets, this one is taken. Of
    several versions of a count (`as_of`), the newest.
    """
    if not path.is_dir():
        return _truth(path, read_table(path), target)
    config = path / "hub-config" / "target-data.json"
    said = read_json(config, "expected a hub's settings") if config.is_file() else {}
    files = [
        file
        for file in sorted((path / "target-data").glob("time-series*/**/*"))
        + sorted((path / "target-data").glob("time-series.*"))
        if file.suffix in FILES
    ]
    if not files:
        raise EpifedError(
            f"{path}: found no target-data/time-series; expected the observed counts of a hub, or "
            "name their table"
        )
    table = pl.concat(map(_partition, files), how="diagonal_relaxed")
    return _truth(path, table, target, said.get("date_col"))


def _partition(file: Path) -> pl.DataFrame:
    """One file of a table, with the columns that its folders' names hold (`as_of=2024-11-20`)."""
    named = dict(part.split("=", 1) for part in file.parent.parts if "=" in part)
    return read_table(file).with_columns(pl.lit(value).alias(name) for name, value in named.items())


def truth_of(table: Table) -> pl.DataFrame:
    """The observed counts in a DataFrame."""
    names = column_names(table)
    return _truth(IN_MEMORY, pick(table, {name: name for name in names}, IN_MEMORY))


def _truth(
    where: Path | str,
    table: pl.DataFrame,
    target: str | None = None,
    date_column: str | None = None,
) -> pl.DataFrame:
    kinds = {"date": pl.Date, "location": pl.String, "value": pl.Float64}
    _refuse_thousands(where, table)
    if "target" in table.columns:
        table = _of_target(where, table, target)
    names = TRUTH_NAMES | ({"date": (date_column,)} if date_column else {})
    versions = {"as_of": ("as_of",)} if "as_of" in table.columns else {}
    frame = _picked(where, table, names | versions, kinds | dict.fromkeys(versions, pl.Date))
    frame = frame.with_columns(pl.col("value").fill_nan(None))
    if versions:
        newest = pl.col("as_of") == pl.col("as_of").max().over("date", "location")
        frame = frame.filter(newest).drop("as_of")
    frame = frame.drop_nulls()
    if frame.is_empty():
        raise EpifedError(f"{where}: found no value; expected what was counted")
    if frame.select("date", "location").is_duplicated().any():
        raise EpifedError(f"{where}: found a date and location twice; expected each once")
    frame = frame.sort("location", "date")
    _refuse_accumulated(where, frame)
    return frame


def _refuse_thousands(where: Path | str, table: pl.DataFrame) -> None:
    """Refuse values that all have three digits behind a point, which may separate thousands."""
    for name in TRUTH_NAMES["value"]:
        if name in table.columns and table.schema[name] == pl.String:
            points = table[name].drop_nulls().filter(table[name].drop_nulls().str.contains(r"\."))
            if len(points) and points.str.contains(r"^[+-]?[1-9]\d{0,2}(\.\d{3})+$").all():
                raise EpifedError(
                    f"{where}: column {name}: found '{points[0]}', which may be thousands; "
                    "expected numbers without signs between them"
                )


def _refuse_accumulated(where: Path | str, truth: pl.DataFrame) -> None:
    """Refuse a truth that hardly ever falls in any location, because it is accumulated."""
    step = pl.col("value").diff().over("location")
    by_location = (
        truth.with_columns(step=step)
        .group_by("location")
        .agg(rises=(pl.col("step") > 0).sum(), falls=(pl.col("step") < 0).sum())
    )
    risen = by_location.filter(pl.col("rises") >= LEAST_RISES)
    rises, falls = int(risen["rises"].sum()), int(risen["falls"].sum())
    if rises and falls <= MOST_FALLS * rises:
        raise EpifedError(
            f"{where}: found values that rise {rises:,} times and fall {falls:,} times, so they "
            "look accumulated; expected those of each day or week"
        )


def by_last_days(truth: pl.DataFrame) -> pl.DataFrame:
    """Change a weekly truth dated by first days of weeks to one dated by last days."""
    if _is_daily(truth):
        raise EpifedError("--truth-weeks: found daily counts; expected those of weeks")
    return truth.with_columns(pl.col("date").dt.offset_by(f"{WEEK - 1}d"))


def _is_daily(truth: pl.DataFrame) -> bool:
    gaps = truth.select(pl.col("date").diff().over("location").dt.total_days())["date"]
    return bool(gaps.median() == 1)


def weekly(truth: pl.DataFrame, ends: Sequence[date]) -> pl.DataFrame:
    """The cases of the weeks that end on these dates: target_end_date, location, truth, before.

    Daily counts are added up, where all seven are there. Weekly ones are unchanged, and refused
    if they are dated by another weekday. `before` is the count of the week before.
    """
    dated, asked = set(truth["date"].dt.weekday()), {day.isoweekday() for day in ends}
    if not _is_daily(truth) and len(dated) == 1 and asked and not dated & asked:
        named = [WEEKDAYS[min(one) - 1] for one in (dated, asked)]
        raise EpifedError(
            f"--truth: found weeks dated by their {named[0]} and forecasts of weeks that end on a "
            f"{named[1]}; expected the same day, or --truth-weeks first where they are dated by "
            "their first day"
        )
    if _is_daily(truth):
        daily = truth.upsample("date", every="1d", group_by="location", maintain_order=True)
        daily = daily.with_columns(pl.col("location").forward_fill())
        week = pl.col("value").rolling_sum(WEEK, min_samples=WEEK).over("location")
        truth = daily.with_columns(value=week)
    before = truth.select(pl.col("date").dt.offset_by(f"{WEEK}d"), "location", before="value")
    return (
        truth.filter(pl.col("date").is_in(list(ends)))
        .join(before, on=["date", "location"], how="left")
        .select(target_end_date="date", location="location", truth="value", before="before")
        .drop_nulls("truth")
    )


def _forecasts(
    path: Path, table: pl.DataFrame, target: str | None, model: str | None = None
) -> pl.DataFrame:
    """The quantiles of one table; point forecasts and other kinds are left out."""
    if "output_type" in table.columns:
        table = table.filter(pl.col("output_type") == "quantile")
    if "target" in table.columns:
        table = _of_target(path, table, target)
    if model is not None:
        table = table.with_columns(model=pl.lit(model))
    names = dict(NAMES)
    if not set(names["target_end_date"]) & set(table.columns):
        table = _with_end(path, table)
    frame = _picked(path, table, names, FORECASTS)
    frame = frame.with_columns(pl.col("level").fill_nan(None)).drop_nulls("level")
    whole = pl.all_horizontal(pl.all().is_not_null(), pl.col("value").is_finite())
    if not frame.select(whole.all()).item():
        raise EpifedError(
            f"{path}: found an empty cell, or a value that is no number; expected a forecast in "
            "every row"
        )
    return frame


def _of_target(path: Path | str, table: pl.DataFrame, target: str | None) -> pl.DataFrame:
    known = table["target"].unique().sort().to_list()
    if target is None and len(known) > 1:
        raise EpifedError(
            f"{path}: found the targets {', '.join(map(str, known))}; expected one: choose it with "
            "--target"
        )
    return table if target is None else table.filter(pl.col("target") == target)


def _with_end(path: Path, table: pl.DataFrame) -> pl.DataFrame:
    """Add a missing target end date, whole weeks after the reference date as in hubverse."""
    two = {name: NAMES[name] for name in ("reference_date", "horizon")}
    both = _picked(path, table, two, {name: FORECASTS[name] for name in two})
    known = both["horizon"].drop_nulls().unique()
    if len(known) and (known % WEEK == 0).all() and int(known.max()) >= WEEK:  # type: ignore[arg-type]
        raise EpifedError(
            f"{path}: column horizon: found {', '.join(map(str, known.sort()))}, which look like "
            "days; expected weeks, or a column target_end_date"
        )
    weeks = pl.duration(weeks=pl.col("horizon"))
    end = both.select((pl.col("reference_date") + weeks).alias("target_end_date"))
    return table.with_columns(end.to_series())


def _picked(
    path: Path | str,
    table: pl.DataFrame,
    names: dict[str, tuple[str, ...]],
    kinds: dict[str, type[pl.DataType]],
) -> pl.DataFrame:
    """The columns under their present names, renamed and in their types."""
    columns = []
    for name, known in names.items():
        there = [one for one in known if one in table.columns]
        if not there:
            raise EpifedError(f"{path}: found no column {' or '.join(known)}; expected one")
        columns.append(_cast(pl.col(there[0]), table.schema[there[0]], kinds[name]).alias(name))
    try:
        return table.select(columns)
    except pl.exceptions.PolarsError as error:
        reason = str(error).splitlines()[0][:200]
        raise EpifedError(f"{path}: found a value of another type ({reason})") from None


def typed(table: pl.DataFrame, kinds: Mapping[str, Any]) -> pl.DataFrame:
    """These columns of a table in their types; a polars error where a type does not fit."""
    return table.select(
        _cast(pl.col(name), table.schema[name], kind).alias(name) for name, kind in kinds.items()
    )


def _cast(column: pl.Expr, found: pl.DataType, wanted: Any) -> pl.Expr:
    if found == pl.String and wanted == pl.Date:
        return column.str.to_date("%Y-%m-%d")
    if found == pl.String and wanted == pl.Float64:
        return column.replace({"": None, "NA": None}).cast(wanted)
    return column.cast(wanted)


Floats = NDArray[np.float64]

PARTS = ("sharpness", "overprediction", "underprediction")
PHASES = ("rising", "steady", "falling")
STEADY = 0.1
"""Largest relative change against the week before with which a week counts as steady."""
EVERYWHERE = "all"


def wis_parts(truth: Floats, quantiles: Floats) -> tuple[Floats, Floats, Floats]:
    """Sharpness, over- and underprediction of quantiles [..., levels], which add up to the WIS.

    >>> q = np.array(LEVELS) * 100
    >>> [round(float(part), 2) for part in wis_parts(np.array(50.0), q)]
    [7.47, 0.0, 0.0]
    """
    half = len(LEVELS) // 2
    lower, middle, upper = quantiles[..., :half], quantiles[..., half], quantiles[..., :half:-1]
    alpha = 2 * np.array(LEVELS[:half])
    y = truth[..., None]
    above, below = np.maximum(lower - y, 0.0).sum(-1), np.maximum(y - upper, 0.0).sum(-1)
    weights = half + 0.5
    return (
        (alpha / 2 * (upper - lower)).sum(-1) / weights,
        (above + np.maximum(middle - truth, 0.0) / 2) / weights,
        (below + np.maximum(truth - middle, 0.0) / 2) / weights,
    )


@dataclass(frozen=True)
class Scored:
    """The scores of all tasks, with the numbers of forecasts that could not be scored."""

    table: pl.DataFrame
    """model, task, group, phase, truth, median, ae, wis, its parts, in_50, in_95."""
    incomplete: int
    """Forecasts without all quantile levels."""
    unknown: int
    """Forecasts of weeks whose truth is not known."""
    nowhere: tuple[str, ...] = ()
    """Locations that are not in the truth."""


def score(
    forecasts: pl.DataFrame, truth: pl.DataFrame, groups: dict[str, str] | None = None
) -> Scored:
    """Score forecasts (`read_forecasts`) against a truth (`read_truth`).

    `groups` is the level of each location, nation or state; others are left out.
    """
    wide = _wide(forecasts)
    if groups is not None:
        wide = wide.filter(pl.col("location").is_in(list(groups)))
    every = len(wide)
    complete = wide.drop_nulls()
    came = weekly(truth, complete["target_end_date"].unique().to_list())
    known = complete.join(came, on=["target_end_date", "location"], maintain_order="left")
    if known.is_empty():
        raise EpifedError(
            f"found {every} forecasts, none with all {len(LEVELS)} quantile levels and a known "
            "truth; expected some of the truth's weeks and locations"
        )
    quantiles, y = known.select(map(str, LEVELS)).to_numpy(), known["truth"].to_numpy()
    parts = dict(zip(PARTS, wis_parts(y, quantiles), strict=True))
    median = quantiles[:, LEVELS.index(0.5)]
    columns = {
        "median": median,
        "ae": np.abs(median - y),
        "wis": weighted_interval_score(y, quantiles),
    }
    for name, low, high in (("in_50", 0.25, 0.75), ("in_95", 0.025, 0.975)):
        ends = quantiles[:, LEVELS.index(low)], quantiles[:, LEVELS.index(high)]
        columns[name] = (ends[0] <= y) & (y <= ends[1])
    group = pl.lit(EVERYWHERE)
    if groups is not None:
        group = pl.col("location").replace_strict(groups, return_dtype=pl.String)
    table = known.select(
        "model", *TASK, group.alias("group"), _phase().alias("phase"), "truth"
    ).with_columns(pl.DataFrame(columns | parts))
    places = set(complete["location"]) - set(truth["location"])
    return Scored(table, every - len(complete), len(complete) - len(known), tuple(sorted(places)))


def _wide(forecasts: pl.DataFrame) -> pl.DataFrame:
    """A row for each task of a model, a column for each quantile level; others are left out."""
    named = pl.col("level").round(6).cast(pl.Float64)
    frame = forecasts.with_columns(named).filter(pl.col("level").is_in(LEVELS))
    every = [
        pl.col("value").filter(pl.col("level") == level).first().alias(str(level))
        for level in LEVELS
    ]
    return frame.group_by("model", *TASK, maintain_order=True).agg(every).sort("model", *TASK)


def _phase() -> pl.Expr:
    """Whether the forecast week had more or fewer cases than the week before."""
    change = ((pl.col("truth") - pl.col("before")) / pl.col("before")).fill_nan(0.0)
    rising, steady, falling = PHASES
    return (
        pl.when(change > STEADY)
        .then(pl.lit(rising))
        .when(change < -STEADY)
        .then(pl.lit(falling))
        .when(change.is_not_null())
        .then(pl.lit(steady))
    )


DRAWS = 2000
"""Number of random draws of the dates."""
CERTAINTY = 0.95


@dataclass(frozen=True)
class Ratio:
    """The mean score of one model relative to another's on the tasks of both."""

    value: float
    low: float
    high: float
    """Ends of the interval of the ratio in 95 % of the drawn sets of dates."""
    tasks: int
    dates: int


def ratio(one: pl.DataFrame, other: pl.DataFrame, score: str = "wis") -> Ratio | None:
    """The ratio of two models' scores; none if they share no task, or the other's score is 0."""
    both = one.join(other, on=TASK, suffix="_other")
    sums = both.group_by("reference_date").agg(pl.col(score, f"{score}_other").sum())
    sums = sums.sort("reference_date")
    mine, theirs = sums[score].to_numpy(), sums[f"{score}_other"].to_numpy()
    if len(sums) == 0 or theirs.sum() == 0:
        return None
    rng = np.random.default_rng(seed_sequence(0, "dates", str(len(sums))))
    drawn = rng.multinomial(len(sums), np.full(len(sums), 1 / len(sums)), size=DRAWS)
    below = drawn @ theirs
    every = (drawn @ mine)[below > 0] / below[below > 0]
    tail = (1 - CERTAINTY) / 2
    low, high = np.quantile(every, [tail, 1 - tail])
    return Ratio(float(mine.sum() / theirs.sum()), float(low), float(high), len(both), len(sums))


def relative_skill(table: pl.DataFrame, baseline: str, score: str = "wis") -> dict[str, float]:
    """The relative skill of every model against the baseline, by pairwise comparison."""
    models = table["model"].unique().sort().to_list()
    of = {model: table.filter(pl.col("model") == model).select(*TASK, score) for model in models}
    means = {}
    for model in models:
        shared = (of[model].join(of[other], on=TASK, suffix="_other") for other in models)
        sums = np.array([[both[name].sum() for name in (score, f"{score}_other")]
                         for both in shared if len(both)], dtype=np.float64)  # fmt: skip
        logs = np.log(sums[(sums > 0).all(axis=1)]) @ [1.0, -1.0]
        means[model] = float(np.exp(np.mean(logs))) if len(logs) else np.nan
    return {model: mean / means[baseline] for model, mean in means.items()}


def compare(
    table: pl.DataFrame,
    baseline: str,
    by: Sequence[str] = ("group", "horizon"),
    against: str | None = None,
) -> list[dict[str, Any]]:
    """A record for each model in each group: scores, relative to the baseline on the same tasks.

    With `against`, also relative to that model. The best WIS of a group comes first.
    """
    for name in filter(None, (baseline, against)):
        if name not in table["model"]:
            known = ", ".join(table["model"].unique().sort())
            raise EpifedError(f"found no model '{name}' with scores; expected one of {known}")
    rows = []
    for keys, group in table.drop_nulls(by).group_by(by, maintain_order=True):
        models = {name: part for (name,), part in group.group_by("model", maintain_order=True)}
        if baseline not in models:
            continue
        skill = relative_skill(group, baseline)
        rows += [
            dict(zip(by, keys, strict=True))
            | _record(part, models[baseline], models.get(against) if against else None)
            | {"relative_skill": skill[str(name)]}
            for name, part in models.items()
        ]
    order = {phase: i for i, phase in enumerate(PHASES)}
    return sorted(
        rows,
        key=lambda row: (
            *(order.get(row[key], row[key]) for key in by),
            np.inf if row["wis_ratio"] is None else row["wis_ratio"],
        ),
    )


def _record(part: pl.DataFrame, base: pl.DataFrame, other: pl.DataFrame | None) -> dict[str, Any]:
    mae, wis = ratio(part, base, "ae"), ratio(part, base)
    against = None if other is None else ratio(part, other)
    means = part.select("wis", *PARTS, "in_50", "in_95").mean().row(0, named=True)
    return {
        "model": part["model"][0],
        "tasks": len(part),
        "dates": part["reference_date"].n_unique(),
        "shared_tasks": wis.tasks if wis else 0,
        **of_points(part["truth"].to_numpy(), part["median"].to_numpy()),
        "wis": means["wis"],
        **{name: means[name] for name in PARTS},
        "mae_ratio": mae.value if mae else None,
        "wis_ratio": wis.value if wis else None,
        "wis_ratio_low": wis.low if wis else None,
        "wis_ratio_high": wis.high if wis else None,
        "coverage_50": means["in_50"],
        "coverage_95": means["in_95"],
        "against": against.value if against else None,
        "against_low": against.low if against else None,
        "against_high": against.high if against else None,
        "against_tasks": against.tasks if against else 0,
    }
