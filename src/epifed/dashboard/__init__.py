"""The coordinator's page and Prometheus metrics: a read-only web server.

One thread reads the files at intervals. Another asks the server, which may take a minute. A request
waits for neither. Access is from this machine, or with a token over TLS. Every answer has headers
that let a browser load nothing from elsewhere. The Host header is checked against DNS rebinding.
"""

import base64
import binascii
import hashlib
import hmac
import ipaddress
import os
import ssl
import sys
import threading
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

from cryptography import x509
from fastapi import FastAPI, Header, Response
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric
from starlette.datastructures import Headers
from starlette.middleware.gzip import GZipMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Scope

from epifed.errors import EpifedError
from epifed.federation.status import (
    NOTICE_KINDS,
    WEEK_STATES,
    Beside,
    FederationState,
    Live,
    Places,
    read_status,
)
from epifed.report.html import asset
from epifed.report.served import Guarded, served_page

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def exposition(overview: FederationState, seconds: float) -> bytes:
    """All metrics in Prometheus' text format; `seconds` is the time that reading the state took."""

    class Once:
        def collect(self) -> Iterator[Metric]:
            yield from _general(overview, seconds)
            yield from _sites(overview)
            yield from _weeks(overview)
            yield from _budget(overview)

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Once())
    found: bytes = generate_latest(registry)
    return found


def _general(seen: FederationState, seconds: float) -> Iterator[Metric]:
    yield InfoMetricFamily(
        "epifed", "The federation and the version of epifed here",
        {"federation": seen.federation, "version": seen.version},
    )  # fmt: skip
    yield _gauge("look_timestamp_seconds", "When the state was read", seen.made.timestamp())
    yield _gauge("look_seconds", "Seconds that reading the state took", seconds)
    if seen.live:
        reached = "Whether the server answered when it was last asked"
        yield _gauge("server_reached", reached, float(seen.live.reached))
        asked = seen.live.asked.timestamp()
        yield _gauge("server_asked_timestamp_seconds", "When the server was last asked", asked)
    notices = GaugeMetricFamily(
        "epifed_notices", "Active warnings and alerts", labels=["kind", "urgent"]
    )
    urgent: dict[str, bool] = {one.kind: one.urgent for one in seen.notices}
    for kind in NOTICE_KINDS:
        for level in (True, False):
            there = urgent.get(kind) is level
            notices.add_metric([kind, str(level).lower()], float(there))
    yield notices
    ends = GaugeMetricFamily(
        "epifed_certificate_end_timestamp_seconds", "When a certificate ends", labels=["party"]
    )
    for one in seen.certificates:
        ends.add_metric([one.party], one.ends.timestamp())
    yield ends


def _sites(seen: FederationState) -> Iterator[Metric]:
    sites = GaugeMetricFamily("epifed_sites", "Sites by their state", labels=["state"])
    for state, number in seen.counted().items():
        sites.add_metric([state], number)
    yield sites
    versions = GaugeMetricFamily(
        "epifed_site_versions", "Sites by their version of epifed", labels=["version"]
    )
    for version, number in sorted(Counter(s.version for s in seen.sites if s.version).items()):
        versions.add_metric([version], number)
    yield versions
    refusals = CounterMetricFamily(
        "epifed_refusals", "How often a round was without a site, by the reason", labels=["code"]
    )
    counted = sum((Counter(one.codes) for one in seen.trainings), Counter[str]())
    for code in sorted(seen.reasons.keys() | counted.keys()):
        refusals.add_metric([code], counted[code])
    yield refusals


def _weeks(seen: FederationState) -> Iterator[Metric]:
    yield _counter("releases", "Releases so far", len(seen.releases))
    if seen.trainings and seen.trainings[-1].done:
        last = seen.trainings[-1]
        yield _gauge("training_rounds", "Rounds asked for by the last training", last.rounds)
        done = last.done[-1].number
        yield _gauge("training_rounds_done", "Rounds done of the last training", done)
        if last.seconds is not None:
            yield _gauge("round_seconds", "Seconds between two rounds, in the middle", last.seconds)
    if seen.releases and (released := seen.releases[-1].release):
        moment = released.created.timestamp()
        yield _gauge("release_timestamp_seconds", "When the last release was made", moment)
    if week := seen.week:
        state = GaugeMetricFamily(
            "epifed_week_state", "How the week at hand stands", labels=["state"]
        )
        for name in WEEK_STATES:
            state.add_metric([name], float(week.state == name))
        yield state
        weeks = GaugeMetricFamily(
            "epifed_week_outcomes", "Weeks by what became of them", labels=["outcome"]
        )
        counts = {"done": week.done, "skipped": week.skipped, "wasted": week.wasted}
        for outcome, number in counts.items():
            weeks.add_metric([outcome], number)
        yield weeks
        delay = "Seconds from the time of the week at hand to its last round"
        ran = [one for one in seen.trainings if one.name == week.name and one.done]
        if ran:
            took = (ran[-1].done[-1].time - week.due).total_seconds()
            yield _gauge("week_seconds", delay, took)
    came = [one for one in seen.worth if one.came is not None]
    like = sum(abs(one.like_today - (one.came or 0.0)) for one in came)
    if like:
        error = sum(abs(one.forecast - (one.came or 0.0)) for one in came) / like
        yield _gauge(
            "forecast_error_ratio",
            "Error of the releases' forecasts of the nation, relative to persistence",
            error,
        )


def _budget(seen: FederationState) -> Iterator[Metric]:
    budget = seen.budget
    if budget is None:
        return
    yield _gauge("epsilon_cap", "The budget's ε, at the ledger's δ", budget.epsilon)
    yield _gauge("delta", "The budget's δ", budget.delta)
    yield _gauge("epsilon_spent", "ε released that counts against the cap, composed", budget.spent)
    yield _gauge("epsilon_taken", "The same with what open trainings have reserved", budget.taken)
    yield _gauge("epsilon_left", "ε that is left", budget.left)
    if budget.window is not None:
        yield _gauge("epsilon_total", "ε since the beginning, which no cap limits", budget.total)
    yield _counter("rounds_paid", "Rounds charged to the ledger", budget.rounds)
    planned = [p.epsilon for p in budget.plan if p.day <= seen.made.date()]
    if budget.plan:
        spent = planned[-1] if planned else 0.0
        yield _gauge("epsilon_planned", "ε that the schedule would have spent by now", spent)
    if budget.weeks_fit is not None:
        yield _gauge("budget_releases", "Further weeks that fit into the budget", budget.weeks_fit)
    if budget.weeks_left is not None:
        yield _gauge("schedule_releases", "Weeks that the schedule still has", budget.weeks_left)
    healthy = "Whether the ledger is the newest that this machine has seen"
    yield _gauge("ledger_ok", healthy, float(budget.fault is None))


def _gauge(name: str, meaning: str, value: float) -> Metric:
    return GaugeMetricFamily(f"epifed_{name}", meaning, value=value)


def _counter(name: str, meaning: str, value: float) -> Metric:
    return CounterMetricFamily(f"epifed_{name}", meaning, value=value)


ROOT = "root"
"""The key of the root certificate beside the names of the parties."""
ANSWERED = 60.0
"""Seconds after which certificates are read again."""


@dataclass(frozen=True)
class Snapshot:
    """The state in the forms that are served."""

    overview: FederationState
    state: bytes
    tag: str
    metrics: bytes

    @classmethod
    def of(cls, overview: FederationState, seconds: float) -> "Snapshot":
        """The state as JSON and as metrics; `seconds` is the time that reading it took."""
        state = overview.model_dump_json().encode()
        tag = hashlib.sha256(state).hexdigest()[:32]
        return cls(overview, state, tag, exposition(overview, seconds))


class StatusPoller:
    """Reads the state of a federation every few seconds until it is stopped."""

    def __init__(
        self,
        places: Places,
        ask: Callable[[], Live] | None,
        ends: Callable[[], dict[str, datetime]],
        every: float,
        ask_every: float,
    ) -> None:
        self._places, self._ask, self._ends = places, ask, ends
        self._every, self._ask_every = every, ask_every
        self._live = Live(asked=datetime.now(UTC), reached=False) if ask else None
        self._asked = False
        self._read: tuple[float, dict[str, datetime]] | None = None
        self._end = threading.Event()
        self._said: dict[str, str] = {}
        self.snapshot = self._look()

    def start(self) -> None:
        """Start the threads that read the files and ask the server."""
        threading.Thread(target=self._go_on, daemon=True, name="looking").start()
        if self._ask:
            threading.Thread(target=self._listen, daemon=True, name="asking").start()

    def stop(self) -> None:
        """Stop reading."""
        self._end.set()

    def _look(self) -> Snapshot:
        began = time.perf_counter()
        if self._read is None or began - self._read[0] > ANSWERED:
            self._read = began, self._ends()
        live = self._live if self._asked else None
        overview = read_status(self._places, Beside(live, self._read[1]))
        return Snapshot.of(overview, time.perf_counter() - began)

    def _go_on(self) -> None:
        while not self._end.wait(self._every):
            try:
                self.snapshot = self._look()
                self._said.pop("files", None)
            except (EpifedError, OSError) as error:  # the page shows how old its state is
                self._say("files", str(error))

    def _listen(self) -> None:
        while self._ask is not None:
            try:
                self._live = _remembering(self._live, self._ask())
                self._said.pop("server", None)
            except Exception as error:  # FLARE's errors share no base class
                away = Live(asked=datetime.now(UTC), reached=False)
                self._live = _remembering(self._live, away)
                self._say("server", str(error))
            self._asked = True
            if self._end.wait(self._ask_every):
                return

    def _say(self, what: str, sentence: str) -> None:
        """Print a sentence to the terminal, unless it is the same as before."""
        if sentence != self._said.get(what):
            print(f"epifed: {sentence}", file=sys.stderr, flush=True)
        self._said[what] = sentence


def _remembering(before: Live | None, now: Live) -> Live:
    """The server's present answer, with the versions that sites stated when last greeted."""
    versions = (before.versions if before else {}) | now.versions
    return now.model_copy(update={"versions": versions})


def ask_server(kit: Path) -> Callable[[], Live]:
    """A function that asks the server with the coordinator's kit, as `epifed federation status`."""
    from epifed.federation.flare.jobs import CoordinatorSession, look

    desk = CoordinatorSession(kit)
    desk.name()

    def ask() -> Live:
        found = look(desk)
        running: dict[str, Any] = next((one for one in found["running"] if "training" in one), {})
        return Live(
            asked=datetime.now(UTC),
            reached=True,
            connected=tuple(found["connected"]),
            training=running.get("training"),
            round=running.get("round"),
            rounds=running.get("rounds"),
            versions=running.get("versions", {}),
        )

    return ask


def certificate_ends(kits: dict[str, Path]) -> Callable[[], dict[str, datetime]]:
    """A function that reads when these kits' certificates end; a folder that is no kit has none."""
    from epifed.federation.flare.kits import certificate

    def read() -> dict[str, datetime]:
        found = {}
        for party, kit in kits.items():
            try:
                one = certificate(kit)
            except EpifedError:
                continue
            found[party] = one.expires
            found[ROOT] = one.root_expires
        return found

    return read


LEAST_TOKEN = 32
"""Least characters of a token: it is generated, not chosen."""
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
METHODS = ("GET", "HEAD")


@dataclass(frozen=True)
class Access:
    """Where the page is served, and the token that a request must have."""

    host: str
    names: tuple[str, ...]
    """Hosts that a request may name."""
    token: str | None = None
    viewers: Path | None = None
    """A file with a token for each further reader; it is read at every request."""
    certificate: Path | None = None
    key: Path | None = None

    @classmethod
    def of(
        cls,
        host: str,
        token: Path | None,
        certificate: Path | None,
        key: Path | None,
        viewers: Path | None = None,
    ) -> "Access":
        """Checked access: beyond this machine only with a token and TLS."""
        if (certificate is None) != (key is None):
            raise EpifedError("found one of --certificate and --key; expected both or neither")
        if not _is_loopback(host) and (token is None or certificate is None):
            raise EpifedError(
                f"--host: found {host}, which other machines can reach; expected --token-file, "
                "--certificate and --key with it, or 127.0.0.1"
            )
        if viewers is not None:
            if token is None:
                raise EpifedError("--viewers: found no --token-file; expected it with them")
            read_viewers(viewers)
        names: tuple[str, ...] = LOOPBACK
        if certificate is not None and key is not None:
            _refuse_open(key)
            names = (*names, *_names(certificate))
            _refuse_unusable(certificate, key)
        return cls(host, names, _token(token) if token else None, viewers, certificate, key)

    def tokens(self) -> tuple[str, ...]:
        """The tokens accepted now: the owner's, and those of the viewers.

        If the viewers' tokens cannot be read, only the owner's is accepted.
        """
        own = () if self.token is None else (self.token,)
        try:
            return (*own, *read_viewers(self.viewers).values()) if self.viewers else own
        except EpifedError:
            return own

    @property
    def scheme(self) -> str:
        """The scheme of the page's address."""
        return "https" if self.certificate else "http"

    def refusal(self, scope: Scope) -> PlainTextResponse | None:
        """The response to a request with a wrong method or token; None if it is allowed."""
        if scope["method"] not in METHODS:
            allowed = {"allow": ", ".join(METHODS)}
            return PlainTextResponse("This page can only be read.\n", 405, allowed)
        if self.token is None or _brings(Headers(scope=scope), self.tokens()):
            return None
        asked = {"www-authenticate": 'Basic realm="epifed", charset="UTF-8"'}
        return PlainTextResponse("The token is missing or wrong.\n", 401, asked)


def read_viewers(path: Path) -> dict[str, str]:
    """The tokens of further readers beside the owner, by name."""
    _refuse_open(path)
    try:
        viewers = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise EpifedError(f"{path}: cannot be read: {error.strerror}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise EpifedError(
            f'{path}: expected a line for each viewer, name = "token"; {error}'
        ) from None
    for name, token in viewers.items():
        if not isinstance(token, str):
            raise EpifedError(f'{path}: {name}: found {token!r}; expected a token, "…"')
        _refuse_weak(path, token)
    return viewers


def _brings(headers: Headers, tokens: tuple[str, ...]) -> bool:
    """Whether a request has one of the tokens, as a bearer token or as any user's password."""
    kind, _, said = headers.get("authorization", "").partition(" ")
    given = said.strip()
    if kind.lower() == "basic":
        try:
            given = base64.b64decode(given, validate=True).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            given = ""
    elif kind.lower() != "bearer":
        given = ""
    found = [hmac.compare_digest(given.encode(), token.encode()) for token in tokens]
    return any(found)  # all are compared, so that the time does not show which one matched


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        raise EpifedError(
            f"--host: found '{host}'; expected an address of this machine, such as 127.0.0.1"
        ) from None


def _token(path: Path) -> str:
    _refuse_open(path)
    try:
        token = path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise EpifedError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise EpifedError(f"{path}: expected text: a token") from None
    _refuse_weak(path, token)
    return token


def _refuse_weak(path: Path, token: str) -> None:
    if len(token) < LEAST_TOKEN or not token.isascii() or not token.isprintable():
        raise EpifedError(
            f"{path}: found a token of {len(token)} characters; expected at least {LEAST_TOKEN} "
            "plain ones, as 'openssl rand -hex 32' makes them"
        )


def _refuse_open(path: Path) -> None:
    """Refuse a secret that others on this machine can read."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise EpifedError(f"{path}: cannot be read: {error.strerror}") from None
    if os.name == "posix" and mode & 0o077:
        raise EpifedError(f"{path}: others can read it; expected 'chmod 600'")


def _names(certificate: Path) -> tuple[str, ...]:
    """The hosts that a certificate is for, which requests may name."""
    try:
        found = x509.load_pem_x509_certificate(certificate.read_bytes())
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except OSError as error:
        raise EpifedError(f"{certificate}: cannot be read: {error.strerror}") from None
    except (ValueError, x509.ExtensionNotFound):
        raise EpifedError(
            f"{certificate}: expected a certificate as PEM that names its hosts"
        ) from None
    found_at = names.get_values_for_type(x509.IPAddress)
    addresses = [f"[{one}]" if one.version == 6 else str(one) for one in found_at]
    return (*names.get_values_for_type(x509.DNSName), *addresses)


def _refuse_unusable(certificate: Path, key: Path) -> None:
    def no_password() -> Any:
        raise EpifedError(f"{key}: found a key with a password; expected one without")

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key, no_password)
    except (ssl.SSLError, OSError) as error:
        raise EpifedError(
            f"{key}: expected the private key of {certificate.name}; {error}"
        ) from None


SHARED_STYLES = ("page.css", "print.css")
"""From the report, like the scripts below and the charting library."""
SHARED_SCRIPTS = ("format.js", "charts.js", "tables.js", "controls.js")
OWN_STYLES = ("board.css",)
OWN_SCRIPTS = ("words.js", "data.js")
OWN_LAST = ("sites.js", "weeks.js", "budget.js", "about.js", "main.js")
READ = ["GET", "HEAD"]


def own(name: str) -> str:
    """The text of one of the page's files."""
    return files(__package__).joinpath("assets", name).read_text(encoding="utf-8")


def make_app(watching: StatusPoller, access: Access) -> ASGIApp:
    """The web application, behind the rules of access."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    styles = [*map(asset, SHARED_STYLES), *map(own, OWN_STYLES)]
    scripts = [*map(own, OWN_SCRIPTS), *map(asset, SHARED_SCRIPTS), *map(own, OWN_LAST)]
    page, kept = served_page(own("page.html"), styles, scripts)

    @app.api_route("/", methods=READ)
    async def _page() -> Response:
        return Response(page, media_type="text/html")

    @app.api_route("/assets/{name}", methods=READ)
    async def _asset(name: str) -> Response:
        if name not in kept:
            return Response("not here\n", 404, media_type="text/plain")
        headers = {"cache-control": "private, max-age=31536000, immutable"}
        return Response(kept[name].content, 200, headers, kept[name].media_type)

    @app.api_route("/api/state", methods=READ)
    async def _state(if_none_match: Annotated[str | None, Header()] = None) -> Response:
        now = watching.snapshot
        headers = {"etag": f'"{now.tag}"'}
        if if_none_match == headers["etag"]:
            return Response(None, 304, headers)
        return Response(now.state, 200, headers, "application/json")

    @app.api_route("/metrics", methods=READ)
    async def _metrics() -> Response:
        return Response(watching.snapshot.metrics, headers={"content-type": CONTENT_TYPE})

    zipped = GZipMiddleware(app, minimum_size=2000)
    trusted = TrustedHostMiddleware(zipped, list(access.names), www_redirect=False)
    return Guarded(trusted, access.refusal)
