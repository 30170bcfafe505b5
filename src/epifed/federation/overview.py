"""The state of a federation as its coordinator may know it, as one typed object.

The page and the metrics both stand on it; nothing else reaches them.
"""

from datetime import date, datetime, timedelta
from typing import Literal, get_args

from pydantic import Field

from epifed.federation.burning import Budget
from epifed.federation.past import Known, Training
from epifed.federation.worth import Worth

SiteState = Literal["connected", "contributed", "absent", "late", "refused", "faulty", "unknown"]
SITE_STATES: tuple[SiteState, ...] = get_args(SiteState)
WeekState = Literal["done", "skipped", "running", "waiting", "missed", "coming"]
WEEK_STATES: tuple[WeekState, ...] = get_args(WeekState)
NoticeKind = Literal[
    "server-away", "too-few-sites", "sites-absent", "sites-late", "sites-refused", "sites-faulty",
    "week-skipped", "week-overdue", "undelivered", "unusual", "unvouched", "ledger-fault",
    "ledger-unread", "budget-short", "budget-low", "certificate-over", "certificate-soon",
    "versions-differ",
]  # fmt: skip
NOTICE_KINDS: tuple[NoticeKind, ...] = get_args(NoticeKind)


class Live(Known):
    """What the server itself said when it was last asked."""

    asked: datetime
    reached: bool
    connected: tuple[str, ...] = ()
    training: str | None = None
    """That is running."""
    round: int | None = None
    rounds: int | None = None
    versions: dict[str, str] = Field(default_factory=dict)
    """Of epifed at each party that has said it."""


class Certificate(Known):
    """When a party's certificate ends."""

    party: str
    ends: datetime
    days: int
    """Whole days from now; negative: it is over."""

    @classmethod
    def of(cls, party: str, ends: datetime, now: datetime) -> "Certificate":
        """The certificate of a party as of now."""
        return cls(party=party, ends=ends, days=(ends - now) // timedelta(days=1))


class SiteSeen(Known):
    """One site: whether it is there, and how it stood in the last training."""

    name: str
    clients: int
    state: SiteState
    connected: bool | None
    """None: the server could not be asked."""
    code: str | None
    """Why the last round was without it."""
    without: int
    """Rounds of the last training that were without it."""
    weeks: str
    """Of the last trainings, the oldest first: t there, a absent, l late, r refused, f faulty."""
    has_release: bool | None
    """Whether the last release was delivered to it."""
    version: str | None


class WeekSeen(Known):
    """The week at hand, by the schedule."""

    name: str
    day: date
    due: datetime
    state: WeekState
    reason: str
    next_due: datetime | None
    done: int
    skipped: int
    planned: int


class Notice(Known):
    """Something that somebody should look at, or must."""

    kind: NoticeKind
    urgent: bool
    names: tuple[str, ...] = ()
    """Whom it concerns."""
    detail: str = ""


class Overview(Known):
    """The state of a federation as its coordinator may know it."""

    made: datetime
    federation: str
    clients: int
    """N, which is public."""
    aggregators: tuple[str, ...]
    version: str
    live: Live | None
    sites: tuple[SiteSeen, ...]
    week: WeekSeen | None
    trainings: tuple[Training, ...]
    """The oldest first; rounds and names of the last one only."""
    budget: Budget | None
    certificates: tuple[Certificate, ...]
    worth: tuple[Worth, ...]
    truth: str | None
    """The file of published counts that releases are compared with."""
    reasons: dict[str, dict[str, str]]
    """What codes mean, by language."""
    notices: tuple[Notice, ...]

    def counted(self) -> dict[SiteState, int]:
        """How many sites there are in each state."""
        states = [site.state for site in self.sites]
        return {state: states.count(state) for state in SITE_STATES}

    @property
    def releases(self) -> list[Training]:
        """The trainings that were released, tests left out."""
        return [one for one in self.trainings if one.release and not one.seeded]
