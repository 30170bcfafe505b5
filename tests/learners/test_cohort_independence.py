"""A client's vector is the same, to the last bit, whoever else is in the cohort."""

import numpy as np
import pytest

from epifed.learners.base import make_learner
from epifed.privacy.plan import PrivacyPlan
from epifed.registry import LEARNERS
from epifed.settings import Settings, seed_sequence
from epifed.training.rounds import contribution
from tests.helpers import small_panel, small_settings

CLIENTS = 23
MODELS = ("mlp", "linear", "gru", "scale-free mlp", "scale-free linear", "scale-free gru")
SETTINGS = {
    **{model: small_settings(model=model, epochs=5, epsilon=2.0) for model in MODELS},
    **{
        name: Settings.of(learner=name, rounds=1, clients_per_round=6, epsilon=2.0)
        for name in LEARNERS.names()
        if name != "fedavg"
    },
}


@pytest.mark.parametrize("name", SETTINGS)
def test_nobody_elses_vector_moves_with_a_client(name: str) -> None:
    pytest.importorskip("torch") if name in MODELS else None
    settings, panel = SETTINGS[name], small_panel(CLIENTS)
    learner, plan = make_learner(settings), PrivacyPlan.of(settings, CLIENTS)
    view = learner.deployed_view(panel, (panel.start, panel.end))
    state = learner.start(seed_sequence(0))
    random = np.random.default_rng(5)
    moved = learner.pack(state) + random.normal(0, 0.05, learner.pack(state).shape)
    state = learner.unpack(moved.astype(np.float32))
    whole = contribution(learner, state, view, plan, alone=True)
    assert whole.any()
    for _ in range(8):
        kept = random.permutation(CLIENTS)[: random.integers(1, CLIENTS)]
        rows = contribution(learner, state, view.of(kept), plan, alone=True)
        np.testing.assert_array_equal(rows, whole[kept])
    nobody = contribution(learner, state, view.of(np.arange(0)), plan, alone=True)
    assert nobody.shape == (0, whole.shape[1])
