"""What the tests of reading share: small tables, and what is offered for them."""

from datetime import date, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from epifed.data.readers import load_panel
from epifed.data.readers.tables import AmbiguousTableError, option_of

DAYS = [date(2021, 3, 1) + timedelta(days=i) for i in range(28)]


def csv(tmp_path: Path, text: str | bytes, name: str = "a.csv") -> Path:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def table(values: list[Any], region: str = "a", days: list[Any] | None = None) -> str:
    lines = [f"{day},{region},{value}" for day, value in zip(days or DAYS, values, strict=False)]
    return "\n".join(["date,region,cases", *lines]) + "\n"


def choices(source: Path | pl.DataFrame, **options: Any) -> tuple[dict[str, Any], ...]:
    with pytest.raises(AmbiguousTableError) as refused:
        load_panel(source, **options)
    for choice in refused.value.choices:
        for name in choice:
            assert option_of(name) in str(refused.value)
    return tuple(dict(choice) for choice in refused.value.choices)


WAVE = [12, 7, 9, 30, 4, 2, 11] * 4
