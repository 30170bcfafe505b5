"""`epifed open` without a browser: who comes in, how a file is read, what is taken along."""

import io
import os
import re
import shlex
import signal
import stat
import subprocess
import sys
import tempfile
import zipfile
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import xlsxwriter
from starlette.testclient import TestClient
from typer.testing import CliRunner

from epifed.app import server, session
from epifed.app.reading import FileReading, Memory, read_file, shape_of
from epifed.app.server import Door, make_app
from epifed.app.session import PageSession, plain_name
from epifed.cli.app import app
from epifed.errors import EpifedError
from epifed.report.served import HEADERS
from tests.waiting import GUARD, today

PORT = 4321
OWN = f"http://127.0.0.1:{PORT}"
FIRST = date(2026, 5, 4)
REGIONS = ("Nordkreis", "Südkreis", "Westkreis")


def series(days: int = 120) -> dict[str, list[int]]:
    """Counts of some regions: a slow wave, weekends low, the same in every run."""
    random = np.random.default_rng(7)
    week = np.array([1.2, 1.1, 1.05, 1.0, 1.0, 0.6, 0.45])
    time = np.arange(days)
    return {
        name: random.poisson(
            (40 + 30 * i) * (1 + 0.5 * np.sin(time / 20)) * week[time % 7]
        ).tolist()
        for i, name in enumerate(REGIONS)
    }


def rows(days: int = 120) -> list[tuple[date, str, int]]:
    found = series(days)
    return [
        (FIRST + timedelta(days=day), name, found[name][day]) for name in REGIONS
        for day in range(days)
    ]  # fmt: skip


def plain_csv(path: Path, days: int = 120) -> Path:
    lines = ["date,region,cases", *(f"{day},{name},{n}" for day, name, n in rows(days))]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def office_csv(path: Path) -> Path:
    """As an office exports it: a title, German names, `<5`, points in thousands, a total."""
    lines = ["Fallzahlen Bezirk, Stand 17.11.2026", "", "Meldedatum;Landkreis;Fälle"]
    for day, name, n in rows():
        text = "<5" if n < 25 else f"{1000 + n:,}".replace(",", ".") if n > 100 else str(n)
        lines.append(f"{day:%d.%m.%Y};{name};{text}")
    lines.append("Gesamt;;99999")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def asked(found: FileReading) -> str | None:
    return found.question.kind if found.question else None


def options_of(found: FileReading) -> list[dict[str, Any]]:
    assert found.question is not None
    return [answer.options for answer in found.question.answers]


@pytest.fixture
def desk(tmp_path: Path) -> PageSession:
    folder = tmp_path / "private"
    folder.mkdir()
    return PageSession(folder, Memory(tmp_path / "memory.json"))


@pytest.fixture
def door() -> Door:
    return Door(PORT)


@pytest.fixture
def stranger(desk: PageSession, door: Door) -> TestClient:
    return TestClient(make_app(desk, door), base_url=OWN, follow_redirects=False)


@pytest.fixture
def client(stranger: TestClient, door: Door) -> TestClient:
    """A browser that has come in."""
    assert stranger.get(f"/?token={door.token}").status_code == 200
    stranger.headers["origin"] = OWN
    return stranger


def test_the_token_opens_once_and_for_one_browser(stranger: TestClient, door: Door) -> None:
    assert stranger.get("/").status_code == 403
    assert stranger.get("/?token=guessed").status_code == 403
    assert stranger.get("/api/state", params={"token": door.token}).status_code == 403
    entered = stranger.get(f"/?token={door.token}")
    cookie = entered.headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie and door.token not in entered.text
    assert stranger.get("/").status_code == 200
    assert stranger.get("/api/state").json()["file"] is None
    stranger.cookies.clear()
    again = stranger.get(f"/?token={door.token}")
    assert again.status_code == 403 and "schon benutzt" in again.text
    assert stranger.get("/api/state").status_code == 403


@pytest.mark.parametrize(
    "host", ["evil.example", f"evil.example:{PORT}", "127.0.0.1:1", "", "[::1]"]
)
def test_a_request_for_another_host_is_refused(client: TestClient, host: str) -> None:
    assert client.get("/", headers={"host": host}).status_code == 421
    assert client.get("/", headers={"host": f"localhost:{PORT}"}).status_code in (200, 403)


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://127.0.0.1:9"},
        {"origin": "null"},
        {"origin": OWN, "sec-fetch-site": "same-site"},
        {"origin": OWN, "sec-fetch-site": "cross-site"},
    ],
)
def test_what_another_page_sends_is_refused(client: TestClient, headers: dict[str, str]) -> None:
    assert client.post("/api/close", headers=headers).status_code == 403
    if "sec-fetch-site" in headers:
        assert client.get("/api/state", headers=headers).status_code == 403
    assert client.post("/api/close").status_code == 200
    del client.headers["origin"]
    assert client.post("/api/close").status_code == 403
    assert client.put("/api/close").status_code == 405


def test_every_answer_lets_a_browser_load_nothing_from_elsewhere(client: TestClient) -> None:
    page = client.get("/")
    names = re.findall(r'(?:src|href)="(assets/[^"]+)"', page.text)
    assert len(names) == 3
    answers = [page, *(client.get(f"/{name}") for name in names), client.get("/assets/none")]
    answers += [client.get("/nowhere"), client.get("/", headers={"host": "evil"})]
    client.cookies.clear()
    answers.append(client.get("/"))
    for answer in answers:
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    policy = HEADERS["content-security-policy"]
    assert "unsafe" not in policy and "http" not in policy and "*" not in policy
    assert not re.search(r"https?://(?!www\.w3\.org)", page.text)


def test_an_upload_is_bounded_and_leaves_nothing(
    client: TestClient, desk: PageSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MOST_UPLOAD", 1000)
    refused = client.post("/api/file?name=big.csv", content=b"x" * 1001)
    assert refused.status_code == 413 and refused.json()["code"] == "too-big"
    assert [path for path in desk.folder.rglob("*") if path.is_file()] == []
    assert client.get("/api/state").json()["file"] is None


@pytest.mark.parametrize(
    ("name", "plain"),
    [("../../etc/passwd", "passwd"), ("C:\\data\\x.csv", "x.csv"), ("..", "file"), ("", "file"),
     ("a\x00b\n.csv", "ab.csv"), ("ä" * 300 + ".csv", "ä" * 116 + ".csv")],
)  # fmt: skip
def test_a_name_leads_nowhere_else(desk: PageSession, name: str, plain: str) -> None:
    assert plain_name(name) == plain
    path, _ = desk.new_file(name)
    assert path.parent.parent == desk.folder
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_file_is_dropped_answered_and_gone_with_the_next(
    client: TestClient, desk: PageSession, tmp_path: Path
) -> None:
    office = office_csv(tmp_path / "office.csv")
    state = client.post("/api/file?name=F%C3%A4lle.csv", content=office.read_bytes()).json()
    file = state["file"]
    assert (file["name"], file["question"]["kind"], state["check"]) == ("Fälle.csv", "below", None)
    assert file["rows"][0] == [1, ["Fallzahlen Bezirk, Stand 17.11.2026"]]
    assert file["header_row"] == 3 and file["columns"] == ["Meldedatum", "Landkreis", "Fälle"]
    assert file["roles"] | {"population": ""} == {
        "date": "Meldedatum", "region": "Landkreis", "cases": "Fälle", "population": "",
    }  # fmt: skip
    assert [one["options"] for one in file["question"]["answers"]] == [
        {"below": 2}, {"below": 0}, {"below": "left out"},
    ]  # fmt: skip
    state = client.post("/api/answer", json={"below": "left out"}).json()
    question = state["file"]["question"]
    assert question["kind"] == "thousands"
    assert [one["reading"] for one in question["answers"]] == pytest.approx(
        [float(question["example"].replace(".", "")), float(question["example"])]
    )
    state = client.post("/api/answer", json={"thousands": "."}).json()
    assert state["file"]["question"] is None and state["file"]["problem"] == ""
    hidden = sum(n < 25 for _, _, n in rows())
    assert state["check"]["missing"]["count"] == hidden
    expected = sum(n if n <= 100 else 1000 + n for _, _, n in rows() if n >= 25)
    assert state["check"]["cases"] == expected
    assert any("Gesamt" in note for note in state["file"]["notes"])
    first = next(desk.folder.rglob("Fälle.csv"))
    assert str(desk.folder) not in str(state)
    client.post("/api/file?name=next.csv", content=plain_csv(tmp_path / "p.csv").read_bytes())
    assert not first.exists()


@pytest.mark.parametrize(("below", "value"), [(2, 2.0), (0, 0.0), ("left out", None)])
def test_hidden_counts_are_two_zero_or_left_out(
    tmp_path: Path, below: object, value: float | None
) -> None:
    path = plain_csv(tmp_path / "cases.csv")
    path.write_text(path.read_text().replace("2026-06-01,Nordkreis,", "2026-06-01,Nordkreis,<5#"))
    path.write_text(re.sub(r"<5#\d+", "<5", path.read_text()))
    found = read_file(path, path.name, {})
    assert asked(found) == "below"
    panel = read_file(path, path.name, {"below": below}).panel
    assert panel is not None
    at = (date(2026, 6, 1) - FIRST).days
    assert panel.counts[0, at] == (value or 0.0)
    assert (panel.reported is None or panel.reported[0, at]) == (value is not None)


def test_what_is_ambiguous_is_asked_with_a_telling_example(tmp_path: Path) -> None:
    path = tmp_path / "cases.csv"
    lines = [
        f"{FIRST.replace(month=m, day=d):%d/%m/%Y},a,5" for m in range(1, 13) for d in (1, 2, 3)
    ]
    path.write_text("date,region,cases\n" + "\n".join(lines))
    found = read_file(path, path.name, {"cadence": "day"})
    assert found.question is not None and found.question.kind == "date_format"
    day, month = found.question.example.split("/")[:2]
    assert day != month
    readings = [answer.reading for answer in found.question.answers]
    assert len(set(readings)) == 2 and f"2026-{month}-{day}" in readings


def weekly_csv(path: Path, *, cumulative: bool = False) -> Path:
    """A row for every day, the cases on Mondays alone; or all cases so far."""
    lines = ["date,region,cases"]
    total = 0
    for i in range(140):
        day = FIRST + timedelta(days=i)
        total += 20 + i % 11
        lines.append(f"{day},a,{total if cumulative else 70 + i * 37 % 50 if i % 7 == 0 else 0}")
    path.write_text("\n".join(lines))
    return path


def test_days_or_weeks_and_new_or_cumulative_are_asked(tmp_path: Path) -> None:
    found = read_file(weekly_csv(tmp_path / "weekly.csv"), "weekly.csv", {})
    assert asked(found) == "cadence"
    assert options_of(found) == [{"cadence": "week"}, {"cadence": "day"}]
    found = read_file(tmp_path / "weekly.csv", "weekly.csv", {"cadence": "week"})
    assert asked(found) == "weeks_dated"
    said = {"cadence": "week", "weeks_dated": "first"}
    panel = read_file(tmp_path / "weekly.csv", "weekly.csv", said).panel
    assert panel is not None and panel.step == "week"
    path = weekly_csv(tmp_path / "sums.csv", cumulative=True)
    found = read_file(path, path.name, {})
    assert asked(found) == "counts"
    assert {"counts": "new"} in options_of(found)
    panel = read_file(path, path.name, {"counts": "cumulative"}).panel
    assert panel is not None and panel.counts.max() < 40


def workbook(path: Path, sheets: dict[str, list[list[Any]]]) -> Path:
    with xlsxwriter.Workbook(path) as book:
        for name, cells in sheets.items():
            sheet = book.add_worksheet(name)
            for row, values in enumerate(cells):
                for column, value in enumerate(values):
                    sheet.write(row, column, value)
    return path


def test_a_workbook_shows_its_rows_and_asks_for_its_sheet(tmp_path: Path) -> None:
    table: list[list[Any]] = [["Fälle im Bezirk"], [], ["Datum", "Kreis", "Fälle"]]
    table += [[f"{day:%Y-%m-%d}", name, n] for day, name, n in rows()]
    other = [["Notiz"], ["nichts"], ["hier"]]
    path = workbook(tmp_path / "cases.xlsx", {"Info": other, "Zahlen": table, "Mehr": other})
    found = read_file(path, path.name, {})
    assert asked(found) == "sheet"
    assert [one["sheet"] for one in options_of(found) if "sheet" in one] == [
        "Info",
        "Zahlen",
        "Mehr",
    ]
    found = read_file(path, path.name, {"sheet": "Zahlen"})
    assert found.panel is not None and found.panel.counts.sum() == sum(n for _, _, n in rows())
    shown = found.to_dict()
    assert [row for row, _ in shown["rows"]][:3] == [1, 3, 4]
    assert shown["rows"][0][1][0] == "Fälle im Bezirk"
    assert (shown["header_row"], shown["columns"]) == (3, ["Datum", "Kreis", "Fälle"])


def test_inhabitants_come_from_another_sheet_or_a_second_file(
    desk: PageSession, tmp_path: Path
) -> None:
    people = {"Nordkreis": 91000, "Südkreis": 130500, "Westkreis": 70000}
    table: list[list[Any]] = [["Datum", "Kreis", "Fälle"]]
    table += [[f"{d}", name, n] for d, name, n in rows()]
    sheet: list[list[Any]] = [["Kreis", "Einwohner"], *([*pair] for pair in people.items())]
    path = workbook(tmp_path / "both.xlsx", {"Zahlen": table, "Leute": sheet})
    found = read_file(path, path.name, {"sheet": "Zahlen"})
    assert found.assumed["population_from"] == "Leute"
    assert found.panel is not None and found.panel.population is not None
    assert found.panel.population.tolist() == list(people.values())
    assert "--population-from Leute" in found.command()

    path = workbook(tmp_path / "some.xlsx", {"Zahlen": table, "Leute": sheet[:3]})
    found = read_file(path, path.name, {"sheet": "Zahlen"})
    assert found.panel is not None and found.panel.population is None
    assert "found no inhabitants of Westkreis (1 of 3 regions)" in found.to_dict()["notes"][-1]

    desk.open(plain_csv(tmp_path / "cases.csv"), "cases.csv")
    file = tmp_path / "people.csv"
    lines = [f"{name};{n:,}".replace(",", ".") for name, n in people.items()]
    file.write_text("\n".join(["Kreis;Einwohner", *lines, "Ostkreis;1"]), encoding="utf-8")
    desk.open(file, "people.csv")
    assert desk.file is not None and desk.file.name == "cases.csv"
    shown = desk.state()
    assert shown["check"]["people"] == list(people.values())
    assert "without cases, so not used: Ostkreis" in " ".join(shown["file"]["notes"])
    assert shown["file"]["command"].endswith("--population-from people.csv")
    file.write_text("\n".join(["Kreis;Einwohner", *lines[:2]]), encoding="utf-8")
    with pytest.raises(EpifedError, match="found no inhabitants of Westkreis"):
        desk.open(file, "people.csv")
    assert desk.file.name == "cases.csv"


@pytest.mark.parametrize(
    ("names", "kind"), [(REGIONS, "cases"), (("Nord", "Süd", "West"), "layout")]
)
def test_a_column_for_each_region_is_asked_about(
    tmp_path: Path, names: tuple[str, ...], kind: str
) -> None:
    table = series()
    lines = ["Tag," + ",".join(names)]
    for day in range(120):
        counts = ",".join(str(table[name][day]) for name in REGIONS)
        lines.append(f"{FIRST + timedelta(days=day)},{counts}")
    path = tmp_path / "wide.csv"
    path.write_text("\n".join(lines), encoding="utf-8")
    found = read_file(path, path.name, {})
    assert asked(found) == kind and {"layout": "regions-across"} in options_of(found)
    found = read_file(path, path.name, {"layout": "regions-across"})
    assert found.panel is not None and found.panel.regions == names
    assert found.to_dict()["roles"]["region"] == "(column names)"


def test_a_sheet_for_each_region_is_an_answer(tmp_path: Path) -> None:
    found = series()
    sheets = {
        name: [[f"Fälle {name}"], [], ["Datum", "Fälle"]]
        + [[str(FIRST + timedelta(days=day)), n] for day, n in enumerate(counts)]
        for name, counts in found.items()
    }
    path = workbook(tmp_path / "sheets.xlsx", sheets)
    read = read_file(path, path.name, {})
    assert asked(read) == "sheet" and options_of(read)[0] == {"regions_from": "sheets"}
    read = read_file(path, path.name, {"regions_from": "sheets"})
    assert read.panel is not None and read.panel.regions == tuple(sorted(REGIONS))
    assert read.panel.counts.sum() == sum(map(sum, found.values()))
    shown = read.to_dict()
    assert shown["header_row"] == 3 and shown["rows"][1][1] == [
        str(FIRST),
        str(found[REGIONS[0]][0]),
        REGIONS[0],
    ]
    assert "--regions-from sheets" in shown["command"]


def case_list(path: Path, days: int = 90) -> Path:
    """A list of cases, each entered some days after its report, the same in every run."""
    random = np.random.default_rng(11)
    lines = ["Meldedatum;Landkreis;Alter;Erfassungsdatum"]
    last = FIRST + timedelta(days=days - 1)
    for day, name, n in rows(days):
        for late in random.geometric(0.45, size=n // 4) - 1:
            entered = day + timedelta(days=int(late))
            if entered <= last:
                lines.append(f"{day:%d.%m.%Y};{name};{random.integers(90)};{entered:%d.%m.%Y}")
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_a_list_of_cases_with_days_of_entry_has_a_nowcast_and_r(
    client: TestClient, tmp_path: Path
) -> None:
    path = case_list(tmp_path / "liste.csv")
    state = client.post("/api/file?name=liste.csv", content=path.read_bytes()).json()
    question = state["file"]["question"]
    assert (question["kind"], question["column"]) == ("entry", "Erfassungsdatum")
    assert state["check"] is None
    state = client.post("/api/answer", json={"entry": "Erfassungsdatum"}).json()
    assert state["file"]["command"].endswith("--column-entry Erfassungsdatum")
    made = client.post("/api/forecast").json()["forecast"]
    nowcast = made["nowcast"]
    assert len(nowcast["known"]) == 4 and len(nowcast["days"]) == len(nowcast["r"][0])
    *known, together = (row[-1] for row in nowcast["known"])
    assert together == sum(known)
    *estimate, together = (row[-1] for row in nowcast["estimate"])
    assert sum(estimate) > sum(known) and together > sum(known)
    again = client.post("/api/file?name=liste.csv", content=path.read_bytes()).json()
    assert again["file"]["remembered"] and again["file"]["question"] is None
    without = client.post("/api/answer", json={"entry": ""}).json()
    assert "--column-entry" not in without["file"]["command"]
    assert client.post("/api/forecast").json()["forecast"]["nowcast"] is None


def open_document(path: Path) -> Path:
    """The least that is an ODS file."""

    def cell(value: object) -> str:
        return (
            '<table:table-cell office:value-type="string" calcext:value-type="string">'
            f"<text:p>{value}</text:p></table:table-cell>"
        )

    lines = [("date", "region", "cases"), *rows()]
    body = "".join(f"<table:table-row>{''.join(map(cell, row))}</table:table-row>" for row in lines)
    spaces = "".join(
        f' xmlns:{name}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"'
        for name in ("office", "table", "text")
    )
    calc = ' xmlns:calcext="urn:org:documentfoundation:names:experimental:calc:xmlns:calcext:1.0"'
    content = (
        f'<?xml version="1.0"?><office:document-content{spaces}{calc}><office:body>'
        f'<office:spreadsheet><table:table table:name="T">{body}</table:table>'
        "</office:spreadsheet></office:body></office:document-content>"
    )
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
        archive.writestr("content.xml", content)
        archive.writestr("META-INF/manifest.xml", "<x/>")
    return path


def test_parquet_ods_and_zip_are_read_as_the_csv_is(tmp_path: Path) -> None:
    csv = plain_csv(tmp_path / "cases.csv")
    pl.read_csv(csv).write_parquet(tmp_path / "cases.parquet")
    open_document(tmp_path / "cases.ods")
    with zipfile.ZipFile(tmp_path / "one.zip", "w") as archive:
        archive.write(csv, "cases.csv")
    with zipfile.ZipFile(tmp_path / "two.zip", "w") as archive:
        archive.writestr("readme.txt", "nothing")
        archive.write(csv, "cases.csv")
    expected = read_file(csv, csv.name, {}).panel
    assert expected is not None
    for name in ("cases.parquet", "cases.ods", "one.zip"):
        found = read_file(tmp_path / name, name, {})
        assert found.panel is not None, (name, found.problem, found.question)
        assert np.array_equal(found.panel.counts, expected.counts)
        assert found.to_dict()["rows"][1][1][:2] == [str(FIRST), "Nordkreis"]
    found = read_file(tmp_path / "two.zip", "two.zip", {})
    assert asked(found) == "member"
    assert options_of(found) == [{"member": "readme.txt"}, {"member": "cases.csv"}]
    assert read_file(tmp_path / "two.zip", "two.zip", {"member": "cases.csv"}).panel is not None


def test_columns_without_usual_names_are_asked_one_by_one_and_can_be_changed(
    client: TestClient, tmp_path: Path
) -> None:
    path = plain_csv(tmp_path / "x.csv")
    text = path.read_text().replace("date,region,cases", "A1,B1,C1")
    state = client.post("/api/file?name=x.csv", content=text.encode()).json()
    assert state["file"]["question"]["kind"] == "column_date"
    state = client.post("/api/answer", json={"date": "A1"}).json()
    assert state["file"]["question"]["kind"] == "layout"
    ways = [one["options"] for one in state["file"]["question"]["answers"]]
    assert ways == [{"layout": "regions-across"}, {"layout": "long"}]
    state = client.post("/api/answer", json={"layout": "long"}).json()
    assert state["file"]["question"]["kind"] == "column_region"
    assert {"region": "B1"} in [one["options"] for one in state["file"]["question"]["answers"]]
    state = client.post("/api/answer", json={"region": "B1"}).json()
    assert state["check"]["cases"] == sum(n for _, _, n in rows())
    wrong = client.post("/api/answer", json={"date": "B1", "region": "A1"}).json()
    assert wrong["check"] is None and "x.csv: row 2, column B1" in wrong["file"]["problem"]
    right = client.post("/api/answer", json={"date": "A1", "region": "B1"}).json()
    assert right["check"] is not None
    moved = client.post("/api/answer", json={"header_row": 2}).json()
    assert moved["file"]["header_row"] == 2
    refused = client.post("/api/answer", json={"nonsense": 1})
    assert refused.status_code == 422 and "nonsense" in refused.json()["problem"]


def test_answers_are_remembered_for_files_of_that_shape(
    client: TestClient, desk: PageSession, tmp_path: Path
) -> None:
    office = office_csv(tmp_path / "office.csv")
    client.post("/api/file?name=w46.csv", content=office.read_bytes())
    client.post("/api/answer", json={"below": 2})
    client.post("/api/answer", json={"below": "left out"})
    client.post("/api/answer", json={"thousands": "."})
    next_week = office.read_bytes().replace(b"17.11.2026", b"24.11.2026")
    state = client.post("/api/file?name=w47.csv", content=next_week).json()
    assert state["file"]["remembered"] and state["check"] is not None
    assert state["file"]["said"] == {"below": "left out", "thousands": "."}
    assert stat.S_IMODE(desk.memory.path.stat().st_mode) == 0o600
    kept = desk.memory.path.read_text()
    assert "Nordkreis" not in kept and "w46" not in kept
    other = client.post("/api/file?name=o.csv", content=plain_csv(tmp_path / "o.csv").read_bytes())
    assert not other.json()["file"]["remembered"]
    client.post("/api/file?name=w48.csv", content=next_week)
    again = client.post("/api/anew").json()
    assert again["file"]["question"]["kind"] == "below" and not again["file"]["remembered"]
    asked_again = client.post("/api/file?name=w48.csv", content=next_week).json()
    assert asked_again["file"]["question"]["kind"] == "below"


def test_a_memory_that_cannot_be_kept_or_read_is_none(tmp_path: Path) -> None:
    path = tmp_path / "memory.json"
    path.write_text("{broken")
    memory = Memory(path)
    assert memory.answers("x") == {}
    memory.keep("x", {"below": 2})
    assert memory.answers("x") == {"below": 2}
    (tmp_path / "file").write_text("")
    Memory(tmp_path / "file" / "memory.json").keep("x", {"below": 2})
    csv = plain_csv(tmp_path / "a.csv")
    assert shape_of(csv) == shape_of(plain_csv(tmp_path / "b.csv", days=40))
    assert shape_of(csv) != shape_of(office_csv(tmp_path / "c.csv"))


def test_days_after_today_are_asked_about_and_not_remembered(tmp_path: Path) -> None:
    now = today()
    first = now - timedelta(days=59)
    lines = [f"{first + timedelta(days=i)},Nord,{30 if i < 60 else 0}" for i in range(90)]
    path = tmp_path / "template.csv"
    path.write_text("\n".join(["date,region,cases", *lines]) + "\n", encoding="utf-8")
    found = read_file(path, path.name, {})
    assert asked(found) == "until" and found.panel is None
    last = now + timedelta(days=30)
    assert options_of(found) == [{"until": f"{now}"}, {"until": f"{last}"}]
    shorter = read_file(path, path.name, {"until": f"{now}"})
    assert shorter.panel is not None and shorter.panel.end == now
    assert f"--until {now}" in shorter.command()
    assert read_file(path, path.name, {"until": f"{last}"}).panel is not None
    memory = Memory(tmp_path / "memory.json")
    memory.keep(shape_of(path), {"until": f"{now}", "cadence": "day"})
    assert memory.answers(shape_of(path)) == {"cadence": "day"}
    command = ["forecast", "--data", str(path), "--out", str(tmp_path / "out")]
    refused = CliRunner().invoke(app, command)
    assert refused.exit_code and f"--until {now}" in str(refused.exception)


def test_the_command_that_is_shown_reads_the_same(
    client: TestClient, desk: PageSession, tmp_path: Path
) -> None:
    office = office_csv(tmp_path / "Fälle im Bezirk.csv")
    client.post("/api/file?name=F%C3%A4lle im Bezirk.csv", content=office.read_bytes())
    client.post("/api/answer", json={"below": "left out"})
    command = client.post("/api/answer", json={"thousands": "."}).json()["file"]["command"]
    words = shlex.split(command)
    assert words[:4] == ["epifed", "forecast", "--data", "Fälle im Bezirk.csv"]
    out = tmp_path / "clean.csv"
    done = CliRunner().invoke(app, ["data", "convert", str(office), *words[4:], "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert desk.file is not None and desk.file.tidy is not None
    assert pl.read_csv(out)["cases"].sum() == desk.file.tidy.frame["cases"].sum()


def test_what_cannot_be_read_is_a_sentence_with_the_name_of_the_file(client: TestClient) -> None:
    for name, content in {
        "x.pdf": b"%PDF-1.7",
        "y.csv": b"\x00\x01",
        "z.xlsx": b"PK\x03\x04..",
    }.items():
        answer = client.post(f"/api/file?name={name}", content=content).json()
        problem = answer.get("problem") or answer["file"]["problem"]
        assert problem.startswith(f"{name}: "), answer
    empty = client.post("/api/file?name=e.csv", content=b"")
    assert empty.status_code == 422 and empty.json()["problem"].startswith("e.csv: found an empty")
    assert client.post("/api/answer", content=b"[1").status_code == 422


def test_a_forecast_has_intervals_a_track_record_and_files_to_take_along(
    client: TestClient, desk: PageSession, tmp_path: Path
) -> None:
    text = plain_csv(tmp_path / "p.csv").read_text().replace("Nordkreis", "=1+1")
    assert client.post("/api/forecast").status_code == 422
    assert client.get("/api/take/csv").status_code == 404
    client.post("/api/file?name=p.csv", content=text.encode())
    made = client.post("/api/forecast", json={}).json()["forecast"]
    assert made["origin"] == str(FIRST + timedelta(days=119)) and len(made["dates"]) == 4
    for week in (*made["total"], *made["values"][0]):
        assert week == sorted(week) and week[0] >= 0
    assert made["track"][0]["origins"] >= made["least_origins"]
    lost = made["track"][0]["relative_mae"] >= 1
    assert not lost or made["method"] == "persistence"
    taken = {kind: client.get(f"/api/take/{kind}") for kind in ("csv", "xlsx", "html")}
    for kind, answer in taken.items():
        assert f"epifed-forecast-{made['origin']}.{kind}" in answer.headers["content-disposition"]
    page = taken["html"].text
    assert "Südkreis" in page and str(desk.folder) not in page and "/tmp" not in page
    table = pl.read_csv(io.BytesIO(taken["csv"].content))
    assert set(table["region"]) == {"'=1+1", "Südkreis", "Westkreis", "total"}
    with zipfile.ZipFile(io.BytesIO(taken["xlsx"].content)) as archive:
        sheets = [archive.read(n) for n in archive.namelist() if n.startswith("xl/worksheets/")]
    assert sheets and all(b"<f>" not in sheet for sheet in sheets)
    shorter = client.post("/api/forecast", json={"incomplete_days": 3}).json()["forecast"]
    assert shorter["origin"] == str(FIRST + timedelta(days=116))
    alone = client.post("/api/forecast", json={"region": "Westkreis"}).json()["forecast"]
    assert (alone["region"], len(alone["values"]), alone["incomplete_days"]) == ("Westkreis", 1, 3)
    client.post("/api/answer", json={"cadence": "day"})
    assert desk.forecast is None and not (desk.folder / "take").exists()


def test_incomplete_days_are_found_by_the_files_own_past(
    client: TestClient, tmp_path: Path
) -> None:
    path = plain_csv(tmp_path / "late.csv")
    lines = path.read_text().splitlines()
    late = {str(FIRST + timedelta(days=day)) for day in (117, 118, 119)}
    for i, line in enumerate(lines):
        day, _, rest = line.partition(",")
        if day in late:
            name, n = rest.split(",")
            lines[i] = f"{day},{name},{int(n) // 5}"
    state = client.post("/api/file?name=late.csv", content="\n".join(lines).encode()).json()
    assert state["check"]["incomplete_days"] == 3
    made = client.post("/api/forecast", json={}).json()["forecast"]
    assert made["incomplete_days"] == 3
    all_days = client.post("/api/forecast", json={"incomplete_days": 0}).json()["forecast"]
    assert (all_days["incomplete_days"], all_days["incomplete_days_found"]) == (0, 3)


@pytest.mark.field
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_page_ends_with_the_terminal_and_leaves_no_file(
    tmp_path: Path, ending: signal.Signals
) -> None:
    path = plain_csv(tmp_path / "cases.csv")
    place = tmp_path / "tmp"
    place.mkdir()
    command = [sys.executable, "-m", "epifed", "open", str(path), "--no-browser"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=os.environ | {"TMPDIR": str(place)}
    ) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        assert re.search(r"http://127\.0\.0\.1:\d+/\?token=\S{43}$", said.strip())
        process.stdout.readline()
        (folder,) = place.glob("epifed-open-*")
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        process.send_signal(ending)
        process.wait(timeout=GUARD)
    assert list(place.iterdir()) == []
    assert path.exists()


def test_a_killed_page_leaves_its_files_to_the_next_one_to_delete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    holds = "from epifed.app.session import private_folder\nwith private_folder() as f:"
    script = f"{holds}\n (f / 'cases.csv').touch(); print(f, flush=True); input()"
    command = [sys.executable, "-c", script]
    pages = [
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=os.environ | {"TMPDIR": str(tmp_path)},
        )
        for _ in range(2)
    ]  # fmt: skip
    killed, running = (Path(page.stdout.readline().strip()) for page in pages if page.stdout)
    pages[0].kill()
    pages[0].wait(timeout=GUARD)
    for folder in (killed, running):
        os.utime(folder / session.LOCK, (0, 0))
    with session.private_folder() as own:
        assert not killed.exists() and (running / "cases.csv").exists() and own.is_dir()
    assert not own.exists()
    pages[1].communicate("\n", timeout=GUARD)
    assert list(tmp_path.iterdir()) == []


def test_a_mistake_is_one_sentence() -> None:
    done = CliRunner().invoke(app, ["open", "nowhere.csv", "--no-browser"])
    assert done.exit_code != 0 and "nowhere.csv: no such file" in str(done.exception)
    done = CliRunner().invoke(app, ["open", "--kit", "nowhere", "--no-browser"])
    assert done.exit_code != 0 and "expected a site's kit" in str(done.exception)


def test_the_page_needs_nothing_of_the_other_extras() -> None:
    others = ("cryptography", "nvflare", "psutil", "opendp", "fastapi", "prometheus_client", "dask")
    blocked = f"import sys\nsys.modules.update(dict.fromkeys({others}))"
    code = f"{blocked}\nimport epifed.app.server, epifed.app.session"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_kinds_parts_and_rolling_sums_are_questions_of_their_own(tmp_path: Path) -> None:
    days = [date(2024, 1, 1) + timedelta(i) for i in range(60)]
    rng = np.random.default_rng(1)
    new = {day: rng.poisson(30) for day in days}
    path = tmp_path / "list.csv"
    rows = [f"{day};Harz;{'RSV' if i % 3 else 'Grippe'}" for day in days for i in range(new[day])]
    path.write_text("\n".join(["Meldedatum;Kreis;Erreger", *rows]))
    found = read_file(path, path.name, {})
    assert asked(found) == "only" and found.question is not None
    assert found.question.column == "Erreger"
    assert options_of(found) == [
        {"only": "Erreger=RSV"}, {"only": "Erreger=Grippe"}, {"duplicates": "sum"}
    ]  # fmt: skip
    assert read_file(path, path.name, {"duplicates": "sum"}).panel is not None
    path.write_text("\n".join(["Datum;Kreis;männlich;weiblich", *(
        f"{day};Harz;{n};{n + 1}" for day, n in new.items())]))  # fmt: skip
    found = read_file(path, path.name, {})
    assert options_of(found)[0] == {"cases": "männlich+weiblich"}
    both = read_file(path, path.name, options_of(found)[0])
    assert both.panel is not None and both.panel.counts.sum() == sum(new.values()) * 2 + 60
    assert both.to_dict()["roles"]["cases"] == "männlich+weiblich"
    assert "--column-cases männlich+weiblich" in both.command()
    sums = [sum(new[day] for day in days[max(0, i - 6) : i + 1]) for i in range(60)]
    path.write_text("\n".join(["Datum;Kreis;Fälle in 7 Tagen", *(
        f"{day};Harz;{n}" for day, n in zip(days, sums, strict=True))]))  # fmt: skip
    found = read_file(path, path.name, {})
    assert asked(found) == "rolling" and options_of(found) == [{"counts": "new"}]


def test_a_file_without_a_case_has_no_forecast(client: TestClient) -> None:
    lines = [f"{date(2024, 1, 1) + timedelta(i)},Harz,0" for i in range(60)]
    sent = "\n".join(["date,region,cases", *lines]).encode()
    assert client.post("/api/file?name=none.csv", content=sent).status_code == 200
    refused = client.post("/api/forecast", content=b"{}")
    assert refused.status_code == 422 and "found no case at all" in refused.json()["problem"]
