"""The report: one HTML file with data, styles, scripts and the charting library inside."""

import base64
import hashlib
import html
import json
import re
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from importlib.resources import files
from pathlib import Path
from typing import Any

from epifed.data.panel import CasePanel
from epifed.data.readers import read_counties
from epifed.evaluation.results_folder import read_folder
from epifed.files import write_text
from epifed.report.html.payload import payload
from epifed.report.maps import panel_behind, simulated_data

STYLES = ("page.css", "print.css")
SCRIPTS = (
    "words_en.js",
    "words_de.js",
    "format.js",
    "data.js",
    "charts.js",
    "shapes.js",
    "colours.js",
    "tables.js",
    "map.js",
    "region.js",
    "nowcast.js",
    "overview.js",
    "record.js",
    "privacy.js",
    "about.js",
    "controls.js",
    "main.js",
)
LIBRARY = "echarts.min.js"


def write_report(
    results: Path,
    out: Path,
    panel: CasePanel | None = None,
    *,
    ledger: Path | None = None,
    title: str | None = None,
    remark: Callable[[str], object] = lambda _: None,
) -> None:
    """Write the report of a results directory.

    `panel` is the data behind the results. By default simulated results get it from their folder,
    or by simulating it again; other results get a page without history and map.
    """
    folder = read_folder(results)
    with simulated_data(folder, remark) if panel is None else nullcontext() as directory:
        if directory is not None:
            panel = panel_behind(directory, folder.manifest.data)
        found = payload(folder, panel, groups=_groups(panel), title=title, ledger=ledger)
    if not found["same_data"]:
        remark("the data is not what the results were computed from: its digest differs")
    write_text(out, page(found))


def page(found: dict[str, Any]) -> str:
    """The page around its data; its security policy allows only its own scripts, by their hash."""
    style = "\n".join(asset(name) for name in STYLES)
    charting = library()
    script = in_one(map(asset, SCRIPTS))
    policy = (
        "default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; "
        f"script-src {_hash(charting)} {_hash(script)}"
    )
    head = (
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f"<title>{html.escape(found['title'] or 'epifed')}</title>\n<style>\n{style}\n</style>"
    )
    end = (
        f'\n<script type="application/json" id="data">{embedded_json(found)}</script>\n'
        f"<script>{charting}</script>\n<script>{script}</script>"
    )
    return framed(head, asset("page.html"), end, printed=True)


def framed(head: str, main: str, end: str = "", *, printed: bool) -> str:
    """Put a page's own parts (head, main part, end) into the frame that all pages share."""
    button = '\n      <button type="button" class="icon" id="print" data-t="print"></button>'
    parts = {"head": head, "main": main.rstrip("\n"), "end": end, "print": button * printed}
    return re.sub(r"\{\{(\w+)\}\}", lambda mark: parts[mark[1]], asset("frame.html"))


def in_one(scripts: Iterable[str]) -> str:
    """Join scripts into one function, so that their names are not global."""
    return "(function () {\n'use strict';\n" + "\n".join(scripts) + "\n})();"


def embedded_json(value: object) -> str:
    """JSON that no HTML parser can mistake for the end of its element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def library() -> str:
    """The source of the charting library."""
    return files(__package__).joinpath("vendor", LIBRARY).read_text(encoding="utf-8")


def asset(name: str) -> str:
    """The content of a style, script or page of the report; other pages may use it."""
    return files(__package__).joinpath("assets", name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _groups(panel: CasePanel | None) -> dict[str, str]:
    """The state of each county, or the county of each community, if a table has it."""
    if panel is None:
        return {}
    if not panel.parents:
        return dict(zip(panel.regions, panel.states, strict=True)) if panel.states else {}
    directory, names = Path(panel.source), {}
    if (directory / "counties.csv").is_file():
        names = dict(read_counties(directory).select("county", "name").iter_rows())
    pairs = zip(panel.regions, panel.parents, strict=True)
    return {region: names.get(parent, parent) for region, parent in pairs} if names else {}


__all__ = ["write_report"]
