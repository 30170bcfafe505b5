"""A site at work without FLARE: what it sends tells nothing of the draw, and nothing of others."""

import json
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from epifed.data.panel import CasePanel
from epifed.data.readers.formats import SIMULATION
from epifed.data.vintages import count_vintages
from epifed.federation import site
from epifed.federation.messages import Code, Greeting, MessageError, Parts, pack_task, unpack_task
from epifed.federation.site import TERMS, SiteWork, Source, archive_of
from epifed.federation.terms import Terms
from epifed.learners.base import Vector, make_learner
from epifed.privacy.plan import PrivacyPlan
from epifed.registry import LEARNERS
from epifed.settings import Settings, seed_sequence
from epifed.training.rounds import contribution
from tests.federation.helpers import panel, settings_of, task_of
from tests.helpers import small_settings

MINE = panel().regions[::3]
"""The clients of the site, four of twelve."""


def _kit(folder: Path, rows: pl.DataFrame) -> Path:
    """A kit of a site whose file holds these rows."""
    folder.mkdir()
    terms = Terms(epsilon_per_release=float("inf"), seeded=True)
    (folder / TERMS).write_text(terms.to_toml())
    rows.rename({"day": "date"}).write_csv(folder / "cases.csv")
    (folder / SIMULATION).write_text("{}")
    Source(str(folder / "cases.csv"), None, {}).write(folder)
    return folder


def _long(cases: CasePanel, clients: Sequence[str] = MINE) -> pl.DataFrame:
    return cases.to_long().filter(pl.col("region").is_in(clients))


def _task(settings: Settings, drawn: str, number: int = 1, **changes: Any) -> Parts:
    stated: dict[str, Any] = {
        "training": "flu",
        "round": number,
        "paid": number - 1,
        "randomness": "seeded",
    }
    return pack_task(replace(task_of(settings, MINE, drawn, **stated), **changes))


def _rows(work: SiteWork, task: Parts) -> Vector:
    parts, error = work.answer(task)
    assert error is None
    about = json.loads(parts["about"])
    assert about["dtype"] == "float32"
    rows: Vector = np.frombuffer(parts["array"], dtype=np.float32).reshape(about["shape"])
    return rows


@pytest.mark.parametrize("learner", sorted(LEARNERS))
def test_an_answer_has_the_same_bytes_whoever_was_drawn(tmp_path: Path, learner: str) -> None:
    work = SiteWork(_kit(tmp_path / "kit", _long(panel())))
    settings = settings_of(learner, epsilon=2.0)
    sizes = set()
    for drawn in ("0000", "1000", "0110", "1111"):
        parts, error = work.answer(_task(settings, drawn))
        assert error is None
        assert parts.keys() == {"about", "array"}
        sizes.add((len(parts["about"]), len(parts["array"])))
        rows = _rows(work, _task(settings, drawn))
        assert [bool(row.any()) for row in rows] == [mark == "1" for mark in drawn]
    assert len(sizes) == 1


@pytest.mark.parametrize("learner", sorted(LEARNERS))
@pytest.mark.parametrize("what", ["absent", "late", "short", "long"])
def test_one_client_changes_its_own_vector_and_nobody_elses(
    tmp_path: Path, learner: str, what: str
) -> None:
    settings, cases, other = settings_of(learner, epsilon=2.0), panel(), MINE[1]
    days = {
        "absent": pl.lit(False),
        "late": pl.col("day") > cases.day(3),
        "short": pl.col("day") < cases.day(30),
        "long": pl.lit(True),
    }[what]
    rows = _long(cases).filter((pl.col("region") != other) | days)
    if what == "long":
        more = pl.DataFrame({"day": [cases.day(-20)], "region": [other], "cases": [900.0]})
        rows = pl.concat([more, rows])
    whole = SiteWork(_kit(tmp_path / "whole", _long(cases)))
    changed = SiteWork(_kit(tmp_path / "changed", rows))
    task = _task(settings, "1111")
    before, after = _rows(whole, task), _rows(changed, task)
    others = [i for i, client in enumerate(MINE) if client != other]
    np.testing.assert_array_equal(after[others], before[others])
    np.testing.assert_array_equal(after[1], before[1] if what == "long" else 0.0)
    assert before[1].any()


BAD_ROWS = {
    "text": "{day},{region},many",
    "negative": "{day},{region},-3",
    "nan": "{day},{region},NaN",
    "infinite": "{day},{region},inf",
    "no day": ",{region},3",
    "not a day": "2020-13-45,{region},3",
    "far away": "9999-01-01,{region},3",
    "twice": "{day},{region},3",
    "cells": "{day},{region},3,5",
    "quote": '{day},{region},"3',
    "bytes": "{day},{region},3\udcff",
}


@pytest.mark.parametrize("learner", ["one-shot"])
@pytest.mark.parametrize("what", BAD_ROWS)
def test_a_bad_row_is_its_clients_alone_and_the_site_says_so(
    tmp_path: Path, learner: str, what: str
) -> None:
    settings, cases, other = settings_of(learner, epsilon=2.0), panel(), MINE[1]
    kits = [_kit(tmp_path / name, _long(cases)) for name in ("whole", "broken", "foreign")]
    for kit, region in zip(kits[1:], (other, "99999"), strict=True):
        row = BAD_ROWS[what].format(day=cases.day(5), region=region)
        lines = (kit / "cases.csv").read_text().splitlines()
        lines[3:3] = [row, row]
        (kit / "cases.csv").write_bytes("\n".join(lines).encode(errors="surrogateescape"))
    said: list[str] = []
    task = _task(settings, "1111")
    before, after, same = (_rows(SiteWork(kit, said.append), task) for kit in kits)
    np.testing.assert_array_equal(same, before)
    others = [i for i, client in enumerate(MINE) if client != other]
    np.testing.assert_array_equal(after[others], before[others])
    assert before[1].any() and not after[1].any()
    (sentence,) = said
    assert sentence.startswith(f"client {other} counts as zero: ")
    assert "cases.csv: row " in sentence


def test_a_bad_value_in_parquet_is_its_clients_alone(tmp_path: Path) -> None:
    settings, other = settings_of("one-shot", epsilon=2.0), MINE[2]
    kit = _kit(tmp_path / "kit", _long(panel()))
    before = _rows(SiteWork(kit), _task(settings, "1111"))
    bad = pl.when(pl.col("region") == other).then(float("nan")).otherwise("cases")
    rows = _long(panel()).rename({"day": "date"}).with_columns(cases=bad)
    rows.write_parquet(kit / "cases.parquet")
    Source(str(kit / "cases.parquet"), None, {}).write(kit)
    after = _rows(SiteWork(kit), _task(settings, "1111"))
    np.testing.assert_array_equal(after[[0, 1, 3]], before[[0, 1, 3]])
    assert before[2].any() and not after[2].any()


@pytest.mark.parametrize("what", ["file", "column"])
def test_what_is_wrong_with_the_file_as_a_whole_is_the_sites_code(
    tmp_path: Path, what: str
) -> None:
    rows = _long(panel())
    kit = _kit(tmp_path / "kit", rows.drop("cases") if what == "column" else rows)
    if what == "file":
        (kit / "cases.csv").unlink()
    parts, error = SiteWork(kit).answer(_task(settings_of("one-shot", epsilon=2.0), "1111"))
    assert json.loads(parts["about"])["code"] == Code.DATA
    assert "cases.csv" in str(error)


@given(
    spans=st.lists(st.tuples(st.integers(-30, 3), st.integers(-3, 30)), min_size=4, max_size=4),
    gone=st.integers(0, 3),
)
@hypothesis.settings(max_examples=25)
def test_how_far_one_clients_days_reach_changes_nobody_elses_vector(
    spans: list[tuple[int, int]], gone: int
) -> None:
    cases = panel()
    rows = pl.concat(
        pl.DataFrame(
            {"day": [cases.day(d) for d in days], "region": [client] * len(days)},
        ).with_columns(cases=pl.Series([float(7 + (d * d) % 11) for d in days]))
        for client, (before, after) in zip(MINE, spans, strict=True)
        if (days := range(before, cases.counts.shape[1] + after))
    )
    answers = []
    with tempfile.TemporaryDirectory() as folder:
        for name, kept in (("all", rows), ("less", rows.filter(pl.col("region") != MINE[gone]))):
            work = SiteWork(_kit(Path(folder) / name, kept))
            answers.append(_rows(work, _task(settings_of("one-shot", epsilon=2.0), "1111")))
    others = [i for i in range(4) if i != gone]
    np.testing.assert_array_equal(answers[0][others], answers[1][others])
    covered = [before <= 0 <= after for before, after in spans]
    assert [bool(row.any()) for row in answers[0]] == covered


@pytest.mark.parametrize("learner", sorted(LEARNERS))
def test_a_site_sends_what_a_training_in_one_process_takes(tmp_path: Path, learner: str) -> None:
    settings, cases = settings_of(learner, epsilon=2.0), panel()
    made = make_learner(settings)
    view = made.deployed_view(cases, (cases.start, cases.end))
    mine = view.of(np.arange(12)[::3])
    state = made.start(seed_sequence(settings.seed))
    expected = contribution(made, state, mine, PrivacyPlan.of(settings, 12))
    people = pl.DataFrame({"region": cases.regions, "population": cases.population})
    rows = _long(cases).join(people, on="region")
    found = _rows(SiteWork(_kit(tmp_path / "kit", rows)), _task(settings, "1111"))
    np.testing.assert_allclose(found, expected, rtol=1.3e-6, atol=1e-6)


def test_a_setting_beyond_the_terms_is_refused_before_a_learner_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = SiteWork(_kit(tmp_path / "kit", _long(panel())))
    large = small_settings(epsilon=2.0, window=101)
    task = _task(large, "1111")

    def make_learner(_: Settings) -> None:
        raise AssertionError("a learner was made")

    monkeypatch.setattr(site, "make_learner", make_learner)
    work.prepare(Greeting.own(settings=large.to_toml()))
    parts, _ = work.answer(task)
    assert json.loads(parts["about"])["code"] == Code.REFUSED_SETTINGS
    assert "array" not in parts


@pytest.mark.parametrize("learner", ["fedavg", "trend", "one-shot"])
def test_real_counts_never_meet_predictable_noise(tmp_path: Path, learner: str) -> None:
    """A seed that draws one client, and known noise taken off, would show its vector."""
    kit, task = _kit(tmp_path / "kit", _long(panel())), _task(settings_of(learner), "1000")
    assert "array" in SiteWork(kit).answer(task)[0]
    (kit / SIMULATION).unlink()
    work = SiteWork(kit)
    work.prepare(Greeting.own(settings=settings_of(learner).to_toml()))
    parts, error = work.answer(task)
    assert json.loads(parts["about"])["code"] == Code.REFUSED_SEEDED
    assert "array" not in parts
    assert "expected counts in a folder that 'epifed simulate' wrote" in str(error)
    with pytest.raises(MessageError, match="refused-seeded"):
        work.vectors(unpack_task(task))


def test_an_answer_is_made_for_the_n_that_the_task_says(tmp_path: Path) -> None:
    terms = Terms(epsilon_per_release=2.001, seeded=True)
    kit = _kit(tmp_path / "kit", _long(panel()))
    (kit / TERMS).write_text(terms.to_toml())
    work, settings = SiteWork(kit), small_settings(epsilon=2.0)
    _rows(work, _task(settings, "1111"))
    parts, _ = work.answer(_task(settings, "1111", number=2, enrolled=6))
    assert json.loads(parts["about"])["code"] == Code.REFUSED_EPSILON, "q is 1, not 1/2"


def _weeks(kit: Path, rows: pl.DataFrame, ahead: int = 0) -> Vector:
    """What a site sends after it was given its file on fifteen mornings.

    The newest day is half complete; `other` may be some days ahead.
    """
    cases, task = panel(), settings_of("real-time", epsilon=2.0)
    for back in range(14, -1, -1):
        newest = cases.end - timedelta(days=back)
        own = pl.when(pl.col("region") == MINE[1]).then(ahead).otherwise(0)
        given = rows.filter(pl.col("day") <= newest + pl.duration(days=own))
        half = pl.when(pl.col("day") == newest).then((pl.col("cases") / 2).floor())
        given = given.with_columns(half.otherwise("cases").alias("cases"))
        given.rename({"day": "date"}).write_csv(kit / "cases.csv")
        found = _rows(SiteWork(kit), _task(task, "1111", last_day=str(newest)))
    return found


@pytest.fixture(scope="module")
def two_weeks(tmp_path_factory: pytest.TempPathFactory) -> Vector:
    rows = _long(panel())
    return _weeks(_kit(tmp_path_factory.mktemp("two") / "weeks", rows), rows)


def test_a_site_keeps_what_it_was_given_and_uses_it_once_it_is_enough(tmp_path: Path) -> None:
    rows = _long(panel())
    kept, anew = (_kit(tmp_path / name, rows) for name in ("kept", "anew"))
    later = _weeks(kept, rows)
    assert [count_vintages(archive_of(kept, client)) for client in MINE] == [15] * 4
    shutil.copy(kept / "cases.csv", anew / "cases.csv")
    first = _rows(SiteWork(anew), _task(settings_of("real-time", epsilon=2.0), "1111"))
    assert later.shape == first.shape
    assert all(not np.allclose(*both) for both in zip(later, first, strict=True))


@pytest.mark.parametrize("what", ["absent", "gone", "new", "in halves", "ahead"])
def test_over_weeks_too_one_client_changes_its_own_vector_and_nobody_elses(
    tmp_path: Path, what: str, two_weeks: Vector
) -> None:
    rows, other = _long(panel()), pl.col("region") == MINE[1]
    lately = pl.col("day") > panel().end - timedelta(days=10)
    changed = {
        "absent": rows.filter(~other),
        "gone": rows.filter(~(other & lately)),
        "new": rows.filter(~other | lately),
        "in halves": rows.with_columns(cases=pl.col("cases") + 0.5 * other.cast(pl.Float64)),
        "ahead": rows,
    }[what]
    before = two_weeks
    after = _weeks(_kit(tmp_path / "changed", changed), changed, 1 if what == "ahead" else 0)
    others = [i for i, client in enumerate(MINE) if client != MINE[1]]
    np.testing.assert_array_equal(after[others], before[others])
    assert not np.array_equal(after[1], before[1])


@pytest.mark.parametrize("weekday", range(7))
def test_weeks_dated_by_any_day_are_the_weeks_of_one_process(tmp_path: Path, weekday: int) -> None:
    """A period that begins within a week holds that week: none is lost by its date."""
    start = panel().start + timedelta(days=(weekday - panel().start.weekday()) % 7)
    counts = np.random.default_rng(weekday).poisson(50, (12, 20)).astype(np.float64)
    weeks = CasePanel(counts, panel().regions, start, step="week")
    settings = Settings.for_learner("trend", 12, step="week", epsilon=2.0)
    learner = make_learner(settings)
    first, last = weeks.day(4), weeks.end
    work = SiteWork(_kit(tmp_path / "kit", _long(weeks)))
    rows = _rows(work, _task(settings, "1111", first_day=str(first), last_day=str(last)))
    view = learner.deployed_view(weeks, (first, last))
    state = learner.start(seed_sequence(settings.seed))
    whole = contribution(learner, state, view, PrivacyPlan.of(settings, 12))
    np.testing.assert_array_equal(rows, whole[::3])
