"""Parse days, counts and regions as offices write them: formats, signs, `<5`, ids with zeros."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import polars as pl

from epifed.data.calendar import WEEK, is_calendar
from epifed.data.panel import MOST_CASES
from epifed.data.readers.tables import (
    WEEKS,
    AmbiguousTableError,
    Assumptions,
    at,
    refuse,
    short,
    wrong_type,
)
from epifed.errors import EpifedError, counted, was

FIRST_DAY, LAST_DAY = date(1900, 1, 1), date(2100, 12, 31)
"""A day outside is a typing error, and would make the panel enormous."""
MONTHS, LEAST_CLEAR, NEAR_DAYS = 12, 3, 31
"""Largest day that may be a month, least number of days above it, and how many days from these
the others may lie."""
ISO = "%Y-%m-%d"
DAY = "a day as YYYY-MM-DD from 1900 to 2100"
WEEKLY = ("iso-week", "epiweek")

_YEARS_1_TO_9999 = (-719_162, 2_932_896)
_MILLISECONDS = 86_400_000
_MIDNIGHT = r"(?i),?[T ]+(0?0:00(:00(\.0*)?)?( Uhr)?|12:00(:00)? AM)( ?(Z|UTC|[+-]\d\d(:?\d\d)?))?$"
_TIME = r"(?i),?[T ]+\d\d?:\d\d(:\d\d(\.\d*)?)?( ?[AP]M| Uhr)?$"
_ZONE = r"(Z|UTC|[+-]\d\d(:?\d\d)?)$"
_AFTERNOON = r"^1[678]:"
"""Hours that are midnight in zones of UTC+6 to UTC+8 alone; without a mark they are local times."""
_HOUR = r"\d[T ]\d\d?:00"
TIMED = " with a time of the day"
"""The end of a format that leaves out the time of day."""
WEEK_LONG = " for the last day of a week, after its first day"
"""The end of a format of weeks that are written with both days: 01.01.2024 - 07.01.2024."""
SHEET = " or a date of the sheet"
"""The end of a format that also accepts a spreadsheet's own dates."""
_WEEKDAY = r"(?i)^(mo|mon|tue|wed|thu|fri|sat|sun|di|mi|do|fr|sa|so)[a-z]*\.?,? +(\S)"
_MONTHS = {
    "Jan": "januar|jänner|january|janvier|janv|enero|ene|gennaio|gen|stycznia|sty|januari|jan",
    "Feb": "februar|february|février|fevrier|févr|fevr|febrero|febbraio|lutego|lut|februari|feb",
    "Mar": "märz|maerz|march|mars|marzo|marca|maart|mär|mrz|mrt|mar",
    "Apr": "april|avril|avr|abril|abr|aprile|kwietnia|kwi|apr",
    "May": "mai|may|mayo|maggio|mag|maja|maj|mei",
    "Jun": "juni|june|juin|junio|giugno|giu|czerwca|cze|jun",
    "Jul": "juli|july|juillet|juil|julio|luglio|lug|lipca|lip|jul",
    "Aug": "august|août|aout|agosto|ago|sierpnia|sie|augustus|aug",
    "Sep": "september|septembre|septiembre|settembre|września|wrz|sept|sep|set",
    "Oct": "oktober|october|octobre|octubre|ottobre|ott|października|paź|okt|oct",
    "Nov": "november|novembre|noviembre|listopada|lis|nov",
    "Dec": "dezember|december|décembre|decembre|diciembre|dicembre|grudnia|gru|déc|dez|dec|dic",
}  # fmt: skip
"""Months as offices write them, by their English abbreviations."""
_SHAPES = {
    ISO: r"^\d{4}-\d\d-\d\d$",
    "%Y/%m/%d": r"^\d{4}/\d\d?/\d\d?$",
    "%Y.%m.%d": r"^\d{4}\.\d\d?\.\d\d?$",
    "%Y%m%d": r"^(19|20)\d{6}$",
    "%Y年%m月%d日": r"^\d{4}年\d\d?月\d\d?日$",
    "%d.%m.%Y": r"^\d\d?\.\d\d?\.\d{4}$",
    "%d/%m/%Y": r"^\d\d?/\d\d?/\d{4}$",
    "%m/%d/%Y": r"^\d\d?/\d\d?/\d{4}$",
    "%d-%m-%Y": r"^\d\d?-\d\d?-\d{4}$",
    "%m-%d-%Y": r"^\d\d?-\d\d?-\d{4}$",
    "%d.%m.%y": r"^\d\d?\.\d\d?\.\d\d$",
    "%d/%m/%y": r"^\d\d?/\d\d?/\d\d$",
    "%m/%d/%y": r"^\d\d?/\d\d?/\d\d$",
    "%y/%m/%d": r"^\d\d/\d\d/\d\d$",
    "%d-%m-%y": r"^\d\d-\d\d-\d\d$",
    "%m-%d-%y": r"^\d\d-\d\d-\d\d$",
    "%y-%m-%d": r"^\d\d-\d\d-\d\d$",
    "%d %b %Y": r"^\d\d? [A-Za-z]{3} \d{4}$",
    "%d-%b-%Y": r"^\d\d?-[A-Za-z]{3}-\d{4}$",
    "%b %d, %Y": r"^[A-Za-z]{3} \d\d?, \d{4}$",
    "%d-%b-%y": r"^\d\d?-[A-Za-z]{3}-\d\d$",
    "%G-W%V-%u": r"^\d{4}-W\d\d-[1-7]$",
}
"""The pattern of each date format; a format is tried only on words that match it."""
_ISO_WEEK = (
    r"(?i)^(?:(?P<y>\d{4})[-/ ]*K?W[- ]*(?P<w>\d\d?)|KW[- ]*(?P<w2>\d\d?)[-/. ]*(?P<y2>\d{4})"
    r"|(?P<w3>\d\d?)\. ?KW[-/. ]*(?P<y3>\d{4}))$"
)
"""Weeks marked as such: W in ISO 8601, KW in German, which are the same."""
WEEK_WORD = r"(?:W|SE|S|sem|semaine|semana|settimana|week|woche|wk)[ ._-]*"
"""Words before the number of a week that do not say which calendar counts it."""
_BARE_WEEK = (
    rf"(?i)^(?:(?P<y>\d{{4}})[-/ _]*(?P<w>\d\d)|(?P<y2>\d{{4}})[-/ _]*{WEEK_WORD}(?P<w2>\d\d?)"
    rf"|W?(?P<w3>\d\d?) ?[-/_] ?(?P<y3>\d{{4}})"
    rf"|{WEEK_WORD}(?P<w4>\d\d?)(?: ?[-/_,.] ?| (?:de |del |of )?)(?P<y4>\d{{4}}))$"
)
_WEEK_ALONE = rf"(?i)^(KW[ ._-]*|{WEEK_WORD})\d\d?([-/]\d\d)?$|^\d\d?\. ?KW$"
_WEEK_RANGE = (
    r"(?i)^(?:vom |du |from )?"
    r"(?:(\S+) +(?:-|–|—|/|bis|bis zum|to|au|al?) +|(\S+?)[-–](?:\d\d?\.){2})"
)
_SERIAL = r"^[2-7]\d{4}(\.0+)?$"
_EXCEL_START = date(1899, 12, 30)


@dataclass(frozen=True)
class Days:
    """The days of a column, and the format by which they were read (None if already dates)."""

    frame: pl.DataFrame
    format: str | None


def parse_days(
    where: Path | str, frame: pl.DataFrame, column: str, format: str | None = None
) -> Days:
    """Turn `day` into dates by the given or the only fitting format; refuse the first bad one."""
    kind = frame.schema["day"]
    if kind == pl.Datetime:
        since_1970 = pl.col("day").dt.replace_time_zone(None).dt.cast_time_unit("ms").to_physical()
        first, last = (days * _MILLISECONDS for days in _YEARS_1_TO_9999)
        stamp = since_1970.clip(first, last).cast(pl.Datetime("ms"))
        frame = frame.with_columns(stamp.dt.to_string("%Y-%m-%d %H:%M:%S%.3f"))
    elif kind == pl.Date:
        since_1970 = pl.col("day").to_physical().clip(*_YEARS_1_TO_9999)
        typed = frame.with_columns(since_1970.cast(pl.Date))
        _refuse_outside(where, typed, typed, column, DAY)
        return Days(typed, None)
    elif kind.is_integer():
        text = frame.with_columns(pl.col("day").cast(pl.String))
        if format is None and not _fitting(text["day"].unique().drop_nulls()):
            raise wrong_type(where, frame, "day", column, DAY)
        frame = text
    elif kind != pl.String:
        raise wrong_type(where, frame, "day", column, DAY)
    words = frame["day"].unique().drop_nulls()
    chosen = format or _recognised(where, words, column)
    days = _read(words, chosen)
    parsed = frame.with_columns(
        pl.col("day").replace_strict(words, days, default=None, return_dtype=pl.Date)
    )
    expected = DAY if chosen == ISO else f"a day as {short(chosen)} from 1900 to 2100"
    bad_words = words.filter(days.is_null())
    numbered = re.search(WEEKS, column.casefold()) and words.str.contains(r"^\d\d?$").all()
    if bad_words.str.contains(_WEEK_ALONE).any() or (numbered and len(bad_words)):
        expected = "a week with its year, such as 2024-W07"
    if days.null_count() and words.str.contains(_HOUR).any() and _midnight_elsewhere(words):
        expected = "a day without a time, which looks like midnight in another time zone"
    _refuse_outside(where, frame, parsed, column, expected)
    _refuse_swapped(where, frame, parsed, column)
    return Days(parsed, None if kind == pl.Datetime else chosen)


def _refuse_outside(
    where: Path | str, frame: pl.DataFrame, parsed: pl.DataFrame, column: str, expected: str
) -> None:
    bad = ~pl.col("day").is_between(FIRST_DAY, LAST_DAY).fill_null(value=False)
    refuse(where, frame, parsed.select(bad)["day"], key="day", column=column, expected=expected)


def _refuse_swapped(
    where: Path | str, frame: pl.DataFrame, parsed: pl.DataFrame, column: str
) -> None:
    """Refuse dates in which a spreadsheet swapped day and month where possible: 05.10. as 10 May.

    A sign is that most dates with a day up to 12 lie far from the others, but not when swapped.
    """
    days = parsed["day"].unique().drop_nulls()
    clear, other = days.filter(days.dt.day() > MONTHS), days.filter(days.dt.day() <= MONTHS)
    if len(clear) < LEAST_CLEAR or len(other) < LEAST_CLEAR:
        return
    first, last = (day.toordinal() for day in (clear.min(), clear.max()))  # type: ignore[union-attr]

    def near(day: date) -> bool:
        return first - NEAR_DAYS <= day.toordinal() <= last + NEAR_DAYS

    far = [day for day in other if not near(day)]
    if len(far) > len(other) / 2 and all(near(date(d.year, d.day, d.month)) for d in far):
        bad = parsed["day"] == min(far)
        expected = "a day near the others: day and month seem to be swapped in some rows"
        refuse(where, frame, bad, key="day", column=column, expected=expected)


def day_names(names: Sequence[str], format: str | None = None) -> list[bool]:
    """Which column names are days, by the given format or by any known one."""
    words = pl.Series(list(names), dtype=pl.String)
    if format:
        return _read(words, format).is_not_null().to_list()
    found = pl.Series([False] * len(words), dtype=pl.Boolean)
    if words.str.contains(r"\d").any():
        for one in (*_SHAPES, "iso-week"):
            found |= _read(words, one).is_not_null()
    return found.to_list()


def _recognised(where: Path | str, words: pl.Series, column: str) -> str:
    """The only format that fits all words; else the nearest, so that a bad word is named."""
    fitting = _fitting(words)
    if "epiweek" in fitting and _are_months(words):
        raise EpifedError(
            f"{where}: column {short(column)}: found months such as '{short(words.sort()[0])}'; "
            "expected days or weeks"
        )
    if not fitting:
        most = max(_SHAPES, key=lambda one: (_read(words, one).is_not_null().sum(), one == ISO))
        return most if _read(words, most).is_not_null().any() else ISO
    if len(fitting) > 1 or fitting[0] == "excel" or fitting[0].endswith(TIMED):
        example = short(_telling(words.sort(), fitting))
        what = "weeks or months" if "epiweek" in fitting else "days"
        if fitting == ["excel"]:
            what = "numbers that look like Excel's days"
        elif fitting[0].endswith(TIMED):
            what = "times of a day"
        if re.search(r"(?i)mmwr|epi", column):
            fitting = sorted(fitting, key=lambda one: one != "epiweek")
        ways = [{"date_format": one} for one in fitting]
        raise AmbiguousTableError(
            f"{where}: column {short(column)}: found {what} such as '{example}'",
            *ways,
            column=column,
            example=example,
        )
    return fitting[0]


def _telling(words: pl.Series, formats: Sequence[str]) -> str:
    """The first word that the formats read as different days; else the first word."""
    readings = pl.DataFrame({str(i): _read(words, one) for i, one in enumerate(formats)})
    differ = readings.select(pl.any_horizontal(pl.all() != pl.col("0"))).to_series()
    return str(words.filter(differ.fill_null(value=False)).extend(words)[0])


def _fitting(words: pl.Series) -> list[str]:
    """All formats that fit every word."""
    if words.is_empty():
        return [ISO]
    return _of_shape(words) or _of_weeks_or_times(words)


def _of_weeks_or_times(words: pl.Series) -> list[str]:
    """The formats of weeks, Excel's numbers or days with times, if one fits every word."""
    alone = {_ISO_WEEK: ["iso-week"], _BARE_WEEK: [*WEEKLY], _SERIAL: ["excel"]}
    for pattern, formats in alone.items():
        if words.str.contains(pattern).all():
            return formats
    if words.str.contains(_WEEK_RANGE).all():
        return [one + WEEK_LONG for one in _of_shape(_last_days(words))]
    if words.str.contains(_TIME).any() and not _midnight_elsewhere(words):
        return [one + TIMED for one in _of_shape(words.str.replace(_TIME, ""))]
    typed = _of_a_sheet(words).is_not_null()
    if typed.sum() < LEAST_CLEAR:
        return []
    texts = words.filter(~typed)
    return [one + SHEET for one in ([ISO] if texts.is_empty() else _of_shape(texts))]


def _last_days(words: pl.Series) -> pl.Series:
    """The part of each range of days from its second day on."""
    return words.str.replace(r"^.*(?: |[-–](\d\d?\.\d\d?\.\d+)$)", "${1}")


def _of_whole_weeks(words: pl.Series, format: str) -> pl.Series:
    """The last days of ranges that are of seven days; others are null."""
    last = _read(_last_days(words), format)
    first = words.str.extract_groups(_WEEK_RANGE)
    first = first.struct.field("1").fill_null(first.struct.field("2"))
    begin = last.dt.offset_by(f"-{WEEK - 1}d")
    whole = (_read(first, format) == begin).fill_null(value=False)
    whole |= (first == begin.dt.to_string("%d.%m.")).fill_null(value=False)
    return pl.select(pl.when(whole).then(last)).to_series()


def _of_a_sheet(words: pl.Series) -> pl.Series:
    """Days as a spreadsheet exports its own, in ISO form or as numbers; others are null."""
    numbers = pl.select(pl.when(words.str.contains(_SERIAL)).then(words)).to_series()
    return _read(words, ISO).fill_null(_read(numbers, "excel"))


def _of_shape(words: pl.Series) -> list[str]:
    """The formats that fit every word, among those whose pattern fits the first word."""
    first = str(_plain(words.head(1))[0])
    tried = [one for one, shape in _SHAPES.items() if re.match(shape, first)]
    return [one for one in tried if _read(words, one).is_not_null().all()]


def _are_months(words: pl.Series) -> bool:
    """Whether possible week numbers are months: none above 12, in several years."""
    found = [re.match(_BARE_WEEK, word) for word in words]
    said = [{k[0]: int(v) for k, v in one.groupdict().items() if v} for one in found if one]
    return max(one["w"] for one in said) <= 12 and len({one["y"] for one in said}) > 1


def _midnight_elsewhere(words: pl.Series) -> bool:
    """Whether all times are one whole hour, or two with summer time: midnight of another time zone.

    Such a time would give the wrong day.
    """
    times = words.str.extract(r"(?i)[T ](\d\d?:\d\d(:[\d.]+)?)").drop_nulls().unique()
    if not words.str.contains(_ZONE).any() and times.str.contains(_AFTERNOON).all():
        return False
    return len(times) <= 2 and bool(times.str.contains(r"^\d\d?:00(:00(\.0*)?)?$").all())


def _plain(words: pl.Series) -> pl.Series:
    """Days without a midnight time and without names of weekdays."""
    return _shortened(words.str.replace(_MIDNIGHT, "").str.replace(_WEEKDAY, "${2}"))


def _shortened(words: pl.Series) -> pl.Series:
    """Replace month names of several languages by English abbreviations."""
    if not words.str.contains(r"\pL{3}").any():
        return words
    words = words.str.replace_all(r"(?i) (de|del) ", " ").str.replace(r"(?i)^1(er|º|°) ", "1 ")
    for month, names in _MONTHS.items():
        words = words.str.replace(rf"(?i)\.?( ?)\b({names})\b\.?", f"${{1}}{month}")
    return words


def _read(words: pl.Series, format: str) -> pl.Series:
    """Parse words by a format; null where it does not fit, or if a time is not midnight."""
    if format in WEEKLY:
        return pl.Series([_week_end(word, format) for word in words], dtype=pl.Date)
    if format == "excel":
        serial = words.str.replace(r"\.0+$", "").cast(pl.Int64, strict=False)
        known = serial.is_between(1, 73_415).fill_null(value=False)
        days = [
            _EXCEL_START + timedelta(days=n) if ok and n is not None else None
            for n, ok in zip(serial, known, strict=True)
        ]
        return pl.Series(days, dtype=pl.Date)
    for end, reader in _READERS.items():
        if format.endswith(end):
            return reader(words, format.removesuffix(end))
    plain = _plain(words)
    if format in _SHAPES:
        shaped = plain.str.contains(_SHAPES[format])
        if not shaped.any():
            return pl.Series([None] * len(words), dtype=pl.Date)
        plain = pl.select(pl.when(shaped).then(plain)).to_series()
    try:
        return plain.str.to_date(format, strict=False, exact=True)
    except pl.exceptions.PolarsError:
        raise EpifedError(
            f"date_format: found '{short(format)}'; expected signs such as %d.%m.%Y, or iso-week, "
            "epiweek, excel"
        ) from None


_READERS: Mapping[str, Callable[[pl.Series, str], pl.Series]] = {
    WEEK_LONG: _of_whole_weeks,
    SHEET: lambda words, format: _of_a_sheet(words).fill_null(_read(words, format)),
    TIMED: lambda words, format: _read(words.str.replace(_TIME, ""), format),
}
"""How words are read whose format has such an end."""


def _week_end(word: str | None, format: str) -> date | None:
    """The last day of a week: a Sunday in ISO, a Saturday in the epidemiological calendar."""
    match = re.match(_ISO_WEEK, word or "") or re.match(_BARE_WEEK, word or "")
    if match is None:
        return None
    said = {key[0]: int(value) for key, value in match.groupdict().items() if value}
    year, week = said["y"], said["w"]
    if not FIRST_DAY.year < year < LAST_DAY.year or not 1 <= week <= 53:
        return None
    if format == "iso-week":
        try:
            return date.fromisocalendar(year, week, 7)
        except ValueError:
            return None
    end = _first_epiweek_end(year) + timedelta(days=7 * (week - 1))
    return end if end < _first_epiweek_end(year + 1) else None


def _first_epiweek_end(year: int) -> date:
    """The Saturday of the first week, Sunday to Saturday, with four days in the year (CDC's MMWR).

    >>> _first_epiweek_end(2020), _first_epiweek_end(2022)
    (datetime.date(2020, 1, 4), datetime.date(2022, 1, 8))
    """
    fourth = date(year, 1, 4)
    return fourth + timedelta(days=(5 - fourth.weekday()) % 7)


COUNT = "a number of at least 0"
INHABITANTS = "a whole number above 0"
MOST_PEOPLE = 1e10

_HIDDEN = (
    r"(?i)^([<≤]=?\s*\d+|\d+\s*[-–]\s*\d+|(fewer than|less than|under|unter|weniger als)\s*\d+)$"
)
_MARKED = r"^([+-]?\d[\d.,]*) *[*†‡¹²³⁴]+\)?$"
_SIGNS = {".": r"\.", ",": ",", " ": "[ \u00a0\u2009\u202f]", "'": "['\u2019]"}


def parse_numbers(
    where: Path | str,
    frame: pl.DataFrame,
    key: str,
    column: str,
    expected: str = COUNT,
    said: Assumptions | None = None,
) -> pl.DataFrame:
    """Turn a column into finite numbers of at least 0; an empty cell stays empty."""
    if frame.schema[key] == pl.String:
        frame = _with_points(where, frame, key, column, said or Assumptions())
    parsed = _cast(where, frame, key, column, expected)
    fits = pl.col(key).is_finite() & (pl.col(key) >= 0)
    if expected == INHABITANTS:
        fits &= (pl.col(key) > 0) & (pl.col(key) == pl.col(key).round())
    good = parsed.select(fits.fill_null(value=False))[key]
    bad = ~good & frame[key].is_not_null()
    refuse(where, frame, bad, key=key, column=column, expected=expected)
    most = MOST_PEOPLE if expected == INHABITANTS else MOST_CASES
    _refuse_enormous(where, parsed, key, column, most)
    return parsed


@dataclass(frozen=True)
class Counts:
    """Counts as numbers, negative ones included, and notes on what was changed."""

    frame: pl.DataFrame
    notes: tuple[str, ...]


def parse_counts(where: Path | str, frame: pl.DataFrame, column: str, said: Assumptions) -> Counts:
    """Turn `cases` into numbers as the options say; refuse what can be read in several ways."""
    notes: list[str] = []
    read, hidden = frame, pl.Series([False] * len(frame), dtype=pl.Boolean)
    if frame.schema["cases"] == pl.String:
        frame = frame.with_columns(pl.col("cases").str.replace("^\u2212", "-"))
        frame = _without_marks(frame, notes)
        read = _without_words(frame, said, notes)
        hidden = _hidden(where, read, column, said, notes)
        # What stands for a hidden count is no cell of the file, so it shows nothing about signs.
        read = read.with_columns(cases=pl.when(~hidden).then("cases"))
        for first in (
            read.filter(pl.col("cases").str.contains(r"^\D+$")).sort("row").head(1).to_dicts()
        ):
            _offer_missing(where, first, column, said)
        read = _with_points(where, read, "cases", column, said)
    parsed = _cast(where, read, "cases", column, COUNT)
    good = parsed.select(pl.col("cases").is_finite().fill_null(value=False))["cases"]
    bad = ~good & read["cases"].is_not_null()
    refuse(where, frame, bad, key="cases", column=column, expected=COUNT)
    _refuse_enormous(where, parsed, "cases", column, MOST_CASES)
    if hidden.any():
        instead = pl.lit(said.below, dtype=pl.Float64)
        parsed = parsed.with_columns(cases=pl.when(hidden).then(instead).otherwise("cases"))
    return Counts(parsed, tuple(notes))


def _cast(
    where: Path | str, frame: pl.DataFrame, key: str, column: str, expected: str
) -> pl.DataFrame:
    kind = frame.schema[key]
    if not (kind == pl.String or kind.is_numeric() or kind == pl.Null):
        raise wrong_type(where, frame, key, column, expected)
    return frame.with_columns(pl.col(key).cast(pl.Float64, strict=False))


def _refuse_enormous(
    where: Path | str, frame: pl.DataFrame, key: str, column: str, most: float
) -> None:
    bad = frame.select((pl.col(key).abs() > most).fill_null(value=False))[key]
    refuse(where, frame, bad, key=key, column=column, expected=f"at most {most:,.0f}")


def _without_marks(frame: pl.DataFrame, notes: list[str]) -> pl.DataFrame:
    """Leave out the marks of footnotes behind numbers, as in 12*."""
    marked = frame.filter(pl.col("cases").str.contains(_MARKED))
    if len(marked):
        example = short(marked.sort("row")["cases"][0])
        marks = counted(len(marked), "count")
        notes.append(f"{marks} had the mark of a footnote, which was left out, such as '{example}'")
    return frame.with_columns(pl.col("cases").str.replace(_MARKED, "${1}"))


def _without_words(frame: pl.DataFrame, said: Assumptions, notes: list[str]) -> pl.DataFrame:
    if not said.missing:
        return frame
    empty = pl.col("cases").is_in(list(said.missing))
    found = frame.select(empty.fill_null(value=False).sum()).item()
    notes.append(
        f"{counted(found, 'count')} written as {' or '.join(said.missing)} {was(found)} taken as "
        "missing"
    )
    return frame.with_columns(cases=pl.when(~empty).then("cases"))


def _offer_missing(
    where: Path | str, first: Mapping[str, Any], column: str, said: Assumptions
) -> None:
    """Offer `missing` for a cell of letters or dashes, unless it spells infinity or NaN."""
    word = str(first["cases"])
    wordy = len(word) <= 12 and not any(c.isdigit() for c in word)
    if wordy and word.lower().lstrip("+-") not in {"inf", "infinity", "nan"}:
        more = {"missing": word}
        raise AmbiguousTableError(
            f"{at(where, first['row'], column)}: found '{short(word)}'; expected {COUNT}, or a "
            "word given by --missing",
            more,
            column=column,
            example=word,
        )


def _hidden(
    where: Path | str, frame: pl.DataFrame, column: str, said: Assumptions, notes: list[str]
) -> pl.Series:
    """Which counts are hidden, such as <5; refused without the option `below`."""
    which = frame["cases"].str.contains(_HIDDEN).fill_null(value=False)
    hidden = frame.filter(which)
    if hidden.is_empty():
        return which
    if said.below is None:
        first = hidden.sort("row").row(0, named=True)
        raise AmbiguousTableError(
            f"{at(where, first['row'], column)}: found '{short(first['cases'])}' "
            f"({len(hidden):,} such counts); expected a number, or one to put in their place",
            {"below": _middle_below(str(first["cases"]))},
            column=column,
            example=str(first["cases"]),
        )
    notes.append(f"{len(hidden):,} hidden counts such as {hidden['cases'][0]} are {said.below:g}")
    return which


def _middle_below(cell: str) -> int:
    """About the middle of what a hidden count can be.

    >>> _middle_below("<5"), _middle_below("1-4"), _middle_below("under 12")
    (2, 2, 6)
    """
    ends = [int(digits) for digits in re.findall(r"\d+", cell)]
    return sum(ends) // 2


def _with_points(
    where: Path | str, frame: pl.DataFrame, key: str, column: str, said: Assumptions
) -> pl.DataFrame:
    """Numbers with a decimal point and without thousands signs."""
    thousands, decimal = said.thousands, said.decimal
    if thousands is not None and thousands == decimal:
        raise EpifedError(
            f"decimal and thousands: found '{thousands}' for both; expected two signs"
        )
    if thousands is None and decimal is None:
        _refuse_two_ways(where, frame, key, column)
        return frame
    if decimal is None:
        decimal = "." if thousands in (",", "'") else ","
    value = pl.col(key)
    if thousands is not None:
        sign = _SIGNS[thousands]
        whole = rf"^[+-]?(\d+|\d{{1,3}}({sign}\d{{3}})+)({_SIGNS[decimal]}\d*)?$"
        bad = frame.select(~value.str.contains(whole).fill_null(value=True))[key]
        refuse(
            where, frame, bad, key=key, column=column,
            expected=f"a number with '{thousands}' between thousands",
        )  # fmt: skip
        value = value.str.replace_all(sign, "")
    if decimal == ",":
        bad = frame.select(value.str.contains(".", literal=True).fill_null(value=False))[key]
        refuse(where, frame, bad, key=key, column=column, expected="a number with a decimal comma")
        value = value.str.replace(",", ".", literal=True)
    return frame.with_columns(value)


def _refuse_two_ways(where: Path | str, frame: pl.DataFrame, key: str, column: str) -> None:
    """Refuse possible thousands signs and decimal commas, with the options that resolve them."""
    text = pl.col(key)
    if frame[key].str.contains(r"^\d*$").all():
        return

    def first_of(pattern: str) -> Mapping[str, Any] | None:
        found = (
            frame.filter(text.str.contains(pattern)).select("row", text=text).sort("row").head(1)
        )
        return found.row(0, named=True) if len(found) else None

    def grouped(sign: str) -> str:
        return rf"^[+-]?[1-9]\d{{0,2}}({_SIGNS[sign]}\d{{3}})+$"

    points = frame.filter(text.str.contains(".", literal=True))
    if len(points) and points.select(text.str.contains(grouped(".")).all()).item():
        _offer(where, first_of(grouped(".")), column, {"thousands": "."}, {"decimal": "."})
    if cell := first_of(r"^[+-]?[1-9]\d{0,2}(\.\d{3})+,\d+$"):
        _offer(where, cell, column, {"thousands": ".", "decimal": ","})
    if cell := first_of(r"^[+-]?[1-9]\d{0,2}(,\d{3})+\.\d+$"):
        _offer(where, cell, column, {"thousands": ",", "decimal": "."})
    commas = frame.filter(text.str.contains(r"^[+-]?\d*(,\d+)+$"))
    if len(commas):
        thousands = commas.select(text.str.contains(grouped(",")).all()).item()
        ways = [{"thousands": ","}] if thousands else []
        _offer(
            where,
            commas.select("row", text=text).sort("row").row(0, named=True),
            column,
            *ways,
            {"decimal": ","},
        )
    for sign in (" ", "'"):
        if cell := first_of(grouped(sign)):
            _offer(where, cell, column, {"thousands": sign})


def _offer(
    where: Path | str, cell: Mapping[str, Any] | None, column: str, *ways: Mapping[str, Any]
) -> None:
    assert cell is not None
    found = f"{at(where, cell['row'], column)}: found '{short(cell['text'])}'"
    sentence = f"{found}; expected a number, its decimal and thousands signs given"
    raise AmbiguousTableError(sentence, *ways, column=column, example=str(cell["text"]))


LEAST_DIGITS, MOST_DIGITS = 4, 12
"""Lengths of ids that can lose a zero; shorter ones may be plain numbers."""
_DECIMAL = r"^\d+\.0+$"
_DIGITS = r"^\d+$"
_UNUSUAL = r"[^!-~]"
_UNSEEN = (
    "[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\ufeff\u200b-\u200f\u202a-\u202e\u2060"
    "\u2066-\u2069\u00ad]"
)
"""Invisible characters, such as a byte order mark inside a file, and those that control a
terminal."""


def parse_regions(
    where: Path | str, frame: pl.DataFrame, column: str, width: int | None = None
) -> pl.DataFrame:
    """Turn `region` into text, filled up with zeros to `width` digits; refuse an empty one.

    Without a width, ids that have lost their zeros or became decimal numbers are refused.
    """
    kind = frame.schema["region"]
    if kind.is_float():
        whole = (pl.col("region") == pl.col("region").round()).all()
        if not frame.select(whole).item():
            raise wrong_type(where, frame, "region", column, "text")
        frame = frame.with_columns(
            pl.col("region").cast(pl.Int64, strict=False).cast(pl.String) + ".0"
        )
    elif kind.is_integer() or kind == pl.Null:
        frame = frame.with_columns(pl.col("region").cast(pl.String))
    elif kind != pl.String:
        raise wrong_type(where, frame, "region", column, "text")
    frame = frame.with_columns(spelled(frame["region"]))
    empty = frame["region"].is_null()
    expected = "the id of a region, or one such as 'unknown'"
    refuse(where, frame, empty, key="region", column=column, expected=expected)
    if width is None:
        _refuse_lost_zeros(where, frame, column)
        return frame
    return frame.with_columns(filled(pl.col("region"), width))


def spelled(ids: pl.Series) -> pl.Series:
    """Ids without invisible characters, with single spaces and letters in one form of Unicode.

    >>> spelled(pl.Series("region", ["LK\\u00a0 Harz", "Du\\u0308ren"])).to_list()
    ['LK Harz', 'Düren']
    """
    if not ids.str.contains(_UNUSUAL).any():
        return ids
    plain = ids.str.replace_all(_UNSEEN, "").str.replace_all(r"\s+", " ").str.strip_chars()
    return plain.str.normalize("NFC").replace("", None)


def refuse_alike(where: str, ids: Sequence[str]) -> None:
    """Refuse ids that may be of one client: it would count twice, and move the sum by 2 S."""
    plain: dict[str, str] = {}
    for name, spelling in zip(ids, spelled(pl.Series(ids, dtype=pl.String)), strict=True):
        if not spelling or spelling != name:
            raise EpifedError(
                f"{where}: found the client {name!a}; expected {spelling or 'an id'!a}, without "
                "blanks around it or invisible characters"
            )
        other = plain.setdefault(plain_id(spelling), name)
        if other != name:
            raise EpifedError(
                f"{where}: found the clients {other!a} and {name!a}, which differ in zeros before "
                "a number or in upper and lower case only; expected each client once"
            )


def plain_id(spelling: str) -> str:
    """An id without what spreadsheets change: zeros before a number, capitals.

    >>> plain_id("01001"), plain_id("1001.0"), plain_id("LK Harz")
    ('1001', '1001', 'lk harz')
    """
    digits = re.fullmatch(r"0*(\d+?)(\.0+)?", spelling)
    return digits[1] if digits else spelling.casefold()


def filled(ids: pl.Expr, width: int | None) -> pl.Expr:
    """Fill ids of digits up with zeros; a width of None or 0 leaves them unchanged."""
    if not width:
        return ids
    whole = ids.str.replace(r"\.0+$", "")
    return pl.when(whole.str.contains(r"^\d+$")).then(whole.str.zfill(width)).otherwise(ids)


def _refuse_lost_zeros(where: Path | str, frame: pl.DataFrame, column: str) -> None:
    ids = frame["region"].unique()
    decimal = ids.filter(ids.str.contains(_DECIMAL))
    numbers = ids.filter(ids.str.contains(_DIGITS))
    rows = frame.select("row", "region").sort("row")
    if len(decimal) and len(decimal) + len(numbers) > len(ids) / 2:
        whole = pl.concat([decimal.str.replace(r"\.0+$", ""), numbers])
        digits = int(whole.str.len_chars().max())  # type: ignore[arg-type]
        first = rows.filter(pl.col("region").is_in(decimal.implode())).row(0, named=True)
        raise AmbiguousTableError(
            f"{at(where, first['row'], column)}: found '{short(first['region'])}', a decimal "
            "number; expected an id as text",
            {"id_width": digits},
        )
    if numbers.str.strip_chars_start("0").is_duplicated().any():
        again = numbers.filter(numbers.str.strip_chars_start("0").is_duplicated())
        raise _lost(where, rows, again, column)
    lengths = sorted(numbers.str.len_chars().unique())
    if len(lengths) != 2 or len(numbers) <= len(ids) / 2:
        return
    if lengths[1] - lengths[0] == 1 and LEAST_DIGITS <= lengths[1] <= MOST_DIGITS:
        raise _lost(where, rows, numbers, column)


def _lost(
    where: Path | str, rows: pl.DataFrame, ids: pl.Series, column: str
) -> AmbiguousTableError:
    shorter, *_, longer = ids.str.len_chars().unique().sort().to_list()
    few = ids.filter(ids.str.len_chars() == shorter)
    row = rows.filter(pl.col("region").is_in(few.implode())).row(0, named=True)
    return AmbiguousTableError(
        f"{at(where, row['row'], column)}: found ids of {shorter} and of {longer} digits such as "
        f"'{row['region']}', which may have lost a leading zero; expected ids of one length",
        {"id_width": longer},
        {"id_width": 0},
    )


POPULATION, CALENDAR, LONGITUDE, LATITUDE = "population", "calendar", "longitude", "latitude"
STATE, NAME = "state", "name"
FACTS = (POPULATION, STATE, CALENDAR, LONGITUDE, LATITUDE)
"""The columns that are used if they are present."""
SAID_FACTS = (*FACTS, NAME)
"""These and the column of names, which must be given since names may be of persons."""
DEGREES = 180
_GROUPED = "|".join(rf"^[1-9]\d{{0,2}}({sign}\d{{3}})+$" for sign in _SIGNS.values())


@dataclass(frozen=True)
class Facts:
    """Facts by region; a fact is None if the table has no column for it."""

    population: dict[str, int] | None = None
    states: dict[str, str] | None = None
    calendars: dict[str, str] | None = None
    positions: dict[str, tuple[float, float]] | None = None
    names: dict[str, str] | None = None

    def refuse_missing(self, where: str, region: str) -> None:
        """Refuse a region without a fact that the table has a column for.

        Otherwise the use of the others' facts would depend on this region.
        """
        for column, found in ((POPULATION, self.population), (LONGITUDE, self.positions)):
            if found is not None and region not in found:
                raise EpifedError(
                    f"{where}: column {column}: found no value for region {region}; expected one"
                )

    def joined(self, other: "Facts") -> "Facts":
        """Add the facts of other regions of the same table."""
        mine, others = vars(self), vars(other)
        return Facts(
            **{key: mine[key] if others[key] is None else (mine[key] or {}) | others[key]
               for key in mine}
        )  # fmt: skip


def region_facts(
    where: str, frame: pl.DataFrame, columns: dict[str, str], said: Assumptions
) -> Facts:
    """The facts of the regions, which must be the same in every row of a region."""
    population = calendars = positions = None
    if POPULATION in frame.columns:
        column = columns[POPULATION]
        if frame.schema[POPULATION] == pl.String:
            # People are whole numbers, so a sign before three digits stands between thousands.
            grouped = pl.col(POPULATION).str.contains(_GROUPED)
            plain = pl.col(POPULATION).str.replace_all(r"\D", "")
            frame = frame.with_columns(
                pl.when(grouped).then(plain).otherwise(POPULATION).alias(POPULATION)
            )
        frame = parse_numbers(where, frame, POPULATION, column, INHABITANTS, said)
        people = _constant(where, frame, POPULATION, column)
        population = {region: int(value) for region, value in people.items()}
    if CALENDAR in frame.columns:
        codes = frame[CALENDAR].drop_nulls().unique().to_list()
        unknown = [code for code in codes if not is_calendar(code)]
        bad = frame[CALENDAR].is_in(unknown).fill_null(value=False)
        column = columns[CALENDAR]
        refuse(where, frame, bad, key=CALENDAR, column=column, expected="a code such as DE-BY")
        calendars = _constant(where, frame, CALENDAR, column)
    if LONGITUDE in frame.columns and LATITUDE in frame.columns:
        x, y = (
            _constant(where, _degrees(where, frame, key, columns[key], said), key, columns[key])
            for key in (LONGITUDE, LATITUDE)
        )
        positions = {region: (x[region], y[region]) for region in x.keys() & y.keys()}
    names = None
    if NAME in frame.columns:
        called = frame.with_columns(pl.col(NAME).cast(pl.String))
        names = _constant(where, called, NAME, columns[NAME])
    return Facts(population, _states(frame), calendars, positions, names)


def _states(frame: pl.DataFrame) -> dict[str, str] | None:
    """The state of each region; None unless the column gives every region exactly one.

    A column of that name may hold something else.
    """
    if STATE not in frame.columns:
        return None
    pairs = frame.select("region", pl.col(STATE).cast(pl.String)).unique()
    one = not pairs["region"].is_duplicated().any() and pairs[STATE].null_count() == 0
    return dict(pairs.iter_rows()) if one else None


def _degrees(
    where: str, frame: pl.DataFrame, key: str, column: str, said: Assumptions
) -> pl.DataFrame:
    """Turn a column into degrees; an empty cell stays empty."""
    number = pl.col(key)
    if frame.schema[key] == pl.String and said.decimal == ",":
        number = number.str.replace(",", ".", literal=True)
    parsed = frame.with_columns(number.cast(pl.Float64, strict=False))
    good = parsed.select((pl.col(key).abs() <= DEGREES).fill_null(value=False))[key]
    bad = ~good & frame[key].is_not_null()
    expected = f"degrees from -{DEGREES} to {DEGREES}"
    refuse(where, frame, bad, key=key, column=column, expected=expected)
    return parsed


def _constant(where: str, frame: pl.DataFrame, key: str, column: str) -> dict[str, Any]:
    """The value of each region that has one; refused if a region has several."""
    known = frame.drop_nulls(key)
    first = pl.col(key).sort_by("row").first().over("region")
    changed = known.with_columns(first=first).filter(pl.col(key) != pl.col("first"))
    for row in changed.sort("row").head(1).iter_rows(named=True):
        raise EpifedError(
            f"{where}: row {row['row']}, column {column}: found {_said(row[key])} for region "
            f"{row['region']}; expected {_said(row['first'])} as in its first row"
        )
    return dict(known.select("region", key).unique().iter_rows())


def _said(value: str | float) -> str:
    return value if isinstance(value, str) else f"{value:.10g}"


def middles(path: Path) -> dict[str, tuple[float, float]]:
    """The centre of each shape's bounding box by id, longitude first; empty for a broken file.

    An error in the file is reported where its shapes are drawn; a forecast does without it.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
        return {
            str(feature["properties"]["id"]): _middle(feature["geometry"]["coordinates"])
            for feature in content["features"]
        }
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return {}


def _middle(coordinates: Any) -> tuple[float, float]:
    x, y = zip(*_points(coordinates), strict=True)
    return (min(x) + max(x)) / 2, (min(y) + max(y)) / 2


def _points(nested: Any) -> Iterator[tuple[float, float]]:
    if isinstance(nested[0], int | float):
        yield float(nested[0]), float(nested[1])
    else:
        for part in nested:
            yield from _points(part)
