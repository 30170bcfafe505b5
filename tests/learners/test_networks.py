import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from epifed.learners import networks
from epifed.learners.base import Windows
from epifed.learners.networks import GRU, MLP, Linear
from tests.helpers import windows_of


def train_one_by_one(
    model: nn.Module, windows: Windows, epochs: int, learning_rate: float = 0.001
) -> Tensor:
    """The slow reference: one model, one optimizer, one client at a time."""
    start = networks.flatten(model)
    updates = []
    for k in range(len(windows)):
        own = windows.mask[k]
        inputs = torch.from_numpy(windows.inputs[k][own])
        targets = torch.from_numpy(windows.targets[k][own])
        local = copy.deepcopy(model)
        adam = torch.optim.Adam(local.parameters(), lr=learning_rate)
        for _ in range(epochs):
            adam.zero_grad()
            loss = nn.functional.mse_loss(local(inputs).squeeze(-1), targets)
            loss.backward()  # type: ignore[no-untyped-call]
            adam.step()
        updates.append(networks.flatten(local) - start)
    return torch.stack(updates)


def train_as_stack(model: nn.Module, windows: Windows, epochs: int) -> Tensor:
    return networks.train_stack(
        model,
        networks.flatten(model),
        torch.from_numpy(windows.inputs),
        torch.from_numpy(windows.targets),
        torch.from_numpy(windows.mask),
        epochs=epochs,
        learning_rate=0.001,
    )


class Odd(nn.Module):
    """A module that no fast path knows."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(10, 8)
        self.scale = nn.Parameter(torch.tensor(0.5))
        self.outer = nn.Linear(8, 1)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden: Tensor = self.outer(torch.tanh(self.scale * self.inner(inputs)))
        return hidden


@pytest.mark.parametrize(
    "make",
    [lambda: MLP(10), lambda: Linear(10), lambda: GRU(10), Odd],
    ids=["mlp", "linear", "gru", "odd"],
)
def test_the_stack_equals_the_plain_loop(make: object) -> None:
    torch.manual_seed(3)
    model = make()  # type: ignore[operator]
    windows = windows_of([12] * 7)
    torch.testing.assert_close(
        train_as_stack(model, windows, 30), train_one_by_one(model, windows, 30),
        atol=2e-5, rtol=1e-3,
    )  # fmt: skip


@pytest.mark.parametrize("make", [lambda: MLP(10, (8, 4)), Odd], ids=["chain", "autograd"])
@settings(max_examples=15)
@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=6), seed=st.integers(0, 1000))
def test_clients_of_unequal_length_train_as_if_alone(
    make: object, lengths: list[int], seed: int
) -> None:
    torch.manual_seed(seed)
    model = make()  # type: ignore[operator]
    windows = windows_of(lengths, seed=seed)
    torch.testing.assert_close(
        train_as_stack(model, windows, 8), train_one_by_one(model, windows, 8),
        atol=2e-5, rtol=1e-3,
    )  # fmt: skip


def test_by_hand_and_autograd_gradients_agree() -> None:
    model = MLP(10)
    windows = windows_of([5, 3, 8])
    inputs, targets = torch.from_numpy(windows.inputs), torch.from_numpy(windows.targets)
    share = torch.from_numpy(windows.mask / windows.mask.sum(axis=1, keepdims=True)).float()
    parameters = [p.detach().expand(3, *p.shape).clone() for p in model.parameters()]
    by_hand, taped = ([torch.empty_like(p) for p in parameters] for _ in range(2))
    networks._chain_gradients(parameters, by_hand, inputs, targets, share)
    networks._autograd_gradients(model)(parameters, taped, inputs, targets, share)
    for one, two in zip(by_hand, taped, strict=True):
        torch.testing.assert_close(one, two, atol=1e-2, rtol=1e-4)


def test_large_cohorts_are_trained_in_pieces_with_the_same_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = MLP(10)
    windows = windows_of([4] * 11)
    whole = train_as_stack(model, windows, 5)
    monkeypatch.setattr(networks, "CLIENTS_AT_ONCE", 4)
    torch.testing.assert_close(train_as_stack(model, windows, 5), whole)


def test_an_empty_cohort_sends_nothing() -> None:
    model = Linear(10)
    empty = windows_of([3]).of(np.array([], dtype=np.int64))
    assert train_as_stack(model, empty, 2).shape == (0, 11)


def test_the_paper_s_model_has_11777_parameters_and_survives_a_round_trip() -> None:
    model = MLP(10)
    weights = networks.flatten(model)
    assert len(weights) == 11_777
    inputs = torch.rand(4, 3, 10, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(
        networks.predict(model, weights, inputs), model(inputs).squeeze(-1).detach()
    )
