"""What the commands share: options, the way to settings, progress with an ETA, printed tables."""

import math
import tempfile
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from epifed.errors import EpifedError
from epifed.settings import Settings, read_values
from epifed.words import counted

if TYPE_CHECKING:
    from epifed.panel import CasePanel

Epsilons = Annotated[
    list[str] | None,
    typer.Option("--epsilon", metavar="E", help="Privacy budget ε, or inf. Repeat for several."),
]
Workers = Annotated[
    int | None, typer.Option(min=1, help="Processes at once.", show_default="all cores")
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        metavar="tcp://HOST:PORT",
        help="A Dask scheduler whose workers compute, instead of processes here.",
        show_default=False,
    ),
]
LearnerName = Annotated[
    str | None,
    typer.Option(
        "--learner",
        help="What clients send: fedavg (the paper), one-shot, trend or one of another package.",
        show_default="of the settings, else fedavg",
    ),
]
ModelName = Annotated[
    str | None,
    typer.Option(
        "--model",
        help="A network's model: mlp, linear, gru, or 'scale-free' and one of them.",
        show_default="of the settings, else mlp",
    ),
]
Seed = Annotated[int | None, typer.Option(min=0, help="Root of all randomness.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON, nothing else.")]

messages = Console(stderr=True, highlight=False, markup=False)
"""For progress and remarks, so that stdout holds the result alone."""


def parse_epsilons(texts: list[str]) -> tuple[float, ...]:
    """Budgets as numbers, each once, from the strictest to none."""
    values = set()
    for text in texts:
        try:
            value = float(text.replace("∞", "inf"))
        except ValueError:
            value = math.nan
        if not value > 0:
            raise EpifedError(f"--epsilon: found '{text}'; expected a number above 0, or inf")
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
        title=title, title_justify="left", caption=caption or None, caption_justify="left"
    )
    for i, column in enumerate(header):
        words = i < 2
        table.add_column(column, justify="left" if words else "right", no_wrap=words)
    for i, row in enumerate(rows):
        if i in sections:
            table.add_section()
            table.add_row(f"[italic]{sections[i]}[/italic]")
        table.add_row(*row)
    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, 130)
    console.print(table)


SEEDED = (
    "these trainings are experiments: seeded noise, no budget kept; nothing here may be released "
    "('epifed train' makes a model that may)"
)
LOOKS_AHEAD = {
    "centered": "centered average, which looks three days ahead: no forecast",
    "trailing": "trailing average: nothing looks ahead",
    "none": "not smoothed here",
}


def guarantee(settings: Settings) -> str:
    """What must stand beside every ε."""
    return (
        f"ε with δ = {settings.delta:g}, unit one client, add or remove one client, "
        f"{settings.accountant.upper()} accountant"
    )


def caption(settings: Settings, runs: int, zeros: float) -> str:
    """What must stand under every table: spread, privacy in full, zeros, leaks."""
    from epifed.learner import make_learner

    return (
        f"mean ± std over {counted(runs, 'run')}; {guarantee(settings)}; "
        + (f"{counted(int(zeros), 'zero target')} left out of MAPE; " if zeros else "")
        + f"{LOOKS_AHEAD[settings.smoothing]}; learner {make_learner(settings).title()}"
    )


class Wish:
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
        from epifed.learner import make_learner, settings_for

        said = base or {}, self.said
        try:
            if isinstance(clients, int):
                found = Settings.resolve(clients, *said)
            else:
                found = settings_for(clients, *said)
            make_learner(found)
        except EpifedError as error:
            raise EpifedError(f"{self.file}: {error}" if self.file else str(error)) from None
        return found


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


def _refuse_place(out: Path, folder: Path, expected: str) -> None:
    place = next(one for one in (folder, *folder.absolute().parents) if one.exists())
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
