"""`epifed data`: look at case data before using it, and fetch the official file."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from epifed.cli.communities import communities
from epifed.cli.completeness import describe, print_completeness
from epifed.cli.convert import convert
from epifed.cli.source import Reading, reads_cases
from epifed.days import USUAL_HORIZON, USUAL_WINDOW
from epifed.files import to_json
from epifed.words import counted

if TYPE_CHECKING:
    from epifed.check import CheckReport
    from epifed.expectation import Expectation
    from epifed.panel import CasePanel
    from epifed.reading import UnsaidError

app = typer.Typer(
    help="Check or convert case data, fetch the official German file, or draw communities.",
    no_args_is_help=True,
)
fetch_app = typer.Typer(
    help="Download public case data into the cache, once, verified.",
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
        typer.Option(help="What became known when: also say how complete days are by their age."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the report as JSON and nothing else.")
    ] = False,
    reading: Reading,
) -> None:
    """Say what is in a file of case counts: regions, days, gaps, zeros, the week, anomalies.

    What a table is read as is said. What can be read in more ways than one is refused with the
    options that read it, bad data with its row and column, and exit code 2.
    """
    from epifed.check import check_panel
    from epifed.reading import UnsaidError

    try:
        read_as, panel = _look(file, reading)
    except UnsaidError as first:
        _say_what_reads(file, reading, first)
        raise typer.Exit(2) from None
    report = check_panel(panel)
    expected = _expected(panel)
    known = None
    if vintages is not None:
        from epifed.sources.vintages import load_vintages

        known = load_vintages(vintages)
    if as_json:
        more: dict[str, Any] = {} if known is None else {"vintages": describe(known)}
        more |= {"read_as": read_as, "expected_noise": [one.to_dict() for one in expected]}
        print(to_json(report.to_dict() | more))
    else:
        _print_report(report, read_as, [one.sentence() for one in expected])
        if known is not None:
            print_completeness(known)


def _look(file: Path, reading: Reading) -> tuple[dict[str, Any], "CasePanel"]:
    """What a file was read as, and its panel."""
    from epifed.sources import load_panel, load_table, to_panel

    table = load_table(file, reading.format, **reading.options)
    if table is None:
        return dict(reading.options), load_panel(file, reading.format, **reading.options)
    return table.read_as, to_panel(table)


def _say_what_reads(file: Path, reading: Reading, first: "UnsaidError") -> None:
    """Say everything that must be said of a file, and the options that read it."""
    from epifed.cli.kit import messages
    from epifed.errors import EpifedError
    from epifed.reading import UnsaidError, in_words

    def say(sentence: object) -> None:
        messages.print(f"epifed: {sentence}", markup=False, soft_wrap=True)

    error: EpifedError | None = first
    added: dict[str, Any] = {}
    while isinstance(error, UnsaidError) and not error.choices[0].keys() <= added.keys():
        say(error)
        added |= error.choices[0]
        try:
            _look(file, replace(reading, options=reading.options | added))
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
    as_json: Annotated[
        bool, typer.Option("--json", help="Print path and record as JSON and nothing else.")
    ] = False,
) -> None:
    """Download the RKI's line list of SARS-CoV-2 infections, about half a gigabyte.

    A broken download is resumed by the next call. The record of source, time and hash is kept
    beside the file.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    from epifed.sources.fetch import RKI_URL, fetch, record_of

    console = Console(stderr=True)
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=as_json or not console.is_terminal,
    )
    with progress:
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


def _expected(panel: "CasePanel") -> list["Expectation"]:
    """What noise to expect of a training with these regions, at usual budgets."""
    from epifed.expectation import expect
    from epifed.learner import make_learner, settings_for
    from epifed.privacy.plan import PrivacyPlan

    found = []
    for epsilon in USUAL_EPSILONS:
        settings = settings_for(panel, {"learner": "trend", "epsilon": epsilon})
        found.append(expect(make_learner(settings), PrivacyPlan.of(settings, len(panel.regions))))
    return [one for one in found if one is not None]


def _print_report(report: "CheckReport", read_as: dict[str, Any], expected: list[str]) -> None:
    from rich.console import Console
    from rich.table import Table

    from epifed.check import WEEKDAYS

    console = Console(highlight=False, markup=False)
    console.print(report.source, style="bold", soft_wrap=True)
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bold")
    facts.add_column()
    if read_as:
        facts.add_row("read as", ", ".join(f"{k} {_word(v)}" for k, v in read_as.items()))
    for name, value in _facts(report):
        facts.add_row(name, value)
    console.print(facts)
    if report.weekdays is not None:
        console.print("\nThe week, relative to the average day", style="bold")
        for day, share in zip(WEEKDAYS, report.weekdays, strict=True):
            console.print(f"  {day} {share:5.2f} {'█' * round(_BAR * share / 2)}")
    kinds = ", ".join(f"{kind} {number:,}" for kind, number in report.anomaly_counts.items())
    console.print(f"\nReports that are no count of their {report.step}: {kinds}", style="bold")
    if report.anomalies:
        anomalies = Table("day", "region", "name", "kind", box=None, pad_edge=True)
        anomalies.add_column("reported", justify="right")
        anomalies.add_column("expected", justify="right")
        for one in report.anomalies:
            cells = (one.day.isoformat(), one.region, one.name, one.kind)
            anomalies.add_row(*cells, f"{one.reported:,.6g}", f"{one.expected:,.1f}")
        console.print(anomalies)
    sections = {
        "If all regions train together": expected,
        "Notes": report.warnings,
        "Attribution": report.attribution,
    }
    for title, lines in sections.items():
        if lines:
            console.print(f"\n{title}", style="bold")
            for line in lines:
                console.print(f"  {line}", soft_wrap=True)


def _facts(report: "CheckReport") -> list[tuple[str, str]]:
    from epifed.check import GAPS_ARE

    people = "not in the source" if report.population is None else f"{report.population:,}"
    gaps, unit = report.gaps, f"{report.step}s"
    window, horizon = USUAL_WINDOW[report.step], USUAL_HORIZON[report.step]
    missing = "none"
    if gaps.missing:
        missing = (
            f"{gaps.missing:,} region-{unit} ({gaps.share:.1%}) without a report, "
            f"{GAPS_ARE[report.step]}; "
            f"{counted(gaps.regions, 'region')}, longest {counted(gaps.longest, report.step)} "
            f"({gaps.longest_region})"
        )
    verdict = "enough" if report.enough_days else "too few"
    facts = [
        ("regions", f"{report.regions:,}"),
        (unit, f"{report.days:,}, {report.first_day} to {report.last_day}"),
        ("cases", f"{report.cases:,.12g}"),
        ("population", people),
        ("gaps", missing),
        ("zeros", f"{report.zeros:.1%} of region-{unit}"),
        ("without any case", _some(report.silent_regions)),
        ("silent weekends", _some(report.silent_weekends)),
        (
            "for windows",
            f"{verdict}: window {window} and horizon {horizon} need {report.days_needed} {unit}",
        ),
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
