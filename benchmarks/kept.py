"""The numbers of the documentation, from the results that are kept beside this file.

    python benchmarks/kept.py            # rewrites README.md and docs/ (make figures-docs)
    python benchmarks/kept.py --check    # says what differs, and changes nothing

A benchmark keeps what it found with `keep`, as `results/NAME.json`: the command, the day, and
tables or single numbers under names of their own. A page has them in two ways. A table:

    <!-- numbers: NAME/TABLE -->
    (written anew)
    <!-- /numbers -->

and a number in a sentence, with the place it comes from behind it:

    errs 0.732<!-- = NAME/TABLE/ROW/COLUMN --> times as much, 95<!-- = NAME/origins :.0f --> origins

A table is an object with `columns`, `formats` (one for each column) and `rows`; a row is found by
its first cell, or by several: `method=federated,ε=0.3`. A cell is text, a number, null, or a list
of numbers whose format has as many fields; of several formats the one with as many fields is
taken. In a list of records a step names one: `scores/model=epifed,epsilon=inf/wis_ratio`.
"""

import argparse
import json
import re
import string
import sys
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import polars as pl
from polars import selectors as cs

from epifed.evaluation.results_folder import KEYS
from epifed.files import write_parquet
from epifed.report.tables import number

ROOT = Path(__file__).resolve().parent.parent
RESULTS = Path(__file__).resolve().parent / "results"
BLOCK = re.compile(r"(<!-- numbers: (.+?) -->\n).*?(<!-- /numbers -->)", re.DOTALL)
NUMBER = r"[-−]?(?:[\d][\d.,]*(?:e[-+]\d+)?(?: ± [\d.,]+\d(?:e[-+]\d+)?)?|∞)"
LIKE_A_NUMBER = re.compile(r"[-−+±<≤≥\[ ]*[\d∞][^a-z]*(?: (?:s|MB|GB))?$")
INLINE = re.compile(rf"(?P<shown>{NUMBER})(?P<mark><!-- = (?P<where>.+?)(?: :(?P<form>\S+))? -->)")

Formats = str | Sequence[str]


class Formatter(string.Formatter):
    """Python's formats, and `short`: four digits that count, as in the tables of `reproduce`.

    `star` marks a cell.
    """

    def format_field(self, value: Any, format_spec: str) -> str:
        """A number as text."""
        if format_spec == "star":
            return " \\*"
        if format_spec != "short":
            return str(super().format_field(value, format_spec))
        return number(value)


FORMATTER = Formatter()


def keep(name: str, command: str, results: Mapping[str, Any], measured: str = "") -> Path:
    """Write what a command found; what the file has under other names stays."""
    path = RESULTS / f"{name}.json"
    before = json.loads(path.read_text()) if path.exists() else {}
    when = {"command": command, "measured": measured or date.today().isoformat()}
    fresh = {
        key: {**value, **when} if isinstance(value, dict) else value
        for key, value in results.items()
    }
    RESULTS.mkdir(exist_ok=True)
    path.write_text(_dumped({**before, **fresh}) + "\n")
    return path


def keep_runs(name: str, folders: Sequence[Path]) -> None:
    """Keep the runs of results folders, a row per run and population cluster, and their curves.

    They are added to those that are kept; a run that is computed again replaces the older one.
    """
    RESULTS.mkdir(exist_ok=True)
    for kind in ("runs", "convergence"):
        path = RESULTS / f"{name}-{kind}.parquet"
        frames = [pl.read_parquet(folder / f"{kind}.parquet") for folder in folders]
        if path.exists():
            frames.append(pl.read_parquet(path))
        rows = pl.concat(frames, how="diagonal_relaxed").with_columns(
            (cs.float() - cs.by_name("epsilon")).cast(pl.Float32)
        )
        own = ["stratum"] if kind == "runs" else ["round"]
        kept = rows.unique([*KEYS, *own], keep="first").sort(*KEYS, *own)
        write_parquet(path, kept)


def kept_runs(name: str, kind: str = "runs") -> pl.DataFrame:
    """The runs that `keep_runs` kept, or their `convergence`."""
    return pl.read_parquet(RESULTS / f"{name}-{kind}.parquet").with_columns(
        cs.float().cast(pl.Float64)
    )


def spread(row: Mapping[str, Any], score: str, mean: str = "") -> list[float]:
    """Mean and deviation of a score as a cell; what does not vary has no deviation."""
    values = (row[f"{score}{mean}"], row[f"{score}_std"] or None)
    return [float(f"{value:.6g}") for value in values if value is not None]


def _dumped(value: Any, indent: str = "") -> str:
    """JSON with one row of a table in one line: so it is read, and so a change is seen."""
    deeper = indent + " "
    if isinstance(value, dict):
        items = [
            f"{json.dumps(k, ensure_ascii=False)}: {_dumped(v, deeper)}" for k, v in value.items()
        ]
        return "{\n" + ",\n".join(deeper + item for item in items) + f"\n{indent}}}"
    if isinstance(value, list) and any(isinstance(v, list) for v in value) and len(indent) < 3:
        return "[\n" + ",\n".join(deeper + _line(v) for v in value) + f"\n{indent}]"
    return _line(value)


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def table(
    columns: Sequence[str], formats: Sequence[Formats], rows: Sequence[Sequence[Any]]
) -> dict[str, Any]:
    """A table as it is kept."""
    if any(len(row) != len(columns) for row in rows) or len(formats) != len(columns):
        raise ValueError("a row, or the formats, are not as many as the columns")
    return {"columns": list(columns), "formats": list(formats), "rows": [list(r) for r in rows]}


def shown(cell: Any, formats: Formats) -> str:
    """A cell as text."""
    if cell is None or isinstance(cell, str):
        return cell or ""
    values = cell if isinstance(cell, list) else [cell]
    choices = [formats] if isinstance(formats, str) else formats
    for form in choices:
        fields = [field for _, field, _, _ in FORMATTER.parse(form) if field is not None]
        if len(fields) == len(values):
            return FORMATTER.format(form, *values)
    raise ValueError(f"no format of {choices} has as many fields as {values}")


def markdown(kept: Mapping[str, Any]) -> str:
    """A kept table in Markdown; numbers stand on the right."""
    columns, formats = kept["columns"], kept["formats"]
    right = [
        any(i and row[i] is not None and LIKE_A_NUMBER.match(str(row[i])) for row in kept["rows"])
        for i in range(len(columns))
    ]
    lines = [columns, ["---:" if numbers else "---" for numbers in right]]
    lines += [[shown(c, f) for c, f in zip(row, formats, strict=True)] for row in kept["rows"]]
    return "".join(re.sub(r"\|  (?=\|)", "| ", f"| {' | '.join(line)} |\n") for line in lines)


def found(where: str) -> tuple[Any, Formats]:
    """What lies at a place, and its format if it is a table's."""
    try:
        return _found(where)
    except (KeyError, ValueError, OSError):
        raise SystemExit(f"{where}: found nothing kept there; expected a result") from None


def _found(where: str) -> tuple[Any, Formats]:
    name, *steps = where.split("/")
    here: Any = json.loads((RESULTS / f"{name}.json").read_text())
    formats: Formats = "{:g}"
    for step in steps:
        if isinstance(here, dict) and "rows" in here:
            table, (here,) = here, [row for row in here["rows"] if _chosen(here, row, step)]
        elif isinstance(here, list) and "=" in step:
            wanted = dict(one.split("=", 1) for one in step.split(","))
            (here,) = [r for r in here if all(str(r[k]) == v for k, v in wanted.items())]
        elif isinstance(here, list):
            column = table["columns"].index(step)
            here, formats = here[column], table["formats"][column]
        else:
            here = here[step]
    return here, formats


def _chosen(kept: Mapping[str, Any], row: Sequence[Any], step: str) -> bool:
    """Whether a row is meant, by its first cell or by columns and what they have."""
    wanted = [one.partition("=") for one in step.split(",")]
    if any(name not in kept["columns"] for name, _, _ in wanted):
        return _label(row[0]) == step
    return all(_label(row[kept["columns"].index(name)]) == value for name, _, value in wanted)


def _label(cell: Any) -> str:
    return cell if isinstance(cell, str) else f"{cell:g}" if isinstance(cell, int | float) else ""


def rendered(text: str, comma: bool = False) -> str:
    """A page with its numbers as they are kept."""

    def block(match: re.Match[str]) -> str:
        return f"{match[1]}\n{markdown(found(match[2])[0])}\n{match[3]}"

    def inline(match: re.Match[str]) -> str:
        cell, formats = found(match["where"])
        if match["form"]:
            cell, formats = cell[0] if isinstance(cell, list) else cell, f"{{:{match['form']}}}"
        said = shown(cell, formats)
        said = re.sub(r" \[.*\]$", "", said)
        return (said.replace(".", ",") if comma else said) + match["mark"]

    return INLINE.sub(inline, BLOCK.sub(block, text))


def pages() -> list[Path]:
    """The README and all pages."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def stale() -> dict[Path, str]:
    """The pages that differ from what is kept, as they should be."""
    old = {page: page.read_text() for page in pages() if "_build" not in page.parts}
    new = {page: rendered(text, comma="de" in page.parts) for page, text in old.items()}
    return {page: text for page, text in new.items() if text != old[page]}


def main() -> None:
    """Rewrite the pages, or say which are stale."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing; exit code 1 if stale")
    given = parser.parse_args()
    wrong = stale()
    for page, text in wrong.items():
        print(f"{page.relative_to(ROOT)}: {'stale' if given.check else 'written'}")
        if not given.check:
            page.write_text(text)
    sys.exit(1 if given.check and wrong else 0)


if __name__ == "__main__":
    main()
