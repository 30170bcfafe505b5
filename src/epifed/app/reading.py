"""How the page reads a file: plain cases are assumed and shown, ambiguous ones become questions.

Every question comes from an `AmbiguousTableError` of the readers, so the page asks what the command
line refuses. An answer is one of its options, and the same options make the command for it.
"""

import csv
import hashlib
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import polars as pl

from epifed.data.panel import CasePanel
from epifed.data.readers import load_panel, load_table, to_panel
from epifed.data.readers.cleaning import (
    Tidy,
    entered,
    open_inhabitants,
    open_tidy,
    with_inhabitants,
)
from epifed.data.readers.columns import is_of_inhabitants, unusable_names
from epifed.data.readers.tables import (
    EVERY,
    PLUS,
    RATES,
    AmbiguousTableError,
    Assumptions,
    Content,
    RawTable,
    in_words,
    likely,
    likely_day,
    open_content,
    open_table,
    short,
)
from epifed.data.readers.values import parse_days
from epifed.data_check import refuse_future
from epifed.errors import EpifedError
from epifed.files import write_text
from epifed.ledger.ledger import state_root

ROLES = ("date", "region", "cases", "population")
"""The roles that a column can have, named as the options that set them."""
OPENING = ("sheet", "regions_from", "member", "header_row", "delimiter", "encoding")
"""Options that decide which cells exist, before the cells are read."""
MOST_STEPS = 40
"""Upper bound on the options that one file can need."""
MOST_ROWS, BELOW_HEADER = 14, 6
"""Number of rows to show, and how many of them below the header."""
MOST_COLUMNS, LONGEST_CELL = 40, 60
MOST_REMEMBERED = 200
"""Number of file shapes whose answers are kept."""
MEMORY = "open.json"
ENTRY = "entry"
"""An option for line lists only: the column of the day on which a row was entered."""
NOT_KEPT = {"until", "population_from"}
"""Answers that hold for one file, not for the next of its shape."""
LEFT_OUT = "left out"
"""The answer that treats hidden counts such as <5 as missing reports."""
_PLAIN = ({"header_row"}, {"encoding"}, {"fill_down"}, {"totals"})
"""Options assumed without a question; they are shown and can be changed."""


@dataclass(frozen=True)
class Answer:
    """One answer to click: the options that it sets, and how they read the example."""

    options: dict[str, Any]
    reading: str | float | None = None


@dataclass(frozen=True)
class Question:
    """A question that only a person can decide."""

    kind: str
    answers: tuple[Answer, ...]
    column: str = ""
    example: str = ""
    sentence: str = ""
    """The reader's own message, as a detail."""


@dataclass
class FileReading:
    """A file as it is read with the options chosen or assumed so far."""

    path: Path
    name: str
    said: dict[str, Any] = field(default_factory=dict)
    """Options that a person chose, now or for an earlier file of that shape."""
    assumed: dict[str, Any] = field(default_factory=dict)
    """Options that the page chose, which a person can change."""
    remembered: bool = False
    """Whether `said` comes from an earlier file."""
    question: Question | None = None
    problem: str = ""
    table: RawTable | None = None
    tidy: Tidy | None = None
    panel: CasePanel | None = None

    @property
    def options(self) -> dict[str, Any]:
        """All options, in the order of the command line."""
        every = self.assumed | self.said
        names = [assumption.name for assumption in fields(Assumptions)]
        return {name: every[name] for name in names if every.get(name) is not None}

    @property
    def reader_options(self) -> dict[str, Any]:
        """The options in the form that the readers accept."""
        return {name: value for name, value in self.options.items() if value != LEFT_OUT}

    @property
    def entry(self) -> str:
        """The column of the day on which a row was entered; empty if there is none."""
        return str(self.said.get(ENTRY) or "")

    def command(self) -> str:
        """The command that reads the file in the same way."""
        quoted = in_words({"data": self.name})
        options = {k: v for k, v in self.reader_options.items() if k not in ("missing", "only")}
        if "population_from" in options:
            options["population_from"] = Path(options["population_from"]).name
        repeated = [
            in_words({name: word})
            for name in ("missing", "only")
            for word in _words(self.options.get(name))
        ]
        if self.entry:
            repeated.append(in_words({"column_entry": self.entry}))
        return " ".join(filter(None, ["epifed forecast", quoted, in_words(options), *repeated]))

    def to_dict(self) -> dict[str, Any]:
        """What the page shows of the file, ready for JSON."""
        rows = self._first_rows()
        columns = max((len(cells) for _, cells in rows), default=0)
        names = list(self.table.names) if self.table else []
        return {
            "name": self.name,
            "remembered": self.remembered,
            "said": self.said,
            "assumed": self.assumed,
            "question": None if self.question is None else _question_dict(self.question),
            "problem": self._without_folder(self.problem),
            "rows": [[row, [_shown(cell) for cell in cells]] for row, cells in rows],
            "hidden_columns": max(0, columns - MOST_COLUMNS),
            "header_row": self.table.header_row if self.table and rows else None,
            "columns": names[:MOST_COLUMNS],
            "roles": self._roles(),
            "days": _day_choices(names),
            "read_as": self.tidy.read_as if self.tidy else {},
            "notes": [self._without_folder(note) for note in self._notes()],
            "command": self.command(),
        }

    def _notes(self) -> tuple[str, ...]:
        return self.panel.notes if self.panel else ()

    def _without_folder(self, sentence: str) -> str:
        """Replace the file's path in a sentence by the name that the person knows."""
        return sentence.replace(str(self.path), self.name)

    def _roles(self) -> dict[str, str]:
        """The column of each role; in brackets if it has none of its own."""
        if self.tidy is not None:
            keys = {"date": "day", "region": "region", "cases": "cases"}
            columns = {role: self.tidy.columns.get(key, "") for role, key in keys.items()}
            return columns | {"population": self.tidy.columns.get("population", "")}
        if self.table is None:
            return {}
        columns = {role: self.options.get(role, "") for role in ROLES}
        if self.options.get("line_list"):
            columns["cases"] = "(rows)"
        if self.options.get("one_region"):
            columns["region"] = "(file)"
        plain = {name.casefold(): name for name in self.table.names}
        return {role: name or plain.get(role, "") for role, name in columns.items()}

    def _first_rows(self) -> list[tuple[int, list[str]]]:
        """The first rows of the file: those above the header, the header, and some below."""
        if self.table is None:
            return []
        last = self.table.header_row + BELOW_HEADER
        kind = self.table.found.get("file")
        if kind == "CSV":
            rows = _first_lines(open_content(self.path, self._opened()), self.table)
        elif kind == "Excel" and "regions_from" not in self.options:
            every = open_table(self.path, self._opened(header_row=1))
            rows = [(every.header_row, list(every.names)), *_cells(every)]
        else:
            header = self.table.header_row if kind == "Excel" else 0
            rows = [(header, list(self.table.names)), *_cells(self.table)]
        return [(row, cells[:MOST_COLUMNS]) for row, cells in rows if row <= last][-MOST_ROWS:]

    def _opened(self, **more: Any) -> Assumptions:
        chosen = {name: self.options[name] for name in OPENING if name in self.options}
        return Assumptions(**(chosen | more))


def read_file(path: Path, name: str, said: Mapping[str, Any]) -> FileReading:
    """Read a file with these options: to a panel, or to the next question or problem."""
    file = FileReading(path, name, dict(said))
    for _ in range(MOST_STEPS):
        file.question, file.problem = None, ""
        try:
            _read_once(file)
        except AmbiguousTableError as error:
            plain = _plain_step(error, file)
            if plain is not None:
                taken = file.said if plain.keys() & file.said.keys() else file.assumed
                taken |= plain
                continue
            columns = "layout" in error.choices[0] and file.said.get("layout") == "long"
            file.question = _which_columns(file) if columns else _asked(error, file)
            file.problem = "" if file.question else str(error)
        except EpifedError as error:
            file.question = _which_columns(file)
            file.problem = "" if file.question else str(error)
        if file.panel is not None and (sheet := _sheet_of_inhabitants(file)):
            file.assumed["population_from"] = sheet
            continue
        if file.panel is not None:
            file.question = _when_entered(file) or _in_future(file)
            file.panel = None if file.question else file.panel
        return file
    file.problem = f"{name}: found no end of what must be said of it; expected a plain table"
    return file


def _read_once(file: FileReading) -> None:
    options = file.reader_options
    file.tidy = file.panel = None
    if file.path.is_file():
        _open(file, options)
    file.tidy = load_table(file.path, **options)
    if file.tidy is None:
        file.table = None
        file.panel = load_panel(file.path, **options)
    else:
        file.panel = to_panel(file.tidy)


def _sheet_of_inhabitants(file: FileReading) -> str:
    """The other sheet of a workbook that has the inhabitants of all regions; empty if none has."""
    table, panel, tidy = file.table, file.panel, file.tidy
    if table is None or panel is None or tidy is None or panel.population is not None:
        return ""
    if "population_from" in file.options:
        return ""
    for name in table.other_sheets:
        sheet = Assumptions(sheet=name)
        try:
            if not is_of_inhabitants(open_inhabitants(file.path, sheet)):
                continue
        except EpifedError:
            continue
        try:
            with_inhabitants(tidy, file.path, sheet)
        except EpifedError as error:  # of other regions, or of some alone
            file.panel = replace(panel, notes=(*panel.notes, str(error)))
            return ""
        return name
    return ""


def inhabitants_for(file: FileReading | None, path: Path) -> bool:
    """Whether a further file has the inhabitants of the open one's regions, not cases."""
    if file is None or file.panel is None or file.tidy is None:
        return False
    try:
        if not is_of_inhabitants(open_inhabitants(path, Assumptions())):
            return False
    except EpifedError:
        return False
    with_inhabitants(file.tidy, path, Assumptions())
    return True


def _open(file: FileReading, options: Mapping[str, Any]) -> None:
    """Open the table without reading it, unless the file is JSON."""
    if ".json" in [suffix.lower() for suffix in file.path.suffixes]:
        return
    file.table = None
    file.table = open_tidy(file.path, Assumptions(**options))


def _plain_step(error: AmbiguousTableError, file: FileReading) -> dict[str, Any] | None:
    """The options to assume without asking, if the error is of that kind; else None."""
    keys = set().union(*error.choices)
    first = dict(error.choices[0])
    if keys in _PLAIN and not keys & file.said.keys():
        return first
    columns = {*ROLES, "name", "line_list", "one_region"}
    if keys <= columns and len(error.choices) == 1:
        return first
    if keys in ({"id_width"}, {"decimal"}) and len(error.choices) == 1:
        return first
    if keys == {"below"} and file.said.get("below") == LEFT_OUT:
        words = _words(file.options.get("missing"))
        return {"missing": [*words, error.example]}
    return None


def _asked(error: AmbiguousTableError, file: FileReading) -> Question:
    """The question for an ambiguity error."""
    keys = set().union(*error.choices)
    choices = [dict(choice) for choice in error.choices]
    sentence = file._without_folder(error.sentence)
    kind = next((key for key in _KINDS if key in keys), "other")
    if kind == "only":
        choices.sort(key=lambda choice: "only" not in choice)
    elif kind == "counts" and len(choices) == 1:
        kind = "rolling"
    elif kind == "below":
        choices += [{"below": 0}, {"below": LEFT_OUT}]
    elif kind == "sheet" and "regions_from" not in keys and {"sheet": EVERY} not in choices:
        choices.append({"regions_from": "sheets"})
    elif kind == "layout":
        choices = [*choices, {"layout": "long"}]
    if kind in ("cases", "layout"):
        columns = {key: value for key, value in choices[0].items() if key in ("date", "region")}
        file.assumed |= {k: v for k, v in columns.items() if k not in file.said}
        choices = [{k: v for k, v in one.items() if k not in columns} for one in choices]
    if kind == "cases" and len(choices) > 1:
        choices.append({"layout": "regions-across"})
    answers = tuple(Answer(one, _of_example(one, error.example)) for one in choices)
    return Question(kind, answers, error.column, error.example, sentence)


_KINDS = (
    "sheet", "member", "delimiter", "date_format", "thousands", "decimal", "below", "missing",
    "only", "duplicates", "id_width", "cadence", "weeks_dated", "counts", "negatives", "totals",
    "layout", "cases", "line_list", "fill_down", "header_row", "encoding", "until",
)  # fmt: skip
"""The kinds of questions: a question has the first of these that its options contain."""


def _of_example(options: Mapping[str, Any], example: str) -> str | float | None:
    """How options read the example cell; None if they do not read it."""
    if "date_format" in options and example:
        frame = pl.DataFrame({"row": [1], "day": [example]})
        try:
            day = parse_days("", frame, "", options["date_format"]).frame["day"][0]
        except EpifedError:
            return None
        return day.isoformat() if isinstance(day, date) else None
    if {"thousands", "decimal"} & options.keys() and example:
        plain = example.replace(options.get("thousands", ""), "")
        usual = "." if options.get("thousands") in (",", "'") else ","
        plain = plain.replace(options.get("decimal", usual), ".")
        try:
            return float(plain.replace("\u00a0", "").replace("\u202f", ""))
        except ValueError:
            return None
    return None


def _which_columns(file: FileReading) -> Question | None:
    """The question for a column that neither a usual name nor a person identifies."""
    if file.table is None or file.options.get("layout") not in (None, "long"):
        return None
    if unusable_names(file.table):
        return None
    names = [name for name in file.table.names if name]
    roles = file._roles()
    needed = [role for role in ("date", "region", "cases") if not roles.get(role)]
    if not needed or len(names) < 2:
        return None
    for role in needed:
        free = _free(names, roles)
        guess = likely_day(free) if role == "date" else likely(role, free)
        if guess:
            file.assumed[role] = roles[role] = guess
    needed = [role for role in needed if not roles.get(role)]
    free = _free(names, roles)
    if needed[:1] == ["cases"]:
        rates = [name for name in free if RATES.search(name.casefold())]
        free = [] if rates == free else free
    if not needed or not free:
        return None
    answers = [Answer({needed[0]: name}) for name in free[:MOST_COLUMNS]]
    if needed[0] == "cases":
        answers.append(Answer({"line_list": True}))
    return Question(f"column_{needed[0]}", tuple(answers))


def _free(names: Sequence[str], roles: Mapping[str, str]) -> list[str]:
    """The columns that have no role yet, alone or as a part of a week."""
    used = {part for role in roles.values() for part in (role, *role.split(PLUS))}
    return [name for name in names if name not in used]


def _in_future(file: FileReading, today: date | None = None) -> Question | None:
    """The question for days after today."""
    try:
        if file.panel is not None and file.tidy is not None:
            refuse_future(file.panel, file.options, today)
    except AmbiguousTableError as error:
        return _asked(error, file)
    return None


def _when_entered(file: FileReading) -> Question | None:
    """The question if a line list's second day, never before the first, is the day of entry."""
    if not file.options.get("line_list") or ENTRY in file.said or file.table is None:
        return None
    columns = file.tidy.columns if file.tidy else {}
    day = columns.get("day", "")
    others = [name for name in file.table.names if name and name not in columns.values()]
    for name in others if day in file.table.names else ():
        try:
            rows = entered(file.path, name, Assumptions(**file.reader_options))
        except EpifedError:
            continue
        late = (rows["as_of"] - rows["reported"]).dt.total_days()
        if late.null_count() == 0 and late.min() == 0 and late.max() != 0:
            answers = (Answer({ENTRY: name}), Answer({ENTRY: ""}))
            return Question(ENTRY, answers, name, rows["as_of"][0].isoformat())
    return None


def _first_lines(content: Content, table: RawTable) -> list[tuple[int, list[str]]]:
    sign = {"tab": "\t"}.get(table.found["delimiter"], table.found["delimiter"])
    with content.open() as file:
        lines = [file.readline(1 << 16) for _ in range(table.header_row + BELOW_HEADER)]
    texts = [line.decode("utf-8-sig", errors="replace") for line in lines]
    rows = []
    for row, text in enumerate(texts, start=1):
        if text.strip():
            cells = next(csv.reader(io.StringIO(text), delimiter=sign), [])
            rows.append((row, [cell.strip() for cell in cells]))
    return rows


def _cells(table: RawTable) -> list[tuple[int, list[str]]]:
    frame = table.cells(range(min(len(table.names), MOST_COLUMNS))).head(MOST_ROWS + BELOW_HEADER)
    return [
        (row, ["" if cell is None else str(cell) for cell in cells])
        for row, *cells in frame.iter_rows()
    ]


def _shown(cell: str) -> str:
    """A cell as the page shows it: a day without its midnight, long text cut."""
    return short(re.sub(r"[ T]00:00:00(\.0+)?$", "", cell), LONGEST_CELL)


def _day_choices(names: Sequence[str]) -> list[str]:
    """Two columns that make a week together, such as Meldejahr+Meldewoche."""
    both = likely_day([name for name in names if name])
    return [both] if both and both not in names else []


def _words(value: object) -> list[str]:
    if value is None:
        return []
    return [value] if isinstance(value, str) else list(map(str, value))  # type: ignore[call-overload]


def _question_dict(question: Question) -> dict[str, Any]:
    answers = [{"options": a.options, "reading": a.reading} for a in question.answers]
    return vars(question) | {"answers": answers}


def shape_of(path: Path) -> str:
    """A digest of what files of the same export share: their kind and the names of columns.

    All numbers in names are treated as equal, so next week's file has the same shape.
    """
    names: list[str]
    try:
        table = open_tidy(path, Assumptions())
        kind, names = str(table.found.get("file")), list(table.names)
    except AmbiguousTableError as error:
        if "header_row" in error.choices[0]:
            below = Assumptions(header_row=error.choices[0]["header_row"])
            return _digest(_names_below(path, below))
        kind, names = "choice", [json.dumps(dict(choice)) for choice in error.choices]
    except EpifedError:
        kind, names = "other", [path.suffix.lower()]
    return _digest([kind, *names])


def _names_below(path: Path, said: Assumptions) -> list[str]:
    try:
        return ["below", *open_tidy(path, said).names]
    except EpifedError:
        return ["below", path.suffix.lower()]


def _digest(words: Sequence[str]) -> str:
    first, *names = words
    plain = sorted({re.sub(r"\d+", "0", name) for name in names})
    return hashlib.sha256(json.dumps([first, plain]).encode()).hexdigest()


class Memory:
    """The answers to questions on files of each shape, stored on this machine only."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or state_root() / MEMORY

    def answers(self, shape: str) -> dict[str, Any]:
        """The answers for the last file of a shape; empty if there was none."""
        answers = self._read().get(shape, {}).get("answers", {})
        names = {ENTRY, *(assumption.name for assumption in fields(Assumptions))}
        return {name: value for name, value in answers.items() if name in names - NOT_KEPT}

    def keep(self, shape: str, answers: Mapping[str, Any]) -> None:
        """Keep the answers for a shape; empty answers delete those kept before."""
        kept = self._read()
        kept.pop(shape, None)
        if answers:
            kept[shape] = {"answers": dict(answers), "saved": datetime.now(UTC).date().isoformat()}
        newest = dict(list(kept.items())[-MOST_REMEMBERED:])
        try:
            write_text(self.path, json.dumps(newest, ensure_ascii=False, indent=1) + "\n")
            self.path.chmod(0o600)
        except (EpifedError, OSError):
            return  # without permission to write, the page asks again next time

    def _read(self) -> dict[str, Any]:
        try:
            memory = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return memory if isinstance(memory, dict) else {}
