"""`epifed data` as a user runs it."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from epifed.cli.data import app
from epifed.errors import EpifedError
from tests.commands import epifed

TABLE = "date,region,cases\n" + "".join(
    f"2020-11-{day:02d},{region},{day % 9}\n" for region in ("01", "02") for day in range(1, 18)
)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "a.csv"
    path.write_text(TABLE)
    return path


def run(*arguments: str | Path, code: int = 0) -> str:
    result = CliRunner(env={"COLUMNS": "120"}).invoke(
        app, [str(argument) for argument in arguments]
    )
    if result.exception is not None and result.exit_code != code:
        raise result.exception
    return result.output


def test_check_prints_what_was_found(table: Path) -> None:
    text = run("check", table, code=1)
    for words in ("2020-11-01 to 2020-11-17", "gaps", "too few", "Sun", "backlog 0, silence 0"):
        assert words in text


def test_check_says_when_days_are_too_few(table: Path) -> None:
    table.write_text("".join(TABLE.splitlines(keepends=True)[:17]))
    assert "too few: it needs 28 days" in run("check", table, code=1)
    assert json.loads(run("check", table, "--json", code=1))["enough_days"] is False


def test_check_json_is_only_json(table: Path) -> None:
    report = json.loads(run("check", table, "--json", code=1))
    assert report["regions"] == 2
    assert report["cases"] == 144


def test_check_with_own_columns(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("Tag;Kreis;N;P\n2020-11-01;01;5;100\n2020-11-03;01;5;100\n")
    columns = ("--column-date", "Tag", "--column-region", "Kreis", "--column-cases", "N")
    text = run("check", path, *columns, "--column-population", "P", code=1)
    assert "1 region-day (33.3%) without a report" in text
    assert "100" in text


def test_check_refuses_what_does_not_fit(table: Path) -> None:
    with pytest.raises(EpifedError, match="date_column: not an option of the format tidy"):
        run("check", table, "--date-column", "Meldedatum")
    with pytest.raises(EpifedError, match="format: found 'xlsx'"):
        run("check", table, "--format", "xlsx")


def test_every_option_explains_itself() -> None:
    check, fetch = run("check", "--help"), run("fetch", "rki", "--help")
    for option in ("--format", "--date-column", "--column-population", "--json"):
        assert option in check
    for option in ("--url", "--cache", "--refresh", "EPIFED_RKI_URL", "EPIFED_CACHE"):
        assert option in fetch


def test_a_mistake_is_one_sentence_and_exit_code_2(table: Path) -> None:
    table.write_text(TABLE + "2020-11-18,01,-5\n")
    result = epifed("data", "check", table)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr == (
        f"epifed: {table}: row 36, column cases: found '-5'; expected a number of at least 0 "
        "(negative: 1 count, −5 cases in all); add --negatives spread or --negatives zero\n"
    )


def test_fetch_that_fails_is_one_sentence_and_exit_code_2(tmp_path: Path) -> None:
    url = "http://127.0.0.1:1/a.csv"
    result = epifed("data", "fetch", "rki", "--url", url, "--cache", tmp_path)
    assert result.returncode == 2
    assert result.stderr.startswith(f"epifed: {url}: cannot be reached")
    assert result.stderr.count("\n") == 1


def test_check_real_data(real_data: Path) -> None:
    text = run("check", real_data)
    assert "28,367,860" in text
    assert "03159" in text
