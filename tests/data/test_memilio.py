"""memilio-epidata's JSON, as pandas writes it (orient=records)."""

import json
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from epifed.data.readers import load_panel, read_memilio
from epifed.data.readers.formats import read_population
from epifed.errors import EpifedError

Records = list[dict[str, Any]]


def records(*rows: tuple[Any, Any, Any]) -> Records:
    return [
        {"Date": day, "ID_County": county, "Confirmed": total, "Deaths": 0, "Recovered": 0}
        for day, county, total in rows
    ]


def write(path: Path, content: Records) -> Path:
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


SPARSE = records(
    ("2020-03-01", 1001, 2),
    ("2020-03-01", 11000, 10),
    ("2020-03-02", 11000, 15),
    ("2020-03-04", 1001, 5),
    ("2020-03-04", 11000, 15),
)


def test_daily_differences(tmp_path: Path) -> None:
    panel = read_memilio(write(tmp_path / "cases_all_county.json", SPARSE))
    assert panel.regions == ("01001", "11000")
    assert (panel.start, panel.end) == (date(2020, 3, 2), date(2020, 3, 4))
    assert panel.counts.tolist() == [[0, 0, 3], [5, 0, 0]]
    assert panel.reported is not None
    assert panel.reported.tolist() == [[False, False, True], [True, False, True]]
    assert any("first day has no day before it" in note for note in panel.notes)
    assert not any("average" in note for note in panel.notes)


def test_days_as_milliseconds_give_the_same_panel(tmp_path: Path) -> None:
    stamped = [
        row | {"Date": int(datetime.fromisoformat(row["Date"]).replace(tzinfo=UTC).timestamp())}
        for row in SPARSE
    ]
    stamped = [row | {"Date": row["Date"] * 1000} for row in stamped]
    text = read_memilio(write(tmp_path / "a.json", SPARSE))
    assert read_memilio(write(tmp_path / "b.json", stamped)).digest() == text.digest()


def test_moving_average_is_kept_and_said(tmp_path: Path) -> None:
    smooth = records(
        ("2020-03-01", 1001.0, 0.1428571429),
        ("2020-03-02", 1001.0, 0.4285714286),
        ("2020-03-03", 1001.0, 0.4285714285),
    )
    panel = load_panel(write(tmp_path / "cases_all_county_ma7.json", smooth))
    assert panel.regions == ("01001",)
    assert panel.counts.tolist() == [[pytest.approx(0.2857142857), 0]]
    assert any("centered 7-day average" in note for note in panel.notes)


def test_eisenach_and_berlin_are_merged(tmp_path: Path) -> None:
    split = records(
        ("2020-03-01", 16056, 1),
        ("2020-03-01", 16063, 1),
        ("2020-03-01", 11001, 4),
        ("2020-03-01", 11002, 4),
        ("2020-03-02", 16056, 3),
        ("2020-03-02", 16063, 11),
        ("2020-03-02", 11001, 5),
        ("2020-03-02", 11002, 6),
    )
    panel = read_memilio(write(tmp_path / "a.json", split))
    assert panel.regions == ("11000", "16063")
    assert panel.counts.tolist() == [[3], [12]]


def test_names_are_used_where_there_are_some(tmp_path: Path) -> None:
    named = [row | {"County": "SK Flensburg"} for row in SPARSE if row["ID_County"] == 1001]
    named += [row | {"County": None} for row in SPARSE if row["ID_County"] == 11000]
    assert read_memilio(write(tmp_path / "a.json", named)).names == ("SK Flensburg", "11000")


def test_a_county_with_one_day_stays_with_zeros(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", [*SPARSE, *records(("2020-03-03", 9162, 1))])
    panel = read_memilio(path)
    assert panel.regions[1] == "09162"
    assert panel.counts[1].sum() == 0


POPULATION: Records = [
    {"ID_County": 1001, "Population": 90164, "<3 years": 2500, ">74 years": 9000},
    {"ID_County": 11000, "Population": 3669491, "<3 years": 110000, ">74 years": 380000},
    {"ID_County": 16063, "Population": 118974, "<3 years": 2900, ">74 years": 14000},
    {"ID_County": 16056, "Population": 42250, "<3 years": 1100, ">74 years": 5000},
]


def test_population_file(tmp_path: Path) -> None:
    people = write(tmp_path / "people.json", POPULATION)
    panel = read_memilio(write(tmp_path / "a.json", SPARSE), population=people)
    assert panel.population is not None
    assert panel.population.tolist() == [90164, 3669491]
    assert read_population(people)["16063"] == 118974 + 42250


def test_population_file_beside_the_cases_with_ids_as_text(tmp_path: Path) -> None:
    text = [row | {"ID_County": f"{row['ID_County']:05d}"} for row in POPULATION]
    write(tmp_path / "county_current_population.json", text)
    panel = load_panel(write(tmp_path / "cases_all_county.json", SPARSE))
    assert panel.population is not None
    assert panel.population.tolist() == [90164, 3669491]
    assert any("county_current_population.json" in note for note in panel.notes)


def test_population_of_a_county_missing(tmp_path: Path) -> None:
    people = write(tmp_path / "people.json", POPULATION[:1])
    with pytest.raises(EpifedError, match="no population for region 11000"):
        read_memilio(write(tmp_path / "a.json", SPARSE), population=people)


def test_population_with_a_county_twice_or_a_bad_number(tmp_path: Path) -> None:
    twice = write(tmp_path / "a.json", POPULATION + POPULATION[:1])
    with pytest.raises(EpifedError, match="row 1, column ID_County: found '1001'"):
        read_population(twice)
    bad = write(tmp_path / "b.json", [POPULATION[0] | {"Population": 0}])
    with pytest.raises(EpifedError, match="row 1, column Population: found '0'"):
        read_population(bad)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("2020-03-05", 11000, 14), r"row 6, column Confirmed: found 14 .* at least 15"),
        (("2020-03-05", 11000, -1), r"row 6, column Confirmed: found '-1'"),
        (("2020-03-05", 11000, None), r"row 6, column Confirmed: found an empty cell"),
        (("2020-03-05", 11000, "many"), r"row 6, column Confirmed: found 'many'"),
        (("5 March", 11000, 16), r"row 6, column Date: found '5 March'"),
        ((None, 11000, 16), r"row 6, column Date: found an empty cell"),
        (("2020-03-05", "Berlin", 16), r"row 6, column ID_County: found 'Berlin'"),
        (("2020-03-04", 11000, 16), r"row 6, .*11000 on 2020-03-04 a second time \(first in row 5"),
    ],
)
def test_a_bad_record_is_named(tmp_path: Path, row: tuple[Any, Any, Any], message: str) -> None:
    path = write(tmp_path / "a.json", [*SPARSE, *records(row)])
    with pytest.raises(EpifedError, match=message) as refused:
        read_memilio(path)
    assert str(path) in str(refused.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "found an empty file"),
        (b"[]", "found an empty list"),
        (b'[{"Date": "2020-', "found broken JSON"),
        (b'[{"Date": "M\xe4rz"}]', "found broken JSON"),
        (b'{"Date": {"0": "2020-03-01"}}', "expected a list of records"),
        (b'[{"Date": "2020-03-01", "ID_State": 1}]', "found no column ID_County, Confirmed"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(EpifedError, match=message):
        load_panel(path)


def test_one_day_gives_no_difference(tmp_path: Path) -> None:
    with pytest.raises(EpifedError, match="expected at least two"):
        read_memilio(write(tmp_path / "a.json", SPARSE[:2]))
