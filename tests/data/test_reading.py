"""What offices write is read as they mean it, or refused with the option that reads it."""

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

from epifed.data.panel import CasePanel
from epifed.data.readers import load_panel, load_table
from epifed.data.readers.tables import AmbiguousTableError
from epifed.data.readers.values import _week_end
from epifed.errors import EpifedError
from tests.small_tables import DAYS, WAVE, choices, csv, table

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
    for said in ({}, {"thousands": "."}, {"thousands": "'", "decimal": "."}):
        people = load_panel(path, **said).population
        assert people is not None and people.tolist() == [83166]


def test_a_word_for_no_report(tmp_path: Path) -> None:
    path = csv(tmp_path, table([3, "k.A.", 5]))
    assert choices(path) == ({"missing": "k.A."},)
    panel = load_panel(path, missing="k.A.")
    assert panel.reported is not None and panel.reported.tolist() == [[True, False, True]]
    assert any("1 count written as k.A. was taken as missing" in note for note in panel.notes)


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


def sundays(step: int = 7) -> list[date]:
    return [date(2021, 3, 7) + timedelta(days=step * i) for i in range(12)]


def test_days_a_week_apart_are_weeks(tmp_path: Path) -> None:
    path = csv(tmp_path, table([*WAVE], days=sundays()))
    panel = load_panel(path)
    assert (panel.step, panel.start, panel.end) == ("week", sundays()[0], sundays()[-1])
    assert panel.counts[0].tolist() == WAVE[:12]
    assert any("a row is a week" in note for note in panel.notes)
    daily = load_panel(path, cadence="day")
    assert (daily.step, daily.counts.shape) == ("day", (1, 11 * 7 + 1))


def test_weeks_dated_by_their_first_day_go_by_their_last(tmp_path: Path) -> None:
    days = [date(2023, 10, 1) + timedelta(weeks=week) for week in range(12)]
    text = table([5, 9, 12, 30, 22, 14, 9, 8, 4, 6, 2, 3], days=days)
    plain = load_panel(csv(tmp_path, text))
    assert plain.end == days[-1]
    assert any("taken as ending on the Sunday" in note for note in plain.notes)
    first = load_panel(csv(tmp_path, text), weeks_dated="first")
    assert first.end == date(2023, 12, 23) and first.end.weekday() == 5
    assert (first.counts == plain.counts).all()
    named = csv(tmp_path, text.replace("date,", "week_start,"))
    offered = choices(named, date="week_start")
    assert offered == ({"weeks_dated": "first"}, {"weeks_dated": "last"})
    assert load_panel(named, date="week_start", weeks_dated="first").end == first.end
    with pytest.raises(EpifedError, match="found days; expected weeks"):
        load_panel(csv(tmp_path, table(WAVE)), weeks_dated="first")


def test_a_missing_week_is_no_week_of_none(tmp_path: Path) -> None:
    days = [day for i, day in enumerate(sundays()) if i != 4]
    panel = load_panel(csv(tmp_path, table([*WAVE], days=days)))
    assert panel.step == "week" and panel.reported is not None
    assert np.flatnonzero(~panel.reported[0]).tolist() == [4]


def test_a_row_every_other_week_is_no_week(tmp_path: Path) -> None:
    path = csv(tmp_path, table([*WAVE], days=sundays(14)))
    assert choices(path) == ({"cadence": "week"}, {"cadence": "day"})


def test_a_week_that_was_dated_a_day_late_is_refused(tmp_path: Path) -> None:
    days = sundays()
    days[5] += timedelta(days=1)
    with pytest.raises(EpifedError, match=r"2021-03-07 and 2021-04-12; expected .* whole weeks"):
        load_panel(csv(tmp_path, table([*WAVE], days=days)))


def test_regions_with_other_weekdays_are_refused() -> None:
    frames = [
        pl.DataFrame({"date": sundays(), "region": f"r{i}", "cases": WAVE[:12]}).with_columns(
            pl.col("date") + timedelta(days=i)
        )
        for i in range(5)
    ]
    with pytest.raises(EpifedError, match="found weeks dated 2021-03-07 and 2021-03-08"):
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
    assert read is not None and read.step == "week"
    assert read.frame["day"][0] == date(2021, 3, 13)


@pytest.mark.parametrize("scale", [1.0, 1 / 7])
@pytest.mark.parametrize("level", [0.5, 5.0, 50.0, 3000.0])
def test_rolling_sums_and_averages_are_refused(level: float, scale: float) -> None:
    rng = np.random.default_rng(1)
    wave = level * np.exp(np.sin(np.arange(96) / 20))
    daily = rng.poisson(wave, size=(3, 96)).astype(float)
    frames = [
        pl.DataFrame(
            {
                "date": [date(2021, 3, 1) + timedelta(days=i) for i in range(90)],
                "region": name,
                "cases": scale * np.convolve(row, np.ones(7), "valid"),
            }
        )
        for name, row in zip("abc", daily, strict=True)
    ]
    with pytest.raises(AmbiguousTableError, match=r"last seven days.*--counts new") as caught:
        load_panel(pl.concat(frames))
    assert len(str(caught.value)) < 300
    assert load_panel(pl.concat(frames), counts="new").step == "day"


@pytest.mark.parametrize("kind", ["rhythm", "none"])
@pytest.mark.parametrize("seed", range(20))
def test_days_are_no_rolling_sums(seed: int, kind: str) -> None:
    rng = np.random.default_rng(seed)
    share = np.tile([0.8, 1.2, 1.3, 1.2, 1.1, 0.8, 0.6], 14)[:92] if kind == "rhythm" else 1.0
    level = rng.uniform(1, 100) * share * np.exp(np.sin(np.arange(92) / 20))
    daily = rng.poisson(level).astype(float)
    days = [date(2021, 3, 1) + timedelta(days=i) for i in range(len(daily))]
    panel = load_panel(pl.DataFrame({"date": days, "region": "a", "cases": daily}))
    assert panel.counts[0].tolist() == daily.tolist()
