"""What the commands share: options, settings, progress with an ETA, and printed tables."""

import inspect
import math
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import date, datetime
from functools import cached_property, wraps
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType, NoneType
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from epifed.data.readers.tables import AmbiguousTableError, Assumptions, in_words, option_of
from epifed.errors import EPSILON, EpifedError, counted, printable, spoken
from epifed.settings import Settings, read_values

if TYPE_CHECKING:
    from epifed.data.panel import CasePanel
    from epifed.forecasting import Forecast, Targets
    from epifed.hubs.submission import Calendar


Epsilons = Annotated[
    list[str] | None,
    typer.Option(
        "--epsilon", metavar="E", help="Privacy budget ε; inf means no privacy. Repeat for several."
    ),
]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Number of worker processes.", show_default="all cores")
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        metavar="tcp://HOST:PORT",
        help="Compute on the workers of this Dask scheduler.",
        show_default=False,
    ),
]
LearnerName = Annotated[
    str | None,
    typer.Option(
        "--learner",
        help="The learner: fedavg (the paper), one-shot, trend, or one of another package.",
        show_default="of the settings, else fedavg",
    ),
]
ModelName = Annotated[
    str | None,
    typer.Option(
        "--model",
        help="Model of a network: mlp, linear or gru, with or without 'scale-free' before it.",
        show_default="of the settings, else mlp",
    ),
]
Seed = Annotated[int | None, typer.Option(min=0, help="Seed of the random numbers.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


class _Messages(Console):
    """A console on which no text commands the terminal."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print, with the control signs of texts spelled out."""
        shown = (printable(text) if isinstance(text, str) else text for text in objects)
        super().print(*shown, **options)


messages = _Messages(stderr=True, highlight=False, markup=False)
"""For progress and remarks, so that stdout holds the result alone."""


def require(extra: str, *packages: str) -> None:
    """Refuse a command whose packages are missing, with the extra that installs them."""
    for name in packages:
        if find_spec(name) is None:
            raise EpifedError(f"{name}: not installed; expected 'pip install epifed[{extra}]'")


def parse_epsilons(texts: list[str]) -> tuple[float, ...]:
    """Budgets as numbers, each once, from the strictest to none."""
    values = set()
    for text in texts:
        try:
            value = float(text.replace("∞", "inf"))
        except ValueError:
            value = math.nan
        if not value > 0:
            raise EpifedError(f"--epsilon: found '{text}'; expected {EPSILON}")
        values.add(value)
    return tuple(sorted(values))


class GridProgress:
    """A bar on stderr: what is done, how long it took, how long it will take."""

    def __init__(self, what: str = "training") -> None:
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("ETA"),
            TimeRemainingColumn(),
            console=messages,
            speed_estimate_period=600,
        )
        self._task = self._bar.add_task(what, total=None)

    def __enter__(self) -> "GridProgress":
        """Show the bar."""
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the bar as it is."""
        self._bar.stop()

    def __call__(self, done: int, total: int) -> None:
        """As `run_grid` reports it; the first call is what an earlier run left."""
        if self._bar.tasks[0].total is None and done:
            messages.print(f"{done} of {counted(total, 'task')} were finished by an earlier run")
        self._bar.update(self._task, completed=done, total=total)


def say_note(sentence: str) -> None:
    """A note on stderr, in the language of whoever reads it."""
    messages.print(spoken(f"note: {sentence}"), markup=False, soft_wrap=True)


def print_table(
    title: str,
    header: list[str],
    rows: list[list[str]],
    caption: str,
    sections: Mapping[int, str] = MappingProxyType({}),
) -> None:
    """A table on stdout; in a narrow terminal numbers wrap at their ±, and nothing is lost.

    `sections` has a heading for the rows from each of some positions on.
    """
    table = Table(
        title=_shown(title),
        title_justify="left",
        caption=_shown(caption) or None,
        caption_justify="left",
    )
    for i, column in enumerate(header):
        words = i < 2
        table.add_column(_shown(column), justify="left" if words else "right", no_wrap=words)
    for i, row in enumerate(rows):
        if i in sections:
            table.add_section()
            table.add_row(f"[italic]{_shown(sections[i])}[/italic]")
        table.add_row(*map(_shown, row))
    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, 130)
    console.print(table)


def _shown(text: str) -> str:
    """A text as it is, not what it would mean to the table or to the terminal."""
    return escape(printable(text))


SEEDED = (
    "these trainings are experiments: seeded noise, no budget kept; nothing here may be released "
    "('epifed train' makes a model that may)"
)
LOOKS_AHEAD = {
    "centered": "centered average, which looks three days ahead: no forecast",
    "trailing": "trailing average: nothing looks ahead",
    "none": "not smoothed here",
}

FRACTION = "Reported cases are a fraction of all infections."
"""Stands where forecasts and R(t) are printed."""


def guarantee(settings: Settings) -> str:
    """What must stand beside every ε."""
    return (
        f"ε with δ = {settings.delta:g}, unit one client, add or remove one client, "
        f"{settings.accountant.upper()} accountant"
    )


def caption(settings: Settings, runs: int, zeros: float) -> str:
    """What must stand under every table: spread, privacy in full, zeros, leaks."""
    from epifed.learners.base import make_learner

    return (
        f"mean ± std over {counted(runs, 'run')}; {guarantee(settings)}; "
        + (f"{counted(int(zeros), 'zero target')} left out of MAPE; " if zeros else "")
        + f"{LOOKS_AHEAD[settings.smoothing]}; learner {make_learner(settings).title()}"
    )


class SettingsRequest:
    """What a user said of the settings: a file, and options that win over it where given.

    Preset < file < options given, the same for every command. A mistake in it is said at once,
    before data are read; the number of clients completes it.
    """

    def __init__(
        self, file: Path | None, base: Mapping[str, Any] | None = None, **given: Any
    ) -> None:
        self.file = file
        self.said = dict(base or {}) | (read_values(file) if file else {})
        self.said |= {name: value for name, value in given.items() if value is not None}
        self.settings(4)

    def settings(
        self, clients: "int | CasePanel", base: Mapping[str, Any] | None = None
    ) -> Settings:
        """The settings for so many clients, or for the regions of a panel.

        `base` is what the command prefers to the preset.
        """
        from epifed.learners.base import make_learner, settings_for

        values = base or {}, self.said
        try:
            if isinstance(clients, int):
                chosen = Settings.resolve(clients, *values)
            else:
                chosen = settings_for(clients, *values)
            make_learner(chosen)
        except EpifedError as error:
            raise EpifedError(f"{self.file}: {error}" if self.file else str(error)) from None
        return chosen

    def settings_of(self, panel: "CasePanel") -> Settings:
        """The same; of communities the paper's settings for them, unless others were asked for."""
        own = not panel.parents or self.said.keys() & {"learner", "model"}
        return self.settings(panel, {} if own else Settings.community_values(len(panel.regions)))


def ahead(settings: Settings) -> str:
    """How far ahead, in words: 7 days ahead, 1 week ahead."""
    return f"{counted(settings.horizon, settings.step)} ahead"


def refuse_unwritable(out: Path) -> None:
    """An output directory must be one, or not exist yet, and take files: before any work."""
    if out.exists() and not out.is_dir():
        raise EpifedError(f"{out}: found a file; expected a directory for the results")
    _refuse_place(out, out, "a directory for the results")


def refuse_unwritable_file(out: Path) -> None:
    """A file must be one that can be written, before any work: and before anything is paid."""
    if out.is_dir():
        raise EpifedError(f"{out}: found a directory; expected the name of a file")
    _refuse_place(out, out.absolute().parent, "a file that can be written")


def refuse_other_format(out: Path, endings: Sequence[str]) -> None:
    """The file of --out must have one of these endings, and be one that can be written."""
    if out.suffix not in endings:
        problem = f"--out: found '{out.name}'"
        raise EpifedError(f"{problem}; expected a name ending in {', '.join(endings)}")
    refuse_unwritable_file(out)


def _refuse_place(out: Path, folder: Path, expected: str) -> None:
    place = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    try:
        with tempfile.TemporaryDirectory(dir=place, prefix=".epifed-"):
            pass
    except OSError as error:
        raise EpifedError(
            f"{out}: cannot be written to: {error.strerror}; expected {expected}"
        ) from None


def figure_name(region: str) -> str:
    """The file name of a region's figure, another one for every region.

    >>> figure_name("01001"), figure_name("a/b"), figure_name("a_b")
    ('01001.png', 'a_b-c14cddc0.png', 'a_b.png')
    """
    safe = "".join(c if c.isalnum() else "_" for c in region)
    if region and safe == region:
        return f"{safe}.png"
    return f"{safe}-{sha256(region.encode()).hexdigest()[:8]}.png"


FirstDay = Annotated[
    datetime | None, typer.Option("--from", formats=["%Y-%m-%d"], help="First day to use.")
]
LastDay = Annotated[
    datetime | None, typer.Option("--to", formats=["%Y-%m-%d"], help="Last day to use.")
]
_TABLE_PANEL = "How a table is read"


@dataclass(frozen=True)
class Reading:
    """How case data is to be read: its format, and what was said of it."""

    format: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    """As `load_panel` takes them."""

    def at(self, **options: Any) -> "Reading":
        """The same with some options more."""
        return replace(self, options=self.options | options)

    def look(self, path: Path) -> "tuple[dict[str, Any], CasePanel]":
        """What a file is read as, and its panel."""
        from epifed.data.readers import load_panel, load_table, to_panel

        table = load_table(path, self.format, **self.options)
        if table is None:
            return self.options, load_panel(path, self.format, **self.options)
        return table.read_as, to_panel(table)

    def read(self, path: Path, *, ask: bool = False) -> "CasePanel":
        """The panel of the file that these options describe; what it warns of goes to stderr.

        With `ask` a forecast follows, which has warnings of its own on the newest days. In a
        terminal, what can be read in more ways than one is asked.
        """
        from epifed.data_check import check_panel, refuse_future

        options = dict(self.options)
        while True:
            try:
                read_as, panel = replace(self, options=options).look(path)
                if ask and "cadence" in read_as:
                    refuse_future(panel, options)
                break
            except AmbiguousTableError as error:
                if not (ask and in_terminal()):
                    raise
                chosen = _asked(error)
                if any(options.get(name) == value for name, value in chosen.items()):
                    raise  # the answer was given already and does not help
                options |= chosen
        report = check_panel(panel)
        for sentence in report.warnings:
            if not (ask and sentence in report.of_newest_days):
                say_note(sentence)
        return panel


def in_terminal() -> bool:
    """Whether a person can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def _asked(error: AmbiguousTableError) -> Mapping[str, Any]:
    """The way of reading that a person chooses in the terminal."""

    messages.print(f"{spoken(error.sentence)}.", markup=False, soft_wrap=True)
    for number, choice in enumerate(error.choices, start=1):
        messages.print(f"  {number}  {in_words(choice)}", soft_wrap=True)
    messages.print("  0  stop")
    while True:
        answer = typer.prompt("Which", default="1", err=True).strip()
        if answer == "0":
            raise error
        if answer.isdecimal() and int(answer) <= len(error.choices):
            choice = error.choices[int(answer) - 1]
            messages.print(f"next time: {in_words(choice)}")
            return choice


def _own_options() -> dict[str, Any]:
    """The options of formats other than tables, by the name of their argument."""
    return {
        "format": typer.Option(
            "--format",
            help="Kind of source: rki, memilio, tidy, prepared or one of another package. It is "
            "detected if not given.",
        ),
        "date_column": typer.Option(
            "--date-column",
            help="RKI: count by Refdatum (onset where known, default) or Meldedatum.",
        ),
        "level": typer.Option("--level", help="Prepared directory: county (default) or community."),
    }


def _parameters() -> list[inspect.Parameter]:
    """Every option of reading, made from `Assumptions`, so that there is one list of them."""
    kinds = get_type_hints(Assumptions)
    options: dict[str, tuple[Any, Any]] = {
        name: (str, option) for name, option in _own_options().items()
    }
    for assumption in fields(Assumptions):
        kind = next(k for k in get_args(kinds[assumption.name]) if k is not NoneType)
        several = kind not in (str, int, float, bool)
        choices = assumption.metadata["choices"]
        option = typer.Option(
            option_of(assumption.name),
            help=assumption.metadata["help"],
            rich_help_panel=_TABLE_PANEL,
            metavar="|".join(choices) if all(len(c) > 1 for c in choices) and choices else None,
            show_default=False,
        )
        options[assumption.name] = (list[str] if several else kind, option)
    return [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[kind | None, option],
        )
        for name, (kind, option) in options.items()
    ]


def reads_cases(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of reading, which it gets as its argument `reading`.

    An option that the command has under the same name is left to it.
    """
    prefix = "read_"
    own = inspect.signature(command).parameters
    added = [p.replace(name=prefix + p.name) for p in _parameters() if p.name not in own]

    def of(given: dict[str, Any]) -> Reading:
        chosen = {name.removeprefix(prefix): value for name, value in given.items()}
        format = chosen.pop("format")
        options = {name: value for name, value in chosen.items() if value not in (None, [])}
        return Reading(format, options)

    return _with_options(command, "reading", added, of)


def _with_options(
    command: Callable[..., None],
    argument: str,
    added: Sequence[inspect.Parameter],
    make: Callable[[dict[str, Any]], object],
) -> Callable[..., None]:
    """Give a command further options, from which one of its arguments is made."""
    own = inspect.signature(command).parameters
    every = [*(p for name, p in own.items() if name != argument), *added]

    @wraps(command)
    def with_options(**values: Any) -> None:
        given = {p.name: values.pop(p.name) for p in added}
        command(**values, **{argument: make(given)})

    keywords = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in every]
    with_options.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
    with_options.__annotations__ = {p.name: p.annotation for p in every}
    return with_options


MODEL_NAME = "epifed-trend"
_TARGET_PANEL = "Larger regions and hubs"


def _option(help: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=_TARGET_PANEL, **more)


@dataclass(frozen=True)
class TargetOptions:
    """What was said of levels, weeks and hubs."""

    level: Annotated[
        list[str] | None,
        _option(
            "Also forecast this level (county, state, nation), or one region of a level, by id or "
            "name. Repeat for several. 'community' reads a prepared directory's communities."
        ),
    ] = None
    published: Annotated[
        Path | None,
        _option(
            "Table (date, location, value) of published counts of states or the nation; without "
            "it, their counts are the sums of the clients' counts."
        ),
    ] = None
    published_lead: Annotated[
        int,
        _option(
            "Days that --published reaches beyond the clients' counts: 1 if dated by publication.",
            min=0,
            max=14,
        ),
    ] = 0
    week_ends: Annotated[
        str | None,
        _option(
            "Forecast weeks that end on this weekday: saturday or sunday.",
            show_default="any week",
        ),
    ] = None
    reference_day: Annotated[
        str | None,
        _option(
            "Weekday of the hub's reference dates.",
            show_default="the day of the forecast",
        ),
    ] = None
    ahead: Annotated[
        list[int] | None,
        _option(
            "Weeks ahead, with --week-ends; 0: the week that ends by the reference day. Repeat for "
            "several.",
            min=0,
            max=4,
            show_default="1",
        ),
    ] = None
    hub: Annotated[Path | None, _option("Also write the forecasts into this hubverse folder.")] = (
        None
    )
    model_name: Annotated[str, _option("Name in the hub, as TEAM-MODEL.")] = MODEL_NAME
    locations: Annotated[
        Path | None, _option("The hub's code of each region: a table of location and region.")
    ] = None
    target: Annotated[
        str | None,
        _option("The hub's target, where it has several.", show_default="wk inc case"),
    ] = None

    def reading(self) -> dict[str, str]:
        """How a prepared directory is to be read: at the smallest level that is named."""
        return {"level": "community"} if "community" in (self.level or []) else {}

    def given(self) -> list[str]:
        """The options given that only a forecast from a release can use."""
        levels = [level for level in self.level or [] if level != "community"]
        chosen, usual = replace(self, level=levels or None), type(self)()
        names = [option.name for option in fields(self)]
        changed = [name for name in names if getattr(chosen, name) != getattr(usual, name)]
        return [f"--{name.replace('_', '-')}" for name in changed]

    def refuse_early(self, horizons: Sequence[int]) -> None:
        """Refuse what cannot be, before anything is computed."""
        from epifed.data.calendar import to_weekday
        from epifed.hubs.submission import refuse_for_hub

        for option, name in (
            ("--week-ends", self.week_ends),
            ("--reference-day", self.reference_day),
        ):
            if name is not None:
                to_weekday(name, option)
        if self.published is not None and not self.level:
            raise EpifedError("found --published; expected --level with it")
        if self.published is None and self.published_lead:
            raise EpifedError("found --published-lead; expected --published with it")
        if self.published is None and self.hub is None and self.locations is not None:
            raise EpifedError("found --locations; expected --hub or --published with it")
        if self.hub is None and (self.target is not None or self.model_name != MODEL_NAME):
            raise EpifedError("found --target or --model-name; expected --hub with it")
        if self.hub:
            refuse_unwritable(self.hub)
            weeks = self.week_ends or self.reference_day or self.ahead or self._calendar
            refuse_for_hub(self.model_name, [] if weeks else horizons)

    @cached_property
    def _calendar(self) -> "Calendar | None":
        """How the hub counts weeks, if it says so itself."""
        from epifed.hubs.submission import form_of

        return form_of(self.hub, self.target).calendar if self.hub else None

    def targets(
        self, panel: "CasePanel", horizons: Sequence[int], origins: Sequence[date]
    ) -> "Targets | None":
        """What is asked for beside each region's own forecast; none if nothing is.

        What the hub would not take of it is refused here, before it is computed.
        """
        from epifed.data.panel import levels_of
        from epifed.forecasting import Targets, Totals
        from epifed.hubs.submission import refuse_tasks
        from epifed.hubs.tables import read_locations, read_truth

        places = read_locations(self.locations)
        totals = None
        if self.published is not None:
            every = levels_of(panel).values()
            region_of = places.regions or {
                name: name for larger in every for name in larger.regions
            }
            totals = Totals.of(panel, read_truth(self.published), region_of, self.published_lead)
        hub = self._calendar
        targets = Targets.of(
            panel,
            horizons,
            self.level or (),
            week_ends=self.week_ends or (hub.week_ends if hub else None),
            reference_day=self.reference_day or (hub.reference_day if hub else None),
            ahead=self.ahead or (hub.ahead if hub else ()),
            totals=totals,
        )
        if targets is not None and hub is not None and not self.ahead:
            targets = targets.within_reach(origins, panel.step)
        if targets is not None and self.hub is not None:
            blank = targets.blank(origins, panel.step)
            refuse_tasks(blank, self.hub, locations=places, target=self.target)
        return targets

    def write(self, forecasts: "Sequence[Forecast]") -> str:
        """Add the forecasts to the hub, if one was named; what was done ends a sentence."""
        from epifed.hubs.submission import write_hub
        from epifed.hubs.tables import read_locations

        if not self.hub:
            return ""
        codes = read_locations(self.locations)
        files = write_hub(forecasts, self.hub, self.model_name, locations=codes, target=self.target)
        rounds = len({forecast.reference or forecast.origin for forecast in forecasts})
        left_out = f" ({rounds - len(files)} of them left out, which the hub has no round of)"
        return (
            f", hub files of {counted(rounds, 'reference date')} in {self.hub}"
            f"{left_out if rounds > len(files) else ''}"
        )


def reads_targets(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of `TargetOptions`, as its argument `target_options`."""
    kinds = get_type_hints(TargetOptions, include_extras=True)
    keyword = inspect.Parameter.KEYWORD_ONLY
    added = [
        inspect.Parameter(f.name, keyword, default=f.default, annotation=kinds[f.name])
        for f in fields(TargetOptions)
    ]
    return _with_options(command, "target_options", added, lambda given: TargetOptions(**given))
