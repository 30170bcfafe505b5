"""A panel as known on a day, and nothing that became known later."""

import json
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from epifed.cli.app import app
from epifed.data.readers import load_panel
from epifed.data.vintages import Vintages
from epifed.errors import EpifedError
from epifed.learners.base import make_learner
from epifed.settings import Settings
from tests.late_lists import SHARES, late_list

DAY = timedelta(days=1)
FIRST = date(2020, 9, 1)

changes = st.lists(
    st.tuples(
        st.integers(0, 9), st.sampled_from(["a", "b"]), st.integers(1, 9), st.integers(-3, 9)
    ),
    min_size=1,
    max_size=40,
)


def vintages(rows: list[tuple[int, str, int, int]]) -> Vintages:
    return Vintages.from_changes(
        pl.DataFrame(
            {
                "as_of": [FIRST + day * DAY for day, *_ in rows],
                "region": [region for _, region, *_ in rows],
                "reported": [FIRST + (day - before) * DAY for day, _, before, _ in rows],
                "cases": [cases for *_, cases in rows],
            }
        ),
        regions=("a", "b"),
    )


@given(changes, st.integers(0, 9))
def test_as_known_is_the_sum_of_what_was_known_by_then(
    rows: list[tuple[int, str, int, int]], day: int
) -> None:
    if not any(cases for *_, cases in rows) or day < min(a for a, *_ in rows):
        return
    everything = vintages(rows)
    snapshot = max(a for a, *_ in rows if a <= day)
    known = [(r, a - b, n) for a, r, b, n in rows if a <= day]
    if not any(n for *_, n in known):
        return
    try:
        panel = everything.as_known(FIRST + day * DAY)
    except EpifedError:
        return
    assert panel.end == FIRST + (snapshot - 1) * DAY
    for row, region in enumerate(("a", "b")):
        for column, reported in enumerate(panel.days):
            at = (reported - FIRST).days
            total = sum(n for r, d, n in known if r == region and d == at)
            assert panel.counts[row, column] == max(total, 0)


def test_a_row_that_becomes_known_later_moves_nothing_before() -> None:
    _, plain = late_list(regions=2)
    later = plain.first + 20 * DAY
    row = pl.DataFrame(
        {
            "as_of": [later],
            "region": ["00000"],
            "reported": [later - 2 * DAY],
            "cases": [1000],
        }
    )
    planted = Vintages.from_changes(pl.concat([plain.changes, row], how="diagonal_relaxed"))
    before, after = later - DAY, later
    assert planted.until(before).digest() == plain.until(before).digest()
    assert planted.until(after).digest() != plain.until(after).digest()
    assert (planted.as_known(before).counts == plain.as_known(before).counts).all()
    gained = planted.as_known(after).counts - plain.as_known(after).counts
    assert gained.sum() == 1000
    assert gained[0, -2] == 1000


def test_known_has_each_day_by_its_age() -> None:
    panel, late = late_list(regions=3)
    table = late.known(10)
    for i in (0, 7, 30):
        counts = late.as_known(late.first + i * DAY).counts
        assert (table[i] == counts[:, ::-1][:, :10]).all()
    newest = table[5:, :, 0].sum() / table[5:, :, 3].sum()
    assert newest == pytest.approx(SHARES[0], abs=0.1)
    assert (table[-1, :, 5] == panel.counts[:, -6]).all()


def test_a_day_without_a_snapshot_is_missing_and_known_as_the_day_before() -> None:
    _, late = late_list(regions=2)
    gone = late.first + 9 * DAY
    moved = late.changes.with_columns(
        as_of=pl.when(pl.col("as_of") == gone).then(gone + DAY).otherwise("as_of")
    )
    holey = Vintages.from_changes(moved)
    assert holey.missing == (gone,)
    assert np.isnan(holey.known(3)[9]).all()
    assert holey.as_known(gone).end == gone - 2 * DAY
    assert (holey.as_known(gone + DAY).counts == late.as_known(gone + DAY).counts).all()


def test_completeness_is_what_the_list_was_made_with() -> None:
    _, late = late_list(regions=20)
    table = late.completeness(6)
    every = table.filter(pl.col("weekday").is_null()).sort("lag")
    expected = [*np.cumsum(SHARES), 1, 1, 1]
    assert every["share"].to_list() == pytest.approx(expected, abs=0.02)
    assert table.filter(pl.col("lag") == 0)["weekday"].to_list() == [None, *range(7)]


def test_a_panel_keeps_only_the_history_it_could_have() -> None:
    panel, late = late_list(regions=3)
    known = late.as_known(late.first + 30 * DAY, like=panel)
    assert known.history is not None
    assert known.history.last == late.first + 30 * DAY
    cut = known.between(known.start, known.end - 10 * DAY)
    assert cut.history is not None
    assert cut.history.last == cut.end + DAY
    assert known.of(["00001"]).history.regions == ("00001",)  # type: ignore[union-attr]
    assert known.digest() != late.as_known(late.first + 31 * DAY, like=panel).digest()


def test_a_panel_of_a_period_knows_no_reporting_date_before_it() -> None:
    panel, late = late_list(regions=3)
    known = late.as_known(late.last, like=panel)
    first = known.end - 20 * DAY
    cut = known.between(first, known.end).history
    assert cut is not None
    assert cut.start == first
    assert cut.first == first + DAY
    whole = late.known()
    for morning in cut.snapshots:
        age = (morning - first).days
        now = cut.known()[(morning - cut.first).days]
        assert (now[:, :age] == whole[(morning - late.first).days, :, :age]).all()
        assert not now[:, age:].any()
    assert known.between(known.start, known.end).history is late
    nobody_looked = Vintages.from_changes(late.changes, snapshots=late.snapshots[:5])
    kept = replace(known, history=nobody_looked)
    assert kept.between(late.first + 9 * DAY, known.end).history is None


def test_what_a_training_sends_does_not_know_the_days_before_its_period() -> None:
    panel, late = late_list(regions=3)
    early = late.last - 20 * DAY
    other = Vintages.from_changes(
        late.changes.with_columns(
            cases=pl.when(pl.col("reported") < early).then(9 * pl.col("cases")).otherwise("cases")
        )
    )
    learner = make_learner(Settings.resolve(3, {"learner": "real-time"}))
    views = [
        learner.deployed_view(one.as_known(late.last, like=panel), (early, panel.end))
        for one in (late, other)
    ]
    for name in ("change", "weight", "further"):
        assert (getattr(views[0], name) == getattr(views[1], name)).all()


def test_what_cannot_be_is_refused() -> None:
    panel, late = late_list(regions=2)
    with pytest.raises(EpifedError, match=r"expected one as of 2020-01-01 or before"):
        late.as_known("2020-01-01")
    with pytest.raises(EpifedError, match=r"found no vintages of region nowhere \(1 of 2"):
        late.of(["00000", "nowhere"])
    with pytest.raises(EpifedError, match="other regions"):
        late.of(["00001"]).as_known(late.last, like=panel)


def test_a_table_is_read_back_with_its_quiet_days() -> None:
    _, late = late_list(regions=2)
    quiet = Vintages.from_changes(late.changes, snapshots=(*late.snapshots, late.last + DAY))
    again = Vintages.from_changes(quiet.to_frame())
    assert again.snapshots == quiet.snapshots
    assert again.digest() == quiet.digest()


def test_counts_by_publication_day_are_what_became_known() -> None:
    panel, late = late_list(regions=3)
    new = late.published(like=panel)
    assert new.start == late.first
    assert new.end == late.last - DAY
    assert new.counts.sum() == late.changes.filter(pl.col("as_of") > late.first)["cases"].sum()
    morning = late.first + 11 * DAY
    now, before = (int(late.until(m).changes["cases"].sum()) for m in (morning, morning - DAY))
    assert new.counts[:, 10].sum() == now - before


def test_a_list_is_converted_to_counts_by_publication_day(tmp_path: Path) -> None:
    _, late = late_list(regions=3)
    source, out = tmp_path / "list.parquet", tmp_path / "new.csv"
    late.to_frame().write_parquet(source)
    command = ["data", "convert", str(source), "--by-publication", "--out", str(out)]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    new, written = late.published(), load_panel(out)
    assert (written.start, written.regions) == (new.start, new.regions)
    np.testing.assert_array_equal(written.counts, new.counts)
    assert json.loads((tmp_path / "new.csv.json").read_text())["by"] == "publication"
    with pytest.raises(EpifedError, match="expected none of these"):
        CliRunner().invoke(app, [*command, "--column-cases", "n"], catch_exceptions=False)
