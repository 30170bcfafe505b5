"""The page of `epifed open` in a real browser: drop, answer, check, forecast, take along."""

import json
import re
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from playwright.sync_api import Browser, Page, expect, sync_playwright

from epifed.app.reading import Memory
from epifed.app.server import Door, make_app
from epifed.app.session import PageSession
from epifed.data.readers import load_panel
from epifed.site_report import Member
from tests.app.test_open import FIRST, case_list, office_csv, plain_csv, rows, workbook
from tests.federation.test_site_report import FIRST as WEEK_OF_OFFICE
from tests.federation.test_site_report import MODEL, Office
from tests.report.test_report_browser import CHROMIUM, FLAGS
from tests.waiting import GUARD, today

pytestmark = [
    pytest.mark.field,
    pytest.mark.skipif(
        CHROMIUM is None, reason="no chromium on this machine: 'make chromium' installs it as root"
    ),
]
PHONE = {"width": 390, "height": 844}
LOCALES = {"de": "de-DE", "en": "en-GB"}
LEAVE_OUT = {"de": "Weglassen", "en": "Leave it out"}
THOUSANDS = {"de": "trennt Tausender", "en": "between thousands"}
DROPPED = """([name, text]) => {
  const transfer = new DataTransfer();
  transfer.items.add(new File([text], name));
  for (const kind of ['dragenter', 'dragover', 'drop']) {
    document.body.dispatchEvent(new DragEvent(kind, { dataTransfer: transfer, bubbles: true, cancelable: true }));
  }
}"""  # noqa: E501


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@dataclass
class Served:
    """A page that is served, and everything that its browser asked for or complained about."""

    browser: Browser
    desk: PageSession
    door: Door
    asked: list[str] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)

    def open(self, lang: str = "en", **options: Any) -> Page:
        chosen = {"viewport": {"width": 1280, "height": 900}, "locale": LOCALES[lang]} | options
        page = self.browser.new_context(**chosen).new_page()
        page.set_default_timeout(1000 * GUARD)
        page.on("console", lambda message: self._said(message.text))
        page.on("pageerror", lambda error: self.trouble.append(str(error)))
        page.on("request", lambda request: self.asked.append(request.url))
        page.goto(self.door.address)
        page.wait_for_selector("html[data-ready]")
        return page

    def _said(self, text: str) -> None:
        """What the console shows, but for a refusal, which the page shows as a sentence."""
        if "responded with a status of 4" not in text:
            self.trouble.append(text)


@pytest.fixture
def served(browser: Browser, tmp_path: Path) -> Iterator[Served]:
    folder = tmp_path / "private"
    folder.mkdir()
    listener = socket.create_server(("127.0.0.1", 0))
    found = Served(
        browser,
        PageSession(folder, Memory(tmp_path / "memory.json")),
        Door(listener.getsockname()[1]),
    )
    config = uvicorn.Config(
        make_app(found.desk, found.door), log_level="warning", lifespan="off", ws="none"
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield found
    finally:
        for context in browser.contexts:
            context.close()
        server.should_exit = True
        thread.join()
    own = f"http://127.0.0.1:{found.door.port}/"
    assert found.asked and all(url.startswith((own, "data:", "blob:")) for url in found.asked)
    assert found.trouble == []


def choose(page: Page, words: str) -> None:
    """Answer the question that is shown, and wait for what comes next."""
    title = page.inner_text("#question-title")
    page.locator("#choices .choice", has_text=words).click()
    page.wait_for_function(
        "before => document.getElementById('question').hidden"
        " || document.getElementById('question-title').textContent !== before",
        arg=title,
    )


def forecast_shown(page: Page) -> None:
    page.wait_for_selector("#take:not([hidden])")


def fits(page: Page) -> bool:
    """Whether nothing is wider than the window."""
    return bool(page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))


@pytest.mark.parametrize("lang", ["de", "en"])
def test_an_office_drops_its_file_answers_and_takes_a_forecast_along(
    served: Served, tmp_path: Path, lang: str
) -> None:
    office = office_csv(tmp_path / "Fälle.csv")
    page = served.open(lang, accept_downloads=True)
    expect(page.locator("html")).to_have_attribute("lang", lang)
    page.evaluate(DROPPED, ["Fälle.csv", office.read_text(encoding="utf-8")])
    expect(page.locator("#question-title")).to_contain_text("<5")
    assert page.evaluate("document.activeElement.id") == "question-title"
    expect(page.locator("#first-rows tr.above")).to_contain_text("Stand 17.11.2026")
    expect(page.locator("#first-rows tr.header")).to_contain_text("Meldedatum")
    assert fits(page)
    choose(page, LEAVE_OUT[lang])
    choose(page, THOUSANDS[lang])
    forecast_shown(page)
    assert page.locator("#findings li").count() >= 4
    assert page.locator("#counts svg path").count() > 50
    assert page.locator("#fan svg path").count() > 8
    assert page.locator("#record tbody tr").count() == 4
    text = page.inner_text("body")
    assert not re.search(r"undefined|NaN|\[object|null", text)
    for kind in ("xlsx", "csv", "html"):
        with page.expect_download() as waited:
            page.click(f"[data-kind={kind}]")
        name = waited.value.suggested_filename
        assert name == f"epifed-forecast-{FIRST + timedelta(days=119)}.{kind}"
        assert Path(waited.value.path()).stat().st_size > 100
    page.click("#command-part summary")
    expect(page.locator("#command")).to_contain_text("--thousands . --totals drop --missing")


def test_the_language_and_the_darkness_change_everything_at_once(
    served: Served, tmp_path: Path
) -> None:
    page = served.open("en", color_scheme="dark")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.set_input_files("#picker", plain_csv(tmp_path / "cases.csv"))
    forecast_shown(page)
    english = page.inner_text("main")
    page.click("#lang-de")
    german = page.inner_text("main")
    assert "Prüfung der Zahlen" in german and "Check of the counts" in english
    left = set(re.findall(r"[A-Za-z]{5,}", english)) & set(re.findall(r"[A-Za-z]{5,}", german))
    names = {"cases", "Nordkreis", "dkreis", "Westkreis", "region", "Excel", "November"}
    same = {"Region", "August", "September", "GeoJSON", "longitude", "latitude"}
    assert left - names <= same, left
    page.click("#theme")
    expect(page.locator("html")).to_have_attribute("data-theme", "light")


def test_a_phone_shows_all_of_it_without_scrolling_sideways(served: Served, tmp_path: Path) -> None:
    page = served.open("de", viewport=PHONE, is_mobile=True, has_touch=True)
    assert fits(page)
    page.set_input_files("#picker", office_csv(tmp_path / "f.csv"))
    page.wait_for_selector("#question:not([hidden])")
    assert fits(page)
    for box in (page.locator("#choices .choice").nth(i).bounding_box() for i in range(3)):
        assert box is not None and box["height"] >= 44 and box["width"] > 250
    choose(page, LEAVE_OUT["de"])
    choose(page, THOUSANDS["de"])
    forecast_shown(page)
    assert fits(page)
    box = page.locator("#record table").bounding_box()
    assert box is not None and box["x"] + box["width"] <= PHONE["width"]


def test_the_keyboard_is_enough(served: Served, tmp_path: Path) -> None:
    page = served.open("en")
    page.set_input_files("#picker", office_csv(tmp_path / "f.csv"))
    page.wait_for_selector("#question:not([hidden])")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "choice"
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    expect(page.locator("*:focus")).to_contain_text("Leave it out")
    page.keyboard.press("Enter")
    expect(page.locator("#question-title")).to_contain_text("How many cases are")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    forecast_shown(page)
    reached = set()
    page.locator("#region").focus()
    for _ in range(30):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.name"))
    assert {"incomplete", "incomplete-days", "weeks", "record"} <= reached


def test_incomplete_days_are_marked_and_switched_off(served: Served, tmp_path: Path) -> None:
    late = {str(FIRST + timedelta(days=day)) for day in (117, 118, 119)}
    path = tmp_path / "late.csv"
    lines = ["date,region,cases"]
    lines += [f"{d},{name},{n // 5 if str(d) in late else n}" for d, name, n in rows()]
    path.write_text("\n".join(lines), encoding="utf-8")
    page = served.open("en")
    page.set_input_files("#picker", path)
    forecast_shown(page)
    expect(page.locator("#findings")).to_contain_text("The last 3 days look incomplete")
    assert page.is_checked("#incomplete") and page.input_value("#incomplete-days") == "3"
    expect(page.locator("#forecast-kicker")).to_contain_text("28 August 2026")
    page.uncheck("#incomplete")
    expect(page.locator("#forecast-kicker")).to_contain_text("31 August 2026")
    page.fill("#incomplete-days", "2")
    page.keyboard.press("Tab")
    expect(page.locator("#forecast-kicker")).to_contain_text("29 August 2026")
    assert page.is_checked("#incomplete")


def test_a_region_is_shown_and_forecast_alone(served: Served, tmp_path: Path) -> None:
    page = served.open("en")
    page.set_input_files("#picker", plain_csv(tmp_path / "cases.csv"))
    forecast_shown(page)
    together = page.inner_text("#headline")
    page.select_option("#region", label="Westkreis")
    expect(page.locator("#forecast-kicker")).to_contain_text("Westkreis")
    assert page.inner_text("#headline") != together
    page.check("#alone")
    expect(page.locator("#forecast-notes")).to_contain_text("learns from its own past alone")
    page.select_option("#region", label="All regions together")
    expect(page.locator("#forecast-kicker")).to_contain_text("All regions together")


def test_columns_are_changed_and_a_sheet_is_chosen(served: Served, tmp_path: Path) -> None:
    table: list[list[Any]] = [["Tag", "Kreis", "Tote", "Fälle"]]
    table += [[str(day), name, n // 20, n] for day, name, n in rows()]
    path = workbook(tmp_path / "c.xlsx", {"Info": [["a"], ["b"]], "Zahlen": table})
    page = served.open("en")
    page.set_input_files("#picker", path)
    choose(page, "Zahlen")
    forecast_shown(page)
    assert page.locator(".role.cases select").input_value() == "Fälle"
    cases = page.inner_text("#findings li:first-child")
    page.select_option(".role.cases select", "Tote")
    page.wait_for_function(
        "before => !document.getElementById('check').hidden"
        " && document.querySelector('#findings li').innerText !== before",
        arg=cases,
    )
    forecast_shown(page)
    deaths = sum(n // 20 for _, _, n in rows())
    expect(page.locator("#findings li").first).to_contain_text(f"{deaths:,}")


def test_a_file_that_cannot_be_read_says_so_and_the_next_one_can(
    served: Served, tmp_path: Path
) -> None:
    page = served.open("de")
    path = tmp_path / "x.pdf"
    path.write_bytes(b"%PDF-1.7 nothing")
    page.set_input_files("#picker", path)
    expect(page.locator("#problem")).to_contain_text("x.pdf: gefunden: eine Datei der Art PDF")
    page.set_input_files("#picker", plain_csv(tmp_path / "cases.csv"))
    forecast_shown(page)
    expect(page.locator("#problem")).to_be_hidden()


def test_a_template_with_days_to_come_and_days_written_in_three_ways(
    served: Served, tmp_path: Path
) -> None:
    now = today()
    path = tmp_path / "vorlage.csv"
    days = [now + timedelta(days=i - 79) for i in range(110)]
    written = [
        (f"{day}", f"{day:%d.%m.%Y}", f"{(day - date(1899, 12, 30)).days}")[i % 3]
        for i, day in enumerate(days)
    ]
    counts = [*[n for _, _, n in rows()[:80]], *[0] * 30]
    lines = [f"{day};Nord;{n}" for day, n in zip(written, counts, strict=True)]
    path.write_text("\n".join(["Datum;Kreis;Fälle", *lines]), encoding="utf-8")
    page = served.open("de")
    page.set_input_files("#picker", path)
    expect(page.locator("#question-title")).to_contain_text("Tage nach heute")
    choose(page, "Weglassen")
    forecast_shown(page)
    text = page.inner_text("body")
    assert "Tag.Monat.Jahr oder als Datum des Tabellenblatts" in text
    assert "date of the sheet" not in text and f"{sum(counts):,}".replace(",", ".") in text


def test_a_file_too_short_to_forecast_is_checked_all_the_same(
    served: Served, tmp_path: Path
) -> None:
    page = served.open("en")
    page.set_input_files("#picker", plain_csv(tmp_path / "short.csv", days=12))
    expect(page.locator("#forecast-problem")).to_contain_text("There is no forecast from this file")
    assert page.locator("#counts svg path").count() > 5
    assert page.is_hidden("#take")


def test_print_is_light_and_fits_two_pages(served: Served, tmp_path: Path) -> None:
    page = served.open("de", color_scheme="dark")
    page.set_input_files("#picker", plain_csv(tmp_path / "cases.csv"))
    forecast_shown(page)
    theme = "document.documentElement.dataset.theme"
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(theme) == "light"
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(theme) == "dark"
    assert pages(page) <= 2


def pages(page: Page) -> int:
    """The number of printed pages."""
    return len(re.findall(rb"/Type\s*/Page[^s]", page.pdf(format="A4")))


def test_a_nowcast_prints_on_two_pages_with_whole_charts(served: Served, tmp_path: Path) -> None:
    page = served.open("de")
    page.set_input_files("#picker", case_list(tmp_path / "liste.csv"))
    choose(page, "Ja")
    forecast_shown(page)
    expect(page.locator("#forecast-facts")).to_contain_text("Letzte 7 Tage, ergänzt")
    widths = page.evaluate(
        """() => {
          window.dispatchEvent(new Event('beforeprint'));
          return ['counts', 'fan', 'nowcast', 'reproduction'].map(
            (id) => document.querySelector(`#${id} svg`).getAttribute('width'));
        }"""
    )
    assert widths == ["680"] * 4
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    page.emulate_media(media="print")
    expect(page.locator("#file-title")).to_be_visible()
    expect(page.locator("#drop")).to_be_hidden()
    page.emulate_media(media="null")
    assert pages(page) <= 2


@pytest.mark.parametrize("lang", ["de", "en"])
def test_names_of_buttons_hold_their_visible_words(
    served: Served, tmp_path: Path, lang: str
) -> None:
    page = served.open(lang)
    page.set_input_files("#picker", plain_csv(tmp_path / "cases.csv"))
    forecast_shown(page)
    for dark in (False, True):
        if dark:
            page.click("#theme")
        named = page.evaluate(
            "[...document.querySelectorAll('button[aria-label]')].filter((one) => one.offsetParent)"
            ".map((one) => [one.textContent.trim(), one.getAttribute('aria-label')])"
        )
        letters = [(text, name) for text, name in named if re.search(r"[A-Za-z]{2}", text)]
        assert letters and all(text in name for text, name in letters), letters


def test_parts_of_a_count_and_kinds_of_cases_are_clicked(served: Served, tmp_path: Path) -> None:
    page = served.open("de", viewport=PHONE)
    lines = [f"{day};{name};{n // 2};{n - n // 2}" for day, name, n in rows()]
    path = tmp_path / "geschlecht.csv"
    path.write_text("\n".join(["Datum;Kreis;männlich;weiblich", *lines]))
    page.set_input_files("#picker", path)
    expect(page.locator("#choices .choice").last).to_contain_text("In keiner")
    choose(page, "männlich + weiblich")
    forecast_shown(page)
    expect(page.locator("#roles label.cases select")).to_have_value("männlich+weiblich")
    path = tmp_path / "arten.csv"
    kinds = ("Influenza", "RSV")
    people = [f"{day};{name};{kinds[i % 2]}" for day, name, n in rows() for i in range(n // 9)]
    path.write_text("\n".join(["Meldedatum;Kreis;Erreger", *people]))
    page.set_input_files("#picker", path)
    expect(page.locator("#question-title")).to_contain_text("Erreger")
    expect(page.locator("#choices .choice").last).to_contain_text("Alle zusammen")
    choose(page, "Influenza")
    forecast_shown(page)
    expect(page.locator("#command")).to_contain_text("--only Erreger=Influenza")
    assert fits(page)


def test_a_region_called_like_code_stays_text(served: Served, tmp_path: Path) -> None:
    nasty = "<img src=x onerror=alert(1)>"
    path = plain_csv(tmp_path / "cases.csv")
    path.write_text(path.read_text().replace("Westkreis", nasty))
    page = served.open("en")
    page.set_input_files("#picker", path)
    forecast_shown(page)
    page.select_option("#region", label=nasty)
    expect(page.locator("#forecast-kicker")).to_contain_text(nasty)
    assert page.locator("img").count() == 0


def test_a_page_without_its_server_says_so(served: Served, tmp_path: Path) -> None:
    page = served.open("de")
    page.route("**/api/file*", lambda route: route.abort())
    page.set_input_files("#picker", plain_csv(tmp_path / "cases.csv"))
    expect(page.locator("#labels")).to_contain_text("Das Programm ist beendet")
    served.trouble.clear()


def test_real_counts_of_counties_in_a_workbook(
    served: Served, tmp_path: Path, real_data: Path
) -> None:
    panel = load_panel(real_data)
    few = panel.of(panel.regions[:12]).between(date(2021, 3, 1), date(2021, 11, 14))
    table: list[list[Any]] = [["Meldungen der Kreise"], [], ["Meldedatum", "Landkreis", "Fälle"]]
    for row, name in enumerate(few.names):
        for column, day in enumerate(few.days):
            table.append([f"{day:%d.%m.%Y}", name, int(few.counts[row, column])])
    path = workbook(tmp_path / "kreise.xlsx", {"Daten": table})
    page = served.open("de")
    page.set_input_files("#picker", path)
    forecast_shown(page)
    expect(page.locator("#findings li").first).to_contain_text("12 Regionen")
    assert re.search(r"Nächste Woche: (etwa|wie diese Woche)", page.inner_text("#headline"))
    assert page.locator("#record tbody tr").count() == 4


@pytest.mark.parametrize("lang", ["de", "en"])
def test_a_member_sees_its_week_and_what_would_be_sent(
    served: Served, tmp_path: Path, lang: str
) -> None:
    north = Office.make(tmp_path)
    north.give(WEEK_OF_OFFICE)
    north.train(WEEK_OF_OFFICE)
    served.desk.member = Member(north.kit, north.out, MODEL)
    page = served.open(lang, viewport=PHONE, accept_downloads=True)
    expect(page.locator("#member-content")).to_contain_text(f"week-{WEEK_OF_OFFICE}")
    expect(page.locator("#member-content")).to_contain_text("δ =")
    page.click("#preview")
    page.wait_for_selector("#member .numbers, #member .trouble")
    page.click("#own")
    page.wait_for_selector("a[href='api/take/week']")
    with page.expect_download() as waited:
        page.click("a[href='api/take/week']")
    assert re.fullmatch(r"epifed-\d{4}-W\d\d\.html", waited.value.suggested_filename)
    assert fits(page)
    assert not re.search(r"undefined|NaN|\[object", page.inner_text("body"))


SQUARE = [[0, 0], [1, 0], [1, 1], [0, 1], [0, 0]]


@pytest.mark.parametrize("lang", ["de", "en"])
def test_a_dropped_map_shows_the_regions_and_goes_into_the_report(
    served: Served, tmp_path: Path, lang: str
) -> None:
    page = served.open(lang)
    (tmp_path / "kreise.geojson").write_text("{}")
    page.set_input_files("#picker", tmp_path / "kreise.geojson")
    expect(page.locator("#problem")).to_contain_text(
        {"de": "vorher eine Datei mit Fällen", "en": "a file of cases before it"}[lang]
    )
    page.set_input_files("#picker", plain_csv(tmp_path / "cases.csv"))
    page.wait_for_selector("#take:not([hidden])")
    expect(page.locator("#map-hint")).to_contain_text("GeoJSON")
    assert page.is_hidden(".map-frame")
    panel = load_panel(tmp_path / "cases.csv")
    features = [
        {
            "type": "Feature",
            "properties": {"GEN": name, "NR": k},
            "geometry": {"type": "Polygon", "coordinates": [[[x + k, y] for x, y in SQUARE]]},
        }
        for k, name in enumerate(panel.names)
    ]
    content = {"type": "FeatureCollection", "features": features}
    (tmp_path / "kreise.geojson").write_text(json.dumps(content))
    page.set_input_files("#picker", tmp_path / "kreise.geojson")
    page.wait_for_selector(".map-frame:not([hidden]) #map svg path")
    page.focus("#map")
    page.select_option("#region", "0")
    page.focus("#map")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#region")).to_have_value("1")
    with page.expect_download() as taken:
        page.click("#takes [data-kind=html]")
    assert '"map":{"origin"' in taken.value.path().read_text(encoding="utf-8")


def test_questions_of_the_page_have_words_in_both_languages() -> None:
    """Every option that a question can offer has its words."""
    from epifed.app.reading import _KINDS  # noqa: PLC0415
    from epifed.app.server import own_asset  # noqa: PLC0415

    for lang in ("en", "de"):
        words = own_asset(f"words_{lang}.js")
        block = words[words.index("  question: {") : words.index("  hint: {")]
        for kind in set(_KINDS) - {"encoding", "header_row", "fill_down"}:
            assert re.search(rf"\b{kind}: ", block), (lang, kind)
    names = [set(re.findall(r"^  (\w+): ", own_asset(f"words_{x}.js"), re.M)) for x in ("en", "de")]
    assert names[0] == names[1]
