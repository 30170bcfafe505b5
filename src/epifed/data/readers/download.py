"""Download the RKI line list once, whole and verified, and keep a record of where it is from.

A broken download stays as `NAME.part` and is resumed by the next call, but only if the server says
that the file is still the same one. The finished file gets its name at the very end.
"""

import contextlib
import hashlib
import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import unquote, urlsplit

import httpx

from epifed.data.readers.formats import COLUMNS
from epifed.errors import EpifedError
from epifed.files import cache_root

RKI_URL = (
    "https://media.githubusercontent.com/media/robert-koch-institut/"
    "SARS-CoV-2-Infektionen_in_Deutschland/main/Aktuell_Deutschland_SarsCov2_Infektionen.csv"
)
ATTEMPTS = 5
Progress = Callable[[int, int | None], None]
"""Called with the bytes there are and the bytes there will be, if the server said."""

_PASSING = {408, 425, 429, 500, 502, 503, 504}


@dataclass(frozen=True)
class Record:
    """Where a file is from, when it was retrieved, and what it must be."""

    url: str
    retrieved: str
    sha256: str
    bytes: int
    etag: str | None
    last_modified: str | None


class _PassingError(Exception):
    """A failure that another attempt may mend."""


def fetch(
    url: str = RKI_URL,
    cache_dir: Path | str | None = None,
    on_progress: Progress | None = None,
    *,
    refresh: bool = False,
    header: Sequence[str] = COLUMNS,
    timeout: float = 30.0,
    pause: float = 1.0,
) -> Path:
    """The file behind `url`, from the cache or downloaded into it.

    A cached file is used if its hash is the recorded one. `header` are the columns its first line
    must have; `pause` is the wait in seconds before the second attempt, doubled for each further.
    """
    directory = Path(cache_dir) if cache_dir is not None else cache_root()
    target = directory / _name(url)
    try:
        if not refresh and _is_whole(target, url):
            return target
        directory.mkdir(parents=True, exist_ok=True)
        part = _Part(target, url)
        _download(part, on_progress or _silent, timeout=timeout, pause=pause)
        part.check_header(header)
        part.finish()
    except OSError as error:
        raise EpifedError(f"{directory}: cannot be used: {error.strerror or error}") from None
    return target


def record_of(path: Path) -> Record | None:
    """The record kept beside a downloaded file, if there is a readable one."""
    try:
        return Record(**json.loads(_record_path(path).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


class _Part:
    """A download under way: `NAME.part`, and beside it which version of the file it is of."""

    def __init__(self, target: Path, url: str) -> None:
        self.target, self.url = target, url
        self.path = target.with_name(target.name + ".part")
        self.sidecar = target.with_name(target.name + ".part.json")
        self.version: dict[str, str | None] = {}
        with contextlib.suppress(OSError, ValueError):
            self.version = json.loads(self.sidecar.read_text(encoding="utf-8"))
        if not isinstance(self.version, dict) or self.version.get("url") != url:
            self.version = {}

    @property
    def size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    @property
    def validator(self) -> str | None:
        """What proves that the file has not changed; a weak ETag does not."""
        etag = self.version.get("etag")
        return etag if etag and not etag.startswith("W/") else self.version.get("last_modified")

    def is_of(self, response: httpx.Response) -> bool:
        found = _version(self.url, response)
        return all(found[key] in (None, self.version.get(key)) for key in found)

    def start_over(self, response: httpx.Response) -> None:
        self.discard()
        self.version = _version(self.url, response)
        self.sidecar.write_text(json.dumps(self.version), encoding="utf-8")
        self.path.touch()

    def discard(self) -> None:
        self.path.unlink(missing_ok=True)
        self.sidecar.unlink(missing_ok=True)
        self.version = {}

    def check_header(self, header: Sequence[str]) -> None:
        with self.path.open("rb") as file:
            first = file.readline(1 << 16).decode("utf-8-sig", errors="replace").strip()
        missing = [name for name in header if name not in first.split(",")]
        if missing:
            self.discard()
            raise EpifedError(
                f"{self.url}: found a file that begins with '{first[:60]}'; "
                f"expected a CSV with the column {missing[0]}"
            )

    def finish(self) -> None:
        record = Record(
            url=self.url,
            retrieved=datetime.now(UTC).isoformat(timespec="seconds"),
            sha256=_sha256(self.path),
            bytes=self.size,
            etag=self.version.get("etag"),
            last_modified=self.version.get("last_modified"),
        )
        written = _record_path(self.target).with_suffix(".tmp")
        written.write_text(json.dumps(asdict(record), indent=2) + "\n", encoding="utf-8")
        self.path.replace(self.target)
        written.replace(_record_path(self.target))
        self.sidecar.unlink(missing_ok=True)


def _download(part: _Part, on_progress: Progress, *, timeout: float, pause: float) -> None:
    reason = ""
    with httpx.Client(follow_redirects=True, timeout=timeout) as client:
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(pause * 2 ** (attempt - 1))
            try:
                return _attempt(client, part, on_progress)
            except _PassingError as failure:
                reason = str(failure)
            except (httpx.ConnectError, httpx.ConnectTimeout) as failure:
                raise EpifedError(f"{part.url}: cannot be reached: {_why(failure)}") from None
            except (httpx.InvalidURL, httpx.UnsupportedProtocol) as failure:
                raise EpifedError(f"{part.url}: not a web address: {_why(failure)}") from None
            except httpx.TooManyRedirects:
                raise EpifedError(f"{part.url}: redirected in a circle") from None
            except httpx.TransportError as failure:
                reason = f"the transfer broke off ({_why(failure)})"
    kept = f"; {part.size:,} bytes are kept, the next call resumes them" if part.size else ""
    raise EpifedError(f"{part.url}: {reason}, {ATTEMPTS} times{kept}")


def _attempt(client: httpx.Client, part: _Part, on_progress: Progress) -> None:
    """Ask for what is missing and write it; whole when this returns."""
    headers = {"Accept-Encoding": "identity"}
    if part.size and part.validator:
        headers |= {"Range": f"bytes={part.size}-", "If-Range": part.validator}
    with client.stream("GET", part.url, headers=headers) as response:
        total = _begin(part, response)
        if total is not None and part.size == total:
            return
        done = part.size
        with part.path.open("r+b" if done else "wb") as file:
            file.seek(done)
            on_progress(done, total)
            for block in response.iter_raw():
                file.write(block)
                done += len(block)
                on_progress(done, total)
    if total is not None and done != total:
        if done > total:
            part.discard()
        raise _PassingError(f"found {done:,} bytes where {total:,} were announced")


def _begin(part: _Part, response: httpx.Response) -> int | None:
    """Decide whether the answer continues the part or starts it over; returns the whole length."""
    status = response.status_code
    span = re.fullmatch(
        r"bytes (?:(\d+)-\d+|\*)/(\d+|\*)", response.headers.get("Content-Range", "")
    )
    length = int(span[2]) if span and span[2] != "*" else None
    if status == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
        if length == part.size and part.is_of(response):
            return length
        part.discard()
        raise _PassingError("the server refused to resume")
    if status == httpx.codes.PARTIAL_CONTENT:
        if span and span[1] == str(part.size) and part.is_of(response):
            return length
        part.discard()
        raise _PassingError("the server resumed another file")
    if status in _PASSING:
        raise _PassingError(f"the server answered {status} {response.reason_phrase}")
    if status != httpx.codes.OK:
        raise EpifedError(
            f"{part.url}: the server answered {status} {response.reason_phrase}; expected a file"
        )
    if (coding := response.headers.get("Content-Encoding", "identity")) != "identity":
        raise EpifedError(f"{part.url}: found the encoding {coding}; expected a plain file")
    part.start_over(response)
    announced = response.headers.get("Content-Length", "")
    return int(announced) if announced.isdigit() else None


def _version(url: str, response: httpx.Response) -> dict[str, str | None]:
    return {
        "url": url,
        "etag": response.headers.get("ETag"),
        "last_modified": response.headers.get("Last-Modified"),
    }


def _is_whole(target: Path, url: str) -> bool:
    record = record_of(target)
    return (
        record is not None
        and record.url == url
        and target.is_file()
        and target.stat().st_size == record.bytes
        and _sha256(target) == record.sha256
    )


def _name(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    name = Path(unquote(parts.path)).name
    if parts.scheme not in {"http", "https"} or not parts.netloc or not name:
        raise EpifedError(f"url: found '{url}'; expected http(s)://… with a file name at its end")
    return name


def _record_path(target: Path) -> Path:
    return target.with_name(target.name + ".json")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _why(error: Exception) -> str:
    return re.sub(r"^\[Errno -?\d+\] ", "", str(error)) or type(error).__name__


def _silent(done: int, total: int | None) -> None:
    """No progress."""
