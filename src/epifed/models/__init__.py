"""Forecasters by name: `nn.Module`s from [windows, H] case counts to [windows] predictions."""

from collections.abc import Callable
from itertools import pairwise

from torch import Tensor, nn

from epifed.errors import EpifedError


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


MODELS: dict[str, Callable[[int], nn.Module]] = {"mlp": MLP, "linear": Linear, "gru": GRU}


def make_model(name: str, window: int) -> nn.Module:
    """The forecaster of that name for windows of that many days."""
    if name not in MODELS:
        raise EpifedError(f"model: found '{name}'; expected one of {', '.join(MODELS)}")
    return MODELS[name](window)
