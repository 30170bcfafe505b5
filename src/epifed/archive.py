"""The archive that builds itself: the counts a machine was given each day, kept on that machine.

Nobody can say today what was known a month ago unless somebody kept it. So a site and `epifed
forecast` keep the newest counts they were given, as changes, in one small file that nobody else
reads; after a few weeks it says how late this authority's cases come.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import polars as pl

from epifed.files import write_parquet
from epifed.panel import CasePanel
from epifed.vintages import LEAST_MORNINGS, Vintages

KEPT_MORNINGS = 84
"""Mornings that are kept; older ones become part of the first."""
KEPT_DAYS = KEPT_MORNINGS + 56
"""Reporting dates that are kept, before the last."""
FILE = "vintages.parquet"


def remember(folder: Path, panel: CasePanel, *, write: bool = True) -> CasePanel:
    """Keep a panel as known on the morning after its last day; the same with all that is kept.

    Without `write` it is as if it had been kept.

    A second panel of the same morning takes the place of the first; one that is older than the
    last is not kept, and an archive that lacks a region, or is damaged, begins anew. Counts that
    are not whole, are of weeks, or come with a history of their own, are not kept at all. The
    history stands in the panel once it has `LEAST_MORNINGS`.
    """
    whole = bool((panel.counts == np.round(panel.counts)).all())
    if panel.history is not None or not whole or panel.step == "week":
        return panel
    morning = panel.end + timedelta(days=1)
    path = folder / FILE
    before = _read(path, panel)
    if before is not None and morning < before.last:
        return _with(panel, before, morning)
    kept = _bounded(_grown(before, panel, morning))
    if write:
        write_parquet(path, kept.to_frame())
    return _with(panel, kept, morning)


def fill(folder: Path, history: Vintages) -> None:
    """Put a history of one list into an archive, as if each of its mornings had been kept."""
    write_parquet(folder / FILE, _bounded(history).to_frame())


def together(panel: CasePanel, alone: Sequence[CasePanel]) -> CasePanel:
    """A panel with the history of its regions, each of which was remembered alone.

    The mornings are those on which all of them were looked at; what one list said in between, it
    said by the next of them. Without enough such mornings the panel has no history.
    """
    histories = [one.history for one in alone if one.history is not None]
    if len(histories) < len(panel.regions):
        return panel
    common = sorted(set.intersection(*(set(one.snapshots) for one in histories)))
    if len(common) < LEAST_MORNINGS or common[-1] != panel.end + timedelta(days=1):
        return panel
    mornings = pl.DataFrame({"morning": common}, schema={"morning": pl.Date})
    changes = pl.concat([one.changes for one in histories]).sort("as_of")
    dated = changes.join_asof(mornings, left_on="as_of", right_on="morning", strategy="forward")
    history = Vintages.from_changes(
        dated.drop_nulls("morning").drop("as_of").rename({"morning": "as_of"}),
        source=panel.source,
        regions=panel.regions,
        snapshots=common,
    )
    return replace(panel, history=history)


def mornings_kept(folder: Path) -> int:
    """How many mornings an archive has."""
    path = folder / FILE
    return pl.read_parquet(path, columns=["as_of"])["as_of"].n_unique() if path.is_file() else 0


def _read(path: Path, panel: CasePanel) -> Vintages | None:
    try:
        kept = pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError):
        return None
    found = Vintages.from_changes(kept, source=str(path))
    return found if set(found.regions) >= set(panel.regions) else None


def _with(panel: CasePanel, kept: Vintages, morning: date) -> CasePanel:
    if morning < kept.first:
        return panel
    history = kept.until(morning).of(panel.regions)
    return replace(panel, history=history) if len(history.snapshots) >= LEAST_MORNINGS else panel


def _grown(before: Vintages | None, panel: CasePanel, morning: date) -> Vintages:
    """What was kept, and what this morning changes of it."""
    earlier = None
    if before is not None and before.first < morning:
        earlier = before.until(morning - timedelta(days=1))
    first = max(panel.start, panel.end - timedelta(days=KEPT_DAYS - 1))
    now = panel.between(first, panel.end).counts
    known = np.zeros_like(now)
    if earlier is not None:
        mine = earlier.of(panel.regions)
        old, offset = mine.counts, (first - mine.start).days
        columns = np.arange(now.shape[1]) + offset
        inside = (columns >= 0) & (columns < old.shape[1])
        known[:, inside] = old[:, columns[inside]]
    rows, days = np.nonzero(now != known)
    changed = pl.DataFrame(
        {
            "as_of": [morning] * len(rows),
            "region": [panel.regions[row] for row in rows],
            "reported": [first + timedelta(days=int(day)) for day in days],
            "cases": (now - known)[rows, days].astype(np.int64),
        },
        schema_overrides={"as_of": pl.Date, "region": pl.String, "reported": pl.Date},
    )
    snapshots = (*(earlier.snapshots if earlier is not None else ()), morning)
    frames = [changed] if earlier is None else [earlier.changes.select(changed.columns), changed]
    return Vintages.from_changes(
        pl.concat(frames),
        source=panel.source,
        regions=earlier.regions if earlier is not None else panel.regions,
        snapshots=snapshots,
    )


def _bounded(kept: Vintages) -> Vintages:
    """The newest mornings and reporting dates only."""
    mornings = kept.snapshots[-KEPT_MORNINGS:]
    oldest = kept.last - timedelta(days=KEPT_DAYS)
    changes = kept.changes.filter(pl.col("reported") >= oldest).with_columns(
        pl.max_horizontal("as_of", pl.lit(mornings[0]))
    )
    return Vintages.from_changes(
        changes, source=kept.source, regions=kept.regions, snapshots=mornings
    )
