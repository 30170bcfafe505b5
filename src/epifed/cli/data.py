"""`epifed data` and `epifed simulate`: check, convert, fetch, draw communities, invent."""

import json
import time
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from epifed.cli.common import (
    AsJson,
    Reading,
    messages,
    print_table,
    reads_cases,
    refuse_unwritable,
    refuse_unwritable_file,
)
from epifed.errors import EpifedError, counted, spoken
from epifed.files import to_json, write_parquet, write_text
from epifed.settings import PERIODS, Settings, Smoothing

if TYPE_CHECKING:
    import polars as pl

    from epifed.data.panel import CasePanel
    from epifed.data.readers.tables import AmbiguousTableError
    from epifed.data.vintages import Vintages
    from epifed.data_check import CheckReport
    from epifed.simulate import Simulation
    from epifed.training.loop import NoisePreview


LAGS = 8
_NAMES = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def describe(late: "Vintages") -> dict[str, Any]:
    """The mornings of a list and its completeness by lag and weekday, ready for JSON."""
    return {
        "first_morning": late.first,
        "last_morning": late.last,
        "mornings": len(late.snapshots),
        "missing_mornings": list(late.missing),
        "completeness": late.completeness(LAGS).to_dicts(),
        "notes": list(late.notes),
    }


def print_completeness(late: "Vintages") -> None:
    """A row for all reporting dates and one for each weekday, a column for each lag."""
    shares = {
        (row["weekday"], row["lag"]): row["share"]
        for row in late.completeness(LAGS).iter_rows(named=True)
    }
    rows = [
        [name, *(_percent(shares.get((weekday, lag))) for lag in range(LAGS))]
        for weekday, name in ((None, "all"), *enumerate(_NAMES))
    ]
    gaps = ", ".join(map(str, late.missing)) or "none"
    caption = (
        f"{counted(len(late.snapshots), 'vintage')} from {late.first} to {late.last}, missing: "
        f"{gaps}. "
        "Share of the cases known now that were known then: rows are weekdays of the reporting "
        "date, columns are days since the first vintage with it."
    )
    print_table("How complete days are", ["", *map(str, range(LAGS))], rows, caption)
    for note in late.notes:
        print(f"  {note}")


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}"


_KEPT = {"cadence": ("day", "week"), "counts": ("new",), "totals": ("keep",), "id_width": (0,)}
"""What a clean table does not say by itself either: the option is needed to read it, too."""


@reads_cases
def convert(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Any file that 'data check' reads, or -.")
    ],
    out: Annotated[Path, typer.Option(help="The file to write, .csv or .parquet.")],
    by_publication: Annotated[
        bool,
        typer.Option(
            "--by-publication",
            help="FILE has data vintages: count by publication day, which is never incomplete.",
        ),
    ] = False,
    *,
    reading: Reading,
) -> None:
    """Write a clean table (date, region, cases) and a record of every assumption.

    The record OUT.json lists what was detected, which options were given, and what was changed.
    """
    from importlib.metadata import version

    from epifed.data.readers import load_panel, load_table
    from epifed.data.readers.tables import in_words, source_digest
    from epifed.data.readers.vintage_files import load_vintages

    if out.suffix.lower() not in {".csv", ".parquet"}:
        raise EpifedError(f"{out}: expected a name that ends in .csv or .parquet")
    if by_publication and reading.options:
        names = ", ".join(reading.options)
        raise EpifedError(f"--by-publication: found {names} beside it; expected none of these")
    refuse_unwritable_file(out)
    if out.exists() and file.exists() and out.samefile(file):
        raise EpifedError(f"{out}: found the source itself; expected another name")
    table = None if by_publication else load_table(file, reading.format, **reading.options)
    if table is None:
        panel = (
            load_vintages(file).published()
            if by_publication
            else load_panel(file, reading.format, **reading.options)
        )
        frame = panel.to_table().rename({"date": "day"})
        notes, read_as = panel.notes, dict(reading.options)
    else:
        frame, notes, read_as = table.frame, table.notes, table.read_as
    clean = _clean(frame)
    if out.suffix.lower() == ".parquet":
        write_parquet(out, clean)
    else:
        write_text(out, _as_csv(clean))
    cases, days = float(clean["cases"].sum()), clean["date"].sort()
    record = {
        "epifed": version("epifed"),
        "source": file.name,
        "source_sha256": None if file.is_dir() else source_digest(file),
        "said": reading.options,
        "read_as": read_as,
        "by": "publication" if by_publication else "report",
        "changed": list(notes),
        "rows": len(clean),
        "regions": clean["region"].n_unique(),
        "first_day": days[0],
        "last_day": days[-1],
        "cases": cases,
    }
    write_text(out.with_name(f"{out.name}.json"), to_json(record) + "\n")
    print(
        f"{out}: {counted(len(clean), 'row')}, {counted(record['regions'], 'region')}, "
        f"{days[0]} to {days[-1]}, {cases:,.12g} cases"
    )
    for note in notes:
        print(f"  {note}")
    kept = {k: v for k, v in reading.options.items() if v in _KEPT.get(k, ())}
    print(f"Look at it with: epifed data check {out} {in_words(kept)}".rstrip())


def _clean(frame: "pl.DataFrame") -> "pl.DataFrame":
    """date, region, cases and facts in order, whole numbers as such."""
    import polars as pl

    from epifed.data.readers.values import SAID_FACTS

    names = [name for name in ("region", "cases", *SAID_FACTS) if name in frame.columns]
    clean = frame.select(pl.col("day").alias("date"), *names).sort("region", "date")
    whole = clean["cases"].drop_nulls()
    return (
        clean.with_columns(pl.col("cases").cast(pl.Int64))
        if (whole == whole.round()).all()
        else clean
    )


def _as_csv(clean: "pl.DataFrame") -> str:
    """The table as CSV; a fraction of three digits gets a fourth, for it is no thousand."""
    import polars as pl

    if clean.schema["cases"] == pl.Float64:
        text = pl.col("cases").cast(pl.String)
        fourth = pl.when(text.str.contains(r"\.\d{3}$")).then(text + "0").otherwise(text)
        clean = clean.with_columns(fourth)
    return clean.write_csv()


COPIED = ("county_cases.parquet", "counties.csv", "communities.csv", "counties.geojson",
          "communities.geojson", "ATTRIBUTION.txt")  # fmt: skip


def communities(
    data: Annotated[Path, typer.Option(help="Prepared or simulated directory with counties.")],
    out: Annotated[Path, typer.Option(help="New directory: the same, with these communities.")],
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random draw.")] = 0,
    smoothing: Annotated[
        str, typer.Option(help="none, or a 7-day average: centered (the paper) or trailing.")
    ] = "none",
    as_json: AsJson = False,
) -> None:
    """Draw each county's cases into its communities at random, by share of population.

    The paper did this because real community data are not public. Communities sum to their county
    on every day, but chains of infection are lost. Prints the share of zero values in the paper's
    periods, and draws the paper's figure of it.
    """
    import shutil

    import polars as pl

    from epifed.data.panel import long_table
    from epifed.data.readers import read_prepared
    from epifed.evaluation.experiment import drawn_communities, zero_entries
    from epifed.files import write_parquet
    from epifed.learners.base import smooth
    from epifed.report import figures

    refuse_unwritable(out)
    if out.exists() and any(out.iterdir()):
        raise EpifedError(f"{out}: found a directory with files in it; expected a new or empty one")
    how: Smoothing = Settings.of(smoothing=smoothing).smoothing
    panel = drawn_communities(read_prepared(data), data, seed)
    axes = {"community": panel.regions, "date": panel.days}
    frame = long_table(axes, {"cases": smooth(panel.counts, how)})
    whole = pl.col("cases").cast(pl.Int32) if how == "none" else pl.col("cases")
    write_parquet(out / "community_cases.parquet", frame.select("date", "community", whole))
    for name in COPIED:
        if (data / name).is_file():
            shutil.copyfile(data / name, out / name)
    settings = Settings.paper(smoothing=how)
    covered = {
        period: zero_entries(panel, settings, days)
        for period, days in PERIODS.items()
        if panel.start <= days[0] and days[1] <= panel.end
    }
    if covered:
        figures.save(figures.zero_entries(covered), out / "zero_entries.png")
    if as_json:
        print(to_json({period: table.to_dicts() for period, table in covered.items()}))
    for period, table in covered.items() if not as_json else ():
        rows = [
            [str(row["zeros"]), f"{row['samples']:,}", f"{row['share']:.1%}",
             "–" if row["population_median"] is None else f"{row['population_median']:,.0f}"]
            for row in table.iter_rows(named=True)
        ]  # fmt: skip
        header = ["zeros of 11", "samples", "share", "median population"]
        print_table(f"{period}: zero values per sample", header, rows, f"smoothing: {how}")
    messages.print(f"{out} has {counted(len(panel.regions), 'community')}")


PHASES = {
    "autumn 2020": (date(2020, 9, 1), date(2021, 1, 31)),
    "spring 2022": (date(2022, 1, 1), date(2022, 5, 31)),
}


def simulate(
    out: Annotated[Path | None, typer.Option(help="Directory to write.")] = None,
    seed: Annotated[int, typer.Option(help="Root of all randomness.")] = 0,
    preset: Annotated[
        str,
        typer.Option(
            help="autumn-2020, omicron-2022, pandemic (both and all between), or crossing (a wave "
            "that moves from west to east)."
        ),
    ] = "pandemic",
    counties: Annotated[int, typer.Option(help="N, counties.")] = 400,
    communities: Annotated[int, typer.Option(help="Communities, at least N.")] = 10_786,
    days: Annotated[int | None, typer.Option(help="Only so many days from the first.")] = None,
    level: Annotated[float, typer.Option(help="Cases relative to the preset's.")] = 1.0,
    ascertainment: Annotated[
        float | None, typer.Option(help="Share of infections ever reported.")
    ] = None,
    superspreading: Annotated[
        float | None, typer.Option(help="k, dispersion of the number a person infects.")
    ] = None,
    realism: Annotated[
        Path | None, typer.Option(help="Real data directory to compare with, county by county.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Simulate an epidemic in an invented country and write a data directory."""
    if out is None and realism is None:
        raise EpifedError("found neither --out nor --realism; expected a directory to write to")
    from rich.console import Console

    from epifed.simulate import SimulationSettings
    from epifed.simulate import simulate as run
    from epifed.simulate.simulation import check_target, summary, write

    settings = SimulationSettings.of(
        seed=seed,
        preset=preset,
        counties=counties,
        communities=communities,
        days=days,
        level=level,
        ascertainment=ascertainment,
        superspreading=superspreading,
    )
    if out is not None:
        check_target(out)
        refuse_unwritable(out)
    began = time.perf_counter()
    with Console(stderr=True).status("simulating") as status:
        simulation = run(settings, status.update)
        if out is not None:
            status.update("drawing maps and writing files")
            write(simulation, out)
    about = summary(simulation) | {"seconds": round(time.perf_counter() - began, 1)}
    tables = {} if realism is None else _compare(simulation, realism)
    if as_json:
        about["realism"] = {name: table.to_dicts() for name, table in tables.items()}
        print(json.dumps(about, ensure_ascii=False))
        return
    for name, table in tables.items():
        _show(name, table)
    if out is not None:
        print(
            f"Wrote {out}: {about['cases']:,} simulated cases in {about['counties']:,} counties "
            f"and {about['communities']:,} communities from {about['first_day']} to "
            f"{about['last_day']}, in {about['seconds']} s."
        )


def _compare(simulation: "Simulation", folder: Path) -> "dict[str, pl.DataFrame]":
    from epifed.data.readers import read_prepared
    from epifed.simulate.simulation import realism_table

    real, panel = read_prepared(folder), simulation.county_panel
    tables = {
        name: realism_table(
            real, panel, (first, last), simulated_positions=simulation.country.county_positions
        )
        for name, (first, last) in PHASES.items()
        if panel.start <= first and last <= panel.end
    }
    if not tables:
        raise EpifedError(
            f"found days {panel.start} … {panel.end}; expected all of a phase to compare: "
            + " or ".join(f"{first} … {last}" for first, last in PHASES.values())
        )
    return tables


def _show(name: str, table: "pl.DataFrame") -> None:
    from rich.console import Console
    from rich.table import Table

    shown = Table("trait", title=f"Realism, {name}", title_justify="left")
    for column in ("real", "simulated", "off"):
        shown.add_column(column, justify="right")
    for trait, real, simulated, off in table.iter_rows():
        shown.add_row(trait, f"{real:,.3f}", f"{simulated:,.3f}", f"{off:+.0f} %")
    Console().print(shown)


app = typer.Typer(
    help="Check or convert a file of case counts, or download the official German file.",
    no_args_is_help=True,
)
fetch_app = typer.Typer(
    help="Download public case data into the cache.",
    no_args_is_help=True,
)
app.add_typer(fetch_app, name="fetch")
app.command("communities")(communities)
app.command("convert")(convert)

USUAL_EPSILONS = (1.0, 0.1)
_LISTED = 8
_BAR = 20


@app.command("check")
@reads_cases
def check(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="CSV, Excel or parquet table, RKI line list, memilio-epidata JSON, prepared "
            "directory; - is standard input.",
        ),
    ],
    *,
    vintages: Annotated[
        Path | None,
        typer.Option(help="Data vintages: also print how complete days are by their age."),
    ] = None,
    column_entry: Annotated[
        str | None, typer.Option(help="With --vintages: column of the day a row was entered.")
    ] = None,
    column_known: Annotated[
        str | None,
        typer.Option(
            help="With --vintages: column of the first day on which a row was in the list."
        ),
    ] = None,
    column_reported: Annotated[
        str | None, typer.Option(help="With --vintages: column of the reporting date.")
    ] = None,
    as_json: AsJson = False,
    reading: Reading,
) -> None:
    """Check a file of case counts: regions, days, gaps, zeros, weekdays, implausible counts.

    Prints how the table was read. Exit code 2: the file is ambiguous (the options to add are named)
    or has bad data (row and column are named). Exit code 1: the file can be read, but is too short
    for a forecast or has days in the future.
    """
    from epifed.data.readers.tables import AmbiguousTableError
    from epifed.data_check import check_panel

    try:
        read_as, panel = reading.look(file)
    except AmbiguousTableError as first:
        _say_what_reads(file, reading, first)
        raise typer.Exit(2) from None
    report = check_panel(panel)
    expected = _expected(panel)
    late = None
    if vintages is not None:
        from epifed.data.readers.vintage_files import load_vintages

        columns = {"entry": column_entry, "known": column_known, "reported": column_reported}
        columns |= {"region": reading.options.get("region")}
        late = load_vintages(vintages, **{k: v for k, v in columns.items() if v is not None})
    if as_json:
        more: dict[str, Any] = {} if late is None else {"vintages": describe(late)}
        more |= {"read_as": read_as, "expected_noise": [preview.to_dict() for preview in expected]}
        print(to_json(report.to_dict() | more))
    else:
        _print_report(report, read_as, [preview.sentence() for preview in expected])
        if late is not None:
            print_completeness(late)
    if report.future_days or not report.enough_days:
        raise typer.Exit(1)


def _say_what_reads(file: Path, reading: Reading, first: "AmbiguousTableError") -> None:
    """Say everything that must be said of a file, and the options that read it."""
    from epifed.data.readers.tables import AmbiguousTableError, in_words

    def say(sentence: object) -> None:
        messages.print(f"epifed: {spoken(str(sentence))}", markup=False, soft_wrap=True)

    error: EpifedError | None = first
    added: dict[str, Any] = {}
    while isinstance(error, AmbiguousTableError) and not error.choices[0].keys() <= added.keys():
        say(error)
        added |= error.choices[0]
        try:
            reading.at(**added).look(file)
            error = None
        except EpifedError as next_error:
            error = next_error
    if error is not None:
        say(error)
    if len(added) > 1 or error is not None:
        say(f"with the first way of each: {in_words(added)}")


@fetch_app.command("rki")
def fetch_rki(
    url: Annotated[
        str | None,
        typer.Option(
            envvar="EPIFED_RKI_URL", help="Address of the line list (default: the RKI's own)."
        ),
    ] = None,
    cache: Annotated[
        Path | None,
        typer.Option(
            envvar="EPIFED_CACHE", help="Directory for the file (default: the user's cache)."
        ),
    ] = None,
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Download again even if the cached file is whole.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Download the RKI's line list of SARS-CoV-2 infections, about half a gigabyte.

    A broken download is resumed by the next call. The record of source, time and hash is kept
    beside the file.
    """
    from rich.progress import DownloadColumn, Progress, TransferSpeedColumn

    from epifed.data.readers.download import RKI_URL, fetch, record_of

    hidden = as_json or not messages.is_terminal
    columns = (*Progress.get_default_columns(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=messages, transient=True, disable=hidden) as progress:
        task = progress.add_task("RKI line list", total=None)
        path = fetch(
            url or RKI_URL,
            cache,
            lambda done, total: progress.update(task, completed=done, total=total),
            refresh=refresh,
        )
    record = record_of(path)
    values = vars(record) if record is not None else {}
    if as_json:
        print(to_json({"path": str(path), **values}))
        return
    print(path)
    for key, value in values.items():
        print(f"  {key}: {value}")
    print(f"Look at it with: epifed data check {path}")


def _expected(panel: "CasePanel") -> list["NoisePreview"]:
    """What noise to expect of a training with these regions, at usual budgets."""
    from epifed.learners.base import make_learner, settings_for
    from epifed.privacy.plan import PrivacyPlan
    from epifed.training.loop import expect

    previews = []
    for epsilon in USUAL_EPSILONS:
        settings = settings_for(panel, {"learner": "trend", "epsilon": epsilon})
        previews.append(
            expect(make_learner(settings), PrivacyPlan.of(settings, len(panel.regions)))
        )
    return [preview for preview in previews if preview is not None]


def _print_report(report: "CheckReport", read_as: dict[str, Any], expected: list[str]) -> None:
    from rich.console import Console
    from rich.table import Table

    from epifed.data_check import WEEKDAYS

    console = Console(highlight=False, markup=False)
    console.print(report.source, style="bold", soft_wrap=True)
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bold")
    facts.add_column()
    if read_as:
        facts.add_row(spoken("read as"), ", ".join(f"{k} {_word(v)}" for k, v in read_as.items()))
    for name, value in _facts(report):
        facts.add_row(spoken(name), spoken(value))
    console.print(facts)
    if report.weekdays is not None:
        console.print("\n" + spoken("The week, relative to the average day"), style="bold")
        for day, share in zip(map(spoken, WEEKDAYS), report.weekdays, strict=True):
            console.print(f"  {day} {spoken(f'{share:.2f}'):>5} {'█' * round(_BAR * share / 2)}")
    kinds = ", ".join(f"{kind} {number:,}" for kind, number in report.anomaly_counts.items())
    console.print("\n" + spoken(f"Implausible counts: {kinds}"), style="bold")
    if report.anomalies:
        heads = map(spoken, ("day", "region", "name", "kind"))
        anomalies = Table(*heads, box=None, pad_edge=True)
        anomalies.add_column(spoken("reported"), justify="right")
        anomalies.add_column(spoken("expected"), justify="right")
        for anomaly in report.anomalies:
            cells = (
                spoken(anomaly.day.isoformat()),
                anomaly.region,
                anomaly.name,
                spoken(anomaly.kind),
            )
            numbers = f"{anomaly.reported:,.6g}", f"{anomaly.expected:,.1f}"
            anomalies.add_row(*cells, *map(spoken, numbers))
        console.print(anomalies)
    sections = {
        "If all regions train together": expected,
        "Notes": report.warnings,
        "Attribution": report.attribution,
    }
    for title, lines in sections.items():
        if lines:
            console.print(f"\n{spoken(title)}", style="bold")
            for line in lines:
                console.print(f"  {spoken(line)}", soft_wrap=True)


def _facts(report: "CheckReport") -> list[tuple[str, str]]:
    from epifed.data_check import GAPS_ARE

    people = (
        f"{report.population:,}"
        if report.population is not None
        else (
            "not in the source: no incidences, and size does not help a forecast "
            "(--column-population names its column, --population-from another sheet or file)"
        )
    )
    gaps, unit = report.gaps, f"{report.step}s"
    missing = "none"
    if gaps.missing:
        missing = (
            f"{counted(gaps.missing, f'region-{report.step}')} ({gaps.share:.1%}) "
            f"without a report, {GAPS_ARE[report.step]}; "
            f"{counted(gaps.regions, 'region')}, longest {counted(gaps.longest, report.step)} "
            f"({gaps.longest_region})"
        )
    verdict = "enough" if report.enough_days else "too few"
    facts = [
        ("regions", f"{report.regions:,}"),
        (unit, f"{counted(report.days, report.step)}, {report.first_day} to {report.last_day}"),
        ("cases", f"{report.cases:,.12g}"),
        ("population", people),
        ("gaps", missing),
        ("zeros", f"{report.zeros:.1%} of region-{unit}"),
        ("without any case", _some(report.silent_regions)),
        ("silent weekends", _some(report.silent_weekends)),
        ("for a forecast", f"{verdict}: it needs {report.days_needed} {unit}"),
    ]
    if report.step == "week":
        facts = [fact for fact in facts if fact[0] != "silent weekends"]
    if report.fractional:
        facts.insert(3, ("not whole", counted(report.fractional, "count")))
    return facts


def _word(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _some(regions: tuple[str, ...]) -> str:
    if not regions:
        return "none"
    more = f" and {len(regions) - _LISTED:,} more" if len(regions) > _LISTED else ""
    return f"{counted(len(regions), 'region')}: {', '.join(regions[:_LISTED])}{more}"
