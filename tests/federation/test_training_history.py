"""A release unlike those of the weeks before is said to be so, and stands."""

import math
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from epifed.federation import site
from epifed.federation.secure_training import LEAST_WEEKS, keep, unlike
from epifed.federation.server import ORDER, Order
from epifed.ledger.budget import Cap
from epifed.ledger.ledger import Ledger
from epifed.privacy import noise
from tests.federation.helpers import panel, plan, settings_of
from tests.federation.parties import Parties, spent

CHOSEN: dict[str, Any] = {"epsilon": 400.0, "noise": "aggregators", "aggregators": 2}
CHOSEN |= {"clients_per_round": 12}
"""Everybody is drawn, and noise is a tenth of the least spread: 50 deviations to a false alarm."""


def _week(back: int, **changes: Any) -> Order:
    order = plan(f"week-{20 - back}", settings_of("trend", **CHOSEN | changes), seeded=False)
    return replace(order, last_day=panel().end - timedelta(days=back))


def _kept(folder: Path, weeks: list[list[float]], **changes: Any) -> None:
    for back, numbers in enumerate(reversed(weeks), start=1):
        order = _week(back, **changes)
        (folder / order.training).mkdir()
        (folder / order.training / ORDER).write_text(order.to_json())
        keep(folder / order.training, 1, np.array(numbers))


def _said(folder: Path, now: NDArray[np.float64], noise_std: float = 0.0) -> bool:
    return unlike(folder / "now", _week(0), 1, now, noise_std)


WEEKS = [[0.1, 0.3], [0.12, 0.31], [0.08, 0.29], [0.11, 0.3], [0.1, 0.3]]


def test_it_takes_some_weeks_a_distance_and_less_noise(tmp_path: Path) -> None:
    _kept(tmp_path, WEEKS)
    clip = _week(0).settings.clip_norm
    near, far = np.array([0.1 + 0.2 * clip, 0.3]), np.array([0.1, 0.3 - clip])
    assert not _said(tmp_path, near)
    assert _said(tmp_path, far)
    assert not _said(tmp_path, far, noise_std=clip)
    assert not unlike(tmp_path / "now", _week(0), 2, far, 0.0), "of another round"


@pytest.mark.parametrize("noise_std", [0.0, 0.02])
def test_the_distance_is_six_deviations_of_weeks_noise_and_a_twentieth_of_the_bound(
    tmp_path: Path, noise_std: float
) -> None:
    _kept(tmp_path, [[0.0, 0.0], [0.3, 0.0], [0.5, 0.0], [0.6, 0.0], [0.9, 0.0]])
    usual = 1.4826 * 0.2  # the median of the distances 0.5, 0.2, 0, 0.1 and 0.4 from 0.5
    clip = _week(0).settings.clip_norm
    far = 6 * math.sqrt(usual**2 + noise_std**2 + (0.05 * clip) ** 2)
    for sign in (-1, 1):
        assert not _said(tmp_path, np.array([0.5 + sign * far * (1 - 1e-9), 0.0]), noise_std)
        assert _said(tmp_path, np.array([0.5 + sign * far * (1 + 1e-9), 0.0]), noise_std)


def test_what_is_not_comparable_is_not_compared(tmp_path: Path) -> None:
    far = np.array([5.0, 5.0])
    for name, weeks, changes in (
        ("few", WEEKS[: LEAST_WEEKS - 1], {}),
        ("clipped otherwise", WEEKS, {"clip_norm": 0.123}),
        ("longer", [[*week, 0.0] for week in WEEKS], {}),
    ):
        (tmp_path / name).mkdir()
        _kept(tmp_path / name, weeks, **changes)
        assert not _said(tmp_path / name, far)


def test_an_earlier_week_that_cannot_be_read_stops_nothing(tmp_path: Path) -> None:
    _kept(tmp_path, [*WEEKS, *WEEKS])
    far = np.array([5.0, 5.0])
    (tmp_path / "week-19" / ORDER).write_text('{"training": "week-19"}')
    (tmp_path / "week-18" / ORDER).write_text("{")
    (tmp_path / "week-17" / ORDER).unlink()
    (tmp_path / "week-16" / "released" / "1.npy").write_bytes(b"torn")
    assert _said(tmp_path, far)


def test_of_a_long_release_the_norm_is_compared(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    _kept(tmp_path, [list(rng.normal(0, 0.01, 500)) for _ in range(5)])
    assert not _said(tmp_path, rng.normal(0, 0.01, 500))
    assert _said(tmp_path, rng.normal(0, 1.0, 500))


def test_a_site_that_lies_within_the_bound_is_noticed_by_the_weeks_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger.create(tmp_path / "server.ledger", Cap(1e6, 1e-5, "rdp"))
    parties = Parties.make(tmp_path)
    reasons: list[Any] = []
    grid = noise.to_grid

    def lying(*args: Any) -> NDArray[np.int64]:
        steps = grid(*args)
        steps[:, 0] = 2**24 * 4 // 5
        return steps

    for back in range(6, -1, -1):
        training = parties.training(_week(back), ledger)
        if back == 0:
            monkeypatch.setattr(site, "to_grid", lying)
        training.play(parties, lambda line: reasons.append(line["problems"]))
    assert reasons == [*[[]] * 6, [{"site": "all", "reason": "unusual"}]]
    assert spent(ledger.path) == 7
