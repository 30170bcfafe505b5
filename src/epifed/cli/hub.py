"""`epifed hub`: other teams' forecasts beside ours, and what a hub would refuse of them."""

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from epifed.cli.common import AsJson, messages, print_table, refuse_unwritable
from epifed.data.readers.tables import listed
from epifed.errors import EpifedError, counted
from epifed.files import to_json

if TYPE_CHECKING:
    import polars as pl

app = typer.Typer(
    help="Compare the forecasts of several teams, or check a submission to a forecast hub.",
    no_args_is_help=True,
)
HEADER = ["model", "tasks", "MAE", "WIS (95 %)", "skill", "parts of WIS", "in 50/95 %"]
PARTS = ("sharpness", "overprediction", "underprediction")
GROUPS = {"level": "group", "horizon": "horizon", "phase": "phase"}


@app.command("score")
def score(
    forecasts: Annotated[
        list[Path],
        typer.Option(help="A hubverse folder, or a table of several models. Repeat for several."),
    ],
    truth: Annotated[
        Path,
        typer.Option(
            help="Observed values: a table of date, location and value, by day or week; or a "
            "hub's folder with target-data."
        ),
    ],
    baseline: Annotated[str, typer.Option(help="The model that scores are relative to.")],
    against: Annotated[
        str | None, typer.Option(help="A model to compare every other with on their shared tasks.")
    ] = None,
    models: Annotated[
        list[str] | None,
        typer.Option("--model", help="Score this model. Repeat.", show_default="all"),
    ] = None,
    locations: Annotated[
        Path | None,
        typer.Option(help="A table of location, region and level; others are left out."),
    ] = None,
    horizon: Annotated[
        list[int] | None,
        typer.Option(help="Weeks ahead. Repeat for several.", show_default="all"),
    ] = None,
    first: Annotated[
        datetime | None,
        typer.Option("--from", formats=["%Y-%m-%d"], help="First reference date."),
    ] = None,
    last: Annotated[
        datetime | None, typer.Option("--to", formats=["%Y-%m-%d"], help="Last reference date.")
    ] = None,
    by: Annotated[
        list[str] | None,
        typer.Option(
            help="Group by level, horizon or phase (rising, steady, falling). Repeat for several.",
            show_default="level, horizon",
        ),
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="The hub's target, where it has several.")
    ] = None,
    truth_weeks: Annotated[
        str, typer.Option(help="Which day weeks of the truth are dated by: first or last.")
    ] = "last",
    out: Annotated[
        Path | None, typer.Option(help="Directory for the scores of all tasks and a figure.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare the forecasts of several models on the same regions, dates and horizons.

    MAE (of the median) and WIS are relative to the baseline; below 1 is better. Their intervals
    come from resampling the dates. Skill compares each model with all others in pairs. Sharpness,
    over- and underprediction are shares of the WIS.
    """
    if out is not None:
        refuse_unwritable(out)
    import polars as pl

    from epifed.files import write_parquet
    from epifed.hubs.tables import (
        EVERYWHERE,
        by_last_days,
        compare,
        read_forecasts,
        read_locations,
        read_truth,
    )
    from epifed.hubs.tables import score as score_tasks

    if truth_weeks not in ("first", "last"):
        raise EpifedError(f"--truth-weeks: found '{truth_weeks}'; expected first or last")
    keys = _keys(by)
    frame = pl.concat(read_forecasts(path, target) for path in forecasts)
    _refuse_shared(frame, forecasts)
    chosen = pl.lit(value=True)
    if models:
        _refuse_unknown(frame, models)
        chosen &= pl.col("model").is_in({*models, baseline, *filter(None, [against])})
    if horizon:
        chosen &= pl.col("horizon").is_in(horizon)
    if first:
        chosen &= pl.col("reference_date") >= first.date()
    if last:
        chosen &= pl.col("reference_date") <= last.date()
    places = read_locations(locations)
    levels = places.levels or dict.fromkeys(places.regions, EVERYWHERE)
    observed = read_truth(truth, target)
    observed = by_last_days(observed) if truth_weeks == "first" else observed
    scored = score_tasks(frame.filter(chosen), observed, levels or None)
    records = compare(scored.table, baseline, keys, against)
    left_out = {"without_all_levels": scored.incomplete, "without_truth": scored.unknown}
    if out is not None:
        from epifed.report import drawing
        from epifed.report.figures import hub_figure

        write_parquet(out / "scores.parquet", scored.table)
        drawing.save(hub_figure(records, keys, baseline, against), out / "hub_scores.png")
    if as_json:
        result = {"baseline": baseline, "scores": records, "left_out": left_out}
        print(to_json(result | {"unknown_locations": scored.nowhere}))
    else:
        _print(records, keys, baseline, against)
    messages.print(
        f"left out: {counted(scored.incomplete, 'forecast')} without all quantile levels, "
        f"{scored.unknown} "
        "of weeks whose truth is not known"
    )
    if scored.nowhere:
        messages.print(
            f"the truth has no values of {counted(len(scored.nowhere), 'location')}: "
            f"{listed(scored.nowhere)}"
        )
    if out is not None:
        messages.print(f"the scores of all tasks and a figure are in {out}")


@app.command("check")
def check(
    hub: Annotated[Path, typer.Argument(help="The hub's folder.")],
    model: Annotated[str, typer.Option(help="team-model, whose files are looked at.")],
    target: Annotated[
        str | None, typer.Option(help="The hub's target, where it has several.")
    ] = None,
) -> None:
    """List what a hub would refuse in a model's files, by the rules of hubValidations."""
    from epifed.hubs.submission import submission_faults

    faults = submission_faults(hub, model, target)
    if faults:
        more = f" ({len(faults) - 1} more)" if len(faults) > 1 else ""
        raise EpifedError(f"{faults[0]}{more}")
    print(f"{model}: nothing that a hub would refuse was found")


def _keys(by: list[str] | None) -> list[str]:
    wanted = by or ["level", "horizon"]
    if unknown := [name for name in wanted if name not in GROUPS]:
        raise EpifedError(f"--by: found '{unknown[0]}'; expected {', '.join(GROUPS)}")
    return [GROUPS[name] for name in dict.fromkeys(wanted)]


def _refuse_unknown(frame: "pl.DataFrame", models: list[str]) -> None:
    """Refuse models that nobody submitted, which would be missing in silence."""
    names = frame["model"].unique().sort().to_list()
    if unknown := [model for model in models if model not in names]:
        raise EpifedError(f"--model: found '{unknown[0]}'; expected one of {', '.join(names)}")


def _refuse_shared(frame: "pl.DataFrame", paths: list[Path]) -> None:
    """Refuse the same forecast from two places: which of them counted would be chance."""
    from epifed.hubs.tables import TASK

    twice = frame.select("model", *TASK, "level").is_duplicated()
    if twice.any():
        models = frame.filter(twice)["model"].unique().sort().to_list()
        raise EpifedError(
            f"--forecasts: found forecasts of {models[0]} in two of {len(paths)} places; expected "
            "each in one"
        )


def _print(
    records: list[dict[str, Any]], keys: list[str], baseline: str, against: str | None
) -> None:
    """A table for each group."""
    header = [*HEADER, "against (95 %)"] if against else HEADER
    also = f"; against: WIS relative to {against}" if against else ""
    groups: dict[str, list[list[str]]] = {}
    for row in records:
        group = ", ".join(_named(key, row[key]) for key in keys)
        groups.setdefault(group, []).append(_cells(row, against is not None))
    for name, rows in groups.items():
        print_table(f"{name}: relative to {baseline}{also}", header, rows, "")
    print(
        "Below 1 is better. MAE and WIS: on the tasks that a model and the baseline both have, in "
        "brackets 95 % of the\ndraws of dates. Skill: pairwise comparison with all models. Parts "
        "of WIS: sharpness, over- and underprediction in per cent."
    )


def _named(key: str, value: Any) -> str:
    return f"week {value}" if key == "horizon" else str(value)


def _cells(row: dict[str, Any], against: bool) -> list[str]:
    def number(value: float | None, digits: int = 3) -> str:
        return "–" if value is None else f"{value:.{digits}f}"

    def ratio(name: str) -> str:
        low, high = (number(row[f"{name}_{end}"], 2) for end in ("low", "high"))
        return f"{number(row[name])} ({low}–{high})"

    whole = row["wis"] or 1.0
    cells = [
        row["model"],
        str(row["tasks"]),
        number(row["mae_ratio"]),
        ratio("wis_ratio"),
        number(row["relative_skill"]),
        "/".join(f"{100 * row[part] / whole:.0f}" for part in PARTS),
        f"{100 * row['coverage_50']:.0f}/{100 * row['coverage_95']:.1f}",
    ]
    return [*cells, ratio("against")] if against else cells
