"""What an installation needs on disk: each choice of extras in a fresh environment.

    python benchmarks/sizes.py            # needs the package index; a few minutes
    python benchmarks/sizes.py --keep

The versions are those of constraints.txt. The sizes include compiled modules and pip itself.
"""

import argparse
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from kept import ROOT, keep, table

EXTRAS = ("", "[app]", "[federation]", "[torch]")
LEAST = 15.0
"""Megabytes from which a package is named."""
REASONS = {
    "torch": "the networks of the learner fedavg",
    "opendp": "noise that may be released, from a secure source",
    "pyarrow": "reads and writes Parquet; refuses damaged files that crash Polars",
    "_polars_runtime_32": "reads, joins and writes each table",
    "scipy": "quantiles of intervals, and the accountants of ε",
    "sympy": "comes with torch",
    "numpy": "all vectors and counts",
    "matplotlib": "the figures of a report",
    "pyproj": "maps: coordinates",
    "fontTools": "comes with matplotlib",
    "sqlalchemy": "comes with nvflare",
    "nvflare": "connects sites and server",
    "grpc": "the connections of nvflare",
    "networkx": "comes with torch",
    "pip": "the installer",
    "cryptography": "certificates, signatures, sealed shares",
    "fastexcel": "reads Excel files",
}


def sizes(folder: Path) -> dict[str, float]:
    """Megabytes below each directory or file of a folder, libraries beside their package."""
    found = defaultdict[str, float](float)
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            name = path.relative_to(folder).parts[0].split("-")[0]
            found[name.removesuffix(".libs")] += path.stat().st_blocks * 512 / 2**20
    return found


def installed(extra: str, folder: Path) -> dict[str, float]:
    """What a fresh environment with this extra has, by package."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    words = ["-m", "pip", "install", "-q", "-c", str(ROOT / "constraints.txt"), f"{ROOT}{extra}"]
    subprocess.run([str(folder / "bin" / "python"), *words], check=True)
    (packages,) = (folder / "lib").glob("python3*/site-packages")
    return sizes(packages)


def main() -> None:
    """Measure, print, and keep if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", action="store_true", help="keep the numbers for the docs")
    arguments = parser.parse_args()
    every: dict[str, dict[str, float]] = {}
    for extra in EXTRAS:
        with tempfile.TemporaryDirectory() as folder:
            every[extra] = installed(extra, Path(folder))
        print(f"epifed{extra}: {sum(every[extra].values()):.0f} MB", flush=True)
    rows = []
    largest = {name: size for found in every.values() for name, size in found.items()}
    for name, size in sorted(largest.items(), key=lambda item: -item[1]):
        if size >= LEAST:
            brought = ", ".join(f"`{e}`" for e in EXTRAS if name in every[e] and e)
            brought = "every installation" if name in every[""] else brought
            rows.append([name, round(size), brought, REASONS.get(name, "not said")])
            print(*rows[-1], sep="  ")
    if arguments.keep:
        totals = [
            [f"`epifed{extra}`", round(sum(found.values()))] for extra, found in every.items()
        ]
        keep(
            "sizes",
            "python benchmarks/sizes.py --keep",
            {
                "installations": table(("installation", "MB on disk"), ("{}", "{:,.0f}"), totals),
                "packages": table(
                    ("package", "MB", "installed with", "what needs it"),
                    ("{}", "{:,.0f}", "{}", "{}"),
                    rows,
                ),
            },
        )


if __name__ == "__main__":
    main()
