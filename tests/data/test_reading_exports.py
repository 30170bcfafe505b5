"""Exports of offices that were once read wrongly, or refused without the fix."""

import io
import zipfile
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from epifed.data.readers import load_panel
from epifed.data.readers.tables import AmbiguousTableError
from epifed.data.readers.vintage_files import read_entries
from epifed.errors import EpifedError
from tests.offices import COUNTS, DAYS, excel

NAMES = ("Altmark", "Harz", "Saale")
WEEKS = [date(2023, 10, 2) + timedelta(weeks=i) for i in range(len(DAYS))]
"""Mondays."""


def write(tmp_path: Path, lines: Sequence[str], encoding: str = "utf-8") -> Path:
    path = tmp_path / "export.csv"
    path.write_bytes("\n".join([*lines, ""]).encode(encoding))
    return path


def choices(path: Path, **options: Any) -> tuple[dict[str, Any], ...]:
    with pytest.raises(AmbiguousTableError) as error:
        load_panel(path, **options)
    return tuple(dict(choice) for choice in error.value.choices)


def daily(head: str, row: str) -> list[str]:
    """A line for each region and day: row has d, r and n."""
    return [head, *(row.format(d=d, r=r, n=int(COUNTS[i, j]), half=int(COUNTS[i, j]) // 2)
                    for j, d in enumerate(DAYS) for i, r in enumerate(NAMES))]  # fmt: skip


def weekly(head: str, row: str) -> list[str]:
    """A line for each region and ISO week: row has y, w, r, n, and the days from and to."""
    lines = [head]
    for j, monday in enumerate(WEEKS):
        year, week, _ = monday.isocalendar()
        said = {"y": year, "w": week, "a": monday, "z": monday + timedelta(days=6)}
        lines += [row.format(r=r, n=int(COUNTS[i, j]), **said) for i, r in enumerate(NAMES)]
    return lines


def cases() -> list[tuple[date, str, int]]:
    """A row for each case: the day, the region, and the number of the row."""
    places = [(d, r) for j, d in enumerate(DAYS) for i, r in enumerate(NAMES[:2])
              for _ in range(int(COUNTS[i, j]))]  # fmt: skip
    return [(day, region, i) for i, (day, region) in enumerate(places)]


@pytest.mark.parametrize("name", ["Meldetatbestand", "Erreger", "Falldefinition", "Status"])
def test_cases_of_several_kinds_are_not_added_up_unasked(name: str, tmp_path: Path) -> None:
    lines = [f"{d};{r};{'A' if i % 4 else 'B'}" for d, r, i in cases()]
    path = write(tmp_path, [f"Datum;Kreis;{name}", *lines])
    said: dict[str, Any] = {"date": "Datum", "region": "Kreis", "line_list": True}
    ways = choices(path, **said)
    assert ways == ({"only": f"{name}=A"}, {"duplicates": "sum"}, {"only": f"{name}=B"})
    part, both = (load_panel(path, **said, **way).counts.sum() for way in ways[:2])
    assert (part, both) == (sum(line.endswith("A") for line in lines), len(lines))


def test_the_days_of_entry_are_of_the_rows_that_are_read(tmp_path: Path) -> None:
    lines = [f"{d:%d.%m.%Y};{r};{'Grippe' if i % 4 else 'Röteln'};{d + timedelta(i % 3):%d.%m.%Y} "
             f"{i % 24:02d}:15" for d, r, i in cases()]  # fmt: skip
    head = ["Liste vom 1.12.2020;;;", "Datum;Kreis;Krankheit;Erfasst"]
    path = write(tmp_path, [*head, *lines, "Quelle: Amt;;;"], "cp1252")
    said: dict[str, Any] = {"date": "Datum", "region": "Kreis", "line_list": True}
    said |= {"encoding": "cp1252", "header_row": 2, "only": ["Krankheit=Grippe"]}
    panel = load_panel(path, **said)
    vintages = read_entries(path, "Erfasst", panel.regions, **said)
    assert vintages.changes["cases"].sum() == panel.counts.sum() < len(lines)
    late = (vintages.changes["as_of"] - vintages.changes["reported"]).dt.total_days()
    assert set(late) == {1, 2, 3}  # known on the day after its entry


def test_one_of_several_columns_of_counts_is_not_taken_unasked(tmp_path: Path) -> None:
    path = write(tmp_path, daily("Datum;Kreis;Anzahl m;Anzahl w", "{d};{r};{half};{n}"))
    columns = {"date": "Datum", "region": "Kreis"}
    both, men, women = choices(path)
    assert (men, women) == (columns | {"cases": "Anzahl m"}, columns | {"cases": "Anzahl w"})
    assert both == columns | {"cases": "Anzahl m+Anzahl w"}
    counts = [load_panel(path, **way).counts for way in (both, men, women)]
    assert (counts[0] == counts[1] + counts[2]).all() and (counts[2] == COUNTS).all()
    deaths = write(tmp_path, daily("Datum;Kreis;Todesfälle;Neufälle", "{d};{r};{half};{n}"))
    assert [way["cases"] for way in choices(deaths)] == ["Todesfälle", "Neufälle"]


def test_columns_are_added_up_where_a_name_has_a_plus_and_rows_stay_refused(tmp_path: Path) -> None:
    lines = daily("date,region,0-59,60+", "{d},{r},{half},{n}")
    panel = load_panel(write(tmp_path, lines), cases="0-59+60+")
    assert (panel.counts == COUNTS // 2 + COUNTS).all()
    assert any("sums of the columns 0-59, 60+" in note for note in panel.notes)
    with pytest.raises(AmbiguousTableError, match="a second time"):
        load_panel(write(tmp_path, [*lines, lines[-1]]), cases="0-59+60+")


def test_weeks_dated_on_a_monday_are_asked_about(tmp_path: Path) -> None:
    path = write(tmp_path, weekly("date,region,cases", "{a},{r},{n}"))
    first, last = choices(path)
    assert (first, last) == ({"weeks_dated": "first"}, {"weeks_dated": "last"})
    assert load_panel(path, **first).end == WEEKS[-1] + timedelta(days=6)
    assert load_panel(path, **last).end == WEEKS[-1]


@pytest.mark.parametrize("name", ["Woche ab", "week of", "semaine du", "Woche vom"])
def test_the_first_day_of_a_week_by_the_name_of_its_column(name: str, tmp_path: Path) -> None:
    path = write(tmp_path, weekly(f"{name},region,cases", "{z},{r},{n}"))
    assert choices(path, date=name)[0] == {"weeks_dated": "first"}


@pytest.mark.parametrize(
    ("head", "row", "said"),
    [
        ("semaine;dep;cas", "{y}-S{w:02d};{r};{n}", {"date_format": "iso-week"}),
        ("semaine;dep;cas", "S{w}/{y};{r};{n}", {"date_format": "iso-week"}),
        ("semana;dep;cas", "Semana {w} de {y};{r};{n}", {"date_format": "iso-week"}),
        ("Woche;dep;cas", "{a:%d.%m.%Y} - {z:%d.%m.%Y};{r};{n}", {}),
        ("Woche;dep;cas", "{a:%d.%m.}-{z:%d.%m.%Y};{r};{n}", {}),
        ("Woche;dep;cas", "vom {a:%d.%m.%Y} bis {z:%d.%m.%Y};{r};{n}", {}),
        ("week;dep;cas", "{a} to {z};{r};{n}", {}),
    ],
)
def test_weeks_as_offices_write_them(
    head: str, row: str, said: dict[str, str], tmp_path: Path
) -> None:
    path = write(tmp_path, weekly(head, row))
    columns = dict(zip(("date", "region", "cases"), head.split(";"), strict=True))
    if said:
        assert said in choices(path, **columns)
    panel = load_panel(path, **columns, **said)
    assert panel.step == "week" and panel.start == WEEKS[0] + timedelta(days=6)
    assert (panel.counts == COUNTS).all()


def test_a_range_that_is_no_week_is_refused(tmp_path: Path) -> None:
    lines = weekly("date;region;cases", "{a:%d.%m.%Y} - {z:%d.%m.%Y};{r};{n}")
    lines[4] = "01" + lines[4][2:]
    with pytest.raises(EpifedError, match="row 5, column date"):
        load_panel(write(tmp_path, lines))


def test_years_and_weeks_of_other_languages_make_one_day(tmp_path: Path) -> None:
    path = write(tmp_path, weekly("annee;semaine;departement;cas", "{y};S{w:02d};{r};{n}"))
    (offered,) = choices(path)
    assert offered["date"] == "annee+semaine"
    panel = load_panel(path, **offered, date_format="iso-week")
    assert (panel.counts == COUNTS).all()


@pytest.mark.parametrize("row", ["{w};{r};{n}", "S{w};{r};{n}", "W{w}-24;{r};{n}"])
def test_a_week_without_its_year_is_refused_as_such(row: str, tmp_path: Path) -> None:
    path = write(tmp_path, weekly("KW;region;cases", row))
    with pytest.raises(EpifedError, match="expected a week with its year, such as 2024-W07"):
        load_panel(path, date="KW")


@pytest.mark.parametrize("other", ["LK Harz", "HARZ ", "Landkreis Harz"])
def test_a_region_that_gets_another_name_is_refused(other: str, tmp_path: Path) -> None:
    lines = daily("date;region;cases", "{d};{r};{n}")
    half = [*lines[:50], *(line.replace("Harz", other) for line in lines[50:])]
    with pytest.raises(EpifedError, match="and no day that has both; expected one spelling"):
        load_panel(write(tmp_path, half))


def test_a_town_and_the_district_around_it_are_two_regions(tmp_path: Path) -> None:
    lines = daily("date;region;cases", "{d};{r};{n}")
    lines = [line.replace("Harz", "LK Saale") for line in lines]
    assert load_panel(write(tmp_path, lines)).regions == ("Altmark", "LK Saale", "Saale")
    apart = [line for line in lines if ("LK" in line) == ("2020-11-1" in line)]
    towns = [line.replace(";Saale", ";SK Saale") for line in apart]
    assert "SK Saale" in load_panel(write(tmp_path, ["date;region;cases", *towns])).regions


def test_a_note_below_a_wide_table_is_no_region(tmp_path: Path) -> None:
    across = ["Kreis;" + ";".join(f"{day:%d.%m.%Y}" for day in DAYS)]
    across += [f"{r};" + ";".join(map(str, COUNTS[i])) for i, r in enumerate(NAMES)]
    note = "Quelle: Amt, Stand 06.12.2020" + ";" * len(DAYS)
    panel = load_panel(write(tmp_path, [*across, note]), region="Kreis")
    assert panel.regions == NAMES and (panel.counts == COUNTS).all()
    down = ["Tag;" + ";".join(NAMES)]
    down += [f"{d};" + ";".join(map(str, COUNTS[:, j])) for j, d in enumerate(DAYS)]
    said: dict[str, Any] = {"date": "Tag", "layout": "regions-across"}
    panel = load_panel(write(tmp_path, [*down, "2020-12-06;;;", "Quelle: Amt;;;"]), **said)
    assert (panel.counts[:, : len(DAYS)] == COUNTS).all()
    assert any("'Quelle: Amt'" in note for note in panel.notes)


def test_names_in_two_rows_are_refused(tmp_path: Path) -> None:
    book: list[list[object]] = [["Woche", "Grippe", "", "", "RSV", "", ""], ["", *NAMES, *NAMES]]
    book += [[f"{d.isocalendar()[0]}-W{d.isocalendar()[1]:02d}", *map(int, COUNTS[:, j]),
              *map(int, COUNTS[:, j])] for j, d in enumerate(WEEKS)]  # fmt: skip
    path = tmp_path / "weeks.xlsx"
    path.write_bytes(excel(Blatt=book))
    for said in ({}, {"date": "Woche", "layout": "regions-across"}):
        with pytest.raises(EpifedError, match=r"found no name beside .* names in two rows"):
            load_panel(path, **said)


def test_marks_of_footnotes_and_a_row_of_units_are_left_out(tmp_path: Path) -> None:
    lines = daily("date;region;cases", "{d:%d.%m.%Y};{r};{n}")
    marked = [lines[0], "TT.MM.JJJJ;Name;Anzahl", *lines[1:-3], *(f"{one}*" for one in lines[-3:])]
    panel = load_panel(write(tmp_path, marked))
    assert (panel.counts == COUNTS).all()
    assert any(note.startswith("3 counts had the mark of a footnote") for note in panel.notes)


def test_files_that_are_no_tables_are_named(tmp_path: Path) -> None:
    path = tmp_path / "cases.xlsx"
    path.write_bytes(b"\xd0\xcf\x11\xe0" + b"\0" * 508 + "EncryptedPackage".encode("utf-16-le"))
    with pytest.raises(EpifedError, match="found an Excel file with a password"):
        load_panel(path)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("[Content_Types].xml", "<x/>")
        archive.writestr("word/document.xml", "<x/>")
    path.write_bytes(packed.getvalue())
    with pytest.raises(EpifedError, match="found a file of Word or PowerPoint"):
        load_panel(path)
