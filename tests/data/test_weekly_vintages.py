"""Weekly vintages: what was known when, revisions, further signals, and forecasts from them."""

import json
import math
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import epifed
from epifed.cli.app import app
from epifed.data.panel import CasePanel
from epifed.data.readers.vintage_files import holds_weeks, load_weekly_vintages
from epifed.data.weekly_vintages import WeeklyVintages, improved
from epifed.errors import EpifedError
from epifed.learners.pretrained import (
    FEATURES,
    PublicSeries,
    damped_trend,
    fit_pretrained,
    read_pretrained,
)

SATURDAY = date(2023, 9, 2)
LOW = 0.9
"""What is known of a newest week."""


def final_counts(regions: int = 8, weeks: int = 60) -> np.ndarray[Any, np.dtype[np.float64]]:
    rng = np.random.default_rng(5)
    wave = np.exp(1.2 * np.sin(np.arange(weeks) / 8))
    return rng.poisson(np.geomspace(50, 3000, regions)[:, None] * wave).astype(float)


def table(first: int = 20, weeks: int = 60, *, signal: bool = False) -> pl.DataFrame:
    """Vintages on Wednesdays whose newest week is a tenth low, and complete a week later."""
    final, rows = final_counts(weeks=weeks), []
    for last in range(first, weeks):
        as_of = SATURDAY + timedelta(days=7 * last + 4)
        for week in range(last + 1):
            day = SATURDAY + timedelta(days=7 * week)
            for row, cases in enumerate(final[:, week]):
                seen = round(LOW * cases) if week == last else cases
                rows.append((as_of, day, f"r{row}", "cases", float(seen)))
                if signal:
                    rows.append((as_of, day, f"r{row}", "visits", cases / 1e5))
    return pl.DataFrame(rows, schema=["as_of", "date", "region", "signal", "cases"], orient="row")


def test_a_newest_week_is_completed_as_earlier_ones_were() -> None:
    vintages = WeeklyVintages.from_table(table())
    last = len(vintages.snapshots) - 1
    known, final = vintages.as_known(vintages.newest(last)), final_counts()
    completed = vintages.completed(last)
    assert known.counts[:, -1] == pytest.approx(LOW * final[:, -1], rel=0.02)
    error, before = (np.abs(one[:, -1] / final[:, -1] - 1).mean() for one in
                     (completed, known.counts))  # fmt: skip
    assert before == pytest.approx(0.1, abs=0.01) and error < 0.02
    assert completed[:, :-4] == pytest.approx(final[:, :-4])


def test_nothing_is_learned_from_later_vintages() -> None:
    whole = WeeklyVintages.from_table(table())
    cut = WeeklyVintages.from_table(table().filter(pl.col("as_of") <= whole.snapshots[25]))
    assert np.array_equal(whole.revision(25), cut.revision(25))
    then = whole.until(whole.snapshots[25])
    assert then.snapshots == cut.snapshots and then.last == cut.last
    day = whole.newest(25)
    assert np.array_equal(whole.as_known(day).counts, cut.as_known(day).counts)


def test_regions_that_are_revised_more_learn_it_themselves() -> None:
    frame = table()
    late = (pl.col("region") == "r7") & (pl.col("as_of") - pl.col("date") < timedelta(days=7))
    frame = frame.with_columns(
        cases=pl.when(late).then((pl.col("cases") * 0.95).round()).otherwise("cases")
    )
    found = WeeklyVintages.from_table(frame)
    newest = found.revision(len(found.snapshots) - 1)[:, 0]
    assert newest[7] > newest[:7].max() + 0.02


def test_one_vintage_alone_changes_nothing() -> None:
    frame = table()
    first = WeeklyVintages.from_table(frame.filter(pl.col("as_of") == frame["as_of"].min()))
    assert np.array_equal(first.completed(0), first.as_known(first.newest(0)).counts)


def test_a_smooth_signal_improves_the_newest_weeks() -> None:
    rng = np.random.default_rng(1)
    truth = 80 * np.exp(np.cumsum(rng.normal(0, 0.1, (40, 30)), axis=1))
    noisy = rng.poisson(truth).astype(float)
    made = improved(noisy, truth / 1e4)
    before, after = (
        np.abs(np.log((one + 1) / (truth + 1)))[:, -5:].mean() for one in (noisy, made)
    )
    assert after < 0.8 * before
    assert np.array_equal(made[:, :-5], noisy[:, :-5])


@pytest.mark.parametrize("broken", [np.nan, -1.0, np.inf])
def test_a_missing_or_broken_signal_changes_nothing(broken: float) -> None:
    counts = final_counts()
    assert np.array_equal(improved(counts, np.full(counts.shape, broken)), counts)


def test_a_signal_that_cannot_be_is_left_out_with_a_note() -> None:
    frame = table(55, signal=True)
    bad = (pl.col("signal") == "visits") & (pl.col("date") == SATURDAY)
    wrong = frame.with_columns(cases=pl.when(bad).then(-1.0).otherwise("cases"))
    assert WeeklyVintages.from_table(frame).signals == ("visits",)
    found = WeeklyVintages.from_table(wrong)
    assert found.signals == () and "'visits' has values that cannot be" in found.notes[0]


def test_a_signal_that_stopped_is_noted_and_changes_nothing() -> None:
    frame = table(55, signal=True)
    last = frame["date"].max()
    assert isinstance(last, date)
    late = (pl.col("signal") == "visits") & (pl.col("date") > last - timedelta(weeks=5))
    stopped = WeeklyVintages.from_table(frame.filter(~late))
    assert "'visits' has no value of the last 5 weeks" in stopped.notes[0]
    without = WeeklyVintages.from_table(frame.filter(pl.col("signal") != "visits"))
    newest = len(stopped.snapshots) - 1
    assert np.array_equal(stopped.completed(newest), without.completed(newest))
    assert WeeklyVintages.from_table(frame).notes == without.notes == ()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"cases": -3.0}, "found -3; expected a value of at least 0"),
        ({"date": date(2030, 1, 5)}, "of a week up to its vintage"),
        ({"date": SATURDAY + timedelta(days=1)}, "whole weeks apart"),
    ],
)
def test_wrong_counts_are_refused_in_a_sentence(change: dict[str, Any], sentence: str) -> None:
    frame = table(58)
    row = frame.head(1).with_columns(**{name: pl.lit(value) for name, value in change.items()})
    with pytest.raises(EpifedError, match=sentence):
        WeeklyVintages.from_table(pl.concat([row, frame.tail(-1)]))


def test_a_week_that_comes_twice_is_refused() -> None:
    frame = table(58)
    with pytest.raises(EpifedError, match="expected each week of a region once"):
        WeeklyVintages.from_table(pl.concat([frame, frame.head(1)]))


def test_a_backtest_uses_only_what_was_known(tmp_path: Path) -> None:
    """Counts of the final panel before the target change no quantile."""
    vintages = WeeklyVintages.from_table(table())
    panel = vintages.final()
    changed = panel.counts.copy()
    changed[:, :50] *= 3
    days = vintages.snapshots[30], vintages.snapshots[36]
    made = [
        epifed.backtest(
            CasePanel(counts, panel.regions, panel.start, step="week"), *days,
            vintages=vintages, epsilon=math.inf, reference_day="saturday", ahead=(0, 1, 2, 3),
            level=("region", "nation"),
        )
        for counts in (panel.counts, changed)
    ]  # fmt: skip
    assert made[0].real_time and made[0].settings.learner == "trend"
    first, second = (one.levels for one in made)
    assert first is not None and second is not None
    assert len(first.forecasts) == 7 * 4 * 2
    for a, b in zip(first.forecasts, second.forecasts, strict=True):
        assert np.array_equal(a.quantiles, b.quantiles)
        assert (np.diff(a.quantiles, axis=1) >= 0).all()
    nation = first.forecasts[4]
    parts = first.forecasts[0]
    assert nation.level == "nation" and nation.point[0] == pytest.approx(parts.point.sum())


def test_commands_take_weekly_vintages(tmp_path: Path) -> None:
    path = tmp_path / "vintages.csv"
    table(30, signal=True).rename({"region": "location", "cases": "value"}).write_csv(path)
    assert holds_weeks(path)
    assert load_weekly_vintages(path, counts="cases").signals == ("visits",)
    run = CliRunner()
    made = run.invoke(
        app,
        ["backtest", "--vintages", str(path), "--from", "2024-06-01", "--to", "2024-08-01",
         "--epsilon", "inf", "--reference-day", "saturday", "--ahead", "0", "--ahead", "3",
         "--workers", "1", "--out", str(tmp_path / "out"), "--json"],
    )  # fmt: skip
    assert made.exit_code == 0, made.output
    record = json.loads(made.stdout[made.stdout.index("{") : made.stdout.rindex("}") + 1])
    assert record["real_time"] and record["nowcast_mae_ratio"] < 0.7
    now = run.invoke(app, ["nowcast", "--vintages", str(path), "--out", str(tmp_path / "now")])
    assert now.exit_code == 0, now.output
    weeks = pl.read_csv(tmp_path / "now" / "weeks.csv", try_parse_dates=True)
    newest = weeks.filter(pl.col("date") == weeks["date"].max())
    assert (newest["estimate"] > newest["known"]).all()


def test_the_learner_is_chosen_and_said(tmp_path: Path) -> None:
    path = tmp_path / "vintages.csv"
    table(50).write_csv(path)
    made = CliRunner().invoke(
        app,
        ["backtest", "--vintages", str(path), "--from", "2024-09-01", "--to", "2024-10-01",
         "--workers", "1", "--out", str(tmp_path / "out")],
    )  # fmt: skip
    assert made.exit_code == 0, made.output
    said = " ".join((made.stdout + made.stderr).split())
    assert "the learner 'trend' with the forecaster that public data taught" in said


# what public history teaches


def public(weeks: int = 200, regions: int = 12) -> CasePanel:
    """A wave every winter, of other height in each region and year."""
    rng = np.random.default_rng(3)
    week = np.arange(weeks)
    height = rng.uniform(0.7, 1.4, (regions, weeks // 52 + 1))[:, week // 52]
    rate = 20 + 400 * height * np.exp(-(((week % 52) - 26) ** 2) / 60)
    counts = rng.poisson(rate).astype(float)
    return CasePanel(counts, tuple(map(str, range(regions))), date(2015, 7, 4), step="week")


def test_a_fitted_forecaster_knows_the_season_and_is_read_back(tmp_path: Path) -> None:
    made = fit_pretrained([PublicSeries(public())], {"licence": "invented"})
    path = tmp_path / "own.json"
    made.write(path)
    read = read_pretrained(str(path))
    assert read.provenance == {"licence": "invented"}
    assert read.coefficients == pytest.approx(made.coefficients, abs=1e-4)
    rising, falling = (made.coefficients[week, 3, 0] for week in (47, 5))
    assert rising > falling
    assert (np.diff(made.shape, axis=1) >= 0).all()
    assert made.coefficients[-1, 0] == pytest.approx(damped_trend(1))


def test_the_shipped_forecaster_says_where_it_comes_from() -> None:
    shipped = read_pretrained("respiratory")
    assert shipped.coefficients.shape == (54, 4, len(FEATURES))
    assert "public domain" in shipped.provenance["licence"]


def test_a_season_that_is_left_out_teaches_nothing() -> None:
    panel = public()
    later = panel.counts.copy()
    season = [i for i, day in enumerate(panel.days) if date(2017, 8, 1) <= day < date(2018, 8, 1)]
    later[:, season] *= np.random.default_rng(0).uniform(0.5, 2, (12, len(season)))
    every = [
        fit_pretrained([PublicSeries(CasePanel(counts[:, : season[-1] + 1], panel.regions,
                                               panel.start, step="week"), 1.0, (2017,))], {})
        for counts in (panel.counts, later)
    ]  # fmt: skip
    assert np.array_equal(every[0].coefficients, every[1].coefficients)
    assert np.array_equal(every[0].shape, every[1].shape)


def test_pretrain_writes_a_file_that_a_training_uses(tmp_path: Path) -> None:
    data, out = tmp_path / "public.csv", tmp_path / "own.json"
    public().to_table().write_csv(data)
    run = CliRunner()
    command = ["pretrain", "--data", str(data), "--licence", "invented", "--out", str(out)]
    made = run.invoke(app, command)
    assert made.exit_code == 0, made.output
    assert json.loads(out.read_text())["provenance"]["series"][0]["regions"] == 12
    panel = public(120)
    found = epifed.backtest(
        panel, panel.day(110), panel.day(115), epsilon=math.inf, pretrained=str(out)
    )
    assert found.settings.own["pretrained"] == str(out)
    with pytest.raises(EpifedError, match="found no file 'nowhere'; expected 'respiratory'"):
        epifed.backtest(panel, panel.day(110), panel.day(115), epsilon=1.0, pretrained="nowhere")


def test_another_file_under_the_same_name_is_another_forecast(tmp_path: Path) -> None:
    panel, path = public(120), tmp_path / "own.json"
    made = []
    for years in (200, 150):
        fit_pretrained([PublicSeries(public(years))], {}).write(path)
        days = panel.day(110), panel.day(115)
        found = epifed.backtest(
            panel, *days, epsilon=math.inf, pretrained=str(path), out=tmp_path / "out"
        )
        made.append(found.forecasts[0].quantiles)
    assert not np.array_equal(made[0], made[1])


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text('{"format": "other"}')
    with pytest.raises(EpifedError, match="expected a file that 'epifed pretrain' wrote"):
        read_pretrained(str(path))
