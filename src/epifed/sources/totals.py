"""Rows that sum up others, and would count every case twice: by their names or their counts."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from epifed.errors import EpifedError
from epifed.reading import Assumptions, UnsaidError, listed, short
from epifed.sources.clean import Cleaning
from epifed.sources.layout import LongTable
from epifed.sources.table import RawTable
from epifed.words import counted, was

Floats = NDArray[np.float64]

TOTALS = (
    "total", "totals", "grand total", "all", "alle", "sum", "summe", "gesamt", "gesamtsumme",
    "insgesamt", "gesamtergebnis", "overall", "national", "nation", "ensemble", "totale", "_t",
    "zusammen", "bundesgebiet", "ergebnis", "ensemble du territoire", "totaal", "suma", "razem",
    "ogółem", "totalt", "celkem", "összesen", "world", "worldwide", "global", "welt", "eu/eea",
    "eu/eea (total)",
    "european union", "europe", "asia", "africa", "north america", "south america", "oceania",
    "us residents", "us territories", "non-us residents", "new england", "middle atlantic",
    "east north central", "west north central", "south atlantic", "east south central",
    "west south central", "mountain", "pacific", "high income", "upper middle income",
    "lower middle income", "low income", "international",
    "owid_wrl", "owid_eun", "owid_eur", "owid_asi", "owid_afr", "owid_nam", "owid_sam", "owid_oce",
    "owid_hic", "owid_umc", "owid_lmc", "owid_lic", "owid_int",
)  # fmt: skip
"""Names of rows that sum up others, in small letters."""
SUBTOTAL = (
    r"^(grand total|sub-?total|total|totals|summe|zwischensumme|sous-total|gesamt|suma|razem)\b"
    r"|[\s:_-](sub-?total|total|totals|totale|ergebnis|summe|gesamt|insgesamt)$"
)
"""Names of rows that sum up some of the others, as pivot tables write them: Bayern Ergebnis."""
LEAST_SUMS, LEAST_PARTS, LEAST_VALUES = 7, 3, 4
"""Days on which a region must be the sum of others, how many they are, and how many different
counts it must have, to be taken for their total."""
MOST_LEVELS = 3
"""Levels below a total, such as states and counties, that all sum up to it."""
NEAR = (-1, 0, 1)
"""How far from the row where the cases add up to a total, gaps filled, its parts may end."""
MIXED = 1.5
"""From so many times a total on, what is left holds its cases more than once."""
MOST_COUNTS = 5_000_000
"""Counts among which sums of neighbouring rows are looked for."""
NEARLY, ON_MOST = 0.05, 0.9
"""By how much a total may differ from its parts on so many days; on half of them a fifth of it."""


def is_total(names: pl.Series) -> pl.Series:
    """Which names are words for a total, or for one of some rows."""
    plain = names.str.to_lowercase().str.strip_chars(" :.")
    return (plain.is_in(TOTALS) | plain.str.contains(SUBTOTAL)).fill_null(value=False)


def without_totals(state: Cleaning) -> Cleaning:
    """Without the rows whose region, or day, is the word for a total."""
    found = {
        key: words.filter(is_total(words))
        for key in ("day", "region")
        if state.frame.schema[key] == pl.String
        for words in [state.frame[key].unique().drop_nulls()]
    }
    if not any(len(words) for words in found.values()):
        return state
    totals = (pl.col(key).is_in(words.implode()) for key, words in found.items())
    return _drop_totals(state, state.frame.filter(pl.any_horizontal(totals)))


def without_total_kinds(table: RawTable, long: LongTable, said: Assumptions) -> LongTable:
    """Before rows are summed: without those that another column calls a total, such as of ages."""
    if said.duplicates != "sum" or said.totals == "keep" or long.layout != "long":
        return long
    used, chosen = set(long.columns.values()), {one.partition("=")[0] for one in said.only or ()}
    others = [n for n in table.names if n and n not in used | chosen and table.names.count(n) == 1]
    if not others:
        return long
    wide = table.pick(
        {"region": long.columns["region"]} | {f"o{i}": n for i, n in enumerate(others)}
    )
    wide = wide.join(long.frame.select("row"), on="row", how="semi")
    frame, notes = long.frame, list(long.notes)
    for i, name in enumerate(others):
        if wide.schema[f"o{i}"] != pl.String or wide[f"o{i}"].n_unique() < 2:
            continue
        totals = wide.filter(is_total(wide[f"o{i}"]))
        if totals.is_empty():
            continue
        word = totals[f"o{i}"][0]
        if said.totals != "drop":
            raise UnsaidError(
                f"{table.where}: row {totals['row'][0]}, column {short(name)}: found "
                f"'{short(word)}', which looks like a total of the rows to be summed; expected "
                "them alone, or it alone",
                {"totals": "drop"},
                {"duplicates": "refuse", "only": f"{name}={word}"},
            )
        frame = frame.join(totals.select("row"), on="row", how="anti")
        notes.append(
            f"{counted(len(totals), 'row')} of totals {was(len(totals))} dropped: {short(name)} "
            f"{short(word)}"
        )
    return LongTable(frame, long.columns, long.layout, tuple(notes))


def _drop_totals(state: Cleaning, totals: pl.DataFrame) -> Cleaning:
    if totals.is_empty() or state.said.totals == "keep":
        return state
    what = listed(_names(totals))
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
    return state.now(
        kept,
        f"{counted(len(totals), 'row')} of totals {was(len(totals))} dropped: {what}",
        totals="drop",
    )


def _names(totals: pl.DataFrame) -> list[str]:
    """What rows of totals are called: by their day where that is the word for one."""
    words = totals.select(pl.col("region", "day").cast(pl.String))
    by_day = is_total(words["day"]) & ~is_total(words["region"])
    named = words.with_columns(name=pl.when(by_day).then("day").otherwise("region"))
    return named.select(pl.coalesce("name", "day")).to_series().unique().sort().to_list()


def without_sums(state: Cleaning, order: Sequence[str]) -> Cleaning:
    """Without regions that are sums of others, whatever they are called, given in their order.

    Of all others, of those that their id begins, or of those next to them; nearly, on nearly all
    days, for a few cases belong to no region.
    """
    if state.said.totals == "keep" or len(order) <= LEAST_PARTS:
        return state
    sums = _Sums.of(state.frame, order)
    found: list[str] = []
    while some := sums.of_some() or sums.of_all():
        found += some
        sums = sums.without(some)
    left = sums.cases.sum()
    if any(left > MIXED * total for total in sums.totals):
        raise EpifedError(
            f"{state.where}: found {short(found[-1])}, which is the sum of the others more than "
            "once, so regions of several levels are mixed; expected those of one level"
        )
    state = _drop_totals(state, state.frame.filter(pl.col("region").is_in(found)))
    same = sums.alike()
    note = f"regions with the same counts on every day: {listed(same)}" if same else ""
    return state.now(state.frame, note)


@dataclass(frozen=True)
class _Sums:
    """Counts of regions in the order of the table, and which of them are sums of others."""

    ids: tuple[str, ...]
    counts: Floats
    """[regions, days]"""
    known: NDArray[np.bool_]
    totals: tuple[float, ...] = ()
    """The cases of regions that all others were the sum of, which are left out already."""

    @classmethod
    def of(cls, frame: pl.DataFrame, order: Sequence[str]) -> Self:
        """The counts of a long table."""
        frame = frame.drop_nulls("cases")
        days = frame["day"].rank("dense").to_numpy().astype(np.int64) - 1
        place = {id: i for i, id in enumerate(order)}
        rows = frame["region"].replace_strict(place, return_dtype=pl.Int64).to_numpy()
        counts = np.zeros((len(order), int(days.max(initial=-1)) + 1))
        known = np.zeros(counts.shape, dtype=np.bool_)
        counts[rows, days], known[rows, days] = frame["cases"].to_numpy(), True
        return cls(tuple(order), counts, known)

    @cached_property
    def cases(self) -> Floats:
        """All cases of each region."""
        total: Floats = self.counts.sum(axis=1)
        return total

    def without(self, ids: Sequence[str]) -> Self:
        """The other regions."""
        kept = [i for i, id in enumerate(self.ids) if id not in set(ids)]
        totals = self.totals
        if len(ids) == 1 and ids == self.of_all():
            totals = (*totals, float(self.cases.max()))
        named = tuple(self.ids[i] for i in kept)
        return replace(
            self, ids=named, counts=self.counts[kept], known=self.known[kept], totals=totals
        )

    def of_all(self) -> list[str]:
        """The region with most cases, if the others have as many, or twice: states and counties."""
        if len(self.ids) <= LEAST_PARTS:
            return []
        biggest = int(self.cases.argmax())
        others = self.counts.sum(axis=0) - self.counts[biggest]
        levels = range(1, MOST_LEVELS + 1)
        gaps = (~self.known).sum(axis=0)
        is_one = any(self._has(biggest, others / level, gaps) for level in levels)
        return [self.ids[biggest]] if is_one else []

    def of_some(self) -> list[str]:
        """Regions that are the sum of those whose ids they begin, or of their neighbours."""
        found = [id for parts in self._begun() for id in self._level(parts)]
        return list(dict.fromkeys(found)) or self._of_neighbours()

    def _level(self, parts: Mapping[int, list[int]]) -> list[str]:
        """Those that are sums; one part alone is enough where another region has several."""
        sums = {
            i: self._has(i, self.counts[inside].sum(axis=0), (~self.known[inside]).sum(axis=0))
            for i, inside in parts.items()
        }
        is_level = any(is_sum and len(parts[i]) > 1 for i, is_sum in sums.items())
        return [self.ids[i] for i, is_sum in sums.items() if is_sum and is_level]

    def _begun(self) -> Iterator[Mapping[int, list[int]]]:
        """For two lengths of ids: the longer ones that each shorter one begins."""
        words = {id: i for i, id in enumerate(self.ids) if id.isalnum()}
        for short_one, long_one in itertools.combinations(sorted({len(id) for id in words}), 2):
            parts: dict[int, list[int]] = {}
            for id, i in words.items():
                if len(id) == long_one and id[:short_one] in words:
                    parts.setdefault(words[id[:short_one]], []).append(i)
            yield parts

    def _of_neighbours(self) -> list[str]:
        """Regions that are the sum of several next below or above them in the table."""
        if self.counts.size > MOST_COUNTS or len(self.ids) <= LEAST_PARTS:
            return []
        cases = self.cases / np.maximum(self.known.mean(axis=1), 1 / self.known.shape[1])
        so_far = np.concatenate([[0.0], np.cumsum(cases)])
        above_all = np.zeros((1, self.counts.shape[1]))
        summed = np.concatenate([above_all, self.counts.cumsum(axis=0)])
        gaps = np.concatenate([above_all, (~self.known).cumsum(axis=0)])
        below = np.searchsorted(so_far, so_far[1:] + cases)
        above = np.searchsorted(so_far, so_far[:-1] - cases)
        last = len(self.ids)
        found = []
        for i, id in enumerate(self.ids):
            runs = [(i + 1, below[i] + near) for near in NEAR if i + 2 < below[i] + near <= last]
            runs += [(above[i] + near, i) for near in NEAR if 0 <= above[i] + near < i - 1]
            varied = runs and len(np.unique(self.counts[i])) >= LEAST_VALUES
            if varied and any(
                self._has(i, summed[end] - summed[start], gaps[end] - gaps[start])
                for start, end in runs
            ):
                found.append(id)
        return found

    def alike(self) -> list[str]:
        """Regions whose counts another one has, too, and not by chance."""
        found: dict[bytes, list[str]] = {}
        for id, counts in zip(self.ids, self.counts, strict=True):
            if np.count_nonzero(counts) >= LEAST_SUMS and len(np.unique(counts)) > LEAST_VALUES:
                found.setdefault(counts.tobytes(), []).append(id)
        return [id for ids in found.values() if len(ids) > 1 for id in ids]

    def _has(self, i: int, parts: Floats, gaps: NDArray[Any]) -> bool:
        """Whether a region has the cases of some others, on nearly all days with cases.

        Days on which one of them has no count are looked at only if there are few others.
        """
        days = self.known[i] & ((self.counts[i] > 0) | (parts > 0))
        if (whole := days & (gaps == 0)).sum() >= LEAST_SUMS:
            days = whole
        one, parts = self.counts[i, days], parts[days]
        if len(one) < LEAST_SUMS or abs(one.sum() - parts.sum()) > NEARLY * max(parts.sum(), 1.0):
            return False
        apart = np.abs(one - parts) / np.maximum(one, parts)
        return bool(np.mean(apart <= NEARLY) >= ON_MOST and np.median(apart) <= NEARLY / 5)
