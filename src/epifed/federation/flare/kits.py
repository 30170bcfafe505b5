"""Startup kits: certificates, configuration and locked policies of each party.

`make_kits` makes the root certificate and a kit for each party that has none. A party may make its
private key itself and send a request: `approve` signs it, and `assemble`, at the party, completes
the kit. The policies replace FLARE's permissive defaults: no code from outside, no class but
epifed's own, no shell, no log that leaves a site, one submitter. `lock` writes them when a kit is
made and whenever a party starts.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from nvflare.lighter.entity import Project
from nvflare.lighter.impl.cert import CertBuilder
from nvflare.lighter.impl.static_file import StaticFileBuilder
from nvflare.lighter.impl.workspace import WorkspaceBuilder
from nvflare.lighter.provisioner import Provisioner

from epifed.errors import EpifedError
from epifed.federation import aggregator
from epifed.federation.aggregator import ROSTER
from epifed.federation.crypto import ReportKey
from epifed.federation.scaffold import (
    README,
    SCHEDULE,
    SETTINGS,
    commented,
    party_readme,
    request_readme,
)
from epifed.federation.schedule import Schedule
from epifed.federation.site import CLIENTS, KEY, TERMS
from epifed.federation.terms import AGAIN, SILENT, Aggregator, Federation, Site
from epifed.files import write_text
from epifed.settings import Settings

PACKAGE = "epifed.federation.flare"
CONTROLLER = f"{PACKAGE}.controller.FederationController"
EXECUTOR = f"{PACKAGE}.executor.FederationExecutor"

ROLE = "lead"
"""The only role that may start a training: the coordinator's."""
MORE_THAN_ENOUGH = 10_000
"""Most connections of a server; the roster decides who may connect."""

MOST_STREAMS = 2_000
"""Connections served at once: two of each site, and the coordinator's."""
MOST_BYTES = 256 * 2**20
"""Most bytes of a message between parties. The server's worker accepts less: what its training can
need."""
CHUNK = 64 * 2**10
"""Bytes of a piece in which a message is sent; FLARE holds a buffer of this size for each message.
FLARE's own 1 MB would be most of a server's memory where hundreds of sites ask for tasks at
once."""
MOST_FRAME = 32 * 2**20
"""Most bytes of one piece on the wire, from any version of epifed."""
HANDSHAKE = 10
"""Seconds in which a new connection must show its certificate, or it is dropped."""

_NONE = "none"


def authorization() -> dict[str, Any]:
    """The permissions of each role. A role that is not named may do nothing."""
    return {
        "format_version": "1.0",
        "permissions": {
            ROLE: {
                "submit_job": "any",
                "clone_job": _NONE,
                "manage_job": "n:submitter",
                "download_job": "n:submitter",
                "app_command": "n:submitter",
                "view": "any",
                "operate": _NONE,
                "shell_commands": _NONE,
                "byoc": _NONE,
                "server-predeployed-flwr": _NONE,
            },
        },
    }


def site_resources() -> dict[str, Any]:
    """`resources.json` of a site: no log streaming, epifed's executor alone."""
    return {
        "format_version": 2,
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": [EXECUTOR],
        "allow_log_streaming": False,
        "client": {"retry_timeout": 30, "compression": "Gzip", "communication_timeout": AGAIN},
        "components": [
            _component(
                "resource_manager",
                "nvflare.app_common.resource_managers.gpu_resource_manager.GPUResourceManager",
                num_of_gpus=0,
                mem_per_gpu_in_GiB=0,
                expiration_period=300,
            ),
            _component(
                "resource_consumer",
                "nvflare.app_common.resource_consumers.gpu_resource_consumer.GPUResourceConsumer",
            ),
            _component(
                "process_launcher",
                "nvflare.app_common.job_launcher.client_process_launcher.ClientProcessJobLauncher",
            ),
        ],
    }


def server_resources(kit: Path) -> dict[str, Any]:
    """`resources.json` of the server: what it stores stays in its kit."""
    roster = kit / ROSTER
    silent = Federation.read(roster).silent if roster.is_file() else SILENT
    store = "nvflare.app_common.storages.filesystem_storage.FilesystemStorage"
    return {
        "format_version": 2,
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": [CONTROLLER],
        "servers": [
            {
                "admin_storage": "transfer",
                "max_num_clients": MORE_THAN_ENOUGH,
                "heart_beat_timeout": silent,
                "download_job_url": "http://localhost/",
                "admin_timeout": 10.0,
            }
        ],
        "snapshot_persistor": {
            "path": "nvflare.app_common.state_persistors.storage_state_persistor"
            ".StorageStatePersistor",
            "args": {
                "uri_root": "/",
                "storage": {
                    "path": store,
                    "args": {"root_dir": str(kit / "store" / "snapshots"), "uri_root": "/"},
                },
            },
        },
        "components": [
            _component(
                "job_scheduler",
                "nvflare.app_common.job_schedulers.job_scheduler.DefaultJobScheduler",
                max_jobs=1,
                max_schedule_count=1_000_000,
                min_schedule_interval=1.0,
                max_schedule_interval=5.0,
            ),
            _component(
                "job_manager",
                "nvflare.apis.impl.job_def_manager.SimpleJobDefManager",
                uri_root=str(kit / "store" / "jobs"),
                job_store_id="job_store",
            ),
            _component("job_store", store),
            _component(
                "process_launcher",
                "nvflare.app_common.job_launcher.server_process_launcher.ServerProcessJobLauncher",
            ),
        ],
    }


def connections() -> dict[str, Any]:
    """`comm_config.json`: limits on message size and on the time to connect."""
    return {
        "allow_adhoc_conns": False,
        "streaming_max_blob_size": MOST_BYTES,
        "streaming_chunk_size": CHUNK,
        "streaming_window_size": 64 * CHUNK,
        "streaming_ack_interval": 16 * CHUNK,
        "grpc": {
            "max_workers": MOST_STREAMS,
            "options": [
                ["grpc.max_send_message_length", MOST_FRAME],
                ["grpc.max_receive_message_length", MOST_FRAME],
                ["grpc.server_handshake_timeout_ms", 1000 * HANDSHAKE],
            ],
        },
    }


def lock(kit: Path) -> None:
    """Write the locked policies into a kit; a weaker file that was there is replaced."""
    kit = kit.resolve()
    local = kit / "local"
    resources = server_resources(kit) if is_server(kit) else site_resources()
    write_text(local / "resources.json", json.dumps(resources, indent=2))
    write_text(local / "authorization.json", json.dumps(authorization(), indent=2))
    write_text(local / "comm_config.json", json.dumps(connections(), indent=2))
    default = local / "log_config.json.default"
    if default.is_file():
        config = own_lines_alone(json.loads(default.read_text(encoding="utf-8")))
        write_text(local / "log_config.json", json.dumps(config, indent=2))
    for name in ("resources.json.default", "authorization.json.default", "privacy.json.sample"):
        (local / name).unlink(missing_ok=True)


def own_lines_alone(config: dict[str, Any]) -> dict[str, Any]:
    """FLARE's logging with only epifed's lines on the console; all lines go to log.txt."""
    config["filters"]["own"] = {"name": "epifed"}
    config["formatters"]["plain"] = {"format": "%(asctime)s %(message)s", "datefmt": "%H:%M:%S"}
    config["handlers"]["consoleHandler"] |= {"filters": ["own"], "formatter": "plain"}
    return config


def is_server(kit: Path) -> bool:
    """Whether a kit is the server's."""
    return (kit / "startup" / "fed_server.json").is_file()


def _component(name: str, path: str, **args: Any) -> dict[str, Any]:
    return {"id": name, "path": path, "args": args}


SCHEME = "grpc"
SERVER, COORDINATOR = "server", "coordinator"
ORGANISATION = "epifed"


@dataclass(frozen=True)
class Made:
    """The result of `make_kits`."""

    kits: tuple[Path, ...]
    requests: tuple[Path, ...]
    """The folders to hand to parties that make their own keys."""
    fingerprint: str
    roster: Path | None
    """With aggregators: the roster with the known public keys of the sites."""


@dataclass(frozen=True)
class Certificate:
    """The name and the ends in a kit's certificates."""

    name: str
    expires: datetime
    root_expires: datetime

    @property
    def days_left(self) -> int:
        """Whole days until the first of the two certificates expires."""
        return (min(self.expires, self.root_expires) - datetime.now(UTC)).days


class _Certificates(CertBuilder):  # type: ignore[misc]
    """FLARE's certificates, with the federation's lifetime."""

    def __init__(self, days: int) -> None:
        super().__init__()
        self.days = days

    def _generate_cert(self, *args: Any, **kwargs: Any) -> Any:
        kwargs["not_valid_after"] = None
        left = (self.root_cert.not_valid_after_utc - datetime.now(UTC)).days
        return CertBuilder._generate_cert(
            *args, **kwargs | {"valid_days": max(1, min(self.days, left))}
        )


class _Quiet:
    """A logger for the provisioner that keeps only errors."""

    def __init__(self) -> None:
        self.errors: list[str] = []

    def info(self, *_: object) -> None:
        """Ignore a message."""

    debug = warning = info

    def error(self, message: str, *_: object) -> None:
        """Keep an error for the exception."""
        self.errors.append(message)


def make_kits(
    federation: Federation,
    folder: Path,
    settings: Settings | None = None,
    schedule: Schedule | None = None,
) -> Made:
    """Make kits for parties that have none in `folder`, under one root certificate.

    `settings` and `schedule` of the trainings go into the sites' kits, for `check` to use.
    """
    planned = {SETTINGS: settings, SCHEDULE: schedule}
    papers = {name: table.to_toml() for name, table in planned.items() if table is not None}
    kits, root = folder / "kits", folder / "ca"
    _make_root(federation, folder)
    new = [
        party.name
        for party in federation.parties
        if not party.own_key and not (kits / party.name).exists()
    ]
    made = []
    if new or not (kits / SERVER).exists():
        with tempfile.TemporaryDirectory(dir=folder, prefix=".making-") as temporary:
            made = _provision(federation, new, root, Path(temporary), kits)
    for site in federation.sites:
        if (kits / site.name).exists():
            introduce(kits / site.name, federation, site)
            for name, text in papers.items():
                write_text(kits / site.name / name, text)
    federation = federation.with_signs(_signs(kits, federation))
    for adding in federation.aggregators:
        if (kits / adding.name).exists():
            introduce(kits / adding.name, federation, adding)
    write_text(kits / SERVER / ROSTER, federation.to_toml())
    roster = folder / "roster.toml" if federation.aggregators else None
    if roster:
        write_text(roster, federation.to_toml())
    requests = []
    for party in federation.parties:
        if party.own_key and not (kits / party.name).exists():
            path = folder / "requests" / party.name / "participant.yml"
            write_text(path, _participant(federation, party.name))
            write_text(path.parent / ROSTER, federation.to_toml())
            write_text(path.parent / README, request_readme(federation, party.name))
            for name, text in papers.items() if isinstance(party, Site) else ():
                write_text(path.parent / name, text)
            requests.append(path.parent)
    return Made(tuple(made), tuple(requests), fingerprint(root / "rootCA.pem"), roster)


def request_key(participant: Path, out: Path) -> Path:
    """At a party: make its private key, which stays in `out`, and the request to be signed."""
    _nvflare("cert", "request", "-p", str(participant), "--out", str(out))
    return next(out.glob("*.request.zip"))


def request_signs(form: Path, out: Path) -> str | None:
    """At a site with aggregators: make its key for reports and return the public key."""
    federation = Federation.read(form / ROSTER)
    name = json.loads((form / "participant.yml").read_text())["participants"][0]["name"]
    if not federation.aggregators or not isinstance(federation.party(name), Site):
        return None
    return ReportKey.make(out / KEY).public


def _refuse_other(path: Path, expected: str) -> None:
    """Refuse what is no zip file before the engine reads it."""
    if not path.is_file():
        raise EpifedError(f"{path}: no such file; expected {expected}")
    if not zipfile.is_zipfile(path):
        raise EpifedError(f"{path}: found another or a damaged file; expected {expected}")


def approve(federation: Federation, folder: Path, request: Path, out: Path) -> Path:
    """At the coordinator: sign a party's request. The party's private key is never sent here."""
    _refuse_other(request, "the request, REQUEST.zip, of 'epifed federation key'")
    answer = out / request.name.replace(".request.zip", ".signed.zip")
    out.mkdir(parents=True, exist_ok=True)
    _nvflare(
        "cert",
        "approve",
        str(request),
        "-c",
        str(folder / "ca"),
        "--profile",
        str(folder / "ca" / "profile.yml"),
        "--valid-days",
        str(federation.certificate_days),
        "--out",
        str(answer),
    )
    return answer


def assemble(federation: Federation, signed: Path, keys: Path, root: str, kit: Path) -> None:
    """At a party: make a kit of the signed certificate and its own key; checks the root."""
    if kit.exists():
        raise EpifedError(f"{kit}: exists already; expected a name that is not taken")
    _refuse_other(signed, "the answer, NAME.signed.zip, of 'epifed federation approve'")
    with tempfile.TemporaryDirectory() as temporary:
        _nvflare(
            "package",
            str(signed.resolve()),
            "--request-dir",
            str(keys.resolve()),
            "--fingerprint",
            root,
            "-w",
            temporary,
        )
        (startup,) = Path(temporary).glob("*/prod_*/*/startup")
        _settle(startup.parent, kit)
    if (keys / KEY).exists():
        shutil.copy(keys / KEY, kit / KEY)
    introduce(kit, federation, federation.party(certificate(kit).name))


def introduce(kit: Path, federation: Federation, party: Site | Aggregator) -> None:
    """Give a kit its terms, which the party may change, and its part of the roster.

    A site gets the names of its clients, and with aggregators a key to sign with. An aggregator
    gets the roster; it alone makes its keys.
    """
    terms = kit / (TERMS if isinstance(party, Site) else aggregator.TERMS)
    if not terms.exists():
        write_text(terms, commented(federation.terms, {}))
    write_text(kit / README, party_readme(federation, party))
    if isinstance(party, Site):
        write_text(kit / CLIENTS, json.dumps(party.clients))
        if federation.aggregators and not (kit / KEY).exists():
            ReportKey.make(kit / KEY)
    else:
        write_text(kit / ROSTER, federation.to_toml())


def _signs(kits: Path, federation: Federation) -> dict[str, str]:
    """The public keys of the sites whose kits are in this folder."""
    paths = {site.name: kits / site.name / KEY for site in federation.sites}
    return {name: ReportKey.read(path).public for name, path in paths.items() if path.exists()}


def certificate(kit: Path) -> Certificate:
    """The certificate of a kit; raises `EpifedError` if the folder is no kit."""
    startup = kit / "startup"
    name = "server.crt" if is_server(kit) else "client.crt"
    try:
        own = x509.load_pem_x509_certificate((startup / name).read_bytes())
        root = x509.load_pem_x509_certificate((startup / "rootCA.pem").read_bytes())
    except (OSError, ValueError):
        raise EpifedError(
            f"{kit}: not a startup kit; expected one by 'epifed federation init'"
        ) from None
    (subject,) = own.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    return Certificate(str(subject.value), own.not_valid_after_utc, root.not_valid_after_utc)


def valid_certificate(kit: Path) -> Certificate:
    """The certificate of a kit; raises if it has expired, since no party would accept it."""
    own = certificate(kit)
    if own.days_left < 0:
        day = min(own.expires, own.root_expires)
        raise EpifedError(
            f"{kit}: found a certificate that ran out on {day:%Y-%m-%d}; expected a valid one: the "
            "coordinator makes new kits"
        )
    return own


def kind_of(kit: Path) -> str:
    """Whose kit a folder is, in words."""
    if is_server(kit):
        return "the server's kit"
    if (kit / "startup" / "fed_admin.json").is_file():
        return "the coordinator's kit"
    if not (kit / "startup" / "fed_client.json").is_file():
        return "no startup kit"
    role = "aggregator" if (kit / aggregator.TERMS).is_file() else "site"
    return f"the kit of the {role} '{certificate(kit).name}'"


def fingerprint(path: Path) -> str:
    """The SHA-256 of a certificate, to be compared by telephone."""
    root = x509.load_pem_x509_certificate(path.read_bytes())
    return "SHA256:" + root.fingerprint(hashes.SHA256()).hex(":").upper()


def _make_root(federation: Federation, folder: Path) -> None:
    root = folder / "ca"
    if (root / "rootCA.key").exists():
        return
    profile = {
        "name": federation.name,
        "scheme": SCHEME,
        "connection_security": "mtls",
        "server": {
            "host": federation.server.host,
            "fed_learn_port": federation.server.port,
            "admin_port": federation.server.port,
        },
    }
    root.mkdir(parents=True, exist_ok=True)
    root.chmod(0o700)
    write_text(root / "profile.yml", json.dumps(profile))
    arguments = ("--profile", str(root / "profile.yml"), "-o", str(root))
    _nvflare("cert", "init", *arguments, "--valid-days", str(federation.root_days))


def _provision(
    federation: Federation, names: list[str], root: Path, temporary: Path, kits: Path
) -> list[Path]:
    key = serialization.load_pem_private_key((root / "rootCA.key").read_bytes(), password=None)
    project = Project(
        federation.name,
        "epifed federation",
        root_private_key=key,
        serialized_root_cert=(root / "rootCA.pem").read_bytes(),
    )
    port = federation.server.port
    project.set_server(
        federation.server.host, ORGANISATION, {"fed_learn_port": port, "admin_port": port}
    )
    project.add_admin(federation.coordinator, ORGANISATION, {"role": ROLE})
    for name in names:
        project.add_client(name, organisation(name), {})
    builders = [
        WorkspaceBuilder(),
        StaticFileBuilder(config_folder="config", scheme=SCHEME),
        _Certificates(federation.certificate_days),
    ]
    log = _Quiet()

    Provisioner(str(temporary), builders).provision(project, logger=log)
    if log.errors:
        raise EpifedError(f"the kits could not be made: {log.errors[0]}")
    (prod,) = temporary.glob("*/prod_*")
    made = []
    named = {federation.server.host: SERVER, federation.coordinator: COORDINATOR}
    for built in sorted(prod.iterdir()):
        kit = kits / named.get(built.name, built.name)
        if built.is_dir() and not kit.exists():
            _settle(built, kit)
            made.append(kit)
    return made


def _settle(built: Path, kit: Path) -> None:
    """Move a kit to its place, locked, with its key readable by its owner alone."""
    kit.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(built, kit)
    kit.chmod(0o700)
    for place in (kit, kit / "startup"):
        (place / "readme.txt").unlink(missing_ok=True)  # FLARE's, with other commands
    if not (kit / "startup" / "fed_admin.json").exists():
        lock(kit)


def _participant(federation: Federation, name: str) -> str:
    party = {"name": name, "type": "client", "org": organisation(name)}
    return json.dumps({"name": federation.name, "participants": [party]})


def organisation(name: str) -> str:
    """The organisation in a party's certificate: the party itself."""
    return name.replace("-", "_")


def _nvflare(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "nvflare.cli", *arguments],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if done.returncode:
        printed = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise EpifedError(
            f"nvflare {' '.join(arguments[:2])}: {printed[0] if printed else 'failed'}"
        )
