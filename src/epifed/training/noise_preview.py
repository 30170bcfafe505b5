"""What noise a release will carry, against what it is to say, before anybody pays for it."""

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

from epifed.errors import counted
from epifed.learners.base import Learner
from epifed.privacy.plan import PrivacyPlan

GOOD = 0.9
"""Share of a typical signal that is left where noise hardly matters: noise is a third of it."""
POOR = 0.5
LARGEST_EPSILON = 64.0
"""From here on an ε promises nothing, and is not advised."""
MOST_PERCENT = 1000
"""Beyond, how much noise moves a number is not worth a number."""


@dataclass(frozen=True)
class NoisePreview:
    """The noise of a plan against a learner's typical signal, and what would make it small."""

    clients: int
    epsilon: float
    signal: str
    """What the learner is to find out."""
    typical: float
    noise: float
    """Deviations of the signal, and of the noise on it."""
    epsilon_for_good: float | None
    clients_for_good: int | None
    """With which ε, or how many clients, noise would hardly matter; none: it does not."""

    @property
    def believed(self) -> float:
        """The share of a release that is signal."""
        return self.typical**2 / (self.typical**2 + self.noise**2)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self) | {"believed": self.believed, "sentence": self.sentence()}

    def sentence(self) -> str:
        """What noise to expect, in one sentence."""
        share = "less than 1 %" if self.believed < 0.01 else f"{100 * self.believed:.0f} %"
        verdict = f"{share} of the release is signal"
        if self.believed < POOR:
            verdict = f"noise hides most of it; {verdict}"
        advice = ""
        if self.clients_for_good is not None:
            wanted = [counted(self.clients_for_good, "client")]
            if self.epsilon_for_good is not None:
                wanted.insert(0, f"ε = {self.epsilon_for_good:.2g}")
            advice = f"; {' or '.join(wanted)} would make it {100 * GOOD:.0f} %"
        return (
            f"With {counted(self.clients, 'client')} and ε = {self.epsilon:g}, noise moves "
            f"{self.signal} by {_about(self.noise)}, where ±{_percent(self.typical)} is typical: "
            f"{verdict}{advice}.{ALONE if self.believed < POOR else ''}"
        )


ALONE = " A forecast of your own file needs no noise: 'epifed forecast --data FILE'."
"""What to do where noise leaves little."""


def _about(log_change: float) -> str:
    """How far noise moves something, where that can still be imagined."""
    if log_change > math.log1p(MOST_PERCENT / 100):
        return f"more than ±{MOST_PERCENT:,} %"
    return f"about ±{_percent(log_change)}"


def _percent(log_change: float) -> str:
    """A log change as one of so many per cent."""
    share = 100 * math.expm1(log_change)
    return f"{share:.0f} %" if share >= 9.5 else f"{share:.2g} %"


def expect(learner: Learner[Any, Any], plan: PrivacyPlan) -> NoisePreview | None:
    """What noise to expect of a private plan; none if the learner knows no typical signal."""
    signal = learner.signal()
    if signal is None or not plan.private:
        return None
    noise = signal.scale * plan.noise_std(plan.clients_per_round)
    most = signal.typical * math.sqrt(1 / GOOD - 1)
    found = NoisePreview(plan.clients, plan.epsilon, signal.name, signal.typical, noise, None, None)
    if noise <= most:
        return found
    return replace(
        found,
        epsilon_for_good=_epsilon(plan, most / signal.scale),
        clients_for_good=math.ceil(plan.clients * noise / most),
    )


def _epsilon(plan: PrivacyPlan, most: float) -> float | None:
    """The smallest ε, to two digits, whose noise is at most this; none if there is no such."""
    low = high = plan.epsilon
    while _noise(plan, high) > most:
        low, high = high, 2 * high
        if high > LARGEST_EPSILON:
            return None
    while high / low > 1.03:
        middle = float(f"{math.sqrt(low * high):.3g}")
        if _noise(plan, middle) <= most:
            high = middle
        else:
            low = middle
    return high


def _noise(plan: PrivacyPlan, epsilon: float) -> float:
    return replace(plan, epsilon=epsilon).noise_std(plan.clients_per_round)
