"""What noise is to be expected before a training, and what would make it small."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from epifed.cli.app import app
from epifed.explain import explain
from epifed.learners.base import make_learner
from epifed.privacy.plan import PrivacyPlan
from epifed.settings import Settings
from epifed.training.loop import GOOD, NoisePreview, _percent, expect, train
from tests.helpers import small_panel


def expected(clients: int, epsilon: float, learner: str = "trend") -> NoisePreview | None:
    settings = Settings.for_learner(learner, clients, epsilon=epsilon)
    return expect(make_learner(settings), PrivacyPlan.of(settings, clients))


def test_the_noise_is_that_of_the_releases() -> None:
    """Many seeded releases of clients who all say nothing show the noise that was announced."""
    found = expected(16, 1.0)
    assert found is not None
    settings = Settings.for_learner("trend", 16, epsilon=1.0)
    learner = make_learner(settings)
    panel = small_panel(16)
    view = learner.deployed_view(panel, (panel.start, panel.end))
    said = [
        train(view, settings, seeds=np.random.SeedSequence(seed), learner=learner).state.values[
            0, 0
        ]
        for seed in range(400)
    ]
    assert 2 * float(np.std(said)) == pytest.approx(found.noise, rel=0.12)


@pytest.mark.parametrize(("clients", "epsilon"), [(16, 0.1), (53, 0.1), (16, 1.0)])
def test_what_is_advised_makes_the_noise_small(clients: int, epsilon: float) -> None:
    found = expected(clients, epsilon)
    assert found is not None and found.believed < GOOD
    assert found.epsilon_for_good is not None and found.clients_for_good is not None
    for better in (
        expected(clients, found.epsilon_for_good),
        expected(found.clients_for_good, epsilon),
    ):
        assert better is not None
        assert GOOD <= better.believed < GOOD + 0.02


def test_few_clients_are_told_that_little_is_bought_and_many_are_not() -> None:
    few, many = expected(16, 0.1), expected(400, 1.0)
    assert few is not None and many is not None
    assert "With 16 clients and ε = 0.1" in few.sentence()
    assert "noise hides most of it" in few.sentence()
    assert "or 2" in few.sentence() and "clients would make it 90 %" in few.sentence()
    assert "little" not in many.sentence() and many.clients_for_good is None


def test_nothing_is_said_without_noise_or_without_a_typical_signal() -> None:
    assert expected(16, math.inf) is None
    assert expected(16, 1.0, "one-shot") is None


def test_no_absurd_budget_is_advised() -> None:
    found = expected(1, 20.0)
    assert found is not None
    assert found.epsilon_for_good is None or found.epsilon_for_good <= 64
    assert found.clients_for_good is None or found.clients_for_good > 1


def test_it_is_said_before_a_training_after_it_and_of_a_file(tmp_path: Path) -> None:
    data = tmp_path / "cases.csv"
    small_panel(days=40).to_long().rename({"day": "date"}).write_csv(data)
    out = tmp_path / "m.epifed"
    arguments = ["train", "--data", str(data), "--learner", "trend", "--epsilon", "0.1",
                 "--seeded", "--out", str(out), "--json"]  # fmt: skip
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    words = "With 12 clients and ε = 0.1, noise moves the growth of a week"
    assert words in " ".join(done.stderr.split())
    assert json.loads(done.stdout)["expected_noise"]["believed"] < 0.1
    assert any(sentence.startswith(words) for sentence in explain(out).sentences())
    checked = CliRunner().invoke(app, ["data", "check", str(data), "--json"])
    budgets = [one["epsilon"] for one in json.loads(checked.stdout)["expected_noise"]]
    assert budgets == [1.0, 0.1]
    shown = CliRunner().invoke(app, ["data", "check", str(data)])
    assert words in " ".join(shown.stdout.split())


def test_effects_are_written_in_per_cent_of_two_digits() -> None:
    shares = (0.0123, 0.05, 0.094, 0.096, 0.5, 2.0)
    written = [_percent(math.log1p(share)) for share in shares]
    assert written == ["1.2 %", "5 %", "9.4 %", "10 %", "50 %", "200 %"]
    hopeless = NoisePreview(3, 0.1, "the growth of a week", 0.26, 6.5, None, 225)
    assert hopeless.to_dict()["sentence"] == hopeless.sentence()
    assert "hides most of it; less than 1 % of the release is signal" in hopeless.sentence()
