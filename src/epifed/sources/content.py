"""What a file holds, whatever it is wrapped in: text, parquet or Excel, from disk or a pipe."""

import codecs
import gzip
import hashlib
import io
import sys
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import BinaryIO, Literal

from epifed.errors import EpifedError
from epifed.reading import Assumptions, UnsaidError, listed, short

STDIN = "-"
LONGEST_PATH = 150
"""Characters of a path that a sentence repeats."""
MOST_BYTES = 4 << 30
"""What a compressed file may grow to."""
Kind = Literal["text", "parquet", "excel"]

_BOMS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_UTF8 = {"utf-8", "utf8", "utf_8", "utf-8-sig"}
_OLD_EXCEL = b"\xd0\xcf\x11\xe0"
_OTHERS = {
    b"BZh": "bzip2", b"\xfd7zX": "xz", b"7z\xbc\xaf": "7z", b"\x28\xb5\x2f\xfd": "zstd",
    b"%PDF": "PDF", b"<htm": "HTML", b"<!DO": "HTML", b"<HTM": "HTML",
}  # fmt: skip
"""How files begin that are no table."""


@dataclass(frozen=True)
class Content:
    """The bytes of a file, unwrapped; a plain file stays where it is, to be scanned."""

    where: str
    kind: Kind
    data: Path | bytes
    found: dict[str, str]
    """What was recognised on the way: compression, member of a zip, encoding."""

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """The bytes as a file."""
        if isinstance(self.data, bytes):
            yield io.BytesIO(self.data)
            return
        try:
            with self.data.open("rb") as file:
                yield file
        except OSError as error:
            raise unreadable(self.where, error) from None

    def read(self) -> bytes:
        """All bytes."""
        with self.open() as file:
            return file.read()


def unreadable(where: str, error: OSError) -> EpifedError:
    """What the operating system said about a file."""
    return EpifedError(f"{where}: cannot be read: {error.strerror or 'broken'}")


def existing(path: Path) -> Path:
    """The path, if there is something to read."""
    if str(path) == STDIN:
        return path
    try:
        if not path.exists():
            raise EpifedError(f"{path}: no such file or directory")
        if path.is_file() and path.stat().st_size == 0:
            raise EpifedError(f"{path}: found an empty file; expected case counts")
    except OSError as error:
        raise unreadable(short(path, LONGEST_PATH), error) from None
    return path


def open_content(path: Path, said: Assumptions | None = None) -> Content:
    """The content of a file, or of standard input where the path is `-`."""
    said = said or Assumptions()
    where = "standard input" if str(path) == STDIN else short(existing(path), LONGEST_PATH)
    data = path if path.is_file() and str(path) != STDIN else _piped(where, path)
    plain = Content(where, "text", data, {})
    unwrapped = _unwrapped(plain, said)
    return _as_utf8(unwrapped, said) if unwrapped.kind == "text" else unwrapped


@cache
def _piped(where: str, path: Path) -> bytes:
    """What came through a pipe, which can be read once only."""
    try:
        data = sys.stdin.buffer.read() if str(path) == STDIN else path.read_bytes()
    except OSError as error:
        raise unreadable(where, error) from None
    if not data:
        raise EpifedError(f"{where}: found nothing; expected case counts")
    return data


def source_digest(path: Path) -> str:
    """The SHA-256 of a file as it is, or of what came through a pipe."""
    data = path if path.is_file() else _piped("standard input", path)
    sha = hashlib.sha256()
    with Content(str(path), "text", data, {}).open() as file:
        while block := file.read(1 << 20):
            sha.update(block)
    return sha.hexdigest()


def _unwrapped(content: Content, said: Assumptions) -> Content:
    with content.open() as file:
        head = file.read(4)
    if content.found and head[:2] in (b"\x1f\x8b", b"PK"):
        raise EpifedError(f"{content.where}: found a compressed file within another; expected one")
    if head[:2] == b"\x1f\x8b":
        data = _gunzipped(content)
        return _unwrapped(replace(content, data=data, found={"compression": "gzip"}), said)
    if head == b"PK\x03\x04":
        return _unzipped(content, said)
    if head == _OLD_EXCEL:
        return replace(content, kind="excel")
    for mark, name in _OTHERS.items():
        if head.startswith(mark):
            raise EpifedError(
                f"{content.where}: found a {name} file; expected CSV, Excel or parquet, plain, "
                "gzip or zip"
            )
    return replace(content, kind="parquet" if head == b"PAR1" else "text")


def _gunzipped(content: Content) -> bytes:
    try:
        with content.open() as file, gzip.open(file) as unzipped:
            return _limited(content.where, unzipped.read(MOST_BYTES + 1))
    except (OSError, EOFError, zlib.error):
        raise EpifedError(f"{content.where}: found a damaged gzip file") from None


def _unzipped(content: Content, said: Assumptions) -> Content:
    try:
        with content.open() as file, zipfile.ZipFile(file) as archive:
            names = [one.filename for one in archive.infolist() if not one.is_dir()]
            if "[Content_Types].xml" in names or {"mimetype", "content.xml"} <= set(names):
                return replace(content, kind="excel")
            data_files = [n for n in names if not n.rpartition("/")[2].startswith((".", "_"))]
            if said.member is None and len(data_files) > 1:
                raise UnsaidError(
                    f"{content.where}: found {len(data_files)} files in the zip "
                    f"({listed(data_files)}); expected one",
                    {"member": data_files[0]},
                )
            member = said.member or (data_files[0] if data_files else "")
            if member not in names:
                raise EpifedError(
                    f"{content.where}: found no file '{short(member)}' in the zip; expected one "
                    f"of {listed(names) or 'none'}"
                )
            with archive.open(member) as unzipped:
                data = _limited(content.where, unzipped.read(MOST_BYTES + 1))
    except (OSError, EOFError, zlib.error, zipfile.BadZipFile, RuntimeError, ValueError):
        raise EpifedError(f"{content.where}: found a damaged or locked zip file") from None
    except NotImplementedError:
        raise EpifedError(f"{content.where}: found a zip of an unknown method") from None
    inner = replace(content, data=data, found={"compression": "zip", "member": member})
    return _unwrapped(inner, said)


def _limited(where: str, data: bytes) -> bytes:
    if len(data) > MOST_BYTES:
        raise EpifedError(f"{where}: found more than {MOST_BYTES >> 30} GB when decompressed")
    if not data:
        raise EpifedError(f"{where}: found an empty file; expected case counts")
    return data


def _as_utf8(content: Content, said: Assumptions) -> Content:
    """Text as UTF-8: as it is where it is so, else decoded by what was said or marked."""
    with content.open() as file:
        head = file.read(1024)
    marked = next((name for mark, name in _BOMS.items() if head.startswith(mark)), None)
    encoding = said.encoding or marked
    if encoding is None and len(head) > 3 and head.count(0) > len(head) // 4:
        little = head[1::2].count(0) > head[::2].count(0)
        raise UnsaidError(
            f"{content.where}: found text that looks like UTF-16 without its mark",
            {"encoding": "utf-16-le" if little else "utf-16-be"},
        )
    if encoding is None and b"\r" in head and b"\n" not in head:
        lines = content.read().replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return replace(content, data=lines, found=content.found | {"encoding": "utf-8"})
    if encoding is None or encoding.lower() in _UTF8:
        return replace(content, found=content.found | {"encoding": "utf-8"})
    try:
        codecs.lookup(encoding)
        text = content.read().decode(encoding)
    except LookupError:
        raise EpifedError(
            f"encoding: found '{short(encoding)}'; expected a name such as utf-8, latin-1, cp1252"
        ) from None
    except ValueError:
        raise EpifedError(
            f"{content.where}: found bytes that are not {short(encoding)}; expected text in it"
        ) from None
    data = text.removeprefix("\ufeff").encode("utf-8", errors="replace")
    return replace(content, data=data, found=content.found | {"encoding": encoding})
