"""`epifed nowcast`, `data check --vintages` and the archive of `forecast`, as users run them."""

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from epifed.cli.app import app
from epifed.data.panel import CasePanel
from epifed.data.readers import load_panel
from epifed.data.vintages import FILE, Vintages, remember
from tests.late_lists import late_list

DAY = timedelta(days=1)


def run(*arguments: str | Path, code: int = 0) -> str:
    result = CliRunner(env={"COLUMNS": "140"}).invoke(app, [str(one) for one in arguments])
    if code:
        assert result.exception is not None
        return str(result.exception)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> tuple[CasePanel, Vintages, Path]:
    panel, late = late_list(regions=3, onsets=True)
    path = tmp_path_factory.mktemp("list") / "list.parquet"
    late.to_frame().write_parquet(path)
    return panel, late, path


def test_a_nowcast_as_json_tables_and_figures(
    listed: tuple[CasePanel, Vintages, Path], tmp_path: Path
) -> None:
    _, late, path = listed
    out = tmp_path / "out"
    found = json.loads(run("nowcast", "--vintages", path, "--out", out, "--json"))
    assert found["as_of"] == str(late.last)
    assert [week["region"] for week in found["week"]] == list(late.regions)
    for week in found["week"]:
        assert week["known"] < week["estimate"] < week["upper_95"]
    assert 0.5 < found["onset_known"] < 0.8
    assert found["generation_time"] == {"mean": 4.7, "sd": 2.9}
    assert len(found["reproduction"]) == 3 * 14
    last = pl.read_csv(out / "reproduction.csv").row(-1, named=True)
    assert last["q0.025"] < 1.1 and last["q0.975"] > 0.9
    names = {"reported.csv", "onset.csv", "reproduction.csv", *(f"{r}.png" for r in late.regions)}
    assert {one.name for one in out.iterdir()} == names
    onsets = pl.read_csv(out / "onset.csv")
    assert (onsets["known"] <= onsets["imputed"] + 1e-9).all()


def test_a_nowcast_of_an_earlier_morning_knows_nothing_later(
    listed: tuple[CasePanel, Vintages, Path], tmp_path: Path
) -> None:
    _, late, path = listed
    morning = late.last - 10 * DAY
    cut = tmp_path / "cut.parquet"
    late.until(morning).to_frame().write_parquet(cut)
    common = ("--region", "00001", "--out", tmp_path / "out", "--json")
    then = run("nowcast", "--vintages", path, "--as-of", str(morning), *common)
    assert json.loads(then) == json.loads(run("nowcast", "--vintages", cut, *common))


def test_an_own_list_without_onsets_has_a_number_by_report(tmp_path: Path) -> None:
    _, late = late_list(regions=1, level=6)
    rows = ["entered,Meldedatum"]
    for change in late.changes.iter_rows(named=True):
        rows += [f"{change['as_of'] - DAY},{change['reported']}"] * change["cases"]
    path = tmp_path / "amt.csv"
    path.write_text("\n".join(rows) + "\n")
    told = run("nowcast", "--vintages", path, "--column-entry", "entered", "--out", tmp_path / "o")
    assert "by reporting date: the list has no onsets of the last weeks" in " ".join(told.split())
    assert "amt" in told


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--region", "nowhere"), "found no vintages of region nowhere"),
        (("--as-of", "2020-01-01"), "expected one as of 2020-01-01 or before"),
        (("--as-of", "2031-01-01"), "--as-of: found 2031-01-01; expected at most"),
        (("--generation-mean", "0.5"), "expected a mean above 1"),
        (("--region", "00001", "--region", "00001"), "found 00001 more than once"),
    ],
)
def test_a_mistake_is_one_sentence(
    listed: tuple[CasePanel, Vintages, Path],
    tmp_path: Path,
    arguments: tuple[str, ...],
    sentence: str,
) -> None:
    out = tmp_path / "out"
    assert sentence in run("nowcast", "--vintages", listed[2], "--out", out, *arguments, code=2)
    assert not out.exists()


def test_a_morning_on_which_nobody_looked_is_said(
    listed: tuple[CasePanel, Vintages, Path], tmp_path: Path
) -> None:
    _, late, _ = listed
    gap = late.last - 3 * DAY
    path = tmp_path / "gap.parquet"
    late.to_frame().filter(pl.col("as_of") != gap).write_parquet(path)
    said = run("nowcast", "--vintages", path, "--as-of", str(gap), "--out", tmp_path / "o", code=2)
    assert f"found {gap}, for which" in said and f"such as {gap - DAY}" in said


def test_an_own_list_without_an_entry_since_friday_has_a_nowcast_of_monday(tmp_path: Path) -> None:
    _, late = late_list(regions=1, level=6)
    rows = ["entered,Meldedatum"]
    for change in late.changes.iter_rows(named=True):
        rows += [f"{change['as_of'] - DAY},{change['reported']}"] * change["cases"]
    path, monday = tmp_path / "amt.csv", late.last + 3 * DAY
    path.write_text("\n".join(rows) + "\n")
    common = ("--vintages", path, "--column-entry", "entered", "--out", tmp_path / "o", "--json")
    found = json.loads(run("nowcast", *common, "--as-of", str(monday)))
    assert found["as_of"] == str(monday)
    assert found["reported"][-1]["date"] == str(monday - DAY)
    assert found["week"][0]["estimate"] > found["week"][0]["known"]


def test_check_shows_completeness_by_lag_and_weekday(
    listed: tuple[CasePanel, Vintages, Path], tmp_path: Path
) -> None:
    panel, _, path = listed
    data = tmp_path / "cases.csv"
    panel.to_long().rename({"day": "date"}).write_csv(data)
    told = run("data", "check", data, "--vintages", path)
    assert "How complete days are" in told
    assert "Sun" in told
    found = json.loads(run("data", "check", data, "--vintages", path, "--json"))["vintages"]
    assert found["missing_mornings"] == []
    first = next(row for row in found["completeness"] if row["lag"] == 0 and not row["weekday"])
    assert first["share"] == pytest.approx(0.5, abs=0.05)


def test_a_forecast_keeps_what_it_is_given_and_fills_late_days_up_in_two_weeks(
    tmp_path: Path,
) -> None:
    panel, late = late_list(regions=2)
    model, data, kept = tmp_path / "m.epifed", tmp_path / "own.csv", tmp_path / "kept"
    whole = tmp_path / "all.csv"
    panel.to_long().rename({"day": "date"}).write_csv(whole)
    run("train", "--data", whole, "--learner", "real-time", "--epsilon", "100", "--seeded",
        "--to", str(late.last - 20 * DAY), "--out", model)  # fmt: skip

    def write(back: int) -> None:
        """The file as it was so many mornings before the last."""
        morning = replace(late.as_known(late.last - back * DAY, like=panel), history=None)
        morning.to_long().rename({"day": "date"}).write_csv(data)

    def timeliness(back: int) -> str:
        """What a forecast of that morning prints of late reports."""
        write(back)
        told = run("forecast", model, "--data", data, "--archive", kept, "--out",
                   tmp_path / "out", "--json")  # fmt: skip
        return str(json.loads(told)["timeliness"])

    first = timeliness(14)
    for back in range(13, 0, -1):  # the forecasts in between keep their files alike
        write(back)
        remember(kept, load_panel(data))
    last = timeliness(0)
    assert "1 of 14 days are archived" in first
    assert "looks incomplete and is left out" in first
    assert last == "late reports are filled up, from 15 vintages of your own list"
    assert (kept / FILE).is_file()
