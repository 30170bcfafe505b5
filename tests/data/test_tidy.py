"""Tidy tables in CSV and parquet, and how a source is recognised."""

import tempfile
from datetime import date, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Literal

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from epifed.data.panel import CasePanel
from epifed.data.readers import load_panel, read_tidy
from epifed.errors import EpifedError
from epifed.federation.site import load_hosted

TABLE = """date,region,cases,population
2020-11-01,00101,3,1000
2020-11-02,00101,0,1000
2020-11-01,b,7,250
"""


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_csv(tmp_path: Path) -> None:
    panel = read_tidy(write(tmp_path / "a.csv", TABLE))
    assert panel.regions == ("00101", "b")
    assert panel.start == date(2020, 11, 1)
    assert panel.counts.tolist() == [[3, 0], [7, 0]]
    assert panel.population is not None
    assert panel.population.tolist() == [1000, 250]
    assert panel.reported is not None
    assert panel.reported.tolist() == [[True, True], [True, False]]


@pytest.mark.parametrize("separator", [";", "\t", "|", ", "])
@pytest.mark.parametrize("start", ["", "\ufeff", "\n"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_dialects_of_csv(tmp_path: Path, separator: str, start: str, newline: str) -> None:
    text = start + TABLE.replace(",", separator)
    path = tmp_path / "a.csv"
    path.write_bytes((text + "\n").replace("\n", newline).encode())
    assert read_tidy(path).digest() == read_tidy(write(tmp_path / "b.csv", TABLE)).digest()


@pytest.mark.parametrize("as_time", [False, True])
def test_parquet(tmp_path: Path, as_time: bool) -> None:
    days = [date(2020, 11, 1), date(2020, 11, 2), date(2020, 11, 1)]
    stamps = [datetime(day.year, day.month, day.day) for day in days]
    frame = pl.DataFrame(
        {
            "date": stamps if as_time else days,
            "region": ["00101", "00101", "b"],
            "cases": [3, 0, 7],
            "population": [1000.0, 1000.0, 250.0],
        }
    )
    frame.write_parquet(tmp_path / "a.parquet")
    panel = load_panel(tmp_path / "a.parquet")
    assert panel.digest() == read_tidy(write(tmp_path / "a.csv", TABLE)).digest()


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin", "America/New_York"])
@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_a_midnight_is_the_day_of_its_own_time_zone(
    tmp_path: Path, zone: str | None, unit: Literal["ms", "us", "ns"]
) -> None:
    stamps = pl.Series("date", [datetime(2020, 11, 1), datetime(2020, 11, 2)])
    zoned = stamps.dt.cast_time_unit(unit).dt.replace_time_zone(zone)
    frame = pl.DataFrame({"date": zoned, "region": "a", "cases": 1})
    frame.write_parquet(tmp_path / "a.parquet")
    for panel in (load_panel(tmp_path / "a.parquet"), load_panel(frame)):
        assert panel.days == [date(2020, 11, 1), date(2020, 11, 2)]


def test_a_time_of_the_day_is_refused(tmp_path: Path) -> None:
    days = [datetime(2020, 11, 1), datetime(2020, 11, 1, 17, 0)]
    frame = pl.DataFrame({"date": days, "region": ["a", "b"], "cases": 1})
    frame.write_parquet(tmp_path / "a.parquet")
    with pytest.raises(EpifedError, match="row 2, column date: found '2020-11-01 17:00:00"):
        load_panel(tmp_path / "a.parquet")
    extreme = frame.with_columns(date=pl.lit(2**62).cast(pl.Datetime("ms")))
    with pytest.raises(EpifedError, match="DataFrame: row 1, column date: found '9999-12-31"):
        load_panel(extreme)


def test_own_column_names(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "Tag;Kreis;Fälle;Einwohner;x\n2020-11-01;07;2;90;\n")
    panel = load_panel(
        path, date="Tag", region="Kreis", cases="Fälle", population="Einwohner", format="tidy"
    )
    assert panel.regions == ("07",)
    assert panel.population is not None
    assert panel.population.tolist() == [90]


def test_population_is_optional_unless_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "date,region,cases\n2020-11-01,a,1\n")
    assert read_tidy(path).population is None
    with pytest.raises(EpifedError, match="found no column people"):
        read_tidy(path, population="people")


def test_an_empty_count_is_a_missing_report(tmp_path: Path) -> None:
    text = "date,region,cases\n2020-11-01,a,1\n2020-11-02,a,\n2020-11-03,a,2\n2020-11-02,b,\n"
    panel = read_tidy(write(tmp_path / "a.csv", text))
    assert panel.counts.tolist() == [[1, 0, 2], [0, 0, 0]]
    assert panel.reported is not None
    assert panel.reported.tolist() == [[True, False, True], [False, False, False]]
    assert panel.notes == ("2 rows had no count and were taken as missing",)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("2020-11-03,b,-1,250", "row 5, column cases: found '-1'; expected a number of at least 0"),
        ("2020-11-03,b,x,250", "row 5, column cases: found 'x'; expected a number"),
        ("2020-11-03,b,nan,250", "row 5, column cases: found 'nan'; expected a number"),
        ("2020-11-03,b,inf,250", "row 5, column cases: found 'inf'; expected a number"),
        ('2020-11-03,b,"1,5",250', "row 5, column cases: found '1,5'; expected a number"),
        ("2020-11-31,b,1,250", "row 5, column date: found '2020-11-31'; expected a day"),
        ("3.11.2020,b,1,250", "row 5, column date: found '3.11.2020'; expected a day"),
        ("2020-11-03T17:00,b,1,250", "row 5, column date: found '2020-11-03T17:00'; expected"),
        ("0020-11-03,b,1,250", "row 5, column date: found '0020-11-03'; expected a day"),
        (",b,1,250", "row 5, column date: found an empty cell; expected a day"),
        ("2020-11-03,,1,250", "row 5, column region: found an empty cell; expected the id"),
        ("2020-11-01,b,1,250", "row 5, columns region and date: found region b on 2020-11-01"),
        ("2020-11-03,b,1,251", "row 5, column population: found 251 for region b; expected 250"),
        ("2020-11-03,b,1,0", "row 5, column population: found '0'; expected a whole number"),
        ("2020-11-03,b,1,2.5", "row 5, column population: found '2.5'; expected a whole number"),
        ("2020-11-03,b,1,250,9", "row 5: found 5 cells; expected 4"),
        ('2020-11-03,"b,1,250', 'row 5: found a " that is not closed'),
        ("2020-11-03,c,1,", "found no population for region c"),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, row: str, message: str) -> None:
    path = write(tmp_path / "a.csv", f"{TABLE}{row}\n")
    with pytest.raises(EpifedError) as refused:
        load_panel(path)
    assert str(refused.value).startswith(f"{path}: {message}")


def test_rows_count_the_lines_of_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", f"\n{TABLE}\n\n2020-11-03,b,-1,250\n")
    with pytest.raises(EpifedError, match="row 8, column cases"):
        read_tidy(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "found an empty file"),
        (b"\n\n", "found only empty lines"),
        (b"date,region,cases\n", "found no rows"),
        (b"date,region,cases\n\n\n", "found no rows"),
        (b"date,region,cases\n2020-11-01,a,\n", "column cases: found only empty cells"),
        (b"date,region\n2020-11-01,a\n", "found no column cases; expected date, region, cases"),
        (b"date,region,cases,cases\n2020-11-01,a,1,2\n", "found the column cases twice"),
        (b"date,region,cases\n2020-11-01,K\xf6ln,1\n", "row 2: found bytes that are not UTF-8"),
        (b"date,r\xe9gion,cases\n", "row 1: found bytes that are not UTF-8"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    with pytest.raises(EpifedError) as refused:
        load_panel(path)
    assert str(refused.value).startswith(f"{path}: {message}")


def test_a_bad_parquet_is_named(tmp_path: Path) -> None:
    good = tmp_path / "good.parquet"
    days = [date(2020, 11, 1) + timedelta(days=i) for i in range(100)]
    frame = pl.DataFrame({"date": days, "region": "a", "cases": range(100)})
    frame.write_parquet(good)
    bad = tmp_path / "bad.parquet"
    bad.write_bytes(good.read_bytes()[:-20])
    with pytest.raises(EpifedError, match=r"bad.parquet: cannot be read as parquet"):
        load_panel(bad)
    bad.write_bytes(b"")
    with pytest.raises(EpifedError, match="found an empty file"):
        load_panel(bad)
    frame.head(0).write_parquet(bad)
    with pytest.raises(EpifedError, match="found no rows"):
        load_panel(bad)
    frame.with_columns(cases=pl.col("cases") - 1).write_parquet(bad)
    with pytest.raises(EpifedError, match="row 1, column cases: found '-1'"):
        load_panel(bad)
    frame.with_columns(cases=pl.lit(value=True)).write_parquet(bad)
    with pytest.raises(EpifedError, match="row 1, column cases: found the type Boolean"):
        load_panel(bad)
    frame.with_columns(date=pl.lit(2_000_000_000, pl.Int32).cast(pl.Date)).write_parquet(bad)
    with pytest.raises(EpifedError, match="row 1, column date: found '9999-12-31'"):
        load_panel(bad)
    frame.with_columns(date=pl.lit(7)).write_parquet(bad)
    with pytest.raises(EpifedError, match="row 1, column date: found the type Int32"):
        load_panel(bad)
    frame.with_columns(region=pl.lit(1.5)).write_parquet(bad)
    with pytest.raises(EpifedError, match="row 1, column region: found the type Float64"):
        load_panel(bad)


def test_a_damaged_parquet_is_read_or_refused_and_never_ends_the_process(tmp_path: Path) -> None:
    rng = Random(0)
    days = [date(2020, 11, 1) + timedelta(days=i) for i in range(100)]
    frame = pl.DataFrame({"date": days, "region": "ä", "cases": range(100)})
    frame.write_parquet(tmp_path / "good.parquet")
    good, bad = (tmp_path / "good.parquet").read_bytes(), tmp_path / "bad.parquet"
    refused = 0
    for _ in range(300):
        content = bytearray(good)
        for _ in range(rng.choice([1, 2, 5])):
            content[rng.randrange(len(content))] = rng.randrange(256)
        bad.write_bytes(content)
        try:
            load_panel(bad)
        except EpifedError:
            refused += 1
    assert refused > 100


def test_what_cannot_be_loaded_at_all(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", TABLE)
    with pytest.raises(EpifedError, match="no such file or directory"):
        load_panel(tmp_path / "absent.csv")
    with pytest.raises(EpifedError, match="found 'excel'; expected one of rki, memilio, tidy, pre"):
        load_panel(path, format="excel")
    with pytest.raises(EpifedError, match="found a directory; expected a file for format tidy"):
        load_panel(tmp_path, format="tidy")
    with pytest.raises(EpifedError, match="found a file; expected a directory for format prepared"):
        load_panel(path, format="prepared")
    with pytest.raises(EpifedError, match="level: not an option of the format tidy"):
        load_panel(path, level="county")


def _is_no_thousand(count: float) -> bool:
    """Three digits after the point could be thousands, which a file is refused for."""
    return len(str(count).partition(".")[2]) != 3


def _keep_their_zeros(names: list[str]) -> bool:
    """Whether no number looks like another that has lost a zero, which is asked about."""
    return len({len(name) for name in names if name.isdigit()}) <= 1


@st.composite
def panels(draw: st.DrawFn) -> CasePanel:
    names = st.text("0123456789abcÄß;,\" '", min_size=1, max_size=6).filter(
        lambda name: name == " ".join(name.split())
    )
    several = st.lists(names, min_size=1, max_size=5, unique=True).filter(_keep_their_zeros)
    regions = sorted(draw(several))
    days = draw(st.integers(1, 12))
    numbers = st.one_of(st.integers(0, 10**9), st.floats(0, 1e6).filter(_is_no_thousand))
    counts = draw(st.lists(numbers, min_size=len(regions) * days, max_size=len(regions) * days))
    people = draw(st.lists(st.integers(1, 10**8), min_size=len(regions), max_size=len(regions)))
    return CasePanel(
        counts=np.array(counts, dtype=float).reshape(len(regions), days),
        regions=tuple(regions),
        start=draw(st.dates(date(1950, 1, 1), date(2090, 1, 1))),
        population=np.array(people) if draw(st.booleans()) else None,
    )


def tidy_frame(panel: CasePanel) -> pl.DataFrame:
    frame = panel.to_long().rename({"day": "date"})
    if panel.population is None:
        return frame
    people = pl.DataFrame({"region": panel.regions, "population": panel.population})
    return frame.join(people, on="region", how="left", maintain_order="left")


@settings(max_examples=60)
@given(panels(), st.sampled_from([",", ";", "\t"]), st.booleans())
def test_round_trip(panel: CasePanel, separator: str, parquet: bool) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / ("a.parquet" if parquet else "a.csv")
        if parquet:
            tidy_frame(panel).write_parquet(path)
        else:
            tidy_frame(panel).write_csv(path, separator=separator)
        assert load_panel(path).digest() == panel.digest()


@settings(max_examples=60)
@given(panels(), st.randoms(use_true_random=False))
def test_a_gap_becomes_zero_wherever_it_is(panel: CasePanel, random: Random) -> None:
    frame = tidy_frame(panel).drop("population", strict=False).with_row_index()
    ends = [date.isoformat(panel.start), date.isoformat(panel.end)]
    removable = frame.filter(
        ~pl.col("date").cast(pl.String).is_in(ends) | (pl.col("region") != panel.regions[0])
    )["index"].to_list()
    removed = set(random.sample(removable, random.randint(0, len(removable))))
    kept = frame.filter(~pl.col("index").is_in(removed)).drop("index")
    shuffled = kept.sample(fraction=1, shuffle=True, seed=random.randint(0, 99))
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "a.csv"
        shuffled.write_csv(path)
        read = read_tidy(path)
    assert read.reported is not None
    row_of = {region: i for i, region in enumerate(panel.regions)}
    for i, region in enumerate(read.regions):
        expected = panel.counts[row_of[region]]
        assert np.array_equal(read.counts[i], np.where(read.reported[i], expected, 0))
    assert int(read.reported.sum()) == len(kept)


FACTS = "date,region,cases,population,calendar,longitude,latitude\n"


def test_facts_of_regions(tmp_path: Path) -> None:
    path = tmp_path / "cases.csv"
    path.write_text(
        FACTS
        + "2021-01-04,a,1,500,DE-BY,11.5,48.1\n2021-01-04,b,2,700,,-73.9,40.7\n"
        + "2021-01-05,a,3,500,DE-BY,11.5,48.1\n2021-01-05,b,4,700,,,\n"
    )
    panel = read_tidy(path)
    assert panel.calendars == ("DE-BY", "")
    assert panel.positions is not None
    assert panel.positions.tolist() == [[11.5, 48.1], [-73.9, 40.7]]
    part = panel.of(["b"])
    assert part.calendars == ("",) and part.positions is not None
    assert part.positions.tolist() == [[-73.9, 40.7]]
    assert panel.digest() != read_tidy(path.rename(tmp_path / "c.csv")).of(["a"]).digest()


def test_positions_count_only_if_every_region_has_one(tmp_path: Path) -> None:
    path = tmp_path / "cases.csv"
    path.write_text(FACTS + "2021-01-04,a,1,500,,11.5,48.1\n2021-01-04,b,2,700,,,40.7\n")
    assert read_tidy(path).positions is None


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("2021-01-05,a,1,500,DE-XX,11.5,48.1", "column calendar: found 'DE-XX'; expected a code"),
        ("2021-01-05,a,1,500,DE-BY,east,48.1", "column longitude: found 'east'; expected degrees"),
        ("2021-01-05,a,1,500,DE-BY,11.5,481", "column latitude: found '481'; expected degrees"),
        ("2021-01-05,a,1,500,DE-BY,11.6,48.1", "column longitude: found 11.6 for region a; "
         "expected 11.5 as in its first row"),
        ("2021-01-05,a,1,500,DE-BE,11.5,48.1", "column calendar: found DE-BE for region a; "
         "expected DE-BY as in its first row"),
    ],
)  # fmt: skip
def test_a_bad_fact_is_named(tmp_path: Path, row: str, message: str) -> None:
    path = tmp_path / "cases.csv"
    path.write_text(f"{FACTS}2021-01-04,a,1,500,DE-BY,11.5,48.1\n{row}\n")
    with pytest.raises(EpifedError) as caught:
        read_tidy(path)
    assert message in str(caught.value)


def test_a_site_reads_the_facts_of_its_clients_each_by_itself(tmp_path: Path) -> None:
    path = tmp_path / "cases.csv"
    path.write_text(
        FACTS
        + "2021-01-04,a,1,500,DE-BY,11.5,48.1\n2021-01-04,b,2,,DE-BE,13.4,52.5\n"
        + "2021-01-04,c,2,700,DE-XX,9.9,53.5\n2021-01-04,d,5,900,,10,50\n"
    )
    found = load_hosted(path, {"a", "b", "c", "d"})
    assert found.panel is not None and found.panel.population is not None
    assert found.panel.regions == ("a", "d")
    assert found.panel.calendars == ("DE-BY", "")
    assert found.panel.population.tolist() == [500, 900]
    assert found.panel.positions is not None
    assert found.panel.positions.tolist() == [[11.5, 48.1], [10, 50]]
    assert "column population: found no value for region b" in found.left_out["b"]
    assert "found 'DE-XX'" in found.left_out["c"]
