import math

import polars as pl
import pytest

from epifed.evaluation.metrics import METRICS, shown
from epifed.evaluation.results_folder import summary
from epifed.report import tables
from epifed.report.tables import experiment, verdict


def fake_runs() -> pl.DataFrame:
    """Two splits, one of the paper's periods, two budgets and persistence, two runs each."""
    rows = []
    for split in ("shuffled", "temporal"):
        for method, epsilon in [("persistence", None), ("federated", 2.0), ("federated", math.inf)]:
            for run in range(1 if epsilon is None else 2):
                level = {None: 1.0, 2.0: 3.0 + run, math.inf: 0.25 + run / 2}[epsilon]
                rows.append(
                    {"split": split, "period": "2020-11", "method": method, "epsilon": epsilon,
                     "run": run, "stratum": "all", "zeros": 0.0}
                    | dict.fromkeys(METRICS, level)
                )  # fmt: skip
    return pl.DataFrame(rows, schema_overrides={"epsilon": pl.Float64})


def test_published_numbers_are_the_paper_s() -> None:
    table = tables.published()
    assert len(table) == 32 * 4
    cell = table.filter(
        (pl.col("table") == "main") & (pl.col("period") == "2022-03")
        & pl.col("epsilon").is_infinite() & (pl.col("metric") == "mape")
    )  # fmt: skip
    assert cell["published_mean"].to_list() == [16.36]
    assert cell["published_std"].to_list() == [0.51]
    assert len(tables.table_epsilons("s1")) == 11
    assert tables.table_epsilons("main") == [0.3, 0.5, 1.0, 2.0, math.inf]


def test_comparison_has_a_row_for_each_split_table_budget_and_metric() -> None:
    got = tables.comparison(fake_runs())
    assert got.columns == [
        "split", "table", "period", "epsilon", "metric",
        "published_mean", "published_std", "mean", "std", "outside", "persistence",
    ]  # fmt: skip
    assert len(got) == 2 * 2 * 2 * len(shown())
    assert got["split"][0] == "temporal"
    row = got.row(
        by_predicate=(pl.col("split") == "temporal") & (pl.col("table") == "s1")
        & (pl.col("epsilon") == 2.0) & (pl.col("metric") == "r2"), named=True,
    )  # fmt: skip
    assert row["published_mean"] == 0.923
    assert row["mean"] == 3.5
    assert row["std"] == pytest.approx(math.sqrt(0.5))
    assert row["persistence"] == 1.0
    assert row["outside"] is True
    assert got.filter(pl.col("metric") == "mdape")["published_mean"].is_null().all()
    assert len(tables.comparison(fake_runs(), ["main"])) == 2 * 2 * len(shown())


def test_comparison_in_markdown_has_the_paper_beside_both_splits() -> None:
    text = tables.comparison_markdown(tables.comparison(fake_runs()))
    assert text.count("the paper's table") == 2
    (line,) = [x for x in text.splitlines() if x.startswith("| 2 | R² | 0.923 ± 0.0354 |")]
    # 3.5 ± 0.71 against the paper's 0.923 ± 0.035 is outside both spreads.
    assert line.endswith("| 3.5 ± 0.7071 * | 3.5 ± 0.7071 * | 1 | 1 |")
    (line,) = [x for x in text.splitlines() if x.startswith("| ∞ | R² | 0.936 ± 0.0051 |")]
    assert line.endswith("| 0.5 ± 0.3536 * | 0.5 ± 0.3536 * | 1 | 1 |")
    assert "MdAPE" not in text


def test_verdict_names_winners_and_losers() -> None:
    got = verdict(experiment(fake_runs(), "temporal", "2020-11"))
    assert got == (
        "Experiment: fedavg (the paper's model) beats persistence at ε = ∞ (relative MAE 0.500) "
        "and loses to it at ε = 2 (relative MAE 3.500)."
    )
    assert len(summary(fake_runs())) == 6


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.9381, "0.9381"), (24.972, "24.97"), (1.26e10, "1.26e+10"), (4480.2, "4,480"),
     (-48200.0, "-48,200"), (None, "–"), (math.nan, "–"), (0.0, "0")],
)  # fmt: skip
def test_numbers_are_written_as_in_the_paper(value: float | None, text: str) -> None:
    assert tables.number(value) == text


def test_markdown_has_a_line_for_each_row() -> None:
    rows = tables.method_rows(fake_runs(), "temporal", "2020-11")
    assert [r[:2] for r in rows] == [["persistence", ""], ["federated", "2"], ["federated", "∞"]]
    text = tables.markdown(tables.method_header(), rows)
    assert text.count("\n") == 2 + len(rows)
    honest = tables.method_rows(fake_runs(), "temporal", "2020-11", small_counts=True)
    assert len(honest[0]) == len(tables.method_header(small_counts=True))
    assert text.splitlines()[3].startswith("| federated | 2 | 3.5 ± 0.7071 |")
