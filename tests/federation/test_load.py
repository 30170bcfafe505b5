"""What a server holds and does for a round: bounded by its sites, once for what they share."""

import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from epifed.federation.flare.controller import ROSTER, FederationController
from epifed.federation.flare.kits import server_resources
from epifed.federation.flare.parties import HEARTBEAT
from epifed.federation.messages import Parts, Task, pack_tasks, unpack_task
from epifed.federation.server import Problem, ServedTraining
from epifed.federation.terms import QUESTIONS, SILENT, Federation, Server, Site
from epifed.files import write_text
from epifed.rehearsal.local import free_port, rehearsal_federation
from tests.federation.helpers import SitesPost, panel, plan, settings_of, zeros


def test_the_state_of_a_round_is_held_once_for_all_sites(tmp_path: Path) -> None:
    order = plan("held-once", settings_of("fedavg", epsilon=2.0))
    training = ServedTraining(tmp_path, rehearsal_federation(panel(), 6), order, None)
    seen: dict[str, Task] = {}

    def answer(tasks: dict[str, Task]) -> tuple[dict[str, Parts], list[Problem]]:
        seen.update(tasks)
        return {site: zeros(task) for site, task in tasks.items()}, []

    training.play(SitesPost(answer), lambda _: None)
    packed = pack_tasks(seen)
    assert len({id(parts["array"]) for parts in packed.values()}) == 1
    assert len({id(task.settings) for task in seen.values()}) == 1
    for site, parts in packed.items():
        found = unpack_task(parts)
        assert (found.clients, found.drawn) == (seen[site].clients, seen[site].drawn)
        assert (found.state == seen[site].state).all()


def test_a_site_that_floods_a_round_is_remembered_once() -> None:
    held = SimpleNamespace(_silences={"site-1": 1, "site-2": 1}, _late=set())
    flooding: Any = SimpleNamespace(name="site-1")
    flood: Any = FederationController.process_result_of_unknown_task
    for _ in range(1000):
        flood(held, flooding, "", "", {}, None)
    assert held._late == {"site-1"}
    assert held._silences == {"site-2": 1}


def test_many_sites_ask_less_often_and_may_be_silent_for_longer(tmp_path: Path) -> None:
    large = invented_roster(400)
    assert len(large.sites) / large.request_interval <= QUESTIONS
    assert large.silent > SILENT + 300 and large.silent > 10 * HEARTBEAT
    write_text(tmp_path / ROSTER, large.to_toml())
    (server,) = server_resources(tmp_path)["servers"]
    assert server["heart_beat_timeout"] == large.silent


def invented_roster(sites: int) -> Federation:
    hosted = tuple(Site(name=f"site-{i}", clients=(f"{i:05}",)) for i in range(sites))
    return Federation(server=Server(host="localhost"), sites=hosted)


def test_a_port_is_claimed_and_is_none_of_outgoing_connections() -> None:
    ports = [free_port() for _ in range(5)]
    assert len(set(ports)) == 5
    outgoing = Path("/proc/sys/net/ipv4/ip_local_port_range")
    least = int(outgoing.read_text().split()[0]) if outgoing.exists() else 32768
    for port in ports:
        assert 1024 < port < least
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other, pytest.raises(OSError):
            other.bind(("127.0.0.1", port))
