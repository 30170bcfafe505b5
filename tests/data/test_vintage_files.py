"""Vintages from tables, from an authority's own list and from a folder of dated downloads."""

import gzip
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from epifed.data.readers.vintage_files import load_vintages
from epifed.errors import EpifedError
from tests.late_lists import late_list

DAY = timedelta(days=1)
OLD = (
    "IdLandkreis,Altersgruppe,Geschlecht,AnzahlFall,Meldedatum,Datenstand,NeuerFall,Refdatum,"
    "IstErkrankungsbeginn\n"
)
NEW = (
    "IdLandkreis,Altersgruppe,Geschlecht,Meldedatum,Refdatum,IstErkrankungsbeginn,NeuerFall,"
    "AnzahlFall\n"
)


def old_row(
    county: int, cases: int, reported: str, onset: str, published: str, new: int = 0
) -> str:
    """A row as of 2020: slashes, a time of the day, and the day of publication in German."""
    known = int(onset != reported)
    return (
        f"{county},A35-A59,M,{cases},2020/09/{reported} 00:00:00,"
        f'"{published}.09.2020, 00:00 Uhr",{new},2020/09/{onset} 00:00:00,{known}\n'
    )


def new_row(county: int, cases: int, reported: str, onset: str, new: int = 0) -> str:
    known = int(onset != reported)
    return f"{county},A35-A59,M,2020-09-{reported},2020-09-{onset},{known},{new},{cases}\n"


def test_a_table_of_changes_is_read_whatever_its_columns_are_called(tmp_path: Path) -> None:
    _, late = late_list(regions=2)
    frame = late.to_frame()
    frame.rename({"region": "county"}).write_parquet(tmp_path / "vintages.parquet")
    frame.rename({"as_of": "seen", "reported": "day"}).write_csv(tmp_path / "own.csv")
    assert load_vintages(tmp_path).digest() == late.digest()
    found = load_vintages(tmp_path / "own.csv", known="seen", reported="day")
    assert found.digest() == late.digest()


def test_an_own_list_is_one_case_a_row_known_on_the_morning_after_its_entry(
    tmp_path: Path,
) -> None:
    path = tmp_path / "amt.csv"
    path.write_text("entered,Meldedatum,onset\n2020-09-02,2020-09-01,\n2020-09-04,2020-09-01,\n")
    found = load_vintages(path, entry="entered")
    assert found.regions == ("amt",)
    # A morning after a day without an entry is quiet: an own list is whole on each.
    assert found.snapshots == (date(2020, 9, 3), date(2020, 9, 4), date(2020, 9, 5))
    assert found.missing == ()
    assert found.as_known("2020-09-04").counts.sum() == 1
    assert found.as_known("2020-09-05").counts.sum() == 2


def test_an_own_list_may_have_times_of_entry_and_days_as_written_in_germany(tmp_path: Path) -> None:
    path = tmp_path / "amt.csv"
    path.write_text("entered;Meldedatum\n02.09.2020 14:05;01.09.2020\n03.09.2020 8:00;01.09.2020\n")
    found = load_vintages(path, entry="entered")
    assert found.snapshots == (date(2020, 9, 3), date(2020, 9, 4))
    assert found.as_known("2020-09-03").counts.sum() == 1


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("as_of,date,cases\n2020-09-02,yesterday,1\n", "row 2, column date: found 'yesterday'"),
        ("as_of,date,cases\n2020-09-02,2020-09-01,1.5\n", "row 2, column cases: found '1.5'"),
        ("as_of,date,cases\n2020-09-02,2020-09-03,1\n", "row 2, column as_of: found"),
        ("date,cases\n2020-09-02,1\n", "found no column as_of or known"),
        ("as_of,date,region\n2020-09-02,2020-09-01, \n", "row 2, column region: found"),
        (
            "as_of,date\n2020-09-01,2020-09-01\n2020-09-02,2020-09-01\n2099-09-02,2020-09-01\n",
            "row 4, column as_of: found 2020-09-02 and then nothing until 2099-09-02",
        ),
    ],
)
def test_a_bad_table_is_refused_with_its_row(tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(EpifedError, match=sentence):
        load_vintages(path)


def test_a_folder_of_downloads_in_both_formats_becomes_changes(tmp_path: Path) -> None:
    first = OLD + old_row(1001, 3, "09", "05", "10") + old_row(11002, 2, "08", "08", "10")
    (tmp_path / "RKI_COVID19_2020-09-10.csv.gz").write_bytes(gzip.compress(first.encode()))
    second = NEW + new_row(1001, 5, "09", "05") + new_row(11002, 2, "08", "08")
    (tmp_path / "2020-09-11_Deutschland.csv").write_text(second + new_row(1001, 4, "10", "10", 1))
    found = load_vintages(tmp_path)
    assert found.snapshots == (date(2020, 9, 10), date(2020, 9, 11))
    assert found.regions == ("01001", "11000")
    assert found.as_known("2020-09-10").counts.sum() == 5
    later = found.as_known("2020-09-11")
    assert later.end == date(2020, 9, 10)
    assert later.counts[0, -2:].tolist() == [5, 4]
    onsets = found.changes.drop_nulls("onset")
    assert set(onsets["onset"]) == {date(2020, 9, 5)}


def test_the_day_inside_a_download_counts_and_is_said(tmp_path: Path) -> None:
    (tmp_path / "list_2020-09-12.csv").write_text(OLD + old_row(1001, 3, "09", "05", "11"))
    found = load_vintages(tmp_path)
    assert found.snapshots == (date(2020, 9, 11),)
    assert any("is the list of 2020-09-11" in note for note in found.notes)


@pytest.mark.parametrize("how", ["cut gzip", "cut row", "fewer cases"])
def test_a_download_that_broke_off_is_left_out_and_said(tmp_path: Path, how: str) -> None:
    rows = [old_row(1001 + i, 10, "08", "05", "10") for i in range(40)]
    (tmp_path / "2020-09-10.csv").write_text(OLD + "".join(rows))
    text = (OLD + "".join(rows)).replace("10.09.2020", "11.09.2020")
    if how == "cut gzip":
        (tmp_path / "2020-09-11.csv.gz").write_bytes(gzip.compress(text.encode())[:-20])
    elif how == "cut row":
        (tmp_path / "2020-09-11.csv").write_text(text[:-35])
    else:
        (tmp_path / "2020-09-11.csv").write_text("".join(text.splitlines(True)[:30]))
    third = (OLD + "".join(rows)).replace("10.09.2020", "12.09.2020")
    (tmp_path / "2020-09-12.csv").write_text(third)
    found = load_vintages(tmp_path)
    assert found.snapshots == (date(2020, 9, 10), date(2020, 9, 12))
    assert found.missing == (date(2020, 9, 11),)
    assert any("broke off" in note for note in found.notes)
    assert found.as_known("2020-09-12").counts.sum() == 400


def test_a_bad_row_in_the_middle_is_refused(tmp_path: Path) -> None:
    good = new_row(1001, 3, "09", "05")
    (tmp_path / "2020-09-10.csv").write_text(NEW + good + good.replace("2020-09-09", "?") + good)
    with pytest.raises(EpifedError, match=r"row 3: found .*expected a county"):
        load_vintages(tmp_path)


def test_what_is_no_folder_of_lists_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EpifedError, match=r"found no \.csv"):
        load_vintages(tmp_path)
    (tmp_path / "undated.csv").write_text(NEW + new_row(1001, 3, "09", "05"))
    with pytest.raises(EpifedError, match="found no day in the name"):
        load_vintages(tmp_path)


def test_the_real_table_is_as_late_as_its_description(real_data: Path) -> None:
    if not (real_data / "linelist_vintages.parquet").is_file():
        pytest.skip("no real vintages")
    found = load_vintages(real_data)
    assert found.missing == (date(2020, 8, 2), date(2020, 8, 21))
    share = found.completeness(8).filter(pl.col("weekday").is_null()).sort("lag")["share"]
    assert np.array(share)[[0, 1, 2, 3]] == pytest.approx([0.53, 0.88, 0.95, 0.97], abs=0.05)
