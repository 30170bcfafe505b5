"""A site as a service: one file, one process, and a folder with the week's own report."""

import json
import signal
from dataclasses import replace
from datetime import date, timedelta
from functools import partial
from pathlib import Path

import polars as pl
import pytest

from epifed.data.panel import CasePanel
from epifed.federation.server import Order
from epifed.ledger.budget import Cap
from epifed.ledger.ledger import Ledger
from epifed.rehearsal.local import LocalFederation, rehearsal_federation
from epifed.settings import Settings
from tests.federation.helpers import all_run
from tests.helpers import small_panel
from tests.like_windows import lay_strict
from tests.waiting import GUARD, today, wait_for, wait_for_end

pytestmark = pytest.mark.field

DAYS = 100
SETTINGS = Settings.for_learner("trend", 4, epsilon=1.0)


def _panel(day: date) -> CasePanel:
    """Counts of four counties up to the day before."""
    return replace(small_panel(4, DAYS), start=day - timedelta(days=DAYS))


def _week(day: date) -> str:
    year, week, _ = day.isocalendar()
    return f"{year}-W{week:02d}"


def _order(day: date) -> Order:
    """The training of a morning, on the days up to the one before."""
    last = day - timedelta(days=1)
    return Order.of(f"week-{day}", SETTINGS, last - timedelta(days=60), last)


def _write(local: LocalFederation, site: str, panel: CasePanel, last: date) -> Path:
    clients = local.federation.site(site).clients
    path = local.folder / "data" / f"{site}.csv"
    long = panel.between(panel.start, last).to_table()
    long.filter(pl.col("region").is_in(clients)).write_csv(path)
    return path


def test_two_weeks_of_two_offices_one_of_which_has_a_bad_file(tmp_path: Path) -> None:
    second = today()
    cases = _panel(second)
    ledger = tmp_path / "budget.ledger"
    Ledger.create(ledger, Cap(5.0, 1e-5, "rdp"))
    first = second - timedelta(days=7)
    with LocalFederation.make(
        tmp_path, rehearsal_federation(cases, 2, min_sites=1, round_timeout=GUARD), cases, ledger
    ) as local:
        local.services, still = True, partial(all_run, local)
        good, bad = local.reports("site-1"), local.reports("site-2")
        for site in ("site-1", "site-2"):
            _write(local, site, cases, first - timedelta(days=1))
        local.start()
        local.train(_order(first))
        for out in (good, bad):
            folder = out / _week(first)
            wait_for((folder / "report.html").is_file, f"{folder}/report.html", still)
            names = {path.name for path in folder.iterdir()}
            assert names == {"report.html", "forecast.csv", "hub", "results"}
        _write(local, "site-1", cases, second - timedelta(days=1))
        broken = _write(local, "site-2", cases, second - timedelta(days=1))
        broken.write_text(broken.read_text().replace("region", "Region id"))
        wait_for((bad / "problem.txt").is_file, "problem.txt", still)
        assert "Your data cannot be read: " in (bad / "problem.txt").read_text()
        status = local.train(_order(second))
        assert status["delivered"] == ["site-1", "site-2"]
        folder = good / _week(second)
        wait_for((folder / "report.html").is_file, f"{folder}/report.html", still)
        said = f"sat out the training 'week-{second}'"
        wait_for(lambda: said in (bad / "problem.txt").read_text(), "the week sat out", still)
        assert not (bad / _week(second)).exists()
        _write(local, "site-2", cases, second - timedelta(days=1))
        wait_for((bad / _week(second) / "report.html").is_file, "the mended file's report", still)
        pids = local.workers("site-1")
        local.processes["site-1"].send_signal(signal.SIGTERM)
        assert local.processes["site-1"].wait(GUARD) == 0
        wait_for_end(*pids)
    report = local.training_folder(_order(second)) / "report.jsonl"
    (line,) = map(json.loads, report.read_text().splitlines())
    assert line["problems"] == [{"site": "site-2", "reason": "data"}]
    table = pl.read_csv(good / "latest" / "forecast.csv", schema_overrides={"region": pl.String})
    assert set(table["region"]) == set(local.federation.site("site-1").clients)
    assert sorted(table["horizon"].unique()) == [7, 14, 21, 28]
    assert b"\r" not in (good / "latest" / "forecast.csv").read_bytes()
    results = good / _week(second) / "results"
    past = pl.read_parquet(results / "backtest.parquet")
    made = pl.read_parquet(good / _week(first) / "results" / "points.parquet")
    assert past["point"].to_list() == made.filter(horizon=7)["point"].to_list()
    mine = cases.of(local.federation.site("site-1").clients)
    assert past["truth"].to_numpy() == pytest.approx(mine.counts[:, -7:].mean(axis=1))
    assert json.loads((results / "manifest.json").read_text())["release"]["releases"] == 2


def test_without_posix_a_site_takes_part_and_a_killed_service_takes_its_client_along(
    tmp_path: Path,
) -> None:
    day = today()
    cases = _panel(day)
    roster = rehearsal_federation(cases, 1, round_timeout=GUARD)
    with LocalFederation.make(tmp_path, roster, cases) as local:
        local.services = True
        windows = str(lay_strict(tmp_path / "windows"))
        kits = str(tmp_path / "kits" / "site-1")
        local.environment["site-1"] = {"PYTHONPATH": windows, "LIKE_WINDOWS": kits}
        local.start()
        local.train(replace(_order(day), seeded=True))
        page = local.reports("site-1") / _week(day) / "report.html"
        wait_for(page.is_file, "the report", partial(all_run, local))
        pids = local.workers("site-1")
        assert pids
        local.kill("site-1")
        wait_for_end(*pids)
