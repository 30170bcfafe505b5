"""How a file of case counts is to be read, as its owner says it: one list for all commands."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Self

from epifed.errors import EpifedError

LONGEST = 480
"""Characters of a sentence, so that with its end it has 500 at most."""
LONGEST_WORD = 60
"""Characters of a cell, a name or a reason that a sentence repeats."""


def short(text: object, longest: int = LONGEST_WORD) -> str:
    """A text as a sentence can repeat it: on one line, and cut where it is too long.

    >>> short("x" * 100, 5)
    'xxxx…'
    """
    line = " ".join(str(text).split()) if len(str(text)) < 10_000 else str(text)[:10_000]
    return line if len(line) <= longest else line[: longest - 1] + "…"


def listed(names: Sequence[object], most: int = 6) -> str:
    """Some names, and how many more there are."""
    some = ", ".join(short(name, 20) for name in names[:most])
    return f"{some} and {len(names) - most} more" if len(names) > most else some


def _said(words: str, *choices: str, option: str | None = None, default: Any = None) -> Any:
    """An assumption: what it means, which words it takes, and its option on the command line."""
    return field(default=default, metadata={"help": words, "choices": choices, "option": option})


@dataclass(frozen=True)
class Assumptions:
    """What is assumed of a table of case counts; what is not said is recognised, or refused.

    Recognised and said: compression, delimiter, a marked encoding, the one date format that fits,
    days as columns, capitals in column names. Whatever changes a number must be said.
    """

    date: str | None = _said("Column of the day (default: date).", option="--column-date")
    region: str | None = _said(
        "Column of the region's id (default: region).", option="--column-region"
    )
    cases: str | None = _said("Column of the count (default: cases).", option="--column-cases")
    population: str | None = _said(
        "Column of the inhabitants (default: population, if there).", option="--column-population"
    )
    name: str | None = _said(
        "Column of the region's name, if it is to be shown.", option="--column-name"
    )
    sheet: str | None = _said("Sheet of an Excel file.")
    regions_from: str | None = _said(
        "Excel file with a sheet for each region, named as it: sheets.", "sheets"
    )
    member: str | None = _said("File within a zip.")
    header_row: int | None = _said("Row of the column names (default: the first with text).")
    delimiter: str | None = _said("Between the cells of a CSV: ',', ';', '|' or tab.")
    encoding: str | None = _said("Of a text file: utf-8, latin-1, cp1252, utf-16, …")
    layout: str | None = _said(
        "A row for each region and day (long), days as columns, or regions as columns.",
        "long", "days-across", "regions-across",
    )  # fmt: skip
    date_format: str | None = _said(
        "As %d.%m.%Y, or iso-week, epiweek, excel (days since 1899-12-30); '%d.%m.%Y with a time "
        "of the day' leaves times out."
    )
    decimal: str | None = _said("Decimal sign of the counts.", ".", ",")
    thousands: str | None = _said("Sign between thousands.", ".", ",", " ", "'")
    missing: Sequence[str] | None = _said("A word for 'no report', such as NA. Repeat for more.")
    below: float | None = _said("Count that stands for a hidden one such as <5.")
    id_width: int | None = _said("Fill ids up to so many digits with zeros; 0: ids as they are.")
    line_list: bool | None = _said("Every row is one case; there is no column of counts.")
    only: Sequence[str] | None = _said(
        "Rows to read, as COLUMN=VALUE, such as indicator=cases. Repeat for more columns."
    )
    fill_down: bool | None = _said("An empty region or day is that of the row above: merged cells.")
    duplicates: str | None = _said(
        "Several rows of a region and day: refuse (default), sum, or drop those that say the same.",
        "refuse", "sum", "drop",
    )  # fmt: skip
    totals: str | None = _said(
        "Rows that sum up others: refuse (default), drop or keep.", "refuse", "drop", "keep"
    )
    cadence: str | None = _said("What a row counts: a day, or a week.", "day", "week")
    weeks_dated: str | None = _said(
        "Which day of a week stands in the column of the day.", "first", "last"
    )
    counts: str | None = _said(
        "New cases, all cases so far, or all of the year so far.",
        "new", "cumulative", "cumulative-yearly",
    )  # fmt: skip
    negatives: str | None = _said(
        "Corrections below zero: refuse (default), spread back over the days before, or zero.",
        "refuse", "spread", "zero",
    )  # fmt: skip

    def __post_init__(self) -> None:
        """Refuse a word that no assumption has."""
        for one in fields(self):
            value, choices = getattr(self, one.name), one.metadata["choices"]
            if value is not None and choices and value not in choices:
                expected = " or ".join(f"'{choice}'" for choice in choices)
                raise EpifedError(f"{one.name}: found '{short(value)}'; expected {expected}")
        for name in ("missing", "only"):
            words = getattr(self, name)
            if isinstance(words, str):
                object.__setattr__(self, name, (words,))
            elif words is not None:
                object.__setattr__(self, name, tuple(map(str, words)))
        for name, least, most in (
            ("id_width", 0, 40),
            ("header_row", 1, 10_000),
            ("below", 0, 1e6),
        ):
            value = getattr(self, name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if value is not None and not (number and least <= value <= most):
                raise EpifedError(
                    f"{name}: found '{short(value)}'; expected a number from {least} to {most:g}"
                )

    @classmethod
    def of(
        cls, options: Mapping[str, Any], where: str, format: str = "tidy", only: Sequence[str] = ()
    ) -> Self:
        """The assumptions that options say; one that a format does not have is refused."""
        known = only or [one.name for one in fields(cls)]
        for option in options:
            if option not in known:
                raise EpifedError(
                    f"{short(option)}: not an option of the format {format}, which "
                    f"{short(where, 100)} has; expected one of {', '.join(known)}"
                )
        return cls(**options)


def option_of(name: str) -> str:
    """How an assumption is said on the command line.

    >>> option_of("date"), option_of("id_width")
    ('--column-date', '--id-width')
    """
    for one in fields(Assumptions):
        if one.name == name and one.metadata["option"]:
            return str(one.metadata["option"])
    return "--" + name.replace("_", "-")


def in_words(choice: Mapping[str, Any]) -> str:
    """Options as they are typed.

    >>> in_words({"thousands": ".", "decimal": ","})
    '--thousands . --decimal ,'
    """
    return " ".join(
        option_of(name) if value is True else f"{option_of(name)} {_quoted(value)}"
        for name, value in choice.items()
    )


def _quoted(value: object) -> str:
    text = short(value) if str(value).strip() else str(value)
    plain = text and all(c.isalnum() or c in "-_.,%/:+=@" for c in text)
    return text if plain else "'" + text.replace("'", "'\\''") + "'"


class AmbiguousTableError(EpifedError):
    """A table that can be read in more ways than one, or only with something changed in it.

    `choices` are the options that read it, each a way of its own; `column` and `example` are where
    and what was found, for those who ask the question in their own words.
    """

    def __init__(
        self, sentence: str, *choices: Mapping[str, Any], column: str = "", example: str = ""
    ) -> None:
        ways = " or ".join(in_words(choice) for choice in choices)
        super().__init__(f"{sentence[: LONGEST - len(ways)]}; add {ways}")
        self.sentence = sentence
        self.choices = choices
        self.column = column
        self.example = example
