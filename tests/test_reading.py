"""What offices write is read as they mean it, or refused with the option that reads it."""

import gzip
import io
import zipfile
from datetime import UTC, date, datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from epifed.errors import EpifedError
from epifed.panel import CasePanel
from epifed.reading import Assumptions, UnsaidError
from epifed.sources import load_panel, load_table
from epifed.sources.clean import spread_back
from epifed.sources.dates import _week_end
from tests import offices

DAYS = [date(2021, 3, 1) + timedelta(days=i) for i in range(28)]


def csv(tmp_path: Path, text: str | bytes, name: str = "a.csv") -> Path:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def table(values: list[Any], region: str = "a", days: list[Any] | None = None) -> str:
    lines = [f"{day},{region},{value}" for day, value in zip(days or DAYS, values, strict=False)]
    return "\n".join(["date,region,cases", *lines]) + "\n"


def choices(source: Path | pl.DataFrame, **options: Any) -> tuple[dict[str, Any], ...]:
    with pytest.raises(UnsaidError) as refused:
        load_panel(source, **options)
    for choice in refused.value.choices:
        for name in choice:
            assert f"--{name.replace('_', '-')}" in str(refused.value) or name in (
                "date", "region", "cases"
            )  # fmt: skip
    return tuple(dict(choice) for choice in refused.value.choices)


WAVE = [12, 7, 9, 30, 4, 2, 11] * 4


# numbers


def test_a_point_before_three_digits_is_refused_until_it_is_said(tmp_path: Path) -> None:
    path = csv(tmp_path, table(["1.234", 5, "2.000"]))
    assert choices(path) == ({"thousands": "."}, {"decimal": "."})
    assert load_panel(path, thousands=".").counts.tolist() == [[1234, 5, 2000]]
    assert load_panel(path, decimal=".").counts.tolist() == [[1.234, 5, 2]]


@pytest.mark.parametrize("clear", ["12.5", "0.857", "1234.567", "3.0"])
def test_one_number_can_settle_what_a_point_is(tmp_path: Path, clear: str) -> None:
    panel = load_panel(csv(tmp_path, table(["1.234", clear])))
    assert panel.counts.tolist() == [[1.234, float(clear)]]


@pytest.mark.parametrize(
    ("cell", "offered", "value"),
    [
        ('"1,5"', [{"decimal": ","}], 1.5),
        ('"1,234"', [{"thousands": ","}, {"decimal": ","}], 1234),
        ('"1.234,5"', [{"thousands": ".", "decimal": ","}], 1234.5),
        ('"1,234.5"', [{"thousands": ",", "decimal": "."}], 1234.5),
        ("1 234", [{"thousands": " "}], 1234),
        ("1\u202f234", [{"thousands": " "}], 1234),
        ("1'234", [{"thousands": "'"}], 1234),
        ("<5", [{"below": 2}], 2),
    ],
)
def test_signs_in_a_number(
    tmp_path: Path, cell: str, offered: list[dict[str, Any]], value: float
) -> None:
    path = csv(tmp_path, table([3, cell]))
    assert list(choices(path)) == offered
    assert load_panel(path, **offered[0]).counts.tolist() == [[3, value]]


def test_a_population_is_written_like_the_counts(tmp_path: Path) -> None:
    path = csv(tmp_path, "date;region;cases;population\n2021-03-01;a;12;83.166\n")
    assert choices(path) == ({"thousands": "."}, {"decimal": "."})
    people = load_panel(path, thousands=".").population
    assert people is not None and people.tolist() == [83166]


def test_a_word_for_no_report(tmp_path: Path) -> None:
    path = csv(tmp_path, table([3, "k.A.", 5]))
    assert choices(path) == ({"missing": "k.A."},)
    panel = load_panel(path, missing="k.A.")
    assert panel.reported is not None and panel.reported.tolist() == [[True, False, True]]
    assert any("1 counts that say k.A. are missing reports" in note for note in panel.notes)


def test_an_enormous_count_is_a_typing_error(tmp_path: Path) -> None:
    path = csv(tmp_path, table([3, "1e308"]))
    with pytest.raises(EpifedError, match=r"row 3, column cases: found '1e\+308'; expected at mos"):
        load_panel(path)
    with pytest.raises(
        EpifedError, match=r"found 1e\+308 cases; expected a number of at least 0 and"
    ):
        CasePanel(counts=np.array([[1e308]]), regions=("a",), start=DAYS[0])


# days


@pytest.mark.parametrize(
    "written",
    ["%d.%m.%Y", "%d.%m.%y", "%m/%d/%Y", "%d/%m/%Y", "%Y/%m/%d", "%Y%m%d", "%d-%m-%Y", "%d %b %Y",
     "%Y-%m-%dT00:00:00", "%Y-%m-%d 00:00:00+01:00", "%m/%d/%Y 12:00:00 AM", "%b %d, %Y",
     "%G-W%V-%u"],
)  # fmt: skip
def test_the_one_format_that_fits_is_read_and_said(tmp_path: Path, written: str) -> None:
    days = [f"{day:{written}}" for day in DAYS]
    text = table(WAVE, days=[f'"{day}"' for day in days])
    read = load_table(csv(tmp_path, text))
    assert read is not None
    assert read.frame["day"].to_list() == DAYS
    plain = read.read_as["date_format"]
    assert f"{DAYS[-1]:{plain}}" == days[-1].split("T0")[0].split(" 00:")[0].split(" 12:")[0]


@pytest.mark.parametrize(("sign", "year"), [("/", "%Y"), ("-", "%Y"), ("/", "%y"), ("-", "%y")])
def test_days_that_may_be_months_are_refused_with_both_ways(
    tmp_path: Path, sign: str, year: str
) -> None:
    days = [f"{day:%d{sign}%m{sign}{year}}" for day in DAYS[:12]]
    path = csv(tmp_path, table(WAVE, days=days))
    ways = [choice["date_format"] for choice in choices(path)]
    british, american = f"%d{sign}%m{sign}{year}", f"%m{sign}%d{sign}{year}"
    assert british in ways and american in ways
    assert load_panel(path, date_format=british).days == DAYS[:12]
    assert load_panel(path, date_format=american, cadence="day").start == date(2021, 1, 3)


def test_excel_day_numbers_must_be_said(tmp_path: Path) -> None:
    days = [(day - date(1899, 12, 30)).days for day in DAYS]
    path = csv(tmp_path, table(WAVE, days=days))
    assert choices(path) == ({"date_format": "excel"},)
    assert load_panel(path, date_format="excel").days == DAYS


@pytest.mark.parametrize("zone", ["+02:00", "-11:30", "+05:30", "Europe/Berlin", "UTC"])
def test_a_zoned_midnight_stays_on_its_day(tmp_path: Path, zone: str) -> None:
    stamps = pd.date_range("2021-03-01", periods=28, tz=zone)
    frame = pd.DataFrame({"date": stamps, "region": "a", "cases": WAVE})
    pq.write_table(pa.Table.from_pandas(frame), tmp_path / "a.parquet")
    assert load_panel(tmp_path / "a.parquet").days == DAYS
    assert load_panel(frame).days == DAYS


def test_a_midnight_of_elsewhere_is_refused_not_moved(tmp_path: Path) -> None:
    berlin = timezone(timedelta(hours=1))
    moved = [datetime(d.year, d.month, d.day, tzinfo=berlin).astimezone(UTC) for d in DAYS]
    frame = pl.DataFrame({"date": moved, "region": "a", "cases": WAVE})
    with pytest.raises(EpifedError, match="row 1, column date: found '2021-02-28 23:00:00"):
        load_panel(frame)


# weeks and months


def mondays(step: int = 7) -> list[date]:
    return [date(2021, 3, 1) + timedelta(days=step * i) for i in range(12)]


@pytest.mark.parametrize("step", [7, 14])
def test_weekly_counts_are_not_daily_ones(tmp_path: Path, step: int) -> None:
    path = csv(tmp_path, table([*WAVE], days=mondays(step)))
    with pytest.raises(EpifedError, match=r"found a row for each week.*--cadence day"):
        load_panel(path)
    assert load_panel(path, cadence="day").counts.shape == (1, 11 * step + 1)


def test_a_week_that_was_dated_a_day_late_changes_nothing(tmp_path: Path) -> None:
    days = mondays()
    days[5] += timedelta(days=1)
    with pytest.raises(EpifedError, match="found a row for each week"):
        load_panel(csv(tmp_path, table([*WAVE], days=days)))


def test_regions_with_other_weekdays_are_weekly_too() -> None:
    frames = [
        pl.DataFrame({"date": mondays(), "region": f"r{i}", "cases": WAVE[:12]}).with_columns(
            pl.col("date") + timedelta(days=i)
        )
        for i in range(5)
    ]
    with pytest.raises(EpifedError, match="found a row for each week"):
        load_panel(pl.concat(frames))


def test_monthly_counts_are_refused(tmp_path: Path) -> None:
    days = [date(2021, month, 1) for month in range(1, 13)]
    assert choices(csv(tmp_path, table([*WAVE], days=days))) == ({"cadence": "day"},)


@given(st.lists(st.integers(0, 27), min_size=6, max_size=20, unique=True), st.integers(0, 99))
def test_sparse_days_stay_daily(days: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    kept = sorted(days)
    if sum((b - a) % 7 == 0 for a, b in pairwise(kept)) > 0.7 * (len(kept) - 1):
        return
    cases = rng.permutation([9, 1] * 10)[: len(kept)]
    frame = pl.DataFrame({"date": [DAYS[i] for i in kept], "region": "a", "cases": cases})
    assert load_panel(frame).counts.sum() == cases.sum()


def test_weeks_have_their_last_day() -> None:
    """ISO weeks by the standard library, epidemiological ones by the CDC's own table."""
    for first in (date(2015, 1, 5) + timedelta(weeks=i) for i in range(600)):
        year, week, _ = first.isocalendar()
        assert _week_end(f"{year}-W{week:02d}", "iso-week") == first + timedelta(days=6)
    assert _week_end("2021-W53", "iso-week") is None
    ends = {"202001": "2020-01-04", "202053": "2021-01-02", "202101": "2021-01-09",
            "201453": "2015-01-03", "202252": "2022-12-31", "202352": "2023-12-30"}  # fmt: skip
    for word, end in ends.items():
        assert _week_end(word, "epiweek") == date.fromisoformat(end)
    assert _week_end("202253", "epiweek") is None


def test_bare_weeks_need_their_calendar(tmp_path: Path) -> None:
    path = csv(tmp_path, table([*WAVE], days=[f"2021{w:02d}" for w in range(10, 20)]))
    assert choices(path) == ({"date_format": "iso-week"}, {"date_format": "epiweek"})
    read = load_table(path, date_format="epiweek")
    assert read is not None and read.weekly
    assert read.frame["day"][0] == date(2021, 3, 13)


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
    assert any("1 negative counts in 1 regions (−3 cases" in note for note in spread.notes)
    assert load_panel(path, negatives="zero").counts.tolist() == [[6, 2, 4, 0, 5]]


def test_a_correction_is_not_spread_over_other_regions_nor_missing_days(tmp_path: Path) -> None:
    text = table([5, "", 5, -4], "a") + table([9, 9, 9, 9], "b").split("\n", 1)[1]
    panel = load_panel(csv(tmp_path, text), negatives="spread")
    assert panel.counts.tolist() == [[3, 0, 3, 0], [9, 9, 9, 9]]
    assert panel.reported is not None and not panel.reported[0, 1]


def test_several_rows_of_a_region_and_day(tmp_path: Path) -> None:
    path = csv(tmp_path, table([3, 4]) + table([1, ""]).split("\n", 1)[1])
    assert choices(path) == ({"duplicates": "sum"},)
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


@pytest.mark.parametrize("sign", [",", ";", "\t", "|"])
def test_delimiters(tmp_path: Path, sign: str) -> None:
    path = csv(tmp_path, table([3, 4]).replace(",", sign))
    assert load_panel(path).counts.tolist() == [[3, 4]]


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
    assert choices(path) == ({"member": "b/cases.csv"},)
    assert load_panel(path, member="other.csv").counts.sum() == 5


def test_a_compressed_file_within_another_is_refused(tmp_path: Path) -> None:
    twice = gzip.compress(gzip.compress(table([3]).encode()))
    with pytest.raises(EpifedError, match="found a compressed file within another"):
        load_panel(csv(tmp_path, twice))


def test_a_workbook(tmp_path: Path) -> None:
    lines: list[list[object]] = [["Datum", "Kreis", "N"], [DAYS[0], "01", 3], [DAYS[1], "01", 4.5]]
    path = csv(tmp_path, offices.excel(A=lines), "a.xlsx")
    columns = {"date": "Datum", "region": "Kreis", "cases": "N"}
    assert choices(path) == (columns,)
    assert load_panel(path, **columns).counts.tolist() == [[3, 4.5]]
    two = csv(tmp_path, offices.excel(A=lines, B=lines, C=[]), "b.xlsx")
    assert choices(two) == ({"sheet": "A"}, {"sheet": "B"})
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
    for text in (f"{'x' * 70_000},region\n1,2\n", f"date,region,cases\n{'y' * 70_000},a,1\n"):
        with pytest.raises(EpifedError) as refused:
            load_panel(csv(tmp_path, text))
        assert len(str(refused.value)) <= 500


def test_what_is_assumed_is_one_list() -> None:
    said = Assumptions(decimal=",", missing="NA")
    assert said.to_dict() == {"decimal": ",", "missing": ("NA",)}
