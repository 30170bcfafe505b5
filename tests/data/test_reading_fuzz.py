"""Damaged files of every kind are read or refused in one short sentence, never anything else.

Some of them; `benchmarks/fuzz.py` reads ten thousand.
"""

from pathlib import Path

from tests.fuzzing import fuzz

FILES = 300


def test_damaged_files_are_read_or_refused(tmp_path: Path) -> None:
    outcome = fuzz(FILES, 20201101, tmp_path)
    assert outcome.broken == []
    read, refused = outcome.read.total(), outcome.refused.total()
    assert (read + refused, min(read, refused) > FILES // 20) == (FILES, True)
