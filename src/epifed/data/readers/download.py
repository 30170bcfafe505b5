"""Download the RKI line list once, complete and verified, with a record of its origin.

An interrupted download stays as `NAME.part`. The next call resumes it, but only if the server
confirms that the file is unchanged. The finished file gets its name last.
"""

import hashlib
import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import httpx

from epifed.data.readers.formats import COLUMNS
from epifed.errors import EpifedError
from epifed.files import cache_root, write_text

RKI_URL = (
    "https://media.githubusercontent.com/media/robert-koch-institut/"
    "SARS-CoV-2-Infektionen_in_Deutschland/main/Aktuell_Deutschland_SarsCov2_Infektionen.csv"
)
ATTEMPTS = 5
Progress = Callable[[int, int | None], None]
"""Called with the bytes received and the total, or None if the server does not give it."""

_PASSING = {408, 425, 429, 500, 502, 503, 504}


@dataclass(frozen=True)
class Record:
    """A file's origin, when it was retrieved, and the hash and size that it must have."""

    url: str
    retrieved: str
    sha256: str
    bytes: int
    etag: str | None
    last_modified: str | None


class _PassingError(Exception):
    """A failure that may pass, so that the download is tried again."""


def fetch(
    url: str = RKI_URL,
    cache_dir: Path | str | None = None,
    on_progress: Progress = lambda done, total: None,
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
    part = target.with_name(target.name + ".part")
    try:
        record = record_of(target)
        if record and record.url == url and not refresh and _is(target, record.sha256):
            return target
        directory.mkdir(parents=True, exist_ok=True)
        _download(url, part, on_progress, timeout=timeout, pause=pause)
        with part.open("rb") as file:
            first = file.readline(1 << 16).decode("utf-8-sig", errors="replace").strip()
        if missing := [name for name in header if name not in first.split(",")]:
            _discard(part)
            raise EpifedError(
                f"{url}: found a file that begins with '{first[:60]}'; "
                f"expected a CSV with the column {missing[0]}"
            )
        now, size = datetime.now(UTC).isoformat(timespec="seconds"), part.stat().st_size
        record = Record(retrieved=now, sha256=_sha256(part), bytes=size, **_version_of(part, url))
        part.replace(target)
        write_text(_json(target), json.dumps(asdict(record), indent=2) + "\n")
        _discard(part)
    except OSError as error:
        raise EpifedError(f"{directory}: cannot be used: {error.strerror or error}") from None
    return target


def record_of(path: Path) -> Record | None:
    """The record beside a downloaded file; None if there is no readable one."""
    try:
        return Record(**json.loads(_json(path).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _download(url: str, part: Path, on_progress: Progress, *, timeout: float, pause: float) -> None:
    reason = ""
    with httpx.Client(follow_redirects=True, timeout=timeout) as client:
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(pause * 2 ** (attempt - 1))
            try:
                return _attempt(client, url, part, on_progress)
            except _PassingError as failure:
                reason = str(failure)
            except (httpx.ConnectError, httpx.ConnectTimeout) as failure:
                raise EpifedError(f"{url}: cannot be reached: {_why(failure)}") from None
            except (httpx.InvalidURL, httpx.UnsupportedProtocol) as failure:
                raise EpifedError(f"{url}: not a web address: {_why(failure)}") from None
            except httpx.TooManyRedirects:
                raise EpifedError(f"{url}: redirected in a circle") from None
            except httpx.TransportError as failure:
                reason = f"the transfer broke off ({_why(failure)})"
    size = part.stat().st_size if part.exists() else 0
    rest = f"; {size:,} bytes are kept, the next call resumes them" if size else ""
    raise EpifedError(f"{url}: {reason}, {ATTEMPTS} times{rest}")


def _attempt(client: httpx.Client, url: str, part: Path, on_progress: Progress) -> None:
    """Request the missing bytes and write them; the file is complete on return."""
    version = _version_of(part, url)
    done = part.stat().st_size if version and part.exists() else 0
    etag = version.get("etag")
    validator = version.get("last_modified") if not etag or etag.startswith("W/") else etag
    headers = {"Accept-Encoding": "identity"}
    if done and validator:
        headers |= {"Range": f"bytes={done}-", "If-Range": validator}
    with client.stream("GET", url, headers=headers) as response:
        status, given = response.status_code, response.headers
        offered = {
            "url": url,
            "etag": given.get("ETag"),
            "last_modified": given.get("Last-Modified"),
        }
        answer = f"the server answered {status} {response.reason_phrase}"
        total = int(given["Content-Length"]) if given.get("Content-Length", "").isdigit() else None
        if status in (httpx.codes.PARTIAL_CONTENT, httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE):
            span = re.fullmatch(r"bytes (?:(\d+)-\d+|\*)/(\d+)", given.get("Content-Range", ""))
            same = all(offered[key] in (None, version.get(key)) for key in offered)
            if not (span and same and int(span[1] or span[2]) == done):
                _discard(part)
                raise _PassingError("the server did not resume the same file")
            total = int(span[2])
        elif status in _PASSING:
            raise _PassingError(answer)
        elif status != httpx.codes.OK:
            raise EpifedError(f"{url}: {answer}; expected a file")
        elif (coding := given.get("Content-Encoding", "identity")) != "identity":
            raise EpifedError(f"{url}: found the encoding {coding}; expected a plain file")
        else:
            done = 0
            _json(part).write_text(json.dumps(offered), encoding="utf-8")
        with part.open("ab" if done else "wb") as file:
            on_progress(done, total)
            for block in response.iter_raw() if done != total else ():
                file.write(block)
                done += len(block)
                on_progress(done, total)
    if total is not None and done != total:
        if done > total:
            _discard(part)
        raise _PassingError(f"found {done:,} bytes where {total:,} were announced")


def _version_of(part: Path, url: str) -> dict[str, Any]:
    """The version of the file that a partial download is of; empty for another address."""
    try:
        version = json.loads(_json(part).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return version if isinstance(version, dict) and version.get("url") == url else {}


def _discard(part: Path) -> None:
    part.unlink(missing_ok=True)
    _json(part).unlink(missing_ok=True)


def _json(path: Path) -> Path:
    """The path of the record beside a file."""
    return path.with_name(path.name + ".json")


def _name(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    name = Path(unquote(parts.path)).name
    if parts.scheme not in {"http", "https"} or not parts.netloc or not name:
        raise EpifedError(f"url: found '{url}'; expected http(s)://… with a file name at its end")
    return name


def _is(path: Path, sha256: str) -> bool:
    return path.is_file() and _sha256(path) == sha256


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _why(error: Exception) -> str:
    return re.sub(r"^\[Errno -?\d+\] ", "", str(error)) or type(error).__name__
