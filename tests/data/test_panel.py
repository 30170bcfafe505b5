from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime, timedelta
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from epifed.data.panel import CasePanel
from epifed.errors import EpifedError

DAY = date(2021, 5, 1)


def long(rows: list[tuple[date, str, float]]) -> pl.DataFrame:
    schema = {"day": pl.Date, "region": pl.String, "cases": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row")


@given(
    st.dictionaries(
        st.tuples(st.integers(0, 20), st.sampled_from("abcd")), st.integers(0, 99), min_size=1
    )
)
def test_a_missing_report_is_zero_and_is_remembered(cells: dict[tuple[int, str], int]) -> None:
    rows = [(DAY + timedelta(days=t), region, float(n)) for (t, region), n in cells.items()]
    panel = CasePanel.from_long(long(rows), source="x")
    assert panel.reported is not None
    for i, region in enumerate(panel.regions):
        for t, day in enumerate(panel.days):
            key = ((day - DAY).days, region)
            assert panel.counts[i, t] == cells.get(key, 0)
            assert panel.reported[i, t] == (key in cells)


@given(st.integers(1, 4), st.integers(1, 12), st.integers(0, 99))
def test_long_and_back(regions: int, days: int, seed: int) -> None:
    counts = np.random.default_rng(seed).integers(0, 50, (regions, days)).astype(float)
    panel = CasePanel(counts, tuple("abcd"[:regions]), DAY)
    again = CasePanel.from_long(panel.to_long(), source="memory")
    assert (again.counts == panel.counts).all()
    assert again.digest() == panel.digest()


def test_between_includes_both_ends() -> None:
    panel = CasePanel(np.arange(10.0)[None], ("a",), DAY)
    cut = panel.between(DAY + timedelta(days=2), DAY + timedelta(days=4))
    assert cut.counts.tolist() == [[2, 3, 4]]
    assert (cut.start, cut.end) == (DAY + timedelta(days=2), DAY + timedelta(days=4))
    with pytest.raises(EpifedError, match="expected all of"):
        panel.between(DAY, DAY + timedelta(days=10))
    with pytest.raises(EpifedError, match="expected its end after its start"):
        panel.between(DAY + timedelta(days=1), DAY)
    assert panel.between("2021-05-03", datetime(2021, 5, 5)).digest() == cut.digest()
    assert panel.between("2021-05-03", DAY + timedelta(days=4)).digest() == cut.digest()


@pytest.mark.parametrize(
    "day",
    ["2021-5-3", "20210503", "2021-W18-1", "2021-02-30", "", 7, None, datetime(2021, 5, 3, 1)],
)
def test_what_is_no_day_is_refused(day: object) -> None:
    panel = CasePanel(np.arange(10.0)[None], ("a",), DAY)
    with pytest.raises(EpifedError) as refused:
        panel.between(day, DAY)  # type: ignore[arg-type]
    assert str(refused.value) == (
        f"first day: found '{day}'; expected a date, or its text YYYY-MM-DD"
    )


def test_the_repr_is_one_short_line() -> None:
    panel = CasePanel(np.ones((400, 911)), tuple(map(str, range(400))), date(2020, 1, 2))
    of_file = replace(panel, source="/somewhere/else/county_cases.parquet")
    assert repr(of_file) == (
        "CasePanel(400 regions × 911 days, 2020-01-02 … 2022-06-30, 'county_cases.parquet')"
    )
    simulated = replace(panel, source="simulated (autumn-2020, seed 0)")
    assert repr(simulated).endswith("2022-06-30, 'simulated (autumn-2020, seed 0)')")


@pytest.mark.parametrize("kind", ["text", "datetime", "pandas", "pandas index"])
def test_a_long_table_may_have_days_of_any_kind(kind: str) -> None:
    panel = CasePanel(np.arange(6.0).reshape(2, 3), ("a", "b"), DAY)
    frame = panel.to_long()
    tables: dict[str, Callable[[], Any]] = {
        "text": lambda: frame.with_columns(pl.col("day").cast(pl.String)),
        "datetime": lambda: frame.with_columns(pl.col("day").cast(pl.Datetime)),
        "pandas": frame.to_pandas,
        "pandas index": lambda: frame.to_pandas().set_index(["region", "day"]),
    }
    again = CasePanel.from_long(tables[kind]())
    assert again.digest() == panel.digest()
    assert again.source == "memory"


@pytest.mark.parametrize(
    ("counts", "values", "words"),
    [
        (np.zeros((0, 3)), {}, "found no case counts"),
        (np.array([[1.0, -2.0]]), {}, "region a, 2021-05-02: found -2 cases"),
        (np.array([[1.0, np.nan]]), {}, "found nan cases"),
        (np.ones((1, 2)), {"regions": ("a", "b")}, "found 2 region ids"),
        (np.ones((2, 2)), {"regions": ("a", "a")}, "region id twice"),
        (np.ones((1, 2)), {"population": np.array([0])}, "one population above 0"),
        (np.ones((1, 2)), {"reported": np.ones((1, 3), dtype=bool)}, "report mask"),
    ],
)
def test_what_is_no_panel_is_refused(
    counts: np.ndarray, values: dict[str, object], words: str
) -> None:
    arguments = {"regions": ("a",) * len(counts), "start": DAY} | values
    with pytest.raises(EpifedError, match=words):
        CasePanel(counts=counts, **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("frame", "options", "words"),
    [
        (long([]), {}, "found no rows"),
        (long([(DAY, "a", 1.0), (DAY, "a", 2.0)]), {}, "region a on 2021-05-01 more than once"),
        (long([(DAY, "b", 1.0)]), {"regions": ["a"]}, "found region b, which is not among"),
        (long([(DAY, "a", 1.0)]), {"population": {"b": 3}}, "no population for region a"),
        (long([(DAY, "a", 1.0)]).drop("day"), {}, "x: found no column day; expected day, region"),
        (long([(DAY, "a", 1.0)]).with_columns(day=1), {}, "column day: found the type Int32"),
        (long([(DAY, "a", 1.0)]).with_columns(day=pl.lit("1.5.21")), {}, "x: column day: found '1"),
    ],
)
def test_a_long_table_that_does_not_fit_is_refused(
    frame: pl.DataFrame, options: dict[str, object], words: str
) -> None:
    with pytest.raises(EpifedError, match=words):
        CasePanel.from_long(frame, source="x", **options)  # type: ignore[arg-type]


def test_the_digest_sees_every_change() -> None:
    base = CasePanel(np.ones((2, 3)), ("a", "b"), DAY, population=np.array([5, 6]))
    others = [
        CasePanel(np.ones((2, 3)) + np.eye(2, 3), ("a", "b"), DAY, population=np.array([5, 6])),
        CasePanel(np.ones((2, 3)), ("a", "c"), DAY, population=np.array([5, 6])),
        CasePanel(
            np.ones((2, 3)), ("a", "b"), DAY + timedelta(days=1), population=np.array([5, 6])
        ),
        CasePanel(np.ones((2, 3)), ("a", "b"), DAY, population=np.array([5, 7])),
    ]
    assert len({p.digest() for p in [base, *others]}) == 5
