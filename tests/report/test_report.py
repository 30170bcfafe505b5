import base64
import hashlib
import json
import math
import re
import sys
from dataclasses import replace
from datetime import date, timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from epifed.cli.app import app
from epifed.data.panel import CasePanel
from epifed.data.readers import load_panel
from epifed.errors import EpifedError
from epifed.evaluation.backtest import metrics_of
from epifed.evaluation.experiment import Grid, run_grid
from epifed.evaluation.results_folder import (
    BACKTEST,
    FEDERATED,
    FORECAST,
    BacktestRecord,
    BacktestTables,
    read_folder,
    read_grid,
    summary,
    write_backtest,
)
from epifed.learners.base import smooth
from epifed.ledger.budget import Cap
from epifed.ledger.ledger import Ledger
from epifed.report.drawing import map_of
from epifed.report.html import LIBRARY, embedded_json, page, write_report
from epifed.report.html.payload import payload
from epifed.settings import Settings
from epifed.simulate import SimulationSettings, simulate
from epifed.simulate.simulation import write
from tests.commands import epifed
from tests.helpers import small_settings

HUB_LEVELS = (0.01, 0.025, *(k / 20 for k in range(1, 20)), 0.975, 0.99)
ORIGIN = date(2020, 12, 1)
NASTY = "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"


def country(folder: Path) -> CasePanel:
    """A simulated country of 24 counties, one of them named to break out of a page."""
    if not folder.exists():
        write(simulate(SimulationSettings(counties=24, communities=60, seed=3)), folder)
        table = pl.read_csv(folder / "counties.csv", schema_overrides={"county": pl.String})
        names = [NASTY, *table["name"].to_list()[1:]]
        table.with_columns(pl.Series("name", names)).write_csv(folder / "counties.csv")
    return load_panel(folder)


def forecasts(panel: CasePanel, out: Path) -> None:
    """The folder of a backtest: last week's growth goes on, as wrong as it was before."""
    series = smooth(panel.counts, "trailing")
    end = (ORIGIN - panel.start).days

    def made(at: int, days: int) -> tuple[Any, Any]:
        growth = np.clip((series[:, at] + 1) / (series[:, at - 7] + 1), 0.5, 2)
        middle = series[:, at] * growth ** (0.5 * days / 7)
        wide = np.sqrt(days / 7) * np.quantile(
            np.log((series[:, 14:at] + 1) / (series[:, 7 : at - 7] + 1)), HUB_LEVELS, axis=None
        )
        return middle, middle[:, None] * np.exp(0.7 * wide - 0.7 * np.median(wide))[None]

    rows = []
    for days in range(1, 29):
        _, values = made(end, days)
        rows.append(
            pl.DataFrame(
                {
                    "origin_date": ORIGIN,
                    "region": np.repeat(panel.regions, len(HUB_LEVELS)),
                    "horizon": days,
                    "target_date": ORIGIN + timedelta(days=days),
                    "level": np.tile(HUB_LEVELS, len(panel.regions)),
                    "value": values.ravel(),
                }
            )
        )
    ahead = pl.concat(rows).select(pl.col(n).cast(k) for n, k in FORECAST.items())
    parts = []
    for at in range(end - 56, end - 6, 7):
        point, values = made(at, 7)
        truth, like = series[:, at + 7], series[:, at]
        of = {level: values[:, HUB_LEVELS.index(level)] for level in (0.025, 0.25, 0.75, 0.975)}
        parts.append(
            pl.DataFrame(
                {
                    "origin_date": panel.day(at),
                    "region": panel.regions,
                    "horizon": 7,
                    "target_date": panel.day(at + 7),
                    "truth": truth,
                    "persistence": like,
                    "persistence_final": like,
                    "nowcast": like,
                    "point": point,
                    "lower_95": of[0.025],
                    "lower_50": of[0.25],
                    "upper_50": of[0.75],
                    "upper_95": of[0.975],
                    "wis": np.abs(point - truth),
                    "baseline_wis": np.abs(like - truth),
                }
            )
        )
    past = pl.concat(parts).select(pl.col(n).cast(k) for n, k in BACKTEST.items())
    record = BacktestRecord(
        mae_ratio=0.9, mae_ratio_final=0.9, nowcast_mae_ratio=None, wis_ratio=0.8,
        coverage_50=0.5, coverage_95=0.94,
        worst_month_mae_ratio=1.1, worst_month="2020-11",
        epsilon_per_release=1.0, epsilon_total=2.5, noise_multiplier=3.7, delta=1e-5,
        accountant="pld", learner="trend", horizon=7, origins=8, releases=9,
        first_origin=panel.day(end - 56), last_origin=panel.day(end - 7),
        regions=len(panel.regions), real_time=False,
        metrics=metrics_of(past),
    )  # fmt: skip
    settings = Settings.for_learner("trend", len(panel.regions), epsilon=1.0)
    write_backtest(
        out, panel, settings, BacktestTables(past, ahead, record, nowcast=nowcast(panel, end))
    )


def nowcast(panel: CasePanel, end: int) -> pl.DataFrame:
    """The last two weeks, of which nine tenths are known of the last day and R is 1.25."""
    days = 14
    counts = panel.counts[:, end - days + 1 : end + 1]
    known = counts.copy()
    known[:, -1] *= 0.9
    return pl.DataFrame(
        {
            "as_of": panel.day(end + 1),
            "region": np.repeat(np.array(panel.regions, dtype=object), days).tolist(),
            "date": [panel.day(end - days + 1 + i) for i in range(days)] * len(panel.regions),
            "known": known.ravel(),
            "estimate": counts.ravel(),
            "lower": known.ravel(),
            "upper": 1.2 * counts.ravel(),
            "r": 1.25,
            "r_lower": 0.8,
            "r_upper": 1.9,
        }
    )


def grid(panel: CasePanel, out: Path) -> None:
    run_grid(
        panel,
        Grid(
            settings=small_settings(epsilon=math.inf, clients_per_round=8),
            splits=("temporal",),
            periods={"late": (ORIGIN - timedelta(days=40), ORIGIN)},
            epsilons=(0.5, 2.0, math.inf),
            runs=2,
            baselines=("persistence", "damped trend"),
        ),
        out,
        workers=1,
    )


def budget_ledger(path: Path) -> None:
    ledger = Ledger.create(path, Cap(2.0, 1e-5, "rdp"))
    run = ledger.reserve(
        sampling_rate=1.0, noise_multiplier=8.0, rounds=1, settings_hash="", last_day=ORIGIN
    )
    run.spend(1)
    run.finish("0" * 64)


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A country, a grid with a backtest in it, and a ledger."""
    folder = tmp_path_factory.mktemp("report")
    panel = country(folder / "country")
    grid(panel, folder / "results")
    forecasts(panel, folder / "results" / "backtest")
    budget_ledger(folder / "budget.ledger")
    return folder


class Scripts(HTMLParser):
    """What a parser takes for scripts, the policy, and everything that points elsewhere."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.scripts: list[tuple[str | None, str]] = []
        self.policy = ""
        self.addresses: list[str] = []
        self._inside = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.addresses += [found[name] or "" for name in ("src", "href") if name in found]
        if found.get("http-equiv") == "Content-Security-Policy":
            self.policy = found["content"] or ""
        self._inside = tag == "script"
        if self._inside:
            self.scripts.append((found.get("type"), ""))

    def handle_data(self, data: str) -> None:
        if self._inside:
            kind, text = self.scripts[-1]
            self.scripts[-1] = kind, text + data

    def handle_endtag(self, tag: str) -> None:
        self._inside = False


def data_of(path: Path) -> dict[str, Any]:
    kind, text = Scripts(path.read_text(encoding="utf-8")).scripts[0]
    assert kind == "application/json"
    found: dict[str, Any] = json.loads(text)
    return found


@pytest.fixture(scope="session")
def report(made: Path) -> Path:
    out = made / "report.html"
    panel = load_panel(made / "country")
    write_report(made / "results", out, panel, ledger=made / "budget.ledger")
    return out


def test_the_page_is_one_file_that_asks_for_nothing(report: Path) -> None:
    text = report.read_text(encoding="utf-8")
    found = Scripts(text)
    assert len(found.scripts) == 3
    assert all(a.startswith(("#", "data:")) for a in found.addresses)
    assert "default-src 'none'" in found.policy
    for _, script in found.scripts[1:]:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in found.policy
    assert not re.search(r"@import|url\((?!data:)", text.split("<script")[0])
    assert len(text.encode()) < 5e6


def test_names_that_look_like_markup_stay_text(report: Path, made: Path) -> None:
    assert NASTY not in report.read_text(encoding="utf-8")
    assert data_of(report)["regions"]["names"][0] == NASTY
    titled = made / "titled.html"
    write_report(made / "results", titled, load_panel(made / "country"), title=NASTY)
    assert len(Scripts(titled.read_text(encoding="utf-8")).scripts) == 3


@given(st.recursive(st.text() | st.integers() | st.none(), st.lists, max_leaves=5))
def test_embedded_json_ends_no_element_and_loses_nothing(value: object) -> None:
    text = embedded_json(value)
    assert "<" not in text and "\u2028" not in text
    assert json.loads(text) == value


def test_history_forecast_and_scores_are_the_numbers_of_the_files(made: Path, report: Path) -> None:
    data = data_of(report)
    panel = load_panel(made / "country")
    at = (ORIGIN - panel.start).days
    history = data["history"]
    last = history["days"] - 1
    assert data["as_of"] == ORIGIN.isoformat()
    assert history["counts"][5][last] == panel.counts[5, at]
    assert history["counts"][5][last + 3] == panel.counts[5, at + 3]
    table = pl.read_parquet(made / "results" / "backtest" / "forecast.parquet")
    row = table.filter(
        (pl.col("region") == panel.regions[5])
        & (pl.col("horizon") == 14)
        & (pl.col("level") == 0.9)
    )
    shown = data["forecast"]
    value = shown["values"][shown["levels"].index(0.9)][5][shown["horizons"].index(14)]
    assert value == pytest.approx(7 * row["value"][0], abs=0.51)
    scored = pl.read_parquet(made / "results" / "backtest" / "backtest.parquet")
    own = scored.filter(pl.col("region") == panel.regions[5])
    on_page = {metric["key"] for metric in data["metrics"]}
    assert on_page <= data["backtest"]["record"]["metrics"].keys()
    shown = data["backtest"]["regions"][5]
    assert shown["forecasts"] == len(own) == 8
    assert shown["mae"] == pytest.approx((own["point"] - own["truth"]).abs().mean(), rel=1e-3)
    like = (own["persistence"] - own["truth"]).abs().mean()
    assert shown["persistence_mae"] == pytest.approx(like, rel=1e-3)
    means = summary(read_grid(made / "results").results.runs)
    at_two = means.filter((pl.col("method") == FEDERATED) & (pl.col("epsilon") == 2.0))
    (cell,) = data["grid"]["cells"]
    row_at_two = next(r for r in cell["rows"] if r["epsilon"] == 2.0)
    assert row_at_two["mean"]["mae"] == pytest.approx(at_two["mae_mean"][0], rel=1e-3)
    assert [b["epsilon"] for b in data["grid"]["privacy"]["budgets"]] == [0.5, 2.0, "inf"]
    assert data["ledger"]["runs"][0]["outcome"] == "finished"
    assert data["simulated"] and data["seeded"]


@pytest.mark.parametrize("kind", ["grid", "backtest"])
@pytest.mark.parametrize("with_data", [True, False])
def test_a_grid_and_a_backtest_alone_make_a_page(
    made: Path, tmp_path: Path, kind: str, with_data: bool
) -> None:
    panel = replace(load_panel(made / "country"), simulated=None)
    (grid if kind == "grid" else forecasts)(panel, tmp_path)
    out = tmp_path / "out.html"
    write_report(tmp_path, out, panel if with_data else None)
    data = data_of(out)
    found = [name for name in ("grid", "forecast", "backtest") if data[name] is not None]
    assert found == (["grid"] if kind == "grid" else ["forecast", "backtest"])
    assert (data["history"] is not None) == (data["map"] is not None) == with_data
    assert not data["simulated"]


def test_simulated_results_get_their_data_back_from_the_manifest_s_fields(
    made: Path, tmp_path: Path
) -> None:
    said: list[str] = []
    write_report(made / "results", tmp_path / "again.html", remark=said.append)
    assert said == ["no --data: simulating the epidemic of these results again"]
    data = data_of(tmp_path / "again.html")
    assert data["history"] and data["map"] and data["simulated"] and data["same_data"]


def decoded(found: dict[str, Any]) -> list[Any]:
    """The shapes again, by the rule that `outlines` states."""
    origin, step = np.array(found["origin"]), np.array(found["step"])
    shapes = []
    for polygons in found["shapes"]:
        rings = [
            [origin + np.cumsum(np.array(flat).reshape(-1, 2), axis=0) * step for flat in rings]
            for rings in polygons
        ]
        shapes.append(shapely.union_all([shapely.Polygon(r[0], r[1:]).buffer(0) for r in rings]))
    return shapes


def test_outlines_keep_their_places_and_neighbours(made: Path) -> None:
    panel = load_panel(made / "country")
    assert panel.boundaries is not None
    truth = {
        f["properties"]["id"]: shapely.from_geojson(json.dumps(f["geometry"]))
        for f in json.loads(panel.boundaries.read_text())["features"]
    }
    drawn = map_of(panel)
    assert drawn is not None
    found = decoded(drawn)
    whole = shapely.union_all(list(truth.values()))
    for region, shape in zip(panel.regions, found, strict=True):
        assert shape.symmetric_difference(truth[region]).area < 0.05 * truth[region].area
    together = shapely.union_all(found)
    assert together.symmetric_difference(whole).area < 0.01 * whole.area
    assert sum(s.area for s in found) == pytest.approx(together.area, rel=1e-3)


def test_the_library_is_the_one_that_was_fetched() -> None:
    vendor = Path(sys.modules["epifed.report.html"].__file__ or "").parent / "vendor"
    line = (vendor / "SHA256SUMS").read_text().split()
    assert line[1] == LIBRARY
    assert hashlib.sha256((vendor / LIBRARY).read_bytes()).hexdigest() == line[0]


def test_the_page_of_400_counties_is_small_enough(made: Path, real_data: Path) -> None:
    results = made / "real"
    forecasts(load_panel(real_data), results)
    write_report(results, made / "real.html", load_panel(real_data))
    assert (made / "real.html").stat().st_size < 5e6
    data = data_of(made / "real.html")
    assert any("GeoBasis-DE / BKG" in line for line in data["attribution"])
    assert not data["simulated"]


def test_what_cannot_be_shown_is_refused_in_one_sentence(made: Path, tmp_path: Path) -> None:
    panel = load_panel(made / "country")
    inputs = read_folder(made / "results")
    other = replace(panel, regions=tuple(f"x{r}" for r in panel.regions), boundaries=None)
    with pytest.raises(EpifedError, match="which is not in"):
        payload(inputs, other, groups={}, title=None, ledger=None)
    early = panel.between(panel.start, ORIGIN - timedelta(days=3))
    with pytest.raises(EpifedError, match="found results up to 2020-12-01"):
        payload(inputs, early, groups={}, title=None, ledger=None)


def test_reports_that_are_no_count_of_their_day_are_listed(made: Path) -> None:
    panel = load_panel(made / "country")
    counts = panel.counts.copy()
    day = ORIGIN - timedelta(days=4)
    counts[7, (day - panel.start).days] += 90_000
    counts[8, (ORIGIN - panel.start).days + 1] += 90_000
    found = payload(
        read_folder(made / "results"),
        replace(panel, counts=counts),
        groups={},
        title=None,
        ledger=None,
    )
    listed = {(region, when, kind): values for region, when, kind, *values in found["anomalies"]}
    reported, expected = listed[7, day.isoformat(), "backlog"]
    assert reported > 90_000 > 10 * expected
    assert all(when <= ORIGIN.isoformat() for _, when, _ in listed)


def test_other_data_than_the_results_is_said_so(made: Path) -> None:
    panel = load_panel(made / "country")
    other = replace(panel, counts=panel.counts + 1)
    found = payload(read_folder(made / "results"), other, groups={}, title=None, ledger=None)
    assert found["same_data"] is False
    assert "otherDataText" in page(found)


def test_the_command_writes_the_report_and_a_mistake_is_exit_2(made: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.html"
    results, data = str(made / "results"), str(made / "country")
    done = CliRunner().invoke(app, ["report", results, "--data", data, "--out", str(out)])
    assert done.exit_code == 0 and "Wrote" in done.stdout and out.is_file()
    failed = epifed("report", tmp_path, "--out", tmp_path / "n.html", expect=2)
    assert failed.stderr.count("\n") == 1 and "found no results" in failed.stderr
    assert not (tmp_path / "n.html").exists()


def test_the_nowcast_is_that_of_the_day_of_the_forecast(made: Path, report: Path) -> None:
    found = data_of(report)["nowcast"]
    assert found["days"][-1] == data_of(report)["as_of"] == ORIGIN.isoformat()
    panel = load_panel(made / "country")
    at = (ORIGIN - panel.start).days
    assert [row[-1] for row in found["estimate"]] == pytest.approx(panel.counts[:, at], abs=0.05)
    assert [row[-1] for row in found["known"]] == pytest.approx(0.9 * panel.counts[:, at], abs=0.05)
    assert found["r"][0] == [1.25] * 14
