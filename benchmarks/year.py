"""Keep what a rehearsed year came to, and the picture of its report.

    epifed federation rehearse --weeks 52 --sites 8 --aggregators 2 --out year
    python benchmarks/year.py year

reads year/report.json and takes a picture of year/report.html with chromium.
"""

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from playwright.sync_api import ViewportSize, sync_playwright
from tests.report.test_report_browser import CHROMIUM, FLAGS

from _clock import machine
from epifed.privacy.accounting import rounded_up
from kept import ROOT, keep, table

PICTURE = ROOT / "docs" / "images" / "year.png"
SHOWN: ViewportSize = {"width": 1120, "height": 725}
COMMAND = "epifed federation rehearse --weeks {weeks} --sites {sites} --aggregators {aggregators}"


def results(found: dict[str, Any]) -> dict[str, Any]:
    weeks = found["weeks"]
    ahead = [
        [days, scores["mae_ratio"], 100 * scores["coverage_50"], 100 * scores["coverage_95"]]
        for days, scores in found["scores"].items()
    ]
    whole = sum(one["processor_seconds"] + one["processor_seconds_offices"] for one in weeks)
    return {
        "year": {
            "weeks": len(weeks),
            "right": found["right"],
            "done": found["weeks_done"],
            "skipped": found["weeks_skipped"],
            "releases": found["releases"],
            "scored": found["weeks_scored"],
            "events": sum(len([e for e in one["events"] if e != "holidays"]) for one in weeks),
            "epsilon": float(rounded_up(found["epsilon_spent"])),
            "planned": float(rounded_up(found["epsilon_planned"])),
            "minutes": found["seconds"] / 60,
            "processor_each": whole / len(weeks),
            "machine": machine(),
        },
        "scores": table(
            ["ahead", "error of like today's", "in 50 %", "in 95 %"],
            ["{}", "{:.2f}", "{:.0f}", "{:.0f}"],
            ahead,
        ),
    }


def take_picture(page: Path) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        shown = browser.new_page(viewport=SHOWN)
        shown.goto(page.resolve().as_uri())
        shown.screenshot(path=PICTURE)
        browser.close()


def main(folder: Path) -> None:
    found = json.loads((folder / "report.json").read_text())
    if not found["right"]:
        raise SystemExit(f"{folder}: the books are wrong: {found['faults']}")
    size = {name: found[name] for name in ("sites", "aggregators")}
    print(keep("year", COMMAND.format(weeks=len(found["weeks"]), **size), results(found)))
    take_picture(folder / "report.html")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
