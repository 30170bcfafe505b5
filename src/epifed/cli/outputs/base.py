"""Fields of an output, and the values that several have."""

from typing import Any

from pydantic import BaseModel, ConfigDict

Values = dict[str, Any]
Row = dict[str, str | float | bool | None]
"""A row of a table."""


class Output(BaseModel):
    """Fields that are all there, and no others."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class ExpectedNoise(Output):
    """What noise will do to what the learner is to find out."""

    clients: int
    epsilon: float
    signal: str
    typical: float
    """How much the signal usually moves, as a logarithm."""
    noise: float
    """How much the noise moves it, as a logarithm."""
    epsilon_for_good: float | None
    clients_for_good: int | None
    believed: float
    """The share of what the release says that can be believed."""
    sentence: str
