from datetime import date, timedelta
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from epifed.clients import make_clients
from epifed.errors import EpifedError
from epifed.panel import CasePanel
from epifed.settings import PERIODS, Settings, Smoothing
from epifed.windows import smooth
from tests.helpers import START, small_panel


def counting_panel(days: int, regions: int = 3, start: date = START) -> CasePanel:
    """Region k has 1000·k + t cases on day t: every value says where it came from."""
    counts = 1000 * np.arange(regions, dtype=np.float64)[:, None] + np.arange(days)
    return CasePanel(counts=counts, regions=tuple("abc"[:regions]), start=start)


@pytest.mark.parametrize("how", ["centered", "trailing"])
@given(counts=arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(1, 30)),
                     elements=st.floats(0, 1e6)))  # fmt: skip
def test_smooth_is_the_mean_of_the_days_it_says(how: str, counts: np.ndarray) -> None:
    got = smooth(counts, how)  # type: ignore[arg-type]
    for t in range(counts.shape[1]):
        days = range(t - 3, t + 4) if how == "centered" else range(t - 6, t + 1)
        there = [d for d in days if 0 <= d < counts.shape[1]]
        np.testing.assert_allclose(got[:, t], counts[:, there].mean(axis=1), atol=1e-6, rtol=1e-9)


def test_trailing_average_does_not_see_the_future_and_centered_sees_three_days() -> None:
    counts = np.ones((1, 40))
    spike = counts.copy()
    spike[0, 20] = 100
    changed = {
        how: np.flatnonzero(smooth(spike, how)[0] != smooth(counts, how)[0])
        for how in get_args(Smoothing)
    }
    assert changed["none"].tolist() == [20]
    assert changed["trailing"].tolist() == list(range(20, 27))
    assert changed["centered"].tolist() == list(range(17, 24))


def test_a_window_is_h_days_and_its_target_p_days_after_the_last() -> None:
    settings = Settings.of(smoothing="none", window=4, horizon=3)
    clients = make_clients(counting_panel(20), settings)
    for windows in (clients.train, clients.test):
        for k in range(3):
            for inputs, target, day in zip(
                windows.inputs[k], windows.targets[k], windows.target_days[k], strict=True
            ):
                last = int(inputs[-1]) - 1000 * k
                assert inputs.tolist() == [1000 * k + last - 3 + i for i in range(4)]
                assert target == 1000 * k + last + 3
                assert day == np.datetime64(START + timedelta(days=last + 3))


@pytest.mark.parametrize(("period", "train", "test"), [("2020-11", 12, 2), ("2022-03", 13, 2)])
def test_the_paper_s_periods_give_the_authors_numbers_of_windows(
    period: str, train: int, test: int
) -> None:
    panel = counting_panel(700, start=date(2020, 10, 1))
    clients = make_clients(panel, Settings.paper(), PERIODS[period])
    assert clients.train.targets.shape == (3, train)
    assert clients.test.targets.shape == (3, test)
    first = PERIODS[period][0]
    assert clients.train.target_days[0, 0] == np.datetime64(first + timedelta(days=10 + 7))
    assert clients.test.target_days[0, -1] == np.datetime64(PERIODS[period][1])


def test_temporal_split_tests_on_later_days_only() -> None:
    clients = make_clients(small_panel(), Settings())
    assert (clients.train.target_days.max(axis=1) < clients.test.target_days.min(axis=1)).all()


def test_shuffled_split_is_per_client_repeatable_and_loses_nothing() -> None:
    settings = Settings.of(split="shuffled", smoothing="none")
    panel = counting_panel(40)
    one = make_clients(panel, settings, shuffle=np.random.default_rng(1))
    again = make_clients(panel, settings, shuffle=np.random.default_rng(1))
    other = make_clients(panel, settings, shuffle=np.random.default_rng(2))
    assert (one.test.targets == again.test.targets).all()
    assert (one.test.targets != other.test.targets).any()
    days = np.concatenate([one.train.target_days, one.test.target_days], axis=1)
    assert all(len(set(row)) == days.shape[1] for row in days)
    assert len({tuple(row) for row in one.test.target_days.tolist()}) > 1


def test_smoothing_comes_before_the_cut() -> None:
    counts = np.zeros((1, 60))
    counts[0, 29] = 7.0
    panel = CasePanel(counts=counts, regions=("a",), start=START)
    period = (START + timedelta(days=30), START + timedelta(days=59))
    clients = make_clients(panel, Settings(), period)
    assert clients.train.inputs[0, 0, 0] == pytest.approx(1.0)


def test_nothing_after_the_period_reaches_a_trailing_client() -> None:
    panel = small_panel(days=60)
    period = (START, START + timedelta(days=39))
    spiked = panel.counts.copy()
    spiked[:, 40:] += 1e6
    later = CasePanel(counts=spiked, regions=panel.regions, start=START)
    for split in ("temporal", "shuffled"):
        one = make_clients(panel, Settings.of(split=split), period)
        two = make_clients(later, Settings.of(split=split), period)
        assert (one.train.inputs == two.train.inputs).all()
        assert (one.test.targets == two.test.targets).all()


@pytest.mark.parametrize(
    ("days", "settings", "words"),
    [
        (16, Settings(), "found 16 days .* expected at least 17"),
        (17, Settings(), "found 1 windows per region .* expected at least 2"),
        (27, Settings.paper(), "found 10 windows per region .* expected at least 11"),
        (20, Settings.of(train_share=0.01), "leaves 0 to train"),
    ],
)
def test_too_few_days_are_refused(days: int, settings: Settings, words: str) -> None:
    period = (START, START + timedelta(days=days - 1))
    with pytest.raises(EpifedError, match=words) as error:
        make_clients(small_panel(days=days), settings, period)
    assert "\n" not in str(error.value)


def test_a_period_outside_the_panel_is_refused() -> None:
    with pytest.raises(EpifedError, match="expected all of 2022-03-01 … 2022-04-01"):
        make_clients(small_panel(), Settings(), PERIODS["2022-03"])
