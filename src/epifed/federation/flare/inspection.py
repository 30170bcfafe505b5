"""Checks of a site's kit, connection and data before anything runs, in plain sentences."""

import json
import math
import socket
import ssl
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path

from epifed.data.panel import CasePanel
from epifed.data.readers import load_panel
from epifed.errors import EpifedError, counted
from epifed.federation.flare.kits import authorization, certificate, connections, site_resources
from epifed.federation.messages import ProtocolRange, last_greeting, report_bytes
from epifed.federation.scaffold import SCHEDULE, SETTINGS
from epifed.federation.schedule import Schedule
from epifed.federation.site import KEY, TERMS, LastAsked, Source, full_disk, hosted_clients
from epifed.federation.terms import OLD_DAYS, SOON, Terms
from epifed.learners.base import make_learner
from epifed.privacy.accounting import UNIT, rounded_up
from epifed.privacy.plan import TRUST
from epifed.settings import Settings, read_values, seed_sequence


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    what: str
    ok: bool
    sentence: str


def check_settings(kit: Path, path: Path | None) -> Settings:
    """The settings with which a site is checked.

    Those of the given file, else of the kit, of the last training, or the operational preset.
    """
    asked = LastAsked.of(kit)
    own = kit / SETTINGS
    if path is not None or own.is_file():
        values = read_values(path or own)
        return Settings.resolve(int(values.get("clients_per_round", 1)), values)
    return Settings.from_toml(asked.settings) if asked else Settings.resolve(1, {})


def inspect_site(
    kit: Path, source: Source, settings: Settings, period: tuple[date, date] | None = None
) -> list[Finding]:
    """Check kit, policies, certificate, terms, connection and data; state exactly what is sent."""
    findings = [_kit(kit), _policies(kit), _certificate(kit), _terms(kit), _connection(kit)]
    findings += [_version(kit), _disk(kit)]
    try:
        hosted = source.load(hosted_clients(kit), settings.step)
    except EpifedError as error:
        return [*findings, Finding("data", False, str(error))]
    bad = [
        Finding("data", False, f"Client {client} would count as zero: {reason}")
        for client, reason in hosted.left_out.items()
    ]
    panel = hosted.panel
    if panel is None:
        if not bad:
            bad.append(Finding("clients", False, other_regions(kit, source)))
        return [*findings, *bad]
    return [
        *findings,
        *bad,
        _clients(kit, panel),
        _readable(kit, panel, settings, period),
        _trust(kit, settings),
        _sent(kit, settings),
        _price(settings),
    ]


def other_regions(kit: Path, source: Source) -> str:
    """The problem of a file that has no client of the site, with the regions it has."""
    regions = "of others"
    with suppress(Exception):  # it is only for the sentence
        regions = _listed(load_panel(Path(source.path), source.format, **source.options).regions)
    return (
        f"{source.path}: found the regions {regions}; expected those of the site "
        f"'{certificate(kit).name}': {_listed(hosted_clients(kit))}"
    )


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _kit(kit: Path) -> Finding:
    name = certificate(kit).name
    key = kit / "startup" / "client.key"
    if not key.is_file():
        return Finding("kit", False, f"{kit}: no private key; expected a site's kit")
    if key.stat().st_mode & 0o077:
        return Finding("kit", False, f"{key}: others can read it; expected 'chmod 600'")
    return Finding("kit", True, f"This is the kit of the site '{name}'; only you can read its key.")


def _policies(kit: Path) -> Finding:
    expected = {
        "authorization.json": authorization(),
        "resources.json": site_resources(),
        "comm_config.json": connections(),
    }
    for name, policy in expected.items():
        path = kit / "local" / name
        try:
            written = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            written = None
        if written != policy:
            return Finding(
                "policies",
                False,
                f"{path}: not the locked policy; 'epifed federation site' puts it back",
            )
    return Finding(
        "policies",
        True,
        "No code, no class but epifed's own and no shell command is accepted from outside, and no "
        "log leaves this machine.",
    )


def _certificate(kit: Path) -> Finding:
    own = certificate(kit)
    day = min(own.expires, own.root_expires).date()
    if own.days_left < 0:
        return Finding("certificate", False, f"The certificate expired on {day}: ask for a new one")
    return Finding(
        "certificate",
        own.days_left > SOON,
        f"The certificate is valid until {day}, {counted(own.days_left, 'day')} from now.",
    )


def _terms(kit: Path) -> Finding:
    try:
        terms = Terms.read(kit / TERMS)
    except EpifedError as error:
        return Finding("terms", False, str(error))
    days = f"from {terms.first_day or 'the first day'} to {terms.last_day or 'the last day'}"
    each = (
        "any ε" if math.isinf(terms.epsilon_per_release) else f"ε ≤ {terms.epsilon_per_release:g}"
    )
    seeded = "; tests with predictable noise are allowed" if terms.seeded else ""
    return Finding(
        "terms",
        True,
        f"You agree to {each} a training and ε ≤ {terms.epsilon_total:g} for all together "
        f"(δ = {terms.delta:g}), and offer data {days}{seeded}.",
    )


def _connection(kit: Path) -> Finding:
    startup = kit / "startup"
    target = "the server"
    try:
        config = json.loads((startup / "fed_client.json").read_text(encoding="utf-8"))
        target = config["servers"][0]["service"]["target"]
        host, port = target.rsplit(":", 1)
        context = ssl.create_default_context(cafile=startup / "rootCA.pem")
        context.set_alpn_protocols(["h2"])
        context.load_cert_chain(startup / "client.crt", startup / "client.key")
        with (
            socket.create_connection((host, int(port)), timeout=10) as plain,
            context.wrap_socket(plain, server_hostname=host) as tls,
        ):
            tls.settimeout(1)
            version = tls.version()
            try:
                ended = tls.recv(1) == b""
            except TimeoutError:
                ended = False
    except (OSError, KeyError, ValueError) as error:
        return Finding("connection", False, f"{target} cannot be reached or trusted: {error}")
    if ended:
        return Finding("connection", False, f"{target} does not accept this site's certificate")
    return Finding(
        "connection",
        True,
        f"The server at {target} answers with a certificate of this federation ({version}). This "
        "is the only connection the site makes; it opens no port.",
    )


def _version(kit: Path) -> Finding:
    own, greeting = ProtocolRange.own(), last_greeting(kit)
    if greeting is None:
        return Finding("version", True, f"This is {own}; no server has greeted this site yet.")
    server, when = greeting
    understood = own.understands(server)
    end = "" if understood else ", which do not understand each other: upgrade the older one"
    sentence = f"This is {own}; the server was {server} when it last greeted, on {when[:10]}{end}."
    return Finding("version", understood, sentence)


def _disk(kit: Path) -> Finding:
    problem = full_disk(kit)
    return Finding("disk", not problem, problem or "There is room on the kit's disk.")


def _clients(kit: Path, panel: CasePanel) -> Finding:
    wanted = hosted_clients(kit)
    missing = sorted(set(wanted) - set(panel.regions))
    if missing:
        return Finding(
            "clients",
            False,
            f"{panel.source}: no data of client {missing[0]} ({len(missing)} of {len(wanted)} "
            "missing); expected all clients that you host by the roster",
        )
    today = datetime.now().astimezone().date()
    age = (today - panel.end).days
    if (kit / SCHEDULE).is_file() and not 0 <= age <= OLD_DAYS:
        return Finding(
            "clients",
            False,
            f"{panel.source}: found counts to {panel.end}, {counted(abs(age), 'day')} "
            f"{'before' if age > 0 else 'after'} today by this machine's clock ({today}); "
            f"expected at most {OLD_DAYS} days: look at file and clock",
        )
    return Finding(
        "clients",
        True,
        f"{panel.source} has counts of each {panel.step} of all your "
        f"{counted(len(wanted), 'client')} from "
        f"{panel.start} to {panel.end}.",
    )


def planned_days(kit: Path, panel: CasePanel) -> tuple[date, date] | None:
    """The data period of a scheduled training whose last day is the panel's last.

    None for a kit without a schedule, and for weeks.
    """
    path = kit / SCHEDULE
    if not path.is_file() or panel.step != "day":
        return None
    return Schedule.read(path).period_to(panel.end)


def too_short(kit: Path, panel: CasePanel) -> str:
    """The problem if all clients would count as zero in every scheduled training; else empty.

    A site whose terms have a `first_day` refuses such trainings itself and gets no warning.
    """
    days = planned_days(kit, panel)
    if days is None or Terms.read(kit / TERMS).first_day or panel.covers(*days).any():
        return ""
    return (
        f"{panel.source}: found counts from {panel.start} to {panel.end}; expected them from "
        f"{days[0]} on, since each training learns from {(days[1] - days[0]).days + 1} days: all "
        f"your clients would count as zero. Ask the coordinator for fewer days, or write first_day "
        f"= {panel.start} into {TERMS}: then this site refuses trainings until it has enough"
    )


def _readable(
    kit: Path, panel: CasePanel, settings: Settings, period: tuple[date, date] | None
) -> Finding:
    if period is None and (problem := too_short(kit, panel)):
        return Finding("days", False, problem)
    needed = (settings.history or settings.window) + settings.horizon + 9
    first = panel.day(max(panel.index(panel.end) - max(needed, 30), 0))
    first, last = period or planned_days(kit, panel) or (first, panel.end)
    wanted = hosted_clients(kit)
    covers = dict(zip(panel.regions, panel.covers(first, last), strict=True))
    complete = [client for client in wanted if covers.get(client, False)]
    if not complete:
        return Finding(
            "days",
            False,
            f"{panel.source}: no client of yours has cases from {first} to {last}; all would "
            "count as zero",
        )
    try:
        make_learner(settings).deployed_view(panel.of(complete), (first, last))
    except EpifedError as error:
        return Finding("days", False, str(error))
    return Finding(
        "days",
        len(complete) == len(wanted),
        f"{len(complete)} of your {counted(len(wanted), 'client')} "
        f"{'has' if len(complete) == 1 else 'have'} cases from {first} to {last}, enough for "
        f"the learner '{settings.learner}'; the others would count as zero.",
    )


def _trust(kit: Path, settings: Settings) -> Finding:
    pinned = Terms.read(kit / TERMS).aggregators
    if bool(pinned) != (settings.noise == "aggregators"):
        asked, agreed = "the server alone", ", ".join(pinned)
        if settings.noise == "aggregators":
            asked, agreed = "aggregators", "none, but the server"
        return Finding(
            "trust",
            False,
            f"The settings would have you trust {asked}, and the aggregators in {TERMS} are "
            f"{agreed}; such a training is refused",
        )
    if not pinned:
        return Finding("trust", True, f"{TRUST['server'].capitalize()}.")
    if len(pinned) != settings.aggregators or not (kit / KEY).is_file():
        return Finding(
            "trust",
            False,
            f"{kit}: found {counted(len(pinned), 'aggregator')} pinned in {TERMS} and "
            f"{'a' if (kit / KEY).is_file() else 'no'} key for reports; expected "
            f"{settings.aggregators} and a key",
        )
    names = "; ".join(f"{name} {fingerprint}" for name, fingerprint in pinned.items())
    return Finding(
        "trust",
        True,
        f"{TRUST['aggregators'].capitalize()}. Pinned are {names}: compare each with what the "
        "aggregator itself gives you.",
    )


def _sent(kit: Path, settings: Settings) -> Finding:
    learner = make_learner(settings)
    state = learner.start(seed_sequence(settings.seed))
    like = learner.contribute(state, learner.empty_view())
    clients = len(hosted_clients(kit))
    if settings.aggregators and settings.private:
        size = report_bytes(settings.aggregators, like.shape[1])
        return Finding(
            "sent",
            True,
            f"In each round one sealed report of {size:,} bytes leaves this machine with the "
            f"round's number and your signature: the sum of the vectors of {like.shape[1]:,} "
            f"numbers of those of your {counted(clients, 'client')} that this machine draws "
            "itself, each of "
            f"Euclidean norm at most S = {settings.clip_norm:g}, and zero if it draws none. No "
            "single party can open it, and nothing else leaves.",
        )
    size = clients * like.shape[1] * like.itemsize
    bound = (
        f"of Euclidean norm at most S = {settings.clip_norm:g}"
        if settings.private
        else "of ANY NORM, because ε = inf means no privacy"
    )
    return Finding(
        "sent",
        settings.private,
        f"In each round, for each of your {counted(clients, 'client')}, one vector of "
        f"{like.shape[1]:,} "
        f"{like.dtype.name} numbers {bound}, {size:,} bytes together, leaves this machine with the "
        "round's number; the vector of a client that was not drawn is zero. Nothing else does.",
    )


def _price(settings: Settings) -> Finding:
    if not settings.private:
        return Finding("price", False, "ε = inf: no privacy at all.")
    cost = (
        f"The training may cost ε = {rounded_up(settings.epsilon)} at δ = {settings.delta:g} "
        f"({UNIT} added or removed, {settings.accountant.upper()} accountant)"
    )
    if settings.noise == "aggregators":
        return Finding(
            "price",
            True,
            f"{cost} against everybody outside this site together, as long as one aggregator is "
            "honest. Nobody but this machine sees who is drawn.",
        )
    return Finding(
        "price",
        True,
        f"{cost} against everybody who does not see who is drawn. The server sees it; against the "
        "server it costs what it would if all were drawn in every round, which 'epifed federation "
        "train' prints too.",
    )
