"""The only messages of a federation: a task to a site, its contribution back, the model at the end.

Each is a short JSON text and the bytes of one array. A contribution is a clipped vector
for each sampled client of the site, with who they are and to which round they belong. Nothing in
a message is executed or unpickled.
"""

import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from epifed.errors import EpifedError
from epifed.federation.codes import Code

Parts = dict[str, Any]
"""What travels: {"about": JSON text, "array": bytes}."""

SLACK = 1e-4
"""By so much a clipped vector's norm may exceed S through floating-point arithmetic."""


class MessageError(EpifedError):
    """A message that is not what it should be; `code` says in which way."""

    def __init__(self, code: Code) -> None:
        super().__init__(code.value)
        self.code = code


@dataclass(frozen=True)
class Task:
    """What the server asks of one site in a round."""

    training: str
    round: int
    rounds: int
    paid: int
    """Rounds paid for before this one, repeated ones included."""
    settings: str
    first_day: str
    last_day: str
    enrolled: int
    """N, over which the accountant's q = m / N is taken."""
    noise_multiplier: float
    randomness: str
    clients: tuple[str, ...]
    """Those of this site that were sampled. Other sites' are nobody's business."""
    state: Tensor


def pack_task(task: Task) -> Parts:
    """A task as it travels."""
    return _packed({k: v for k, v in vars(task).items() if k != "state"}, task.state)


def unpack_task(parts: Parts) -> Task:
    """The task that travelled."""
    about = _about(parts)
    state = torch.from_numpy(_array(about, parts))
    try:
        about["clients"] = tuple(about["clients"])
        known = {name: about[name] for name in Task.__dataclass_fields__ if name != "state"}
        return Task(**known, state=state)
    except (KeyError, TypeError):
        raise MessageError(Code.BAD_TASK) from None


def pack_contribution(training: str, number: int, clients: tuple[str, ...], rows: Tensor) -> Parts:
    """What leaves a site: a clipped vector for each of these clients, and nothing else."""
    return _packed({"training": training, "round": number, "clients": clients}, rows)


def pack_code(training: str, number: int, code: Code) -> Parts:
    """What leaves a site that contributes nothing: why, as a code."""
    about = {"training": training, "round": number, "code": code.value}
    return {"about": json.dumps(about)}


def accept(
    parts: Parts,
    *,
    training: str,
    number: int,
    asked: tuple[str, ...],
    length: int,
    dtype: torch.dtype,
    clip_norm: float,
) -> dict[str, Tensor]:
    """The vectors of an answer, by client; one that must not reach the model is refused whole."""
    about = _about(parts)
    if "code" in about:
        raise MessageError(_code(about["code"]))
    if about.get("training") != training or about.get("round") != number:
        raise MessageError(Code.LATE)
    clients = about.get("clients")
    if not isinstance(clients, list) or not all(isinstance(c, str) for c in clients):
        raise MessageError(Code.MESSAGE)
    if len(set(clients)) != len(clients):
        raise MessageError(Code.DUPLICATE)
    if not set(clients) <= set(asked):
        raise MessageError(Code.FOREIGN_CLIENT)
    array = _array(about, parts)
    if array.dtype != torch.empty(0, dtype=dtype).numpy().dtype:
        raise MessageError(Code.DTYPE)
    if array.shape != (len(clients), length):
        raise MessageError(Code.SHAPE)
    rows = torch.from_numpy(array)
    norms = torch.linalg.vector_norm(rows.double(), dim=1)
    if not (rows.isfinite().all() and norms.isfinite().all()):
        raise MessageError(Code.NOT_FINITE)
    if math.isfinite(clip_norm) and (norms > clip_norm * (1 + SLACK)).any():
        raise MessageError(Code.NORM)
    return dict(zip(clients, rows, strict=True))


def _packed(about: dict[str, Any], tensor: Tensor) -> Parts:
    array = tensor.contiguous().numpy()
    about = about | {"dtype": array.dtype.name, "shape": array.shape}
    return {"about": json.dumps(about), "array": array.tobytes()}


def _about(parts: Parts) -> dict[str, Any]:
    try:
        about = json.loads(parts["about"])
    except (KeyError, TypeError, ValueError):
        raise MessageError(Code.MESSAGE) from None
    if not isinstance(about, dict):
        raise MessageError(Code.MESSAGE)
    return about


def _array(about: dict[str, Any], parts: Parts) -> NDArray[Any]:
    if about.get("dtype") not in ("float32", "float64"):
        raise MessageError(Code.DTYPE)
    try:
        flat = np.frombuffer(parts["array"], dtype=about["dtype"]).copy()
    except (KeyError, TypeError, ValueError):
        raise MessageError(Code.MESSAGE) from None
    try:
        return flat.reshape([int(size) for size in about["shape"]])
    except (KeyError, TypeError, ValueError):
        raise MessageError(Code.SHAPE) from None


def _code(text: object) -> Code:
    try:
        return Code(str(text))
    except ValueError:
        return Code.MESSAGE
