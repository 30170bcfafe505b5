"""What offices call the columns of days, regions and counts, and which row has such names."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

USUAL: Mapping[str, tuple[str, ...]] = {
    "day": (
        "date", "datum", "tag", "meldedatum", "reporting_date", "report_date",
        "date_reported", "date_report", "daterep", "day", "onset", "fecha", "jour", "week", "woche",
        "kw", "epiweek", "meldewoche", "year_week", "yearweek", "target_end_date", "week_end",
        "week_start", "weekstart", "time_period", "data", "semaine", "semana", "settimana",
        "iso_weekstartdate", "mmwr_week",
    ),
    "region": (
        "region", "fips", "ags", "county", "id", "location", "geo", "state", "landkreis", "kreis",
        "idlandkreis", "district", "province", "area", "region_id", "code", "municipality",
        "kommune", "gemeinde", "country", "country_region", "country_code", "bundesland",
        "countriesandterritories", "geoid", "reporting_area", "dep", "departement", "département",
        "provincia", "departamento", "municipio", "regione", "comune", "powiat", "województwo",
        "country_area_territory", "name",
    ),
    "cases": (
        "cases", "count", "counts", "new_cases", "cases_new", "fälle", "faelle", "anzahl",
        "anzahlfall", "fallzahl", "neue_fälle", "value", "n", "confirmed", "confirmed_cases",
        "casos", "num_casos", "cas", "nb_cas", "casi", "liczba", "obs_value",
        "reported_cases", "current_week", "weekly_count", "weekly_cases", "admissions",
        "total_cases", "cum_cases",
    ),
}  # fmt: skip
"""Names that a column of each kind has, the likeliest first, in small letters."""
RATES = re.compile(r"inciden|inzidenz|rate|ratio|quote|per_?1|pro_?1|percent|prozent|%|tasa|taux")
"""Names of what is no count."""
LEAST_INSIDE = 4
"""So many letters of a name may stand inside a longer one."""
YEARS, WEEKS, PLUS = r"jahr|year", r"woche|week|kw", "+"
DATES = r"date|datum|day|tag|start|beginn|end"
_DAY_LIKE = re.compile(r"^(\d{4}-?(W|KW|w)\d\d|\d{1,4}[./-]\d{1,2}[./-]\d{1,4}([ T]00:00(:00)?)?)$")
LEAST_DAYS = 3


def _plain(name: str) -> str:
    return re.sub(r"\W+", "_", name.strip().casefold()).strip("_")


def likely(key: str, names: Sequence[str]) -> str | None:
    """The name that is usual for a kind of column, or holds one that is."""
    usual = USUAL.get(key, ())
    names = [name for name in names if key != "cases" or not RATES.search(_plain(name))]
    exact = [name for word in usual for name in names if _plain(name) == word]
    longer = [word for word in usual if len(word) >= LEAST_INSIDE]
    inside = [name for word in longer for name in names if word in _plain(name)]
    return next(iter([*exact, *inside]), None)


def likely_day(names: Sequence[str]) -> str | None:
    """The name of a column of days, or two that say a week together: Meldejahr+Meldewoche.

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
    """How many kinds of columns are named in a row; many days across are one."""
    known = {name.strip().casefold() for name in wanted}
    plain = [_plain(cell) for cell in cells if cell.strip()]
    found = sum(any(cell in words for cell in plain) for words in USUAL.values())
    said = sum(cell.strip().casefold() in known for cell in cells)
    across = sum(bool(_DAY_LIKE.match(cell.strip())) for cell in cells) >= LEAST_DAYS
    return max(found, said) + across


def header_below(
    rows: Iterable[tuple[int, Sequence[str]]], wanted: Collection[str] = ()
) -> int | None:
    """The row that names columns, where the first does not: there is text above the table.

    >>> rows = [(1, ["Cases of 2020", ""]), (3, ["Datum", "Landkreis", "Fälle"])]
    >>> header_below(rows)
    3
    """
    numbered = [(row, _kinds(cells, wanted)) for row, cells in rows]
    if not numbered or numbered[0][1] > 0:
        return None
    return next((row for row, kinds in numbered if kinds > 1), None)
