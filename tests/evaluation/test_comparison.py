"""The comparison that matters: both learners beside "like today", in one table and on the page."""

import json
import math
from datetime import timedelta
from pathlib import Path

import pytest

from epifed.errors import EpifedError
from epifed.evaluation.backtest import origins_between, run_backtest
from epifed.evaluation.results_folder import read_folder
from epifed.explain import explain
from epifed.learners.base import settings_for
from epifed.report.html.payload import payload
from epifed.report.tables import Compared, advice, compared, verdict
from tests.evaluation.test_results_folder import small_grid
from tests.helpers import small_panel


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A grid with a backtest at three budgets within it."""
    folder = tmp_path_factory.mktemp("both")
    panel = small_panel(days=100)
    small_grid(panel, folder)
    made = {}
    for epsilon in (0.1, 1.0, math.inf):
        settings = settings_for(panel, {"learner": "trend", "epsilon": epsilon})
        origins = origins_between(panel.end - timedelta(days=21), panel.end, 7, panel, 7)
        made[epsilon] = run_backtest(panel, settings, origins, folder / "backtest", workers=1)
    others = [made[0.1].record(), made[math.inf].record()]
    made[1.0].write(folder / "backtest", panel, others)
    return folder


def test_rows_name_both_learners_at_their_budgets(both: Path) -> None:
    rows = compared(read_folder(both))
    weekly = [row for row in rows if row.kind == "weekly"]
    assert [(row.method, row.epsilon) for row in weekly] == [
        ("persistence", None), ("trend", 0.1), ("trend", 1.0), ("trend", math.inf),
    ]  # fmt: skip
    record = json.loads((both / "backtest" / "backtest.json").read_text())
    shown = weekly[2]
    assert (shown.error, shown.interval_score, shown.coverage) == (
        record["mae_ratio"], record["wis_ratio"], record["coverage_95"],
    )  # fmt: skip
    experiment = {row.method for row in rows if row.kind == "experiment" and row.trained}
    assert experiment == {"federated"}
    assert all(row.interval_score is None for row in rows if row.kind == "experiment")


def test_the_page_holds_the_same_rows(both: Path) -> None:
    folder = read_folder(both)
    found = payload(folder, None, groups={}, title=None, ledger=None)["compared"]
    assert [(row["kind"], row["method"]) for row in found] == [
        (row.kind, row.method) for row in compared(folder)
    ]
    assert found[3]["epsilon"] == "inf"


def test_a_budget_file_that_does_not_fit_is_refused(both: Path, tmp_path: Path) -> None:
    path = both / "backtest" / "budgets.json"
    text = path.read_text()
    path.write_text(text.replace('"releases"', '"release"', 1))
    try:
        with pytest.raises(EpifedError, match=r"budgets\.json"):
            read_folder(both)
    finally:
        path.write_text(text)


def row(error: float | None, epsilon: float | None = 1.0, method: str = "federated") -> Compared:
    return Compared("experiment", method, epsilon, error)


def test_a_drowned_training_is_told_what_to_do() -> None:
    said = advice([row(0.9), row(3.5), row(2e6, 0.5), row(5.0, math.inf)], 20)
    assert said is not None
    assert "fedavg (the paper's model) at ε = 0.5 has a relative MAE of 2.00e+06" in said
    assert "20 clients" in said and "--learner trend" in said
    assert "--learner" not in (advice([row(3.0, method="trend")], 20) or "--learner")
    assert advice([row(0.9), row(5.0, math.inf), row(9.0, None, "zero")], 20) is None


def test_nothing_to_beat_is_said() -> None:
    assert "nothing to beat" in verdict([row(None), row(None, None, "persistence")])


def test_explain_counts_the_releases_of_every_budget(both: Path) -> None:
    found = explain(both / "backtest")
    each = [(budget.epsilon, budget.trainings) for budget in found.budgets]
    assert [epsilon for epsilon, _ in each] == [0.1, 1.0, math.inf]
    assert f"{found.trainings} further trainings" in explain(both).sentences()[-1]
    assert found.private_trainings == each[0][1] + each[1][1]
