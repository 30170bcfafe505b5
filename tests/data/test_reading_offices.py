"""Files as offices, agencies and spreadsheets write them: what is offered reads them, and rightly.

Every file holds the same invented counts; whoever follows what the refusals offer first must get
exactly them.
"""

import zipfile
from collections.abc import Callable
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import xlsxwriter

from epifed.data.panel import CasePanel
from epifed.data.readers import load_panel
from epifed.data.readers.tables import AmbiguousTableError
from epifed.errors import EpifedError

REGIONS = ("01001", "01002", "09162", "11000")
COUNTRIES = ("Austria", "Belgium", "France", "Germany")
DAYS = [date(2020, 10, 5) + timedelta(days=day) for day in range(42)]
_WEEK = np.array([1.0, 1.2, 1.3, 1.2, 1.1, 0.7, 0.4])[[day.weekday() for day in DAYS]]
COUNTS = (
    np.random.default_rng(1)
    .poisson(np.array([[8], [15], [1400], [60]]) * np.exp(np.sin(np.arange(42) / 6)) * _WEEK)
    .astype(int)
)
EPOCH = date(1899, 12, 30)
"""Excel's day 0."""
SO_FAR = COUNTS.cumsum(axis=1)
WEEKS = [DAYS[7 * week].isocalendar()[:2] for week in range(6)]
BY_WEEK = COUNTS.reshape(4, 6, 7).sum(axis=2)
TRUTH = {"day": COUNTS, "week": BY_WEEK, "cumulative": COUNTS[:, 1:]}
MONTHS = {10: "Oktober", 11: "November"}


def lines(
    header: str, day: str | Callable[[date], str], number: Callable[[int], str] = str
) -> list[str]:
    """A long table in the order of days, in the delimiter of its header."""
    sign = ";" if ";" in header else ","
    written = (lambda d: d.strftime(day)) if isinstance(day, str) else day
    rows = [
        sign.join([written(d), region, number(COUNTS[row, column])])
        for column, d in enumerate(DAYS)
        for row, region in enumerate(REGIONS)
    ]
    return [header, *rows]


def weeks(word: Callable[[int, int], str], header: str = "Woche;Landkreis;Fälle") -> list[str]:
    rows = [
        f"{word(*WEEKS[week])};{region};{BY_WEEK[row, week]}"
        for row, region in enumerate(REGIONS)
        for week in range(6)
    ]
    return [header, *rows]


def plain(number: Callable[[int], str] = str) -> list[str]:
    return lines("date,region,cases", "%Y-%m-%d", number)


def german(number: int) -> str:
    return f"{number:,}".replace(",", ".")


def persons() -> list[str]:
    """A list of persons in no order, with a time that is always midnight."""
    rows = [
        f"A35-A59;männlich;{d:%d.%m.%Y} 00:00:00;{region};"
        for column, d in enumerate(DAYS)
        for row, region in enumerate(REGIONS)
        for _ in range(COUNTS[row, column])
    ]
    order = np.random.default_rng(2).permutation(len(rows))
    head = "Altersgruppe;Geschlecht;Meldedatum;MeldeLandkreisSchluessel;Erkrankungsbeginn"
    return [head, *(rows[i] for i in order)]


def american() -> list[str]:
    """Days across, accumulated, ids as decimal numbers, as Johns Hopkins University had them."""
    days = ",".join(f"{d.month}/{d.day}/{d:%y}" for d in DAYS)
    head = f"UID,iso2,FIPS,Admin2,Province_State,Lat,Long_,Combined_Key,{days}"
    rows = [
        f'840{id},US,{float(id)},Name,State,32.5,-86.6,"Name, State, US",'
        + ",".join(map(str, SO_FAR[row]))
        for row, id in enumerate(REGIONS)
    ]
    return [head, *rows]


def european() -> list[str]:
    """Weeks of cases and of deaths, as the ECDC has them."""
    head = "country,country_code,population,indicator,year_week,source,weekly_count,rate_14_day"
    rows = [
        f"{name},{name[:3].upper()},8901064,{kind},{year}-{week:02d},TESSy,{count},12.3"
        for row, name in enumerate(COUNTRIES)
        for kind, share in (("cases", 1), ("deaths", 50))
        for i, (year, week) in enumerate(WEEKS)
        for count in [BY_WEEK[row, i] // share]
    ]
    return [head, *rows]


def worldwide(head: str, world: bool) -> list[str]:
    """By country, with the sums of the world where they are in it, as OWID and the WHO do."""
    rows = [
        f"{name[:3].upper()},{name},{d},{SO_FAR[row, column]},{COUNTS[row, column]}"
        for row, name in enumerate(COUNTRIES)
        for column, d in enumerate(DAYS)
    ]
    all_of_them = [
        f"OWID_WRL,World,{d},{SO_FAR[:, column].sum()},{COUNTS[:, column].sum()}"
        for column, d in enumerate(DAYS)
    ]
    return [head, *rows, *(all_of_them if world else [])]


ABOVE = ["SurvNet@RKI - Abfrage vom 12.11.2020;;", "Gesundheitsamt Musterstadt;;", ""]
MERGED = [line if i % 42 == 1 or i == 0 else line.replace(line.split(",")[1], "", 1)
          for i, line in enumerate(sorted(plain()[:1]) + sorted(
              plain()[1:], key=lambda line: line.split(",")[1]))]  # fmt: skip
TEXTS: dict[str, tuple[list[str], str, str]] = {
    "german": (lines("Meldedatum;Landkreis;Fälle", "%d.%m.%Y", german), "latin-1", "day"),
    "decimal commas": (lines("Datum;AGS;Anzahl", "%d.%m.%Y", lambda n: f"{n},00"), "utf-8", "day"),
    "titles above, notes below": (
        [*ABOVE, *lines("Meldedatum;Landkreis;Fälle", "%d.%m.%Y"), "", "Quelle: RKI;;",
         f"Gesamt;;{COUNTS.sum()}"], "latin-1", "day",
    ),
    "comment above": (["# exported 2020-11-12", *plain()], "utf-8", "day"),
    "delimiter said above": (
        ["sep=;", *lines("date;region;cases", "%Y-%m-%d")], "utf-8-sig", "day",
    ),
    "note below": ([*plain(), "", "* provisional"], "utf-8", "day"),
    "header again": ([*plain()[:80], "date,region,cases", *plain()[80:]], "utf-8", "day"),
    "rows twice": ([*plain(), *plain()[1:]], "utf-8", "day"),
    "numbered rows": (
        [f"{i or ''},{line}" for i, line in enumerate(plain())], "utf-8", "day",
    ),
    "ids as formulas": ([line.replace(line.split(",")[1], f'="{line.split(",")[1]}"') if i else line
                         for i, line in enumerate(plain())], "utf-8", "day"),
    "merged cells": (MERGED, "utf-8", "day"),
    "persons": (persons(), "latin-1", "day"),
    "american": (american(), "utf-8", "cumulative"),
    "european": (european(), "utf-8", "week"),
    "state": (lines("Date,State,Cases", "%Y-%m-%d"), "utf-8", "day"),
    "Polish": (lines("data;województwo;liczba zakażeń", "%d.%m.%Y"), "cp1250", "day"),
    "Japanese": (lines("日付,都道府県,新規陽性者数", "%Y/%m/%d"), "shift_jis", "day"),
    "Japanese days": (lines("日付,都道府県,感染者数", "%Y年%m月%d日"), "utf-8", "day"),
    "Italian evenings": (lines("data;regione;casi", "%Y-%m-%dT17:00:00"), "utf-8", "day"),
    "Brazilian": (weeks(lambda y, w: f"{y}{w:02d}", "SE;UF;Casos"), "utf-8-sig", "week"),
    "OWID": (worldwide("iso_code,location,date,total_cases,new_cases", world=True), "utf-8", "day"),
    "WHO": (worldwide("Country_code,Country,Date_reported,Cumulative_cases,New_cases", world=False),
            "utf-8-sig", "day"),
    "nation among states": (
        [*plain(), *(f"{d},DE,{COUNTS[:, i].sum()}" for i, d in enumerate(DAYS))], "utf-8", "day",
    ),
    "weeks among days": (
        ["date,region,cases", *(f"{d},{region},{BY_WEEK[row, i // 7] if i % 7 == 6 else 0}"
         for row, region in enumerate(REGIONS) for i, d in enumerate(DAYS))], "utf-8", "week",
    ),
    "year and week": (
        weeks(lambda y, w: f"{y};{w}", "Meldejahr;Meldewoche;Landkreis;Fälle"), "utf-8", "week",
    ),
    "year and KW": (
        weeks(lambda y, w: f"{y};{w}", "Jahr;KW;Gebiet;Fälle"), "utf-8", "week",
    ),
    "units below the header": (
        ["Tag;Stadt;Fälle", ";;Anzahl", *lines(";;", "%d.%m.%Y")[1:]], "utf-8", "day",
    ),
    "three ways to write a day": (
        lines("date;region;cases", lambda d: (f"{d}", f"{d:%d.%m.%Y}", f"{(d - EPOCH).days}")[
            d.day % 3]), "utf-8", "day",
    ),
    "month spelled out": (
        lines("date;region;cases", lambda d: f"{d.day}. {MONTHS[d.month]} {d.year}"),
        "utf-8", "day",
    ),
    "thin spaces": (
        lines("date;region;cases", "%Y-%m-%d", lambda n: f"{n:,}".replace(",", "\u2009")),
        "utf-16", "day",
    ),
    **{
        f"week {form}": (weeks(form.format), "utf-8", "week")
        for form in (
            "KW {1:02d}/{0}", "{0}-KW{1:02d}", "{1}. KW {0}", "{0}-W{1:02d}", "{1}/{0}",
            "{0}{1:02d}", "{0} / {1:02d}",
        )
    },
    **{
        f"day {DAYS[0].strftime(form)}": (lines("date;region;cases", form), "utf-8", "day")
        for form in (
            "%d %B %Y", "%B %d, %Y", "%d-%b-%y", "Mo, %d.%m.%Y", "%m/%d/%Y 12:00:00 AM",
            "%Y-%m-%dT00:00:00.000Z", "%Y/%m/%d 00:00:00+00", "%d.%m.%Y, 00:00 Uhr",
            "%d.%m.%Y 08:15",
        )
    },
}  # fmt: skip


def following(source: Path | pl.DataFrame | pd.DataFrame) -> tuple[CasePanel, dict[str, Any]]:
    """The panel that the first of every offered way leads to, and the way."""
    said: dict[str, Any] = {}
    for _ in range(7):
        try:
            return load_panel(source, **said), said
        except AmbiguousTableError as error:
            assert len(str(error)) <= 500
            assert not error.choices[0].items() <= said.items(), f"offered again: {error}"
            said |= error.choices[0]
    raise AssertionError(f"too many questions: {said}")


def is_true(panel: CasePanel, kind: str) -> None:
    names = REGIONS if panel.regions[0].isdigit() else panel.regions
    assert panel.regions == names
    assert panel.step == ("week" if kind == "week" else "day")
    np.testing.assert_array_equal(panel.counts, TRUTH[kind])
    assert panel.end == DAYS[-1]


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_what_is_offered_reads_it_rightly(name: str, newline: str, tmp_path: Path) -> None:
    rows, encoding, kind = TEXTS[name]
    path = tmp_path / "cases.csv"
    path.write_bytes((newline.join(rows) + newline).encode(encoding))
    panel, _ = following(path)
    is_true(panel, kind)


def test_lines_that_end_as_old_computers_ended_them(tmp_path: Path) -> None:
    path = tmp_path / "cases.csv"
    path.write_bytes("\r".join(plain()).encode())
    is_true(load_panel(path), "day")


def workbook(path: Path, fill: Callable[[Any, Any], None]) -> Path:
    book = xlsxwriter.Workbook(path)
    fill(book, book.add_worksheet("Fälle"))
    book.close()
    return path


def test_a_workbook_with_titles_merged_cells_totals_and_notes(tmp_path: Path) -> None:
    def fill(book: Any, sheet: Any) -> None:
        day = book.add_format({"num_format": "dd.mm.yyyy"})
        sheet.merge_range(0, 0, 0, 2, "Gemeldete Fälle, Gesundheitsamt Musterstadt")
        sheet.write_row(2, 0, ["Landkreis", "Meldedatum", "Fälle"])
        for row, region in enumerate(REGIONS):
            top = 3 + 42 * row
            sheet.merge_range(top, 0, top + 41, 0, region)
            for column, d in enumerate(DAYS):
                sheet.write_datetime(top + column, 1, datetime(d.year, d.month, d.day), day)
                sheet.write_number(top + column, 2, COUNTS[row, column])
        sheet.write_row(171, 0, ["Gesamt", "", int(COUNTS.sum())])
        sheet.write(173, 0, "Quelle: RKI")
        notes = book.add_worksheet("Hinweise")
        notes.write_column(0, 0, ["Bitte beachten", "vorläufig"])

    panel, said = following(workbook(tmp_path / "cases.xlsx", fill))
    is_true(panel, "day")
    assert said["header_row"] == 3 and said["fill_down"] and said["totals"] == "drop"


def test_a_workbook_with_days_across_under_a_title(tmp_path: Path) -> None:
    def fill(book: Any, sheet: Any) -> None:
        day = book.add_format({"num_format": "dd.mm.yy"})
        sheet.merge_range(0, 1, 0, 42, "Fälle nach Meldedatum")
        sheet.write(1, 0, "Landkreis")
        for column, d in enumerate(DAYS):
            sheet.write_datetime(1, 1 + column, datetime(d.year, d.month, d.day), day)
        for row, region in enumerate(REGIONS):
            sheet.write_row(2 + row, 0, [region, *map(int, COUNTS[row])])
        sheet.write_row(6, 0, ["Summe", *map(int, COUNTS.sum(axis=0))])

    is_true(following(workbook(tmp_path / "cases.xlsx", fill))[0], "day")


def test_a_workbook_with_numbers_for_days_and_ids(tmp_path: Path) -> None:
    def fill(book: Any, sheet: Any) -> None:
        sheet.write_row(0, 0, ["Datum", "AGS", "Anzahl"])
        rows = [
            [(d - EPOCH).days, int(region), int(COUNTS[row, column])]
            for row, region in enumerate(REGIONS)
            for column, d in enumerate(DAYS)
        ]
        for place, row in enumerate(rows, start=1):
            sheet.write_row(place, 0, row)

    is_true(following(workbook(tmp_path / "cases.xlsx", fill))[0], "day")


def test_a_workbook_of_regions_across_under_titles_and_above_units(tmp_path: Path) -> None:
    def fill(book: Any, sheet: Any) -> None:
        day = book.add_format({"num_format": "dd.mm.yyyy"})
        sheet.merge_range(0, 0, 0, 5, "Gesundheitsamt Musterland: Meldungen je Tag")
        sheet.merge_range(1, 0, 1, 5, "alle Angaben vorläufig")
        sheet.write_row(3, 0, ["Datum", *REGIONS, "Summe"])
        sheet.write_row(4, 1, ["Fälle"] * 5)
        for i, d in enumerate(DAYS):
            if i % 3 == 0:
                sheet.write(5 + i, 0, f"{d:%d.%m.%Y}")
            elif i % 3 == 1:
                sheet.write(5 + i, 0, (d - EPOCH).days)
            else:
                sheet.write_datetime(5 + i, 0, datetime(d.year, d.month, d.day), day)
            sheet.write_row(5 + i, 1, COUNTS[:, i].tolist())
            sheet.write_formula(5 + i, 5, f"=SUM(B{6 + i}:E{6 + i})", None, int(COUNTS[:, i].sum()))

    panel, said = following(workbook(tmp_path / "cases.xlsx", fill))
    is_true(panel, "day")
    assert said["header_row"] == 4 and said["layout"] == "regions-across"


def test_sheets_of_regions_may_have_their_columns_in_another_order(tmp_path: Path) -> None:
    book = xlsxwriter.Workbook(tmp_path / "cases.xlsx")
    for row, region in enumerate(REGIONS):
        sheet = book.add_worksheet(region)
        names = ["Fälle", "Bemerkung", "Datum"]
        names = names[row % 3 :] + names[: row % 3]
        sheet.write_row(0, 0, names)
        for i, d in enumerate(DAYS):
            cells = {"Fälle": int(COUNTS[row, i]), "Bemerkung": "", "Datum": str(d)}
            sheet.write_row(1 + i, 0, [cells[name] for name in names])
    book.close()
    panel, said = following(tmp_path / "cases.xlsx")
    is_true(panel, "day")
    assert said["regions_from"] == "sheets"


def test_the_files_of_a_zip_are_read_together_where_their_columns_are_the_same(
    tmp_path: Path,
) -> None:
    head, *rows = plain()
    path = tmp_path / "cases.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for region in REGIONS:
            own = [row for row in rows if row.split(",")[1] == region]
            archive.writestr(f"{region}.csv", "\n".join([head, *own]))
    panel, said = following(path)
    is_true(panel, "day")
    assert said == {"member": "*"}
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("people.csv", "region,population\n01001,5\n")
    with pytest.raises(AmbiguousTableError) as refused:
        load_panel(path)
    assert {"member": "*"} not in refused.value.choices
    with pytest.raises(EpifedError, match="another first line in people"):
        load_panel(path, member="*")


def test_words_and_hidden_counts_and_thousands_stand_in_one_column(tmp_path: Path) -> None:
    path = tmp_path / "cases.csv"
    words = ["1,440", "<12", "suppressed", "7"]
    rows = [f'{DAYS[i]},Kent,"{words[i % 4]}","1,234,567"' for i in range(40)]
    path.write_text("\n".join(["date,county,cases,population", *rows]), encoding="utf-8")
    panel, said = following(path)
    assert said["below"] == 6 and said["missing"] == "suppressed"
    np.testing.assert_array_equal(panel.counts[0, :4], [1440, 6, 0, 7])
    assert panel.reported is not None and not panel.reported[0, 2]
    assert panel.population is not None and panel.population[0] == 1_234_567


@pytest.mark.parametrize(
    ("header", "row"), [("Datum;Fälle", "{:%d.%m.%Y};{}"), ("Datum;Fälle;Tote", "{:%d.%m.%Y};{};0")]
)
def test_a_file_without_a_region_is_one_region(header: str, row: str, tmp_path: Path) -> None:
    path = tmp_path / "Kiel.csv"
    days = [row.format(d, n) for d, n in zip(DAYS, COUNTS[0], strict=True)]
    path.write_text("\n".join([header, *days]), encoding="utf-8")
    panel, said = following(path)
    assert panel.regions == ("Kiel",)
    assert (panel.counts[0] == COUNTS[0]).all()
    assert said["one_region"]


def test_one_region_by_year_and_week(tmp_path: Path) -> None:
    path = tmp_path / "Kiel.csv"
    rows = [f"{y};{w};{n}" for (y, w), n in zip(WEEKS, BY_WEEK[0], strict=True)]
    path.write_text("\n".join(["Jahr;KW;Anzahl", *rows]), encoding="utf-8")
    panel, _ = following(path)
    assert panel.end == DAYS[-1]
    assert (panel.counts[0] == BY_WEEK[0]).all()


def test_rows_of_one_kind_in_a_wide_table(tmp_path: Path) -> None:
    """The option `only` holds in every layout: other diseases must not be added."""
    path = tmp_path / "wide.csv"
    rows = [f"region,disease,{','.join(map(str, DAYS))}"]
    for row, region in enumerate(REGIONS):
        for disease, factor in (("flu", 1), ("measles", 3)):
            rows.append(f"{region},{disease},{','.join(map(str, factor * COUNTS[row]))}")
    path.write_text("\n".join(rows))
    is_true(load_panel(path, only="disease=flu", duplicates="sum"), "day")
    with pytest.raises(EpifedError, match="a second time"):
        load_panel(path)


def test_rows_of_one_kind_beside_regions_across(tmp_path: Path) -> None:
    path = tmp_path / "across.csv"
    rows = [f"date,status,{','.join(REGIONS)}"]
    for column, day in enumerate(DAYS):
        rows.append(f"{day},new,{','.join(map(str, COUNTS[:, column]))}")
        rows.append(f"{day},dead,{','.join('0' * len(REGIONS))}")
    path.write_text("\n".join(rows))
    is_true(load_panel(path, layout="regions-across", only="status=new"), "day")


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (lines("Datum;Kreis;Fälle 7 Tage", "%d.%m.%Y"), "look like sums or averages of the last"),
        (lines("date,region,cases_7day_avg", "%Y-%m-%d"), "look like sums or averages of the last"),
        (["Kreis;KW1;KW2;KW3;KW4", "01001;1;2;3;4"], "days or weeks without a year"),
        (["Kreis;01.02.;02.02.;03.02.", "01001;1;2;3"], "days or weeks without a year"),
        (["KW;Kreis;Fälle", "KW 1;01001;3", "KW 2;01001;4"], "a week with its year"),
        (["Datum;Fälle;;Datum;Fälle", "2020-10-05;1;;2020-10-05;4"], "may stand in two rows"),
        (lines("date,region,cases", "%Y-%m-%dT22:00:00Z"), "midnight in another time zone"),
    ],
)
def test_what_would_be_misread_is_refused(rows: list[str], said: str, tmp_path: Path) -> None:
    path = tmp_path / "cases.csv"
    path.write_text("\n".join(rows), encoding="utf-8")
    names = {"date": "", "region": "", "cases": ""}
    head = rows[0].replace(",", ";").split(";")
    if len(head) == len(names):
        names = dict(zip(names, head, strict=True))
    with pytest.raises(EpifedError, match=said):
        load_panel(path, **{key: name for key, name in names.items() if name})


def sheet_of(book: Any, name: str, columns: range, factor: int = 1) -> Any:
    sheet = book.add_worksheet(name)
    sheet.write_row(0, 0, ["date", "region", "cases"])
    rows = [(c, r) for c in columns for r in range(len(REGIONS))]
    for line, (column, row) in enumerate(rows, start=1):
        cells = [f"{DAYS[column]}", REGIONS[row], factor * int(COUNTS[row, column])]
        sheet.write_row(line, 0, cells)
    return sheet


def test_sheets_of_one_table_are_read_together(tmp_path: Path) -> None:
    def fill(book: Any, _: Any) -> None:
        sheet_of(book, "October", range(20))
        sheet_of(book, "November", range(20, len(DAYS)))

    panel, said = following(workbook(tmp_path / "months.xlsx", fill))
    assert said == {"sheet": "*"}
    is_true(panel, "day")


def test_a_hidden_sheet_is_read_only_by_its_name(tmp_path: Path) -> None:
    def fill(book: Any, _: Any) -> None:
        sheet_of(book, "old", range(len(DAYS)), factor=2).hide()
        sheet_of(book, "new", range(len(DAYS))).activate()

    path = workbook(tmp_path / "hidden.xlsx", fill)
    is_true(load_panel(path), "day")
    assert load_panel(path, sheet="old").counts.sum() == 2 * COUNTS.sum()


def test_groups_of_columns_above_their_names(tmp_path: Path) -> None:
    def fill(_: Any, sheet: Any) -> None:
        sheet.merge_range(0, 1, 0, 2, "North")
        sheet.merge_range(0, 3, 0, 4, "South")
        sheet.write_row(1, 0, ["Datum", *REGIONS])
        for column, day in enumerate(DAYS):
            sheet.write_row(2 + column, 0, [f"{day:%d.%m.%Y}", *map(int, COUNTS[:, column])])

    panel, said = following(workbook(tmp_path / "groups.xlsx", fill))
    assert said["header_row"] == 2
    is_true(panel, "day")


PEOPLE = {"01001": 92_000, "01002": 248_000, "09162": 1_512_000, "11000": 3_755_000}


def test_inhabitants_of_another_sheet_or_file(tmp_path: Path) -> None:
    rows = [(int(one), f"K{one}", people) for one, people in PEOPLE.items()]

    def fill(book: Any, _: Any) -> None:
        sheet_of(book, "cases", range(len(DAYS)))
        sheet = book.add_worksheet("people")
        sheet.write(0, 0, "As of 2024")
        sheet.write_row(2, 0, ["AGS", "Kreis", "Einwohner"])
        for line, cells in enumerate(rows, start=3):
            sheet.write_row(line, 0, cells)

    path = workbook(tmp_path / "both.xlsx", fill)
    cases, file = tmp_path / "cases.csv", tmp_path / "people.csv"
    cases.write_text("\n".join(plain()))
    text = [f"{id};{name};{german(people)}" for id, name, people in rows]
    total = f";Gesamt;{german(sum(PEOPLE.values()))}"
    file.write_text("\n".join(["AGS;Kreis;Einwohner", *text, total]))
    for panel in (
        load_panel(path, sheet="cases", population_from="people"),
        load_panel(cases, population_from=str(file)),
    ):
        assert panel.population is not None
        assert panel.population.tolist() == list(PEOPLE.values())
        assert "the inhabitants are those of Einwohner in" in " ".join(panel.notes)
    file.write_text("\n".join(["AGS;Kreis;Einwohner", *text[:3], "12000;K;9"]))
    with pytest.raises(EpifedError, match=r"found no inhabitants of 11000 \(1 of 4 regions\)"):
        load_panel(cases, population_from=str(file))
    with pytest.raises(EpifedError, match=r"found 'nowhere.csv'; expected a file$"):
        load_panel(cases, population_from="nowhere.csv")
    with pytest.raises(EpifedError, match="or one of the sheets Fälle, people"):
        load_panel(path, sheet="cases", population_from="persons")


@pytest.mark.parametrize("people", ["663 202", "663.202", "663\u202f202", "663'202", "663202"])
def test_people_are_whole_numbers_however_their_thousands_are_set_apart(people: str) -> None:
    table = pl.DataFrame({"date": DAYS, "region": "01", "cases": COUNTS[0], "population": people})
    population = load_panel(table).population
    assert population is not None and population[0] == 663_202


def test_rates_alone_are_no_list_of_cases(tmp_path: Path) -> None:
    path = tmp_path / "rates.csv"
    rates = lines("Datum;Landkreis;7-Tage-Inzidenz", "%d.%m.%Y", lambda n: f"{n / 7:.1f}")
    path.write_text("\n".join(rates).replace(".0\n", ",0\n"), encoding="utf-8")
    with pytest.raises(EpifedError, match=r"rates in 7-Tage.*--column-cases") as refused:
        load_panel(path)
    assert not isinstance(refused.value, AmbiguousTableError)


def test_a_count_that_was_corrected_can_be_the_last_one() -> None:
    table = frame()
    again = table.slice(40, 5).with_columns(cases=pl.lit(9999, dtype=pl.Int64))
    wrong_first = pl.concat([again, table])
    with pytest.raises(AmbiguousTableError) as refused:
        load_panel(wrong_first)
    assert refused.value.choices == ({"duplicates": "sum"}, {"duplicates": "last"})
    is_true(load_panel(wrong_first, duplicates="last"), "day")


def test_rows_after_the_last_day_to_read_are_left_out() -> None:
    panel = load_panel(frame(), until=str(DAYS[20]))
    assert panel.end == DAYS[20]
    np.testing.assert_array_equal(panel.counts, COUNTS[:, :21])
    for word, expected in (("tomorrow", "a day such as"), ("1999-01-01", "no row up to")):
        with pytest.raises(EpifedError, match=expected):
            load_panel(frame(), until=word)


def frame() -> pl.DataFrame:
    return pl.DataFrame(
        {
            "date": np.repeat(np.array(DAYS, dtype="datetime64[D]"), 4),
            "region": REGIONS * 42,
            "cases": COUNTS.T.ravel(),
        }
    )


def test_a_frame_of_objects_that_are_no_numbers_is_refused() -> None:
    mixed = frame().to_pandas().astype({"cases": object})
    mixed.loc[3, "cases"] = "x"
    with pytest.raises(EpifedError, match="column cases"):
        load_panel(mixed)


def test_a_day_of_another_century_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cases.csv"
    path.write_text("\n".join([*plain(), "2092-10-05,01001,3"]) + "\n")
    with pytest.raises(EpifedError, match=r"row 170, column date: .* nothing until 2092-10-05"):
        load_panel(path)
    path.write_text("\n".join([*plain(), "2021-03-05,01001,3"]) + "\n")
    notes = load_panel(path).notes
    assert "there is no report of any region between 2020-11-15 and 2021-03-05" in notes


def test_midnight_of_another_zone_is_not_offered_as_a_time_of_the_day(tmp_path: Path) -> None:
    path = tmp_path / "cases.csv"
    path.write_text("\n".join(lines("date;region;cases", "%Y-%m-%dT23:00:00")) + "\n")
    with pytest.raises(EpifedError, match="found '2020-10-05T23:00:00'; expected a day"):
        load_panel(path)


def test_rows_that_are_asked_for_alone(tmp_path: Path) -> None:
    path = tmp_path / "cases.csv"
    path.write_text("\n".join(european()) + "\n")
    options = {"date": "year_week", "region": "country", "cases": "weekly_count",
               "date_format": "iso-week"}  # fmt: skip
    deaths = load_panel(path, only=["indicator=deaths"], **options)
    np.testing.assert_array_equal(deaths.counts, BY_WEEK // 50)
    for only, said in (
        ("indicator=tests", "found no row that says 'tests'"),
        ("indicator", "expected COLUMN=VALUE"),
        ("kind=cases", "found 0 columns kind; expected one"),
    ):
        with pytest.raises(EpifedError, match=said):
            load_panel(path, only=only, **options)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"BZh91AY&SY", "found a bzip2 file"),
        (b"\xfd7zXZ\x00", "found a xz file"),
        (b"%PDF-1.4\n", "found a PDF file"),
        (b"<html><table></table></html>", "found a HTML file"),
    ],
)
def test_what_is_no_table_is_said(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "cases.csv"
    path.write_bytes(content)
    with pytest.raises(EpifedError, match=said):
        load_panel(path)
