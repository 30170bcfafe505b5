"""Checks of who came to each round: Poisson sampling, each client with probability q."""

import numpy as np
from numpy.typing import NDArray

from epifed.audit.findings import Check
from epifed.audit.statistics import (
    SURE,
    dispersion,
    lags,
    least_rate_change,
    least_shift,
    rates,
    standard,
)


def attendance(cohorts: tuple[NDArray[np.int64], ...], clients: int) -> NDArray[np.int64]:
    """Who came to each round: [rounds, clients] of 0 and 1."""
    came = np.zeros((len(cohorts), clients), dtype=np.int64)
    for row, cohort in zip(came, cohorts, strict=True):
        row[cohort] = 1
    return came


def check_sampling(came: NDArray[np.int64], rate: float) -> list[Check]:
    """The checks of who came to each round [rounds, clients], each with this probability."""
    rounds, clients = came.shape
    sizes = came.sum(axis=1).astype(np.float64)
    mean, found = rates(np.array([came.sum()]), came.size, rate)
    each, farthest = rates(came.sum(axis=0), rounds, rate)
    spread = float(np.sqrt(rate * (1 - rate)))
    centred = came - rate
    over, lag = standard(lags(centred.astype(np.float64), spread))
    varied, ratio = dispersion(sizes, clients, rate)
    together = (came.T @ came)[np.triu_indices(clients, 1)]
    pairs, pair = rates(together, rounds, rate**2)
    return [
        Check(
            "sampling rate",
            mean,
            f"a client comes with probability q = {rate:.4g}",
            f"{found:.4f} in {came.size} draws",
            power=f"a q that is {least_rate_change(came.size, rate):.1%} low is found with "
            f"{SURE:.0%} probability",
        ),
        Check(
            "sampling of each client",
            each,
            "every client comes as often",
            f"{farthest:.3f} where {rate:.3f} is due, the farthest of {clients} clients",
            power=f"a client that comes {least_rate_change(rounds, rate, clients):.1%} too rarely "
            f"is found with {SURE:.0%} probability",
        ),
        Check(
            "sampling over rounds",
            over,
            "rounds do not know each other, however far apart",
            f"{lag:+.1f} deviations at the worst of {rounds // 2} lags",
            power=f"a correlation of {least_shift(rounds // 2) / came.size**0.5:.1%} between "
            f"neighbouring rounds is found with {SURE:.0%} probability",
        ),
        Check(
            "sampling between clients",
            varied and pairs,
            "clients do not know each other: the sizes of cohorts vary as a binomial",
            f"cohorts of {sizes.min():.0f} to {sizes.max():.0f}, variance {ratio:.2f} of the "
            f"binomial's; a pair came together in {pair:.3f} of rounds where {rate**2:.3f} is due",
        ),
    ]
