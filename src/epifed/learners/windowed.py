"""What learners have in common that forecast one horizon from a window."""

from typing import ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from epifed.errors import EpifedError
from epifed.panel import CasePanel
from epifed.settings import Settings
from epifed.windows import last_windows

Floats = NDArray[np.float64]

DAYS_BACK = 211
"""Past days at most for which a forecast is repeated, to learn from its errors."""


class _Predictor(Protocol):
    settings: Settings

    def predict(self, state: Tensor, inputs: Tensor) -> Tensor: ...


class Windowed:
    """A state that does not age and is learned anew each time."""

    any_horizon: ClassVar[bool] = False
    whole_period: ClassVar[bool] = False

    def advance(self, state: Tensor, days: int) -> Tensor:
        """The same."""
        del days
        return state

    def join(self, earlier: Tensor, fresh: Tensor) -> Tensor:
        """The fresh one."""
        del earlier
        return fresh

    def hindcast(self: _Predictor, panel: CasePanel, state: Tensor, horizon: int) -> Floats:
        """The prediction from each of the last windows."""
        settings = self.settings
        if horizon != settings.horizon:
            raise EpifedError(
                f"horizon: found {horizon} days; expected {settings.horizon}, the one that the "
                f"'{settings.learner}' model was trained for"
            )
        days = min(panel.counts.shape[1] - settings.window + 1, DAYS_BACK)
        inputs = torch.from_numpy(last_windows(panel, settings, days))
        prediction: Floats = self.predict(state, inputs).double().numpy()
        return np.maximum(prediction, 0.0)
