"""The rows of a site's own clients: who has a bad one is left out, and nobody else notices.

Under differential privacy one client's rows must decide about its own vector alone. So each client
is read by itself here, where `load_panel` refuses a whole file for one bad value.
"""

import csv
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from epifed.days import Step, refuse_apart
from epifed.errors import EpifedError
from epifed.panel import CasePanel
from epifed.reading import Assumptions
from epifed.sources import load_panel, recognise
from epifed.sources.content import Content, existing, open_content
from epifed.sources.csvs import read_header
from epifed.sources.facts import Facts
from epifed.sources.ids import filled, spelled
from epifed.sources.layout import lay_long, wanted_names
from epifed.sources.table import RawTable
from epifed.sources.tidy import Tidy, clean_rows, open_tidy


@dataclass(frozen=True)
class Hosted:
    """What a file has of the clients that were looked for."""

    panel: CasePanel | None
    """The clients whose rows are good; none if there is no such client."""
    left_out: dict[str, str]
    """The clients with a bad row, and what is wrong with it."""


def load_hosted(
    path: Path | str,
    clients: Collection[str],
    format: str | None = None,
    *,
    step: Step = "day",
    **options: Any,
) -> Hosted:
    """The panel of these clients, without those whose rows are bad; other rows are not looked at.

    Rows that count another step than the training's are bad. Weeks go by their Mondays here,
    whatever day each client dates its own by. In a tidy CSV a line is a row, whatever quotation
    marks say. Other formats are refused as a whole for one bad row, so a site with several clients
    cannot have them.
    """
    path = existing(Path(path))
    found = format or recognise(path, options)
    if found != "tidy":
        if len(clients) > 1:
            raise EpifedError(
                f"{path}: found the format '{found}' at a site with {len(clients)} clients, where "
                "one client's bad row would silence all; expected a table, as 'epifed data "
                "convert' writes it"
            )
        whole = load_panel(path, format, **options)
        whole.refuse_step(step)
        mine = [region for region in whole.regions if region in clients]
        return Hosted(whole.of(mine) if mine else None, {})
    said = Assumptions.of(options, str(path))
    left_out: dict[str, str] = {}
    content = open_content(path, said)
    if content.kind == "text":
        table = _read_lines(content, said, clients, left_out)
    else:
        table = open_tidy(content, said)
    long = lay_long(table, said)
    good, facts = [], Facts()
    for client, rows in _by_client(long.frame, clients, said).items():
        try:
            tidy = clean_rows(table.where, rows, long.columns, said)
            counted = _counted(tidy, step)
            known = tidy.facts()
            known.refuse_missing(table.where, client)
        except EpifedError as error:
            left_out.setdefault(client, str(error))
            continue
        if client not in left_out and not counted.is_empty():
            good.append(counted)
            facts = facts.joined(known)
    if not good:
        return Hosted(None, left_out)
    panel = CasePanel.from_long(pl.concat(good), source=str(path), step=step, **vars(facts))
    return Hosted(panel, left_out)


def _counted(tidy: Tidy, step: Step) -> pl.DataFrame:
    """The counts of a client; refused if they are of another step, or no weeks in a row."""
    if tidy.step != step:
        raise EpifedError(f"{tidy.where}: found a row for each {tidy.step}; expected each {step}")
    counted = tidy.frame.drop_nulls("cases").select("day", "region", "cases")
    if step == "day":
        return counted
    refuse_apart(tidy.where, counted["day"].to_list())
    return counted.with_columns(pl.col("day").dt.truncate("1w"))


def _by_client(
    frame: pl.DataFrame, clients: Collection[str], said: Assumptions
) -> dict[str, pl.DataFrame]:
    """The rows of each client that has some, as they were read."""
    named = pl.col("region").cast(pl.String, strict=False)
    names = frame.select(named).to_series()
    found = frame.with_columns(spelled(names).alias("client"))
    found = found.with_columns(filled(pl.col("client"), said.id_width))
    mine = found.filter(pl.col("client").is_in(sorted(clients)))
    parts = mine.partition_by("client", as_dict=True, include_key=False)
    return {str(client): rows for (client, *_), rows in parts.items()}


def _read_lines(
    content: Content, said: Assumptions, clients: Collection[str], left_out: dict[str, str]
) -> RawTable:
    """The lines of a CSV as text; those that are not rows are bad ones of the client they name."""
    header = read_header(content, said, wanted_names(said))
    names = tuple(name.strip() for name in header.names)
    wanted = (said.region or "region").casefold()
    place = next((i for i, name in enumerate(names) if name.casefold() == wanted), len(names))
    found: list[tuple[Any, ...]] = []
    with content.open() as file:
        for number, raw in enumerate(file, start=1):
            line = raw.decode("utf-8", errors="replace").strip("\r\n")
            if number <= header.line or not line.strip():
                continue
            try:
                (cells,) = csv.reader([line], delimiter=header.separator, strict=True)
                whole = len(cells) <= len(names) and "\ufffd" not in line
            except (csv.Error, ValueError):
                cells, whole = line.split(header.separator), False
            if whole:
                found.append((number, *cells, *[None] * (len(names) - len(cells))))
            elif place < len(cells) and (client := cells[place].strip()) in clients:
                sentence = f"row {number}: found a broken line; expected UTF-8 CSV"
                left_out.setdefault(client, f"{content.where}: {sentence}")
    types = {"row": pl.UInt32, **{str(i): pl.String for i in range(len(names))}}
    rows = pl.DataFrame(found, schema=types, orient="row")
    return RawTable(content.where, names, lambda places: rows.select("row", *map(str, places)))
