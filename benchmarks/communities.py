"""Communities: the learner trend on simulated ones, and the paper's experiment on drawn ones.

    python benchmarks/communities.py                   # the trend, three minutes on two cores
    python benchmarks/communities.py DATA WORK         # the paper's, about two minutes a training

The trend: the country of docs/communities.md, weekly origins of November 2020. The paper's: real
counties drawn into communities as `epifed reproduce --level community` does, a run of each; the
table is kept after every training, WORK keeps what is finished.
"""

import itertools
import json
import math
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from epifed.data.readers import read_communities, read_prepared
from epifed.evaluation.experiment import Grid, disaggregate, run_grid
from epifed.evaluation.metrics import CLIPPED
from epifed.learners.base import settings_for
from epifed.report.tables import budget
from epifed.settings import PERIODS, Settings, seed_sequence
from kept import keep, table

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
    found = json.loads((folder / epsilon / "backtest.json").read_text())
    shares = [100 * found[name] for name in ("coverage_50", "coverage_95")]
    return [epsilon.replace("inf", "∞"), found["mae_ratio"], found["wis_ratio"], *shares]


def drawn(data: Path, work: Path) -> None:
    """The paper's experiment, training by training, the most telling ones first."""
    counties = read_prepared(data)
    rng = np.random.default_rng(seed_sequence(0, "communities"))
    panel = disaggregate(counties, read_communities(data), rng)
    heads = ["period", "average", "method", "ε", "MAE", "MASE", "MAPE %", "R²", "zero targets"]
    formats = ["{}"] * 4 + ["{:short}"] * 4 + ["{:,}"]
    rows: list[list[Any]] = []
    for period, smoothing in itertools.product(PERIODS, ("centered", "none")):
        values: dict[str, Any] = Settings.PAPER | Settings.community_values(len(panel.regions))
        values |= {"sampler": "fixed", "epsilon": math.inf, "smoothing": smoothing}
        for methods, epsilon in (((), math.inf), ((), 0.3), ((CLIPPED,), None)):
            grid = Grid(
                settings=settings_for(panel, values),
                splits=("temporal",),
                periods={period: PERIODS[period]},
                epsilons=() if epsilon is None else (epsilon,),
                runs=1,
                baselines=("persistence", "zero", "county share", *methods),
            )
            runs = run_grid(panel, grid, work / smoothing, workers=1).runs.filter(stratum="all")
            for found in runs.iter_rows(named=True):
                name = [period, smoothing, found["method"], budget(found["epsilon"])]
                if name not in [row[:4] for row in rows]:
                    scores = [float(f"{found[m]:.6g}") for m in ("mae", "mase", "mape", "r2")]
                    rows.append([*name, *scores, int(found["zeros"])])
            command = "python benchmarks/communities.py ../shared/data WORK"
            print(keep("communities", command, {"real": table(heads, formats, rows)}), flush=True)


def main() -> None:
    """Simulate, forecast at three budgets, and keep it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        epifed(*SIMULATE, folder=folder)
        rows = [row(epsilon, folder) for epsilon in ("inf", "1", "0.1")]
    heads = ["ε per release", "MAE over persistence", "WIS over hub baseline", "in 50 %", "in 95 %"]
    formats = ["{}", "{:.3f}", "{:.3f}", "{:.1f} %", "{:.1f} %"]
    found = {"trend": table(heads, formats, rows)}
    print(keep("communities", "python benchmarks/communities.py", found))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        drawn(Path(sys.argv[1]), Path(sys.argv[2]))
    else:
        main()
