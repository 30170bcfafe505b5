"""Who and what a federation refuses, on real processes, with the reason in a log."""

import json
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from nvflare.fuel.flare_api.api_spec import AuthorizationError

from epifed.errors import EpifedError
from epifed.federation.flare.inspection import inspect_site
from epifed.federation.flare.jobs import CoordinatorSession, write_job
from epifed.federation.flare.kits import COORDINATOR, SERVER, make_kits
from epifed.federation.flare.parties import site_command
from epifed.federation.site import Source
from epifed.rehearsal.local import LocalFederation, rehearsal_federation
from tests.federation.helpers import all_run, panel, plan
from tests.helpers import small_settings
from tests.waiting import GUARD, wait_for

pytestmark = pytest.mark.field


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFederation]:
    """A server and site-1; the kits of the other sites are what the tests misuse."""
    folder = tmp_path_factory.mktemp("security")
    roster = rehearsal_federation(panel(), 4)
    with LocalFederation.make(folder, roster, panel()) as made:
        kept = tuple(site for site in roster.sites if site.name != "site-4")
        after = roster.model_copy(update={"sites": kept, "removed": ("site-4",)})
        (made.kit(SERVER) / "federation.toml").write_text(after.to_toml())
        made.start(SERVER, "site-1")
        yield made


def _connected(local: LocalFederation) -> set[str]:
    with local.desk.session(GUARD) as session:
        return {client.name for client in session.get_connected_client_list()}


class _Attempt:
    """A site that tries to get in, with a kit of its own making."""

    def __init__(self, local: LocalFederation, name: str, kit: Path, claim: str) -> None:
        self.local, self.name = local, name
        self.kit = local.folder / "attempts" / name
        shutil.copytree(kit, self.kit)
        config = self.kit / "startup" / "fed_client.json"
        port = f"localhost:{local.federation.server.port}"
        values = json.loads(config.read_text())
        values["servers"][0]["service"]["target"] = port
        config.write_text(json.dumps(values))
        arguments = list(local.command("site-2").arguments)
        arguments = [a.replace(str(local.kit("site-2")), str(self.kit)) for a in arguments]
        self.arguments = [a.replace("uid=site-2", f"uid={claim}") for a in arguments]

    def __enter__(self) -> "_Attempt":
        self.log = (self.kit / "attempt.log").open("wb")
        self.process = subprocess.Popen(
            self.arguments, cwd=self.kit, stdout=self.log, stderr=subprocess.STDOUT
        )
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self.log.close()

    def said(self) -> str:
        return (self.kit / "attempt.log").read_text(errors="replace")


def _wait_for_log(local: LocalFederation, words: str) -> None:
    """Wait until the server has written why it refused."""
    wait_for(lambda: words in local.log(SERVER), words, partial(all_run, local))


def _reissued(local: LocalFederation, kit: Path, days: float, role: str | None = None) -> None:
    """The certificate of a kit again, by the right root, ending so many days from now."""
    ca = local.folder / "ca"
    root = x509.load_pem_x509_certificate((ca / "rootCA.pem").read_bytes())
    key = serialization.load_pem_private_key((ca / "rootCA.key").read_bytes(), password=None)
    path = kit / "startup" / "client.crt"
    old = x509.load_pem_x509_certificate(path.read_bytes())
    subject = [
        x509.NameAttribute(part.oid, role)
        if role and part.oid == x509.NameOID.UNSTRUCTURED_NAME
        else part
        for part in old.subject
    ]
    builder = x509.CertificateBuilder(
        issuer_name=root.subject,
        subject_name=x509.Name(subject),
        public_key=old.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=datetime.now(UTC) - timedelta(days=9),
        not_valid_after=datetime.now(UTC) + timedelta(days=days),
    )
    for extension in old.extensions:
        builder = builder.add_extension(extension.value, extension.critical)
    signed = builder.sign(key, hashes.SHA256())  # type: ignore[arg-type]
    path.write_bytes(signed.public_bytes(serialization.Encoding.PEM))


def _refusal(local: LocalFederation, kit: Path) -> str:
    """What the server answers to a party that shakes hands with a kit's certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    context.load_cert_chain(kit / "startup" / "client.crt", kit / "startup" / "client.key")
    server = local.federation.server
    try:
        with (
            socket.create_connection((server.host, server.port), timeout=GUARD) as plain,
            context.wrap_socket(plain) as tls,
        ):
            while tls.recv(1024):
                return "accepted"
    except (ssl.SSLError, ConnectionResetError) as error:
        return str(error)
    return "closed"


def test_a_certificate_of_another_root_or_an_expired_one_is_refused(
    local: LocalFederation, tmp_path: Path
) -> None:
    assert _refusal(local, local.kit("site-2")) == "accepted"
    make_kits(rehearsal_federation(panel(), 2), tmp_path / "foreign")
    expired = tmp_path / "expired"
    shutil.copytree(local.kit("site-2"), expired)
    _reissued(local, expired, days=-1)
    assert _refusal(local, tmp_path / "foreign" / "kits" / "site-2") != "accepted"
    assert _refusal(local, expired) != "accepted"
    for words in ("unable to get local issuer certificate", "certificate has expired"):
        _wait_for_log(local, words)


def test_a_check_says_whether_the_server_takes_the_certificate(
    local: LocalFederation, tmp_path: Path
) -> None:
    source = Source(str(local.folder / "data" / "site-2.csv"), None, {})
    settings = small_settings(epsilon=2.0)
    findings = inspect_site(local.kit("site-2"), source, settings)
    assert [f.sentence for f in findings if not f.ok] == []
    sentences = {f.what: f.sentence for f in findings}
    assert "for each of your 3 clients, one vector of 11 float32 numbers" in sentences["sent"]
    assert f"{3 * 11 * 4} bytes together" in sentences["sent"]
    assert "ε = 2 at δ = 1e-05 (one client added or removed, RDP acc" in sentences["price"]
    expired = tmp_path / "expired"
    shutil.copytree(local.kit("site-2"), expired)
    _reissued(local, expired, days=-1)
    wrong = [f.what for f in inspect_site(expired, source, settings) if not f.ok]
    assert wrong == ["certificate", "connection"]
    with pytest.raises(EpifedError, match="found a certificate that ran out on"):
        site_command(expired, source)


def test_a_removed_site_and_one_that_claims_anothers_name_are_refused(
    local: LocalFederation,
) -> None:
    claims = _Attempt(local, "claims", local.kit("site-3"), "site-1")
    removed = _Attempt(local, "removed", local.kit("site-4"), "site-4")
    with claims, removed:
        for words in (
            "Reject disabled client registration: site-4",
            "authenticated as 'site-3' but claimed endpoint 'site-1'",
        ):
            _wait_for_log(local, words)
        seen: list[set[str]] = []

        def connected() -> bool:
            seen.append(_connected(local))
            return "site-1" in seen[-1]

        wait_for(connected, "site-1", partial(all_run, local))
        assert seen[-1] == {"site-1"}


def test_a_plain_text_connection_gets_no_answer(local: LocalFederation) -> None:
    server = local.federation.server
    with socket.create_connection((server.host, server.port), timeout=GUARD) as plain:
        plain.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" + b"\0" * 64)
        plain.settimeout(GUARD)
        try:
            answer = plain.recv(1024)
        except ConnectionResetError:
            answer = b""
    assert not answer.startswith(b"HTTP")
    assert b"epifed" not in answer
    _wait_for_log(local, "HTTP_REQUEST")


def test_a_job_with_code_in_it_is_refused(local: LocalFederation, tmp_path: Path) -> None:
    job = write_job(tmp_path, local.federation, plan("coded", small_settings()), 1)
    custom = job / "app" / "custom"
    custom.mkdir()
    (custom / "evil.py").write_text("print('mine')")
    _does_not_run(local, job)
    _wait_for_log(local, "BYOC not permitted")


def _does_not_run(local: LocalFederation, job: Path) -> None:
    with local.desk.session(GUARD) as session:
        name = session.submit_job(str(job))
        wait_for(
            lambda: "FINISHED" in str(session.get_job_status(name)),
            "an end",
            partial(all_run, local),
        )
        assert "COMPLETED" not in str(session.get_job_status(name))


def test_a_job_with_another_class_does_not_run(local: LocalFederation, tmp_path: Path) -> None:
    job = write_job(tmp_path, local.federation, plan("classy", small_settings()), 1)
    config = job / "app" / "config" / "config_fed_server.json"
    values = json.loads(config.read_text())
    values["workflows"][0] = {
        "id": "controller",
        "path": "nvflare.app_common.workflows.fedavg.FedAvg",
        "args": {"num_clients": 1, "num_rounds": 1},
    }
    config.write_text(json.dumps(values))
    _does_not_run(local, job)
    _wait_for_log(local, "not in allow_list")


def test_a_submitter_without_the_role_is_refused(local: LocalFederation, tmp_path: Path) -> None:
    kit = tmp_path / "member"
    shutil.copytree(local.kit(COORDINATOR), kit)
    _reissued(local, kit, days=1, role="member")
    job = write_job(tmp_path, local.federation, plan("unasked", small_settings()), 1)
    with (
        CoordinatorSession(kit).session(GUARD) as session,
        pytest.raises(AuthorizationError, match="not authorized"),
    ):
        session.submit_job(str(job))
