"""The files of a new federation: roster, settings and schedule with a comment on every line.

With them come a readme for the coordinator and one for each kit. They are in the federation's
language and list the commands to type.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Literal

from epifed.errors import EpifedError
from epifed.federation.schedule import Schedule
from epifed.federation.terms import Aggregator, Federation, Server, Site, Table, Terms
from epifed.files import write_text
from epifed.ledger.budget import Cap, together
from epifed.privacy.accounting import rounded_up
from epifed.privacy.plan import PrivacyPlan
from epifed.settings import Settings

ROSTER, SETTINGS, SCHEDULE, README = (
    "federation.toml",
    "settings.toml",
    "schedule.toml",
    "README.md",
)
LEDGER = "budget.ledger"
LEARNER = "real-time"
ACCOUNTANT = "pld"
"""The same in settings, terms and ledger, so that all count the same ε."""
Language = Literal["en", "de"]
LANGUAGES: tuple[Language, ...] = ("en", "de")
ROOM = 1.0001
"""Factor by which terms exceed the planned ε, so that rounding causes no refusal."""

COMMENTS = {
    "schedule": {
        "first": "a day in the first week",
        "weeks": "weeks that are planned, and that the budget must last for",
        "weekday": "the day of each week's training",
        "at": "local time of the zone, in summer and in winter",
        "zone": "time zone",
        "days": "days to learn from; a region without all of them counts as zero",
        "lag": "the last of them lies so many days before the training",
        "least_sites": "sites that must be connected and willing",
        "deadline_minutes": "how long to wait for them",
        "if_too_few": "then: skip, go-on (never below min_sites) or wait",
        "make_up_hours": "how old a week may be when it is begun; an older one is skipped",
    },
    "settings": {
        "learner": "growth of all clients, late reports filled up where a site has kept 14 days",
        "epsilon": "ε of each week's training; smaller protects more and makes forecasts noisier",
        "delta": "δ, the failure probability of the guarantee",
        "accountant": "how ε is counted; the sites' terms and the ledger count alike",
        "noise": "who adds the noise: server (trusted) or aggregators (no single party is trusted)",
        "aggregators": "how many aggregators add noise, as in the roster",
    },
    "server": {
        "host": "the name under which all parties reach the server",
        "port": "the one port that must be open, on the server alone",
    },
    "sites": {
        "name": "of the site: a folder with this name is its kit",
        "clients": "the ids of its regions as they stand in its data; all together are N",
        "own_key": "true: the site makes its own private key, which no one else ever has",
    },
    "aggregators": {
        "name": "of the aggregator, which belongs to another legal entity than the rest",
        "own_key": "it makes the private key of its certificate itself",
    },
}


LIMITS = {
    "clip_norm": "S, the largest length of a client's vector; protects from vectors without bound",
    "rounds": "protects this machine from endless trainings",
    "epochs": "protects this machine's time: passes over the data in one round",
    "learning_rate": "protects from settings that only a mistake explains",
    "window": "days of input; protects this machine's memory",
}
"""The comment on each limit in a site's terms: what it protects."""


@dataclass(frozen=True)
class Outline:
    """The values needed to begin a federation; most have a default."""

    name: str
    host: str
    sites: dict[str, tuple[str, ...]]
    """The clients of each site."""
    first: date
    port: int = 8002
    epsilon: float = 1.0
    weeks: int = 52
    days: int = 180
    zone: str = "UTC"
    aggregators: tuple[str, ...] = ()
    own_keys: bool = False
    coordinator: str = "coordinator@epifed.org"
    language: Language = "en"
    changes: dict[str, object] = field(default_factory=dict)
    """Changes of the roster, for tests."""

    @property
    def settings(self) -> Settings:
        """The settings of each week's training."""
        clients = sum(len(clients) for clients in self.sites.values())
        return Settings.resolve(clients, self.settings_said)

    @property
    def settings_said(self) -> dict[str, object]:
        """The values in the settings file; the others come from the learner's preset."""
        values: dict[str, object] = {
            "learner": LEARNER,
            "epsilon": self.epsilon,
            "delta": 1e-5,
            "accountant": ACCOUNTANT,
        }
        if self.aggregators:
            values |= {"noise": "aggregators", "aggregators": len(self.aggregators)}
        return values

    @property
    def plan(self) -> PrivacyPlan:
        """The privacy plan of one week."""
        return PrivacyPlan.of(self.settings, len(self.federation_clients))

    @property
    def federation_clients(self) -> tuple[str, ...]:
        """All clients of all sites."""
        return tuple(client for clients in self.sites.values() for client in clients)

    @property
    def cap(self) -> Cap:
        """The budget: the cost of all weeks and one trial together."""
        plan = self.plan
        each = (plan.priced_rate, plan.noise_multiplier, plan.rounds * (self.weeks + 1))
        price = Cap(1e9, plan.delta, ACCOUNTANT).price(together([each]))
        return Cap(float(rounded_up(price * ROOM)), plan.delta, ACCOUNTANT)

    @property
    def federation(self) -> Federation:
        """The roster; its proposed terms fit the settings and the schedule."""
        least = max(1, (len(self.sites) + 1) // 2)
        terms = Terms(
            epsilon_per_release=float(rounded_up(self.epsilon * ROOM)),
            epsilon_total=self.cap.epsilon,
            delta=self.plan.delta,
            accountant=ACCOUNTANT,
        )
        values: dict[str, object] = {
            "name": self.name,
            "language": self.language,
            "coordinator": self.coordinator,
            "min_sites": least,
            "server": Server.checked(host=self.host, port=self.port),
            "terms": terms,
            "sites": tuple(
                Site(name=name, clients=clients, own_key=self.own_keys)
                for name, clients in self.sites.items()
            ),
            "aggregators": tuple(Aggregator(name=name) for name in self.aggregators),
        }
        return Federation.checked(**(values | self.changes))

    @property
    def schedule(self) -> Schedule:
        """The schedule of the weekly trainings."""
        least = max(1, (len(self.sites) + 1) // 2)
        return Schedule(
            first=self.first,
            weeks=self.weeks,
            days=self.days,
            zone=self.zone,
            least_sites=least,
        )


def parse_sites(texts: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Parse the sites of a command line; each has a name of its own."""
    sites: dict[str, tuple[str, ...]] = {}
    for name, clients in map(parse_site, texts):
        if name in sites:
            raise EpifedError(
                f"--site: found '{name}' twice; expected all its regions in one, such as "
                f"{name}={','.join((*sites[name], *clients))}"
            )
        sites[name] = clients
    return sites


def parse_site(text: str) -> tuple[str, tuple[str, ...]]:
    """Parse the site and its clients from a command-line option.

    >>> parse_site("north=01001, 01002")
    ('north', ('01001', '01002'))
    """
    name, equals, listed = text.partition("=")
    clients = tuple(client.strip() for client in listed.split(",") if client.strip())
    if not equals or not name.strip() or not clients:
        raise EpifedError(
            f"--site: found '{text}'; expected a name and its regions, such as north=01001,01002"
        )
    return name.strip(), clients


def commented(table: Table, comments: Mapping[str, Mapping[str, str]], own: str = "") -> str:
    """A table as TOML with a comment on every value.

    Comments come from the descriptions of the table's fields. `comments` adds those of tables
    inside it by name; `own` names the comments of the outermost table.
    """
    texts = {name: about.description or "" for name, about in type(table).model_fields.items()}
    texts_of: dict[str, Mapping[str, str]] = {"": texts | dict(comments.get(own, {}))}
    texts_of |= {name: text for name, text in comments.items() if name != own}
    texts_of["terms"] = texts_of[""] if isinstance(table, Terms) else described(Terms)
    where, lines = "", []
    for line in table.to_toml().splitlines():
        if header := re.fullmatch(r"\[+([\w.-]+)\]+", line):
            where = header[1]
            lines.append(line)
            continue
        key = re.match(r"([\w-]+) = ", line)
        text = _comment(texts_of, where, key[1]) if key else ""
        if text and not line.endswith("["):
            lines.append(f"{line}  # {text}")
        else:
            lines += [f"# {text}", line] if text else [line]
    return "\n".join(lines) + "\n"


def described(table: type[Table]) -> dict[str, str]:
    """The descriptions of a table's fields by name."""
    return {name: about.description or "" for name, about in table.model_fields.items()}


def _comment(texts_of: Mapping[str, Mapping[str, str]], where: str, key: str) -> str:
    if where.endswith("limits"):
        return LIMITS.get(key, f"largest {key} that a training may ask for")
    if where.endswith("aggregators") and key not in texts_of.get("aggregators", {}):
        return "fingerprint of its keys, as the aggregator itself gives it"
    text = texts_of.get(where, {}).get(key, "")
    return text.replace("\n", " ")


def settings_text(values: Mapping[str, object]) -> str:
    """Settings as TOML with a comment on every value."""
    comments = COMMENTS["settings"]
    lines = [
        f"{name} = {_toml(value)}  # {comments.get(name, 'see docs/reference')}"
        for name, value in values.items()
    ]
    return "\n".join(lines) + "\n"


def _toml(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def write_scaffold(outline: Outline, folder: Path) -> list[Path]:
    """Write roster, settings, schedule and the coordinator's readme; returns the paths."""
    existing = [name for name in (ROSTER, SETTINGS, SCHEDULE) if (folder / name).exists()]
    if existing:
        raise EpifedError(
            f"{folder / existing[0]}: exists already; expected a folder without a federation"
        )
    texts = {
        ROSTER: commented(outline.federation, COMMENTS),
        SETTINGS: settings_text(outline.settings_said),
        SCHEDULE: commented(outline.schedule, COMMENTS, "schedule"),
        README: coordinator_readme(outline.federation, folder),
    }
    for name, text in texts.items():
        write_text(folder / name, text)
    return [folder / name for name in texts]


def _text(language: str, english: str, german: str) -> str:
    return german if language == "de" else english


def coordinator_readme(federation: Federation, folder: Path) -> str:
    """The coordinator's readme: the commands in order, and which folder goes to whom."""
    names = [site.name for site in federation.sites]
    language = federation.language
    lines = [
        _text(
            language,
            f"# Federation {federation.name}: for the coordinator",
            f"# Föderation {federation.name}: für die Koordination",
        ),
        "",
        _text(
            language,
            "1. Read `federation.toml`, `settings.toml` and `schedule.toml`; every line is "
            "explained there. After a change: "
            f"`epifed federation init {folder / ROSTER} --out {folder}`.",
            "1. `federation.toml`, `settings.toml` und `schedule.toml` lesen; jede Zeile ist dort "
            "erklärt. Nach einer Änderung: "
            f"`epifed federation init {folder / ROSTER} --out {folder}`.",
        ),
        _text(
            language,
            f"2. Keep `{folder / 'ca'}` offline. Send each folder below to its party over a "
            "channel you trust (a kit holds a private key):",
            f"2. `{folder / 'ca'}` offline verwahren. Jeden Ordner unten über einen sicheren Weg "
            "an seine Stelle schicken (ein Kit enthält einen geheimen Schlüssel):",
        ),
        *(
            f"   - `{_handed(folder, party.name, party.own_key)}` → {party.name}"
            for party in federation.parties
        ),
        _text(language, "3. On the server:", "3. Auf dem Server:"),
        "",
        f"       epifed federation server --kit {folder}/kits/server --ledger {folder / LEDGER}",
        "",
        _text(
            language,
            "4. Once the sites have started, ask whether all would take part; nothing is spent:",
            "4. Sobald die Standorte laufen, fragen, ob alle teilnähmen; nichts wird ausgegeben:",
        ),
        "",
        f"       epifed federation train {folder} --plan",
        "",
        _text(
            language,
            "5. Train every week, without anybody:",
            "5. Jede Woche trainieren, ohne dass jemand etwas tut:",
        ),
        "",
        f"       epifed federation schedule {folder}",
        "",
        _text(
            language,
            f"Sites: {', '.join(names)}. A round needs {federation.min_sites} of them.",
            f"Standorte: {', '.join(names)}. Eine Runde braucht {federation.min_sites} davon.",
        ),
        "",
    ]
    return "\n".join(lines)


def _handed(folder: Path, name: str, own_key: bool) -> Path:
    return folder / ("requests" if own_key else "kits") / name


def party_readme(federation: Federation, party: Site | Aggregator) -> str:
    """The readme in a party's kit: its role, the commands to type, what leaves the machine."""
    language, name = federation.language, party.name
    server = f"{federation.server.host}:{federation.server.port}"
    if isinstance(party, Aggregator):
        english = f"""# {name}: aggregator of the federation {federation.name}

This folder is your startup kit. It holds a private key: keep it to yourself.

1. Install: `pip install 'epifed[federation]'`.
2. Read `aggregator.toml`: what you agree to. You may lower every limit.
3. `epifed federation fingerprint --kit .` prints what every site must pin. Tell it to each of them
   yourself, by telephone, not through the server or the coordinator.
4. `epifed federation aggregator --kit .` runs until it is stopped.

It connects to {server} and opens no port.
"""
        german = f"""# {name}: Aggregator der Föderation {federation.name}

Dieser Ordner ist Ihr Kit. Er enthält einen geheimen Schlüssel: geben Sie ihn nicht weiter.

1. Installieren: `pip install 'epifed[federation]'`.
2. `aggregator.toml` lesen: wozu Sie bereit sind. Sie dürfen jede Grenze senken.
3. `epifed federation fingerprint --kit .` zeigt, was jeder Standort eintragen muss. Sagen Sie es
   jedem selbst, am Telefon, nicht über den Server oder die Koordination.
4. `epifed federation aggregator --kit .` läuft, bis es beendet wird.

Es verbindet sich mit {server} und öffnet keinen Port.
"""
        return _text(language, english, german)
    clients = ", ".join(party.clients)
    english = f"""# {name}: site of the federation {federation.name}

This folder is your startup kit. It holds a private key: keep it to yourself. Your case data stay on
this machine.

1. Install: `pip install 'epifed[federation]'`.
2. Read `site.toml`: what you agree to, each line with what it protects. You may lower every limit.
3. `epifed federation check --kit . --data cases.csv` shows whether all is right, and exactly what
   would be sent. Your file must have these regions: {clients}.
4. `epifed federation site --kit . --data cases.csv --out weeks` runs until it is stopped. It takes
   part and writes your own forecast of each week to `weeks/latest/report.html`.

It connects to {server} and opens no port.
"""
    german = f"""# {name}: Standort der Föderation {federation.name}

Dieser Ordner ist Ihr Kit. Er enthält einen geheimen Schlüssel: geben Sie ihn nicht weiter. Ihre
Falldaten bleiben auf diesem Rechner.

1. Installieren: `pip install 'epifed[federation]'`.
2. `site.toml` lesen: wozu Sie bereit sind, jede Zeile mit dem, was sie schützt. Sie dürfen jede
   Grenze senken.
3. `epifed federation check --kit . --data faelle.csv` sagt, ob alles stimmt, und genau, was
   gesendet würde. Ihre Datei muss diese Regionen haben: {clients}.
4. `epifed federation site --kit . --data faelle.csv --out wochen` läuft, bis es beendet wird. Es
   nimmt teil und schreibt Ihre eigene Vorhersage jeder Woche nach `wochen/latest/report.html`.

Es verbindet sich mit {server} und öffnet keinen Port.
"""
    return _text(language, english, german)


def request_readme(federation: Federation, name: str) -> str:
    """The readme beside the form with which a party makes its own key."""
    english = f"""# {name}: make your own key for the federation {federation.name}

1. `epifed federation key . --out key` makes your private key, which stays in `key`, and a request.
   Send the request to the coordinator.
2. The coordinator sends back `{name}.signed.zip`, and tells you the fingerprint of the root
   certificate by telephone.
3. `epifed federation assemble . {name}.signed.zip --key key --fingerprint SHA256:… --kit kit` makes
   your kit; go on with `kit/README.md`.
"""
    german = f"""# {name}: den eigenen Schlüssel für die Föderation {federation.name} erzeugen

1. `epifed federation key . --out key` erzeugt Ihren geheimen Schlüssel, der in `key` bleibt, und
   einen Antrag. Schicken Sie den Antrag an die Koordination.
2. Die Koordination schickt `{name}.signed.zip` zurück und sagt Ihnen den Fingerabdruck des
   Wurzelzertifikats am Telefon.
3. `epifed federation assemble . {name}.signed.zip --key key --fingerprint SHA256:… --kit kit` macht
   Ihr Kit; weiter mit `kit/README.md`.
"""
    return _text(federation.language, english, german)
