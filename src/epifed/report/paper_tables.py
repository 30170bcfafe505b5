"""The paper's tables as LaTeX, Markdown and CSV: mean ± standard deviation beside persistence."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from epifed.evaluate.folder import GridFolder
from epifed.evaluate.metrics import METRICS
from epifed.evaluate.results import TRAINED, summary
from epifed.files import write_atomic, write_text
from epifed.report.drawing import period_title
from epifed.report.tables import PAPER_METRICS, budget, markdown, table_epsilons, with_spread
from epifed.words import counted

Caption = Callable[[float], str]
"""What stands under a table, given how many zero targets MAPE leaves out."""

_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "ε": r"$\varepsilon$", "δ": r"$\delta$", "∞": r"$\infty$", "±": r"$\pm$", "R²": "$R^2$",
    "–": "--", "²": "$^2$", "…": r"\ldots{}",
}  # fmt: skip


@dataclass(frozen=True)
class PaperTable:
    """One table: a row for persistence and one for each budget, in blocks of split and period."""

    name: str
    title: str
    note: str
    means: pl.DataFrame

    def rows(self) -> list[tuple[tuple[str, str], str, list[tuple[float | None, float | None]]]]:
        """Split and period, the method, and mean and deviation of each metric."""
        return [
            (
                (row["split"], row["period"]),
                "persistence" if row["epsilon"] is None else budget(row["epsilon"]),
                [(row[f"{m}_mean"], row[f"{m}_std"]) for m in PAPER_METRICS],
            )
            for row in self.means.iter_rows(named=True)
        ]

    def to_markdown(self) -> str:
        """The table for a page."""
        header = ["split", "period", "ε", *(METRICS[m].head for m in PAPER_METRICS)]
        rows = [
            [split, period_title(period), method, *(with_spread(*value) for value in values)]
            for (split, period), method, values in self.rows()
        ]
        return f"**{self.title}**\n\n{markdown(header, rows)}\n{self.note}\n"

    def to_latex(self) -> str:
        """The table for a paper, with booktabs."""
        head = " & ".join(rf"\textbf{{{latex(METRICS[m].head)}}}" for m in PAPER_METRICS)
        width = 1 + len(PAPER_METRICS)
        lines = []
        block = None
        for cell, method, values in self.rows():
            if cell != block:
                block = cell
                words = latex(f"{period_title(cell[1])}, {cell[0]} split")
                lines += [r"\midrule", rf"\multicolumn{{{width}}}{{@{{}}l}}{{\emph{{{words}}}}} \\"]
            row = [latex(method), *(latex_with_spread(*value) for value in values)]
            lines.append(" & ".join(row) + r" \\")
        return "\n".join(
            [
                r"\begin{table}[h!]",
                r"\centering",
                rf"\caption{{\textbf{{{latex(self.title)}.}} {latex(self.note)}.}}",
                rf"\label{{tab:{self.name}}}",
                rf"\begin{{tabular}}{{@{{}}l{'r' * len(PAPER_METRICS)}@{{}}}}",
                r"\toprule",
                rf"$\varepsilon$ & {head} \\",
                *lines,
                r"\bottomrule",
                r"\end{tabular}",
                r"\end{table}",
                "",
            ]
        )

    def write(self, directory: Path) -> list[Path]:
        """The three files; the CSV has all metrics, not the paper's alone."""
        paths = [directory / f"table_{self.name}.{kind}" for kind in ("tex", "md", "csv")]
        write_text(paths[0], self.to_latex())
        write_text(paths[1], self.to_markdown())
        write_atomic(paths[2], self.means.write_csv)
        return paths


def paper_tables(stored: GridFolder, caption: Caption) -> list[PaperTable]:
    """A table for each period with the paper's main budgets, and S1 with all of everything.

    A period whose results have none of the main budgets shows all it has.
    """
    settings = stored.settings
    means = summary(stored.results.runs)
    means = means.filter(TRAINED | (pl.col("method") == "persistence")).sort(
        pl.col("split").replace_strict({s: i for i, s in enumerate(stored.grid.splits)}),
        pl.col("period").replace_strict({p: i for i, p in enumerate(stored.grid.periods)}),
        "epsilon",
        nulls_last=False,
    )
    main = [e for e in table_epsilons("main") if e in stored.epsilons] or stored.epsilons

    def table(name: str, title: str, chosen: pl.DataFrame) -> PaperTable:
        zeros = chosen.filter(pl.col("method") == "persistence")["zeros"].sum()
        epochs = f" of {settings.own['epochs']} epochs" if "epochs" in settings.own else ""
        note = f"{caption(float(zeros))}; {counted(settings.rounds, 'round')}{epochs}"
        return PaperTable(name, title, note[0].upper() + note[1:], chosen)

    found = [
        table(
            period,
            f"Performance metrics for case prediction, {period_title(period)}",
            means.filter(
                (pl.col("period") == period)
                & (pl.col("epsilon").is_null() | pl.col("epsilon").is_in(main))
            ),
        )
        for period in stored.grid.periods
    ]
    return [*found, table("S1", "Privacy–utility tradeoff across privacy budgets", means)]


def latex(text: str) -> str:
    """Plain text as LaTeX."""
    pattern = "|".join(re.escape(key) for key in sorted(_LATEX, key=len, reverse=True))
    return re.sub(pattern, lambda found: _LATEX[found[0]], text)


def latex_number(value: float | None) -> str:
    r"""A number in math mode as the paper writes it.

    >>> latex_number(1.26e10), latex_number(24.972), latex_number(4480.2), latex_number(None)
    ('1.26 \\times 10^{10}', '24.97', '4.48 \\times 10^{3}', '-')
    """
    if value is None or math.isnan(value):
        return "-"
    if abs(value) >= 1000 or 0 < abs(value) < 1e-4:
        mantissa, exponent = f"{value:.2e}".split("e")
        return rf"{mantissa} \times 10^{{{int(exponent)}}}"
    return f"{value:.2f}" if value == 0 or abs(value) >= 0.01 else f"{value:.4f}"


def latex_with_spread(mean: float | None, std: float | None) -> str:
    """Mean ± standard deviation in math mode; the mean alone where there was one run."""
    if std is None or math.isnan(std):
        return f"${latex_number(mean)}$"
    return rf"${latex_number(mean)} \pm {latex_number(std)}$"
