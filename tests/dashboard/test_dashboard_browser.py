"""The coordinator's page in a real browser: at a glance, in both languages, and by itself."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import uvicorn
from playwright.sync_api import Browser, Page, expect, sync_playwright

from epifed.dashboard import Access, StatusPoller, make_app
from epifed.federation import status
from epifed.federation.messages import GERMAN, SENTENCES, Code
from epifed.federation.status import Live
from epifed.federation.training_history import Truth
from tests.federation.status_folders import Folders
from tests.report.test_report_browser import CHROMIUM, CONTRAST, FLAGS
from tests.waiting import GUARD, wait_for

pytestmark = [
    pytest.mark.field,
    pytest.mark.skipif(
        CHROMIUM is None, reason="no chromium on this machine: 'make chromium' installs it as root"
    ),
]
SITES = 400
WEEKS = 5
SOONER = "const later = setTimeout; window.setTimeout = (f, ms) => later(f, Math.min(ms, 300));"
"""The page asks every five seconds; nobody waits for that here."""


class Board:
    """A page that is served, and what can be done to its federation."""

    def __init__(self, folders: Folders, **places: Any) -> None:
        self.folders, self.ends = folders, dict[str, datetime]()
        self.live: Live | None = None
        self.watching = StatusPoller(
            folders.places(**places), self._asked, lambda: self.ends, 0.2, 0.2
        )
        self.watching.start()
        access = Access.of("127.0.0.1", None, None, None)
        config = uvicorn.Config(
            make_app(self.watching, access), port=0, log_level="warning", lifespan="off"
        )
        self.server = uvicorn.Server(config)
        self.thread = Thread(target=self.server.run, daemon=True)
        self.thread.start()
        wait_for(lambda: self.server.started, "the page", self.thread.is_alive)
        self.port = self.server.servers[0].sockets[0].getsockname()[1]

    def _asked(self) -> Live:
        if self.live is None:
            raise RuntimeError("away")
        return self.live

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def everybody(self) -> Live:
        names = tuple(site.name for site in self.folders.roster.sites)
        versions = dict.fromkeys(names, self.watching.snapshot.overview.version)
        now = datetime.now(UTC)
        return Live(asked=now, reached=True, connected=names, versions=versions)

    def expire(self, ends: dict[str, datetime]) -> None:
        """Have certificates end then, and be looked at anew."""
        self.ends, self.watching._read = ends, None

    def stop(self) -> None:
        self.watching.stop()
        self.server.should_exit = True
        self.thread.join(GUARD)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def now(monkeypatch_module: pytest.MonkeyPatch) -> dict[str, datetime]:
    """The clock that the state goes by."""
    found = {"now": datetime.now(UTC)}

    class Clock(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return found["now"]

    monkeypatch_module.setattr(status, "datetime", Clock)
    return found


@pytest.fixture(scope="module")
def monkeypatch_module() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory, now: dict[str, datetime]) -> Iterator[Board]:
    root = tmp_path_factory.mktemp("board")
    folders = Folders(root, sites=SITES, clients=1)
    for week in range(WEEKS - 1):
        folders.train(week, {"office-009": Code.ABSENT} if week % 2 else {}, growth=0.1)
    folders.train(
        WEEKS - 1,
        {
            "office-007": Code.REFUSED_TOTAL,
            "office-008": Code.NO_ANSWER,
            "office-009": Code.ABSENT,
            "office-010": Code.DATA,
        },
        growth=0.1,
    )
    now["now"] = folders.after(WEEKS - 1)
    last = folders.week(WEEKS - 1).day
    days = [(last - timedelta(days=back), 900.0 + back) for back in range(90)]
    truth = Truth(dict(days), "truth.csv")
    found = Board(folders, truth=truth)
    yield found
    found.stop()


class SiteDataCheck:
    """Opens the page and remembers what it complained about or asked others for."""

    def __init__(self, browser: Browser, board: Board) -> None:
        self.browser, self.board = browser, board
        self.trouble: list[str] = []

    def open(self, **options: Any) -> Page:
        chosen = {
            "viewport": {"width": 1366, "height": 900},
            "locale": "en-GB",
            "timezone_id": "Europe/Berlin",
        } | options
        page = self.browser.new_context(**chosen).new_page()
        page.set_default_timeout(1000 * GUARD)
        page.add_init_script(SOONER)
        page.on("console", lambda message: self.trouble.append(message.text))
        page.on("pageerror", lambda error: self.trouble.append(str(error)))
        page.on("request", lambda request: self._requested(request.url))
        page.goto(self.board.address)
        page.wait_for_selector("html[data-ready]")
        return page

    def _requested(self, url: str) -> None:
        if not url.startswith((self.board.address, "data:")):
            self.trouble.append(url)


@pytest.fixture
def looked(browser: Browser, board: Board) -> Iterator[SiteDataCheck]:
    board.live = board.everybody()
    board.expire({"server": board.folders.after(0) + timedelta(days=500)})
    _settled(board, lambda seen: seen.live is not None and seen.live.reached)
    _settled(board, lambda seen: [one.party for one in seen.certificates] == ["server"])
    found = SiteDataCheck(browser, board)
    yield found
    for context in browser.contexts:
        context.close()
    assert found.trouble == []


def _settled(board: Board, happened: Any) -> None:
    wait_for(lambda: happened(board.watching.snapshot.overview), "it", board.thread.is_alive)


def test_one_sentence_says_whether_all_is_well(looked: SiteDataCheck, board: Board) -> None:
    page = looked.open()
    expect(page.locator("#headline")).to_contain_text("The week of 31 August 2026 is released.")
    expect(page.locator("#headline")).to_contain_text("4 things to check")
    expect(page.locator("#overview")).to_have_class("look")
    assert page.locator(".answer h3").all_inner_texts() == [
        "Are the sites connected?",
        "Is this week’s training done?",
        "How long does the budget last?",
        "Does a certificate expire?",
    ]
    assert page.locator(".answer .big").all_inner_texts()[:2] == ["400 of 400", "Released"]
    expect(page.locator("#notices li")).to_have_count(4)
    visible = page.inner_text("body")
    assert not any(word in visible for word in ("undefined", "NaN", "Infinity", "[object"))


def test_each_site_that_was_not_used_has_its_reason_in_plain_words(looked: SiteDataCheck) -> None:
    page = looked.open()
    rows = page.locator("#missing tbody tr")
    expect(rows).to_have_count(3)  # the absent one is connected again
    for name, state, code in (
        ("office-007", "refused", Code.REFUSED_TOTAL),
        ("office-008", "late", Code.NO_ANSWER),
        ("office-010", "not usable", Code.DATA),
    ):
        row = page.locator("#missing tbody tr", has_text=name)
        expect(row).to_contain_text(state)
        expect(row).to_contain_text(SENTENCES[code])
    page.click("#lang-de")
    expect(page.locator("html")).to_have_attribute("lang", "de")
    expect(page.locator("#missing")).to_contain_text(GERMAN[Code.REFUSED_TOTAL])
    expect(page.locator("#headline")).to_contain_text("ist veröffentlicht")
    assert page.locator("#waffle i").count() == SITES
    label = page.locator("#waffle").get_attribute("aria-label") or ""
    assert "397 verbunden" in label and "1 hat abgelehnt" in label


def test_it_updates_by_itself(looked: SiteDataCheck, board: Board) -> None:
    page = looked.open()
    page.locator("#sites-table > summary").click()
    live = board.everybody()
    board.live = live.model_copy(update={"connected": live.connected[:150]})
    expect(page.locator("#headline")).to_contain_text("Too few sites are connected (150/200)")
    expect(page.locator("#overview")).to_have_class("urgent")
    assert page.title().startswith("▲")
    assert page.locator("#sites-table").get_attribute("open") is not None
    board.live = None
    expect(page.locator("#headline")).to_contain_text("The server does not answer")
    expect(page.locator("#answers")).to_contain_text("the server does not answer at the moment")
    board.expire({"office-003": board.folders.after(WEEKS - 1) + timedelta(days=3, hours=1)})
    expect(page.locator("#notices")).to_contain_text(
        "A certificate expires soon, the first in 3 days"
    )


def test_all_well_is_said_in_green(looked: SiteDataCheck, board: Board) -> None:
    folder = board.folders.kit / status.TRAININGS / board.folders.week(WEEKS - 1).name
    report, delivered = folder / "report.jsonl", folder / "delivered.json"
    kept = report.read_text(), delivered.read_text()
    line = json.loads(kept[0]) | {"problems": []}
    report.write_text(json.dumps(line) + "\n")
    delivered.write_text(json.dumps([site.name for site in board.folders.roster.sites]))
    try:
        page = looked.open()
        expect(page.locator("#headline")).to_have_text(
            "All is well: all 400 sites are connected. The week of 31 August 2026 is released."
        )
        expect(page.locator("#overview")).to_have_class("fine")
        expect(page.locator("#notices")).to_contain_text("None.")
    finally:
        report.write_text(kept[0])
        delivered.write_text(kept[1])
    expect(page.locator("#overview")).to_have_class("look")


def test_charts_have_words_and_tables_and_answer_the_mouse(looked: SiteDataCheck) -> None:
    page = looked.open()
    charts = page.locator("[role=img].chart:visible")
    assert charts.count() == 3
    for i in range(3):
        assert charts.nth(i).get_attribute("aria-label")
        charts.nth(i).scroll_into_view_if_needed()
        box = charts.nth(i).bounding_box()
        assert box is not None and charts.nth(i).locator("svg path").count() > 2
        page.mouse.move(box["x"] + box["width"] / 3, box["y"] + box["height"] / 2)
        page.wait_for_timeout(60)
    for name, rows in (("past", WEEKS), ("burn", 52), ("worth", WEEKS), ("sites", SITES)):
        page.locator(f"#{name}-table > summary").click()
        expect(page.locator(f"#{name}-table tbody tr")).to_have_count(rows)
    heads = page.locator("#sites-table thead button")
    heads.nth(1).click()
    expect(page.locator("#sites-table th[aria-sort]")).to_have_count(1)
    expect(page.locator("#releases-list tbody tr")).to_have_count(WEEKS)


def test_the_page_says_what_it_knows_and_from_where(looked: SiteDataCheck) -> None:
    page = looked.open()
    expect(page.locator("#known")).to_contain_text("nothing reveals which clients were drawn")
    expect(page.locator("#known-table tbody tr")).to_have_count(15)
    expect(page.locator("#standfirst")).to_contain_text("This page is read-only.")


def test_keyboard_headings_and_names(looked: SiteDataCheck) -> None:
    page = looked.open()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll('button, input, select, a')].filter((e) =>
          !(e.getAttribute('aria-label') || e.textContent.trim())).map((e) => e.outerHTML)"""
    )
    assert unnamed == []
    levels = page.evaluate(
        """[...document.querySelectorAll('h1,h2,h3,h4')].filter((h) => h.checkVisibility())
           .map((h) => +h.tagName[1])"""
    )
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))
    links = page.locator("nav a")
    for i in range(links.count()):
        target = links.nth(i).get_attribute("href") or ""
        assert page.locator(target).count() == 1


def test_text_is_readable_in_light_and_dark(looked: SiteDataCheck) -> None:
    page = looked.open(color_scheme="dark")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    assert page.evaluate(CONTRAST) == []
    page.click("#theme")
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    assert page.evaluate(CONTRAST) == []


@pytest.mark.parametrize("locale", ["de-DE", "en-GB"])
def test_a_phone_shows_it_without_scrolling_sideways(looked: SiteDataCheck, locale: str) -> None:
    page = looked.open(
        viewport={"width": 360, "height": 740}, is_mobile=True, has_touch=True, locale=locale
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    reasons = page.locator("#week-reasons .scroll")
    assert reasons.evaluate("one => one.scrollWidth <= one.clientWidth")
    page.locator("#sites-table > summary").tap()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


@pytest.mark.parametrize("width", [1366, 360])
@pytest.mark.parametrize("outcome", ["refused", "wasted"])
def test_a_refused_and_a_wasted_week_are_red_and_stay_in_their_place(
    browser: Browser, tmp_path: Path, now: dict[str, datetime], outcome: str, width: int
) -> None:
    folders = Folders(tmp_path, sites=2)
    if outcome == "wasted":
        folders.train(0, unused=1)
    else:
        folders.skip(0, "1 of 2 sites would take part, 2 expected", "refused")
    now["now"] = folders.after(0)
    board = Board(folders)
    try:
        page = SiteDataCheck(browser, board).open(viewport={"width": width, "height": 900})
        week = page.locator("#overview .big.word.bad")
        expect(week).to_have_text("ε spent, nothing learned" if outcome == "wasted" else "Refused")
        expect(page.locator("#overview")).to_have_class(re.compile("urgent"))
        assert week.evaluate("one => one.scrollWidth <= one.clientWidth")
        page.context.close()
    finally:
        board.stop()


def test_names_in_files_stay_text(
    browser: Browser, tmp_path: Path, now: dict[str, datetime]
) -> None:
    nasty = "<img src=x onerror=alert(1)>"
    folders = Folders(tmp_path, sites=2)
    folders.train(0)
    report = folders.kit / status.TRAININGS / folders.week(0).name / "report.jsonl"
    line = json.loads(report.read_text())
    line["problems"] = [{"site": "office-001", "reason": nasty}]
    report.write_text(json.dumps(line) + "\n")
    board = Board(folders)
    try:
        looking = SiteDataCheck(browser, board)
        page = looking.open()
        expect(page.locator("#missing")).to_contain_text(nasty)
        assert page.locator("main img").count() == 0
        assert looking.trouble == []
        page.context.close()
    finally:
        board.stop()


def test_a_page_whose_server_is_gone_says_so(
    browser: Browser, tmp_path: Path, now: dict[str, datetime]
) -> None:
    folders = Folders(tmp_path, sites=2)
    board = Board(folders)
    page = SiteDataCheck(browser, board).open()
    board.stop()
    expect(page.locator("#labels")).to_contain_text("No connection.")
    expect(page.locator("#title")).to_have_text("Federation flu")
    page.context.close()
