"""Damaged files of every kind are read or refused in one short sentence, never anything else.

`EPIFED_FUZZ=10000` sets how many; the default is small.
"""

import os
from pathlib import Path
from random import Random
from typing import Any

import pytest

from epifed.errors import EpifedError
from epifed.sources import load_panel, load_table, to_panel
from tests import offices
from tests.test_reading_offices import TEXTS, following

FILES = int(os.environ.get("EPIFED_FUZZ", "300"))
LONGEST = 500
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


def test_damaged_files_are_read_or_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = Random(20201101)
    kinds = {name: make() for name, make in offices.FILES.items()}
    right = dict(RIGHT)
    small = [(rows, encoding) for rows, encoding, _ in TEXTS.values() if len(rows) < 1_000]
    for number, (rows, encoding) in enumerate(small):
        kinds[name := f"office{number}.csv"] = "\r\n".join(rows).encode(encoding)
        Path(name).write_bytes(kinds[name])
        right[name] = following(Path(name))[1]
    others = list(kinds.values())
    outcomes = {"read": 0, "refused": 0}
    for number in range(FILES):
        name = rng.choice(list(kinds))
        path = Path(name)
        content = mutated(kinds[name], rng, others)
        path.write_bytes(content)
        options = dict(right.get(name, {})) if rng.random() < 0.9 else {}
        if rng.random() < 0.3:
            for option in rng.sample(list(ANY), rng.choice([1, 2, 3])):
                options[option] = rng.choice(ANY[option])
        try:
            table = load_table(path, **options)
            load_panel(path, **options) if table is None else to_panel(table)
            outcomes["read"] += 1
        except EpifedError as error:
            assert 0 < len(str(error)) <= LONGEST, f"file {number}, {name}, {options}: {error}"
            outcomes["refused"] += 1
        except BaseException as error:
            kept = Path("broken").absolute()
            kept.write_bytes(content)
            raise AssertionError(f"file {number}, {name}, {options}: {error!r} ({kept})") from error
    assert min(outcomes.values()) > FILES // 20, outcomes
