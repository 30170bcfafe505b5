"""The report of a rehearsed year, and the check of all its ledgers.

The check reads the schedule's journal, the ledgers of all parties, the server's trainings and the
release files of each party. It verifies that every release was charged once, and nothing else was.
"""

import html
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl

from epifed.data.calendar import closed
from epifed.data.panel import CasePanel
from epifed.data.readers.formats import CALENDAR
from epifed.errors import EpifedError, counted
from epifed.federation import aggregator
from epifed.federation.answers import MODELS
from epifed.federation.flare.controller import TRAININGS
from epifed.federation.schedule import JOURNAL, read_outcomes
from epifed.federation.site import LEDGER
from epifed.files import to_json, write_text
from epifed.ledger.budget import Book, RunRecord, together
from epifed.ledger.ledger import Ledger
from epifed.privacy.accounting import UNIT, rounded_up
from epifed.rehearsal.runner import (
    BUDGET,
    HORIZONS,
    Plan,
    course_of,
    forecasts_of,
    foreseen,
    renamed,
    summed,
)
from epifed.training.release import read_release

TOLERANCE = 1e-9
"""Relative tolerance of an ε: composing rounds at once or one by one rounds differently."""


@dataclass
class Accounts:
    """The accounts of a year by its ledgers, and their faults."""

    outcomes: dict[str, dict[str, Any]]
    """By week, from the schedule's journal."""
    spent: list[float]
    """ε after each week, by the federation's ledger."""
    planned: list[float]
    """ε after each week, by the plan and the list of events."""
    releases: dict[str, str] = field(default_factory=dict)
    """The hash of each week's release, by the federation's ledger."""
    took_part: dict[str, list[str]] = field(default_factory=dict)
    """By week, the sites whose answer counted."""
    without: dict[str, dict[str, str]] = field(default_factory=dict)
    """By week, the sites whose answer did not count, with the reason."""
    holders: dict[str, list[str]] = field(default_factory=dict)
    """By week, the parties that have its release."""
    faults: list[str] = field(default_factory=list)

    @property
    def right(self) -> bool:
        """Whether every release was charged once and the ledger agrees with the plan."""
        return not self.faults


def settle_accounts(folder: Path, plan: Plan) -> Accounts:
    """Read and check all ledgers of a finished year."""
    outcomes = read_outcomes(folder / "weeks" / JOURNAL)
    book = Ledger(folder / BUDGET, copy=True).book()
    names = [week.name for week in plan.planned]
    expected = foreseen(plan.schedule, plan.names, plan.events)
    done = [name for name, outcome in zip(names, expected, strict=True) if outcome == "done"]
    accounts = Accounts(outcomes, *_courses(book, plan, expected))
    fault = accounts.faults.append
    for name, outcome in zip(names, expected, strict=True):
        became = outcomes.get(name, {}).get("outcome", "nothing")
        if became != outcome:
            fault(f"{name}: the journal has '{became}'; expected '{outcome}' by the list of events")
    _check_budget(book, plan, done, accounts)
    for name in done:
        _check_training(folder, name, accounts)
    _check_parties(folder, plan, done, accounts)
    return accounts


def _courses(book: Book, plan: Plan, expected: list[Any]) -> tuple[list[float], list[float]]:
    """ε after each week: spent, and planned."""
    spent, planned, weeks, parts = list[float](), list[float](), 0, list[Any]()
    for week, outcome in zip(plan.planned, expected, strict=True):
        run = book.named(week.name)
        parts += [run.part(run.spent)] if run else []
        weeks += outcome == "done"
        spent.append(book.cap.price(together(parts)))
        planned.append(plan.price(weeks))
    return spent, planned


def _check_budget(book: Book, plan: Plan, done: list[str], accounts: Accounts) -> None:
    fault = accounts.faults.append
    _check_runs("the federation's ledger", book, plan, done, fault)
    for name in done:
        run = book.named(name)
        if run is None:
            fault(f"{name}: not in the federation's ledger; expected it to be charged")
        elif run.model_hash is None:
            fault(f"{name}: no release stands in the federation's ledger; expected its hash")
        else:
            accounts.releases[name] = run.model_hash
    total, wanted = book.cap.price(book.taken()), plan.price(len(done))
    if abs(total - wanted) > TOLERANCE * wanted:
        fault(f"the federation's ledger: found ε = {total:.9g} spent; expected {wanted:.9g}")


def _check_runs(
    whose: str, book: Book, plan: Plan, allowed: list[str], fault: Callable[[str], None]
) -> None:
    """Check a ledger: only the allowed trainings, each once, with the plan's rounds."""
    seen = set[str]()
    for run in book.runs.values():
        if not run.counted:  # released by a week that was skipped
            continue
        if run.training not in allowed or run.training in seen:
            again = "a second time" if run.training in seen else "but no week that was to be run"
            fault(f"{whose}: found '{run.training}', {again}")
        seen.add(run.training)
        if run.spent != plan.privacy.rounds:
            fault(
                f"{whose}: {run.training}: found {run.spent} rounds charged; expected "
                f"{plan.privacy.rounds}"
            )


def _check_training(folder: Path, name: str, accounts: Accounts) -> None:
    """Check that the server's release is the ledger's; note which sites took part."""
    path = folder / "kits" / "server" / TRAININGS / name
    try:
        digest = read_release(path / "model.epifed").sha256
        lines = [json.loads(text) for text in (path / "report.jsonl").read_text().splitlines()]
    except (EpifedError, OSError, ValueError) as error:
        accounts.faults.append(f"{name}: its release cannot be read at the server: {error}")
        return
    if digest != accounts.releases.get(name):
        accounts.faults.append(f"{name}: the server's release is not the one that was charged")
    last = {line["round"]: line for line in lines}
    problems = {text["site"]: text["reason"] for line in last.values() for text in line["problems"]}
    accounts.without[name] = problems
    everyone = {site for line in last.values() for site in line["sites"]}
    accounts.took_part[name] = sorted(everyone - problems.keys())


def _check_parties(folder: Path, plan: Plan, done: list[str], accounts: Accounts) -> None:
    """Check the ledgers and releases of all parties, also of those with former names."""
    names = {digest: name for name, digest in accounts.releases.items()}
    accounts.holders = {name: [] for name in done}
    for kit in sorted((folder / "kits").iterdir()):
        for path in sorted((kit / MODELS).glob("*.epifed")):
            name = names.get(read_release(path).sha256)
            if name is None or name != path.stem:
                accounts.faults.append(
                    f"{kit.name}: holds a release that no ledger was charged for: {path}"
                )
            else:
                accounts.holders[name].append(kit.name)
    for name in plan.adders:
        book = Ledger(folder / "kits" / name / aggregator.LEDGER, copy=True).book()
        _check_runs(name, book, plan, done, accounts.faults.append)
        for week in sorted(set(done) - _trainings(book)):
            accounts.faults.append(f"{name}: {week} is not in its ledger")
    lost = {site for event in plan.events.events if event.what == "lost-key" for site in event.who}
    for name in plan.names:
        now = renamed(name) if name in lost else name
        _check_site(folder, plan, {name, now}, now, done, accounts)


def _check_site(
    folder: Path, plan: Plan, names: set[str], now: str, done: list[str], accounts: Accounts
) -> None:
    """Check that a site's ledger has all weeks in which its answer counted, under any name."""
    fault = accounts.faults.append
    counted = {week for week, sites in accounts.took_part.items() if names & set(sites)}
    path = folder / "kits" / now / LEDGER
    if not path.exists():
        if counted:
            fault(f"{now}: has no ledger; expected one of {len(counted)} weeks")
        return
    book = Ledger(path, copy=True).book()
    _check_runs(now, book, plan, done, fault)
    for week in sorted(counted - _trainings(book)):
        fault(f"{now}: {week} is not in its ledger, though its answer counted")
    for run in book.runs.values():
        if _wrong_release(run, accounts):
            fault(f"{now}: {run.training}: its ledger names another release than the charged one")


def _trainings(book: Book) -> set[str]:
    return {run.training for run in book.runs.values()}


def _wrong_release(run: RunRecord, accounts: Accounts) -> bool:
    return run.model_hash not in (None, accounts.releases.get(run.training))


WIDTH, LEFT, RIGHT = 1080.0, 60.0, 90.0
TOP, HEIGHT, GAP = 22.0, 96.0, 44.0
STYLE = """
svg { width: 100%; height: auto; font: 13px system-ui, sans-serif }
svg text { fill: currentColor } svg .axis { stroke: currentColor; opacity: .25 }
svg .site { fill: #2b6cb0 } svg .skipped { fill: none; stroke: #b7791f; stroke-width: 1.5 }
svg .event { fill: #b7791f } svg .line { fill: none; stroke: #2b6cb0; stroke-width: 2 }
svg .plan { fill: none; stroke: currentColor; opacity: .6; stroke-dasharray: 3 4 }
svg .dot { fill: #2b6cb0 }
"""


def chart(year: dict[str, Any]) -> str:
    """The three charts of a year's report, as SVG."""
    weeks = year["weeks"]
    step = (WIDTH - LEFT - RIGHT) / max(1, len(weeks))
    middles = [LEFT + (n + 0.5) * step for n in range(len(weeks))]
    strips = (_sites(year, middles, step), _budget(weeks, middles), _errors(weeks, middles))
    parts = []
    for number, strip in enumerate(strips):
        top = TOP + number * (HEIGHT + GAP)
        parts.append(f'<g transform="translate(0 {top:g})">{strip}</g>')
    bottom = TOP + len(strips) * (HEIGHT + GAP)
    parts += [_text(x, bottom - 24, label) for x, label in _months(weeks, middles)]
    label = 'role="img" aria-label="Sites, budget and error by week"'
    return f'<svg viewBox="0 0 {WIDTH:g} {bottom - 14:g}" {label}>{"".join(parts)}</svg>'


def _sites(year: dict[str, Any], middles: list[float], step: float) -> str:
    total = year["sites"]
    parts = [_title(f"sites that took part, of {total}; ● something happened, □ week skipped")]
    for x, week in zip(middles, year["weeks"], strict=True):
        wide, high = 0.7 * step, HEIGHT * week["sites"] / total
        title = html.escape("; ".join([f"week {week['week']}", *week["events"]]))
        shape = f'x="{x - wide / 2:.1f}" width="{wide:.1f}"'
        if week["outcome"] == "done":
            bar = f'<rect class="site" {shape} y="{HEIGHT - high:.1f}" height="{high:.1f}">'
        else:
            bar = f'<rect class="skipped" {shape} y="{HEIGHT - wide:.1f}" height="{wide:.1f}">'
        parts.append(f"{bar}<title>{title}</title></rect>")
        if set(week["events"]) - {"holidays"}:
            dot = f'<circle class="event" cx="{x:.1f}" cy="{HEIGHT + 10:g}" r="4">'
            parts.append(f"{dot}<title>{title}</title></circle>")
    return "".join([*parts, _axis(HEIGHT), _text(LEFT - 8, 10, str(total), "end")])


def _budget(weeks: list[dict[str, Any]], middles: list[float]) -> str:
    most = max(max(week["spent"], week["planned"]) for week in weeks) or 1.0

    def path(name: str) -> str:
        at = [
            f"{x:.1f},{HEIGHT * (1 - week[name] / most):.1f}"
            for x, week in zip(middles, weeks, strict=True)
        ]
        return " ".join(at)

    spent = rounded_up(weeks[-1]["spent"])
    return "".join(
        (
            _title("ε by the ledger (line) and by the plan (dashed)"),
            f'<polyline class="line" points="{path("spent")}"/>',
            f'<polyline class="plan" points="{path("planned")}"/>',
            _axis(HEIGHT),
            _text(LEFT - 8, HEIGHT, "0", "end"),
            _text(middles[-1] + 12, 8, f"ε = {spent}"),
        )
    )


def _errors(weeks: list[dict[str, Any]], middles: list[float]) -> str:
    scored = [
        (x, week["scores"]["mae_ratio"])
        for x, week in zip(middles, weeks, strict=True)
        if week["scores"]
    ]
    most = max([1.2, *(ratio for _, ratio in scored)])
    dots = [
        f'<circle class="dot" cx="{x:.1f}" cy="{HEIGHT * (1 - ratio / most):.1f}" r="3.5"/>'
        for x, ratio in scored
    ]
    like = HEIGHT * (1 - 1 / most)
    return "".join(
        (
            _title("MAE a week ahead, relative to persistence"),
            *dots,
            _axis(like),
            _axis(HEIGHT),
            _text(LEFT - 8, like + 4, "1", "end"),
            _text(LEFT - 8, HEIGHT, "0", "end"),
        )
    )


def _months(weeks: list[dict[str, Any]], middles: list[float]) -> list[tuple[float, str]]:
    """Positions and names of months for the axis, every third one."""
    labels, before = [], None
    for x, week in zip(middles, weeks, strict=True):
        month = str(week["day"])[:7]
        if month != before and (before is None or int(month[5:]) % 3 == 1):
            labels.append((x, month))
        before = month
    return labels


def _title(text: str) -> str:
    return _text(LEFT, -8, text)


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(text)}</text>'


def _axis(y: float) -> str:
    return f'<path class="axis" d="M{LEFT:g} {y:.1f}H{WIDTH - RIGHT:g}"/>'


COLUMNS = {
    "week": "week",
    "day": "Monday",
    "events": "what happened",
    "outcome": "outcome",
    "sites": "sites",
    "spent": "ε",
    "planned": "planned",
    "ratio": "MAE relative to persistence",
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
    """The results of a year, for JSON; the pages are written from them."""
    course, table = course_of(folder), forecasts_of(folder, final)
    weeks = []
    for number, week in enumerate(plan.planned, 1):
        year, iso, _ = week.day.isocalendar()
        scored = table.filter(pl.col("week") == f"{year}-W{iso:02d}") if len(table) else table
        scores = summed(scored, HORIZONS[0]) if len(scored) else None
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


def write_year(folder: Path, year: dict[str, Any]) -> None:
    """Write report.md, report.html and report.json."""
    write_text(folder / "report.json", to_json(year) + "\n")
    write_text(folder / "report.md", _markdown(year))
    write_text(folder / "report.html", _page(year))


def sentences(year: dict[str, Any]) -> list[str]:
    """The results of a year in plain sentences."""
    adding = counted(year["aggregators"], "aggregator") if year["aggregators"] else "no aggregators"
    lines = [
        f"{counted(year['weeks_done'], 'week')} run and {year['weeks_skipped']} skipped, with "
        f"{counted(year['sites'], 'site')}, {adding} and "
        f"{counted(year['clients'], 'client')}, all simulated; learner {year['learner']}.",
        f"ε = {rounded_up(year['epsilon_spent'])} spent, {rounded_up(year['epsilon_planned'])} "
        f"planned, at δ = {year['delta']:g} ({UNIT} added or removed, "
        f"{year['accountant'].upper()} accountant); {counted(year['releases'], 'release')}, each "
        f"ε = {rounded_up(year['epsilon_each'])} by itself.",
    ]
    for days, scores in year["scores"].items():
        if scores:
            lines.append(
                f"{days} ahead: {scores['mae_ratio']:.3f} of the MAE of persistence, "
                f"{100 * scores['coverage_50']:.0f} % in the 50 % and "
                f"{100 * scores['coverage_95']:.0f} % in the 95 % intervals "
                f"({counted(scores['forecasts'], 'forecast')} made on their mornings, held "
                "to the final counts)."
            )
    lines.append(
        f"{counted(round(year['seconds'] / 60), 'minute')}; processor seconds a week: "
        f"{year['processor_seconds'] / max(1, len(year['weeks'])):.0f} of the parties, "
        f"{year['processor_seconds_offices'] / max(1, len(year['weeks'])):.0f} of the offices' "
        "own reports."
    )
    lines.append(
        "Every release is accounted for: each was charged once, in every ledger, and the ledger "
        "is the plan."
        if year["right"]
        else "The books are wrong: " + "; ".join(year["faults"])
    )
    return lines


def _cells(week: dict[str, Any], sites: int) -> list[str]:
    scores = week["scores"] or {}
    percent = {
        name: f"{100 * scores[name]:.0f}" if scores else ""
        for name in ("coverage_50", "coverage_95")
    }
    reason = f": {week['reason']}" if week["reason"] else ""
    ratio = scores.get("mae_ratio")
    return [
        str(week["week"]),
        str(week["day"]),
        "; ".join(week["events"]),
        f"{week['outcome']}{reason}",
        f"{week['sites']} of {sites}",
        rounded_up(week["spent"]),
        rounded_up(week["planned"]),
        "" if ratio is None else f"{ratio:.2f}",
        percent["coverage_50"],
        percent["coverage_95"],
    ]


def _markdown(year: dict[str, Any]) -> str:
    lines = ["# A rehearsed year", "", *(f"- {sentence}" for sentence in sentences(year)), ""]
    lines += ["| " + " | ".join(COLUMNS.values()) + " |"]
    lines += ["| --: | --: | --- | --- | --: | --: | --: | --: | --: | --: |"]
    for sentence in year["weeks"]:
        lines.append("| " + " | ".join(_cells(sentence, year["sites"])) + " |")
    return "\n".join(lines) + "\n"


def _page(year: dict[str, Any]) -> str:
    wrong = "" if year["right"] else ' class="wrong"'
    items = "".join(f"<li{wrong}>{html.escape(sentence)}</li>" for sentence in sentences(year))
    head = "".join(f'<th scope="col">{name}</th>' for name in COLUMNS.values())
    rows = "".join(
        "<tr>"
        + "".join(f"<td>{html.escape(cell)}</td>" for cell in _cells(sentence, year["sites"]))
        + "</tr>"
        for sentence in year["weeks"]
    )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>A rehearsed year</title>'
        f"<style>{_STYLE}{STYLE}</style><h1>A rehearsed year</h1><ul>{items}</ul>"
        f"{chart(year)}"
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></html>\n"
    )
