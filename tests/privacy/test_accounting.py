"""The accountants against independent oracles: Opacus, the appendix's integrals, closed forms."""

import importlib
import logging
import math
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dp_accounting as dp
import mpmath
import numpy as np
import pytest
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp, ndtr

import epifed
from epifed.errors import EpifedError
from epifed.privacy import accounting
from epifed.privacy import accounting as accountants
from epifed.privacy.accounting import (
    ORDERS,
    TOLERANCE,
    calibrate,
    epsilon_of,
    priced,
    round_event,
    rounded_up,
    spent,
    training_event,
)

Q, T, DELTA = 0.25, 75, 1e-5
SOURCE = Path(epifed.__file__).parents[1]

few = settings(max_examples=10)
fewer = settings(few, max_examples=4)
rates = st.floats(0.01, 0.99)
noises = st.floats(0.8, 40)
lengths = st.integers(1, 300)


@pytest.fixture(autouse=True, scope="module")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EPIFED_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def python(code: str, cache: Path, *options: str) -> "subprocess.Popen[str]":
    environment = os.environ | {"EPIFED_CACHE": str(cache), "PYTHONPATH": str(SOURCE)}
    return subprocess.Popen(
        [sys.executable, *options, "-c", code],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(
    ("epsilon", "accountant", "printed"),
    [
        (0.2, "rdp", "39.14"),
        (0.3, "rdp", "26.81"),
        (0.5, "rdp", "16.78"),
        (1, "rdp", "8.956"),
        (2, "rdp", "4.863"),
        (5, "rdp", "2.302"),
        (2, "pld", "4.505"),
    ],
)
def test_noise_of_the_paper(epsilon: float, accountant: str, printed: str) -> None:
    found = calibrate(epsilon, DELTA, Q, T, accountant)
    assert f"{found.noise_multiplier:.4g}" == printed
    again = spent(found.noise_multiplier, Q, T, DELTA, accountant)
    assert found.epsilon_spent == again <= epsilon
    assert spent(found.noise_multiplier * (1 - 2 * TOLERANCE), Q, T, DELTA, accountant) > epsilon


# The appendix, by hand


def log_moment(q: float, c: float, order: float, *, removed: bool = False) -> float:
    """log A_α of Theorem 1, or log B_α: a trapezium sum, which is spectrally exact here."""
    z, step = np.linspace(-12 * c, 12 * c + order, 4001, retstep=True)
    log_0 = -(z**2) / (2 * c**2) - math.log(c * math.sqrt(2 * math.pi))
    log_ratio = np.logaddexp(math.log1p(-q), math.log(q) + (2 * z - 1) / (2 * c**2))
    power = (1 - order) if removed else order
    return float(logsumexp(log_0 + power * log_ratio) + math.log(step))


def epsilon_by_the_appendix(q: float, c: float, rounds: int, delta: float) -> float:
    """Theorem 4, from Theorems 1, 2 and 3."""
    return min(
        rounds * log_moment(q, c, order) / (order - 1)
        + math.log((order - 1) / order)
        - (math.log(delta) + math.log(order)) / (order - 1)
        for order in ORDERS
    )


@pytest.mark.parametrize("order", [1.5, 2, 4.9, 9.9, 17, 63])
def test_the_moments_by_mpmath(order: float) -> None:
    q, c = mpmath.mpf(Q), mpmath.mpf(4.863)

    def integrand(z: mpmath.mpf) -> mpmath.mpf:
        ratio = 1 - q + q * mpmath.exp((2 * z - 1) / (2 * c**2))
        return mpmath.npdf(z, 0, c) * ratio**order

    with mpmath.workdps(30):
        exact = mpmath.log(mpmath.quad(integrand, mpmath.linspace(-80, 160, 13)))
    assert log_moment(Q, 4.863, order) == pytest.approx(float(exact), rel=1e-9)


@pytest.mark.parametrize(
    ("q", "c", "rounds", "delta"),
    [
        (0.25, 39.14, 75, 1e-5),
        (0.25, 8.956, 75, 1e-5),
        (0.25, 4.863, 75, 1e-5),
        (0.25, 2.302, 75, 1e-5),
        (0.05, 1.1, 200, 1e-6),
        (0.7, 12.0, 30, 1e-4),
    ],
)
def test_the_price_is_theorem_4(q: float, c: float, rounds: int, delta: float) -> None:
    ours, by_hand = spent(c, q, rounds, delta), epsilon_by_the_appendix(q, c, rounds, delta)
    assert ours == pytest.approx(by_hand, rel=1e-3)
    assert ours >= by_hand * (1 - 1e-9)


@few
@given(rates, st.floats(0.8, 20), st.sampled_from(ORDERS))
def test_adding_a_client_costs_no_more_than_removing(q: float, c: float, order: float) -> None:
    log_a, log_b = log_moment(q, c, order), log_moment(q, c, order, removed=True)
    assert log_b <= log_a + 1e-12


# Opacus


@few
@given(rates, noises, lengths)
def test_whole_orders_as_opacus(q: float, c: float, rounds: int) -> None:
    whole = tuple(order for order in ORDERS if float(order).is_integer())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accountants, "ORDERS", whole)
        ours = spent(c, q, rounds, DELTA)
    assert ours == pytest.approx(opacus_epsilon(q, c, rounds, whole), rel=1e-8)


@few
@given(rates, noises, lengths)
def test_never_below_opacus(q: float, c: float, rounds: int) -> None:
    """Opacus keeps the signs of the series of a fractional order, dp-accounting bounds it."""
    ours, theirs = spent(c, q, rounds, DELTA), opacus_epsilon(q, c, rounds, ORDERS)
    assert ours >= theirs * (1 - 1e-9)
    if theirs < 5:
        assert ours == pytest.approx(theirs, rel=2e-3)


def opacus(part: str) -> Any:
    """A part of its accountants; importing it takes a second, which one worker spends."""
    return importlib.import_module(f"opacus.accountants.{part}")


def opacus_epsilon(q: float, c: float, rounds: int, orders: tuple[float, ...]) -> float:
    rdp = opacus("analysis.rdp")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        divergences = rdp.compute_rdp(q=q, noise_multiplier=c, steps=rounds, orders=orders)
        return float(rdp.get_privacy_spent(orders=orders, rdp=divergences, delta=DELTA)[0])


def test_calibrated_as_opacus() -> None:
    theirs = opacus("utils").get_noise_multiplier(
        target_epsilon=2,
        target_delta=DELTA,
        sample_rate=Q,
        steps=T,
        accountant="rdp",
        epsilon_tolerance=0.001,
    )
    assert calibrate(2, DELTA, Q, T).noise_multiplier == pytest.approx(theirs, rel=1e-3)


# The privacy loss distribution


def gaussian_delta(epsilon: float, c: float) -> float:
    """δ(ε) of one Gaussian release (Balle and Wang 2018, Theorem 8)."""
    first = ndtr(1 / (2 * c) - epsilon * c)
    second = math.exp(epsilon) * ndtr(-1 / (2 * c) - epsilon * c)
    return float(first - second)


@pytest.mark.parametrize("c", [0.5, 2, 10, 75, 1000])
@pytest.mark.parametrize("rounds", [1, 9])
def test_pld_of_the_plain_gaussian_is_exact(c: float, rounds: int) -> None:
    epsilon = spent(c * math.sqrt(rounds), 1, rounds, DELTA, "pld")
    assert gaussian_delta(epsilon, c) <= DELTA
    assert gaussian_delta(epsilon * 0.999, c) > DELTA


@fewer
@given(rates, noises, lengths)
def test_pld_is_tighter(q: float, c: float, rounds: int) -> None:
    assert spent(c, q, rounds, DELTA, "pld") <= spent(c, q, rounds, DELTA, "rdp")


@pytest.mark.parametrize("accountant", ["rdp", "pld"])
@pytest.mark.parametrize("epsilon", [0.05, 0.1])
def test_one_shot_with_a_small_budget(epsilon: float, accountant: str) -> None:
    found = calibrate(epsilon, DELTA, 1, 1, accountant)
    assert gaussian_delta(epsilon, found.noise_multiplier) <= DELTA
    assert 0.99 * epsilon < found.epsilon_spent <= epsilon


# What any accountant must do


@pytest.mark.parametrize("accountant", ["rdp", "pld"])
@fewer
@given(rates, noises, lengths, st.floats(1.02, 3))
def test_more_noise_costs_less_and_more_rounds_cost_more(
    accountant: str, q: float, c: float, rounds: int, factor: float
) -> None:
    price = spent(c, q, rounds, DELTA, accountant)
    assert spent(c * factor, q, rounds, DELTA, accountant) <= price
    assert spent(c, q, math.ceil(rounds * factor), DELTA, accountant) >= price


@fewer
@given(st.floats(0.05, 8), rates, lengths, st.sampled_from([1e-4, 1e-5, 1e-7]))
def test_a_budget_is_used_and_never_overspent(
    epsilon: float, q: float, rounds: int, delta: float
) -> None:
    found = calibrate(epsilon, delta, q, rounds)
    assert 0.99 * epsilon < found.epsilon_spent <= epsilon
    assert spent(found.noise_multiplier, q, rounds, delta) == found.epsilon_spent


@pytest.mark.parametrize("accountant", ["rdp", "pld"])
def test_events_compose(accountant: str) -> None:
    halves = dp.ComposedDpEvent([training_event(Q, 5, 30), training_event(Q, 5, 45)])
    whole = spent(5, Q, 75, DELTA, accountant)
    assert epsilon_of(halves, DELTA, accountant) == pytest.approx(whole, rel=1e-6)
    other = dp.ComposedDpEvent([training_event(Q, 5, 75), training_event(1, 20, 1)])
    assert epsilon_of(other, DELTA, accountant) > whole * 1.001


@pytest.mark.parametrize("accountant", ["rdp", "pld"])
def test_nothing_costs_nothing_and_no_noise_has_no_price(accountant: str) -> None:
    assert epsilon_of(dp.NoOpDpEvent(), DELTA, accountant) == 0
    assert epsilon_of(dp.NonPrivateDpEvent(), DELTA, accountant) == math.inf
    assert spent(0, Q, T, DELTA, accountant) == math.inf
    assert spent(0, 1, T, DELTA, accountant) == math.inf


def test_a_round_without_sampling_is_a_gaussian() -> None:
    assert round_event(1, 3.0) == dp.GaussianDpEvent(3.0)
    assert round_event(1, 1e-6) == dp.GaussianDpEvent(1e-6)
    assert round_event(0.5, 3.0) == dp.PoissonSampledDpEvent(0.5, dp.GaussianDpEvent(3.0))


def test_rounding_does_not_make_privacy_free() -> None:
    event = training_event(1e-7, 1.0, 1)
    with accountants.hushed("absl"):
        assert RdpAccountant().compose(event).get_epsilon(DELTA) == 0
    assert epsilon_of(event, DELTA) > 0.1


def test_no_privacy_asks_for_no_noise() -> None:
    found = calibrate(math.inf, DELTA, Q, T)
    assert (found.noise_multiplier, found.epsilon_spent, found.order) == (0, math.inf, None)
    assert found.sentence().startswith("no differential privacy (ε = ∞)")


def test_the_sentence() -> None:
    found = calibrate(2, DELTA, Q, T)
    assert found.sentence() == (
        "(ε = 2, δ = 1e-05)-differential privacy, one client added or removed, by the Rényi "
        "accountant (RDP): noise multiplier c = 4.863 at q = 0.25 over 75 rounds"
    )
    assert found.order == pytest.approx(9.9)
    assert (found.neighbouring, found.unit) == ("add or remove one client", "one client")
    once = priced(2.0, 1, 1, DELTA, "pld").sentence()
    assert "privacy loss distribution accountant (PLD)" in once
    assert once.endswith("over 1 round")


@given(st.floats(1e-6, 1e6))
def test_a_printed_epsilon_is_never_too_small(epsilon: float) -> None:
    assert epsilon <= float(rounded_up(epsilon)) <= epsilon * (1 + 1e-5)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": -1}, "epsilon"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"epsilon": 1e-300, "accountant": "pld"}, "epsilon"),
        ({"epsilon": 0.001}, "more than 0.0035"),
        ({"epsilon": 1e7}, "epsilon"),
        ({"delta": 0}, "delta"),
        ({"delta": 1}, "delta"),
        ({"delta": math.nan}, "delta"),
        ({"delta": 1e-20, "accountant": "pld"}, "delta"),
        ({"sampling_rate": 0}, "sampling rate"),
        ({"sampling_rate": 1.01}, "sampling rate"),
        ({"epsilon": math.inf, "sampling_rate": 0}, "sampling rate"),
        ({"epsilon": math.inf, "rounds": 0}, "rounds"),
        ({"epsilon": math.inf, "delta": 0}, "delta"),
        ({"rounds": 0}, "rounds"),
        ({"rounds": 1.5}, "rounds"),
        ({"accountant": "gdp"}, "accountant"),
    ],
)
def test_nonsense_is_refused(changes: dict[str, object], word: str) -> None:
    asked = {"epsilon": 2, "delta": DELTA, "sampling_rate": Q, "rounds": T} | changes
    with pytest.raises(EpifedError, match=word) as refusal:
        calibrate(**asked)  # type: ignore[arg-type]
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("c", [-1, 1e-200, 9.9e-7, math.inf, math.nan])
def test_a_noise_that_is_none_is_refused(c: float) -> None:
    with pytest.raises(EpifedError, match="noise multiplier"):
        spent(c, Q, T, DELTA)


def test_an_event_no_accountant_knows_is_refused() -> None:
    with pytest.raises(EpifedError, match="expected one that RdpAccountant can price"):
        epsilon_of(dp.UnsupportedDpEvent(), DELTA)


# Silence and memory


def test_only_our_own_call_is_silent(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    spent(0.6, Q, T, DELTA)
    assert not caplog.records
    assert capfd.readouterr().err == ""
    RdpAccountant().compose(training_event(Q, 0.6, T))
    assert "failed to converge" in caplog.text
    assert not logging.getLogger("absl").filters


@pytest.mark.field
def test_processes_share_what_they_found(tmp_path: Path) -> None:
    code = (
        "from epifed.privacy.accounting import calibrate;"
        f"print(calibrate(4, {DELTA}, {Q}, {T}).noise_multiplier)"
    )
    together = [python(code, tmp_path, "-W", "error") for _ in range(2)]
    answers = [process.communicate() for process in together]
    assert len(set(answers)) == 1
    assert answers[0][1] == ""

    locked = f"import epifed.privacy.accounting as a; a._price = None; {code}"
    assert python(locked, tmp_path).communicate() == answers[0]


def searches(monkeypatch: pytest.MonkeyPatch, cache: Path) -> int:
    """How many prices a calibration asks for when this process remembers nothing."""
    prices = 0
    price = accounting._price

    def counted(*arguments: object) -> tuple[float, float | None]:
        nonlocal prices
        prices += 1
        return price(*arguments)  # type: ignore[arg-type]

    accounting._remembered.cache_clear()
    accounting._method.cache_clear()
    with monkeypatch.context() as patch:
        patch.setenv("EPIFED_CACHE", str(cache))
        patch.setattr(accounting, "_price", counted)
        assert f"{calibrate(2, DELTA, Q, T).noise_multiplier:.4g}" == "4.863"
    return prices


def test_remembered_until_the_library_changes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert searches(monkeypatch, tmp_path) > 0
    assert searches(monkeypatch, tmp_path) == 0
    with monkeypatch.context() as patch:
        patch.setattr(accounting, "version", lambda _: "99.0")
        assert searches(monkeypatch, tmp_path) > 0
    accounting._method.cache_clear()


def test_a_broken_memory_is_mended_silently(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    searches(monkeypatch, tmp_path)
    for pickled in tmp_path.rglob("output.pkl"):
        pickled.write_bytes(b"broken")
    assert searches(monkeypatch, tmp_path) > 0
    assert searches(monkeypatch, tmp_path) == 0
    assert not caplog.records


def test_no_place_to_remember(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    assert searches(monkeypatch, blocked) > 0
    assert blocked.read_bytes() == b""
    assert not recwarn.list


def test_a_folder_half_writable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    (tmp_path / "calibration").mkdir()
    (tmp_path / "calibration" / ".gitignore").symlink_to(tmp_path / "nowhere" / "file")
    assert searches(monkeypatch, tmp_path) > 0
    assert not recwarn.list


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_folder_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert searches(monkeypatch, tmp_path) > 0


def test_the_filter_of_gaussian_releases_counts_exactly_and_refuses_the_rest() -> None:
    two = dp.SelfComposedDpEvent(dp.GaussianDpEvent(2.0), 2)
    nothing = dp.NoOpDpEvent()
    assert accounting.squared_mu(dp.ComposedDpEvent([two, nothing])) == pytest.approx(0.5)
    assert accounting.squared_mu(dp.GaussianDpEvent(0.0)) == math.inf
    assert accounting.epsilon_of_gaussian(0.0, DELTA) == 0.0
    assert accounting.epsilon_of_gaussian(math.inf, DELTA) == math.inf
    for event, words in (
        (dp.PoissonSampledDpEvent(0.5, two), "sampling rate: found 0.5"),
        (dp.LaplaceDpEvent(1.0), "expected Gaussian releases"),
    ):
        with pytest.raises(EpifedError, match=words):
            accounting.squared_mu(event)


def test_a_budget_that_no_noise_reaches_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    budget = (1.0, DELTA, Q, T, "rdp")
    assert accounting._search(budget, "")[1] <= 1
    monkeypatch.setattr(accounting, "_WIDENINGS", 0)
    with pytest.raises(EpifedError, match=r"no noise multiplier up to .* reaches it at δ = 1e-05"):
        accounting._search(budget, "")


@given(st.floats(0.01, 8), st.sampled_from([1e-3, 1e-5]))
@few
def test_two_formulas_of_a_gaussian_s_price_agree(mu: float, delta: float) -> None:
    one, other = (
        accounting.gaussian_epsilon(mu, delta),
        accounting.epsilon_of_gaussian(mu**2, delta),
    )
    assert one == pytest.approx(other, rel=1e-6, abs=1e-8)


def test_errors_that_tell_nothing_bound_nothing() -> None:
    blind = accounting.Errors(0.5, 0.5)
    assert accounting.gaussian_mu(blind) == accounting.gaussian_epsilon(0.0, DELTA) == 0
    assert accounting.direct_epsilon(accounting.Errors(1.0, 0.0), DELTA) == 0
    assert accounting.right_at_most(0.5) == 0.75
    hardly = accounting.Errors(0.4999, 0.4999)
    assert 0 <= accounting.sampled_gaussian_epsilon(hardly, DELTA, 0.5, 4) < 0.05
    for errors, found in ((blind, False), (hardly, False), (accounting.Errors(0.01, 0.01), True)):
        assert accounting.impossible(errors, 2.0, 0.5, 4) == found
