"""The pages for those who work in pandas and in R: what stands there runs."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import matplotlib as mpl
import pytest

from tests.forecasting.test_local_forecast import cases

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_pandas_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    mpl.use("agg")
    notebook = json.loads((DOCS / "tutorials" / "pandas.ipynb").read_text(encoding="utf-8"))
    code = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len(code) == 10
    names: dict[str, object] = {}
    for cell in code:
        exec(compile(cell, "pandas.ipynb", "exec"), names)
    assert (tmp_path / "trend.epifed").is_file()
    assert (tmp_path / "forecast.png").is_file()


def _missing_in_r(*packages: str) -> str | None:
    """What is not installed of R and its packages."""
    if shutil.which("Rscript") is None:
        return "R is not installed (Debian: r-base)"
    for package in packages:
        asked = f'quit(status = !requireNamespace("{package}", quietly = TRUE))'
        if subprocess.run(["Rscript", "-e", asked], check=False, capture_output=True).returncode:
            return f"the R package {package} is not installed (Debian: r-cran-{package.lower()})"
    return None


BLOCKS = {
    "command line": ("data.table",),
    "reticulate": ("data.table", "reticulate"),
    "hub": ("data.table", "reticulate"),
}


@pytest.mark.field
@pytest.mark.parametrize("name", BLOCKS)
def test_the_page_for_r_runs(name: str, tmp_path: Path) -> None:
    page = (DOCS / "r.md").read_text(encoding="utf-8")
    blocks = dict(re.findall(r"<!-- run: (.+?) -->\n+```r\n(.*?)```", page, re.DOTALL))
    assert blocks.keys() == BLOCKS.keys()
    if missing := _missing_in_r(*BLOCKS[name]):
        pytest.skip(missing)
    cases(3).to_table().write_csv(tmp_path / "cases.csv")
    (tmp_path / "epifed").write_text(f'#!/bin/sh\nexec {sys.executable} -m epifed "$@"\n')
    (tmp_path / "epifed").chmod(0o755)
    (tmp_path / "page.R").write_text(blocks[name], encoding="utf-8")
    done = subprocess.run(
        ["Rscript", "page.R"],
        cwd=tmp_path,
        env=os.environ
        | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "RETICULATE_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "forecast.png").stat().st_size > 1000
