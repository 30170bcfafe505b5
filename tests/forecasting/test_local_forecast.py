"""An office's own file: from what offices write to a forecast, and what is wrong on the way."""

import json
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import fastexcel
import numpy as np
import polars as pl
import pytest
import xlsxwriter
from typer.testing import CliRunner, Result

from epifed.cli.app import app
from epifed.data.panel import CasePanel
from epifed.data.quality import refuse_stray_days
from epifed.data.readers import load_panel
from epifed.data.readers.vintage_files import read_vintages
from epifed.data_check import check_panel
from epifed.errors import EpifedError
from epifed.evaluation.results_folder import read_folder
from epifed.local_forecast import forecast_alone
from tests.late_lists import late_list

START = date(2024, 1, 1)
KREISE = ("Adorf", "Bestadt", "Cehausen", "Dedorf", "Efeld", "Gehofen")
WEEKDAYS = np.array([1.1, 1.3, 1.2, 1.1, 1.0, 0.7, 0.6])


def cases(regions: int = 6, days: int = 140, level: float = 60.0, seed: int = 0) -> CasePanel:
    """Waves with a weekly rhythm."""
    rng = np.random.default_rng(seed)
    day = np.arange(days)
    mean = level * WEEKDAYS[day % 7] * np.exp(0.9 * np.sin(day / 35))
    counts = rng.poisson(np.outer(np.linspace(0.5, 1.5, regions), mean))
    return CasePanel(counts.astype(float), KREISE[:regions], START)


def command(*words: object, code: int = 0) -> Result:
    done = CliRunner().invoke(app, [str(word) for word in words])
    found = 2 if isinstance(done.exception, EpifedError) else done.exit_code
    assert found == code, (done.output, done.exception)
    return done


@pytest.mark.parametrize("days_after", [90, -300])
def test_a_day_of_another_year_is_refused_instead_of_months_of_zeros(days_after: int) -> None:
    table = cases(1).to_long().rename({"day": "date"})
    stray = table[:1].with_columns(pl.col("date") + timedelta(days=days_after + 139))
    with pytest.raises(EpifedError, match=r"and then nothing until .* is a year mistyped"):
        forecast_alone(pl.concat([table, stray]))
    rare = pl.DataFrame({
        "date": [date(2020, month, 3) + timedelta(i) for month in (1, 5, 9) for i in range(3)],
        "region": "a", "cases": [1, 0, 2] * 3,
    })  # fmt: skip
    refuse_stray_days(load_panel(rare, cadence="day"))


@pytest.mark.parametrize("regions", [1, 6])
def test_a_file_forecasts_itself(regions: int) -> None:
    panel = cases(regions)
    made = forecast_alone(panel)
    assert [one.weeks_ahead for one in made.learner_record] == [1, 2, 3, 4]
    assert made.learner_record[0].origins >= 10
    assert regions == 1 or made.method == "trend"
    assert made.origin == panel.end
    table = made.table()
    assert len(table) == 4 * (regions + 1)
    assert (table["lower_95"] <= table["lower_50"]).all()
    assert (table["upper_50"] <= table["upper_95"]).all()
    total = table.filter(region="total", weeks_ahead=1).row(0, named=True)
    assert total["like_today"] == pytest.approx(panel.counts[:, -7:].sum(), abs=0.1)
    assert made.settings.epsilon == float("inf")


def test_a_learner_that_loses_is_not_shown() -> None:
    """Cases without any trend: what moves is chance, and to follow it is a mistake."""
    rng = np.random.default_rng(5)
    panel = replace(cases(1), counts=rng.poisson(3.0, size=(1, 140)).astype(float))
    made = forecast_alone(panel)
    assert made.learner_record[0].relative_mae is not None
    lost = made.learner_record[0].relative_mae >= 1 or "all weeks ahead" in made.reason
    assert lost == (made.method == "persistence")
    assert made.method == "persistence"
    assert (made.forecasts[0].point == made.like_today).all()
    assert "persistence is shown" in made.reason
    assert made.track_record[0].relative_mae == 1.0


def test_the_past_knows_nothing_of_the_future() -> None:
    """The forecasts of the track record are those that the file of that day would have made."""
    panel = cases()
    week_ago = panel.end - timedelta(days=7)
    then = forecast_alone(panel.between(panel.start, week_ago), weeks=1)
    past = forecast_alone(panel, weeks=1).past.filter(origin_date=week_ago)
    if then.method == "trend":
        assert past["point"].to_list() == pytest.approx(then.forecasts[0].point.tolist())


def test_three_incomplete_days_do_not_halve_the_forecast(tmp_path: Path) -> None:
    whole = cases(level=9.5, days=143)
    counts = whole.counts.copy()
    for lag, share in enumerate((0.1, 0.3, 0.5)):
        counts[:, -1 - lag] = np.round(counts[:, -1 - lag] * share)
    late = replace(whole, counts=counts)
    made, complete = forecast_alone(late), forecast_alone(whole)
    assert made.incomplete_days == 3
    assert made.origin == whole.end - timedelta(days=3)
    assert "last 3 days" in " ".join(made.notes)
    first, other = made.total[0].point[0], complete.total[0].point[0]
    assert first == pytest.approx(other, rel=0.25)
    kept = forecast_alone(late, incomplete_days=0)
    assert kept.incomplete_days_found == 3
    assert kept.origin == whole.end
    late.to_table().write_csv(tmp_path / "late.csv")
    said = command("data", "check", tmp_path / "late.csv")
    assert "the last 3 days look incomplete" in " ".join(said.output.split())
    done = command(
        "forecast", "--data", tmp_path / "late.csv", "--out", tmp_path / "o", "--incomplete-days", 2
    )  # fmt: skip
    printed = " ".join(done.stderr.split())
    assert "2 are left out, as chosen" in printed
    assert printed.count("look incomplete") == 1


def test_a_release_that_learned_from_incomplete_days_is_refused(tmp_path: Path) -> None:
    panel = cases(level=40.0, days=120)
    counts = panel.counts.copy()
    counts[:, -3:] = np.round(counts[:, -3:] * [0.5, 0.3, 0.1])
    data, model, out = tmp_path / "late.csv", tmp_path / "m.epifed", tmp_path / "out"
    replace(panel, counts=counts).to_table().write_csv(data)
    command(
        "train", "--data", data, "--learner", "trend", "--epsilon", 100, "--seeded", "--out", model
    )
    asked = ("forecast", model, "--data", data, "--out", out, "--archive", tmp_path / "kept")
    refused = command(*asked, code=2)
    complete = panel.end - timedelta(days=3)
    assert f"expected a release of days up to {complete}" in str(refused.exception)
    assert not out.exists()
    command(*asked, "--incomplete-days", 0)
    assert out.exists()


def test_one_command_writes_page_table_and_workbook(tmp_path: Path) -> None:
    panel = replace(cases(2), regions=("=1+1", "b"), names=("=1+1", "b"))
    panel.to_table().write_csv(tmp_path / "cases.csv")
    out = tmp_path / "out"
    done = command("forecast", "--data", tmp_path / "cases.csv", "--out", out)
    assert "No noise: nothing leaves this machine" in " ".join(done.stdout.split())
    table = pl.read_csv(out / "forecast.csv")
    assert set(table["region"]) == {"'=1+1", "b", "total"}
    assert (out / "report.html").stat().st_size > 100_000
    book = fastexcel.read_excel(out / "forecast.xlsx")
    assert book.sheet_names == ["forecast", "notes", "chart data", "quantiles"]
    sheet = book.load_sheet("forecast").to_polars()
    assert set(sheet["region"]) == {"=1+1", "b", "total"}
    assert len(book.load_sheet("quantiles").to_polars()) == 4 * 3 * 23
    again = tmp_path / "again.html"
    command("report", out, "--data", tmp_path / "cases.csv", "--out", again)
    assert again.stat().st_size > 100_000
    folder = read_folder(out)
    assert folder.manifest.forecast is not None
    assert not folder.seeded


def test_text_of_a_workbook_is_no_formula(tmp_path: Path) -> None:
    import zipfile  # noqa: PLC0415

    panel = replace(cases(1), regions=("=HYPERLINK(1)",), names=("=HYPERLINK(1)",))
    forecast_alone(panel, weeks=1).write_workbook(tmp_path / "x.xlsx")
    with zipfile.ZipFile(tmp_path / "x.xlsx") as file:
        sheets = [name for name in file.namelist() if name.startswith("xl/worksheets/sheet")]
        assert sheets
        assert all(b"<f>" not in file.read(name) for name in sheets)


def test_the_command_as_json(tmp_path: Path) -> None:
    cases(2).to_table().write_csv(tmp_path / "cases.csv")
    done = command(
        "forecast", "--data", tmp_path / "cases.csv", "--out", tmp_path / "o", "--json",
        "--alone", "Adorf",
    )  # fmt: skip
    printed = json.loads(done.stdout)
    assert {row["region"] for row in printed["forecast"]} == {"Adorf", "total"}
    assert len(printed["track_record"]) == 4


def test_a_forecast_from_a_release_has_a_page(tmp_path: Path) -> None:
    cases(3).to_table().write_csv(tmp_path / "cases.csv")
    model, out = tmp_path / "m.epifed", tmp_path / "out"
    data = ("--data", tmp_path / "cases.csv")
    command("train", *data, "--learner", "trend", "--epsilon", 1, "--seeded", "--out", model)
    command("forecast", model, *data, "--out", out, "--archive", tmp_path / "a")
    wide = pl.read_csv(out / "forecast.csv")
    assert {"like_today", "forecast", "lower_95", "upper_95"} <= set(wide.columns)
    command("report", out, *data, "--out", tmp_path / "page.html")
    assert (tmp_path / "page.html").is_file()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "--data: found none"),
        (("--data", "{}", "--ledger", "x"), "--ledger: found without a release file; expected one"),
        (("--data", "{}", "--week-ends", "sunday"), "--week-ends: found without a release file"),
        (("--data", "{}", "--alone", "nowhere"), "region: found 'nowhere'; expected one of Adorf"),
        (("--data", "{}", "--incomplete-days", 400), "incomplete days: found 400; expected 0 to"),
    ],
)  # fmt: skip
def test_mistakes_are_one_sentence(tmp_path: Path, words: tuple[Any, ...], sentence: str) -> None:
    path = tmp_path / "cases.csv"
    cases(2).to_table().write_csv(path)
    typed = [str(word).replace("{}", str(path)) for word in words]
    done = command("forecast", *typed, "--out", tmp_path / "out", code=2)
    assert sentence in str(done.exception)
    assert not (tmp_path / "out" / "report.html").exists()


@pytest.mark.parametrize(("days", "weeks"), [(27, 0), (28, 1), (36, 2), (60, 4)])
def test_a_short_file_is_refused_by_all_or_by_none(tmp_path: Path, days: int, weeks: int) -> None:
    panel = cases(2, days)
    assert check_panel(panel).enough_days == (weeks > 0)
    panel.to_table().write_csv(tmp_path / "cases.csv")
    command("data", "check", tmp_path / "cases.csv", code=0 if weeks else 1)
    if not weeks:
        with pytest.raises(EpifedError, match=r"found 27 days .* expected at least 28"):
            forecast_alone(panel)
        return
    made = forecast_alone(panel)
    assert len(made.forecasts) == weeks
    weekly = cases(2, 7 * 20).weekly()
    assert len(forecast_alone(weekly).forecasts) == 4


def test_days_in_the_future_are_noticed(tmp_path: Path) -> None:
    panel = cases(2)
    report = check_panel(panel, today=panel.end - timedelta(days=3))
    assert report.future_days == 3
    assert "3 days after today" in " ".join(report.warnings)
    assert check_panel(panel, today=panel.end).future_days == 0
    weekly = panel.weekly()
    assert check_panel(weekly, today=weekly.end - timedelta(days=6)).future_days == 0
    far = replace(panel, start=date(2090, 1, 1))
    far.to_table().write_csv(tmp_path / "far.csv")
    done = command("data", "check", tmp_path / "far.csv", code=1)
    assert "after today" in " ".join(done.output.split())


def office_csv(path: Path, *, hidden: bool, thousands: bool) -> Path:
    rows = ["Datum;Landkreis;Fälle;Einwohner"]
    for day in range(40):
        for name, level in (("Adorf", 1200 if thousands else 120), ("Bestadt", 3)):
            number = level + (37 * day) % 60
            text = f"{number // 1000}.{number % 1000:03d}" if number >= 1000 else str(number)
            if name == "Bestadt":
                text = "<5" if hidden and day % 3 else str(day % 7 + 5)
            rows.append(f"{START + timedelta(days=day):%d.%m.%Y};{name};{text};45000")
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


NAMED: dict[str, Any] = {"date": "Datum", "region": "Landkreis", "cases": "Fälle"}


@pytest.mark.parametrize("hidden", [False, True])
def test_a_thousand_is_never_one_and_a_bit(tmp_path: Path, hidden: bool) -> None:
    path = office_csv(tmp_path / "cases.csv", hidden=hidden, thousands=True)
    below: dict[str, Any] = {"below": 2} if hidden else {}
    with pytest.raises(EpifedError, match=r"found '1\.2\d\d'; expected a number"):
        load_panel(path, **NAMED, **below)
    words = [word for pair in {"--column-date": "Datum", "--column-region": "Landkreis",
             "--column-cases": "Fälle", **({"--below": "2"} if hidden else {})}.items()
             for word in pair]  # fmt: skip
    command("data", "convert", path, tmp_path / "out.csv", *words, code=2)
    assert not (tmp_path / "out.csv").exists()
    panel = load_panel(path, **NAMED, **below, thousands=".")
    assert panel.counts[0, 0] == 1200
    if hidden:
        assert panel.counts[1, 1] == 2
        assert "hidden counts such as <5 are 2" in " ".join(panel.notes)


def test_inhabitants_in_german_are_recognised(tmp_path: Path) -> None:
    path = office_csv(tmp_path / "cases.csv", hidden=False, thousands=False)
    panel = load_panel(path, **NAMED)
    assert panel.population is not None
    assert panel.population.tolist() == [45000, 45000]
    assert "Einwohner is taken as the population" in panel.notes


def test_without_population_the_consequence_is_said(tmp_path: Path) -> None:
    panel = cases(2)
    panel.to_table().write_csv(tmp_path / "cases.csv")
    said = " ".join(command("data", "check", tmp_path / "cases.csv").output.split())
    assert "not in the source: no incidences" in said
    assert any("no population" in note for note in forecast_alone(panel).notes)


def test_one_region_is_told_what_to_do_instead(tmp_path: Path) -> None:
    cases(1).to_table().write_csv(tmp_path / "cases.csv")
    done = command(
        "train", "--data", tmp_path / "cases.csv", "--learner", "trend", "--epsilon", 1,
        "--seeded", "--out", tmp_path / "m.epifed",
    )  # fmt: skip
    said = " ".join(done.stderr.split())
    assert "needs no noise: 'epifed forecast --data FILE'" in said
    assert any("one region" in note for note in forecast_alone(cases(1)).notes)


def test_sheets_are_regions_if_that_is_said(tmp_path: Path) -> None:
    path = tmp_path / "cases.xlsx"
    panel = cases(3)
    with xlsxwriter.Workbook(path) as book:
        for row, name in enumerate(panel.regions):
            sheet = book.add_worksheet(name)
            sheet.write_row(0, 0, ["date", "cases"])
            for day, count in enumerate(panel.counts[row]):
                sheet.write_row(day + 1, 0, [f"{panel.day(day)}", int(count)])
    with pytest.raises(EpifedError, match="add --regions-from sheets or --sheet Adorf"):
        load_panel(path)
    read = load_panel(path, regions_from="sheets")
    assert read.regions == panel.regions
    assert (read.counts == panel.counts).all()
    command("forecast", "--data", path, "--regions-from", "sheets", "--out", tmp_path / "out")


def line_list(path: Path, *, region: bool = True) -> Path:
    rng = np.random.default_rng(2)
    rows = []
    for day in range(70):
        for name in KREISE:
            for _ in range(int(rng.poisson(4))):
                reported = START + timedelta(days=day)
                entered = reported + timedelta(days=int(rng.integers(0, 3)))
                rows.append({"Meldedatum": reported, "Erfassungsdatum": entered, "Landkreis": name})
    frame = pl.DataFrame(rows).filter(pl.col("Erfassungsdatum") < START + timedelta(days=70))
    frame.select(pl.all() if region else pl.exclude("Landkreis")).write_csv(path)
    return path


def test_a_list_of_several_counties_is_not_pooled_in_silence(tmp_path: Path) -> None:
    path = line_list(tmp_path / "fallliste.csv")
    with pytest.raises(EpifedError, match="add --column-region Landkreis or --one-region"):
        read_vintages(path, entry="Erfassungsdatum")
    assert read_vintages(path, entry="Erfassungsdatum", region="Landkreis").regions == KREISE
    pooled = read_vintages(path, entry="Erfassungsdatum", one_region=True)
    assert pooled.regions == ("fallliste",)
    alone = line_list(tmp_path / "alone.csv", region=False)
    assert read_vintages(alone, entry="Erfassungsdatum").regions == ("alone",)
    with pytest.raises(EpifedError, match=r"add --column-known or, .* --column-entry"):
        read_vintages(path)
    done = command("nowcast", "--vintages", path, "--column-entry", "Erfassungsdatum",
                   "--out", tmp_path / "n", code=2)  # fmt: skip
    assert "--column-region Landkreis" in str(done.exception)


def test_a_list_with_dates_of_entry_has_a_nowcast(tmp_path: Path) -> None:
    path = line_list(tmp_path / "fallliste.csv")
    named = ("--column-date", "Meldedatum", "--column-region", "Landkreis")
    done = command(
        "data", "check", path, *named, "--line-list", "--vintages", path,
        "--column-entry", "Erfassungsdatum",
    )  # fmt: skip
    assert "How complete days are" in done.output
    out = tmp_path / "out"
    command("forecast", "--data", path, *named, "--line-list", "--column-entry", "Erfassungsdatum",
            "--out", out)  # fmt: skip
    nowcast = pl.read_parquet(out / "results" / "nowcast.parquet")
    assert set(nowcast["region"]) == set(KREISE)
    assert nowcast["r"].is_not_null().any()


def test_vintages_make_the_record_that_of_real_time() -> None:
    panel, late = late_list()
    last = late.last - timedelta(days=1)
    known = late.as_known(late.last, like=panel)
    made = forecast_alone(replace(known, history=None), weeks=2, vintages=late)
    assert made.learner == "real-time"
    assert made.origin == last
    assert made.nowcast is not None
    assert made.learner_record[0].origins >= 2
    week = slice(panel.index(last) - 6, panel.index(last) + 1)
    final, reported = (one.counts[:, week].sum() for one in (panel, known))
    assert reported < 0.92 * final
    assert 7 * made.like_today.sum() == pytest.approx(final, rel=0.05)
    past = made.past.group_by("origin_date").agg(pl.col("persistence", "persistence_final").sum())
    assert past["persistence"].to_list() == pytest.approx(past["persistence_final"].to_list(), 0.05)


def test_a_person_is_asked_in_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = office_csv(tmp_path / "cases.csv", hidden=True, thousands=True)
    words = ["forecast", "--data", str(path), "--out", str(tmp_path / "out")]
    refused = command(*words, code=2)
    assert "add --column-date Datum" in str(refused.exception)
    monkeypatch.setattr("epifed.cli.common.in_terminal", lambda: True)
    done = CliRunner().invoke(app, words, input="1\n1\n1\n")
    assert done.exit_code == 0, (done.output, done.exception)
    assert "next time: --thousands ." in done.stderr
    table = pl.read_csv(tmp_path / "out" / "forecast.csv")
    assert table.filter(region="Adorf")["like_today"][0] > 7000
    stopped = CliRunner().invoke(app, words, input="0\n")
    assert isinstance(stopped.exception, EpifedError)


def test_a_backtest_of_days_before_the_data_names_their_days(tmp_path: Path) -> None:
    path = tmp_path / "cases.csv"
    panel = cases(2)
    panel.to_table().write_csv(path)
    days = ("--from", "2001-01-01", "--to", "2001-02-01")
    done = command("backtest", "--data", path, *days, "--out", tmp_path / "out", code=2)
    said = f"--to: found 2001-02-01; expected a day from {panel.start} to {panel.end}"
    assert said in str(done.exception)
