"""The picture of a rehearsed year: sites, budget and error, week by week, as SVG."""

import html
from typing import Any

from epifed.privacy.accounting import rounded_up

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


def chart(found: dict[str, Any]) -> str:
    """The three strips of a year's report."""
    weeks = found["weeks"]
    step = (WIDTH - LEFT - RIGHT) / max(1, len(weeks))
    middles = [LEFT + (n + 0.5) * step for n in range(len(weeks))]
    strips = (_sites(found, middles, step), _budget(weeks, middles), _errors(weeks, middles))
    parts = []
    for number, strip in enumerate(strips):
        top = TOP + number * (HEIGHT + GAP)
        parts.append(f'<g transform="translate(0 {top:g})">{strip}</g>')
    bottom = TOP + len(strips) * (HEIGHT + GAP)
    parts += [_text(x, bottom - 24, said) for x, said in _months(weeks, middles)]
    said = 'role="img" aria-label="Sites, budget and error by week"'
    return f'<svg viewBox="0 0 {WIDTH:g} {bottom - 14:g}" {said}>{"".join(parts)}</svg>'


def _sites(found: dict[str, Any], middles: list[float], step: float) -> str:
    total = found["sites"]
    parts = [_title(f"sites that took part, of {total}; ● something happened, □ week skipped")]
    for x, week in zip(middles, found["weeks"], strict=True):
        wide, high = 0.7 * step, HEIGHT * week["sites"] / total
        told = html.escape("; ".join([f"week {week['week']}", *week["events"]]))
        shape = f'x="{x - wide / 2:.1f}" width="{wide:.1f}"'
        if week["outcome"] == "done":
            bar = f'<rect class="site" {shape} y="{HEIGHT - high:.1f}" height="{high:.1f}">'
        else:
            bar = f'<rect class="skipped" {shape} y="{HEIGHT - wide:.1f}" height="{wide:.1f}">'
        parts.append(f"{bar}<title>{told}</title></rect>")
        if set(week["events"]) - {"holidays"}:
            dot = f'<circle class="event" cx="{x:.1f}" cy="{HEIGHT + 10:g}" r="4">'
            parts.append(f"{dot}<title>{told}</title></circle>")
    return "".join([*parts, _axis(HEIGHT), _text(LEFT - 8, 10, str(total), "end")])


def _budget(weeks: list[dict[str, Any]], middles: list[float]) -> str:
    most = max(max(one["spent"], one["planned"]) for one in weeks) or 1.0

    def path(name: str) -> str:
        at = [
            f"{x:.1f},{HEIGHT * (1 - one[name] / most):.1f}"
            for x, one in zip(middles, weeks, strict=True)
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
        (x, one["scores"]["mae_ratio"])
        for x, one in zip(middles, weeks, strict=True)
        if one["scores"]
    ]
    most = max([1.2, *(ratio for _, ratio in scored)])
    dots = [
        f'<circle class="dot" cx="{x:.1f}" cy="{HEIGHT * (1 - ratio / most):.1f}" r="3.5"/>'
        for x, ratio in scored
    ]
    like = HEIGHT * (1 - 1 / most)
    return "".join(
        (
            _title("error a week ahead, of the error of like today"),
            *dots,
            _axis(like),
            _axis(HEIGHT),
            _text(LEFT - 8, like + 4, "1", "end"),
            _text(LEFT - 8, HEIGHT, "0", "end"),
        )
    )


def _months(weeks: list[dict[str, Any]], middles: list[float]) -> list[tuple[float, str]]:
    """Where a month begins, every third of them."""
    said, before = [], None
    for x, week in zip(middles, weeks, strict=True):
        month = str(week["day"])[:7]
        if month != before and (before is None or int(month[5:]) % 3 == 1):
            said.append((x, month))
        before = month
    return said


def _title(text: str) -> str:
    return _text(LEFT, -8, text)


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(text)}</text>'


def _axis(y: float) -> str:
    return f'<path class="axis" d="M{LEFT:g} {y:.1f}H{WIDTH - RIGHT:g}"/>'
