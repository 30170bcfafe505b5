"""The report in a real browser: what a reader clicks, types, hears and prints."""

import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from epifed.data.readers import load_panel
from epifed.evaluation.experiment import Grid, run_grid
from epifed.local_forecast import forecast_alone
from epifed.report.html import write_report
from epifed.settings import Settings
from tests.forecasting.test_local_forecast import cases as office_cases
from tests.report import test_report
from tests.report.test_report import NASTY, ORIGIN, forecasts
from tests.waiting import GUARD

made, report = test_report.made, test_report.report
CHROMIUM = shutil.which("chromium")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
expect.set_options(timeout=1000 * GUARD)

pytestmark = [
    pytest.mark.field,
    pytest.mark.skipif(
        CHROMIUM is None, reason="no chromium on this machine: 'make chromium' installs it as root"
    ),
]
CENTRE_OF = """(region) => {
  const chart = echarts.getInstanceByDom(document.getElementById('map'));
  const box = document.getElementById('map').getBoundingClientRect();
  const data = JSON.parse(document.getElementById('data').textContent).map;
  let x = 0, y = 0, n = 0, at = [0, 0];
  const flat = data.shapes[region][0][0];
  for (let i = 0; i < flat.length; i += 2, n += 1) {
    at = [at[0] + flat[i], at[1] + flat[i + 1]];
    x += at[0];
    y += at[1];
  }
  const place = [data.origin[0] + x / n * data.step[0], data.origin[1] + y / n * data.step[1]];
  const pixel = chart.convertToPixel({ seriesIndex: 0 }, place);
  return [box.left + pixel[0], box.top + pixel[1]];
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


class Watched:
    """Opens pages and remembers what they complained about or asked the network for."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        self.trouble: list[str] = []

    def open(self, path: Path, **options: Any) -> Page:
        chosen = {"viewport": {"width": 1366, "height": 900}, "locale": "en-GB"} | options
        page = self.browser.new_context(**chosen).new_page()
        page.set_default_timeout(1000 * GUARD)
        page.on("console", lambda message: self.trouble.append(message.text))
        page.on("pageerror", lambda error: self.trouble.append(str(error)))
        page.on("request", lambda request: self._requested(request.url))
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready]")
        return page

    def _requested(self, url: str) -> None:
        if not url.startswith(("file:", "data:")):
            self.trouble.append(url)


@pytest.fixture
def watched(browser: Browser) -> Iterator[Watched]:
    found = Watched(browser)
    yield found
    for context in browser.contexts:
        context.close()
    assert found.trouble == []


def names(made: Path) -> tuple[str, ...]:
    return load_panel(made / "country").names


PAINTED = "new Promise((done) => requestAnimationFrame(() => setTimeout(done, 150)))"
"""A frame was painted, and time was left for another."""


def centre(page: Page, region: int) -> tuple[float, float]:
    """Where a region is on the screen, once the page has stopped moving."""
    page.locator("#map").scroll_into_view_if_needed()
    place = None
    while place != (found := page.evaluate(CENTRE_OF, region)):
        place = found
        page.evaluate(PAINTED)
    return found[0], found[1]


def choose(page: Page, region: int) -> None:
    """Click on a region as a hand does, which is over it before it clicks."""
    page.mouse.move(*centre(page, region))
    page.mouse.click(*centre(page, region))


def test_a_click_on_a_county_shows_its_chart(watched: Watched, report: Path, made: Path) -> None:
    page = watched.open(report)
    for region in (7, 12):
        choose(page, region)
        expect(page.locator("#region-name")).to_have_text(names(made)[region])
        label = page.locator("#fan").get_attribute("aria-label") or ""
        assert names(made)[region] in label and "95" not in label[:10]
        assert page.locator("#fan svg path").count() > 8
        assert page.locator("#past svg path").count() > 4
    expect(page.locator("#past-verdict")).to_contain_text("In 8 past forecasts")


def test_the_first_screen_answers_and_labels_what_is_simulated(
    watched: Watched, report: Path
) -> None:
    page = watched.open(report)
    expect(page.locator("#headline")).to_contain_text("of 24 counties next week")
    assert page.locator(".answer h3").all_inner_texts() == [
        "Where is it rising?",
        "What is expected next week?",
        "How sure is this?",
        "What about privacy?",
    ]
    expect(page.locator("#answers")).to_contain_text("a coin toss is right 50 %")
    labels = page.locator(".label").all_inner_texts()
    assert labels[0].startswith("Simulated data.")
    assert labels[1].startswith("Privacy is only simulated.")
    assert all(page.locator(".label").nth(i).is_visible() for i in range(2))


def test_the_language_switch_changes_words_and_numbers(watched: Watched, report: Path) -> None:
    page = watched.open(report)
    page.click("#lang-de")
    expect(page.locator("html")).to_have_attribute("lang", "de")
    expect(page.locator("#map-title")).to_contain_text("7-Tage-Meldeinzidenz")
    expect(page.locator("#region-facts")).to_contain_text("95-%-Vorhersageintervall")
    assert re.search(r"\d\.\d{3} Einwohner", page.inner_text("#region-group"))
    visible = page.inner_text("body")
    assert "undefined" not in visible and "NaN" not in visible
    page.click("#lang-en")
    expect(page.locator("html")).to_have_attribute("lang", "en")
    assert re.search(r"\d,\d{3} inhabitants", page.inner_text("#region-group"))
    german = watched.open(report, locale="de-DE")
    expect(german.locator("html")).to_have_attribute("lang", "de")


def test_both_languages_have_the_same_words() -> None:
    assets = Path("src/epifed/report/html/assets")
    root = Path(__file__).resolve().parents[2] / assets
    keys = [
        re.findall(r"^  (\w+):", (root / f"words_{lang}.js").read_text(), flags=re.MULTILINE)
        for lang in ("en", "de")
    ]
    assert sorted(set(keys[0]) - {"one"}) == sorted(set(keys[1]) - {"one"})


def test_the_epsilon_slider_changes_the_numbers(watched: Watched, report: Path) -> None:
    page = watched.open(report)
    seen = []
    page.locator("#epsilon").focus()
    page.keyboard.press("Home")
    for _ in range(3):
        seen.append([page.inner_text(f"#{i}") for i in ("epsilon-out", "epsilon-facts", "guess")])
        page.keyboard.press("ArrowRight")
    assert [row[0] for row in seen] == ["ε = 0.5", "ε = 2", "ε = ∞"]
    assert len({row[1] for row in seen}) == 3
    assert "62.3 %" in seen[0][2]  # e^0.5 / (1 + e^0.5), rounded up, and δ
    expect(page.locator("#epsilon")).to_have_attribute("aria-valuetext", "ε = ∞, no privacy")


def test_search_and_map_work_from_the_keyboard(watched: Watched, report: Path, made: Path) -> None:
    page = watched.open(report)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.locator("#search").focus()
    wanted = names(made)[9]
    page.keyboard.type(wanted[:-2].lower())
    expect(page.locator("#found li").first).to_contain_text(wanted)
    page.keyboard.press("Enter")
    expect(page.locator("#region-name")).to_have_text(wanted)
    page.locator("#map").focus()
    for key in ("ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"):
        page.keyboard.press(key)
    page.keyboard.press("+")
    assert page.evaluate(
        "echarts.getInstanceByDom(document.getElementById('map')).getOption().series[0].zoom"
    ) == pytest.approx(1.6, rel=0.01)


def test_the_map_zooms_and_shows_each_measure(watched: Watched, report: Path) -> None:
    page = watched.open(report)
    titles = set()
    for name in ("now", "forecast", "change"):
        page.locator(f"input[name=measure][value={name}] + span").click()
        titles.add(page.inner_text("#map-title"))
        assert page.locator("#legend li").count() >= 7
    assert len(titles) == 3
    page.locator("#sure").check()
    expect(page.locator("#legend")).to_contain_text("not sure")
    page.select_option("#week", "3")
    expect(page.locator("#map-title")).to_contain_text("29 December 2020")
    expect(page.locator("#region-facts")).to_contain_text("In 4 weeks")
    page.click("#zoom-in")
    page.click("#zoom-reset")


def test_behind_every_chart_is_a_table(watched: Watched, report: Path) -> None:
    page = watched.open(report)
    charts = page.locator("[role=img].chart")
    assert charts.count() == 6
    for i in range(6):
        assert charts.nth(i).get_attribute("aria-label")
    for name in ("map", "fan", "nowcast", "past", "origins", "curve", "settings"):
        page.locator(f"#{name}-table > summary").click()
        rows = page.locator(f"#{name}-table tbody tr")
        rows.nth(2).wait_for(state="attached")
    assert page.locator("#map-table tbody tr").count() == 24
    heads = page.locator("#map-table thead button")
    heads.last.click()
    expect(page.locator("#map-table th[aria-sort]")).to_have_count(1)
    page.locator("#map-table tbody button").first.click()


def test_the_last_two_weeks_are_shown_as_known_and_as_estimated(
    watched: Watched, report: Path
) -> None:
    page = watched.open(report)
    expect(page.locator("#nowcast-part")).to_contain_text("once late reports are in")
    expect(page.locator("#nowcast-note")).to_contain_text("as known on the morning after")
    assert "1.25" in str(page.locator("#number").get_attribute("aria-label"))
    page.click("#lang-de")
    expect(page.locator("#nowcast-part")).to_contain_text("Reproduktionszahl")


def test_names_of_regions_stay_text(watched: Watched, report: Path) -> None:
    page = watched.open(report)
    page.fill("#search", "</script>")
    page.keyboard.press("Enter")
    expect(page.locator("#region-name")).to_have_text(NASTY)
    page.mouse.move(*centre(page, 0))
    page.locator("#map-table > summary").click()
    page.wait_for_timeout(200)
    assert page.evaluate("window.hacked") is None
    assert page.locator("main img, main script").count() == 0


CONTRAST = """() => {
  const light = (c) => {
    const linear = (s) => (s <= 0.04045 ? s / 12.92 : ((s + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = c.map((v) => linear(v / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const parts = (text) => text.match(/[\\d.]+/g).map(Number);
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const c = parts(getComputedStyle(e).backgroundColor);
      if (c.length < 4 || c[3] === 1) return c.slice(0, 3);
    }
    return [255, 255, 255];
  };
  const low = [];
  for (const element of document.querySelectorAll('body *')) {
    const own = [...element.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    if (!own || !element.checkVisibility() || element.closest('svg, script, tr.mark')) continue;
    const a = light(parts(getComputedStyle(element).color).slice(0, 3));
    const b = light(behind(element));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const text = element.textContent.slice(0, 30);
    if (ratio < 4.5) low.push(`${element.tagName}.${element.className} ${text} ${ratio}`);
  }
  return low;
}"""


def test_text_is_readable_in_light_and_dark(watched: Watched, report: Path) -> None:
    page = watched.open(report, color_scheme="dark")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    assert page.evaluate(CONTRAST) == []
    page.click("#theme")
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    assert page.evaluate(CONTRAST) == []


def test_every_control_has_a_name(watched: Watched, report: Path) -> None:
    page = watched.open(report)
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll('button, input, select, a')].filter((e) =>
          !(e.getAttribute('aria-label') || e.textContent.trim() || (e.labels && e.labels.length)))
          .map((e) => e.outerHTML)"""
    )
    assert unnamed == []
    levels = page.evaluate(
        "[...document.querySelectorAll('h1,h2,h3,h4')].map((h) => +h.tagName[1])"
    )
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))


def test_a_phone_shows_it_without_scrolling_sideways(watched: Watched, report: Path) -> None:
    page = watched.open(
        report, viewport={"width": 360, "height": 740}, is_mobile=True, has_touch=True
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.locator("#map").scroll_into_view_if_needed()
    page.touchscreen.tap(*page.evaluate(CENTRE_OF, 12))
    page.wait_for_timeout(100)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_it_prints_light_and_without_controls(
    watched: Watched, report: Path, tmp_path: Path
) -> None:
    page = watched.open(report, color_scheme="dark")
    page.pdf(path=tmp_path / "report.pdf", prefer_css_page_size=True)
    assert (tmp_path / "report.pdf").stat().st_size > 20_000
    width = page.evaluate(
        "(window.dispatchEvent(new Event('beforeprint')),"
        " document.querySelector('#fan svg').getAttribute('width'))"
    )
    assert width == "680"
    page.emulate_media(media="print")
    for hidden in (".controls", "nav", ".search", ".zoom", "#epsilon"):
        assert not page.locator(hidden).first.is_visible()


def test_the_explorer_knows_no_learner_by_name(
    watched: Watched, made: Path, tmp_path: Path
) -> None:
    panel = load_panel(made / "country")
    one_shot = Grid(
        settings=Settings.for_learner("one-shot", len(panel.regions)),
        splits=("temporal",),
        periods={"late": (panel.day(60), panel.day(100))},
        epsilons=(0.5, 2.0),
        runs=1,
        baselines=("persistence",),
    )
    run_grid(panel, one_shot, tmp_path / "results", workers=1)
    write_report(tmp_path / "results", tmp_path / "one.html", panel)
    page = watched.open(tmp_path / "one.html")
    expect(page.locator("#explorer")).to_be_visible()
    assert [tick.inner_text() for tick in page.locator("#ticks span").all()] == ["0.5", "2"]


def test_the_chart_names_what_is_no_count_of_its_day(
    watched: Watched, made: Path, tmp_path: Path
) -> None:
    panel = load_panel(made / "country")
    counts = panel.counts.copy()
    counts[7, (ORIGIN - panel.start).days - 4] = 90_000
    write_report(made / "results", tmp_path / "dumped.html", replace(panel, counts=counts))
    page = watched.open(tmp_path / "dumped.html")
    choose(page, 7)
    expect(page.locator("#fan-note")).to_contain_text("27 Nov: 90,000 reported")
    expect(page.locator("#fan-note")).to_contain_text("expected (backlog)")
    choose(page, 12)
    expect(page.locator("#fan-note")).not_to_contain_text("90,000")


def test_without_boundaries_tiles_take_the_place_of_the_map(
    watched: Watched, made: Path, tmp_path: Path
) -> None:
    panel = replace(load_panel(made / "country"), simulated=None)
    forecasts(panel, tmp_path / "results")
    write_report(tmp_path / "results", tmp_path / "plain.html")
    page = watched.open(tmp_path / "plain.html")
    assert page.locator(".tile").count() == 24
    page.locator(".tile").nth(3).click()
    expect(page.locator(".tile[aria-pressed=true]")).to_have_count(1)
    assert page.inner_text("#region-name") in panel.regions
    expect(page.get_by_role("rowheader", name="trend")).to_have_count(1)


def test_the_page_of_one_county_names_it(watched: Watched, made: Path, tmp_path: Path) -> None:
    whole = load_panel(made / "country")
    panel = replace(whole.alone(whole.regions[0]), simulated=None)
    forecasts(panel, tmp_path / "results")
    write_report(tmp_path / "results", tmp_path / "one.html", panel)
    page = watched.open(tmp_path / "one.html")
    headline = page.inner_text("#headline")
    assert headline.startswith(f"{panel.names[0]}: cases are expected to ")
    assert "1 county" in page.inner_text("#subtitle") or "1 region" in page.inner_text("#subtitle")
    page.click("#lang-de")
    assert page.inner_text("#headline").startswith(f"{panel.names[0]}: Die Fallzahlen dürften ")
    assert not re.search(r"\b1 (Kreise|Regionen)\b", page.inner_text("body"))


@pytest.mark.parametrize(("lang", "width"), [("en-GB", 1366), ("de-DE", 390)])
def test_the_page_of_a_file_alone(watched: Watched, tmp_path: Path, lang: str, width: int) -> None:
    """It leads with the sum and how sure that is; a forecast that lost is no headline."""
    forecast_alone(office_cases(6)).write(tmp_path / "six")
    page = watched.open(
        tmp_path / "six" / "report.html", locale=lang, viewport={"width": width, "height": 844}
    )
    english = lang == "en-GB"
    sum_first = "Cases are expected to" if english else "Die Fallzahlen dürften"
    expect(page.locator("#headline")).to_contain_text(sum_first)
    expect(page.locator("#standfirst")).to_contain_text("(95 %)")
    expect(page.locator("#method-text")).to_contain_text("trend")
    expect(page.locator("#privacy")).to_be_hidden()
    expect(page.locator("#appendix")).to_be_hidden()
    expect(page.locator("#labels")).to_be_empty()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    if not english:
        assert page.evaluate("document.documentElement.scrollHeight") < 7 * 844
        page.locator("#record-title").click()
        expect(page.locator("#record-facts")).to_be_visible()
    noise = np.random.default_rng(5).poisson(3.0, size=(1, 140)).astype(float)
    lost = forecast_alone(replace(office_cases(1), counts=noise))
    assert lost.method == "persistence"
    lost.write(tmp_path / "one")
    page = watched.open(tmp_path / "one" / "report.html", locale=lang)
    words = "like this week" if english else "wie diese Woche"
    expect(page.locator("#headline")).to_contain_text(words)
