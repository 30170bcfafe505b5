"""`epifed audit` as a user runs it, and the membership attack."""

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner, Result

from epifed.audit import audit as suite
from epifed.audit.audit import code_digest
from epifed.audit.bench import EngineMechanism
from epifed.audit.epsilon_bounds import (
    EPSILONS,
    SMALL,
    Attack,
    area_under_curve,
    membership_attack,
    small_federation,
)
from epifed.audit.statistics import Check
from epifed.cli import audit as command
from epifed.errors import EpifedError
from epifed.privacy.plan import PrivacyPlan
from epifed.report import figures
from epifed.settings import Settings
from tests.helpers import conforming, small_clients, small_panel, small_settings

QUICK = ("--epsilon", "8", "--delta", "1e-2", "--clients", "8", "--clients-per-round", "4",
         "--rounds", "8", "--clip-norm", "0.7", "--accountant", "pld", "--runs", "200")  # fmt: skip

Audit = Callable[..., Result]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Audit:
    """The command, with the checks of one path alone."""

    run_checks = suite.run_checks

    def fewer(settings: Settings, **wanted: Any) -> list[Check]:
        return run_checks(settings, **(wanted | {"groups": ("mechanism",)}))

    small = (suite.Size(EngineMechanism(), 200, 256),)
    monkeypatch.setattr(suite, "paths", lambda scope: small)
    monkeypatch.setattr(suite, "run_checks", fewer)
    app = typer.Typer()
    app.command()(command.audit)

    def audit(*arguments: str) -> Result:
        return CliRunner().invoke(app, arguments)

    return audit


@pytest.mark.field
def test_json_and_a_picture(run: Audit, tmp_path: Path) -> None:
    picture = tmp_path / "audit.png"
    done = run(*QUICK, "--method", "both", "--out", str(picture), "--json")
    assert done.exit_code == 0, done.output
    found = conforming("audit", json.loads(done.stdout))
    assert found["passed"] is True
    assert found["claimed_epsilon"] == 8
    assert 0 < found["lower_bound"] < 8
    assert (found["confidence"], found["delta"], found["runs"]) == (0.99, 0.01, 201)
    assert found["many_runs"]["gaussian_approximation"] > 0
    assert found["one_run"]["canaries"] == 1000
    assert [check["name"] for check in found["checks"] if not check["passed"]] == []
    powers = {check["name"]: check["power"] for check in found["checks"]}
    assert "low is found with 99% probability" in powers["noise"]
    assert all(check["seconds"] >= 0 for check in found["checks"])
    assert picture.read_bytes()[:4] == b"\x89PNG"


@pytest.mark.field
def test_a_failed_audit_says_so_and_exits_with_1(
    run: Audit, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = PrivacyPlan.noise_of_round
    monkeypatch.setattr(PrivacyPlan, "noise_of_round", lambda self, came: honest(self, came) / 2)
    done = run(*QUICK)
    assert done.exit_code == 1
    assert done.stdout.splitlines()[-1] == "FAIL"
    assert "  BROKEN     noise: " in done.stdout
    assert "  ok         sampling rate: " in done.stdout
    assert "mechanism (" in done.stdout


def test_what_was_covered_and_what_not(
    run: Audit, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for long in ("check_draws", "check_rows"):
        monkeypatch.setattr(suite, long, lambda *_: [])
    page = tmp_path / "audit.md"
    done = run(*QUICK, "--quick", "--out", str(page))
    assert done.exit_code == 0, done.output
    text = page.read_text(encoding="utf-8")
    assert "- **Verdict: PASS**" in text
    assert code_digest() in text
    assert re.search(r"\| kept \| noise \| .* low is found with 99% probability \|", text)
    assert "| real processes and their logs (--all, or --federation) |" in text
    lines = done.stdout.splitlines()
    assert lines[-1] == "PASS"
    assert lines[-2].startswith("code         sha256 ")
    assert "covered" in lines
    (measured,) = (line for line in lines if line.startswith("measured     "))
    assert measured.endswith("(200 trainings; wrong with a chance of at most 1e-07)")
    assert f"- Measured: {measured[13:]}" in text
    assert "not covered" in lines
    assert any("puppets in process, seeded" in line for line in lines)
    assert any("real processes" in line for line in lines)
    assert any("chance of at most" in line for line in lines)


@pytest.mark.parametrize(("bound", "words"), [(0.0001, "no ε above 0"), (1.2345, "ε ≥ 1.234")])
def test_the_measured_bound_is_printed_sensibly(bound: float, words: str) -> None:
    found: Any = SimpleNamespace(lower_bound=bound, confidence=0.99, runs=1)
    said = command._measured(found)
    assert said.startswith(words)
    assert said.endswith("(1 training; wrong with a chance of at most 0.01)")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--all", "--quick"), "--all: found --quick, too"),
        (("--method", "guess"), "--method: found 'guess'"),
        (("--out", "audit.txt"), "expected a name ending in .md, .png"),
        (("--membership", "--out", "a.md"), "expected a picture"),
        (("--method", "one-run", "--out", "a.png"), "the picture shows many runs"),
        (("--epsilon", "inf"), "expected a finite claim"),
        (("--clients", "2"), "4 of 2 clients"),
    ],
)
def test_refuses(run: Audit, arguments: tuple[str, ...], words: str) -> None:
    done = run(*QUICK, *arguments)
    assert isinstance(done.exception, EpifedError)
    assert words in str(done.exception)


@pytest.mark.field
def test_membership() -> None:
    """Certain without noise, and never significantly above what the noise allows."""
    settings = small_settings(model="mlp", rounds=4, epochs=3, clip_norm=0.2)
    clients = small_clients(settings)
    seen: list[tuple[int, int]] = []
    plain, private = membership_attack(
        clients,
        settings,
        3,
        epsilons=(math.inf, 0.5),
        trainings=30,
        progress=lambda i, of: seen.append((i, of)),
    )
    assert plain.right > 0.85
    assert plain.auc > 0.8
    assert private.right_low <= private.allowed_by_noise < private.allowed < 0.63
    assert private.right < plain.right
    assert seen[0] == (0, 60)
    assert seen[-1] == (60, 60)


def test_membership_refuses() -> None:
    settings = small_settings()
    clients = small_clients(settings)
    with pytest.raises(EpifedError, match="target: found 12"):
        membership_attack(clients, settings, 12)
    with pytest.raises(EpifedError, match="trainings: found 2"):
        membership_attack(clients, settings, 0, trainings=2)


def test_area_under_curve_counts_pairs() -> None:
    rng = np.random.default_rng(0)
    absent, present = rng.integers(0, 9, 30).astype(float), rng.integers(2, 11, 20).astype(float)
    pairs = present[:, None] - absent[None, :]
    auc, deviation = area_under_curve(absent, present)
    assert auc == pytest.approx(((pairs > 0) + (pairs == 0) / 2).mean())
    assert 0 < deviation < 0.2


def test_the_target_is_the_largest_of_a_small_federation() -> None:
    panel = small_panel(regions=60)
    few, target = small_federation(panel, SMALL)
    assert len(few) == 20
    people = dict(zip(panel.regions, panel.population.tolist(), strict=True))  # type: ignore[union-attr]
    assert people[few.regions[target]] == max(people[region] for region in few.regions)


def test_the_picture_of_an_attack(tmp_path: Path) -> None:
    attacks = [Attack(e, 1e-5, 100, 0.7, 0.6, 0.8, 0.75, 0.7, 0.8, 0.9, 0.8) for e in EPSILONS]
    path = tmp_path / "membership.svg"
    figures.save(figures.membership_attack(attacks), path)
    text = path.read_text()
    assert "<svg" in text
    assert command.membership_row("2", attacks[0])[1] == "70% (60% to 80%)"


def test_an_audit_without_the_federation_names_what_to_install(
    run: Audit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("epifed.cli.common.find_spec", lambda name: None)
    done = run("--quick")
    assert str(done.exception).endswith("expected 'pip install epifed[federation]'")
