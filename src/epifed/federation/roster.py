"""Who takes part: the roster of a federation in `federation.toml`.

The clients enrolled here are the N of the accountant. The server samples among them whoever is
online, and a site that is away contributes zero.
"""

from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from epifed.data.readers.values import refuse_alike
from epifed.errors import EpifedError, counted
from epifed.federation.terms import Table, Terms

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9-]{0,40}$")]
Host = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.-]{0,62}$")]
Mail = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9._-]+@([A-Za-z0-9-]+\.)+[A-Za-z]{2,}$", max_length=63)
]

QUESTIONS = 50
"""For work, a second, of all waiting sites together: they keep about half a core busy."""
AGAIN = 2.0
"""Seconds without a sign of its reply before which no question is asked again."""
START = 60.0
"""Seconds that a site's worker has at least for its start."""

SOON = 30
"""Days before a certificate's end from which on it is a problem."""


class Server(Table):
    """Where the sites dial to: one host, one port."""

    host: Host
    port: int = Field(8002, ge=1, le=65535)


class Site(Table):
    """One party with data: a machine that hosts one or more clients."""

    name: Name
    clients: tuple[str, ...] = Field(min_length=1)
    own_key: bool = Field(False, description="the site makes its private key itself")
    signs: str | None = Field(
        None,
        pattern="^[0-9a-f]{64}$",
        description="with aggregators: the public key with which it signs its reports",
    )


class Aggregator(Table):
    """One party without data that adds up sealed shares: of another legal entity than the rest."""

    name: Name
    own_key: bool = Field(True, description="it makes the private key of its certificate itself")


class Federation(Table):
    """The roster and how its rounds are run."""

    name: Name = Field("epifed", description="of the federation")
    language: Literal["en", "de"] = Field("en", description="of the readme in each kit: en or de")
    coordinator: Mail = Field("coordinator@epifed.org", description="who may start trainings")
    root_days: int = Field(3650, ge=1, description="life of the root certificate")
    certificate_days: int = Field(730, ge=1, description="life of a party's certificate")
    rounds_per_job: int = Field(10, ge=1, description="rounds until sites that came late may join")
    round_timeout: float = Field(120.0, gt=0, description="seconds a round waits for its sites")
    min_sites: int = Field(
        1, ge=1, description="sites that must answer with a vector for a round to be spent"
    )
    removed: tuple[Name, ...] = Field((), description="sites whose certificates are void")
    server: Server
    terms: Terms = Field(Terms(), description="proposed to the sites, each of which has its own")
    sites: tuple[Site, ...] = Field(min_length=1)
    aggregators: tuple[Aggregator, ...] = Field(
        (), max_length=16, description="who add up in the server's place: none, or at least two"
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        names = [site.name.lower() for site in self.sites]
        names += [aggregator.name.lower() for aggregator in self.aggregators]
        if len(self.aggregators) == 1:
            raise ValueError(
                "aggregators: found 1; expected none, or at least 2 of different legal entities"
            )
        for taken in (names, self.clients):
            name, times = Counter(taken).most_common(1)[0]
            if times > 1:
                raise ValueError(f"sites: found '{name}' {times} times; expected it once")
        try:
            refuse_alike("sites", self.clients)
        except EpifedError as error:
            raise ValueError(str(error)) from None
        reserved = {"server", "all", self.server.host.lower()} & set(names)
        if reserved:
            raise ValueError(f"sites: found the name '{min(reserved)}', which is not free")
        void = {name.lower() for name in self.removed} & set(names)
        if void:
            raise ValueError(
                f"sites: found '{min(void)}', which was removed; expected a new name, because a "
                "removed one is refused for good"
            )
        if self.certificate_days > self.root_days:
            raise ValueError(
                f"certificate_days: found {self.certificate_days}; expected at most the "
                f"{self.root_days} days of the root certificate"
            )
        if self.min_sites > len(self.sites):
            raise ValueError(
                f"min_sites: found {self.min_sites} of {counted(len(self.sites), 'site')}; "
                "expected at most "
                "all"
            )
        return self

    @cached_property
    def clients(self) -> tuple[str, ...]:
        """The N enrolled clients in their one order, which sampling goes by."""
        return tuple(sorted(client for site in self.sites for client in site.clients))

    @cached_property
    def site_of(self) -> dict[str, str]:
        """The site that hosts a client."""
        return {client: site.name for site in self.sites for client in site.clients}

    @property
    def parties(self) -> tuple[Site | Aggregator, ...]:
        """All who dial the server: aggregators first, who must be there."""
        return (*self.aggregators, *self.sites)

    @cached_property
    def signs(self) -> dict[str, str]:
        """The public keys with which sites sign their reports, of those that are known."""
        return {site.name: site.signs for site in self.sites if site.signs}

    @property
    def request_interval(self) -> float:
        """Seconds between two questions of a waiting site for work."""
        return min(max(0.2, len(self.sites) / QUESTIONS), 2.0)

    @property
    def ask_again(self) -> float:
        """Seconds after which a site repeats a question, or its answer, that a cut line has lost:
        several times in a round."""
        return max(AGAIN, self.round_timeout / 4)

    @property
    def start_timeout(self) -> float:
        """Seconds in which a site's worker must have started, or have taken the model."""
        return max(START, self.round_timeout)

    def with_signs(self, known: Mapping[str, str]) -> Self:
        """The roster with the sites' public keys where it does not say them itself."""
        sites = (
            site.model_copy(update={"signs": site.signs or known.get(site.name)})
            for site in self.sites
        )
        return self.model_copy(update={"sites": tuple(sites)})

    def party(self, name: str) -> Site | Aggregator:
        """The site or aggregator of that name."""
        found = next((party for party in self.parties if party.name == name), None)
        return found or self.site(name)

    def site(self, name: str) -> Site:
        """The site of that name."""
        for site in self.sites:
            if site.name == name:
                return site
        raise EpifedError(f"site '{name}': not in the roster of the federation '{self.name}'")
