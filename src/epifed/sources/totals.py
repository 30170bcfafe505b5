"""Rows that sum up others, and would count every case twice: by their names or their counts."""

import itertools
from collections.abc import Mapping

import polars as pl

from epifed.errors import EpifedError
from epifed.reading import UnsaidError, listed
from epifed.sources.clean import Cleaning

TOTALS = (
    "total", "totals", "grand total", "all", "alle", "sum", "summe", "gesamt", "gesamtsumme",
    "insgesamt", "gesamtergebnis", "overall", "national", "nation", "ensemble", "totale",
    "zusammen", "bundesgebiet", "world", "worldwide", "global", "welt", "eu/eea", "eu/eea (total)",
    "european union", "europe", "asia", "africa", "north america", "south america", "oceania",
    "high income", "upper middle income", "lower middle income", "low income", "international",
    "owid_wrl", "owid_eun", "owid_eur", "owid_asi", "owid_afr", "owid_nam", "owid_sam", "owid_oce",
    "owid_hic", "owid_umc", "owid_lmc", "owid_lic", "owid_int",
)  # fmt: skip
"""Names of rows that sum up others, in small letters."""
LEAST_SUMS, LEAST_PARTS = 7, 3
"""Days on which a region must be the sum of others, and how many, to be taken for their total."""
NEARLY, ON_MOST = 0.05, 0.9
"""By how much a total may differ from its parts on so many days; on half of them a fifth of it."""


def without_totals(state: Cleaning) -> Cleaning:
    """Without the rows whose region, or day, is the word for a total."""
    found = {
        key: words.filter(words.str.to_lowercase().str.strip_chars(" :.").is_in(TOTALS))
        for key in ("day", "region")
        if state.frame.schema[key] == pl.String
        for words in [state.frame[key].unique().drop_nulls()]
    }
    if not any(len(words) for words in found.values()):
        return state
    totals = (pl.col(key).is_in(words.implode()) for key, words in found.items())
    return _drop_totals(state, state.frame.filter(pl.any_horizontal(totals)))


def _drop_totals(state: Cleaning, totals: pl.DataFrame) -> Cleaning:
    if totals.is_empty() or state.said.totals == "keep":
        return state
    named = totals.select("row", name=pl.coalesce("region", pl.col("day").cast(pl.String)))
    what = listed(named["name"].unique().sort().to_list())
    if state.said.totals != "drop":
        raise UnsaidError(
            f"{state.where}: row {min(totals['row'])}: found {what}, which looks like a total of "
            "the other rows; expected regions alone",
            {"totals": "drop"},
            {"totals": "keep"},
        )
    kept = state.frame.join(totals.select("row", "region"), on=["row", "region"], how="anti",
                            nulls_equal=True)  # fmt: skip
    if kept.is_empty():
        raise EpifedError(f"{state.where}: found totals alone; expected regions")
    return state.now(kept, f"{len(totals):,} rows of totals were dropped: {what}", totals="drop")


def without_sum_of_all(state: Cleaning) -> Cleaning:
    """Without regions that are the sum of all others, or of those that their id begins.

    Whatever they are called, and if a few cases belong to no region: nearly, on nearly all days.
    """
    if state.said.totals == "keep":
        return state
    frame = state.frame.drop_nulls("cases").select("region", "day", "cases")
    regions = frame.group_by("region").agg(pl.col("cases").sum()).sort("cases", descending=True)
    found = []
    if len(regions) > LEAST_PARTS:
        biggest = regions["region"][0]
        if _is_sum(frame.filter(region=biggest), frame.filter(pl.col("region") != biggest)):
            found.append(biggest)
    cases = {id: total for id, total in regions.iter_rows() if id.isdigit() and id not in found}
    for id, parts in _begun(cases).items():
        if _is_sum(frame.filter(region=id), frame.filter(pl.col("region").is_in(parts))):
            found.append(id)
    return _drop_totals(state, state.frame.filter(pl.col("region").is_in(found)))


def _begun(cases: Mapping[str, float]) -> dict[str, list[str]]:
    """The longer ids that each id begins, where both have about as many cases."""
    lengths = sorted({len(id) for id in cases})
    begun: dict[str, list[str]] = {}
    for short_one, long_one in itertools.combinations(lengths, 2):
        parts: dict[str, list[str]] = {}
        for id in cases:
            if len(id) == long_one:
                parts.setdefault(id[:short_one], []).append(id)
        for id, inside in parts.items():
            total = sum(cases[one] for one in inside)
            if len(inside) > 1 and abs(cases.get(id, 0.0) - total) < NEARLY * max(total, 1.0):
                begun[id] = inside
    return begun


def _is_sum(one: pl.DataFrame, parts: pl.DataFrame) -> bool:
    """Whether a region has the cases of some others, on nearly all days with cases."""
    both = parts.group_by("day").agg(all=pl.col("cases").sum()).join(one, on="day")
    both = both.filter((pl.col("cases") > 0) | (pl.col("all") > 0))
    apart = (pl.col("cases") - pl.col("all")).abs() / pl.max_horizontal("cases", "all")
    near = both.select(near=(apart <= NEARLY).mean(), median=apart.median()).row(0, named=True)
    return len(both) >= LEAST_SUMS and near["near"] >= ON_MOST and near["median"] <= NEARLY / 5
