"""Neighbouring data sets and long periods through the real transport."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from epifed.federation.server import Order
from epifed.learners.base import Vector, make_learner
from epifed.privacy.plan import PrivacyPlan
from epifed.registry import LEARNERS
from epifed.rehearsal.local import LocalFederation
from epifed.settings import Settings, seed_sequence
from epifed.training.release import Release, read_release
from epifed.training.rounds import contribution
from tests.commands import epifed
from tests.federation.helpers import REGIONS, federation
from tests.helpers import small_panel, small_settings

pytestmark = pytest.mark.field

CASES = small_panel(REGIONS, 200)
PERIOD = (CASES.end - timedelta(days=179), CASES.end)
"""180 days with Christmas in them and Easter Monday at the end, of 200 that the sites have."""
SITE, CLIENT = "site-2", "00005"


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFederation]:
    folder = tmp_path_factory.mktemp("neighbours")
    with federation(folder, 2, cases=CASES) as local:
        yield local


def _release(local: LocalFederation, name: str) -> Release:
    return read_release(local.kit("site-1") / "models" / f"{name}.epifed")


@pytest.mark.parametrize("learner", ["trend"])
def test_the_commands_of_a_federation_and_of_one_process_make_the_same_release(
    local: LocalFederation, tmp_path: Path, learner: str
) -> None:
    data, wanted, made = tmp_path / "cases.csv", tmp_path / "wanted.toml", tmp_path / "made.epifed"
    CASES.to_table().write_csv(data)
    places = list(LEARNERS.load(learner).facts(CASES)["places"])
    wanted.write_text(f'learner = "{learner}"\nepsilon = 2.0\nseed = 7\nplaces = {places}\n')
    days = ("--seeded", "--from", str(PERIOD[0]), "--to", str(PERIOD[1]))
    epifed("train", "--data", data, "--settings", wanted, "--out", made, *days, expect=0)
    where = ("--federation", local.folder / "federation.toml", "--kit", local.desk.kit)
    epifed("federation", "train", wanted, *where, "--name", f"long-{learner}", *days, expect=0)
    here, there = read_release(made), _release(local, f"long-{learner}")
    np.testing.assert_allclose(there.vector, here.vector, rtol=1.3e-6, atol=1e-6)
    assert there.vector.any()
    assert there.settings == here.settings
    assert (there.first_day, there.last_day) == (here.first_day, here.last_day) == PERIOD
    assert there.epsilon == pytest.approx(here.epsilon, rel=1e-9)


def _train(local: LocalFederation, name: str, settings: Settings) -> Vector:
    status = local.train(Order.of(name, settings, *PERIOD, seeded=True))
    assert [line["problems"] for line in status["lines"]] == [[]]  # type: ignore[attr-defined]
    return _release(local, name).vector


def test_one_clients_rows_move_the_released_state_by_at_most_its_clipped_vector(
    local: LocalFederation,
) -> None:
    settings = small_settings(rounds=1, epsilon=2.0, clients_per_round=REGIONS)
    assert len(local.federation.site(SITE).clients) == REGIONS // 2
    learner = make_learner(settings)
    initial, *_ = seed_sequence(settings.seed).spawn(3)
    view = learner.deployed_view(CASES, PERIOD)
    sent = contribution(learner, learner.start(initial), view, PrivacyPlan.of(settings, REGIONS))
    own = sent[CASES.regions.index(CLIENT)]
    path = local.folder / "data" / f"{SITE}.csv"
    rows = pl.read_csv(path, schema_overrides={"region": pl.String})
    mine, early = pl.col("region") == CLIENT, pl.col("date") < str(PERIOD[1])
    whole = _train(local, "whole", settings)
    for name, kept in (("absent", rows.filter(~mine)), ("short", rows.filter(~mine | early))):
        assert len(kept) < len(rows)
        kept.write_csv(path)
        moved = whole - _train(local, name, settings)
        assert 0 < np.linalg.norm(moved) <= settings.clip_norm / REGIONS * (1 + 1e-4), name
        np.testing.assert_allclose(moved, own / REGIONS, atol=1e-6, err_msg=name)
