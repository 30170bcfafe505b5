"""Machines, as far as their networks go: each party in a network namespace of its own.

The steps of docs/federation.md by their commands. A listener on the wire between the machines sees
that a site only dials out, to one port, and that nothing of its data can be read there.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import polars as pl
import pytest

from epifed.federation.flare.kits import fingerprint
from epifed.training.release import read_release
from tests.federation.helpers import panel
from tests.helpers import small_settings
from tests.waiting import GUARD, wait_for

HOST, PORT = "fed.example.org", 8002
ADDRESSES = {
    party: f"10.77.0.{i + 1}" for i, party in enumerate(("server", "north", "south", "lab", "uni"))
}
HEAD = f"""min_sites = 2
round_timeout = {GUARD}
[server]
host = "{HOST}"
port = {PORT}
"""
ADDERS = ("lab", "uni")
MARK = f"epifed-{os.getpid()}"
WIRE = f"{MARK}-wire"
EPIFED = str(Path(sys.executable).parent / "epifed")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def _can_have_namespaces() -> bool:
    if os.name != "posix" or os.geteuid() != 0 or not shutil.which("ip"):
        return False
    try:
        _ip("netns", "add", WIRE)
        _ip("-n", WIRE, "link", "add", "switch", "type", "bridge")
        _ip("-n", WIRE, "link", "add", "one", "type", "veth", "peer", "name", "other")
    except subprocess.CalledProcessError:
        return False
    finally:
        subprocess.run(["ip", "netns", "del", WIRE], check=False, capture_output=True)
    return True


pytestmark = [
    pytest.mark.field,
    pytest.mark.skipif(
        not _can_have_namespaces(), reason="needs network namespaces: root, Linux and iproute2"
    ),
]


@pytest.fixture
def machines() -> Iterator[dict[str, str]]:
    """The namespace of each machine, on one wire, where everybody knows the server's name."""
    names = {party: f"{MARK}-{party}" for party in ADDRESSES}
    try:
        _ip("netns", "add", WIRE)
        _ip("-n", WIRE, "link", "add", "switch", "type", "bridge")
        _ip("-n", WIRE, "link", "set", "switch", "up")
        for party, name in names.items():
            _ip("netns", "add", name)
            ends = ("link", "add", party, "type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("-n", WIRE, *ends)
            _ip("-n", WIRE, "link", "set", party, "master", "switch", "up")
            _ip("-n", name, "address", "add", f"{ADDRESSES[party]}/24", "dev", "eth0")
            for device in ("eth0", "lo"):
                _ip("-n", name, "link", "set", device, "up")
            etc = Path("/etc/netns") / name
            etc.mkdir(parents=True)
            (etc / "hosts").write_text(f"127.0.0.1 localhost\n{ADDRESSES['server']} {HOST}\n")
        yield names
    finally:
        for name in (*names.values(), WIRE):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
            shutil.rmtree(Path("/etc/netns") / name, ignore_errors=True)


@contextmanager
def _running(namespace: str, log: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["ip", "netns", "exec", namespace, *words],
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def _said(namespace: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = ["ip", "netns", "exec", namespace, EPIFED, "federation", *words]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def _until_connected(machine: str, kit: Path, sites: set[str]) -> None:
    def connected() -> bool:
        status = _said(machine, "status", "--kit", str(kit), "--json")
        return status.returncode == 0 and sites <= set(json.loads(status.stdout)["connected"])

    wait_for(connected, f"the connection of {sites}", every=0.5)


def test_three_machines_train_and_the_wire_shows_only_sites_dialling_the_one_port(
    machines: dict[str, str], tmp_path: Path
) -> None:
    regions = panel().regions
    hosted = {"north": regions[::2], "south": regions[1::2]}
    sites = "".join(
        f'[[sites]]\nname = "{name}"\nclients = {json.dumps(list(clients))}\n'
        for name, clients in hosted.items()
    )
    roster = tmp_path / "federation.toml"
    roster.write_text(HEAD + sites)
    settings = tmp_path / "settings.toml"
    settings.write_text(small_settings(epsilon=1.0, clients_per_round=len(regions)).to_toml())
    long = panel().to_table()
    data_of = {name: str(tmp_path / f"{name}.csv") for name in hosted}
    for name, clients in hosted.items():
        long.filter(pl.col("region").is_in(clients)).write_csv(data_of[name])
    flu, ledger = tmp_path / "flu", tmp_path / "budget.ledger"
    for words in (
        ("federation", "init", str(roster), "--out", str(flu)),
        ("ledger", "init", str(ledger), "--epsilon", "6"),
    ):
        subprocess.run([EPIFED, *words], check=True, capture_output=True)
    kits, office = flu / "kits", flu / "kits" / "coordinator"
    wire = tmp_path / "wire.json"
    listener = (str(Path(__file__).with_name("wire.py")), str(wire), HOST, regions[0], "weights")
    with _running(WIRE, tmp_path / "wire.log", sys.executable, *listener), ExitStack() as parties:
        serve = (EPIFED, "federation", "server", "--kit", str(kits / "server"))
        parties.enter_context(
            _running(machines["server"], tmp_path / "s.log", *serve, "--ledger", str(ledger))
        )
        _until_connected(machines["server"], office, set())
        for name in hosted:
            data = ("--kit", str(kits / name), "--data", data_of[name])
            checked = _said(machines[name], "check", *data)
            assert checked.returncode == 0, checked.stdout + checked.stderr
            log = tmp_path / f"{name}.log"
            parties.enter_context(
                _running(machines[name], log, EPIFED, "federation", "site", *data)
            )
        _until_connected(machines["server"], office, set(hosted))
        days = ("--from", f"{panel().start}", "--to", f"{panel().end}", "--name", "flu")
        about = ("--federation", str(roster), "--kit", str(office), *days)
        trained = _said(machines["server"], "train", str(settings), *about)
        assert trained.returncode == 0, trained.stdout + trained.stderr
        for name in hosted:
            model = read_release(kits / name / "models" / "flu.epifed")
            assert model.randomness == "secure"
            assert model.epsilon <= 1.0
            made = ("forecast", str(kits / name / "models" / "flu.epifed"), "--data", data_of[name])
            out = tmp_path / f"forecast-{name}"
            subprocess.run([EPIFED, *made, "--out", str(out)], check=True, capture_output=True)
            assert any(out.iterdir())
    heard = json.loads(wire.read_text())
    assert heard["frames"] > 100
    assert {tuple(one) for one in heard["opened"]} == {
        (ADDRESSES[name], ADDRESSES["server"], PORT) for name in hosted
    }
    assert heard["others"] == []
    assert heard["read"] == [HOST], "TLS shows the name that is dialled, and nothing inside"


def _did(*words: str) -> str:
    done = subprocess.run([EPIFED, *words], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _kit_of_its_own(flu: Path, roster: Path, name: str, folder: Path) -> Path:
    """The kit of an aggregator, whose keys are made by itself alone."""
    form, keys, kit = flu / "requests" / name, folder / f"{name}-key", folder / f"{name}-kit"
    _did("federation", "key", str(form), "--out", str(keys))
    (request,) = keys.glob("*.request.zip")
    where = ("--kits", str(flu), "--out", str(folder / "answers"))
    _did("federation", "approve", str(roster), str(request), *where)
    signed = folder / "answers" / request.name.replace(".request.zip", ".signed.zip")
    root = ("--fingerprint", fingerprint(flu / "ca" / "rootCA.pem"))
    own = ("--key", str(keys), *root, "--kit", str(kit))
    _did("federation", "assemble", str(form), str(signed), *own)
    return kit


def test_five_machines_train_with_two_aggregators_whose_keys_were_told_by_telephone(
    machines: dict[str, str], tmp_path: Path
) -> None:
    regions = panel().regions
    hosted = {"north": regions[::2], "south": regions[1::2]}
    tables = "".join(
        f'[[sites]]\nname = "{name}"\nclients = {json.dumps(list(clients))}\n'
        for name, clients in hosted.items()
    ) + "".join(f'[[aggregators]]\nname = "{name}"\n' for name in ADDERS)
    roster, settings = tmp_path / "federation.toml", tmp_path / "settings.toml"
    roster.write_text(HEAD + tables)
    settings.write_text('learner = "trend"\nnoise = "aggregators"\nepsilon = 1.0\n')
    flu, ledger = tmp_path / "flu", tmp_path / "budget.ledger"
    _did("federation", "init", str(roster), "--out", str(flu))
    _did("ledger", "init", str(ledger), "--epsilon", "6")
    kits = {name: flu / "kits" / name for name in (*hosted, "server")}
    kits |= {name: _kit_of_its_own(flu, roster, name, tmp_path) for name in ADDERS}
    told = {name: _did("federation", "fingerprint", "--kit", str(kits[name])) for name in ADDERS}
    for name in (*hosted, *ADDERS):
        terms = kits[name] / ("aggregator.toml" if name in ADDERS else "site.toml")
        pins = "".join(line for other, line in told.items() if other != name)
        terms.write_text(terms.read_text().replace("[aggregators]\n", f"[aggregators]\n{pins}"))
    long = panel().to_long().rename({"day": "date"})
    office = flu / "kits" / "coordinator"
    with ExitStack() as parties:

        def run(name: str, *words: str) -> None:
            command = (EPIFED, "federation", *words, "--kit", str(kits[name]))
            log = tmp_path / f"{name}.log"
            parties.enter_context(_running(machines[name], log, *command))

        run("server", "server", "--ledger", str(ledger))
        _until_connected(machines["server"], office, set())
        for name in ADDERS:
            run(name, "aggregator", "--roster", str(flu / "roster.toml"))
        for name, clients in hosted.items():
            data = tmp_path / f"{name}.csv"
            long.filter(pl.col("region").is_in(clients)).write_csv(data)
            read = ("--data", str(data), "--settings", str(settings))
            checked = _said(machines[name], "check", "--kit", str(kits[name]), *read)
            assert checked.returncode == 0, checked.stdout + checked.stderr
            assert "trust no one alone" in checked.stdout
            run(name, "site", "--data", str(data))
        _until_connected(machines["server"], office, {*hosted, *ADDERS})
        days = ("--from", f"{panel().start}", "--to", f"{panel().end}", "--name", "flu")
        about = ("--federation", str(roster), "--kit", str(office), *days)
        trained = _said(machines["server"], "train", str(settings), *about)
        assert trained.returncode == 0, trained.stdout + trained.stderr
        assert "clients trust no one alone" in trained.stdout
        assert "the model is at 4 parties" in trained.stdout
    for name in (*hosted, *ADDERS):
        model = read_release(kits[name] / "models" / "flu.epifed")
        assert (model.randomness, model.settings.noise) == ("secure", "aggregators")
