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
from epifed.sources.table import columns_of, existing, read_header, read_parquet, require
from epifed.sources.tidy import POPULATION, Facts, fact_columns, parse_cases, region_facts


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
    facts = fact_columns(columns_of(path), options.get("population", POPULATION))
    columns |= facts
    left_out: dict[str, str] = {}
    if path.suffix.lower() in {".parquet", ".pq"}:
        frame = read_parquet(path, columns)
    else:
        frame = _read_lines(path, columns, clients, left_out)
    good: dict[str, tuple[pl.DataFrame, Facts]] = {}
    for client, rows in _by_client(frame, clients).items():
        try:
            counted = parse_cases(path, rows, columns).drop_nulls("cases")
            known = _complete(path, client, region_facts(path, rows, columns), facts)
        except EpifedError as error:
            left_out.setdefault(client, str(error))
        else:
            if client not in left_out and not counted.is_empty():
                good[client] = counted.select("day", "region", "cases"), known
    if not good:
        return Hosted(None, left_out)
    long = pl.concat(rows for rows, _ in good.values())
    panel = CasePanel.from_long(long, source=str(path), **_together(facts, good))
    return Hosted(panel, left_out)


def _complete(path: Path, client: str, known: Facts, columns: Mapping[str, str]) -> Facts:
    """Refuse a client of which the file has a column for a fact, and not the fact.

    Else whether the others' facts are used would depend on this one.
    """
    for key, found in (("population", known.population), ("longitude", known.positions)):
        if key in columns and client not in (found or {}):
            raise EpifedError(
                f"{path}: column {columns[key]}: found no value for region {client}; expected one"
            )
    return known


def _together(
    columns: Mapping[str, str], good: Mapping[str, tuple[pl.DataFrame, Facts]]
) -> dict[str, Any]:
    """The facts of all clients as one."""
    keys = {"population": "population", "calendars": "calendar", "positions": "longitude"}
    return {
        name: {k: v for _, facts in good.values() for k, v in (vars(facts)[name] or {}).items()}
        for name, key in keys.items()
        if key in columns
    }


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
