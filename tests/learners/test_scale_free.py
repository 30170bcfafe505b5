"""Scale-free models: the same relative forecast for a village and a city, through the stack."""

import copy
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from epifed.errors import EpifedError
from epifed.learners import networks
from epifed.learners.base import Vector, Windows
from epifed.learners.fedavg import FedAvg, FedAvgState
from epifed.learners.networks import ScaleFree, make_model
from epifed.settings import Settings, seed_sequence
from epifed.training.loop import train
from tests.helpers import small_clients, small_settings, windows_of

NAMES = ["scale-free linear", "scale-free mlp", "scale-free gru"]


@pytest.mark.parametrize("name", NAMES)
def test_it_starts_at_persistence(name: str) -> None:
    inputs = torch.from_numpy(windows_of([5]).inputs[0])
    torch.testing.assert_close(make_model(name, 10)(inputs).squeeze(-1), inputs[:, -1])


@given(factor=st.floats(1, 1e4), seed=st.integers(0, 99))
def test_large_counts_scale_the_forecast(factor: float, seed: int) -> None:
    torch.manual_seed(seed)
    model = ScaleFree(nn.Sequential(nn.Linear(10, 1)))
    nn.init.normal_(model.net[0].weight)  # type: ignore[index]
    inputs = 1e6 * (1 + torch.rand(3, 10))
    with torch.no_grad():
        torch.testing.assert_close(
            model(factor * inputs), factor * model(inputs), rtol=1e-3, atol=1
        )


def by_hand(model: ScaleFree, windows: Windows, epochs: int, learning_rate: float) -> Tensor:
    """Each client alone: Adam on the mean squared error of the forecast in units of the level."""
    start = networks.flatten(model)
    updates = []
    for k in range(len(windows)):
        own = windows.mask[k]
        inputs = torch.from_numpy(windows.inputs[k][own])
        targets = torch.from_numpy(windows.targets[k][own])
        level = inputs.mean(dim=1) + 1
        change = ((targets - inputs[:, -1]) / level).clamp(-1.5, 1.5)
        seen = ((inputs - inputs[:, -1:]) / level[:, None]).clamp(-1.5, 1.5)
        local = copy.deepcopy(model.net)
        adam = torch.optim.Adam(local.parameters(), lr=learning_rate)
        for _ in range(epochs):
            adam.zero_grad()
            (local(seen).squeeze(-1) - change).square().mean().backward()
            adam.step()
        updates.append(networks.flatten(local) - start)
    return torch.stack(updates)


@pytest.mark.parametrize("name", NAMES)
def test_contributions_are_those_of_the_plain_loop(name: str) -> None:
    settings = small_settings(model=name, epochs=4, learning_rate=0.01)
    learner = FedAvg(settings)
    state = learner.start(seed_sequence(0))
    windows = windows_of([4, 7, 2])
    weights = torch.from_numpy(state.weights.copy())
    torch.nn.utils.vector_to_parameters(weights, learner.model.parameters())
    assert isinstance(learner.model, ScaleFree)
    expected = by_hand(learner.model, windows, 4, 0.01).numpy()
    got = learner.contribute(state, windows)
    np.testing.assert_allclose(got, expected, atol=1e-5, rtol=1e-3)


def test_the_update_does_not_depend_on_the_size_of_the_region() -> None:
    learner = FedAvg(small_settings(model="scale-free mlp"))
    windows = windows_of([6], scale=1e5)
    larger = Windows(100 * windows.inputs, 100 * windows.targets, windows.mask, windows.target_days)
    state = learner.start(seed_sequence(0))
    np.testing.assert_allclose(
        learner.contribute(state, windows), learner.contribute(state, larger), atol=1e-4, rtol=1e-2
    )


def test_recent_windows_weigh_more() -> None:
    """With a tiny half-life, only the newest window of each client is left."""
    settings = small_settings(model="linear", half_life=0.01)
    windows = windows_of([3, 3])
    days = np.datetime64("2020-11-10") - np.array([[2, 1, 0], [0, 1, 2]])
    windows = Windows(windows.inputs, windows.targets, windows.mask, days)
    newest = Windows(
        windows.inputs[[0, 1], [2, 0]][:, None], windows.targets[[0, 1], [2, 0]][:, None],
        np.ones((2, 1), dtype=np.bool_), days[[0, 1], [2, 0]][:, None],
    )  # fmt: skip
    learner = FedAvg(settings)
    state = learner.start(seed_sequence(0))
    np.testing.assert_allclose(
        learner.contribute(state, windows), learner.contribute(state, newest),
        rtol=1.3e-6, atol=1e-5,
    )  # fmt: skip


@pytest.mark.parametrize("last", [1, 3, 5])
def test_predictions_are_of_the_mean_of_the_last_iterates(last: int) -> None:
    settings = small_settings(epsilon=5.0, rounds=5)
    clients = small_clients(settings)
    plain: list[Vector] = []

    def watch(_: int, state: FedAvgState) -> None:
        plain.append(state.weights)

    train(clients.view, settings, watch=watch)
    averaged = train(clients.view, settings.but(average_last=last))
    expected = np.stack(plain[-last:]).mean(axis=0)
    length = len(expected)
    np.testing.assert_array_equal(averaged.vector[:length], plain[-1])
    np.testing.assert_allclose(averaged.vector[length:-1], expected, rtol=1.3e-6, atol=1e-5)
    assert float(averaged.vector[-1]) == 5
    inputs, weights = torch.from_numpy(clients.test.inputs), torch.from_numpy(expected)
    np.testing.assert_allclose(
        averaged.predict(clients.test.inputs),
        networks.predict(make_model("linear", 10), weights, inputs).numpy(), rtol=1e-4,
    )  # fmt: skip


def test_averaging_more_iterates_than_rounds_is_refused() -> None:
    with pytest.raises(EpifedError, match="average_last: found 5 of 4 rounds"):
        small_settings(average_last=5)


def test_an_unknown_model_is_one_sentence() -> None:
    with pytest.raises(EpifedError, match="found 'scale-free forest'; expected one of mlp, linear"):
        make_model("scale-free forest", 10)


@pytest.mark.parametrize("name", ["scale-free linear", "scale-free mlp", "scale-free gru"])
def test_presets_train_and_do_not_lose_much_to_persistence(name: str) -> None:
    settings = Settings.for_learner("fedavg", 12, model=name, epsilon=math.inf)
    clients = small_clients(settings)
    got = train(clients.view, settings).predict(clients.test.inputs)
    assert np.isfinite(got).all()
    error = np.abs(got - clients.test.targets).mean()
    assert error < 1.5 * np.abs(clients.test.inputs[..., -1] - clients.test.targets).mean()
