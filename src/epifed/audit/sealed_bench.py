"""The two trainings with aggregators that the audit opens and looks at.

A *quiet* one, to which nobody sends anything, and a *busy* one, in which every client sends far
more than S in a direction of its own while sites drop out.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from epifed.audit.mechanisms import Trial
from epifed.audit.sealed import Parties, Played, SeenRound, Steps, at_work
from epifed.audit.served import work_in
from epifed.federation.messages import Parts
from epifed.learners.base import Floats, Vector
from epifed.privacy.noise import STEPS, clip
from epifed.privacy.plan import PrivacyPlan
from epifed.settings import Settings, seed_sequence

HONEST = "site-1"
"""The site that is attacked; the others are in league with the attackers."""
FEW = "site-3"
"""It has one client, so that often none is drawn."""
ROUNDS = 4
DRAWN = 2
"""One in so many clients is drawn."""
AWAY: tuple[set[str], ...] = (set(), {"site-2"}, {"site-2", "site-3"}, set())
"""Who drops out of the busy rounds: in the third all but one."""
EXCESS = 100.0
"""A busy client sends so many times S."""
EPSILON = 8.0
"""The claim of both trainings: at a smaller one, or a larger, so few canaries tell less."""
LARGE = 2**20
"""A number of steps, or more, that is not met by chance."""
COPIES, MOST_COPIES = 2, 25


@dataclass(frozen=True)
class Layout:
    """Who is where: the clients of each site, and the numbers of a vector."""

    canaries: int
    """Clients of the attacked site; even."""

    @property
    def sites(self) -> dict[str, tuple[int, ...]]:
        """The clients of each site."""
        start = self.canaries
        others = {"site-2": range(start, start + 7), FEW: range(start + 7, start + 8)}
        return {HONEST: tuple(range(start))} | {name: tuple(ks) for name, ks in others.items()}

    @property
    def clients(self) -> int:
        """N."""
        return self.canaries + 8

    @property
    def length(self) -> int:
        """Room for a direction of each client, and for as many of nobody as there are canaries."""
        return self.clients + self.canaries


LAYOUT = Layout(392)


@dataclass(frozen=True)
class Again:
    """What copies of two sites answer to tasks that the sites have answered before."""

    sent: tuple[Steps, ...]
    """By copies of the attacked site."""
    few: dict[bool, list[Parts]]
    """By copies of the one with few clients, by whether any was drawn."""

    @classmethod
    def of(cls, parties: Parties, seen: SeenRound) -> "Again":
        """Of the tasks of a round."""
        few: dict[bool, list[Parts]] = {False: [], True: []}
        for _ in range(MOST_COPIES):
            answer, vector = _answered(parties, seen, FEW)
            few[bool(vector.any())].append(answer)
            if all(few.values()):
                break
        return cls(tuple(_answered(parties, seen, HONEST)[1] for _ in range(COPIES)), few)


def _answered(parties: Parties, seen: SeenRound, site: str) -> tuple[Parts, Steps]:
    answer, error = work_in(parties.copied(site)).answer(seen.tasks[site])
    if error is not None:
        raise error
    return answer, parties.vector(seen.pact, parties.report(answer, seen.pact, site))


@dataclass(frozen=True)
class SealedBench:
    """The trainings, each played when a check first needs it."""

    settings: Settings
    seed: int = 0
    layout: Layout = LAYOUT

    @property
    def length(self) -> int:
        """The numbers of a vector."""
        return self.layout.length

    @cached_property
    def plan(self) -> PrivacyPlan:
        """What both cost by the claim."""
        return PrivacyPlan.of(self._settings.but(noise="aggregators"), self.layout.clients)

    @property
    def deviation(self) -> float:
        """What the noise of each aggregator must have, in steps."""
        return self.plan.noise_multiplier * STEPS

    @cached_property
    def quiet(self) -> Played:
        """Nobody sends anything, to three aggregators."""
        sent = np.zeros((self.layout.clients, self.length), dtype=np.float32)
        with at_work(self._trial(sent), self.layout.sites, 3) as (parties, settings):
            return Played.of(parties, settings)

    @property
    def busy(self) -> Played:
        """Everybody sends, to two aggregators; sites drop out."""
        return self._busy[0]

    @property
    def again(self) -> Again:
        """What copies of its sites send to the tasks of its first round."""
        return self._busy[1]

    def trainings(self) -> Iterator[Played]:
        """Both, one after the other."""
        yield self.busy
        yield self.quiet

    @cached_property
    def directions(self) -> Floats:
        """Orthonormal rows: one for each client, and then those that no client has."""
        rng = np.random.default_rng(seed_sequence(self.seed, "sealed", "directions"))
        found: Floats = np.linalg.qr(rng.standard_normal((self.length, self.length)))[0]
        return found

    def weights(self, vector: Steps) -> Floats:
        """How many times S counts in a vector for each client."""
        found: Floats = self.directions[: self.layout.clients] @ (vector / STEPS)
        return found

    def drawn(self, vector: Steps) -> NDArray[np.int64]:
        """1 for each client of the attacked site whose vector is in what it sent, else 0."""
        mine = self.weights(vector)[: self.layout.canaries]
        return (mine > 1 / 2).astype(np.int64)

    @cached_property
    def sent(self) -> Vector:
        """What the busy clients send."""
        rows = EXCESS * self.settings.clip_norm * self.directions[: self.layout.clients]
        return rows.astype(np.float32)

    @cached_property
    def contributions(self) -> NDArray[np.uint64]:
        """What nobody may see of the busy training: numbers of sums, pairs of clients' numbers."""
        sums = np.concatenate([v for sent in self.busy.vectors for v in sent.values()])
        rows = clip(self.sent, self.plan.bound).astype(np.float32)
        large = sums[np.abs(sums) > LARGE].view(np.uint64)
        return np.unique(np.concatenate([large, rows.view(np.uint64).ravel()]))

    @cached_property
    def _busy(self) -> tuple[Played, Again]:
        with at_work(self._trial(self.sent), self.layout.sites) as (parties, settings):
            parties.away = [*AWAY]
            played = Played.of(parties, settings)
            return played, Again.of(parties, played.rounds[0])

    @cached_property
    def _settings(self) -> Settings:
        return self.settings.but(
            clients_per_round=self.layout.clients // DRAWN,
            rounds=ROUNDS,
            epsilon=EPSILON,
            accountant="rdp",
            sampler="poisson",
        )

    def _trial(self, sent: Vector) -> Trial:
        return Trial(self._settings, sent, np.ones(len(sent), dtype=np.int64))
