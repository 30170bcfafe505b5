"""The RKI's line list of SARS-CoV-2 infections in Germany, `Aktuell_Deutschland_…csv`.

One row for each county, age group, sex and pair of days. Its columns are documented at
https://github.com/robert-koch-institut/SARS-CoV-2-Infektionen_in_Deutschland
"""

from pathlib import Path
from typing import Literal, get_args

import polars as pl

from epifed.errors import EpifedError
from epifed.holidays import german_calendars
from epifed.panel import CasePanel
from epifed.sources.table import DAY, FIRST_DAY, LAST_DAY, collect, scan_csv, wrong

DateColumn = Literal["Refdatum", "Meldedatum"]

COLUMNS = (
    "IdLandkreis",
    "Altersgruppe",
    "Geschlecht",
    "Meldedatum",
    "Refdatum",
    "IstErkrankungsbeginn",
    "NeuerFall",
    "NeuerTodesfall",
    "NeuGenesen",
    "AnzahlFall",
    "AnzahlTodesfall",
    "AnzahlGenesen",
)
"""The header of the official file."""

ATTRIBUTION = (
    "Robert Koch-Institut (RKI): SARS-CoV-2 Infektionen in Deutschland, CC BY 4.0 "
    "(https://creativecommons.org/licenses/by/4.0/); data changed (regions merged, "
    "daily sums). Citable dataset: https://doi.org/10.5281/zenodo.4681153"
)
MERGED = (
    "Berlin's districts 11001–11012 are counted as 11000, Eisenach 16056 as part of 16063 "
    "(Wartburgkreis)"
)


def county_id(number: pl.Expr) -> pl.Expr:
    """The 5-digit id of a county from the RKI's number, Berlin and Eisenach merged."""
    merged = (
        pl.when(number.is_between(11001, 11012))
        .then(11000)
        .when(number == 16056)
        .then(16063)
        .otherwise(number)
    )
    return merged.cast(pl.String).str.zfill(5)


def read_rki(path: Path | str, date_column: str = "Refdatum") -> CasePanel:
    """The panel of an RKI line list: cases whose NeuerFall is 0 or 1, by county and day.

    `date_column` is `Refdatum` (onset where known, else report; the paper's choice) or
    `Meldedatum` (the day the health authority was told). Read as a stream, so that memory does
    not grow with the file.
    """
    path = Path(path)
    if date_column not in get_args(DateColumn):
        raise EpifedError(
            f"date column: found '{date_column}'; expected {' or '.join(get_args(DateColumn))}"
        )
    names = {"county": "IdLandkreis", "day": date_column, "new": "NeuerFall", "cases": "AnzahlFall"}
    lines = scan_csv(path, names).filter(~pl.all_horizontal(pl.col(*names).is_null()))
    sums = collect(
        path,
        lines.select(
            "county",
            "day",
            cases=pl.when(_COUNTS).then(_CASES).otherwise(0),
            counts=_COUNTS,
            fits=_FITS["new"] & _FITS["cases"],
        )
        .group_by("county", "day")
        .agg(pl.col("cases").sum(), pl.col("counts").any(), pl.col("fits").all()),
    )
    if sums.is_empty():
        raise EpifedError(f"{path}: found no rows; expected at least one below the column names")
    bad = sums.filter(~(_FITS["county"] & _FITS["day"] & pl.col("fits")))
    if not bad.is_empty():
        raise _first_wrong(path, names, lines, bad)
    counted = sums.filter("counts").select(county_id(_COUNTY).alias("region"), _DAY, "cases")
    if counted.is_empty():
        raise EpifedError(f"{path}: found no row that counts; expected some with NeuerFall 0 or 1")
    return CasePanel.from_long(
        counted.group_by("region", "day").agg(pl.col("cases").sum()),
        source=str(path),
        calendars=german_calendars(counted["region"].unique()),
        attribution=(ATTRIBUTION,),
        notes=(f"cases by {date_column}, where NeuerFall is 0 or 1", MERGED),
    )


_COUNTY = pl.col("county").cast(pl.Int64, strict=False)
_DAY = pl.col("day").str.to_date("%Y-%m-%d", strict=False)
_NEW = pl.col("new").cast(pl.Int64, strict=False)
_CASES = pl.col("cases").cast(pl.Int64, strict=False)
_COUNTS = _NEW.is_between(0, 1).fill_null(value=False)
_FITS = {
    "county": _COUNTY.is_between(1000, 99999).fill_null(value=False),
    "day": _DAY.is_between(FIRST_DAY, LAST_DAY).fill_null(value=False),
    "new": _NEW.is_not_null(),
    "cases": _CASES.is_not_null() & (~_COUNTS | (_CASES >= 0)),
}
_EXPECTED = {
    "county": "the number of a county",
    "day": DAY,
    "new": "-1, 0 or 1",
    "cases": "a whole number of at least 0",
}


def _first_wrong(
    path: Path, names: dict[str, str], lines: pl.LazyFrame, bad: pl.DataFrame
) -> EpifedError:
    """Go back to the first line behind the bad sums, and to its first bad column."""
    keys = bad.lazy().select("county", "day")
    suspects = collect(path, lines.join(keys, on=["county", "day"], how="semi", nulls_equal=True))
    fits = suspects.select("row", **_FITS)
    line = fits.filter(~pl.all_horizontal(*_FITS)).sort("row").row(0, named=True)
    key = next(key for key in _FITS if not line[key])
    found = suspects.filter(pl.col("row") == line["row"])[key].item()
    return wrong(path, line["row"], names[key], found, _EXPECTED[key])
