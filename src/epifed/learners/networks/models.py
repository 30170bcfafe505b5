"""Forecasters by name: `nn.Module`s from [windows, H] case counts to [windows] predictions.

Any of them can be made scale-free by its name: `scale-free linear`, `scale-free gru`.
"""

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn

from epifed.errors import EpifedError
from epifed.learners.fedavg import SCALE_FREE
from epifed.registry import MODELS


class MLP(nn.Sequential):
    """The paper's multilayer perceptron, H-128-64-32-1 with ReLU, on raw counts."""

    def __init__(self, window: int, hidden: tuple[int, ...] = (128, 64, 32)) -> None:
        sizes = (window, *hidden)
        layers: list[nn.Module] = []
        for before, after in pairwise(sizes):
            layers += [nn.Linear(before, after), nn.ReLU()]
        super().__init__(*layers, nn.Linear(sizes[-1], 1))


class Linear(nn.Sequential):
    """One weight a day and an intercept: the smallest model of the same protocol."""

    def __init__(self, window: int) -> None:
        super().__init__(nn.Linear(window, 1))


class GRU(nn.Module):
    """A gated recurrent unit over the days of the window."""

    def __init__(self, window: int, hidden: int = 16) -> None:
        del window
        super().__init__()
        self.hidden = hidden
        self.gates_input = nn.Linear(1, 3 * hidden)
        self.gates_state = nn.Linear(hidden, 3 * hidden)
        self.head = nn.Linear(hidden, 1)

    def forward(self, inputs: Tensor) -> Tensor:
        """Cho et al. (2014), written out so that `torch.func` can map it over clients."""
        state = inputs.new_zeros(inputs.shape[0], self.hidden)
        for day in inputs.unbind(dim=-1):
            reset_i, update_i, new_i = self.gates_input(day.unsqueeze(-1)).chunk(3, dim=-1)
            reset_s, update_s, new_s = self.gates_state(state).chunk(3, dim=-1)
            update = (update_i + update_s).sigmoid()
            candidate = (new_i + (reset_i + reset_s).sigmoid() * new_s).tanh()
            state = (1 - update) * candidate + update * state
        prediction: Tensor = self.head(state)
        return prediction


class ScaleFree(nn.Module):
    """Any model, between a window and its next value in units of the window's own level.

    The model sees each day's distance from the last and says how far the target lies from it,
    both divided by mean + 1. Its last layer starts at zero, and so the whole at persistence.
    """

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net
        outputs = [m for m in net.modules() if isinstance(m, nn.Linear)][-1:]
        for parameter in (p for layer in outputs for p in layer.parameters()):
            nn.init.zeros_(parameter)

    def scaled(self, inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The window as the model sees it, its last value and its level."""
        last, level = inputs[..., -1:], inputs.mean(dim=-1, keepdim=True) + 1
        distances = ((inputs - last) / level).clamp(-LARGEST_CHANGE, LARGEST_CHANGE)
        return distances, last, level

    def residual(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """The targets [...] as the model says them."""
        _, last, level = self.scaled(inputs)
        change = (targets - last.squeeze(-1)) / level.squeeze(-1)
        return change.clamp(-LARGEST_CHANGE, LARGEST_CHANGE)

    def forward(self, inputs: Tensor) -> Tensor:
        """The prediction in cases, never below zero."""
        distances, last, level = self.scaled(inputs)
        change: Tensor = self.net(distances)
        return torch.clamp(last + level * change.clamp(-LARGEST_CHANGE, LARGEST_CHANGE), min=0.0)


LARGEST_CHANGE = 1.5
"""No distance that a scale-free model sees, learns or says is larger, in levels of the window."""
SMALL_HIDDEN = (8,)


def make_model(name: str, window: int) -> nn.Module:
    """The forecaster of that name for windows of that many days.

    A scale-free MLP is a small one: it need not learn the scale.
    """
    inner = name.removeprefix(SCALE_FREE)
    if inner not in MODELS.names():
        raise EpifedError(
            f"model: found '{name}'; expected one of {', '.join(MODELS.names())}, or 'scale-free' "
            "before it"
        )
    make: Callable[[int], nn.Module] = MODELS.load(inner)
    if inner == name:
        return make(window)
    return ScaleFree(MLP(window, SMALL_HIDDEN) if make is MLP else make(window))
