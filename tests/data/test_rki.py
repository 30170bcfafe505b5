"""The RKI line list, in the official columns and codes."""

from datetime import date
from pathlib import Path

import pytest

from epifed.data.readers import load_panel, read_rki
from epifed.data.readers.formats import COLUMNS
from epifed.errors import EpifedError

HEADER = ",".join(COLUMNS)
ROWS = (
    "1001,A15-A34,M,2020-10-28,2020-10-26,1,0,-9,0,2,0,2",
    "1001,A35-A59,W,2020-10-28,2020-10-28,0,1,-9,-9,3,0,0",
    "1001,A60-A79,W,2020-10-28,2020-10-28,0,-1,-9,-9,-4,0,0",
    "11001,A15-A34,M,2020-10-27,2020-10-27,0,0,-9,0,5,0,5",
    "11012,A80+,unbekannt,2020-10-27,2020-10-27,1,0,0,-9,7,1,0",
    "16056,unbekannt,W,2020-10-29,2020-10-25,1,0,-9,0,1,0,1",
    "16063,A00-A04,W,2020-10-29,2020-10-25,1,0,-9,0,10,0,10",
)


def write(path: Path, *rows: str, header: str = HEADER) -> Path:
    path.write_text("\n".join((header, *rows)) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def line_list(tmp_path: Path) -> Path:
    return write(tmp_path / "Aktuell_Deutschland_SarsCov2_Infektionen.csv", *ROWS)


def test_cases_by_reference_date(line_list: Path) -> None:
    panel = read_rki(line_list)
    assert panel.regions == ("01001", "11000", "16063")
    assert (panel.start, panel.end) == (date(2020, 10, 25), date(2020, 10, 28))
    assert panel.counts.tolist() == [[0, 2, 0, 3], [0, 0, 12, 0], [11, 0, 0, 0]]
    assert "Robert Koch-Institut" in panel.attribution[0]


def test_cases_by_reporting_date(line_list: Path) -> None:
    panel = read_rki(line_list, date_column="Meldedatum")
    assert (panel.start, panel.end) == (date(2020, 10, 27), date(2020, 10, 29))
    assert panel.counts.tolist() == [[0, 5, 0], [12, 0, 0], [0, 0, 11]]


def test_days_without_a_row_are_zero_and_not_reported(line_list: Path) -> None:
    panel = read_rki(line_list)
    assert panel.reported is not None
    assert panel.reported.tolist()[0] == [False, True, False, True]


def test_a_withdrawn_case_is_no_report_and_no_region(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", ROWS[0], ROWS[2].replace("1001", "9162", 1))
    assert read_rki(path).regions == ("01001",)


def test_columns_may_come_in_any_order_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    text = "AnzahlFall,NeuerFall,Refdatum,IdLandkreis\r\n4,0,2020-03-01,5315\r\n\r\n"
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    panel = load_panel(path)
    assert panel.regions == ("05315",)
    assert panel.counts.tolist() == [[4]]


def test_recognised_by_its_header(line_list: Path) -> None:
    panel = load_panel(line_list, date_column="Meldedatum")
    assert panel.start == date(2020, 10, 27)


@pytest.mark.parametrize(
    ("row", "column", "found", "expected"),
    [
        ("1001,A,M,2020-10-28,2020-10-28,0,0,-9,0,-2,0,0", "AnzahlFall", "'-2'", "at least 0"),
        ("1001,A,M,2020-10-28,2020-10-28,0,0,-9,0,two,0,0", "AnzahlFall", "'two'", "whole number"),
        ("1001,A,M,2020-10-28,2020-10-28,0,0,-9,0,1.5,0,0", "AnzahlFall", "'1.5'", "whole number"),
        ("1001,A,M,2020-10-28,2020-10-28,0,0,-9,0,,0,0", "AnzahlFall", "an empty cell", "whole"),
        ("1001,A,M,2020-10-28,2020-10-28,0,yes,-9,0,1,0,0", "NeuerFall", "'yes'", "-1, 0 or 1"),
        ("1001,A,M,2020-10-28,2020-10-32,0,0,-9,0,1,0,0", "Refdatum", "'2020-10-32'", "YYYY-MM-DD"),
        ("1001,A,M,2020-10-28,28.10.2020,0,0,-9,0,1,0,0", "Refdatum", "'28.10.2020'", "YYYY-MM-DD"),
        ("1001,A,M,2020-10-28,9020-10-28,0,0,-9,0,1,0,0", "Refdatum", "'9020-10-28'", "to 2100"),
        ("1001,A,M,2020-10-28,,0,0,-9,0,1,0,0", "Refdatum", "an empty cell", "YYYY-MM-DD"),
        ("SK Kiel,A,M,2020-10-28,2020-10-28,0,0,-9,0,1,0,0", "IdLandkreis", "'SK Kiel'", "county"),
        ("7,A,M,2020-10-28,2020-10-28,0,0,-9,0,1,0,0", "IdLandkreis", "'7'", "county"),
        (",A,M,,,0,,-9,0,1,0,0", "IdLandkreis", "an empty cell", "county"),
    ],
)
def test_a_bad_cell_is_named(
    tmp_path: Path, row: str, column: str, found: str, expected: str
) -> None:
    path = write(tmp_path / "a.csv", ROWS[0], ROWS[3], row, row)
    with pytest.raises(EpifedError) as refused:
        read_rki(path)
    assert str(refused.value).startswith(f"{path}: row 4, column {column}: found {found}; expected")
    assert expected in str(refused.value)


def test_a_withdrawn_case_still_needs_a_number(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", ROWS[2].replace("-4", "four"))
    with pytest.raises(EpifedError, match="row 2, column AnzahlFall: found 'four'"):
        read_rki(path)


def test_missing_column(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "1", header="IdLandkreis,NeuerFall,Refdatum")
    with pytest.raises(EpifedError, match=r"found no column AnzahlFall; .*columns are IdLandkreis"):
        load_panel(path)


@pytest.mark.parametrize("rows", [(), ("",)])
def test_header_only(tmp_path: Path, rows: tuple[str, ...]) -> None:
    with pytest.raises(EpifedError, match="found no rows"):
        read_rki(write(tmp_path / "a.csv", *rows))


def test_nothing_that_counts(tmp_path: Path) -> None:
    with pytest.raises(EpifedError, match="found no row that counts"):
        read_rki(write(tmp_path / "a.csv", ROWS[2]))


def test_not_utf8(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", ROWS[0])
    path.write_bytes(path.read_bytes() + "1001,A,M,2020-10-28,Mär".encode("latin-1"))
    with pytest.raises(EpifedError, match="row 3: found bytes that are not UTF-8"):
        read_rki(path)


def test_unknown_date_column(line_list: Path) -> None:
    with pytest.raises(EpifedError, match="found 'Datum'; expected Refdatum or Meldedatum"):
        read_rki(line_list, date_column="Datum")
