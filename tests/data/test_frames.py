"""A DataFrame of pandas or polars is read as the tidy file with the same rows."""

from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from epifed import EpifedError, forecast, load_panel
from epifed.local_forecast import forecast_alone

TIDY = pl.DataFrame(
    {
        "date": ["2020-11-01", "2020-11-02", "2020-11-01", "2020-11-02"],
        "region": ["00101", "00101", "b", "b"],
        "cases": [3, 0, 7, None],
        "population": [1000, 1000, 250, 250],
    }
)
DAYS = [date.fromisoformat(day) for day in TIDY["date"]]
PANDAS = TIDY.to_pandas()


def shapes() -> dict[str, Any]:
    """The same rows as different libraries and habits hold them."""
    return {
        "polars": TIDY,
        "polars, dates": TIDY.with_columns(pl.col("date").str.to_date()),
        "polars, category": TIDY.with_columns(pl.col("region").cast(pl.Categorical)),
        "polars, enum": TIDY.with_columns(pl.col("region").cast(pl.Enum(["00101", "b"]))),
        "polars, decimals": TIDY.with_columns(pl.col("cases").cast(pl.Decimal(10, 2))),
        "polars, small": TIDY.with_columns(pl.col("cases").cast(pl.UInt16)),
        "polars, zone": TIDY.with_columns(
            pl.col("date").str.to_datetime("%Y-%m-%d").dt.replace_time_zone("America/New_York")
        ),
        "pandas": PANDAS,
        "pandas, dates": PANDAS.assign(date=DAYS),
        "pandas, timestamps": PANDAS.assign(date=pd.to_datetime(PANDAS["date"])),
        "pandas, zone": PANDAS.assign(date=pd.to_datetime(PANDAS["date"]).dt.tz_localize("CET")),
        "pandas, category": PANDAS.assign(region=pd.Categorical(PANDAS["region"])),
        "pandas, Int64": PANDAS.assign(cases=PANDAS["cases"].astype("Int64")),
        "pandas, text": PANDAS.assign(cases=["3", "0", "7", None]),
        "pandas, index": PANDAS.set_index(["date", "region"]),
        "pandas, arrow": PANDAS.convert_dtypes(dtype_backend="pyarrow"),
        "pandas, objects": PANDAS.astype({"cases": object, "date": object}),
        "pandas, periods": PANDAS.assign(date=pd.PeriodIndex(PANDAS["date"], freq="D").astype(str)),
        "pandas, shuffled": PANDAS.sample(frac=1, random_state=1),
        "pandas, other columns": PANDAS.assign(mixed=[1, "x", None, []]).rename(columns={}),
    }


@pytest.mark.parametrize("shape", shapes())
def test_a_frame_is_read_as_the_file_with_its_rows(shape: str, tmp_path: Path) -> None:
    TIDY.write_csv(tmp_path / "a.csv")
    of_file, of_frame = load_panel(tmp_path / "a.csv"), load_panel(shapes()[shape])
    assert of_frame.digest() == of_file.digest()
    assert of_frame.notes == of_file.notes == ("1 row had no count and was taken as missing",)
    assert of_frame.reported is not None and of_file.reported is not None
    assert (of_frame.reported == of_file.reported).all()
    assert of_frame.source == "DataFrame"


@pytest.mark.parametrize("library", ["polars", "pandas"])
def test_columns_of_a_frame_may_have_other_names(library: str) -> None:
    names = {"date": "Tag", "region": "Kreis", "cases": " Fälle", "population": "Einwohner"}
    frame = TIDY.rename(names)
    table = frame if library == "polars" else frame.to_pandas()
    options = {"date": "Tag", "region": "Kreis", "cases": "Fälle", "population": "Einwohner"}
    assert load_panel(table, **options).digest() == load_panel(TIDY).digest()
    assert load_panel(table, "tidy", **options).digest() == load_panel(TIDY).digest()


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda f: f.assign(cases=[1, -2, 3, 4]), "row 2, column cases: found '-2'; expected a nu"),
        (lambda f: f.assign(cases=["1", "2", "x", "4"]), "row 3, column cases: found 'x'; expec"),
        (lambda f: f.assign(cases=[1, "2", 3, 4]), "column cases: found values of several types"),
        (lambda f: f.assign(cases=[1j, 2, 3, 4]), "column cases: found values of several types"),
        (lambda f: f.assign(date="1.31.2020"), "row 1, column date: found '1.31.2020'; expected"),
        (lambda f: f.assign(date=pd.NaT), "row 1, column date: found an empty cell; expected a d"),
        (lambda f: f.assign(date=7), "row 1, column date: found the type Int64; expected a day"),
        (lambda f: f.assign(region="a"), "row 3, columns region and date: found region a on"),
        (lambda f: f.assign(population=[1, 2, 3, 3]), "row 2, column population: found 2 for re"),
        (lambda f: f.drop(columns="cases"), "found no column cases; expected date, region, cases"),
        (lambda f: f.assign(cases=None), "column cases: found only empty cells; expected counts"),
        (lambda f: f.head(0), "found no rows; expected at least one"),
        (lambda f: pd.concat([f, f[["cases"]]], axis=1), "found the column cases twice"),
    ],
)
def test_a_bad_frame_is_refused_as_a_bad_file(
    spoil: Callable[[pd.DataFrame], pd.DataFrame], sentence: str
) -> None:
    with pytest.raises(EpifedError) as refused:
        load_panel(spoil(PANDAS))
    assert str(refused.value).startswith(f"DataFrame: {sentence}")


@pytest.mark.parametrize("thing", [3, None, {"date": []}, PANDAS["cases"], TIDY["cases"]])
def test_what_is_neither_path_nor_frame_is_refused(thing: Any) -> None:
    with pytest.raises(EpifedError, match=f"^source: found a {type(thing).__name__}; expected a p"):
        load_panel(thing)


def test_a_frame_has_the_tidy_format_and_its_options() -> None:
    with pytest.raises(EpifedError, match="format: found 'rki' with a DataFrame; expected tidy"):
        load_panel(TIDY, format="rki")
    with pytest.raises(EpifedError, match="level: not an option of the format tidy, which DataFr"):
        load_panel(TIDY, level="county")


def test_days_in_an_index_without_a_name_are_dates() -> None:
    days = pd.date_range("2024-01-01", periods=40)
    wide = pd.DataFrame({"a": range(40), "b": range(40, 80)}, index=days)
    panel = load_panel(wide, layout="regions-across", counts="new")
    assert panel.regions == ("a", "b")
    assert panel.start == date(2024, 1, 1)
    assert panel.counts[1, 0] == 40


def test_cases_without_a_model_are_told_where_to_go() -> None:
    rng = np.random.default_rng(1)
    days = pd.date_range("2024-01-01", periods=60)
    table = pd.DataFrame({"date": days, "region": "a", "cases": rng.poisson(30, 60)})
    with pytest.raises(EpifedError, match="expected a trained model and the cases"):
        forecast(table)
    assert forecast_alone(table).regions == ("a",)
