"""The networks of `fedavg` in PyTorch: models by name, local training as one stack, baselines.

A model maps [windows, H] counts to [windows] predictions. A prefix in its name makes any model
scale-free: `scale-free linear`, `scale-free gru`. All clients of a round are one stack of
parameters [clients, *shape]. Adam is elementwise and the loss is summed over clients. So one
backward pass and one Adam step train every client as if it were alone.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.optim.adam import adam

from epifed.errors import EpifedError
from epifed.learners.base import Baseline, Floats
from epifed.learners.fedavg import SCALE_FREE, FedAvg, FedAvgState
from epifed.registry import MODELS
from epifed.settings import Settings

if TYPE_CHECKING:
    from epifed.training.loop import Clients


class MLP(nn.Sequential):
    """The paper's multilayer perceptron, H-128-64-32-1 with ReLU, on raw counts."""

    def __init__(self, window: int, hidden: tuple[int, ...] = (128, 64, 32)) -> None:
        sizes = (window, *hidden)
        layers: list[nn.Module] = []
        for before, after in pairwise(sizes):
            layers += [nn.Linear(before, after), nn.ReLU()]
        super().__init__(*layers, nn.Linear(sizes[-1], 1))


class Linear(nn.Sequential):
    """A linear model with one weight a day and an intercept."""

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
        """The predictions (Cho et al., 2014), written out so that `torch.func` can map them."""
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
    """Any model, reading and predicting in units of the window's own level.

    The model reads each day's distance from the last and predicts the target's distance from it,
    both divided by mean + 1. Its last layer starts at zero, so it starts as persistence.
    """

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net
        outputs = [m for m in net.modules() if isinstance(m, nn.Linear)][-1:]
        for parameter in (p for layer in outputs for p in layer.parameters()):
            nn.init.zeros_(parameter)

    def scaled(self, inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The model's input for a window, the window's last value and its level."""
        last, level = inputs[..., -1:], inputs.mean(dim=-1, keepdim=True) + 1
        distances = ((inputs - last) / level).clamp(-LARGEST_CHANGE, LARGEST_CHANGE)
        return distances, last, level

    def residual(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """The targets [...] in the model's units."""
        _, last, level = self.scaled(inputs)
        change = (targets - last.squeeze(-1)) / level.squeeze(-1)
        return change.clamp(-LARGEST_CHANGE, LARGEST_CHANGE)

    def forward(self, inputs: Tensor) -> Tensor:
        """The prediction in cases, at least 0."""
        distances, last, level = self.scaled(inputs)
        change: Tensor = self.net(distances)
        return torch.clamp(last + level * change.clamp(-LARGEST_CHANGE, LARGEST_CHANGE), min=0.0)


LARGEST_CHANGE = 1.5
"""Bound on the distances that a scale-free model reads, learns or predicts, in levels."""
SMALL_HIDDEN = (8,)


def make_model(name: str, window: int) -> nn.Module:
    """The model of this name for windows of so many days.

    A scale-free MLP is smaller, because it need not learn the scale.
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


Gradients = Callable[[list[Tensor], list[Tensor], Tensor, Tensor, Tensor], None]
"""Function of (stacked parameters, buffers, inputs, targets, share of each window) that fills the
buffers with gradients. Buffers are contiguous for the fused Adam step, and reused in all epochs
because new memory is slower."""

torch.set_num_threads(1)  # parallel work uses worker processes, not threads

CLIENTS_AT_ONCE = 128
"""Clients in one piece of a larger cohort, which limits the memory."""


def initial(make: Callable[[], nn.Module], seed: int) -> NDArray[np.float32]:
    """The initial weights of a model with this seed; PyTorch's global generator is unchanged."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return flatten(make()).numpy()


def contributions(
    model: nn.Module,
    weights: NDArray[np.float32],
    inputs: NDArray[np.float32],
    targets: NDArray[np.float32],
    share: NDArray[np.float32],
    *,
    epochs: int,
    learning_rate: float,
) -> NDArray[np.float32]:
    """Δw of each client as an array.

    A scale-free model is trained on scale-free errors, so counties of different size have the same
    weight.
    """
    # Copies in PyTorch's own memory, because the last bits depend on the alignment.
    x, y, real, start = (torch.from_numpy(a).clone() for a in (inputs, targets, share, weights))
    if isinstance(model, ScaleFree):
        y = model.residual(x, y)
        x, _, _ = model.scaled(x)
        model = model.net
    updates = train_stack(model, start, x, y, real, epochs=epochs, learning_rate=learning_rate)
    return updates.numpy()


def predictions(
    model: nn.Module, weights: NDArray[np.float32], inputs: NDArray[np.float32]
) -> NDArray[np.float64]:
    """Predictions [...] of the model with these weights for inputs [..., H], as an array."""
    values: NDArray[np.float64] = (
        predict(model, torch.from_numpy(weights), torch.from_numpy(inputs)).double().numpy()
    )
    return values


def flatten(model: nn.Module) -> Tensor:
    """The parameters of a model as one vector."""
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def unflatten(model: nn.Module, weights: Tensor) -> dict[str, Tensor]:
    """A vector, or a stack of vectors, as named parameters of the model's shapes."""
    named = dict(model.named_parameters())
    pieces = torch.split(weights, [p.numel() for p in named.values()], dim=-1)
    return {
        name: piece.reshape((*weights.shape[:-1], *p.shape))
        for (name, p), piece in zip(named.items(), pieces, strict=True)
    }


def predict(model: nn.Module, weights: Tensor, inputs: Tensor) -> Tensor:
    """Predictions [...] of the model with these weights for inputs [..., H]."""
    flat = inputs.reshape(-1, inputs.shape[-1])
    with torch.no_grad():
        prediction: Tensor = functional_call(model, unflatten(model, weights), (flat,))
    return prediction.reshape(inputs.shape[:-1])


def train_stack(
    model: nn.Module,
    weights: Tensor,
    inputs: Tensor,
    targets: Tensor,
    mask: Tensor,
    *,
    epochs: int,
    learning_rate: float,
) -> Tensor:
    """Train each client from the same weights on its own windows; return its update Δw as a row.

    inputs [clients, windows, H], targets and mask [clients, windows]. An epoch is one full batch
    of the mean squared error over the client's real windows. Adam starts fresh.
    """
    if len(inputs) == 0:
        return weights.new_zeros((0, len(weights)))
    if len(inputs) > CLIENTS_AT_ONCE:
        train = partial(train_stack, model, weights, epochs=epochs, learning_rate=learning_rate)
        pieces = zip(
            *(torch.split(x, CLIENTS_AT_ONCE) for x in (inputs, targets, mask)), strict=True
        )
        return torch.cat([train(*piece) for piece in pieces])
    share = mask.to(inputs.dtype)
    share = share / share.sum(dim=1, keepdim=True).clamp(min=1.0)
    stack = [p.expand(len(inputs), *p.shape).clone() for p in unflatten(model, weights).values()]
    buffers = [torch.empty_like(p) for p in stack]
    differentiate = _gradients_of(model)
    optimizer = Adam(stack, learning_rate)
    for _ in range(epochs):
        differentiate(stack, buffers, inputs, targets, share)
        optimizer.step(buffers)
    return torch.cat([p.reshape(len(inputs), -1) for p in stack], dim=1) - weights


class Adam:
    """The steps of `torch.optim.Adam` in its fused form.

    Importing that class also imports PyTorch's compiler, which takes seconds in each worker.
    """

    def __init__(self, parameters: Sequence[Tensor], learning_rate: float) -> None:
        self.parameters, self.learning_rate = list(parameters), learning_rate
        self.means = [torch.zeros_like(p) for p in self.parameters]
        self.squares = [torch.zeros_like(p) for p in self.parameters]
        self.steps = [torch.zeros(()) for _ in self.parameters]

    def step(self, gradients: Sequence[Tensor]) -> None:
        """Move the parameters by one step, in place."""
        with torch.no_grad():
            adam(
                self.parameters,
                list(gradients),
                self.means,
                self.squares,
                [],
                self.steps,
                fused=True,
                amsgrad=False,
                beta1=0.9,
                beta2=0.999,
                lr=self.learning_rate,
                weight_decay=0.0,
                eps=1e-8,
                maximize=False,
            )


def _gradients_of(model: nn.Module) -> Gradients:
    """The gradient function of a stack of this model, without autograd for a Linear/ReLU chain.

    The paper's MLP is such a chain. Without autograd it trains about twice as fast.
    """
    layers = list(model) if isinstance(model, nn.Sequential) else [model]
    linear, relu = layers[0::2], layers[1::2]
    if (
        len(linear) == len(relu) + 1
        and all(type(layer) is nn.Linear and layer.bias is not None for layer in linear)
        and all(type(layer) is nn.ReLU for layer in relu)
    ):
        return _chain_gradients
    return _autograd_gradients(model)


def _chain_gradients(
    stack: list[Tensor], buffers: list[Tensor], inputs: Tensor, targets: Tensor, share: Tensor
) -> None:
    activations = [inputs]
    layers = list(_pairs(stack))
    for i, (weight, bias) in enumerate(layers):
        output = torch.baddbmm(bias.unsqueeze(1), activations[-1], weight.transpose(1, 2))
        activations.append(output if i == len(layers) - 1 else output.relu_())
    delta = (activations.pop() - targets.unsqueeze(-1)).mul_(2 * share.unsqueeze(-1))
    for (weight, _), (weight_gradient, bias_gradient) in zip(
        reversed(layers), reversed(list(_pairs(buffers))), strict=True
    ):
        activation = activations.pop()
        torch.sum(delta, dim=1, out=bias_gradient)
        torch.bmm(delta.transpose(1, 2), activation, out=weight_gradient)
        if activations:
            back = delta * weight if delta.shape[2] == 1 else torch.bmm(delta, weight)
            delta = back.mul_(activation.sign_())


def _pairs(stack: list[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
    return zip(stack[0::2], stack[1::2], strict=True)


def _autograd_gradients(model: nn.Module) -> Gradients:
    names = [name for name, _ in model.named_parameters()]

    def forward(parameters: dict[str, Tensor], windows: Tensor) -> Tensor:
        prediction: Tensor = functional_call(model, parameters, (windows,))
        return prediction.squeeze(-1)

    stacked = vmap(forward)

    def differentiate(
        stack: list[Tensor], buffers: list[Tensor], inputs: Tensor, targets: Tensor, share: Tensor
    ) -> None:
        leaves = [p.detach().requires_grad_() for p in stack]
        error = stacked(dict(zip(names, leaves, strict=True)), inputs) - targets
        gradients = torch.autograd.grad((share * error.square()).sum(), leaves)
        for buffer, gradient in zip(buffers, gradients, strict=True):
            buffer.copy_(gradient)

    return differentiate


CENTRAL_EPOCHS = 100
CENTRAL_BATCH = 256


def central_mlp(clients: "Clients", settings: Settings, seeds: np.random.SeedSequence) -> Floats:
    """The same model on pooled data: mini-batch Adam over all clients' training windows."""
    learner = FedAvg(settings.but(average_last=0))
    start, shuffling = seeds.spawn(2)
    rng = np.random.default_rng(shuffling)
    model = learner.model
    weights = torch.from_numpy(learner.start(start).weights)
    torch.nn.utils.vector_to_parameters(weights, model.parameters())
    pooled_inputs, pooled_targets = clients.train.pooled()
    inputs = torch.from_numpy(pooled_inputs.astype(np.float32))
    targets = torch.from_numpy(pooled_targets.astype(np.float32))
    parameters = list(model.parameters())
    optimizer = Adam(parameters, learner.own.learning_rate)
    for _ in range(CENTRAL_EPOCHS):
        order = rng.permutation(len(inputs))
        for begin in range(0, len(order), CENTRAL_BATCH):
            batch = order[begin : begin + CENTRAL_BATCH]
            loss = (model(inputs[batch]).squeeze(-1) - targets[batch]).square().mean()
            optimizer.step(torch.autograd.grad(loss, parameters))
    return predictions(model, flatten(model).numpy(), clients.test.inputs)


def local_mlp(clients: "Clients", settings: Settings, seeds: np.random.SeedSequence) -> Floats:
    """One model of the same kind for each client, trained on its own windows only.

    Each trains for as many epochs as an average client of the federation: q · T · E.
    """
    settings = settings.but(average_last=0)
    learner = FedAvg(settings)
    start = learner.start(seeds)
    share = min(settings.clients_per_round / len(clients), 1.0)
    epochs = max(1, round(share * settings.rounds * learner.own.epochs))
    trained = FedAvg(settings.but(epochs=epochs)).contribute(start, clients.train) + start.weights
    rows = [
        learner.predict(FedAvgState(w, w), x)
        for w, x in zip(trained, clients.test.inputs, strict=True)
    ]
    return np.stack(rows)


BASELINES: dict[str, Baseline] = {"central MLP": central_mlp, "local MLP": local_mlp}
