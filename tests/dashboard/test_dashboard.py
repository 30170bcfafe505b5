"""The coordinator's page: who may read it, what it says, and that it only reads."""

import base64
import hmac
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from importlib.metadata import requires
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from starlette.testclient import TestClient
from typer.testing import CliRunner

from epifed.cli import federation_train
from epifed.cli.app import app
from epifed.dashboard import Access, StatusPoller, certificate_ends, make_app
from epifed.errors import EpifedError
from epifed.federation.messages import Code
from epifed.federation.status import NOTICE_KINDS, SITE_STATES, WEEK_STATES, FederationState, Live
from epifed.report.served import HEADERS, POLICY
from tests.federation.status_folders import Folders
from tests.waiting import GUARD, wait_for

TOKEN = "0123456789abcdef0123456789abcdef"
ADDRESSES = ("/", "/api/state", "/metrics", "/nothing-here")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    made = Folders(tmp_path_factory.mktemp("dashboard"), sites=2, real_kits=True)
    made.train(0)
    made.train(1, {"office-002": Code.REFUSED_EPSILON})
    return made


@pytest.fixture(scope="module")
def watching(folders: Folders) -> StatusPoller:
    return StatusPoller(folders.places(), None, dict, 1, 5)


def client(
    watching: StatusPoller, access: Access | None = None, host: str = "127.0.0.1"
) -> TestClient:
    chosen = access or Access.of("127.0.0.1", None, None, None)
    return TestClient(make_app(watching, chosen), base_url=f"http://{host}:8050")


def secret(folder: Path, text: str = TOKEN, mode: int = 0o600) -> Path:
    path = folder / "token"
    path.write_text(f"{text}\n")
    path.chmod(mode)
    return path


def pair(folder: Path, *names: str) -> tuple[Path, Path]:
    """A certificate for some hosts, signed by itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, names[0])])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=30))
        .add_extension(
            x509.SubjectAlternativeName(
                [*map(x509.DNSName, names), x509.IPAddress(ip_address("127.0.0.1"))]
            ),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    certificate, private = folder / "page.crt", folder / "page.key"
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    private.chmod(0o600)
    return certificate, private


@contextmanager
def serving(folders: Folders, *options: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The command as a process of its own, and the address that it says."""
    command = "from epifed.cli import main; main()"
    words = [sys.executable, "-c", command, "federation", "dashboard", *folders.options()]
    process = subprocess.Popen(
        [*words, "--port", "0", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert process.stdout is not None and process.stderr is not None
    try:
        said = process.stdout.readline()
        found = re.search(r"https?://\S+/", said)
        assert found, (said, process.poll() and process.stderr.read())
        yield found[0], process
    finally:
        process.kill()
        process.wait()


def test_the_folder_of_a_new_federation_is_enough(folders: Folders, tmp_path: Path) -> None:
    made, seen = tmp_path / "flu", []
    new = ["federation", "new", "flu", "--host", "localhost", "--site", "north=01001,01002"]
    assert CliRunner().invoke(app, [*new, "--out", str(made)]).exit_code == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            federation_train, "_serve", lambda watching, *_: seen.append(watching._places)
        )
        patch.setattr(StatusPoller, "start", lambda _: None)
        words = ["federation", "dashboard", str(made), "--port", "0"]
        assert CliRunner().invoke(app, words).exit_code == 0
    (places,) = seen
    assert places.kit == made / "kits" / "server" and places.plan.rounds == 1
    assert places.schedule.weeks == 52 and places.weeks == made / "weeks"


def refused(*options: str) -> str:
    result = CliRunner().invoke(app, ["federation", "dashboard", *options])
    assert isinstance(result.exception, EpifedError), result.output
    return str(result.exception)


def test_others_than_this_machine_need_a_token_and_tls(folders: Folders, tmp_path: Path) -> None:
    token = secret(tmp_path)
    certificate, key = pair(tmp_path, "board.example.org")
    tls = ["--certificate", str(certificate), "--key", str(key)]
    for more in ([], ["--token-file", str(token)], tls):
        for host in ("0.0.0.0", "192.0.2.7", "::"):
            sentence = refused(*folders.options(), "--host", host, *more)
            assert sentence.startswith(f"--host: found {host}, which other machines can reach")
    assert "expected both or neither" in refused(*folders.options(), *tls[:2])
    assert "expected an address" in refused(*folders.options(), "--host", "board.example.org")


def test_mistakes_are_one_sentence(folders: Folders, tmp_path: Path) -> None:
    options = folders.options()
    kit = str(folders.kit)
    assert "expected the server's kit" in refused("--kit", str(tmp_path))
    assert "expected --schedule" in refused("--kit", kit, "--settings", options[-1])
    assert "no such folder" in refused("--kit", kit, "--weeks", str(tmp_path / "none"))
    assert "the OUT of" in refused("--kit", kit, "--kits", str(tmp_path))
    assert "coordinator's kit" in refused("--kit", kit, "--coordinator", kit)
    assert "cannot be read" in refused("--kit", kit, "--truth", str(tmp_path / "none.csv"))
    for text, mode, sentence in (
        ("short", 0o600, "expected at least 32 plain ones"),
        (TOKEN, 0o644, "others can read it"),
    ):
        path = secret(tmp_path, text, mode)
        assert sentence in refused(*options, "--token-file", str(path))
    certificate, key = pair(tmp_path, "a.example.org")
    key.write_text("nothing")
    tls = ["--certificate", str(certificate), "--key", str(key)]
    assert "expected the private key" in refused(*options, *tls)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert "cannot be listened on" in refused(*options, "--port", port)


def test_the_light_install_has_no_web_server(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    for line in requires("epifed") or []:
        name = re.split(r"[ ;<>=\[]", line)[0]
        if name in {"fastapi", "uvicorn", "prometheus-client"}:
            assert "extra ==" in line
    monkeypatch.setattr("epifed.cli.common.find_spec", lambda name: name == "nvflare" or None)
    assert "expected 'pip install epifed[dashboard]'" in refused(*folders.options())


@pytest.mark.field
def test_the_process_says_its_mistake_and_ends_with_2(folders: Folders) -> None:
    command = "from epifed.cli import main; main()"
    words = [sys.executable, "-c", command, "federation", "dashboard", *folders.options()]
    done = subprocess.run(
        [*words, "--host", "0.0.0.0"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and done.stderr.startswith("epifed: --host: found 0.0.0.0")


@pytest.mark.field
def test_it_listens_on_this_machine_alone_and_ends_when_told(folders: Folders) -> None:
    kit = folders.root / "flu" / "kits" / "coordinator"  # of a server that is away
    with serving(folders, "--coordinator", str(kit)) as (address, process):
        with urllib.request.urlopen(address) as answer:
            assert answer.status == 200
        port = int(address.rsplit(":", 1)[1].strip("/"))
        assert _listeners(port) == {"0100007F"}
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=GUARD)
        assert process.returncode in (0, -signal.SIGTERM)


def _listeners(port: int) -> set[str]:
    """The addresses, as the kernel writes them, on which somebody listens on a port."""
    found = set()
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            local, state = line.split()[1], line.split()[3]
            if state == "0A" and int(local.rsplit(":", 1)[1], 16) == port:
                found.add(local.rsplit(":", 1)[0])
    return found


@pytest.mark.field
def test_with_token_and_tls_others_may_look(folders: Folders, tmp_path: Path) -> None:
    certificate, key = pair(tmp_path, "board.example.org")
    options = ["--host", "0.0.0.0", "--token-file", str(secret(tmp_path))]
    options += ["--certificate", str(certificate), "--key", str(key)]
    with serving(folders, *options) as (address, _):
        port = address.rsplit(":", 1)[1].strip("/")
        assert address.startswith("https://")
        trusting = ssl.create_default_context(cafile=str(certificate))
        request = urllib.request.Request(f"https://127.0.0.1:{port}/metrics")
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(request, context=trusting)
        request.add_header("Authorization", f"Bearer {TOKEN}")
        with urllib.request.urlopen(request, context=trusting) as answer:
            assert b"epifed_epsilon_left" in answer.read()
        request.add_header("Host", f"board.example.org:{port}")
        with urllib.request.urlopen(request, context=trusting) as answer:
            assert answer.status == 200
        with pytest.raises((OSError, urllib.error.URLError)):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5)


@pytest.mark.parametrize("address", ADDRESSES)
def test_nothing_without_the_token(
    watching: StatusPoller, tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = Access.of("127.0.0.1", secret(tmp_path), None, None)
    page = client(watching, access)
    compared = []
    real = hmac.compare_digest

    def spied(a: bytes, b: bytes) -> bool:
        compared.append((a, b))
        return real(a, b)

    monkeypatch.setattr(hmac, "compare_digest", spied)

    def basic(password: str) -> str:
        return "Basic " + base64.b64encode(f"anyone:{password}".encode()).decode()

    wrong = [None, "", "Bearer", f"Bearer {TOKEN}0", f"Bearer {TOKEN[:-1]}", f"Token {TOKEN}"]
    wrong += ["Basic %%%", basic(""), basic(TOKEN[1:]), f"Basic {TOKEN}", "Bearer ä"]
    for said in wrong:
        headers = {} if said is None else {"Authorization": said.encode()}
        answer = page.get(address, headers=headers)
        assert answer.status_code == 401 and "epifed" in answer.headers["www-authenticate"]
        assert "office" not in answer.text and TOKEN not in answer.text
    assert len(compared) == len(wrong)  # never by ==, which stops at the first difference
    for said in (f"Bearer {TOKEN}", f"bearer {TOKEN}", basic(TOKEN)):
        answer = page.get(address, headers={"Authorization": said})
        assert answer.status_code == (404 if address == "/nothing-here" else 200)


def test_a_viewer_has_a_token_of_its_own_until_its_line_is_deleted(
    watching: StatusPoller, tmp_path: Path
) -> None:
    viewers = tmp_path / "viewers.toml"
    anna, bert = "a" * 64, "b" * 64
    viewers.write_text(f'anna = "{anna}"\nbert = "{bert}"\n')
    viewers.chmod(0o600)
    page = client(watching, Access.of("127.0.0.1", secret(tmp_path), None, None, viewers))

    def codes() -> list[int]:
        said = [{"Authorization": f"Bearer {token}"} for token in (TOKEN, anna, bert, "c" * 64)]
        return [page.get("/api/state", headers=one).status_code for one in said]

    assert codes() == [200, 200, 200, 401]
    assert page.post("/", headers={"Authorization": f"Bearer {anna}"}).status_code == 405
    viewers.write_text(f'bert = "{bert}"\n')
    assert codes() == [200, 401, 200, 401]
    for broken in ("bert = 7\n", 'bert = "short"\n', "[", "bert"):
        viewers.write_text(broken)
        assert codes() == [200, 401, 401, 401], broken
        with pytest.raises(EpifedError, match=r"viewers\.toml"):
            Access.of("127.0.0.1", secret(tmp_path), None, None, viewers)
    viewers.chmod(0o644)
    with pytest.raises(EpifedError, match="others can read it"):
        Access.of("127.0.0.1", secret(tmp_path), None, None, viewers)
    with pytest.raises(EpifedError, match="--viewers: found no --token-file"):
        Access.of("127.0.0.1", None, None, None, viewers)


@pytest.mark.parametrize(
    ("host", "code"),
    [
        ("127.0.0.1:8050", 200),
        ("localhost:8050", 200),
        ("LOCALHOST", 200),
        ("[::1]:8050", 200),
        ("evil.example:8050", 400),
        ("127.0.0.1.evil.example", 400),
        ("localhost.evil.example:8050", 400),
        ("evil.example@localhost", 400),
        ("", 400),
    ],
)
def test_a_name_of_another_site_is_refused(watching: StatusPoller, host: str, code: int) -> None:
    for address in ADDRESSES[:3]:
        answer = client(watching).get(address, headers={"Host": host})
        assert answer.status_code == code, (host, answer.text)
        assert code == 200 or "office" not in answer.text


def test_the_certificate_says_under_which_names(watching: StatusPoller, tmp_path: Path) -> None:
    certificate, key = pair(tmp_path, "board.example.org", "*.health.example")
    access = Access.of("127.0.0.1", None, certificate, key)
    page = client(watching, access)
    for host in ("board.example.org", "one.health.example", "127.0.0.1"):
        assert page.get("/", headers={"Host": host}).status_code == 200
    assert page.get("/", headers={"Host": "www.board.example.org"}).status_code == 400


def test_it_can_only_be_read(watching: StatusPoller, folders: Folders) -> None:
    page = client(watching)
    before = {path: path.stat().st_mtime_ns for path in folders.root.rglob("*")}
    for address in ADDRESSES:
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "BREW"):
            answer = page.request(method, address, content=b"x")
            assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")
        got, head = page.get(address), page.head(address)
        assert (head.status_code, head.content) == (got.status_code, b"")
    assert {path: path.stat().st_mtime_ns for path in folders.root.rglob("*")} == before


def test_every_answer_carries_the_headers(watching: StatusPoller) -> None:
    page = client(watching)
    answers = [page.get(address) for address in ADDRESSES]
    answers += [page.post("/"), page.get("/", headers={"Host": "evil.example"})]
    for answer in answers:
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS
        assert answer.headers["cache-control"] == "no-store"
        assert "server" not in answer.headers and "set-cookie" not in answer.headers
        assert "access-control-allow-origin" not in answer.headers
    assert "unsafe" not in POLICY and "http" not in POLICY
    for hidden in ("/docs", "/redoc", "/openapi.json", "/assets/../web.py", "/assets/page.html"):
        assert page.get(hidden).status_code == 404


def test_what_it_loads_is_its_own_and_may_be_kept(watching: StatusPoller) -> None:
    page = client(watching)
    text = page.get("/").text
    loaded = re.findall(r'(?:src|href)="([^"#]+)"', text)
    assert sorted(loaded) == sorted({one for one in loaded if one.startswith(("assets/", "data:"))})
    assert "<script>" not in text and "style=" not in text and " on" not in text.split("<body>")[1]
    for address in loaded:
        if address.startswith("assets/"):
            answer = page.get(f"/{address}")
            assert answer.status_code == 200 and "immutable" in answer.headers["cache-control"]
            assert answer.headers["content-encoding"] == "gzip"


def test_the_state_is_the_model_and_comes_once(watching: StatusPoller) -> None:
    page = client(watching)
    answer = page.get("/api/state")
    assert FederationState.model_validate_json(answer.content) == watching.snapshot.overview
    tag = answer.headers["etag"]
    again = page.get("/api/state", headers={"If-None-Match": tag})
    assert (again.status_code, again.content) == (304, b"")


def test_certificates_come_from_the_kits(folders: Folders) -> None:
    kits = {"server": folders.kit, "office-001": folders.root / "flu" / "kits" / "office-001"}
    ends = certificate_ends(kits | {"nobody": folders.root})()
    assert set(ends) == {"server", "office-001", "root"}
    left = ends["office-001"] - datetime.now(UTC)
    assert timedelta(days=728) < left < timedelta(days=731)
    assert ends["root"] > ends["server"]


def test_a_server_that_is_away_stops_nothing(folders: Folders) -> None:
    def away() -> Live:
        raise RuntimeError("no route")

    watching = StatusPoller(folders.places(), away, dict, 0.1, 60)
    assert watching.snapshot.overview.live is None
    watching.start()
    try:
        wait_for(lambda: watching.snapshot.overview.live is not None, "an answer")
        seen = watching.snapshot.overview
        assert seen.live is not None and not seen.live.reached
        assert seen.notices[0].kind == "server-away"
        assert client(watching).get("/").status_code == 200
    finally:
        watching.stop()


def test_what_changes_on_the_disk_is_seen_and_what_breaks_is_old(tmp_path: Path) -> None:
    made = Folders(tmp_path, sites=2)
    watching = StatusPoller(made.places(), None, dict, 0.1, 5)
    watching.start()
    try:
        made.train(0)
        wait_for(
            lambda: watching.snapshot.overview.releases and "files" not in watching._said,
            "the release",
        )
        (made.kit / "federation.toml").write_text("broken")
        wait_for(lambda: "files" in watching._said, "a word on the broken file")
        old = watching.snapshot.overview.made
        assert client(watching).get("/api/state").status_code == 200
        assert watching.snapshot.overview.made == old
    finally:
        watching.stop()


def test_both_languages_have_the_same_words_for_everything_that_can_be_said() -> None:
    assets = Path(__file__).resolve().parents[2] / "src" / "epifed" / "dashboard" / "assets"
    english, german = (assets / "words.js").read_text().split("\nconst DE = ")
    texts = [english, german]
    keys = [re.findall(r"^ +'?([\w-]+)'?:", text, flags=re.MULTILINE) for text in texts]
    assert keys[0] == keys[1]
    for text in texts:
        notices = re.search(r"notice: \{(.*?)\n  \},", text, flags=re.DOTALL)
        known = re.search(r"known: \{\n(.*?)\n  \},", text, flags=re.DOTALL)
        assert notices and known
        kinds = re.findall(r"^    '?([\w-]+)'?:", notices[1], flags=re.MULTILINE)
        assert sorted(kinds) == sorted(NOTICE_KINDS)
        # Of each field the page says where it comes from, and why it may be shown.
        said = re.findall(r"^    (\w+):", known[1], flags=re.MULTILINE)
        assert said == list(FederationState.model_fields)
        for states, name in ((SITE_STATES, "stateName"), (WEEK_STATES, "weekState")):
            words = re.search(rf"{name}: \{{(.*?)\}}", text)
            assert words and re.findall(r"(\w+): '", words[1]) == list(states)
