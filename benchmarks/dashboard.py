"""How long the coordinator's page takes with 400 sites, in chromium.

Wall-clock time depends on what else the machine does; the processor time of the page's own process
does not. `python benchmarks/dashboard.py [SITES] [WEEKS]`
"""

import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from playwright.sync_api import Browser, sync_playwright
from tests.dashboard.test_dashboard_browser import Board
from tests.federation.status_folders import Folders
from tests.report.test_report_browser import CHROMIUM, FLAGS

from epifed.federation.messages import Code

OPENED = 5


def processor_seconds(browser: Browser) -> float:
    """What all processes of the browser have used."""
    session = browser.new_browser_cdp_session()
    found = session.send("SystemInfo.getProcessInfo")["processInfo"]
    session.detach()
    return sum(float(one["cpuTime"]) for one in found if one["type"] == "renderer")


def main(sites: int = 400, weeks: int = 12) -> None:
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        os.environ["EPIFED_STATE"] = f"{folder}/state"
        made = Folders(Path(folder) / "made", sites=sites, clients=1)
        for week in range(weeks):
            made.train(week, {"office-001": Code.ABSENT, "office-002": Code.REFUSED_TOTAL})
        board = Board(made)
        board.live = board.everybody()
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        size = len(board.watching.snapshot.state) / 1000
        load = os.getloadavg()[0]
        print(f"{sites} sites, {weeks} weeks: {size:.0f} kB of state; load {load:.0f}")
        for _ in range(OPENED):
            page = browser.new_context().new_page()
            start = processor_seconds(browser)
            page.goto(f"{board.address}metrics")
            before = processor_seconds(browser)
            page.goto(board.address)
            page.wait_for_selector("html[data-ready]")
            ready = float(page.evaluate("document.documentElement.dataset.ready")) / 1000
            used = processor_seconds(browser) - before
            print(
                f"ready after {ready:.2f} s; {used:.2f} s of processor time, {before - start:.2f} "
                "s for an empty page"
            )
            page.context.close()
        browser.close()
        board.stop()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
