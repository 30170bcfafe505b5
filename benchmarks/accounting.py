"""What budgets cost in noise, what an attacker can gain, and what noise leaves of a trend.

python benchmarks/accounting.py
"""

import math
from typing import Any

import dp_accounting as dp
from dp_accounting.rdp import RdpAccountant
from scipy.optimize import brentq

from epifed.learners.base import make_learner
from epifed.privacy.accounting import (
    advantage_of_noise,
    calibrate,
    most_advantage,
    right_at_most,
    spent,
)
from epifed.privacy.plan import PrivacyPlan
from epifed.report.tables import budget
from epifed.settings import Settings
from epifed.training.loop import expect
from kept import keep, table

DELTA, Q, T = 1e-5, 0.25, 75
EPSILONS = (0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0)
FOUR = "{:#.4g}"


def row(epsilon: float) -> list[Any]:
    """The noise of a budget by both accountants."""
    rdp, pld = (calibrate(epsilon, DELTA, Q, T, name) for name in ("rdp", "pld"))
    less = 100 * (1 - pld.noise_multiplier / rdp.noise_multiplier)
    return [budget(epsilon), rdp.noise_multiplier, rdp.order, pld.noise_multiplier, less]


def with_every_order(epsilon: float) -> float:
    """The noise of a budget with every whole Rényi order to 256."""

    def price(noise: float) -> float:
        accountant = RdpAccountant(list(range(2, 257)))
        event = dp.PoissonSampledDpEvent(Q, dp.GaussianDpEvent(noise))
        return float(accountant.compose(event, T).get_epsilon(DELTA)) - epsilon

    return float(brentq(price, 20, 60))


def year(each: float, weeks: int = 52) -> float:
    """ε of so many releases by everybody, each at this budget, by PLD."""
    once = calibrate(each, DELTA, 1.0, 1, "pld")
    return spent(once.noise_multiplier, 1.0, weeks, DELTA, "pld")


def up(epsilon: float) -> float:
    """Rounded up to three digits, as every ε is."""
    digits = 10.0 ** (2 - math.floor(math.log10(epsilon)))
    return float(math.ceil(epsilon * digits) / digits)


def drawn_seen(epsilon: float) -> float:
    """ε of the paper's training against whoever sees who was drawn."""
    return up(spent(calibrate(epsilon, DELTA, Q, T).noise_multiplier, 1.0, T, DELTA))


def right(epsilon: float) -> float:
    """Per cent of right guesses that (ε, δ) leaves, rounded up."""
    return math.ceil(1000 * right_at_most(most_advantage(epsilon, DELTA))) / 10


def right_with_noise(epsilon: float) -> float:
    """Per cent of right guesses that the noise of the paper's training leaves, rounded up."""
    noise = calibrate(epsilon, DELTA, Q, T).noise_multiplier
    return math.ceil(1000 * right_at_most(advantage_of_noise(noise, Q, T))) / 10


def believed(clients: int, epsilon: float) -> float:
    """Per cent of what a release of `trend` says that can be believed."""
    settings = Settings.for_learner("trend", clients, epsilon=epsilon)
    found = expect(make_learner(settings), PrivacyPlan.of(settings, clients))
    assert found is not None
    return 100 * found.believed


def main() -> None:
    """Keep all of it."""
    heads = ["ε", "c, RDP", "order α", "c, PLD", "less noise"]
    found = {
        "noise": table(heads, ["{}", FOUR, "{:g}", FOUR, "{:.1f} %"], [row(e) for e in EPSILONS]),
        "with-every-order": with_every_order(0.2),
        "floor": spent(1e12, Q, T, DELTA),
        "c-4.9": spent(4.9, Q, T, DELTA),
        "year-of-weeks": year(0.1),
        "six-weeks": up(year(1.0, 6)),
        "drawn-seen": {f"{e:g}": drawn_seen(e) for e in (0.5, 1.0, 2.0, 5.0)},
        "right": {f"{e:g}": right(e) for e in (0.5, 1.0, 2.0)},
        "right-with-noise": right_with_noise(2.0),
        "believed": {
            f"{clients} at {e:g}": believed(clients, e)
            for clients, e in ((16, 0.1), (53, 0.1), (400, 0.1), (16, 1.0))
        },
    }
    print(keep("accounting", "python benchmarks/accounting.py", found))


if __name__ == "__main__":
    main()
