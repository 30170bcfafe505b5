"""Damaged files of every kind, and what reading them ends in."""

import gzip
import io
import zipfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from epifed.data.readers import load_panel, load_table, to_panel
from epifed.errors import EpifedError
from tests import offices
from tests.data.test_reading_offices import TEXTS, following

LONGEST = 500
"""Characters of an error, at most."""
RIGHT: dict[str, dict[str, Any]] = {
    "faelle.csv": {
        "encoding": "latin-1",
        "date": "Datum",
        "region": "Landkreis",
        "cases": "Fälle",
        "thousands": ".",
    },
    "averages.csv": {"decimal": ","},
    "cases.xlsx": {"sheet": "Cases", "header_row": 3},
    "regions.csv": {"date": "day", "layout": "regions-across"},
    "cumulative.csv": {"counts": "cumulative"},
    "corrected.csv": {"negatives": "spread"},
    "ages.csv": {"duplicates": "sum"},
    "linelist.csv": {"line_list": True},
    "totals.csv": {"totals": "drop"},
    "hidden.csv": {"below": 4},
    "words.csv": {"missing": ["NA"]},
    "export.csv": {"id_width": 5},
    "weeks.csv": {"date": "week"},
}
ANY: dict[str, list[Any]] = {
    "encoding": ["utf-8", "utf-16", "latin-1", "cp1252", "utf-7", "rot13", "ü"],
    "delimiter": [",", ";", "tab", "|", "1", "ab", "-"],
    "decimal": [".", ","],
    "thousands": [".", ",", " ", "'"],
    "date_format": ["%d.%m.%Y", "%m/%d/%Y", "iso-week", "epiweek", "excel", "%", "%Q", "", "%H"],
    "layout": ["long", "days-across", "regions-across"],
    "duplicates": ["sum"],
    "totals": ["drop", "keep"],
    "counts": ["new", "cumulative"],
    "negatives": ["spread", "zero"],
    "cadence": ["day", "week"],
    "missing": [["NA"], ["", "0"]],
    "below": [0, 2.5],
    "id_width": [0, 5, 40],
    "header_row": [1, 2, 3, 50],
    "line_list": [True],
    "population": ["cases", "x"],
    "region": ["region", "date", "Region"],
    "sheet": ["Cases", "none"],
    "member": ["cases.csv", "none"],
    "only": [["cases=3"], ["region"], "date="],
    "fill_down": [True],
    "weeks_dated": ["first", "last"],
    "date": ["date+cases", "region+", "+"],
}
TOKENS = [
    b",", b";", b'"', b"\n", b"\r", b"\t", b"\x00", b"\xff", b"\xef\xbb\xbf", b"-", b"-1", b"1e308",
    b"1e400", b"nan", b"inf", b"<5", b"1.234", b"1,234", b"1.234,5", b"2020-02-30", b"31.12.1899",
    b"9999-12-31", b"03/04/2021", b"2020-W54", b"202053", b"Total", b"NA", b"\xe4", b"\xc3\xa4",
    b" ", b"\xe2\x80\xaf", b"date", b"cases", b"region", b"0" * 400, b"x" * 70_000, b"'",
    "٣".encode(), "−5".encode(), b"1_000", b"0x10", b"TRUE", b"#N/A", b"2020-11-01T00:00:00+01:00",
]  # fmt: skip


def mutated(content: bytes, rng: Random, others: list[bytes]) -> bytes:
    """A few of its bytes changed, taken away, doubled, or taken from elsewhere."""
    data = bytearray(content)
    for _ in range(rng.choice([1, 1, 1, 2, 8])):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(7)
        if kind == 0 and data:
            data[at % len(data)] = rng.randrange(256)
        elif kind == 1:
            data[at:at] = rng.choice(TOKENS)
        elif kind == 2:
            del data[at : at + rng.choice([1, 3, 40, 2_000])]
        elif kind == 3:
            data[at : at + rng.choice([1, 4, 10])] = rng.choice(TOKENS)
        elif kind == 4:
            data[at:at] = data[at : at + rng.choice([5, 60, 3_000])]
        elif kind == 5:
            other = rng.choice(others)
            start = rng.randrange(len(other))
            data[at:at] = other[start : start + rng.choice([10, 200])]
        else:
            lines = bytes(data).split(b"\n")
            i = rng.randrange(len(lines))
            cells = lines[i].split(rng.choice([b",", b";", b"\t"]))
            cells[rng.randrange(len(cells))] = rng.choice(TOKENS)
            lines[i] = b",".join(cells)
            data = bytearray(b"\n".join(lines))
    return bytes(data)


def mutated_within(content: bytes, rng: Random, others: list[bytes]) -> bytes:
    """The same of what a gzip, a zip or an Excel file holds, packed again."""
    if content[:2] == b"\x1f\x8b":
        return gzip.compress(mutated(gzip.decompress(content), rng, others), 1, mtime=0)
    if content[:2] != b"PK":
        return mutated(content, rng, others)
    packed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(packed, "w") as new:
        names = old.namelist()
        chosen = rng.choice([n for n in names if "sheet1" in n or "sharedStr" in n] or names)
        for name in names:
            inside = old.read(name)
            new.writestr(name, mutated(inside, rng, others) if name == chosen else inside)
    return packed.getvalue()


@dataclass
class Outcome:
    """What reading some files ended in."""

    read: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    """How many of each kind."""
    longest: int = 0
    """Characters of the longest error."""
    broken: list[str] = field(default_factory=list)
    """What ended in anything else; the files stay as `broken_NUMBER`."""


def kinds(folder: Path) -> tuple[dict[str, bytes], dict[str, dict[str, Any]]]:
    """Every kind of file, by its name, and the options that read it."""
    found = {name: make() for name, make in offices.FILES.items()}
    right = dict(RIGHT)
    small = [(rows, encoding) for rows, encoding, _ in TEXTS.values() if len(rows) < 1_000]
    for number, (rows, encoding) in enumerate(small):
        path = folder / f"office{number}.csv"
        found[path.name] = "\r\n".join(rows).encode(encoding)
        path.write_bytes(found[path.name])
        right[path.name] = following(path)[1]
    return found, right


def fuzz(files: int, seed: int, folder: Path) -> Outcome:
    """Damage so many files and read them, with the options that are right or with any."""
    rng, outcome = Random(seed), Outcome()
    found, right = kinds(folder)
    others = list(found.values())
    for number in range(files):
        name = rng.choice(list(found))
        content = rng.choice([mutated, mutated_within])(found[name], rng, others)
        path = folder / name
        path.write_bytes(content)
        options = dict(right.get(name, {})) if rng.random() < 0.9 else {}
        if rng.random() < 0.3:
            for option in rng.sample(list(ANY), rng.choice([1, 2, 3])):
                options[option] = rng.choice(ANY[option])
        wrong = ""
        try:
            table = load_table(path, **options)
            load_panel(path, **options) if table is None else to_panel(table)
            outcome.read[name] += 1
        except EpifedError as error:
            outcome.refused[name] += 1
            outcome.longest = max(outcome.longest, len(str(error)))
            wrong = "" if 0 < len(str(error)) <= LONGEST else str(error)
        except BaseException as error:
            wrong = repr(error)
        if wrong:
            kept = folder / f"broken_{seed}_{number}"
            kept.write_bytes(content)
            outcome.broken.append(f"{kept}: {name}, {options}: {wrong[:2000]}")
    return outcome
