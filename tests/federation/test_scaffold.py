"""A federation from a few questions: files that explain themselves, and that fit each other."""

import json
import re
import subprocess
import sys
import tomllib
from datetime import date, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from epifed.errors import EpifedError
from epifed.federation.flare.inspection import _disk
from epifed.federation.flare.kits import (
    approve,
    assemble,
    kind_of,
    make_kits,
    own_lines_alone,
)
from epifed.federation.flare.parties import server_command, site_command
from epifed.federation.readiness import weigh
from epifed.federation.scaffold import (
    LEDGER,
    README,
    ROSTER,
    SCHEDULE,
    SETTINGS,
    Outline,
    parse_site,
    parse_sites,
    write_scaffold,
)
from epifed.federation.schedule import Schedule, budgeted
from epifed.federation.site import Source
from epifed.federation.terms import Federation, SiteLedger, Terms
from epifed.ledger.ledger import Ledger
from epifed.rehearsal.local import free_port
from epifed.settings import Settings, read_values
from epifed.site_report import update_site
from tests.commands import epifed
from tests.federation.helpers import terms_of
from tests.waiting import today

SITES = {"north": ("01001", "01002"), "south": ("09161",), "west": ("05111", "05112")}


def _outline(**changes: object) -> Outline:
    values: dict[str, object] = {
        "name": "flu",
        "host": "localhost",
        "sites": SITES,
        "first": date(2026, 11, 23),
    }
    return Outline(**values | changes)  # type: ignore[arg-type]


def test_every_line_with_a_value_has_a_comment_and_the_files_are_read_as_they_were_meant(
    tmp_path: Path,
) -> None:
    outline = _outline()
    write_scaffold(outline, tmp_path)
    assert Federation.read(tmp_path / ROSTER) == outline.federation
    assert Schedule.read(tmp_path / SCHEDULE) == outline.schedule
    assert Settings.resolve(5, read_values(tmp_path / SETTINGS)) == outline.settings
    for name in (ROSTER, SETTINGS, SCHEDULE):
        lines = (tmp_path / name).read_text().splitlines()
        for before, line in zip(["", *lines], lines, strict=False):
            if re.match(r"\w+ = ", line):
                assert "  # " in line or before.startswith("# "), (name, line)
    with pytest.raises(EpifedError, match="exists already"):
        write_scaffold(outline, tmp_path)


@pytest.mark.parametrize("weeks", [1, 52])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 2.0])
def test_terms_settings_and_budget_of_a_new_federation_fit_each_other(
    tmp_path: Path, epsilon: float, weeks: int
) -> None:
    outline = _outline(epsilon=epsilon, weeks=weeks)
    plan, terms = outline.plan, outline.federation.terms
    each = (plan.priced_rate, plan.noise_multiplier, plan.rounds)
    for trials in ((), (each,)):
        assert f"{weeks} week" in budgeted(outline.cap, trials, plan, weeks)
    book = SiteLedger(tmp_path / "site.ledger", terms)
    first = terms_of(outline.settings, plan.clients)
    assert weigh(first, terms, book).code is None


@pytest.mark.parametrize("text", ["north", "=1", "north=", "north= , "])
def test_a_site_that_is_none_is_one_sentence(text: str) -> None:
    with pytest.raises(EpifedError, match="expected a name and its regions"):
        parse_site(text)


def test_a_site_that_is_named_twice_is_refused() -> None:
    assert parse_sites(["north=1,2", "south=3"]) == {"north": ("1", "2"), "south": ("3",)}
    with pytest.raises(EpifedError, match=r"found .north. twice; .* such as north=1,2"):
        parse_sites(["north=1", "north=2"])


@pytest.mark.parametrize("host", ["bad host", "", "a" * 64, "fed.example.org\n"])
def test_a_host_that_is_none_is_one_sentence(host: str) -> None:
    outline = _outline(host=host)
    with pytest.raises(EpifedError, match=r"host: found .*; expected a host name such as fed"):
        _ = outline.federation


def test_a_request_that_is_none_is_one_sentence(tmp_path: Path) -> None:
    wrong = tmp_path / "north.request.zip"
    wrong.write_text("no zip")
    roster = _outline().federation
    with pytest.raises(EpifedError, match=r"request\.zip: found another or a damaged file"):
        approve(roster, tmp_path, wrong, tmp_path / "out")
    with pytest.raises(EpifedError, match=r"request\.zip: found another or a damaged file"):
        assemble(roster, wrong, tmp_path, "SHA256:", tmp_path / "kit")


def test_one_command_makes_kits_with_our_readme_and_a_budget(tmp_path: Path) -> None:
    out = tmp_path / "flu"
    sites = [
        word
        for name, clients in SITES.items()
        for word in ("--site", f"{name}={','.join(clients)}")
    ]
    new = ("federation", "new", "flu", "--out", out, "--host", "localhost", "--language", "de")
    made = epifed(*new, *sites, expect=0)
    said = " ".join(made.stderr.split())
    assert "52 weeks and one trial cost" in said and "9 % of the release is signal" in said
    assert "--despite-noise" not in said
    few = ("federation", "new", "few", "--out", tmp_path / "few", "--host", "localhost")
    said = " ".join(epifed(*few, "--site", "north=01001", expect=0).stderr.split())
    assert "below 5 %, 'federation train' and 'schedule' refuse to spend ε" in said
    north = out / "kits" / "north"
    assert "Standort der Föderation flu" in (north / README).read_text()
    assert not list(out.rglob("readme.txt"))
    terms = (north / "site.toml").read_text()
    assert "# S, the largest length of a client's vector" in terms
    assert Terms.read(north / "site.toml") == Federation.read(out / ROSTER).terms
    assert Settings.from_toml((north / SETTINGS).read_text()).learner == "real-time"
    assert "epifed federation schedule" in (out / README).read_text()
    planned = epifed("federation", "schedule", out, "--plan", expect=0)
    assert len(planned.stdout.splitlines()) == 52
    config = tomllib.loads((out / SETTINGS).read_text())
    assert config["accountant"] == "pld"
    own = own_lines_alone({"filters": {}, "formatters": {}, "handlers": {"consoleHandler": {}}})
    assert own["handlers"]["consoleHandler"]["filters"] == ["own"]
    _wrong_kits_and_data(out)


def _wrong_kits_and_data(out: Path) -> None:
    north, server = out / "kits" / "north", out / "kits" / "server"
    assert kind_of(server) == "the server's kit"
    assert kind_of(out) == "no startup kit"
    with pytest.raises(EpifedError, match="found the kit of the site 'north'; expected the server"):
        server_command(north, None)
    data = out / "other.csv"
    days = [date(2026, 6, 1) + timedelta(days=day) for day in range(100)]
    rows = [f"{region},{day},{17 * day.day % 23}" for region in ("09161", "09162") for day in days]
    data.write_text("\n".join(["region,date,cases", *rows]) + "\n")
    with pytest.raises(EpifedError, match="found the regions 09161, 09162; expected"):
        site_command(north, Source(str(data), None, {}))
    checked = epifed("federation", "check", "--kit", north, "--data", data, expect=1)
    assert "NOT clients" in checked.stdout
    assert "found the regions 09161, 09162; expected those of the site 'north'" in checked.stdout
    _too_few_days(north, data)
    _days_far_from_today(north, data)
    office, port = out / "kits" / "coordinator", free_port()
    path = office / "startup" / "fed_admin.json"
    values = json.loads(path.read_text())
    values["admin"]["port"] = port
    path.write_text(json.dumps(values))
    for where in (("--kit", office), (out,)):
        down = epifed("federation", "status", *where, expect=2)
        assert f"the server cannot be reached at localhost:{port}" in down.stderr


def _too_few_days(north: Path, data: Path) -> None:
    """A file that begins after the schedule's first day: all its clients would count as zero."""
    last = today() - timedelta(days=1)

    def write(days: int) -> None:
        rows = [
            f"{region},{last - timedelta(days=day)},{17 * day % 23}"
            for region in SITES["north"]
            for day in range(days)
        ]
        data.write_text("\n".join(["region,date,cases", *rows]) + "\n")

    def days_of_check() -> str:
        done = epifed("federation", "check", "--kit", north, "--data", data, expect=1)
        return next(line for line in done.stdout.splitlines() if " days: " in line)

    write(100)
    first = last - timedelta(days=179)
    expected = f"expected them from {first} on, since each training learns from 180 days"
    assert days_of_check().startswith("NOT") and expected in days_of_check()
    with pytest.raises(EpifedError, match=expected):
        site_command(north, Source(str(data), None, {}))
    terms = Terms.read(north / "site.toml")
    said = terms.model_copy(update={"first_day": last - timedelta(days=99)})
    (north / "site.toml").write_text(said.to_toml())
    site_command(north, Source(str(data), None, {}))
    (north / "site.toml").write_text(terms.to_toml())
    write(180)
    assert days_of_check().startswith("ok ") and f"from {first} to {last}" in days_of_check()


def _days_far_from_today(north: Path, data: Path) -> None:
    """An old file or a clock a year ahead; counts of days to come or a clock a year behind."""

    def clients_of_check(last: date) -> str:
        days = [last - timedelta(days=day) for day in range(200)]
        rows = [f"{region},{day},{17 * day.day % 23}" for region in SITES["north"] for day in days]
        data.write_text("\n".join(["region,date,cases", *rows]) + "\n")
        done = epifed("federation", "check", "--kit", north, "--data", data, expect=1)
        return next(
            line
            for line in done.stdout.splitlines()
            if line.startswith(("NOT clients", "NOT data"))
        )

    now, year = today(), timedelta(days=365)
    assert "365 days before today by this machine's clock" in clients_of_check(now - year)
    assert "365 days after today by this machine's clock" in clients_of_check(now + year)


def test_a_full_disk_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_kits(_outline().federation, tmp_path)
    kit = tmp_path / "kits" / "north"
    assert _disk(kit).ok
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=3 * 2**20))
    Source(str(tmp_path / "none.csv"), None, {}).write(kit)
    status = update_site(kit, tmp_path / "weeks", "flu")
    for sentence in (_disk(kit).sentence, status["problems"][0]):
        assert sentence.startswith(f"{kit}: found 3 MB free on the disk; expected at least 20")


def test_a_log_that_cannot_be_written_is_said_once() -> None:
    code = (
        "import logging, sys; from epifed.federation.flare.engine_patches import say_unwritten;"
        "say_unwritten(); logging.basicConfig(filename='/dev/full');"
        "[logging.warning('line') for _ in range(3)]"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "the log cannot be written: No space left on device\n"


def test_no_epsilon_is_spent_on_a_release_that_would_be_noise(tmp_path: Path) -> None:
    outline = _outline(sites={"north": ("01001",)}, epsilon=0.1)
    make_kits(outline.federation, tmp_path)
    write_scaffold(outline, tmp_path)
    Ledger.create(tmp_path / LEDGER, outline.cap)
    for words in (("train", tmp_path), ("schedule", tmp_path, "--once")):
        done = epifed("federation", *words, expect=2)
        assert "noise hides most of it" in done.stderr
        assert "Nothing was spent; expected at least 5 %, or --despite-noise" in done.stderr
    assert not Ledger(tmp_path / LEDGER).book().runs
    epifed("federation", "schedule", tmp_path, "--plan", expect=0)


def test_a_training_of_days_that_are_not_over_is_refused(tmp_path: Path) -> None:
    make_kits(_outline().federation, tmp_path)
    write_scaffold(_outline(), tmp_path)
    to = ("--from", "2026-01-01", "--to", str(today() + timedelta(days=1)))
    done = epifed("federation", "train", tmp_path, *to, "--plan", expect=2)
    assert "expected a day before today" in done.stderr


def test_without_a_terminal_what_is_missing_is_named(tmp_path: Path) -> None:
    done = epifed("federation", "new", "flu", "--out", tmp_path / "flu", expect=2)
    assert "--host: found nothing; expected" in done.stderr
    assert not (tmp_path / "flu").exists()


def test_a_party_with_its_own_key_gets_a_readme_with_its_form(tmp_path: Path) -> None:
    outline = _outline(own_keys=True, sites={"north": ("01001",)})
    made = make_kits(outline.federation, tmp_path, outline.settings)
    (form,) = made.requests
    assert "epifed federation key . --out key" in (form / README).read_text()
    assert (form / SETTINGS).is_file()
