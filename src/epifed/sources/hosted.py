"""The rows of a site's own clients: who has a bad one is left out, and nobody else notices.

Under differential privacy one client's rows must decide about its own vector alone. So each client
is read by itself here, where `load_panel` refuses a whole file for one bad value.
"""

import csv
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from epifed.errors import EpifedError
from epifed.panel import CasePanel
from epifed.sources import load_panel, read_tidy, recognise, refuse_unknown
from epifed.sources.table import existing, read_header, read_parquet, require
from epifed.sources.tidy import parse_cases


@dataclass(frozen=True)
class Hosted:
    """What a file has of the clients that were looked for."""

    panel: CasePanel | None
    """The clients whose rows are good; none if there is no such client."""
    left_out: dict[str, str]
    """The clients with a bad row, and what is wrong with it."""


def load_hosted(
    path: Path | str, clients: Collection[str], format: str | None = None, **options: Any
) -> Hosted:
    """The panel of these clients, without those whose rows are bad; other rows are not looked at.

    In a tidy CSV a line is a row, whatever quotation marks say. In other formats than tidy, a bad
    row is refused with its file, as by `load_panel`.
    """
    path = existing(Path(path))
    if path.is_dir() or (format or recognise(path)) != "tidy":
        whole = load_panel(path, format, **options)
        mine = [region for region in whole.regions if region in clients]
        return Hosted(whole.of(mine) if mine else None, {})
    refuse_unknown(options, read_tidy, "tidy", str(path))
    columns = {
        "day": options.get("date", "date"),
        "region": options.get("region", "region"),
        "cases": options.get("cases", "cases"),
    }
    left_out: dict[str, str] = {}
    if path.suffix.lower() in {".parquet", ".pq"}:
        frame = read_parquet(path, columns)
    else:
        frame = _read_lines(path, columns, clients, left_out)
    parts = []
    for client, rows in _by_client(frame, clients).items():
        try:
            parts.append(parse_cases(path, rows, columns).drop_nulls("cases"))
        except EpifedError as error:
            left_out.setdefault(client, str(error))
    long = [rows.select("day", "region", "cases") for rows in parts if not rows.is_empty()]
    good = [rows for rows in long if rows["region"][0] not in left_out]
    panel = CasePanel.from_long(pl.concat(good), source=str(path)) if good else None
    return Hosted(panel, left_out)


def _by_client(frame: pl.DataFrame, clients: Collection[str]) -> dict[str, pl.DataFrame]:
    """The rows of each client that has some, as they were read."""
    named = frame.with_columns(client=pl.col("region").cast(pl.String, strict=False))
    mine = named.filter(pl.col("client").is_in(sorted(clients)))
    parts = mine.partition_by("client", as_dict=True, include_key=False)
    return {str(client): rows for (client, *_), rows in parts.items()}


def _read_lines(
    path: Path, columns: Mapping[str, str], clients: Collection[str], left_out: dict[str, str]
) -> pl.DataFrame:
    """The lines of a CSV as text; those that are not rows are bad ones of the client they name."""
    header = read_header(path)
    require(path, header.names, list(columns.values()))
    places = {key: [n.strip() for n in header.names].index(name) for key, name in columns.items()}
    found: dict[str, list[Any]] = {"row": [], **{key: [] for key in places}}
    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            line = raw.decode("utf-8", errors="replace").strip("\r\n")
            if number <= header.line or not line.strip():
                continue
            try:
                (cells,) = csv.reader([line], delimiter=header.separator, strict=True)
                whole = len(cells) <= len(header.names) and "�" not in line
            except (csv.Error, ValueError):
                cells, whole = line.split(header.separator), False
            values = {k: cells[i].strip() if i < len(cells) else "" for k, i in places.items()}
            if not whole:
                if values["region"] in clients:
                    sentence = f"{path}: row {number}: found a broken line; expected UTF-8 CSV"
                    left_out.setdefault(values["region"], sentence)
                continue
            found["row"].append(number)
            for key, value in values.items():
                found[key].append(value or None)
    return pl.DataFrame(found, schema={"row": pl.UInt32, **dict.fromkeys(places, pl.String)})
