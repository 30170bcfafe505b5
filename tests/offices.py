"""The files that offices have: one invented epidemic in every form that is written somewhere."""

import gzip
import io
import zipfile
from collections.abc import Callable
from datetime import date, datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

START = date(2020, 11, 1)
DAYS = [START + timedelta(days=i) for i in range(35)]
REGIONS = ("01001", "01002", "09162")
WEEK = (0.9, 1.2, 1.3, 1.2, 1.1, 0.8, 0.5)


def counts() -> NDArray[np.int64]:
    """What every file says, regions × days: a wave, a weekly pattern, a city and two towns."""
    days = np.arange(len(DAYS))
    wave = 1 + np.sin(days / 9)
    weekday = np.array([WEEK[day.weekday()] for day in DAYS])
    size = np.array([8.0, 14.0, 640.0])[:, None]
    found: NDArray[np.int64] = np.rint(size * wave * weekday + days * 5 % 3).astype(np.int64)
    return found


COUNTS = counts()


def rows() -> list[tuple[date, str, int]]:
    return [
        (day, region, int(COUNTS[row, column]))
        for row, region in enumerate(REGIONS)
        for column, day in enumerate(DAYS)
    ]


def tidy(sign: str = ",") -> str:
    lines = [("date", "region", "cases"), *((f"{d}", r, f"{n}") for d, r, n in rows())]
    return "".join(sign.join(line) + "\n" for line in lines)


def german() -> bytes:
    lines = ["Datum;Landkreis;Fälle"]
    lines += [f"{d:%d.%m.%Y};{r};{n:,}".replace(",", ".") for d, r, n in rows()]
    return "\r\n".join(lines).encode("latin-1")


def american() -> bytes:
    return "".join(
        ["Date,Region,Cases\n", *(f"{d:%m/%d/%Y},{r},{n}\n" for d, r, n in rows())]
    ).encode()


def excel(**sheets: list[list[object]]) -> bytes:
    writer = pytest.importorskip("xlsxwriter", reason="xlsxwriter is not installed")
    pytest.importorskip("fastexcel", reason="fastexcel is not installed (epifed[excel])")
    buffer = io.BytesIO()
    with writer.Workbook(buffer, {"in_memory": True}) as book:
        day = book.add_format({"num_format": "dd.mm.yyyy"})
        for name, lines in sheets.items():
            sheet = book.add_worksheet(name)
            for y, line in enumerate(lines):
                for x, cell in enumerate(line):
                    if isinstance(cell, date):
                        sheet.write_datetime(y, x, datetime(cell.year, cell.month, cell.day), day)
                    elif cell is not None:
                        sheet.write(y, x, cell)
    return buffer.getvalue()


def workbook() -> bytes:
    lines: list[list[object]] = [["Report of the office"], [], ["Date", "Region", "Cases"]]
    lines += [list(row) for row in rows()]
    return excel(Cases=lines, Notes=[["made by", "the office"], ["on", "Friday"]])


def days_across() -> bytes:
    head = ",".join(["region", "name", *(f"{day:%d.%m.%Y}" for day in DAYS)])
    lines = [
        ",".join([region, f"Town {row}", *map(str, COUNTS[row])])
        for row, region in enumerate(REGIONS)
    ]
    return "\n".join([head, *lines]).encode()


def regions_across() -> bytes:
    lines = [";".join(["day", *REGIONS])]
    lines += [";".join([f"{day}", *map(str, COUNTS[:, i])]) for i, day in enumerate(DAYS)]
    return "\n".join(lines).encode()


def cumulative() -> bytes:
    """The day before the first is all that is lost of it."""
    so_far = np.concatenate([np.full((3, 1), 50), 50 + COUNTS.cumsum(axis=1)], axis=1)
    days = [START - timedelta(days=1), *DAYS]
    return "".join(
        ["date,region,cases\n"]
        + [f"{d},{r},{so_far[y, x]}\n" for y, r in enumerate(REGIONS) for x, d in enumerate(days)]
    ).encode()


def corrected() -> bytes:
    """On the last day of a town, five cases are withdrawn."""
    last = f"{DAYS[-1]},01002,"
    return tidy().replace(f"{last}{COUNTS[1, -1]}\n", f"{last}-5\n").encode()


def age_groups() -> bytes:
    lines = ["date,region,age,cases"]
    for d, r, n in rows():
        lines += [f"{d},{r},0-59,{n - n // 3}", f"{d},{r},60+,{n // 3}"]
    return "\n".join(lines).encode()


def line_list() -> bytes:
    """The two towns alone, a line for each person."""
    lines = ["case_id,date,region,sex"]
    for d, r, n in rows():
        if r != "09162":
            lines += [f"{len(lines) + i},{d},{r},{'mf'[i % 2]}" for i in range(n)]
    return "\n".join(lines).encode()


def with_totals() -> bytes:
    lines = [f"{day},Total,{COUNTS[:, i].sum()}" for i, day in enumerate(DAYS)]
    return (tidy() + "\n".join(lines)).encode()


def hidden() -> bytes:
    lines = ["date,region,cases"]
    lines += [f"{d},{r},{'<8' if n < 8 else n}" for d, r, n in rows()]
    return "\n".join(lines).encode()


def words() -> bytes:
    lines = ["date,region,cases"]
    lines += [f"{d},{r},{'NA' if d == DAYS[3] else n}" for d, r, n in rows()]
    return "\n".join(lines).encode()


def lost_zeros() -> bytes:
    others = [f"{d},{11000},{n}\n" for d, r, n in rows() if r == "09162"]
    return (tidy().replace(",0", ",") + "".join(others)).encode()


def decimal_comma() -> bytes:
    lines = ["date;region;cases", *(f"{d};{r};{n},5" for d, r, n in rows())]
    return "\n".join(lines).encode()


def iso_weeks() -> bytes:
    lines = ["week,region,cases"]
    for y, r in enumerate(REGIONS):
        for i in range(1, 29, 7):
            year, week, _ = DAYS[i].isocalendar()
            lines.append(f"{year}-W{week},{r},{COUNTS[y, i : i + 7].sum()}")
    return "\n".join(lines).encode()


def titled() -> bytes:
    """A sheet saved as it was laid out: titles, merged cells, a total, a source."""
    lines = ["Fälle nach Meldedatum;;", "Stand: 06.12.2020;;", "Landkreis;Meldedatum;Fälle"]
    for y, region in enumerate(REGIONS):
        for x, day in enumerate(DAYS):
            lines.append(f"{'' if x else region};{day:%d.%m.%Y};{COUNTS[y, x]}")
    return "\r\n".join([*lines, f"Gesamt;;{COUNTS.sum()}", "Quelle: Gesundheitsamt;;"]).encode()


def kinds() -> bytes:
    lines = ["country,indicator,date,value"]
    for kind, share in (("cases", 1), ("deaths", 50)):
        lines += [f"{region},{kind},{day},{n // share}" for day, region, n in rows()]
    return "\n".join(lines).encode()


def survstat() -> bytes:
    lines = ["Meldejahr;Meldewoche;Landkreis;Fälle"]
    for y, r in enumerate(REGIONS):
        for i in range(1, 29, 7):
            year, week, _ = DAYS[i].isocalendar()
            lines.append(f"{year};{week};{r};{COUNTS[y, i : i + 7].sum()}")
    return "\n".join(lines).encode()


def week_starts() -> bytes:
    lines = ["week_start,region,cases"]
    for y, r in enumerate(REGIONS):
        lines += [f"{DAYS[i]},{r},{COUNTS[y, i : i + 7].sum()}" for i in range(1, 29, 7)]
    return "\n".join(lines).encode()


def zipped() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("cases.csv", tidy())
    return buffer.getvalue()


def parquet() -> bytes:
    buffer = io.BytesIO()
    schema = {"date": pl.Date, "region": pl.String, "cases": pl.Int64}
    pl.DataFrame(rows(), schema=schema, orient="row").write_parquet(buffer)
    return buffer.getvalue()


FILES: dict[str, Callable[[], bytes]] = {
    "cases.csv": lambda: tidy().encode(),
    "faelle.csv": german,
    "us.csv": american,
    "cases.xlsx": workbook,
    "wide.csv": days_across,
    "regions.csv": regions_across,
    "cumulative.csv": cumulative,
    "corrected.csv": corrected,
    "ages.csv": age_groups,
    "linelist.csv": line_list,
    "totals.csv": with_totals,
    "hidden.csv": hidden,
    "words.csv": words,
    "export.csv": lost_zeros,
    "averages.csv": decimal_comma,
    "weeks.csv": iso_weeks,
    "survstat.csv": survstat,
    "starts.csv": week_starts,
    "titled.csv": titled,
    "kinds.csv": kinds,
    "unicode.txt": lambda: tidy("\t").encode("utf-16"),
    "cases.csv.gz": lambda: gzip.compress(tidy().encode(), mtime=0),
    "cases.zip": zipped,
    "cases.parquet": parquet,
}
"""Every file by its name, as docs/your-data.md shows it."""


def write(name: str, folder: Path) -> Path:
    path = folder / name
    path.write_bytes(FILES[name]())
    return path
