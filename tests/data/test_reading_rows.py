"""Counts, ids and files of offices are read as they are meant, or refused with the option."""

import gzip
import io
import zipfile
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from epifed.data.readers import load_panel
from epifed.data.readers.cleaning import spread_back
from epifed.data.readers.tables import AmbiguousTableError
from epifed.errors import EpifedError
from tests import offices
from tests.small_tables import DAYS, WAVE, choices, csv, table

# counts


def test_accumulated_counts_are_refused_until_it_is_said(tmp_path: Path) -> None:
    path = csv(tmp_path, table(list(np.cumsum(WAVE))))
    assert choices(path) == ({"counts": "cumulative"}, {"counts": "new"})
    assert load_panel(path, counts="cumulative").counts.tolist() == [WAVE[1:]]
    assert load_panel(path, counts="new").counts.tolist() == [np.cumsum(WAVE).tolist()]


def test_a_correction_does_not_hide_that_counts_are_accumulated(tmp_path: Path) -> None:
    so_far = np.cumsum(WAVE)
    so_far[20:] -= 15
    path = csv(tmp_path, table(list(so_far)))
    assert choices(path)[0] == {"counts": "cumulative"}
    assert choices(path, counts="cumulative")[0] == {"negatives": "spread"}
    panel = load_panel(path, counts="cumulative", negatives="spread")
    assert panel.counts.sum() == so_far[-1] - so_far[0]


@given(st.lists(st.integers(-40, 60), min_size=1, max_size=60))
def test_spreading_keeps_the_sum_and_whole_numbers(counts: list[int]) -> None:
    spread, left = spread_back(np.array(counts, dtype=float))
    assert (spread >= 0).all()
    assert (spread == np.rint(spread)).all()
    assert spread.sum() == sum(counts) + left
    untouched = [i for i, n in enumerate(counts) if n >= 0 and not any(m < 0 for m in counts[i:])]
    assert all(spread[i] == counts[i] for i in untouched)


@given(st.lists(st.floats(-40, 60), min_size=1, max_size=40))
def test_spreading_fractions_keeps_the_sum(counts: list[float]) -> None:
    spread, left = spread_back(np.array(counts))
    assert (spread >= -1e-9).all()
    assert spread.sum() == pytest.approx(sum(counts) + left, abs=1e-6)


def test_negative_counts_are_refused_spread_or_zero(tmp_path: Path) -> None:
    path = csv(tmp_path, table([6, 2, 4, -3, 5]))
    assert choices(path) == ({"negatives": "spread"}, {"negatives": "zero"})
    spread = load_panel(path, negatives="spread")
    assert spread.counts.tolist() == [[4, 2, 3, 0, 5]]
    assert any("1 negative count in 1 region (−3 cases" in note for note in spread.notes)
    assert load_panel(path, negatives="zero").counts.tolist() == [[6, 2, 4, 0, 5]]


def test_a_correction_is_not_spread_over_other_regions_nor_missing_days(tmp_path: Path) -> None:
    text = table([5, "", 5, -4], "a") + table([9, 9, 9, 9], "b").split("\n", 1)[1]
    panel = load_panel(csv(tmp_path, text), negatives="spread")
    assert panel.counts.tolist() == [[3, 0, 3, 0], [9, 9, 9, 9]]
    assert panel.reported is not None and not panel.reported[0, 1]


def test_several_rows_of_a_region_and_day(tmp_path: Path) -> None:
    path = csv(tmp_path, table([3, 4]) + table([1, ""]).split("\n", 1)[1])
    assert choices(path) == ({"duplicates": "sum"}, {"duplicates": "last"})
    assert load_panel(path, duplicates="sum").counts.tolist() == [[4, 4]]


@pytest.mark.parametrize("name", ["Total", "GESAMT", "Summe:", "total"])
def test_totals_are_refused_dropped_or_kept(tmp_path: Path, name: str) -> None:
    path = csv(tmp_path, table([3, 4]) + table([3, 4], name).split("\n", 1)[1])
    assert choices(path) == ({"totals": "drop"}, {"totals": "keep"})
    assert load_panel(path, totals="drop").regions == ("a",)
    assert load_panel(path, totals="keep").counts.sum() == 14


def test_the_sum_of_all_others_is_a_total_whatever_its_name(tmp_path: Path) -> None:
    text = offices.tidy() + "".join(
        f"{day},XX,{offices.COUNTS[:, i].sum()}\n" for i, day in enumerate(offices.DAYS)
    )
    path = csv(tmp_path, text)
    assert choices(path)[0] == {"totals": "drop"}
    assert load_panel(path, totals="drop").regions == offices.REGIONS
    assert len(load_panel(path, totals="keep").regions) == 4


def test_a_total_that_counts_a_few_more_is_one_too(tmp_path: Path) -> None:
    """The nation of the American admissions has cases that no state has, and misses some weeks."""
    weeks = [date(2023, 10, 7) + timedelta(weeks=week) for week in range(30)]
    rng = np.random.default_rng(3)
    counts = rng.poisson(rng.uniform(20, 90, (8, 1)) * np.exp(np.sin(np.arange(30) / 5)))
    rows = [f"{d},{r:02d},{counts[r, i]}" for r in range(8) for i, d in enumerate(weeks)]
    more = rng.integers(0, 4, 30)
    nation = [f"{d},US,{counts[:, i].sum() + more[i]}" for i, d in enumerate(weeks) if i != 7]
    path = csv(tmp_path, "\n".join(["date,region,cases", *rows, *nation]) + "\n")
    assert choices(path)[0] == {"totals": "drop"}
    assert len(load_panel(path, totals="drop").regions) == 8
    half = [f"{d},US,{counts[:, i].sum() * rng.uniform(0.8, 1.2):.0f}" for i, d in enumerate(weeks)]
    other = csv(tmp_path, "\n".join(["date,region,cases", *rows, *half]) + "\n")
    assert len(load_panel(other).regions) == 9


def test_states_among_their_counties_are_totals(tmp_path: Path) -> None:
    counties = {"01001": WAVE, "01002": [2 * c for c in WAVE], "09162": [9 - c % 5 for c in WAVE],
                "09163": [3 + c % 4 for c in WAVE]}  # fmt: skip
    sums = {"01": [3 * c for c in WAVE], "09": [12 - c % 5 + c % 4 for c in WAVE]}
    lines = ["date,region,cases"]
    for region, counts in (counties | sums).items():
        lines += table(counts, region).splitlines()[1:]
    path = csv(tmp_path, "\n".join(lines) + "\n")
    with pytest.raises(AmbiguousTableError, match="found 01, 09, which looks like a total"):
        load_panel(path)
    assert load_panel(path, totals="drop").regions == tuple(counties)


def test_a_total_under_the_days(tmp_path: Path) -> None:
    path = csv(tmp_path, table([3, 4]) + "Gesamt,,7\n")
    assert choices(path)[0] == {"totals": "drop"}
    assert load_panel(path, totals="drop").counts.tolist() == [[3, 4]]


# ids


@pytest.mark.parametrize("typed", [False, True])
def test_ids_that_lost_a_zero_are_refused(tmp_path: Path, typed: bool) -> None:
    ids = [1001, 1001, 10041, 10041]
    frame = pl.DataFrame({"date": DAYS[:2] * 2, "region": ids, "cases": [1, 2, 3, 4]})
    source: Path | pl.DataFrame = frame
    if not typed:
        source = tmp_path / "a.csv"
        frame.write_csv(source)
    assert choices(source) == ({"id_width": 5}, {"id_width": 0})
    assert load_panel(source, id_width=5).regions == ("01001", "10041")
    assert load_panel(source, id_width=0).regions == ("1001", "10041")


@pytest.mark.parametrize("typed", [False, True])
def test_ids_that_became_decimal_numbers_are_refused(tmp_path: Path, typed: bool) -> None:
    frame = pl.DataFrame({"date": DAYS[:2], "region": [1001.0, 1001.0], "cases": [1, 2]})
    source: Path | pl.DataFrame = frame
    if not typed:
        source = tmp_path / "a.csv"
        frame.write_csv(source)
    assert choices(source) == ({"id_width": 4},)
    assert load_panel(source, id_width=5).regions == ("01001",)


def test_numbers_that_simply_count_are_ids() -> None:
    ids = [str(i) for i in range(1, 1200)]
    frame = pl.DataFrame({"date": DAYS[0], "region": ids, "cases": 1})
    assert len(load_panel(frame).regions) == 1199


def test_spaces_around_an_id_make_no_second_region() -> None:
    frame = pl.DataFrame({"date": DAYS[:2], "region": ["a", "a "], "cases": [1, 2]})
    assert load_panel(frame).regions == ("a",)


# files


@pytest.mark.parametrize(
    ("encoding", "options"),
    [
        ("utf-8-sig", {}),
        ("utf-16", {}),
        ("utf-16-le", {"encoding": "utf-16-le"}),
        ("utf-16-be", {"encoding": "utf-16-be"}),
        ("latin-1", {"encoding": "latin-1"}),
    ],
)
def test_encodings(tmp_path: Path, encoding: str, options: dict[str, str]) -> None:
    path = csv(tmp_path, table([3, 4], "Köln").encode(encoding))
    if options:
        assert options in choices(path)
    assert load_panel(path, **options).regions == ("Köln",)


def test_of_two_delimiters_the_one_that_makes_the_columns(tmp_path: Path) -> None:
    path = csv(tmp_path, "date;region;cases, new\n2021-03-01;a;3\n")
    assert load_panel(path, cases="cases, new").counts.tolist() == [[3]]
    odd = csv(tmp_path, "Tag;Kreis,x\n2021-03-01;a,1\n")
    assert {"delimiter": ";"} in choices(odd)


def test_zip_and_gzip(tmp_path: Path) -> None:
    assert load_panel(csv(tmp_path, gzip.compress(table([3, 4]).encode()))).counts.sum() == 7
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("b/cases.csv", table([3, 4]))
        archive.writestr("__MACOSX/._cases.csv", "rubbish")
    assert load_panel(csv(tmp_path, buffer.getvalue())).counts.sum() == 7
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.writestr("other.csv", table([5]))
    path = csv(tmp_path, buffer.getvalue())
    assert choices(path) == ({"member": "*"}, {"member": "b/cases.csv"}, {"member": "other.csv"})
    assert load_panel(path, member="other.csv").counts.sum() == 5


def test_a_compressed_file_within_another_is_refused(tmp_path: Path) -> None:
    twice = gzip.compress(gzip.compress(table([3]).encode()))
    with pytest.raises(EpifedError, match="found a compressed file within another"):
        load_panel(csv(tmp_path, twice))


@pytest.mark.parametrize("option", ["sheet", "member"])
def test_an_option_without_effect_is_refused(tmp_path: Path, option: str) -> None:
    path = tmp_path / "cases.csv"
    path.write_text("date,region,cases\n2024-01-01,a,3\n")
    with pytest.raises(EpifedError, match=r"found no .* file; expected one with a"):
        load_panel(path, **{option: "x"})


def test_a_binary_file_is_no_text_of_another_encoding(tmp_path: Path) -> None:
    path = tmp_path / "cases.xlsx"
    path.write_bytes(bytes(range(250, -1, -1)) * 20)
    with pytest.raises(EpifedError, match="found a binary file; expected CSV, Excel or parquet"):
        load_panel(path)


def test_a_workbook(tmp_path: Path) -> None:
    lines: list[list[object]] = [["Datum", "Kreis", "N"], [DAYS[0], "01", 3], [DAYS[1], "01", 4.5]]
    path = csv(tmp_path, offices.excel(A=lines), "a.xlsx")
    columns = {"date": "Datum", "region": "Kreis", "cases": "N"}
    assert choices(path) == (columns,)
    assert load_panel(path, **columns).counts.tolist() == [[3, 4.5]]
    two = csv(tmp_path, offices.excel(A=lines, B=lines, C=[]), "b.xlsx")
    assert choices(two) == ({"sheet": "*"}, {"sheet": "A"}, {"sheet": "B"})
    assert load_panel(two, sheet="B", **columns).regions == ("01",)
    with pytest.raises(EpifedError, match="found no sheet 'X'; expected one of A, B, C"):
        load_panel(two, sheet="X")


def test_capitals_in_column_names_are_said(tmp_path: Path) -> None:
    panel = load_panel(
        csv(tmp_path, table([3, 4]).replace("date,region,cases", "DATE,Region,Cases"))
    )
    assert panel.counts.tolist() == [[3, 4]]
    assert panel.notes == (
        "columns by other capitals: DATE is date, Region is region, Cases is cases",
    )


def test_names_that_may_be_meant_are_offered(tmp_path: Path) -> None:
    path = csv(tmp_path, "Datum;Landkreis;Fälle\n2021-03-01;a;3\n")
    (offer,) = choices(path)
    assert offer == {"date": "Datum", "region": "Landkreis", "cases": "Fälle"}
    assert load_panel(path, **offer).counts.tolist() == [[3]]


def test_names_of_regions_are_shown_only_if_their_column_is_said(tmp_path: Path) -> None:
    names = {"01": "Alabama", "02": "Alaska"}
    rows = [
        f"{day},{region},{names[region]},{count}"
        for region in names
        for day, count in zip(DAYS, WAVE, strict=True)
    ]
    path = csv(tmp_path, "\n".join(["date,region,name,cases", *rows]) + "\n")
    assert load_panel(path).names == ("01", "02")  # in a list of persons it would be theirs
    assert load_panel(path, name="name").names == ("Alabama", "Alaska")
    other = csv(
        tmp_path, path.read_text().replace("Alaska", "Alabama", 5).replace("01,Alabama", "01,X", 1)
    )
    with pytest.raises(EpifedError, match=r"column name: found .* expected X as in its first row"):
        load_panel(other, name="name")
    with pytest.raises(EpifedError, match="found no column called"):
        load_panel(path, name="called")


def test_a_row_for_each_person(tmp_path: Path) -> None:
    path = csv(tmp_path, "id,date,region\n1,2021-03-01,a\n2,2021-03-01,a\n3,2021-03-03,a\n")
    assert choices(path) == ({"line_list": True},)
    assert load_panel(path, line_list=True).counts.tolist() == [[2, 0, 1]]


def test_every_frame_is_read_as_the_file_is(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {"Date": ["01.03.2021", "02.03.2021"], "region": "a", "cases": ["<5", "7"]}
    )
    assert choices(frame) == ({"below": 2},)
    assert load_panel(frame, below=1).counts.tolist() == [[1, 7]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"negatives": "hide"}, "negatives: found 'hide'; expected 'refuse' or 'spread' or 'zero'"),
        ({"thousands": "x"}, "thousands: found 'x'"),
        ({"id_width": -1}, "id_width: found '-1'; expected a number from 0 to 40"),
        ({"encoding": "klingon"}, "encoding: found 'klingon'"),
        ({"delimiter": "ab"}, "delimiter: found 'ab'; expected one character"),
        ({"decimal": ",", "thousands": ","}, "decimal and thousands: found ',' for both"),
        ({"colour": "red"}, "colour: not an option of the format tidy"),
    ],
)
def test_an_option_that_cannot_be(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(EpifedError) as refused:
        load_panel(csv(tmp_path, table([3, 4])), **options)
    assert message in str(refused.value)


def test_a_sentence_stays_short_whatever_the_names_are(tmp_path: Path) -> None:
    folder = tmp_path / ("deep" * 40) / ("down" * 40)
    folder.mkdir(parents=True)
    long = [c * 70_000 for c in "xyzuvw"]
    for text in (
        f"{','.join(long)},region\n1,2\n",
        f"Datum,Landkreis,{long[0]}\n1,2,3\n",
        f"date,region,cases\n{long[0]},a,1\n",
        f"date,region,cases\n2020-11-01,{long[0]},1\n2020-11-01,{long[0]},1\n",
        f"date,region,cases\n2020-11-01,a,{long[0]}\n",
    ):
        with pytest.raises(EpifedError) as refused:
            load_panel(csv(folder, text))
        assert len(str(refused.value)) <= 500
