"""A site reads its clients' rows as an office reads its file, and each client by itself."""

import gzip
import json
from pathlib import Path

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
