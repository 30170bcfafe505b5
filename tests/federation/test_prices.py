"""What the coordinator's commands say of the price: both prices, and never less than they are."""

import json

import pytest

from epifed.cli.federation_train import TrainingProgress, outcome, price
from epifed.federation.messages import Code, most_bytes, unreceived

STATUS = {
    "training": "flu",
    "round": 3,
    "rounds": 3,
    "finished": True,
    "sites": ["north", "south"],
    "epsilon": 1.23454001,
    "epsilon_without_amplification": 8.7000001,
    "delta": 1e-5,
    "accountant": "rdp",
    "delivered": ["north"],
    "missing": ["south"],
    "undelivered": {"south": "message"},
    "noise": "server",
}


def test_a_status_tells_both_prices_rounded_up_and_who_has_no_release_and_why() -> None:
    said = outcome(STATUS)
    assert "ε = 1.23455 spent at δ = 1e-05 (one client added or removed, RDP accountant)" in said
    assert "against whoever sees who is drawn, the server: ε = 8.70001" in said
    assert "not yet at south (message)" in said
    assert "the model is at 1 site;" in said


def test_a_status_tells_whom_one_must_trust() -> None:
    assert "clients trust the server" in outcome(STATUS)
    sealed = STATUS | {"noise": "aggregators", "delivered": ["north", "sum-1"]}
    assert "clients trust no one alone" in outcome(sealed)
    assert "the model is at 2 parties" in outcome(sealed)


def test_one_price_is_told_once_and_none_is_no_privacy() -> None:
    assert "whoever" not in price(2.0, 2.0, 1e-5, "rdp")
    assert price(float("inf"), float("inf"), 1e-5, "rdp") == "no privacy"


def test_the_live_table_rounds_up() -> None:
    watching = TrainingProgress()
    line = {"round": 1, "sites": ["north"], "epsilon": 0.12345649, "problems": []}
    watching({"round": 1, "rounds": 3, "lines": [line]})
    assert list(watching.table().columns[2].cells) == ["0.123457"]


@pytest.mark.parametrize(
    ("about", "code"),
    [
        ('{"sha256": "abc"}', None),
        ('{"sha256": "abd"}', Code.MESSAGE),
        ('{"sha256": Infinity}', Code.MESSAGE),
        ("[" * 100_000, Code.MESSAGE),
        ("[]", Code.MESSAGE),
        (7, Code.MESSAGE),
        (None, Code.MESSAGE),
        (json.dumps({"code": "refused-seeded"}), Code.REFUSED_SEEDED),
        (json.dumps({"code": ["refused-seeded"]}), Code.MESSAGE),
    ],
)
def test_an_acknowledgement_that_is_none_has_a_code(about: object, code: Code | None) -> None:
    assert unreceived({"about": about}, "abc") == code


def test_an_answer_may_be_as_large_as_the_sites_vectors_and_little_more() -> None:
    assert 4_000_000 < most_bytes(100, 10_000) < 7_000_000
