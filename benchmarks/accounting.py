"""What budgets cost in noise: the tables and prices of docs/accounting.md, and a year of weeks.

python benchmarks/accounting.py
"""

from typing import Any

import dp_accounting as dp
from dp_accounting.rdp import RdpAccountant
from scipy.optimize import brentq

from epifed.privacy.accounting import calibrate, spent
from epifed.report.tables import budget
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


def main() -> None:
    """Keep all of it."""
    heads = ["ε", "c, RDP", "order α", "c, PLD", "less noise"]
    found = {
        "noise": table(heads, ["{}", FOUR, "{:g}", FOUR, "{:.1f} %"], [row(e) for e in EPSILONS]),
        "with-every-order": with_every_order(0.2),
        "floor": spent(1e12, Q, T, DELTA),
        "c-4.9": spent(4.9, Q, T, DELTA),
        "year-of-weeks": year(0.1),
    }
    print(keep("accounting", "python benchmarks/accounting.py", found))


if __name__ == "__main__":
    main()
