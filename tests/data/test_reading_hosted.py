"""A site reads its clients' rows as an office reads its file, and each client by itself."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from epifed.errors import EpifedError
from epifed.federation.site import load_hosted
from tests import offices
from tests.fuzzing import RIGHT


@pytest.mark.parametrize(
    "name",
    ["cases.csv", "faelle.csv", "us.csv", "wide.csv", "regions.csv", "cumulative.csv", "ages.csv",
     "export.csv", "unicode.txt", "cases.csv.gz", "cases.zip", "cases.parquet", "cases.xlsx"],
)  # fmt: skip
def test_a_site_reads_what_an_office_reads(name: str, tmp_path: Path) -> None:
    path = offices.write(name, tmp_path)
    hosted = load_hosted(path, ["01001", "09162"], **RIGHT.get(name, {}))
    assert hosted.left_out == {}
    assert hosted.panel is not None
    assert hosted.panel.regions == ("01001", "09162")
    assert np.array_equal(hosted.panel.counts, offices.COUNTS[[0, 2]])


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ([f"{day},x,{i}" for i, day in enumerate(offices.DAYS)], "look accumulated"),
        ([f"{day},x,{i % 3}" for i, day in enumerate(offices.DAYS[::7])], "a row for each week"),
        ([f"{day},x,-1" for day in offices.DAYS[:1]], "--negatives spread"),
        ([f"{day},x,1.234" for day in offices.DAYS[:1]], "--thousands ."),
        (["03/04/2021,x,1"], "%m/%d/%Y"),
        ([f"{offices.DAYS[0]},x,1"] * 2, "--duplicates sum"),
    ],
)
def test_a_client_that_must_be_said_more_of_is_left_out_alone(
    bad: list[str], why: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress((offices.tidy() + "\n".join(bad)).encode()))
    hosted = load_hosted(path, [*offices.REGIONS, "x"])
    assert why in hosted.left_out["x"]
    assert hosted.left_out.keys() == {"x"}
    assert hosted.panel is not None
    assert np.array_equal(hosted.panel.counts, offices.COUNTS)


@pytest.mark.parametrize("name", ["wide.csv", "regions.csv"])
def test_a_delimiter_at_the_end_of_each_line_is_no_column(name: str, tmp_path: Path) -> None:
    path = offices.write(name, tmp_path)
    usual = load_hosted(path, offices.REGIONS, **RIGHT.get(name, {}))
    first = path.read_text().splitlines()[0]
    sign = max(";,|\t", key=first.count)
    path.write_text("\n".join(line + sign for line in path.read_text().splitlines()))
    hosted = load_hosted(path, offices.REGIONS, **RIGHT.get(name, {}))
    assert usual.panel is not None and hosted.panel is not None
    assert np.array_equal(hosted.panel.counts, usual.panel.counts)


@pytest.mark.parametrize(
    ("header", "rows", "bad", "options", "why"),
    [
        (
            "date,region,disease",
            [f"{day},{region},flu" for day in offices.DAYS for region in "ab"],
            f"{offices.DAYS[0]},b,measles",
            {"line_list": True},
            "found cases of several kinds, flu, measles",
        ),
        (
            "year,week,region,cases",
            [f"2025,{week},{region},{week % 3}" for week in range(1, 31) for region in "ab"],
            "20x5,31,b,4",
            {"date": "year+week", "date_format": "iso-week", "step": "week"},
            "column year+week: found '20x5-31'; expected a year and the number of a week",
        ),
    ],
)
def test_one_clients_row_silences_no_other_client_of_its_site(
    header: str, rows: list[str], bad: str, options: dict[str, Any], why: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.csv"
    path.write_text("\n".join([header, *rows]))
    usual = load_hosted(path, ["a", "b"], **options)
    path.write_text("\n".join([header, *rows, bad]))
    hosted = load_hosted(path, ["a", "b"], **options)
    assert hosted.left_out.keys() == {"b"}
    assert why in hosted.left_out["b"]
    assert usual.panel is not None and hosted.panel is not None
    assert np.array_equal(hosted.panel.counts, usual.panel.of(["a"]).counts)


def test_a_format_that_is_read_whole_or_not_at_all_is_for_a_site_with_one_client(
    tmp_path: Path,
) -> None:
    path = tmp_path / "cases.json"
    days = [{"Date": f"2021-01-{day:02}", "ID_County": 1001, "Confirmed": day} for day in (1, 2)]
    path.write_text(json.dumps(days))
    hosted = load_hosted(path, ["01001"])
    assert hosted.panel is not None
    assert hosted.panel.regions == ("01001",)
    with pytest.raises(EpifedError, match="found the format 'memilio' at a site with 2 clients"):
        load_hosted(path, ["01001", "01002"])
