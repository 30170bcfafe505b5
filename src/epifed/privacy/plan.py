"""The privacy plan of a training: clipping, sampling and noise, and their privacy cost.

One object holds the bound S, the sampling, the rounds, and the noise and who adds it. It also holds
the event that an accountant prices, and whom a client must trust. Training and pricing both read
it. No other code computes a noise deviation, a sampling rate or an ε.
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
        "of a client that leaves stays, for a variance without it would reveal that it left"
    ),
    "local": (
        "clients trust nobody: each adds all the noise to its own update, so no update reveals "
        "more than the release may; the server sees who takes part, so sampling amplifies nothing"
    ),
}
"""What a client must trust for its ε to hold, by who adds the noise."""


@dataclass(frozen=True)
class Spent:
    """Released rounds of one mechanism, with all that an accountant needs to price them."""

    sampling_rate: float
    noise_multiplier: float
    rounds: int

    def event(self, *, drawn_seen: bool = False) -> dp.DpEvent:
        """The event to price; at q = 1 with `drawn_seen`, against anyone who sees who is drawn."""
        rate = 1.0 if drawn_seen else self.sampling_rate
        return training_event(rate, self.noise_multiplier, self.rounds)


def price_together(
    spent: Sequence[Spent], delta: float, accountant: str, *, drawn_seen: bool = False
) -> float:
    """The composed ε of all these rounds; infinite if some had no noise."""
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

    Training and pricing both read this object.

    Parameters
    ----------
    clients : int
        N, the clients that may take part.
    clients_per_round : int
        m, expected clients of a round; the sampling rate is q = m / N.
    rounds : int
        T_cl, the rounds of the training.
    clip_norm : float
        S, the largest norm of a client's vector.
    noise : str
        Who adds the noise.
    epsilon, delta : float
        The budget; an infinite ε adds no noise.
    accountant : str
        Its name, such as `rdp` or `pld`.

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
    """N, in q = m / N."""
    clients_per_round: int
    rounds: int
    clip_norm: float
    noise: NoiseName
    sampler: SamplerName
    epsilon: float
    delta: float
    accountant: str
    aggregators: int = 0
    """k, the number of aggregators, each of which adds all of the noise; 0 with other noise."""

    def __post_init__(self) -> None:
        """Refuse a plan that cannot be run."""
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
        """The plan of these settings with this number of clients.

        Parameters
        ----------
        settings : Settings
            Of the training.
        clients : int
            N, all clients.

        Returns
        -------
        PrivacyPlan
            What runs and what is priced.

        Raises
        ------
        EpifedError
            If the plan cannot be run.
        """
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
        """q = m / N, the probability that a client is drawn in a round."""
        return self.clients_per_round / self.clients

    @property
    def priced_rate(self) -> float:
        """The q that is priced: 1 for local noise, because the server sees who takes part."""
        return 1.0 if self.noise == "local" else self.sampling_rate

    @cached_property
    def calibration(self) -> Calibration:
        """The smallest noise that keeps the training within its budget, and its privacy cost."""
        found = calibrate(self.epsilon, self.delta, self.priced_rate, self.rounds, self.accountant)
        return replace(found, trust=TRUST[self.noise])

    def announced(self, noise_multiplier: float) -> Self:
        """The same plan with the announced c, because calibrations may differ in the last bits.

        Parameters
        ----------
        noise_multiplier : float
            c, as the server announced it.

        Returns
        -------
        PrivacyPlan
            The same plan with this c.
        """
        plan = replace(self)
        calibration = replace(self.calibration, noise_multiplier=noise_multiplier)
        vars(plan)["calibration"] = calibration
        return plan

    @property
    def noise_multiplier(self) -> float:
        """c: the priced noise on a sum has deviation S · c."""
        return self.calibration.noise_multiplier

    def noise_of_round(self, participants: int) -> float:
        """The deviation of all noise on a round's sum, as a multiple of S, by who adds the noise.

        `clients`: each of the N clients, sampled or not, adds a share of variance (S c)² / (N − 1).
        So the shares of N − 1 are enough: one client may be removed, or know its own share.
        `local`: each participating client adds all of it. `aggregators`: each adds all of it, so
        the price holds if one alone is honest. The price is never that of all the noise.

        Parameters
        ----------
        participants : int
            Clients that take part in the round.

        Returns
        -------
        float
            In units of S.
        """
        factor = 1.0
        if self.noise == "clients":
            factor = math.sqrt(self.clients / (self.clients - 1))
        elif self.noise == "local":
            factor = math.sqrt(participants)
        elif self.noise == "aggregators":
            factor = math.sqrt(self.aggregators)
        return factor * self.noise_multiplier

    def noise_std(self, participants: int) -> float:
        """σ = S · c / m, the standard deviation of the noise on a round's mean, which is public.

        Parameters
        ----------
        participants : int
            Clients that take part in the round.

        Returns
        -------
        float
            In units of a contribution.
        """
        noise = self.noise_of_round(participants)
        return self.bound * noise / self.clients_per_round if noise else 0.0

    def spent(self, rounds: int | None = None) -> Spent:
        """The rounds of the training, or so many of them, as they are priced.

        Parameters
        ----------
        rounds : int, optional
            T_cl, by default all.

        Returns
        -------
        Spent
            Rounds with their q and c.
        """
        number = self.rounds if rounds is None else rounds
        return Spent(self.priced_rate, self.noise_multiplier, number)

    @property
    def drawn_seen(self) -> bool:
        """Whether anyone outside a client's own site sees who is drawn, such as the server.

        With aggregators each site draws its own clients and always sends one message of one size.
        So sampling amplifies against the server and the aggregators too.
        """
        return self.noise != "aggregators"

    def epsilon_without_amplification(self, rounds: int | None = None) -> float:
        """The ε against anyone who can see who is drawn, such as the server.

        Parameters
        ----------
        rounds : int, optional
            T_cl, by default all.

        Returns
        -------
        float
            ε at q = 1.
        """
        spent = self.spent(rounds)
        return price_together([spent], self.delta, self.accountant, drawn_seen=self.drawn_seen)

    def event(self, rounds: int | None = None) -> dp.DpEvent:
        """The event of the training, or of so many rounds of it, for an accountant.

        Parameters
        ----------
        rounds : int, optional
            T_cl, by default all.

        Returns
        -------
        DpEvent
            For an accountant.
        """
        return self.spent(rounds).event()

    def price(self, rounds: int | None = None) -> Calibration:
        """The privacy cost of so many rounds with this noise; without noise, no guarantee.

        Parameters
        ----------
        rounds : int, optional
            T_cl, by default all.

        Returns
        -------
        Calibration
            c and the ε that it spends.
        """
        if not self.private or rounds in (None, self.rounds):
            return self.calibration
        spent = priced(self.noise_multiplier, self.priced_rate, rounds, self.delta, self.accountant)
        return replace(spent, epsilon=self.epsilon, trust=TRUST[self.noise])


@dataclass(frozen=True)
class ClippedPlan(PrivacyPlan):
    """A plan that clips updates to S without noise, to show the effect of clipping: not private."""

    def __post_init__(self) -> None:
        """Refuse a finite ε, which a plan without noise cannot give."""
        super().__post_init__()
        if self.private:
            raise EpifedError(
                f"epsilon: found {self.epsilon:g} without noise; expected inf, because clipping "
                "alone guarantees nothing"
            )

    @property
    def bound(self) -> float:
        """S, the clip norm although there is no noise."""
        return self.clip_norm
