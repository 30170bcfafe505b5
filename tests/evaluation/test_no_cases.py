"""A country without a case: nothing to beat, and nothing is said to be better or worse."""

import json
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from epifed.cli.app import app
from tests.helpers import START
from tests.report import test_report_browser
from tests.report.test_report_browser import Watched

browser, watched = test_report_browser.browser, test_report_browser.watched
DAYS = 90


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("none") / "cases.csv"
    rows = [(START + timedelta(days=day), f"{i:05d}", 0) for i in range(8) for day in range(DAYS)]
    pl.DataFrame(rows, schema=["date", "region", "cases"], orient="row").write_csv(path)
    return path


@pytest.fixture(scope="module")
def results(cases: Path) -> tuple[Path, str]:
    out = cases.parent / "out"
    words = ["run", "--data", str(cases), "--out", str(out), "--learner", "one-shot"]
    words += ["--runs", "1", "--epsilon", "1", "--epsilon", "inf", "--workers", "1"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    return out, result.output


def test_like_today_has_no_ratio_to_itself(results: tuple[Path, str]) -> None:
    rows = [line.split("│") for line in results[1].splitlines() if "persistence  " in line]
    ratios = [cells[3].strip() for cells in rows if len(cells) > 3]
    assert ratios == ["–", "–"]
    assert "nothing to beat" in results[1]


def test_explain_says_nothing_of_better_or_worse(results: tuple[Path, str]) -> None:
    for folder in (results[0], results[0] / "backtest"):
        result = CliRunner().invoke(app, ["explain", str(folder)])
        assert result.exit_code == 0, result.output
        assert "nan" not in result.output and "persistence" not in result.output


@pytest.mark.parametrize("locale", ["en-GB", "de-DE"])
@pytest.mark.skipif(
    test_report_browser.CHROMIUM is None,
    reason="no chromium on this machine: 'make chromium' installs it as root",
)
def test_the_page_compares_nothing(
    watched: Watched, results: tuple[Path, str], locale: str
) -> None:
    page = watched.open(results[0] / "report.html", locale=locale)
    said = page.inner_text("main")
    for wrong in (
        "– %",
        "inf\n",
        "∞ ×",
        "– ×",
        "NaN",
        "worse than",
        "larger than with",
        " 1 rounds",
    ):
        assert wrong not in said
    for wrong in ("schlechter als", "größer als mit", "kleiner als mit", "von 1 Runden"):
        assert wrong not in said


def test_a_backtest_shows_a_dash(cases: Path) -> None:
    words = ["backtest", "--data", str(cases), "--epsilon", "1", "--workers", "1"]
    last = START + timedelta(days=DAYS - 1)
    words += ["--from", str(last - timedelta(days=21)), "--to", str(last)]
    words += ["--out", str(cases.parent / "backtest")]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output + str(result.exception)
    (line,) = (line for line in result.output.splitlines() if line.startswith("│ all"))
    assert [cell.strip() for cell in line.split("│")[3:5]] == ["–", "–"]
    record = json.loads((cases.parent / "backtest" / "backtest.json").read_text())
    assert record["wis_ratio"] is None
