"""The round of `_rounds.py` with Apple's pfl-research; `peers.py` runs it where pfl is installed.

After every round it writes one line of JSON and waits for a line before the next. The first round
is the warm-up (pfl evaluates all users in it); its line holds the new parameters.
"""

import json
import sys
import time
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from pfl.aggregate.simulate import SimulatedBackend  # type: ignore[import-not-found]
from pfl.algorithm.base import NNAlgorithmParams  # type: ignore[import-not-found]
from pfl.algorithm.federated_averaging import FederatedAveraging  # type: ignore[import-not-found]
from pfl.callback.base import TrainingProcessCallback  # type: ignore[import-not-found]
from pfl.data.federated_dataset import FederatedDataset  # type: ignore[import-not-found]
from pfl.data.sampling import MinimizeReuseUserSampler  # type: ignore[import-not-found]
from pfl.hyperparam.base import NNTrainHyperParams  # type: ignore[import-not-found]
from pfl.metrics import Metrics, Weighted  # type: ignore[import-not-found]
from pfl.model.pytorch import PyTorchModel  # type: ignore[import-not-found]
from pfl.privacy import CentrallyAppliedPrivacyMechanism, NormClippingOnly  # type: ignore[import-not-found]
from torch import Tensor, nn

MANY = 1_000_000


class Forecaster(nn.Sequential):
    """The paper's multilayer perceptron with the two methods that pfl asks for."""

    def __init__(self, sizes: list[int]) -> None:
        layers: list[nn.Module] = []
        for before, after in pairwise(sizes):
            layers += [nn.Linear(before, after), nn.ReLU()]
        super().__init__(*layers[:-1])

    def loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.mse_loss(self(inputs).squeeze(-1), targets)

    def metrics(self, inputs: Tensor, targets: Tensor) -> dict[str, Weighted]:
        return {"loss": Weighted.from_unweighted(self.loss(inputs, targets).item())}


class Turns(TrainingProcessCallback):  # type: ignore[misc]
    """Reports each round and waits for its turn."""

    def __init__(self) -> None:
        self._begin()

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        report: dict[str, object] = {
            "wall": time.perf_counter() - self._wall,
            "cpu": time.process_time() - self._cpu,
        }
        if central_iteration == 0:
            parameters = model.pytorch_model.parameters()
            report["state"] = nn.utils.parameters_to_vector(parameters).tolist()
        print(json.dumps(report), flush=True)
        stop = not sys.stdin.readline()
        self._begin()
        return stop, Metrics()

    def _begin(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()


def make_backend(
    inputs: NDArray[np.float32], targets: NDArray[np.float32], clip_norm: float
) -> SimulatedBackend:
    """Every cohort of as many users as there are is all of them, once each."""
    users = {
        user: [torch.from_numpy(inputs[user]), torch.from_numpy(targets[user])]
        for user in range(len(inputs))
    }
    data = FederatedDataset.from_slices(users, MinimizeReuseUserSampler(list(users)))
    clip = CentrallyAppliedPrivacyMechanism(NormClippingOnly(2, clip_norm))
    return SimulatedBackend(training_data=data, val_data=data, postprocessors=[clip])


def main() -> None:
    torch.set_num_threads(1)
    task = np.load(sys.argv[1])
    network = Forecaster(task["sizes"].tolist())
    nn.utils.vector_to_parameters(torch.from_numpy(task["state"]), network.parameters())
    model = PyTorchModel(
        network,
        local_optimizer_create=torch.optim.Adam,
        central_optimizer=torch.optim.SGD(network.parameters(), lr=1.0),
    )
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=MANY,
            evaluation_frequency=MANY,
            train_cohort_size=len(task["inputs"]),
            val_cohort_size=None,
        ),
        make_backend(task["inputs"], task["targets"], float(task["clip_norm"])),
        model,
        NNTrainHyperParams(
            local_num_epochs=int(task["epochs"]),
            local_learning_rate=float(task["learning_rate"]),
            local_batch_size=None,
        ),
        callbacks=[Turns()],
        send_metrics_to_platform=False,
    )


if __name__ == "__main__":
    main()
