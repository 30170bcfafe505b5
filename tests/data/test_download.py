"""Downloads against a server of our own that breaks in the ways servers break."""

import hashlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from typer.testing import CliRunner

from epifed.cli.data import app
from epifed.data.readers import download as fetching
from epifed.data.readers import read_rki
from epifed.data.readers.download import ATTEMPTS, fetch, record_of
from epifed.data.readers.formats import COLUMNS
from epifed.errors import EpifedError
from epifed.files import cache_root
from tests.waiting import GUARD

ROW = "1001,A15-A34,M,2020-10-28,2020-10-26,1,0,-9,0,2,0,2\n"
CONTENT = (",".join(COLUMNS) + "\n" + ROW * 2000).encode()
NAME = "Aktuell_Deutschland_SarsCov2_Infektionen.csv"


@dataclass
class Site:
    """What the server holds, how it misbehaves, and what it was asked for."""

    content: bytes = CONTENT
    etag: str | None = '"v1"'
    last_modified: str | None = None
    statuses: list[int] = field(default_factory=list)
    cuts: list[int] = field(default_factory=list)
    """Bytes after which the next answers break off."""
    ranges: bool = True
    honours_if_range: bool = True
    chunked: bool = False
    encoding: str | None = None
    asked: list[tuple[str | None, str | None]] = field(default_factory=list)
    url: str = ""


def handler(site: Site) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            wanted, condition = self.headers.get("Range"), self.headers.get("If-Range")
            site.asked.append((wanted, condition))
            if site.statuses:
                self.send_error(site.statuses.pop(0))
                return
            start = 0
            current = not site.honours_if_range or condition in (site.etag, site.last_modified)
            if wanted and site.ranges and current:
                start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start and start >= len(site.content):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(site.content)}")
                self.describe()
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            body = site.content[start:]
            self.send_response(206 if start else 200)
            if start:
                last = len(site.content) - 1
                self.send_header("Content-Range", f"bytes {start}-{last}/{len(site.content)}")
            self.describe()
            if not site.chunked:
                self.send_header("Content-Length", str(len(body)))
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(body[: site.cuts.pop(0)] if site.cuts else body)
            self.close_connection = True

        def describe(self) -> None:
            headers = {
                "ETag": site.etag,
                "Last-Modified": site.last_modified,
                "Content-Encoding": site.encoding,
            }
            for name, value in headers.items():
                if value is not None:
                    self.send_header(name, value)

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    site = Site()
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler(site))
    site.url = f"http://127.0.0.1:{server.server_port}/main/{NAME}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield site
    server.shutdown()
    server.server_close()
    thread.join()


def get(site: Site, cache: Path, *, refresh: bool = False) -> Path:
    return fetch(site.url, cache, refresh=refresh, timeout=GUARD, pause=0)


def part_of(cache: Path) -> Path:
    return cache / f"{NAME}.part"


def leftovers(cache: Path) -> set[str]:
    return {path.name for path in cache.iterdir()} - {NAME, f"{NAME}.json"}


def test_a_download_is_whole_recorded_and_readable(site: Site, tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    path = fetch(site.url, tmp_path / "a" / "b", lambda done, total: seen.append((done, total)))
    assert path.name == NAME
    assert path.read_bytes() == CONTENT
    assert not leftovers(path.parent)
    assert seen[0] == (0, len(CONTENT))
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    record = json.loads((path.parent / f"{NAME}.json").read_text())
    assert record["url"] == site.url
    assert record["sha256"] == hashlib.sha256(CONTENT).hexdigest()
    assert record["bytes"] == len(CONTENT)
    assert record["etag"] == '"v1"'
    assert record["retrieved"].endswith("+00:00")
    assert read_rki(path).counts.tolist() == [[4000]]


def test_the_second_call_asks_nobody(site: Site, tmp_path: Path) -> None:
    first = get(site, tmp_path)
    assert get(site, tmp_path) == first
    assert len(site.asked) == 1


def test_refresh_gets_it_again(site: Site, tmp_path: Path) -> None:
    get(site, tmp_path)
    site.content, site.etag = CONTENT + ROW.encode(), '"v2"'
    assert get(site, tmp_path).read_bytes() == CONTENT
    path = get(site, tmp_path, refresh=True)
    assert path.read_bytes() == site.content
    record = record_of(path)
    assert record is not None
    assert record.etag == '"v2"'


def test_a_failed_refresh_keeps_what_there_was(site: Site, tmp_path: Path) -> None:
    path = get(site, tmp_path)
    site.statuses = [404]
    with pytest.raises(EpifedError):
        get(site, tmp_path, refresh=True)
    assert path.read_bytes() == CONTENT
    assert get(site, tmp_path) == path


def test_another_address_is_another_file(site: Site, tmp_path: Path) -> None:
    get(site, tmp_path)
    site.content = CONTENT + ROW.encode()
    path = fetch(site.url.replace("/main/", "/other/"), tmp_path)
    assert path.read_bytes() == site.content


@pytest.mark.parametrize("damage", [b"", CONTENT[:-1], CONTENT.replace(b"A15", b"A16", 1)])
def test_a_damaged_cache_is_replaced(site: Site, tmp_path: Path, damage: bytes) -> None:
    path = get(site, tmp_path)
    path.write_bytes(damage)
    assert get(site, tmp_path).read_bytes() == CONTENT
    assert len(site.asked) == 2


@pytest.mark.parametrize("record", ["", "[]", "{}", '{"url": 1}'])
def test_a_damaged_record_is_replaced(site: Site, tmp_path: Path, record: str) -> None:
    path = get(site, tmp_path)
    (tmp_path / f"{NAME}.json").write_text(record)
    get(site, tmp_path)
    assert record_of(path) is not None
    assert len(site.asked) == 2


@pytest.mark.parametrize(
    ("etag", "modified", "validator"),
    [
        ('"v1"', None, '"v1"'),
        (None, "Thu, 12 Nov 2020 02:00:00 GMT", "Thu, 12 Nov 2020 02:00:00 GMT"),
        ('W/"v1"', "Thu, 12 Nov 2020 02:00:00 GMT", "Thu, 12 Nov 2020 02:00:00 GMT"),
    ],
)
def test_a_broken_transfer_is_resumed(
    site: Site, tmp_path: Path, etag: str | None, modified: str | None, validator: str
) -> None:
    site.etag, site.last_modified = etag, modified
    site.cuts = [30_000, 20_000]
    assert get(site, tmp_path).read_bytes() == CONTENT
    assert site.asked == [
        (None, None),
        ("bytes=30000-", validator),
        ("bytes=50000-", validator),
    ]
    assert not leftovers(tmp_path)


@pytest.mark.parametrize(("etag", "modified"), [(None, None), ('W/"v1"', None)])
def test_without_a_version_it_starts_over(
    site: Site, tmp_path: Path, etag: str | None, modified: str | None
) -> None:
    site.etag, site.last_modified = etag, modified
    site.cuts = [30_000]
    assert get(site, tmp_path).read_bytes() == CONTENT
    assert site.asked == [(None, None), (None, None)]


def test_a_transfer_that_keeps_breaking_is_kept_for_the_next_call(
    site: Site, tmp_path: Path
) -> None:
    site.cuts = [10_000] * ATTEMPTS
    with pytest.raises(EpifedError, match=r"broke off .*50,000 bytes are kept"):
        get(site, tmp_path)
    assert part_of(tmp_path).read_bytes() == CONTENT[: 10_000 * ATTEMPTS]
    assert not (tmp_path / NAME).exists()
    site.asked.clear()
    assert get(site, tmp_path).read_bytes() == CONTENT
    assert site.asked == [("bytes=50000-", '"v1"')]


def test_a_server_without_ranges_starts_over(site: Site, tmp_path: Path) -> None:
    site.ranges, site.cuts = False, [30_000]
    assert get(site, tmp_path).read_bytes() == CONTENT
    assert site.asked[1][0] == "bytes=30000-"


@pytest.mark.parametrize("honours", [True, False])
def test_a_changed_file_is_not_glued_to_the_old_half(
    site: Site, tmp_path: Path, honours: bool
) -> None:
    site.cuts = [30_000] * ATTEMPTS
    site.ranges = False
    with pytest.raises(EpifedError):
        get(site, tmp_path)
    site.ranges, site.honours_if_range = True, honours
    site.content, site.etag = CONTENT.replace(b"A15-A34", b"A35-A59"), '"v2"'
    assert get(site, tmp_path).read_bytes() == site.content


def test_a_part_of_another_address_is_not_resumed(site: Site, tmp_path: Path) -> None:
    part_of(tmp_path).write_bytes(b"other")
    sidecar = {"url": "http://elsewhere/x", "etag": '"v1"', "last_modified": None}
    (tmp_path / f"{NAME}.part.json").write_text(json.dumps(sidecar))
    assert get(site, tmp_path).read_bytes() == CONTENT
    assert site.asked == [(None, None)]


@pytest.mark.parametrize("sidecar", [None, "", "[]", "{"])
def test_a_part_without_its_version_is_not_resumed(
    site: Site, tmp_path: Path, sidecar: str | None
) -> None:
    part_of(tmp_path).write_bytes(CONTENT[:100])
    if sidecar is not None:
        (tmp_path / f"{NAME}.part.json").write_text(sidecar)
    assert get(site, tmp_path).read_bytes() == CONTENT
    assert site.asked == [(None, None)]


@pytest.mark.parametrize("extra", [b"", b"too long"])
def test_a_part_that_was_complete(site: Site, tmp_path: Path, extra: bytes) -> None:
    part_of(tmp_path).write_bytes(CONTENT + extra)
    sidecar = {"url": site.url, "etag": '"v1"', "last_modified": None}
    (tmp_path / f"{NAME}.part.json").write_text(json.dumps(sidecar))
    assert get(site, tmp_path).read_bytes() == CONTENT
    assert len(site.asked) == (2 if extra else 1)


def test_without_a_length_the_end_of_the_transfer_is_the_end(site: Site, tmp_path: Path) -> None:
    site.chunked = True
    assert get(site, tmp_path).read_bytes() == CONTENT


@pytest.mark.parametrize("status", [404, 403, 410])
def test_a_missing_file_is_one_sentence(site: Site, tmp_path: Path, status: int) -> None:
    site.statuses = [status]
    with pytest.raises(EpifedError, match=f"the server answered {status} .*; expected a file"):
        get(site, tmp_path)
    assert len(site.asked) == 1
    assert not leftovers(tmp_path)


def test_a_server_error_is_tried_again(site: Site, tmp_path: Path) -> None:
    site.statuses = [500, 503]
    assert get(site, tmp_path).read_bytes() == CONTENT
    site.statuses = [500] * ATTEMPTS
    with pytest.raises(EpifedError, match=f"answered 500 Internal Server Error, {ATTEMPTS} times"):
        get(site, tmp_path, refresh=True)


@pytest.mark.parametrize(
    "content", [b"<!DOCTYPE html>\n<html>", b"version https://git-lfs.github.com/spec/v1\n", b""]
)
def test_something_else_is_refused_and_not_kept(site: Site, tmp_path: Path, content: bytes) -> None:
    site.content = content
    begins = content.decode().split("\n")[0]
    with pytest.raises(EpifedError, match=f"begins with '{begins}'; expected a CSV with the colu"):
        get(site, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_compressed_answer_is_refused(site: Site, tmp_path: Path) -> None:
    site.encoding = "gzip"
    with pytest.raises(EpifedError, match="found the encoding gzip"):
        get(site, tmp_path)


def test_nobody_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with pytest.raises(EpifedError, match="cannot be reached: Connection refused"):
        fetch(f"http://127.0.0.1:1/{NAME}", tmp_path)


@pytest.mark.parametrize("url", ["", NAME, "ftp://host/a.csv", "http://host/", "http://[::1"])
def test_not_an_address(tmp_path: Path, url: str) -> None:
    with pytest.raises(EpifedError, match=r"expected http\(s\)://"):
        fetch(url, tmp_path)


def test_a_cache_that_cannot_be(site: Site, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EpifedError, match="cannot be used"):
        get(site, tmp_path / "file")


def test_the_command(site: Site, tmp_path: Path) -> None:
    settings = {"EPIFED_RKI_URL": site.url, "EPIFED_CACHE": str(tmp_path)}
    runner = CliRunner(env=settings)
    printed = json.loads(runner.invoke(app, ["fetch", "rki", "--json"]).stdout)
    assert Path(printed["path"]).read_bytes() == CONTENT
    assert printed["sha256"] == hashlib.sha256(CONTENT).hexdigest()
    again = runner.invoke(app, ["fetch", "rki", "--refresh"])
    assert again.stdout.startswith(f"{tmp_path / NAME}\n")
    assert f"url: {site.url}" in again.stdout
    assert len(site.asked) == 2


def test_cache_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("EPIFED_CACHE", str(tmp_path))
    assert cache_root() == tmp_path
    monkeypatch.delenv("EPIFED_CACHE")
    assert cache_root().name == "epifed"
    assert fetching.RKI_URL.endswith(NAME)
