"""The paper's figures and tables: what is in them, on a simulated country and on the real one."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import shapely
from matplotlib import pyplot as plt
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.mathtext import MathTextParser
from typer.testing import CliRunner

from epifed import paper
from epifed.cli.app import app
from epifed.data.panel import CasePanel
from epifed.data.readers import read_prepared
from epifed.errors import EpifedError
from epifed.evaluation.experiment import Grid, run_grid
from epifed.evaluation.results_folder import GridFolder, read_grid
from epifed.paper import Plan, plan
from epifed.report import drawing, figures, maps
from epifed.report import figures as data_figures
from epifed.report.drawing import Shapes
from epifed.report.maps import Atlas, choose_place, read_country
from epifed.simulate import SimulationSettings, simulate
from epifed.simulate.simulation import write
from tests.helpers import conforming, small_settings

PERIODS = {
    "2020-11": (date(2020, 11, 1), date(2020, 12, 1)),
    "autumn": (date(2020, 10, 5), date(2020, 11, 12)),
}
COUNTIES, COMMUNITIES = 24, 90
CREDIT = "Simulated data, no real persons or places"


def small_grid(**changes: object) -> Grid:
    values: dict[str, object] = {
        "settings": small_settings(epsilon=math.inf, sampler="fixed", evaluate_every=2),
        "periods": PERIODS,
        "epsilons": (0.5, 2.0, math.inf),
        "runs": 2,
        "baseline_runs": 1,
    }
    return Grid.model_validate(values | changes)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data") / "country"
    settings = SimulationSettings(counties=COUNTIES, communities=COMMUNITIES, seed=5)
    write(simulate(settings), folder)
    return folder


@pytest.fixture(scope="module")
def results(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("results")
    run_grid(read_prepared(data), small_grid(), out, workers=1)
    return out


@pytest.fixture(scope="module")
def stored(results: Path) -> GridFolder:
    return read_grid(results)


@pytest.fixture(scope="module")
def country(data: Path) -> Atlas:
    return read_country(data)


@pytest.fixture(scope="module")
def planned(stored: GridFolder, country: Atlas) -> Plan:
    return plan(stored, country, choose_place(country, None, None))


@pytest.fixture
def draw(planned: Plan) -> Callable[[str], Figure]:
    return lambda name: planned.drawings[name]()


@pytest.fixture(autouse=True)
def _close_figures() -> object:
    yield
    plt.close("all")


def titles(figure: Figure) -> list[str]:
    """Of all panels, without their letters."""
    found = (axes.get_title(loc="left") for axes in figure.axes)
    return [title.split("$  ")[-1] for title in found if title]


def polygons(figure: Figure) -> list[int]:
    """How many patches each map has."""
    return [
        len(collection.get_paths())
        for axes in figure.axes
        for collection in axes.collections
        if isinstance(collection, PatchCollection)
    ]


def credit(figure: Figure) -> str:
    return " ".join(figure.get_supxlabel().split())


def parts(shapes: Shapes | None) -> int:
    assert shapes is not None
    return int(shapely.get_num_geometries(shapes.geometry).sum())


def test_all_figures_of_the_paper_are_planned(planned: Plan) -> None:
    cells = [f"{p}_{s}" for s in ("temporal", "shuffled") for p in PERIODS]
    assert list(planned.drawings) == [
        "populations", "regions", "zero_entries", "cases",
        *(f"predictions_{cell}" for cell in cells), *(f"strata_{cell}" for cell in cells),
        "privacy_utility", "convergence", "losses",
    ]  # fmt: skip
    assert planned.left_out == {}


def test_populations_count_every_region_and_mark_median_and_mean(
    draw: Callable[[str], Figure], country: Atlas
) -> None:
    figure = draw("populations")
    assert titles(figure) == [f"{COUNTIES} counties", f"{COMMUNITIES} communities"]
    assert country.communities is not None
    for axes, panel in zip(figure.axes, (country.counties, country.communities), strict=True):
        assert panel.population is not None
        assert sum(bar.get_height() for bar in axes.patches) == len(panel.regions)  # type: ignore[attr-defined]
        median, mean = (float(np.asarray(line.get_xdata())[0]) for line in axes.lines)
        assert median == np.median(panel.population)
        assert mean == pytest.approx(panel.population.mean())
        assert axes.get_xlabel() == "inhabitants" and axes.get_xscale() == "log"
    assert CREDIT in credit(figure)


def test_regions_are_maps_with_one_county_marked_and_its_communities_below(
    draw: Callable[[str], Figure], country: Atlas
) -> None:
    place = choose_place(country, None, None)
    figure = draw("regions")
    assert place.name in titles(figure)[0] and place.state in titles(figure)[1]
    inside = country.table.filter(pl.col("state") == place.state)["county"].to_list()
    assert country.county_shapes is not None
    of_state = country.county_shapes.of(inside)
    county = country.county_shapes.of([place.county])
    expected = [parts(of_state), parts(county), parts(country.county_shapes), parts(of_state)]
    assert polygons(figure) == expected
    assert [axes.get_aspect() for axes in figure.axes[:2]] == [1.0, 1.0]
    lines = figure.axes[2].lines
    days = [str(day) for day in np.asarray(lines[-1].get_xdata()).astype("datetime64[D]")]
    assert (days[0], days[-1]) == ("2020-10-05", "2020-11-12")
    total = np.asarray(lines[-1].get_ydata(), dtype=float)
    k = country.counties.regions.index(place.county)
    assert total.tolist() == country.counties.between(*PERIODS["autumn"]).counts[k].tolist()
    communities = [np.asarray(line.get_ydata(), dtype=float) for line in lines[:-1]]
    assert np.sum(communities, axis=0).tolist() == total.tolist()
    assert CREDIT in credit(figure)


def test_zero_entries_have_all_samples_of_both_periods(draw: Callable[[str], Figure]) -> None:
    figure = draw("zero_entries")
    assert titles(figure) == ["November 2020", "November 2020", "autumn", "autumn"]
    samples = [sum(bar.get_height() for bar in axes.patches) for axes in figure.axes[::2]]  # type: ignore[attr-defined]
    assert samples == [COMMUNITIES * (31 - 16), COMMUNITIES * (39 - 16)]
    assert [len(axes.get_xticks()) for axes in figure.axes] == [12] * 4


def test_cases_are_national_counts_and_four_weekly_maps_a_period(
    draw: Callable[[str], Figure], country: Atlas
) -> None:
    figure = draw("cases")
    assert titles(figure) == [
        "Daily new cases in the country, November 2020 shaded",
        "1 – 7 Nov 2020", "8 – 14 Nov 2020", "15 – 21 Nov 2020", "22 – 28 Nov 2020",
        "Daily new cases in the country, autumn shaded",
        "5 – 11 Oct 2020", "12 – 18 Oct 2020", "19 – 25 Oct 2020", "26 Oct – 1 Nov 2020",
    ]  # fmt: skip
    assert polygons(figure) == [parts(country.county_shapes)] * 8
    bars = [bar.get_height() for bar in figure.axes[0].patches[:120]]  # type: ignore[attr-defined]
    total = country.counties.counts.sum(axis=0)
    first = (date(2020, 9, 2) - country.counties.start).days
    assert bars == total[first : first + 120].tolist()
    average = np.asarray(figure.axes[0].lines[0].get_ydata(), dtype=float)
    assert average[60] == pytest.approx(total[first + 57 : first + 64].mean())
    labels = [axes.get_ylabel() for axes in figure.axes]
    assert labels.count("cases a week per 100,000") == 2
    assert CREDIT in credit(figure)


def test_predictions_have_a_panel_per_budget_and_a_box_for_every_county(
    draw: Callable[[str], Figure], stored: GridFolder
) -> None:
    figure = draw("predictions_2020-11_temporal")
    assert titles(figure)[:-1] == ["persistence", "ε = 0.5", "ε = 2", "ε = ∞"]
    own = stored.results.predictions.filter(
        split="temporal", period="2020-11", method="federated", epsilon=2.0
    )
    dots = figure.axes[2].collections[0].get_offsets()
    assert np.asarray(dots).tolist() == own.select("truth", "prediction").to_numpy().tolist()
    (diagonal,) = figure.axes[2].lines
    assert np.asarray(diagonal.get_xdata()).tolist() == np.asarray(diagonal.get_ydata()).tolist()
    bottom = figure.axes[-1]
    labels = [text.get_text() for text in bottom.get_xticklabels()]
    assert labels == ["persistence", "ε = 0.5", "ε = 2", "ε = ∞"]
    assert bottom.get_ylabel() == "MAPE of one county (%)" and bottom.get_yscale() == "log"
    errors = []
    for _, frame in own.group_by("run", "region"):
        kept = frame.filter(pl.col("truth") != 0)
        truth = kept["truth"].to_numpy()
        errors.append(float(np.mean(100 * np.abs(kept["prediction"].to_numpy() / truth - 1))))
    assert len(errors) == 2 * COUNTIES
    medians = [line for line in bottom.lines if line.get_linewidth() == 1.2]
    assert np.asarray(medians[2].get_ydata())[0] == pytest.approx(np.median(errors))


def test_strata_have_a_line_per_budget_and_persistence(
    draw: Callable[[str], Figure], stored: GridFolder
) -> None:
    figure = draw("strata_autumn_shuffled")
    assert titles(figure) == ["MSE", "MAE", "MAPE", "MdAPE", "R²"]
    lines = {line.get_label(): line for line in figure.axes[1].lines}
    assert list(lines) == ["persistence", "ε = 0.5", "ε = 2", "ε = ∞"]
    assert [axes.get_yscale() for axes in figure.axes] == ["log"] * 4 + ["symlog"]
    own = stored.results.runs.filter(
        split="shuffled", period="autumn", method="federated", epsilon=2.0, stratum="100–200k"
    )
    assert np.asarray(lines["ε = 2"].get_ydata())[2] == pytest.approx(own["mae"].mean())
    assert lines["ε = 2"].get_color() == drawing.colour(2.0)
    assert len(figure.axes[0].collections) == 3


def test_the_paper_s_numbers_stand_beside_german_counties_only(
    draw: Callable[[str], Figure], stored: GridFolder
) -> None:
    def labels(figure: Figure) -> set[object]:
        return {line.get_label() for axes in figure.axes for line in axes.lines}

    circles = "November 2020, paper's S1"
    assert circles not in labels(draw("privacy_utility"))  # of a simulated country
    data = stored.folder.manifest.data.model_copy(update={"simulated": None})
    manifest = stored.folder.manifest.model_copy(update={"data": data})
    real = replace(stored, folder=replace(stored.folder, manifest=manifest))
    assert circles in labels(plan(real, None, None).drawings["privacy_utility"]())
    longer = stored.results.predictions.with_columns(pl.col("region") + "001")
    communities = replace(real, results=replace(stored.results, predictions=longer))
    assert circles not in labels(plan(communities, None, None).drawings["privacy_utility"]())


def test_losses_show_train_against_test(draw: Callable[[str], Figure], stored: GridFolder) -> None:
    figure = draw("losses")
    assert len(figure.axes) == 4
    lines = {line.get_label(): line for line in figure.axes[0].lines}
    assert set(lines) == {
        f"ε = {e}, {kind}" for e in ("0.5", "2", "∞") for kind in ("train", "test")
    }
    own = stored.results.convergence.filter(
        split="temporal", period="2020-11", epsilon=2.0, round=4
    )
    assert np.asarray(lines["ε = 2, test"].get_ydata())[-1] == pytest.approx(own["test_mse"].mean())
    assert lines["ε = 2, test"].get_color() == lines["ε = 2, train"].get_color()


def test_many_budgets_are_thinned_to_the_paper_s() -> None:
    assert drawing.chosen_budgets([2.0, 1.0]) == [1.0, 2.0]
    many = [0.2, 0.3, 0.4, 0.5, 1.0, 1.5, 2.0, 5.0, math.inf]
    assert drawing.chosen_budgets(many) == [0.3, 0.5, 1.0, 2.0, math.inf]
    assert drawing.chosen_budgets([7, 8, 9, 10, 11, 12]) == [7, 8, 9, 11, 12]


@pytest.mark.parametrize(
    ("period", "title"),
    [("2020-11", "November 2020"), ("2020-13", "2020-13"), ("autumn", "autumn"),
     ("2020-11-01_2020-12-01", "1 Nov – 1 Dec 2020"),
     ("2021-12-10_2022-01-25", "10 Dec 2021 – 25 Jan 2022")],
)  # fmt: skip
def test_periods_are_titled_for_readers(period: str, title: str) -> None:
    assert drawing.period_title(period) == title


def test_tables_have_mean_spread_and_persistence(stored: GridFolder, tmp_path: Path) -> None:
    found = paper.paper_tables(stored, lambda zeros: f"{zeros:.0f} zeros")
    assert [table.name for table in found] == ["2020-11", "autumn", "S1"]
    one, s1 = found[0], found[-1]
    assert [method for _, method, _ in one.rows()] == 2 * ["persistence", "0.5", "2", "∞"]
    assert len(s1.rows()) == 16
    names = [path.name for path in one.write(tmp_path)]
    assert names == ["table_2020-11.tex", "table_2020-11.md", "table_2020-11.csv"]
    own = stored.results.runs.filter(
        split="temporal", period="2020-11", method="federated", epsilon=2.0, stratum="all"
    )["mae"]
    row = pl.read_csv(tmp_path / "table_2020-11.csv").filter(split="temporal", epsilon=2.0)
    assert row["mae_mean"].item() == pytest.approx(own.mean())
    assert row["mae_std"].item() == pytest.approx(own.std())
    markdown = (tmp_path / "table_2020-11.md").read_text()
    assert markdown.count("| persistence |") == 2 and markdown.count(" ± ") == 6 * 4
    assert "0 zeros; 4 rounds of 3 epochs" in markdown


def test_latex_is_escaped_and_its_formulas_parse(stored: GridFolder) -> None:
    table = paper.paper_tables(stored, lambda _: "at ε_1 & 5 % ± δ")[0]
    lines = table.to_latex().splitlines()
    assert r"\caption{\textbf{Performance metrics for case prediction, November 2020.} " in lines[2]
    assert r"At $\varepsilon$\_1 \& 5 \% $\pm$ $\delta$; 4 rounds" in lines[2]
    body = [line for line in lines if line.count(" & ") == 4]
    assert len(body) == 1 + 8
    math_text = MathTextParser("path")
    for line in body[1:]:
        for cell in line.removesuffix(r" \\").split(" & ")[1:]:
            math_text.parse(cell)
    assert sum(line.count("{") - line.count("}") for line in lines) == 0


def test_the_command_writes_everything_as_pdf_and_png(data: Path, tmp_path: Path) -> None:
    results, out = tmp_path / "results", tmp_path / "out"
    grid = small_grid(splits=("temporal",), periods={"2020-11": PERIODS["2020-11"]})
    run_grid(read_prepared(data), grid, results, workers=1)
    command = ["figures", str(results), "--out", str(out), "--data", str(data), "--json"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    found = conforming("figures", json.loads(done.stdout))
    assert found["left_out"] == {}
    assert found["written"] == sorted(path.name for path in out.iterdir())
    assert len(found["written"]) == 2 * 9 + 3 * 2 + 1
    for path in out.glob("*.p*"):
        start = b"%PDF" if path.suffix == ".pdf" else b"\x89PNG"
        assert path.read_bytes().startswith(start)
    assert CREDIT in (out / "ATTRIBUTION.txt").read_text()


def test_what_needs_the_data_is_left_out_with_the_reason(stored: GridFolder) -> None:
    found = plan(stored, None, None)
    assert list(found.left_out) == ["populations", "regions", "zero_entries", "cases"]
    assert all("no --data" in reason for reason in found.left_out.values())
    figure = found.drawings["predictions_2020-11_temporal"]()
    assert figure.axes[-1].get_ylabel() == "MAPE of one region (%)"


def test_a_directory_without_maps_and_communities_still_gives_the_counts(
    stored: GridFolder, data: Path, tmp_path: Path
) -> None:
    for name in ("county_cases.parquet", "counties.csv", "ATTRIBUTION.txt"):
        (tmp_path / name).write_bytes((data / name).read_bytes())
    bare = read_country(tmp_path)
    found = plan(stored, bare, choose_place(bare, None, None))
    assert set(found.left_out) == {"regions", "zero_entries", "maps in cases"}
    figure = found.drawings["cases"]()
    assert len(figure.axes) == 2 and polygons(figure) == []
    assert len(found.drawings["populations"]().axes) == 1


def test_mistakes_are_one_sentence(results: Path, data: Path, tmp_path: Path) -> None:
    with pytest.raises(EpifedError, match="nothing: no such directory; expected a directory that"):
        read_grid(tmp_path / "nothing")
    with pytest.raises(EpifedError, match="found no results"):
        read_grid(tmp_path)
    about = json.loads((results / "manifest.json").read_text())
    (tmp_path / "manifest.json").write_text(json.dumps(about | {"grid": 1}))
    with pytest.raises(EpifedError, match=r"manifest.json: grid: .*; expected a directory that"):
        read_grid(tmp_path)
    (tmp_path / "a.geojson").write_text("{}")
    with pytest.raises(EpifedError, match=r"a.geojson: cannot be read as GeoJSON"):
        maps.read_boundaries(tmp_path / "a.geojson", ["1"])
    real, one = tmp_path / "real", small_grid(splits=("temporal",), epsilons=(2.0,), runs=1)
    run_grid(replace(read_prepared(data), simulated=None), one, real, workers=1)
    done = CliRunner().invoke(
        app, ["figures", str(real), "--out", str(tmp_path / "o"), "--county", "x"]
    )
    assert isinstance(done.exception, EpifedError) and "expected --data too" in str(done.exception)
    assert not (tmp_path / "o").exists()


def test_figures_without_curves_say_so(stored: GridFolder) -> None:
    empty = stored.results.convergence.clear()
    bare = type(stored.results)(stored.results.runs, stored.results.predictions, empty)
    found = plan(replace(stored, results=bare), None, None)
    assert found.left_out["losses"] == found.left_out["convergence"]
    assert "privacy_utility" in found.drawings
    assert isinstance(figures.privacy_utility(bare.runs), Figure)


def test_a_panel_with_one_population_has_a_histogram() -> None:
    panel = CasePanel(
        np.ones((1, 8)), ("1",), date(2020, 1, 1), population=np.array([5000]), source="one"
    )
    assert panel.population is not None
    figure = data_figures.populations({"counties": panel.population})
    assert sum(bar.get_height() for bar in figure.axes[0].patches) == 1  # type: ignore[attr-defined]
