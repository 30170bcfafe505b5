"""The README's table of forecast skill, collected from the results of other benchmarks.

python benchmarks/summary.py
"""

import json
from typing import Any

from kept import RESULTS, keep, table

BUDGETS = ("∞", "1", "0.1")
SCORE = ["{:.3f}", "{:.3f} ± {:.3f}"]


def by_budget(name: str, key: str, column: str) -> list[Any]:
    """The score at each budget, as mean and deviation over runs, without its interval."""
    kept = json.loads((RESULTS / f"{name}.json").read_text())[key]
    place = kept["columns"].index(column)
    cells = {row[0]: row[place] for row in kept["rows"]}
    return [None if b not in cells else _mean(cells[b]) for b in BUDGETS]


def _mean(cell: list[float]) -> list[float]:
    return cell[:2] if len(cell) in (2, 4) else cell[:1]


def of_hub(key: str) -> list[Any]:
    """The relative WIS of a whole season at ε = ∞ and at ε = 1."""
    rows = json.loads((RESULTS / "hubs.json").read_text())[key]["rows"]
    whole = {row[1]: row[3] for row in rows if "epifed" in row[1]}
    return [
        next(score for name, score in whole.items() if "∞" in name),
        next(score for name, score in whole.items() if "ε = 1" in name),
        None,
    ]


def skill() -> dict[str, Any]:
    """The table, from the kept results of today."""
    on_tuesdays = ("Tuesdays", "`benchmarks/forecast.py`")
    rows = [
        (label, measure, *scores, command)
        for label, measure, scores, command in (
            (
                "400 German counties, 2020-09 to 2022-06, used for tuning",
                "MAE",
                by_budget("forecast", "Germany", on_tuesdays[0]),
                on_tuesdays[1],
            ),
            (
                "400 German counties, 2020-04 to 2020-08, not used for tuning",
                "MAE",
                by_budget("forecast", "April to August 2020", on_tuesdays[0]),
                on_tuesdays[1],
            ),
            (
                "3,144 US counties, 2020-03 to 2021-02",
                "MAE",
                by_budget("forecast", "US", on_tuesdays[0]),
                on_tuesdays[1],
            ),
            (
                "German counties as known on each of 48 days, autumn 2020",
                "MAE",
                by_budget("real-time", "budgets", "MAE over persistence on final data"),
                "`benchmarks/mornings.py`",
            ),
            (
                "FluSight hub 2023/24, US states, as known",
                "WIS",
                of_hub("FluSight 2023-24"),
                "`benchmarks/hubs.py`",
            ),
            (
                "CDC COVID-19 hub 2024-11 to 2025-08, as known",
                "WIS",
                of_hub("COVID-19 2024-25"),
                "`benchmarks/hubs.py`",
            ),
        )
    ]
    columns = ["data", "relative", "no privacy", "ε = 1", "ε = 0.1", "measured by"]
    formats = ["{}", "{}", SCORE, SCORE, SCORE, "{}"]
    return table(columns, formats, rows)


def main() -> None:
    """Keep the table."""
    keep("summary", "python benchmarks/summary.py", {"skill": skill()})


if __name__ == "__main__":
    main()
