"""Communities: the learner trend on simulated ones, and the paper's experiment on drawn ones.

    python benchmarks/communities.py                   # the trend, three minutes on two cores
    epifed reproduce --data DATA --out drawn --level community
    python benchmarks/communities.py drawn             # keeps the runs of the paper's experiment

The trend: the country of docs/communities.md, weekly origins of November 2020. The paper's: real
counties drawn into communities, with and without the centered average. Runs are added to those
that were kept before.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from epifed.cli.paper import COMMUNITY_SMOOTHING
from epifed.evaluation.results_folder import TRAINED, summary
from epifed.report import figures
from epifed.report.drawing import save
from epifed.report.tables import budget
from kept import RESULTS, keep, keep_runs, kept_runs, spread, table

FIRST, LAST = "2020-11-03", "2020-12-15"
SIMULATE = ("simulate", "--preset", "autumn-2020", "--seed", "0", "--out", "country")
BACKTEST = ("backtest", "--data", "country", "--level", "community", "--from", FIRST, "--to", LAST)


def epifed(*words: str, folder: Path) -> None:
    """Run a command there."""
    done = subprocess.run(
        [sys.executable, "-m", "epifed", *words], cwd=folder, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(done.stderr)


def row(epsilon: str, folder: Path) -> list[Any]:
    """What the forecasts at one budget were worth."""
    epifed(*BACKTEST, "--epsilon", epsilon, "--out", epsilon, folder=folder)
    backtest = json.loads((folder / epsilon / "backtest.json").read_text())
    shares = [100 * backtest[name] for name in ("coverage_50", "coverage_95")]
    return [epsilon.replace("inf", "∞"), backtest["mae_ratio"], backtest["wis_ratio"], *shares]


def paper_table() -> dict[str, Any]:
    """The paper's experiment from the kept runs: mean and deviation of each cell."""
    scores = ("mae", "mase", "mape", "r2")
    heads = ["period", "average", "method", "ε", "runs", "MAE", "MASE", "MAPE %", "R²", "zeros"]
    formats = ["{}"] * 5 + [("{:short}", "{:short} ± {:short}")] * len(scores) + ["{:,}"]
    rows: list[list[Any]] = []
    for average in COMMUNITY_SMOOTHING:
        means = summary(kept_runs(f"communities-{average}"))
        rows += [
            [row["period"], average, row["method"], budget(row["epsilon"]), row["runs"]]
            + [spread(row, score, "_mean") for score in scores]
            + [int(row["zeros"])]
            for row in means.sort("period", TRAINED, "epsilon", "method").iter_rows(named=True)
        ]
    return table(heads, formats, sorted(rows, key=lambda row: row[0]))


def drawn(folders: list[Path]) -> None:
    """Keep the runs of the paper's experiment, its table and its curves."""
    for average in COMMUNITY_SMOOTHING:
        name = f"communities-{average}"
        keep_runs(name, [folder / average for folder in folders if (folder / average).is_dir()])
        picture = RESULTS.parent.parent / "docs" / "images" / f"communities_{average}.png"
        save(figures.convergence(kept_runs(name, "convergence")), picture)
    command = "epifed reproduce --data ../shared/data --out communities --level community"
    print(keep("communities", command, {"real": paper_table()}))


def main() -> None:
    """Simulate, forecast at three budgets, and keep it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        epifed(*SIMULATE, folder=folder)
        rows = [row(epsilon, folder) for epsilon in ("inf", "1", "0.1")]
    heads = ["ε per release", "MAE over persistence", "WIS over hub baseline", "in 50 %", "in 95 %"]
    formats = ["{}", "{:.3f}", "{:.3f}", "{:.1f} %", "{:.1f} %"]
    tables = {"trend": table(heads, formats, rows)}
    print(keep("communities", "python benchmarks/communities.py", tables))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        drawn([Path(word) for word in sys.argv[1:]])
    else:
        main()
