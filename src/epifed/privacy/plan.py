"""The privacy plan of a training: what is done to hide a client, and what that costs.

One object says the bound S, the sampling, the rounds, the noise and who adds it, the event that an
accountant prices, and whom a client must trust. What runs is what is priced: nobody else computes
a σ, a q or an ε.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import dp_accounting as dp

from epifed.errors import EpifedError, counted
from epifed.privacy.accounting import Calibration, calibrate, epsilon_of, priced, training_event
from epifed.settings import NoiseName, SamplerName, Settings

TRUST: dict[NoiseName, str] = {
    "server": "clients trust the server, which sees their updates and adds the noise",
    "aggregators": (
        "clients trust no one alone: they trust that one of the aggregators, whichever, keeps its "
        "share of the sums to itself and adds its noise; ε is what remains against the server, "
        "all other aggregators and all other sites together, who do not see who is drawn either"
    ),
    "clients": (
        "clients trust each other, not the server: each adds a share of the noise, sampled or "
        "not, and the server sees only the sum (secure aggregation); ε holds only where the share "
        "of a client that leaves stays, for a variance without it would tell that it left"
    ),
    "local": (
        "clients trust nobody: each adds all the noise to its own update, which then says as "
        "little as one of zero; the server sees who comes, so sampling amplifies nothing"
    ),
}
"""What a client must believe for its ε to hold, by who adds the noise."""


@dataclass(frozen=True)
class Spent:
    """Rounds that were released: what any accountant needs to price them."""

    sampling_rate: float
    noise_multiplier: float
    rounds: int

    def event(self, *, drawn_seen: bool = False) -> dp.DpEvent:
        """The event; `drawn_seen`, for whoever sees who was drawn, sampling hides nothing."""
        rate = 1.0 if drawn_seen else self.sampling_rate
        return training_event(rate, self.noise_multiplier, self.rounds)


def price_together(
    spent: Sequence[Spent], delta: float, accountant: str, *, drawn_seen: bool = False
) -> float:
    """The ε of everything that was released, composed; infinite if some of it had no noise."""
    if any(one.noise_multiplier == 0 for one in spent):
        return math.inf
    rounds = Counter[tuple[float, float]]()
    for one in spent:
        rounds[one.sampling_rate, one.noise_multiplier] += one.rounds
    alike = (Spent(*kind, number) for kind, number in sorted(rounds.items()))
    events = [one.event(drawn_seen=drawn_seen) for one in alike]
    return epsilon_of(dp.ComposedDpEvent(events), delta, accountant)


@dataclass(frozen=True)
class PrivacyPlan:
    """How a training hides each of N clients, and its privacy cost.

    What runs is what is priced: nothing else computes a noise deviation, a sampling rate or an ε.

    Parameters
    ----------
    clients : int
        N, the clients that may take part.
    clients_per_round : int
        m, drawn in a round on average; the sampling rate is q = m / N.
    rounds : int
        T_cl, the rounds of the training.
    clip_norm : float
        S, the largest norm of a client's vector.
    noise : str
        Who adds the noise.
    epsilon, delta : float
        The budget; an infinite ε adds no noise.
    accountant : str
        `rdp` or `pld`.

    Raises
    ------
    EpifedError
        If the plan cannot be run.

    Examples
    --------
    >>> from epifed.settings import Settings
    >>> PrivacyPlan.of(Settings.paper(epsilon=2.0), 400).sampling_rate
    0.25
    """

    clients: int
    """N, over which q = m / N is taken."""
    clients_per_round: int
    rounds: int
    clip_norm: float
    noise: NoiseName
    sampler: SamplerName
    epsilon: float
    delta: float
    accountant: str
    aggregators: int = 0
    """k, who each add all of the noise, where aggregators do."""

    def __post_init__(self) -> None:
        """Refuse what cannot be run."""
        if self.clients_per_round > self.clients:
            raise EpifedError(
                f"clients_per_round: found {self.clients_per_round} of "
                f"{counted(self.clients, 'client')}; "
                "expected at most all of them"
            )
        if self.noise == "clients" and self.clients < 2:
            raise EpifedError(
                "noise: found 'clients' with 1 client; expected at least 2 to share it"
            )

    @classmethod
    def of(cls, settings: Settings, clients: int) -> Self:
        """The plan that the settings ask for with so many clients."""
        return cls(
            clients,
            settings.clients_per_round,
            settings.rounds,
            settings.clip_norm,
            settings.noise,
            settings.sampler,
            settings.epsilon,
            settings.delta,
            settings.accountant,
            settings.aggregators or 0,
        )

    @property
    def private(self) -> bool:
        """Whether noise is added: ε is finite."""
        return math.isfinite(self.epsilon)

    @property
    def bound(self) -> float:
        """S, to which every client's vector is clipped; infinite without privacy."""
        return self.clip_norm if self.private else math.inf

    @property
    def sampling_rate(self) -> float:
        """q = m / N, the chance of a client to be in a round."""
        return self.clients_per_round / self.clients

    @property
    def priced_rate(self) -> float:
        """The q that counts: 1 where whoever is protected against sees who comes."""
        return 1.0 if self.noise == "local" else self.sampling_rate

    @cached_property
    def calibration(self) -> Calibration:
        """The smallest noise that keeps the training within its budget, and what it spends."""
        found = calibrate(self.epsilon, self.delta, self.priced_rate, self.rounds, self.accountant)
        return replace(found, trust=TRUST[self.noise])

    def announced(self, noise_multiplier: float) -> Self:
        """The same plan with the c that was announced: calibrations may differ in the last bits."""
        plan = replace(self)
        calibration = replace(self.calibration, noise_multiplier=noise_multiplier)
        vars(plan)["calibration"] = calibration
        return plan

    @property
    def noise_multiplier(self) -> float:
        """c: the noise on a sum that the price is for has deviation S · c."""
        return self.calibration.noise_multiplier

    def noise_of_round(self, came: int) -> float:
        """The multiple of S that the sum of a round carries in all, by who adds the noise.

        `clients`: each of the N clients, sampled or not, adds a share of variance
        (S c)² / (N − 1), so that what N − 1 of them add, all but one who is removed or who knows
        its own, is enough. `local`: each of the clients that came adds all of it. `aggregators`:
        each of them does, so that the price holds where one alone is honest; the price is never
        that of all the noise.
        """
        factor = 1.0
        if self.noise == "clients":
            factor = math.sqrt(self.clients / (self.clients - 1))
        elif self.noise == "local":
            factor = math.sqrt(came)
        elif self.noise == "aggregators":
            factor = math.sqrt(self.aggregators)
        return factor * self.noise_multiplier

    def noise_std(self, came: int) -> float:
        """σ = S · c / m, the deviation of the noise on the mean of a round, which is public."""
        noise = self.noise_of_round(came)
        return self.bound * noise / self.clients_per_round if noise else 0.0

    def spent(self, rounds: int | None = None) -> Spent:
        """The training, or so many rounds of it, as it is priced."""
        number = self.rounds if rounds is None else rounds
        return Spent(self.priced_rate, self.noise_multiplier, number)

    @property
    def drawn_seen(self) -> bool:
        """Whether somebody outside a client's own site sees who is drawn: the server does.

        With aggregators each site tosses the coins of its clients and always sends one message of
        one size, so sampling amplifies against the server and the aggregators too.
        """
        return self.noise != "aggregators"

    def epsilon_without_amplification(self, rounds: int | None = None) -> float:
        """What the same costs against whoever can see who is drawn: the server, if anybody."""
        spent = self.spent(rounds)
        return price_together([spent], self.delta, self.accountant, drawn_seen=self.drawn_seen)

    def event(self, rounds: int | None = None) -> dp.DpEvent:
        """What the training, or so many rounds of it, did that costs privacy."""
        return self.spent(rounds).event()

    def price(self, rounds: int | None = None) -> Calibration:
        """What so many rounds with this noise cost; of a plan without noise, nothing is bought."""
        if not self.private or rounds in (None, self.rounds):
            return self.calibration
        spent = priced(self.noise_multiplier, self.priced_rate, rounds, self.delta, self.accountant)
        return replace(spent, epsilon=self.epsilon, trust=TRUST[self.noise])


@dataclass(frozen=True)
class ClippedPlan(PrivacyPlan):
    """Updates are clipped to S and get no noise: it shows what clipping does, and hides nobody."""

    def __post_init__(self) -> None:
        """Refuse a budget: without noise there is none."""
        super().__post_init__()
        if self.private:
            raise EpifedError(
                f"epsilon: found {self.epsilon:g} without noise; expected inf, because clipping "
                "alone guarantees nothing"
            )

    @property
    def bound(self) -> float:
        """S, although there is no noise."""
        return self.clip_norm
