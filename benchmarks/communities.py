"""The learner trend on simulated communities: is it worth anything below the county?

python benchmarks/communities.py

Three minutes on two cores: the country of docs/communities.md, weekly origins of November 2020.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

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
    main()
