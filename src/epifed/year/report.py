"""The report of a year: one table, a line for each week, as Markdown, HTML and JSON."""

import html
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl

from epifed.files import to_json, write_text
from epifed.holidays import closed
from epifed.panel import CasePanel
from epifed.privacy.accounting import UNIT, rounded_up
from epifed.simulate.settings import CALENDAR
from epifed.words import counted
from epifed.year import chart
from epifed.year.account import Accounts
from epifed.year.course import course_of
from epifed.year.plan import Plan
from epifed.year.scores import HORIZONS, forecasts_of, summed

COLUMNS = {
    "week": "week",
    "day": "Monday",
    "events": "what happened",
    "outcome": "outcome",
    "sites": "sites",
    "spent": "ε",
    "planned": "planned",
    "ratio": "error to like today",
    "coverage_50": "in 50 %",
    "coverage_95": "in 95 %",
}
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem;
  color: #1a1a1a; background: #fff }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { padding: .25rem .6rem; border-bottom: 1px solid #ddd; text-align: right }
td:nth-child(2), td:nth-child(5) { white-space: nowrap }
th:nth-child(3), td:nth-child(3), th:nth-child(4), td:nth-child(4) { text-align: left }
.wrong { color: #a40000; font-weight: 600 }
@media (prefers-color-scheme: dark) { body { color: #eee; background: #16181c }
  th, td { border-color: #444 } .wrong { color: #ff8a80 } }
"""


def year_report(folder: Path, plan: Plan, accounts: Accounts, final: CasePanel) -> dict[str, Any]:
    """What came of a year, for JSON; the pages are written from it."""
    course, table = course_of(folder), forecasts_of(folder, final)
    weeks = []
    for number, week in enumerate(plan.planned, 1):
        year, iso, _ = week.day.isocalendar()
        mine = table.filter(pl.col("week") == f"{year}-W{iso:02d}") if len(table) else table
        scores = summed(mine, HORIZONS[0]) if len(mine) else None
        became, line = accounts.outcomes.get(week.name, {}), course.get(number, {})
        events = [event.said() for event in plan.events.of(number)]
        off, _ = closed(CALENDAR, week.day - timedelta(days=7), 8)
        weeks.append(
            {
                "week": number,
                "day": week.day,
                "events": events + (["holidays"] if off.any() else []),
                "outcome": became.get("outcome"),
                "reason": became.get("reason"),
                "sites": len(accounts.took_part.get(week.name, [])),
                "without": accounts.without.get(week.name, {}),
                "holders": len(accounts.holders.get(week.name, [])),
                "spent": accounts.spent[number - 1],
                "planned": accounts.planned[number - 1],
                "scores": scores,
                "seconds": line.get("seconds"),
                "processor_seconds": line.get("processor_seconds"),
                "processor_seconds_offices": line.get("processor_seconds_offices"),
            }
        )
    totals = {f"{days} days": summed(table, days) for days in HORIZONS} if len(table) else {}
    ran = [one for one in weeks if one["outcome"] == "done"]
    return {
        "right": accounts.right,
        "faults": accounts.faults,
        "sites": plan.sites,
        "aggregators": plan.aggregators,
        "clients": plan.clients,
        "learner": plan.settings.learner,
        "epsilon_each": plan.price(1),
        "epsilon_spent": accounts.spent[-1],
        "epsilon_planned": accounts.planned[-1],
        "delta": plan.settings.delta,
        "accountant": plan.settings.accountant,
        "weeks_done": len(ran),
        "weeks_skipped": len(weeks) - len(ran),
        "releases": len(accounts.releases),
        "weeks_scored": sum(one["scores"] is not None for one in weeks),
        "scores": totals,
        "seconds": sum(one["seconds"] or 0.0 for one in weeks),
        "processor_seconds": sum(one["processor_seconds"] or 0.0 for one in weeks),
        "processor_seconds_offices": sum(one["processor_seconds_offices"] or 0.0 for one in weeks),
        "weeks": weeks,
    }


def write_year(folder: Path, found: dict[str, Any]) -> None:
    """Write report.md, report.html and report.json."""
    write_text(folder / "report.json", to_json(found) + "\n")
    write_text(folder / "report.md", _markdown(found))
    write_text(folder / "report.html", _page(found))


def sentences(found: dict[str, Any]) -> list[str]:
    """What a year came to, in plain sentences."""
    adding = (
        counted(found["aggregators"], "aggregator") if found["aggregators"] else "no aggregators"
    )
    said = [
        f"{counted(found['weeks_done'], 'week')} run and {found['weeks_skipped']} skipped, with "
        f"{counted(found['sites'], 'site')}, {adding} and "
        f"{counted(found['clients'], 'client')}, all simulated; learner {found['learner']}.",
        f"ε = {rounded_up(found['epsilon_spent'])} spent, {rounded_up(found['epsilon_planned'])} "
        f"planned, at δ = {found['delta']:g} ({UNIT} added or removed, "
        f"{found['accountant'].upper()} accountant); {counted(found['releases'], 'release')}, each "
        f"ε = {rounded_up(found['epsilon_each'])} by itself.",
    ]
    for days, scores in found["scores"].items():
        if scores:
            said.append(
                f"{days} ahead: {scores['mae_ratio']:.3f} of the error of like today, "
                f"{100 * scores['coverage_50']:.0f} % in the 50 % and "
                f"{100 * scores['coverage_95']:.0f} % in the 95 % intervals "
                f"({counted(scores['forecasts'], 'forecast')} made on their mornings, held "
                "to the final counts)."
            )
    said.append(
        f"{counted(round(found['seconds'] / 60), 'minute')}; processor seconds a week: "
        f"{found['processor_seconds'] / max(1, len(found['weeks'])):.0f} of the parties, "
        f"{found['processor_seconds_offices'] / max(1, len(found['weeks'])):.0f} of the offices' "
        "own reports."
    )
    said.append(
        "Every release is accounted for: each was paid for once, in every ledger, and the ledger "
        "is the plan."
        if found["right"]
        else "The books are wrong: " + "; ".join(found["faults"])
    )
    return said


def _cells(one: dict[str, Any], sites: int) -> list[str]:
    scores = one["scores"] or {}
    percent = {
        name: f"{100 * scores[name]:.0f}" if scores else ""
        for name in ("coverage_50", "coverage_95")
    }
    reason = f": {one['reason']}" if one["reason"] else ""
    ratio = scores.get("mae_ratio")
    return [
        str(one["week"]),
        str(one["day"]),
        "; ".join(one["events"]),
        f"{one['outcome']}{reason}",
        f"{one['sites']} of {sites}",
        rounded_up(one["spent"]),
        rounded_up(one["planned"]),
        "" if ratio is None else f"{ratio:.2f}",
        percent["coverage_50"],
        percent["coverage_95"],
    ]


def _markdown(found: dict[str, Any]) -> str:
    lines = ["# A rehearsed year", "", *(f"- {one}" for one in sentences(found)), ""]
    lines += ["| " + " | ".join(COLUMNS.values()) + " |"]
    lines += ["| --: | --: | --- | --- | --: | --: | --: | --: | --: | --: |"]
    for one in found["weeks"]:
        lines.append("| " + " | ".join(_cells(one, found["sites"])) + " |")
    return "\n".join(lines) + "\n"


def _page(found: dict[str, Any]) -> str:
    wrong = "" if found["right"] else ' class="wrong"'
    said = "".join(f"<li{wrong}>{html.escape(one)}</li>" for one in sentences(found))
    head = "".join(f'<th scope="col">{name}</th>' for name in COLUMNS.values())
    rows = "".join(
        "<tr>"
        + "".join(f"<td>{html.escape(cell)}</td>" for cell in _cells(one, found["sites"]))
        + "</tr>"
        for one in found["weeks"]
    )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>A rehearsed year</title>'
        f"<style>{_STYLE}{chart.STYLE}</style><h1>A rehearsed year</h1><ul>{said}</ul>"
        f"{chart.chart(found)}"
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></html>\n"
    )
