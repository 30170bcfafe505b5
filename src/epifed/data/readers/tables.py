"""Open tables unchanged, and define the options by which a user tells how to read them.

CSV, Excel, parquet and DataFrames are opened in one way. The header row is found by the usual
names of the columns for day, region and cases.
"""

import codecs
import csv
import gzip
import hashlib
import io
import re
import sys
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, Literal, Self

import polars as pl

from epifed.data.panel import Table, column_names, pick, without_offset
from epifed.errors import EpifedError

LONGEST = 480
"""Most characters of a message without its end, so that the whole has at most 500."""
LONGEST_WORD = 60
"""Most characters of a cell, a name or a reason that a message repeats."""


def short(text: object, longest: int = LONGEST_WORD) -> str:
    """A text for use in a message: on one line, and cut if it is too long.

    >>> short("x" * 100, 5)
    'xxxx…'
    """
    line = " ".join(str(text).split()) if len(str(text)) < 10_000 else str(text)[:10_000]
    return line if len(line) <= longest else line[: longest - 1] + "…"


def listed(names: Sequence[object], most: int = 6) -> str:
    """Some names, and the number of further ones."""
    some = ", ".join(short(name, 20) for name in names[:most])
    return f"{some} and {len(names) - most} more" if len(names) > most else some


def _said(words: str, *choices: str, option: str | None = None, default: Any = None) -> Any:
    """An assumption: its meaning, the words that it accepts, and its option on the command line."""
    return field(default=default, metadata={"help": words, "choices": choices, "option": option})


@dataclass(frozen=True)
class Assumptions:
    """Assumptions about a table of case counts; what is not given is recognised, or refused.

    Recognised, with a note: compression, delimiter, a marked encoding, the one date format that
    fits, days as columns, capitals in column names. What changes a number must be given.
    """

    date: str | None = _said("Column of the day (default: date).", option="--column-date")
    region: str | None = _said(
        "Column of the region's id (default: region).", option="--column-region"
    )
    cases: str | None = _said("Column of the count (default: cases).", option="--column-cases")
    population: str | None = _said(
        "Column of the inhabitants (default: population, if there is one).",
        option="--column-population",
    )
    population_from: str | None = _said(
        "File, or sheet of the same Excel file, with the inhabitants of each region."
    )
    name: str | None = _said(
        "Column of the region's name, if it is to be shown.", option="--column-name"
    )
    sheet: str | None = _said("Sheet of an Excel file; * reads all, if they have the same columns.")
    regions_from: str | None = _said(
        "'sheets': the Excel file has one sheet for each region, named after it.", "sheets"
    )
    member: str | None = _said("File within a zip; * reads all, if they have the same columns.")
    header_row: int | None = _said("Row of the column names (default: the first with text).")
    delimiter: str | None = _said("Sign between the cells of a CSV: ',', ';', '|' or tab.")
    encoding: str | None = _said("Encoding of a text file: utf-8, latin-1, cp1252, utf-16, …")
    layout: str | None = _said(
        "A row for each region and day (long), days as columns, or regions as columns.",
        "long", "days-across", "regions-across",
    )  # fmt: skip
    date_format: str | None = _said(
        "Form of the dates: such as %d.%m.%Y, or iso-week, epiweek, excel (days since 1899-12-30); "
        "'%d.%m.%Y with a time of the day' leaves times out."
    )
    decimal: str | None = _said("Decimal sign of the counts.", ".", ",")
    thousands: str | None = _said("Sign between thousands.", ".", ",", " ", "'")
    missing: Sequence[str] | None = _said("A word for 'no report', such as NA. Repeat for more.")
    below: float | None = _said("Count that stands for a hidden one such as <5.")
    id_width: int | None = _said("Fill ids up to so many digits with zeros; 0: ids as they are.")
    line_list: bool | None = _said("Every row is one case; there is no column of counts.")
    one_region: bool | None = _said("All rows are one region, named as the file.")
    only: Sequence[str] | None = _said(
        "Rows to read, as COLUMN=VALUE, such as indicator=cases. Repeat for more columns."
    )
    fill_down: bool | None = _said(
        "Fill an empty region or day with that of the row above (merged cells)."
    )
    duplicates: str | None = _said(
        "Several rows of a region and day: refuse (default), sum, drop identical ones, or take the "
        "last.",
        "refuse", "sum", "drop", "last",
    )  # fmt: skip
    totals: str | None = _said(
        "Rows that sum up others: refuse (default), drop or keep.", "refuse", "drop", "keep"
    )
    until: str | None = _said("Last day to read, such as 2026-01-31; later rows are left out.")
    cadence: str | None = _said("What a row counts: a day, or a week.", "day", "week")
    weeks_dated: str | None = _said("Day of its week that a date names.", "first", "last")
    counts: str | None = _said(
        "New cases, all cases so far, or all of the year so far.",
        "new", "cumulative", "cumulative-yearly",
    )  # fmt: skip
    negatives: str | None = _said(
        "Corrections below zero: refuse (default), spread back over the days before, or zero.",
        "refuse", "spread", "zero",
    )  # fmt: skip

    def __post_init__(self) -> None:
        """Refuse values that an assumption does not accept."""
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
        """Build the assumptions from options; one that a format does not have is refused."""
        known = only or [one.name for one in fields(cls)]
        for option in options:
            if option not in known:
                raise EpifedError(
                    f"{short(option)}: not an option of the format {format}, which "
                    f"{short(where, 100)} has; expected one of {', '.join(known)}"
                )
        return cls(**options)


def option_of(name: str) -> str:
    """The command-line option of an assumption.

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


MOST_WAYS = 5
"""Most alternatives that a message names."""


class AmbiguousTableError(EpifedError):
    """A table that can be read in several ways, or only with a change.

    Each of `choices` is a set of options that reads it. `column` and `example` say where the
    ambiguity is and what was found, for callers who ask the user in their own words.
    """

    def __init__(
        self, sentence: str, *choices: Mapping[str, Any], column: str = "", example: str = ""
    ) -> None:
        ways = " or ".join(in_words(choice) for choice in choices[:MOST_WAYS])
        super().__init__(f"{sentence[: LONGEST - len(ways)]}; add {ways}")
        self.sentence = sentence
        self.choices = choices
        self.column = column
        self.example = example


USUAL: Mapping[str, tuple[str, ...]] = {
    "day": (
        "date", "datum", "tag", "meldedatum", "reporting_date", "report_date",
        "date_reported", "date_report", "daterep", "day", "onset", "fecha", "jour", "week", "woche",
        "kw", "epiweek", "meldewoche", "year_week", "yearweek", "target_end_date", "week_end",
        "week_start", "weekstart", "time_period", "data", "semaine", "semana", "settimana",
        "iso_weekstartdate", "mmwr_week", "timestamp", "zeitstempel", "datetime", "zeitraum",
        "se", "日付", "kalenderwoche",
    ),
    "region": (
        "region", "fips", "ags", "county", "id", "location", "geo", "state", "landkreis", "kreis",
        "idlandkreis", "district", "province", "area", "region_id", "code", "municipality",
        "kommune", "gemeinde", "country", "country_region", "country_code", "bundesland",
        "countriesandterritories", "geoid", "reporting_area", "dep", "departement", "département",
        "provincia", "departamento", "municipio", "regione", "comune", "powiat", "województwo",
        "country_area_territory", "name", "gebiet", "stadt", "ort", "bezirk", "kanton", "canton",
        "commune", "ville", "city", "town", "gesundheitsamt", "comunidad", "ccaa", "uf", "estado",
        "prefecture", "都道府県",
    ),
    "cases": (
        "cases", "count", "counts", "new_cases", "cases_new", "fälle", "faelle", "anzahl",
        "anzahlfall", "fallzahl", "neue_fälle", "value", "n", "confirmed", "confirmed_cases",
        "casos", "num_casos", "cas", "nb_cas", "casi", "liczba", "obs_value",
        "reported_cases", "current_week", "weekly_count", "weekly_cases", "admissions",
        "total_cases", "cum_cases", "infections", "新規陽性者数", "感染者数",
    ),
    "population": (
        "population", "einwohner", "einwohnerzahl", "einwohnerinnen", "bevölkerung", "bevoelkerung",
        "inhabitants", "residents", "pop", "poblacion", "población", "popolazione",
        "habitants", "habitantes", "população", "ludność", "人口",
    ),
}  # fmt: skip
"""Usual names of each kind of column, the likeliest first, in lower case."""
RATES = re.compile(r"inciden|inzidenz|rate|ratio|quote|per_?1|pro_?1|percent|prozent|%|tasa|taux")
"""Names of columns that are no counts."""
TOTALS = (
    "total", "totals", "grand total", "all", "alle", "sum", "summe", "gesamt", "gesamtsumme",
    "insgesamt", "gesamtergebnis", "overall", "national", "nation", "ensemble", "totale", "_t",
    "zusammen", "bundesgebiet", "ergebnis", "ensemble du territoire", "totaal", "suma", "razem",
    "ogółem", "totalt", "celkem", "összesen", "world", "worldwide", "global", "welt", "eu/eea",
    "eu/eea (total)",
    "european union", "europe", "asia", "africa", "north america", "south america", "oceania",
    "us residents", "us territories", "non-us residents", "new england", "middle atlantic",
    "east north central", "west north central", "south atlantic", "east south central",
    "west south central", "mountain", "pacific", "high income", "upper middle income",
    "lower middle income", "low income", "international",
    "owid_wrl", "owid_eun", "owid_eur", "owid_asi", "owid_afr", "owid_nam", "owid_sam", "owid_oce",
    "owid_hic", "owid_umc", "owid_lmc", "owid_lic", "owid_int",
)  # fmt: skip
"""Names of rows that sum up others, in lower case."""
SUBTOTAL = (
    r"^(grand total|sub-?total|total|totals|summe|zwischensumme|sous-total|gesamt|suma|razem)\b"
    r"|[\s:_-](sub-?total|total|totals|totale|ergebnis|summe|gesamt|insgesamt)$"
)
"""Names of rows that sum up some of the others, as pivot tables write them: Bayern Ergebnis."""
PARTS = re.compile(
    r"(^|_)(m|w|f|d|male|female|men|women|m[äa]nn\w*|weibl\w*|divers|frauen|hommes?|femmes?|hombres?"
    r"|mujeres|masc\w*|fem\w*|maschi)(_|$)|\d"
)
"""Names of columns, in lower case, of sexes or ages: parts of one count."""
LEAST_INSIDE = 4
"""Least number of letters of a usual name to be searched for inside longer names."""
YEARS, PLUS = r"jahr|year|(^|_)(an|ann[ée]e|a[nñ]o|anno)(_|$)", "+"
WEEKS = r"woche|week|kw|semaine|semana|settimana"
KINDS = re.compile(
    r"tatbestand|krankheit|erreger|diagnos|disease|pathogen|condition|agent|serotyp|subtyp|maladie"
    r"|malattia|enfermedad|virus|falldefinition|refdef|status|classification|klassifi|ergebnis"
    r"|result|verdacht|indicator|indikator|variable|measure"
)
"""Names of columns, in lower case, whose values must not be added up unless a person says so."""
DATES = r"date|datum|day|tag|start|beginn|end"
_DAY_LIKE = re.compile(r"^(\d{4}-?(W|KW|w)\d\d|\d{1,4}[./-]\d{1,2}[./-]\d{1,4}([ T]00:00(:00)?)?)$")
LEAST_DAYS = 3


def _plain(name: str) -> str:
    return re.sub(r"\W+", "_", name.strip().casefold()).strip("_")


def is_total(names: pl.Series) -> pl.Series:
    """Whether each name is a word for a total or a subtotal."""
    plain = names.str.to_lowercase().str.strip_chars(" :.")
    return (plain.is_in(TOTALS) | plain.str.contains(SUBTOTAL)).fill_null(value=False)


def likely(key: str, names: Sequence[str]) -> str | None:
    """The likeliest name that equals a usual one of this kind, or contains one; else None."""
    usual = USUAL.get(key, ())
    names = [name for name in names if key != "cases" or not RATES.search(_plain(name))]
    exact = [name for word in usual for name in names if _plain(name) == word]
    longer = [word for word in usual if len(word) >= LEAST_INSIDE]
    inside = [name for word in longer for name in names if word in _plain(name)]
    return next(iter([*exact, *inside]), None)


def likely_counts(names: Sequence[str]) -> list[str]:
    """The column with a usual name for counts; all that contain such a word if none equals one.

    >>> likely_counts(["Anzahl m", "Anzahl w", "Kreis"])
    ['Anzahl m', 'Anzahl w']
    """
    first = likely("cases", names)
    if first is None or _plain(first) in USUAL["cases"]:
        return [first] if first else []
    words = [word for word in USUAL["cases"] if len(word) >= LEAST_INSIDE]
    counts = [name for name in names if not RATES.search(_plain(name))]
    return [name for name in counts if any(word in _plain(name) for word in words)]


def are_parts(names: Sequence[str]) -> bool:
    """Whether columns of counts are named as parts of one count, such as sexes or ages."""
    return len(names) > 1 and all(PARTS.search(_plain(name)) for name in names)


def summands(word: str | None, names: Sequence[str]) -> list[str]:
    """The columns that are named together, such as male+female; empty if it is one name.

    >>> summands("0-14+60+", ["0-14", "60+"])
    ['0-14', '60+']
    """
    if not word or word in names:
        return []
    for name in names:
        if name and word.startswith(name + PLUS):
            rest = word[len(name) + 1 :]
            others = [rest] if rest in names else summands(rest, names)
            if others:
                return [name, *others]
    return []


def usual_population(names: Sequence[str]) -> str | None:
    """The only column with a usual name for inhabitants; None if there is none or several."""
    called = [name for name in names if _plain(name) in USUAL["population"]]
    return called[0] if len(called) == 1 else None


def likely_day(names: Sequence[str]) -> str | None:
    """The name of a column of days, or two that make a week together: Meldejahr+Meldewoche.

    >>> likely_day(["Meldejahr", "Meldewoche", "Landkreis"])
    'Meldejahr+Meldewoche'
    """
    found = likely("day", names)
    years, weeks = (
        [name for name in names if re.search(words, _plain(name))] for words in (YEARS, WEEKS)
    )
    if found not in weeks or found in years or re.search(DATES, _plain(found)):
        return found
    same = [year for year in years if re.sub(WEEKS, "year", _plain(found)) in _plain(year)]
    year = min(same or years, key=len) if same or len(years) == 1 else None
    return f"{year}{PLUS}{found}" if year else found


def _kinds(cells: Sequence[str], wanted: Collection[str]) -> int:
    """Count the kinds of columns named in a row; many days across count as one."""
    known = {name.strip().casefold() for name in wanted}
    plain = [_plain(cell) for cell in cells if cell.strip()]
    kinds = [USUAL[kind] for kind in ("day", "region", "cases")]
    found = sum(any(cell in words for cell in plain) for words in kinds)
    said = sum(cell.strip().casefold() in known for cell in cells)
    across = sum(bool(_DAY_LIKE.match(cell.strip())) for cell in cells) >= LEAST_DAYS
    return max(found, said) + across


def header_below(
    rows: Iterable[tuple[int, Sequence[str]]], wanted: Collection[str] = ()
) -> int | None:
    """The row that names the columns if text stands above the table; None if the first row does.

    >>> rows = [(1, ["Cases of 2020", ""]), (3, ["Datum", "Landkreis", "Fälle"])]
    >>> header_below(rows)
    3
    """
    numbered = [(row, _kinds(cells, wanted), sum(map(bool, cells))) for row, cells in rows]
    if not numbered or numbered[0][1] > 0:
        return None
    sure = next((row for row, kinds, _ in numbered if kinds > 1), None)
    if sure is None:  # names below the headings of groups of columns, which fill fewer cells
        most = max(filled for *_, filled in numbered)
        first = next((one for one in numbered if one[2] == most), numbered[0])
        sure = first[0] if first[1] and most >= LEAST_DAYS else None
    if sure is None:  # a day beside the names of regions, below rows of one cell each
        below = next((one for one in numbered if one[2] > 1), (0, 0, 0))
        sure = below[0] if below[1] and below[2] >= LEAST_DAYS else None
    return sure


STDIN = "-"
LONGEST_PATH = 150
"""Most characters of a path that a message repeats."""
MOST_BYTES = 4 << 30
"""Largest size of a decompressed file, in bytes."""
EVERY = "*"
"""Stands for all files of a zip."""
MOST_MEMBERS = 20
Kind = Literal["text", "parquet", "excel"]

_BOMS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_UTF8 = {"utf-8", "utf8", "utf_8", "utf-8-sig"}
_OLD_EXCEL = b"\xd0\xcf\x11\xe0"
_OTHERS = {
    b"BZh": "bzip2", b"\xfd7zX": "xz", b"7z\xbc\xaf": "7z", b"\x28\xb5\x2f\xfd": "zstd",
    b"%PDF": "PDF", b"<htm": "HTML", b"<!DO": "HTML", b"<HTM": "HTML",
}  # fmt: skip
"""First bytes of files that are no tables."""


@dataclass(frozen=True)
class Content:
    """The decompressed bytes of a file; a plain file stays on disk, to be scanned."""

    where: str
    kind: Kind
    data: Path | bytes
    found: dict[str, str]
    """What was recognised on opening: compression, member of a zip, encoding."""

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """Open the bytes as a file."""
        if isinstance(self.data, bytes):
            yield io.BytesIO(self.data)
            return
        try:
            with self.data.open("rb") as file:
                yield file
        except OSError as error:
            raise unreadable(self.where, error) from None

    def read(self) -> bytes:
        """Read all bytes."""
        with self.open() as file:
            return file.read()


def unreadable(where: str, error: OSError) -> EpifedError:
    """The error for a file that the operating system cannot read."""
    return EpifedError(f"{where}: cannot be read: {error.strerror or 'broken'}")


def existing(path: Path) -> Path:
    """The path, after a check that there is something to read."""
    if str(path) == STDIN:
        return path
    try:
        if not path.exists():
            raise EpifedError(f"{path}: no such file or directory")
        if path.is_file() and path.stat().st_size == 0:
            raise EpifedError(f"{path}: found an empty file; expected case counts")
    except OSError as error:
        raise unreadable(short(path, LONGEST_PATH), error) from None
    return path


def open_content(path: Path, said: Assumptions | None = None) -> Content:
    """Open the content of a file, or of standard input if the path is `-`."""
    said = said or Assumptions()
    where = "standard input" if str(path) == STDIN else short(existing(path), LONGEST_PATH)
    data = path if path.is_file() and str(path) != STDIN else _piped(where, path)
    plain = Content(where, "text", data, {})
    unwrapped = _unwrapped(plain, said)
    return _as_utf8(unwrapped, said) if unwrapped.kind == "text" else unwrapped


@cache
def _piped(where: str, path: Path) -> bytes:
    """The bytes from a pipe, which can be read only once."""
    try:
        data = sys.stdin.buffer.read() if str(path) == STDIN else path.read_bytes()
    except OSError as error:
        raise unreadable(where, error) from None
    if not data:
        raise EpifedError(f"{where}: found nothing; expected case counts")
    return data


def source_digest(path: Path) -> str:
    """The SHA-256 of an unchanged file, or of the bytes from a pipe."""
    data = path if path.is_file() else _piped("standard input", path)
    sha = hashlib.sha256()
    with Content(str(path), "text", data, {}).open() as file:
        while block := file.read(1 << 20):
            sha.update(block)
    return sha.hexdigest()


def _unwrapped(content: Content, said: Assumptions) -> Content:
    with content.open() as file:
        head = file.read(4)
    if content.found and head[:2] in (b"\x1f\x8b", b"PK"):
        raise EpifedError(f"{content.where}: found a compressed file within another; expected one")
    if head[:2] == b"\x1f\x8b":
        data = _gunzipped(content)
        return _unwrapped(replace(content, data=data, found={"compression": "gzip"}), said)
    if head == b"PK\x03\x04":
        return _unzipped(content, said)
    if head == _OLD_EXCEL:
        if "EncryptedPackage".encode("utf-16-le") in content.read():
            raise EpifedError(
                f"{content.where}: found an Excel file with a password; expected one that was "
                "saved without"
            )
        return replace(content, kind="excel")
    for mark, name in _OTHERS.items():
        if head.startswith(mark):
            raise EpifedError(
                f"{content.where}: found a {name} file; expected CSV, Excel or parquet, plain, "
                "gzip or zip"
            )
    return replace(content, kind="parquet" if head == b"PAR1" else "text")


def _gunzipped(content: Content) -> bytes:
    try:
        with content.open() as file, gzip.open(file) as unzipped:
            return _limited(content.where, unzipped.read(MOST_BYTES + 1))
    except (OSError, EOFError, zlib.error):
        raise EpifedError(f"{content.where}: found a damaged gzip file") from None


def _unzipped(content: Content, said: Assumptions) -> Content:
    try:
        with content.open() as file, zipfile.ZipFile(file) as archive:
            names = [one.filename for one in archive.infolist() if not one.is_dir()]
            is_office = "[Content_Types].xml" in names
            if is_office and not any(name.startswith("xl/") for name in names):
                raise EpifedError(
                    f"{content.where}: found a file of Word or PowerPoint; expected a table in "
                    "CSV, Excel or parquet"
                )
            if is_office or {"mimetype", "content.xml"} <= set(names):
                return replace(content, kind="excel")
            data_files = [n for n in names if not n.rpartition("/")[2].startswith((".", "_"))]
            if said.member is None and len(data_files) > 1:
                heads = {archive.open(name).readline(_LONGEST_HEADER) for name in data_files}
                alike = [EVERY] if len(heads) == 1 else []
                raise AmbiguousTableError(
                    f"{content.where}: found {len(data_files)} files in the zip "
                    f"({listed(data_files)}); expected one",
                    *({"member": name} for name in [*alike, *data_files[:MOST_MEMBERS]]),
                )
            if said.member == EVERY and data_files:
                return _members_together(content, archive, data_files, said)
            member = said.member or (data_files[0] if data_files else "")
            if member not in names:
                raise EpifedError(
                    f"{content.where}: found no file '{short(member)}' in the zip; expected one "
                    f"of {listed(names) or 'none'}"
                )
            with archive.open(member) as unzipped:
                data = _limited(content.where, unzipped.read(MOST_BYTES + 1))
    except (OSError, EOFError, zlib.error, zipfile.BadZipFile, RuntimeError, ValueError):
        raise EpifedError(f"{content.where}: found a damaged or locked zip file") from None
    except NotImplementedError:
        raise EpifedError(f"{content.where}: found a zip of an unknown method") from None
    inner = replace(content, data=data, found={"compression": "zip", "member": member})
    return _unwrapped(inner, said)


def _members_together(
    content: Content, archive: zipfile.ZipFile, names: Sequence[str], said: Assumptions
) -> Content:
    """Join the files of a zip, which must have the same header."""
    header, parts, size = b"", [], 0
    for name in names:
        with archive.open(name) as member:
            first = member.readline(_LONGEST_HEADER)
            parts.append(member.read(MOST_BYTES + 1 - size))
        size += len(parts[-1])
        header = header or first
        if first.strip() != header.strip():
            raise EpifedError(
                f"{content.where}: found another first line in {short(name)} than in "
                f"{short(names[0])}; expected files of the same columns"
            )
    data = _limited(content.where, header + b"\n".join(parts))
    return _unwrapped(
        replace(content, data=data, found={"compression": "zip", "member": EVERY}), said
    )


def _limited(where: str, data: bytes) -> bytes:
    if len(data) > MOST_BYTES:
        raise EpifedError(f"{where}: found more than {MOST_BYTES >> 30} GB when decompressed")
    if not data:
        raise EpifedError(f"{where}: found an empty file; expected case counts")
    return data


def _as_utf8(content: Content, said: Assumptions) -> Content:
    """Text as UTF-8: unchanged if it is, else decoded by the given or marked encoding."""
    with content.open() as file:
        head = file.read(1024)
    marked = next((name for mark, name in _BOMS.items() if head.startswith(mark)), None)
    encoding = said.encoding or marked
    if encoding is None and len(head) > 3 and head.count(0) > len(head) // 4:
        little = head[1::2].count(0) > head[::2].count(0)
        raise AmbiguousTableError(
            f"{content.where}: found text that looks like UTF-16 without its mark",
            {"encoding": "utf-16-le" if little else "utf-16-be"},
        )
    if encoding is None and b"\r" in head and b"\n" not in head:
        lines = content.read().replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return replace(content, data=lines, found=content.found | {"encoding": "utf-8"})
    if encoding is None or encoding.lower() in _UTF8:
        return replace(content, found=content.found | {"encoding": "utf-8"})
    try:
        codecs.lookup(encoding)
        text = content.read().decode(encoding)
    except LookupError:
        raise EpifedError(
            f"encoding: found '{short(encoding)}'; expected a name such as utf-8, latin-1, cp1252"
        ) from None
    except ValueError:
        raise EpifedError(
            f"{content.where}: found bytes that are not {short(encoding)}; expected text in it"
        ) from None
    data = text.removeprefix("\ufeff").encode("utf-8", errors="replace")
    return replace(content, data=data, found=content.found | {"encoding": encoding})


DELIMITERS = ",;\t|"
_LONGEST_HEADER = 1 << 20
_MOST_ABOVE = 30
"""Most rows of text above a table."""
_NAMED = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";"}


@dataclass(frozen=True)
class Header:
    """The header line of a CSV: its names, separator and line number."""

    names: tuple[str, ...]
    separator: str
    line: int


def read_header(
    content: Content, said: Assumptions | None = None, wanted: Collection[str] = ()
) -> Header:
    """Read the column names of a CSV, and recognise their separator.

    Of several possible separators, the one that yields wanted names is used.
    """
    said = said or Assumptions()
    if said.header_row is None:
        _refuse_text_above(content, wanted)
    line, text = 0, ""
    with content.open() as file:
        while not text.strip() or line < (said.header_row or 1):
            raw = file.readline(_LONGEST_HEADER)
            if not raw:
                raise EpifedError(f"{content.where}: found only empty lines; expected a header")
            line += 1
            try:
                text = raw.decode("utf-8-sig")
            except UnicodeDecodeError:
                raise _not_utf8(content, line) from None
    separator = _separator(content, text, said, wanted)
    return Header(_cells(content, line, text, separator), separator, line)


def _refuse_text_above(content: Content, wanted: Collection[str]) -> None:
    """Refuse a table with text above its column names unless their row is given."""
    with content.open() as file:
        lines = [file.readline(_LONGEST_HEADER) for _ in range(_MOST_ABOVE)]
    texts = [(row, raw.decode("utf-8", errors="replace")) for row, raw in enumerate(lines, start=1)]
    filled = [(row, text) for row, text in texts if text.strip()]
    for sign in DELIMITERS:
        rows = [(row, text.replace('"', "").split(sign)) for row, text in filled]
        if found := header_below(rows, wanted):
            raise AmbiguousTableError(
                f"{content.where}: row {filled[0][0]}: found '{short(filled[0][1])}'; expected the "
                f"column names, which are in row {found}",
                {"header_row": found},
            )
        if header_below([*rows[:1], (0, [*wanted, "date", "cases"])], wanted) is None:
            return


def _separator(content: Content, text: str, said: Assumptions, wanted: Collection[str]) -> str:
    if said.delimiter is not None:
        chosen = _NAMED.get(said.delimiter.lower(), said.delimiter)
        if len(chosen) != 1 or ord(chosen) > 127 or chosen in '"\r\n':
            raise EpifedError(
                f"delimiter: found '{short(said.delimiter)}'; expected one character, or tab"
            )
        return chosen
    if len(text) == _LONGEST_HEADER:
        raise EpifedError(
            f"{content.where}: found a first line of more than {_LONGEST_HEADER:,} characters; "
            "expected column names"
        )
    quoted_away = "".join(text.split('"')[::2])
    present = [one for one in DELIMITERS if one in quoted_away]
    if len(present) > 1:
        names = {name.casefold() for name in wanted}
        fitting = [
            one
            for one in present
            if names & {cell.strip().casefold() for cell in _cells(content, 1, text, one)}
        ]
        present = fitting if len(fitting) == 1 else present
    if len(present) > 1:
        most = sorted(present, key=quoted_away.count, reverse=True)
        ways = ({"delimiter": "tab" if one == "\t" else one} for one in most)
        raise AmbiguousTableError(
            f"{content.where}: found several signs between column names: {short(text)}", *ways
        )
    return present[0] if present else ","


def _cells(content: Content, line: int, text: str, separator: str) -> tuple[str, ...]:
    try:
        (cells,) = csv.reader([text.strip("\r\n")], delimiter=separator)
    except (csv.Error, ValueError):
        raise _not_csv(content, line) from None
    return tuple(cells)


def require(where: Path | str, found: Sequence[str], expected: Sequence[str]) -> None:
    """Refuse a table that lacks an expected column, or has one twice."""
    names = [name.strip() for name in found]
    missing = [column for column in expected if column not in names]
    if missing:
        raise EpifedError(
            f"{where}: found no column {listed(missing)}; expected {listed(expected)} "
            f"(the columns are {listed(names) or 'none'})"
        )
    twice = [column for column in expected if names.count(column) > 1]
    if twice:
        raise EpifedError(f"{where}: found the column {short(twice[0])} twice; expected it once")


def scan_csv(
    content: Content, columns: Mapping[str, str], header: Header | None = None
) -> pl.LazyFrame:
    """Scan wanted columns of a CSV as text, named by their keys, and `row`, their line number."""
    header = header or read_header(content)
    require(content.where, header.names, list(columns.values()))
    names = [name.strip() for name in header.names]
    return scan_places(content, header, {key: names.index(name) for key, name in columns.items()})


def scan_places(content: Content, header: Header, places: Mapping[str, int]) -> pl.LazyFrame:
    """Scan columns by place as text, named by their keys, and `row`, their line number."""
    every = pl.scan_csv(
        io.BytesIO(content.data) if isinstance(content.data, bytes) else content.data,
        separator=header.separator,
        infer_schema=False,
        skip_rows=_lines_above(content, header),
        row_index_name="row",
        row_index_offset=header.line + 1,
        glob=False,
    )
    return every.select("row", *(pl.nth(1 + place).alias(key) for key, place in places.items()))


def _lines_above(content: Content, header: Header) -> int:
    """The lines to skip above the header; polars skips empty ones itself."""
    with content.open() as file:
        above = [file.readline() for _ in range(header.line - 1)]
    return header.line - 1 if any(raw.strip(b"\xef\xbb\xbf\r\n") for raw in above) else 0


def collect(content: Content, lazy: pl.LazyFrame, header: Header | None = None) -> pl.DataFrame:
    """Run a scan of a CSV; a reader's error becomes a message with the row."""
    try:
        return lazy.collect(engine="streaming")
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise _unreadable_csv(content, header or read_header(content), error) from None


_ENCODINGS = ("latin-1", "cp1252", "cp1250", "iso8859-2", "shift_jis", "gb18030")


def _not_utf8(content: Content, line: int) -> EpifedError:
    """The error for bytes that are not UTF-8, the likeliest encoding first."""
    with content.open() as file:
        head = file.read(_LONGEST_HEADER)
    if b"\0" in head:
        return EpifedError(
            f"{content.where}: found a binary file; expected CSV, Excel or parquet, plain, "
            "gzip or zip"
        )
    whole = head.rpartition(b"\n")[0]
    likeliest = [one for one in _ENCODINGS if _only_letters(whole, one)][:1]
    ways = list(dict.fromkeys([*likeliest, *_ENCODINGS[:2]]))
    return AmbiguousTableError(
        f"{content.where}: row {line}: found bytes that are not UTF-8; expected UTF-8 text",
        *({"encoding": one} for one in ways),
    )


def _only_letters(text: bytes, encoding: str) -> bool:
    """Whether an encoding makes letters of all signs within words that are not ASCII."""
    try:
        within = re.findall(
            r"(?<=[^\W\d_])[^\x00-\x7f]|[^\x00-\x7f](?=[^\W\d_])", text.decode(encoding)
        )
    except ValueError:
        return False
    return all(sign.isalpha() or sign in "\u2019\u00a0" for sign in within)


def _not_csv(content: Content, line: int) -> EpifedError:
    return EpifedError(f"{content.where}: row {line}: found a broken line; expected CSV")


def _unreadable_csv(content: Content, header: Header, error: BaseException) -> EpifedError:
    """The error for the line that the CSV reader could not read."""
    with content.open() as file:
        for line, raw in enumerate(file, start=1):
            try:
                fields = next(csv.reader([raw.decode("utf-8")], delimiter=header.separator), [])
            except UnicodeDecodeError:
                return _not_utf8(content, line)
            except csv.Error:
                return _not_csv(content, line)
            if line > header.line and len(fields) > len(header.names):
                return EpifedError(
                    f"{content.where}: row {line}: found {len(fields)} cells; "
                    f"expected {len(header.names)}, one for each column"
                )
            if raw.count(b'"') % 2:
                return EpifedError(f'{content.where}: row {line}: found a " that is not closed')
    reason = str(error).splitlines()[0] if str(error) else "broken"
    return EpifedError(f"{content.where}: cannot be read as CSV: {short(reason, 100)}")


_AS_TEXT = r'^="([^"]*)"$'
"""How spreadsheets write text that looks like a number: ="01001"."""
_MARK = "\ufeff"
"""Byte order mark, at the beginning of a file or of a line appended from another file."""
REGION = "region"
"""The column made from the names of sheets, if each sheet is a region."""
IN_MEMORY = "DataFrame"
"""The name of a DataFrame in messages, in place of a file's."""


@dataclass(frozen=True)
class RawTable:
    """An unprocessed table: the names of its columns, and access to its cells."""

    where: str
    names: tuple[str, ...]
    cells: Callable[[Sequence[int]], pl.DataFrame]
    """The columns at these places, named by their place, and `row`; text is not yet stripped."""
    found: dict[str, Any] = field(default_factory=dict)
    """What was recognised on opening it."""
    header_row: int = 1
    """The row of the file that names the columns."""
    other_sheets: tuple[str, ...] = ()
    """The names of an Excel file's other sheets."""

    def pick(self, columns: Mapping[str, str]) -> pl.DataFrame:
        """Wanted columns by their keys, and `row`; empty cells are null, empty rows dropped."""
        require(self.where, self.names, list(columns.values()))
        places = {key: self.names.index(name) for key, name in columns.items()}
        frame = self.cells(sorted(set(places.values())))
        chosen = frame.select("row", *(_stripped(frame, str(i), k) for k, i in places.items()))
        return chosen.filter(~pl.all_horizontal(pl.exclude("row").is_null()))


def some(where: Path | str, frame: pl.DataFrame) -> pl.DataFrame:
    """The rows of a table; refused if there are none."""
    if frame.is_empty():
        raise EpifedError(f"{where}: found no rows; expected at least one below the column names")
    return frame


def _stripped(frame: pl.DataFrame, name: str, key: str) -> pl.Expr:
    column = pl.col(name)
    if frame.schema[name] in (pl.Categorical, pl.Enum):
        column = column.cast(pl.String)
    elif frame.schema[name] != pl.String:
        return column.alias(key)
    plain = column.str.strip_chars_start(_MARK).str.strip_chars().str.replace(_AS_TEXT, "${1}")
    return plain.replace("", None).alias(key)


def open_table(
    table: Path | Content | Table, said: Assumptions | None = None, wanted: Sequence[str] = ()
) -> RawTable:
    """Open a file or a DataFrame; `wanted` are names that its columns should have."""
    said = said or Assumptions()
    if not isinstance(table, Path | Content):
        return _of_frame(table)
    content = open_content(table, said) if isinstance(table, Path) else table
    if content.kind != "excel" and (said.sheet or said.regions_from):
        raise EpifedError(
            f"{content.where}: found no Excel file; expected one with a sheet to read"
        )
    if said.member and "member" not in content.found:
        raise EpifedError(f"{content.where}: found no zip file; expected one with a file to read")
    if content.kind == "parquet":
        return _of_parquet(content)
    if content.kind == "excel":
        return _of_excel(content, said, wanted)
    header = read_header(content, said, wanted)

    def cells(places: Sequence[int]) -> pl.DataFrame:
        named = {str(place): place for place in places}
        return collect(content, scan_places(content, header, named), header)

    names = tuple(name.strip() for name in header.names)
    found = content.found | {"delimiter": "tab" if header.separator == "\t" else header.separator}
    return RawTable(content.where, names, cells, {"file": "CSV"} | found, header.line)


def _of_frame(table: Table) -> RawTable:
    names = column_names(table)

    def cells(places: Sequence[int]) -> pl.DataFrame:
        wanted = {str(place): names[place] for place in places}
        return pick(table, wanted, IN_MEMORY).with_row_index("row", offset=1)

    return RawTable(IN_MEMORY, names, cells, {"file": IN_MEMORY})


def _of_parquet(content: Content) -> RawTable:
    with _parquet(content) as (parquet, file):
        names = tuple(parquet.read_schema(file).names)

    def cells(places: Sequence[int]) -> pl.DataFrame:
        with _parquet(content) as (parquet, file):
            wanted = [names[place] for place in places]
            table = parquet.read_table(file, columns=wanted)
            table.validate(full=True)
            columns = [without_offset(table.column(name)) for name in wanted]
            named = [str(place) for place in places]
            frame = pl.DataFrame(table.from_arrays(columns, names=named))
        return frame.with_row_index("row", offset=1)

    return RawTable(content.where, names, cells, {"file": "parquet"} | content.found)


@contextmanager
def _parquet(content: Content) -> Iterator[tuple[Any, Any]]:
    """Arrow's reader, which raises an error for a damaged file where polars ends the process.

    It is imported here to save memory when only CSV is read.
    """
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        is_path = isinstance(content.data, Path)
        yield pq, content.data if is_path else pa.BufferReader(content.data)
    except (
        pa.ArrowException,
        pl.exceptions.PolarsError,
        OSError,
        UnicodeError,
        ValueError,
    ) as error:
        reason = str(error).splitlines()[0].rstrip(".") if str(error) else "broken"
        raise EpifedError(
            f"{content.where}: cannot be read as parquet: {short(reason, 150)}"
        ) from None


def _of_excel(content: Content, said: Assumptions, wanted: Sequence[str]) -> RawTable:
    try:
        import fastexcel  # noqa: PLC0415
    except ImportError:
        raise EpifedError(
            f"{content.where}: found an Excel file, which needs fastexcel; expected epifed "
            "installed with 'pip install epifed[excel]', or the sheet saved as CSV"
        ) from None
    try:
        book = fastexcel.read_excel(content.read())
        loaded = {
            name: book.load_sheet(name, header_row=None, skip_rows=0, dtypes="string")
            for name in ([said.sheet] if said.sheet in book.sheet_names else book.sheet_names)
        }
        sheets = {name: sheet.to_polars() for name, sheet in loaded.items()}
    except (fastexcel.FastExcelError, pl.exceptions.PolarsError, OSError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else "broken"
        raise EpifedError(
            f"{content.where}: cannot be read as Excel: {short(reason, 100)}"
        ) from None
    filled = {name: sheet for name, sheet in sheets.items() if sheet.height > 1}
    shown = {name: sheet for name, sheet in filled.items() if loaded[name].visible == "visible"}
    hidden = [name for name in filled if shown and name not in shown and name != said.sheet]
    filled = {name: sheet for name, sheet in filled.items() if name not in hidden}
    if hidden:
        found = content.found | {"hidden sheets left out": listed(hidden)}
        content = replace(content, found=found)
    if said.sheet not in (None, EVERY) and said.sheet not in sheets:
        raise EpifedError(
            f"{content.where}: found no sheet '{short(said.sheet)}'; expected one of "
            f"{listed(list(sheets))}"
        )
    if not filled:
        raise EpifedError(f"{content.where}: found no sheet with rows; expected a table")
    if said.regions_from == "sheets" or said.sheet == EVERY:
        every = {name: _of_sheet(content, name, filled[name], said, wanted) for name in filled}
        return _sheets_together(content, every, regions=said.regions_from == "sheets")
    if len(filled) > 1:
        ways: list[dict[str, str]] = [{"sheet": name} for name in list(filled)[:MOST_MEMBERS]]
        named = {_named(sheet, wanted) for sheet in filled.values()}
        if len(named) == 1:
            have = likely("region", [name for name in named.pop() if name])
            ways.insert(0, {"sheet": EVERY} if have else {"regions_from": "sheets"})
        raise AmbiguousTableError(
            f"{content.where}: found {len(filled)} sheets with rows; expected one", *ways
        )
    ((sheet, frame),) = filled.items()
    table = _of_sheet(content, sheet, frame, said, wanted)
    others = [name for name in book.sheet_names if name != sheet]
    return replace(table, other_sheets=tuple(others))


def _named(sheet: pl.DataFrame, wanted: Sequence[str]) -> frozenset[str]:
    """The column names of a sheet, in any order."""
    rows = sheet.head(_MOST_ABOVE).fill_null("").rows()
    return frozenset(rows[(header_below(enumerate(rows, start=1), wanted) or 1) - 1])


def _sheets_together(
    content: Content, sheets: Mapping[str, RawTable], *, regions: bool
) -> RawTable:
    """One table of all sheets; with `regions`, a column `region` holds their names."""
    first, *others = sheets.items()
    for name, table in others:
        if sorted(table.names) != sorted(first[1].names):
            raise EpifedError(
                f"{content.where}: sheet {short(name)}: found the columns {listed(table.names)}; "
                f"expected those of the sheet {short(first[0])}: {listed(first[1].names)}"
            )
    names = first[1].names
    if regions and REGION in names:
        raise EpifedError(
            f"{content.where}: found a column {REGION} in the sheets; expected none, since the "
            "sheets are the regions"
        )

    def cells(places: Sequence[int]) -> pl.DataFrame:
        inside = [place for place in places if place < len(names)]
        parts = []
        for name, table in sheets.items():
            at = {place: table.names.index(names[place]) for place in inside}
            part = table.cells(sorted(at.values()) or [0])
            sheet = pl.lit(name).alias(str(len(names)))
            wanted = [
                pl.col(str(at[place])).alias(str(place)) if place in at else sheet
                for place in places
            ]
            parts.append(part.select("row", *wanted))
        return pl.concat(parts)

    found = first[1].found | {"sheet": f"all {len(sheets)}"}
    if not regions:
        return RawTable(content.where, names, cells, found, first[1].header_row)
    found |= {"sheet": f"{len(sheets)} as regions", "regions_from": "sheets"}
    return RawTable(content.where, (*names, REGION), cells, found, first[1].header_row)


def _of_sheet(
    content: Content, sheet: str, frame: pl.DataFrame, said: Assumptions, wanted: Sequence[str]
) -> RawTable:
    """The table of one sheet."""
    text = pl.any_horizontal(pl.exclude("row").str.strip_chars().str.len_chars() > 0)
    rows = frame.with_row_index("row", offset=1).filter(
        pl.col("row") >= (said.header_row or 1), text
    )
    if rows.is_empty():
        raise EpifedError(f"{content.where}: found no row {said.header_row}; expected a header")
    first = rows.head(_MOST_ABOVE).fill_null("").rows()
    found_below = header_below([(row, cells) for row, *cells in first], wanted)
    if said.header_row is None and found_below:
        text_above = next(cell for cell in first[0][1:] if cell.strip())
        raise AmbiguousTableError(
            f"{content.where}: row {first[0][0]}: found '{short(text_above)}'; expected the column "
            f"names, which are in row {found_below}",
            {"header_row": found_below},
        )
    header_row, *names = rows.row(0)

    def cells(places: Sequence[int]) -> pl.DataFrame:
        columns = [pl.nth(1 + place).alias(str(place)) for place in places]
        below: pl.DataFrame = rows.slice(1).select("row", *columns)
        return below

    found = {"file": "Excel", "sheet": sheet} | content.found
    named = tuple((name or "").strip() for name in names)
    return RawTable(content.where, named, cells, found, header_row)


def wrong(where: Path | str, row: int, column: str, found: Any, expected: str) -> EpifedError:
    """The error for one cell: file, row, column, what was found and what was expected."""
    what = "an empty cell" if found is None or found == "" else f"'{short(found)}'"
    return EpifedError(f"{at(where, row, column)}: found {what}; expected {expected}")


def at(where: Path | str, row: int, column: str) -> str:
    """The place of a cell, as an error message begins with it."""
    return f"{where}: row {row}, column {short(column)}"


def wrong_type(
    where: Path | str, frame: pl.DataFrame, key: str, column: str, expected: str
) -> EpifedError:
    """The error for a column of an unsuitable type."""
    kind = short(frame.schema[key])
    return EpifedError(
        f"{at(where, frame['row'][0], column)}: found the type {kind}; expected {expected}"
    )


def refuse(
    where: Path | str, frame: pl.DataFrame, bad: pl.Series, *, key: str, column: str, expected: str
) -> None:
    """Raise the error for the first bad row, if there is one."""
    if bad.any():
        first = frame.filter(bad).select("row", key).sort("row").row(0, named=True)
        raise wrong(where, first["row"], column, first[key], expected)
