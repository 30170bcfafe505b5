"""Every file and every command of docs/your-data.md, run as it stands there."""

import inspect
import json
import re
import shlex
from dataclasses import fields
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

from epifed.cli.app import app
from epifed.cli.data import check
from epifed.cli.forecast import backtest, forecast
from epifed.cli.report import report
from epifed.cli.run import run
from epifed.cli.train import train
from epifed.data.readers import load_panel
from epifed.data.readers.tables import Assumptions
from tests import offices

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "your-data.md").read_text(encoding="utf-8")
SECTIONS = re.split(r"^## ", PAGE, flags=re.M)[1:]
COMMANDS = re.findall(r"^    ((?:cat \S+ \| )?epifed data .+)$", PAGE, flags=re.M)
REAL = "us_county_cases.parquet"


def file_of(command: str) -> str:
    return next(word for word in shlex.split(command) if "." in word and not word.startswith("-"))


def expected(name: str) -> NDArray[np.float64]:
    counts = offices.COUNTS.astype(float)
    if name == "averages.csv":
        return counts + 0.5
    if name == "linelist.csv":
        return counts[:2]
    if name == "hidden.csv":
        return np.where(counts < 8, 4.0, counts)
    if name == "words.csv":
        return np.where(np.arange(len(offices.DAYS)) == 3, 0.0, counts)
    if name == "export.csv":
        return np.concatenate([counts, counts[2:]])
    return counts


WEEKLY = ("weeks.csv", "survstat.csv", "starts.csv")
DAILY = [
    c for c in COMMANDS if "check" in c and REAL not in c and not any(name in c for name in WEEKLY)
]


@pytest.mark.parametrize("command", DAILY)
def test_the_command_reads_the_file(command: str, tmp_path: Path) -> None:
    name = file_of(command)
    path = offices.write(name, tmp_path)
    words = shlex.split(command.split("epifed ")[1].replace(name, str(path)))
    piped = path.read_bytes() if "|" in command else None
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        result = CliRunner(env={"COLUMNS": "200"}).invoke(app, [*words, "--json"], input=piped)
    assert result.exit_code == 0, result.output + str(result.exception)
    found = json.loads(result.stdout)
    if name == "corrected.csv":
        lost = offices.COUNTS[1, -1] + 5
        assert found["cases"] == offices.COUNTS.sum() - lost
        return
    assert found["cases"] == expected(name).sum()
    assert (found["first_day"], found["days"]) == ("2020-11-01", len(offices.DAYS))
    clean = tmp_path / "clean.parquet"
    convert = ["data", "convert", *words[2:], "--out", str(clean)]
    assert CliRunner().invoke(app, convert, input=piped).exit_code == 0
    counts = load_panel(clean, id_width=0, decimal=".").counts
    assert np.array_equal(counts, expected(name))


def test_weeks_are_read_and_converted(tmp_path: Path) -> None:
    path = offices.write("weeks.csv", tmp_path)
    (command,) = [c for c in COMMANDS if "convert" in c]
    out = tmp_path / "weekly.csv"
    words = shlex.split(command.replace("weekly.csv", str(out)).replace("weeks.csv", str(path)))
    assert CliRunner().invoke(app, words[1:]).exit_code == 0
    table = pl.read_csv(out, try_parse_dates=True)
    assert set(table["date"].dt.weekday()) == {7}
    assert table["cases"].to_list() == [
        offices.COUNTS[row, i : i + 7].sum() for row in range(3) for i in range(1, 29, 7)
    ]
    assert json.loads((tmp_path / "weekly.csv.json").read_text())["read_as"]["cadence"] == "week"
    (check,) = [c for c in COMMANDS if "data check weeks.csv" in c]
    words = shlex.split(check.replace("weeks.csv", str(path)))[1:]
    for read in (words, ["data", "check", str(out)]):
        checked = CliRunner().invoke(app, [*read, "--json"])
        assert checked.exit_code == 1  # four weeks are too few for a forecast
        found = json.loads(checked.stdout)
        assert (found["step"], found["days"]) == ("week", 4)
        assert found["cases"] == offices.COUNTS[:, 1:29].sum()


@pytest.mark.parametrize("name", WEEKLY[1:])
def test_weeks_in_two_columns_or_by_their_first_days(name: str, tmp_path: Path) -> None:
    (command,) = [c for c in COMMANDS if name in c]
    words = shlex.split(command.replace(name, str(offices.write(name, tmp_path))))[1:]
    checked = CliRunner().invoke(app, [*words, "--json"])
    assert checked.exit_code == 1, checked.output
    found = json.loads(checked.stdout)
    assert (found["step"], found["days"]) == ("week", 4)
    assert found["first_day"] == str(offices.DAYS[7])
    assert found["cases"] == offices.COUNTS[:, 1:29].sum()


def test_no_command_hides_an_option_of_reading() -> None:
    """What `data check` offers must mean the same in every command that reads cases."""
    for command in (backtest, check, forecast, report, run, train):
        there = inspect.signature(command).parameters
        hidden = {one.name for one in fields(Assumptions)} - {
            name.removeprefix("read_") for name in there if name.startswith("read_")
        }
        assert not hidden, f"{command.__name__} hides {hidden}"


def test_every_file_is_on_the_page_as_it_is() -> None:
    shown = set()
    for section in SECTIONS:
        commands = re.findall(r"^    (.*epifed data .+)$", section, flags=re.M)
        names = {file_of(command) for command in commands} - {REAL}
        shown |= names
        shows = re.findall(r"```text\n([^`]*)```\n\n    epifed data check (\S+)", section)
        assert len(shows) == section.count("```text")
        for block, name in shows:
            encoding = "latin-1" if name == "faelle.csv" else "utf-8"
            lines = offices.FILES[name]().decode(encoding).splitlines()
            beginning, _, later = block.partition("…\n")
            first = beginning.splitlines()
            if later:
                assert lines[: len(first)] == first, f"{name}: {block}"
            else:
                assert "\n".join(lines).startswith(block.rstrip("\n")), f"{name}: {block}"
            rest = iter(lines[len(first) :])
            assert all(line in rest for line in later.splitlines()), f"{name}: {block}"
    assert shown == set(offices.FILES)


def test_the_american_counties_are_read_as_they_are(real_data: Path) -> None:
    path = real_data / REAL
    if not path.is_file():
        pytest.skip(f"no {REAL} in {real_data}")
    (command,) = [c for c in COMMANDS if REAL in c]
    result = CliRunner().invoke(app, [*shlex.split(command.replace(REAL, str(path)))[1:], "--json"])
    found = json.loads(result.stdout)
    raw = pl.read_parquet(path)
    assert found["regions"] == raw["county"].n_unique() == 3144
    (note,) = [one for one in found["notes"] if "negative" in one]
    assert note.startswith(f"{(raw['cases'] < 0).sum():,} negative counts")
    left = int(note.split("; ")[1].split()[0].replace(",", ""))
    assert found["cases"] - left == raw["cases"].sum()
