"""A rehearsed year: short, on real processes, and its books when they are wrong."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import jsonschema
import polars as pl
import pytest
from typer.testing import CliRunner

from epifed.cli.app import app
from epifed.cli.outputs import schema
from epifed.errors import EpifedError
from epifed.federation.schedule import Journal
from epifed.ledger.budget import Cap
from epifed.ledger.ledger import Ledger
from epifed.rehearsal import runner
from epifed.rehearsal.report import settle_accounts
from epifed.rehearsal.runner import Events, Plan
from epifed.settings import Settings
from tests.waiting import GUARD

pytestmark = pytest.mark.field

SIZE = {"weeks": 2, "sites": 2, "aggregators": 0, "clients": 4}
EVENTS = """
[[events]]
week = 2
what = "lost-key"
who = ["site-2"]

[[events]]
week = 2
what = "restore"
"""


def _words(folder: Path) -> list[str]:
    sizes = [str(word) for name, value in SIZE.items() for word in (f"--{name}", value)]
    events = ["--events", str(folder / "events.toml"), "--out", str(folder / "year")]
    return ["federation", "rehearse", *sizes, *events, "--json"]


def _plan(folder: Path) -> Plan:
    settings = Settings.from_toml((folder / "settings.toml").read_text())
    return Plan(**SIZE, settings=settings, events=Events.read(folder / "events.toml"))


@pytest.fixture(scope="module")
def year(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two weeks with a lost key and a restored server."""
    folder = tmp_path_factory.mktemp("rehearsed")
    (folder / "events.toml").write_text(EVENTS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "ROUND_SECONDS", GUARD)  # nobody is killed within a round
        result = CliRunner().invoke(app, _words(folder))
    assert result.exit_code == 0, result.output + str(result.exception)
    return folder / "year"


def test_every_release_is_paid_once_and_scored(year: Path) -> None:
    found = json.loads((year / "report.json").read_text())
    jsonschema.validate(found, schema("federation rehearse"))
    assert found["right"]
    assert found["faults"] == []
    assert [one["outcome"] for one in found["weeks"]] == ["done", "done"]
    assert [one["sites"] for one in found["weeks"]] == [2, 2]
    assert found["epsilon_spent"] == pytest.approx(found["epsilon_planned"], rel=1e-9)
    assert found["weeks_scored"] == 2
    assert found["scores"]["7 days"]["mae_ratio"] > 0
    assert found["weeks"][0]["holders"] == 3  # the lost one's old kit has it, too
    assert "key lost" in (year / "report.md").read_text()
    assert "<table>" in (year / "report.html").read_text()
    assert found["learner"] == "real-time"
    assert all((path / "nowcast.csv").is_file() for path in year.glob("reports/*/2020-W*"))
    models = year / "kits" / "site-2-again" / "models"
    assert len(list(models.glob("*.epifed"))) == 2
    book = Ledger(year / "kits" / "site-2-again" / "site.ledger", copy=True).book()
    assert [run.spent for run in book.runs.values()] == [1, 1]
    old = Ledger(year / "kits" / "site-2" / "site.ledger", copy=True).book()
    assert (old.ledger, len(old.runs)) == (book.ledger, 1)


def test_a_site_is_given_the_counts_of_the_morning(year: Path) -> None:
    plan = _plan(year)
    mornings = plan.simulated()
    file = pl.read_csv(year / "data" / "site-1.csv", schema_overrides={"region": pl.String})
    known = mornings.on(plan.planned[1].day)
    mine = file.filter(pl.col("region") == "01001").sort("date")["cases"].to_list()
    assert mine == known.counts[known.regions.index("01001")].tolist()
    assert known.counts.sum() != mornings.final.counts[:, : known.counts.shape[1]].sum()


def test_a_folder_is_of_one_year(year: Path) -> None:
    before = Journal(year / "weeks").path.read_bytes()
    assert _plan(year).keep(year)
    with pytest.raises(EpifedError, match="another year than the one asked for"):
        CliRunner().invoke(app, [*_words(year.parent), "--epsilon", "2"], catch_exceptions=False)
    assert Journal(year / "weeks").path.read_bytes() == before


def _drop_release(year: Path) -> None:
    (year / "kits/server/trainings/week-2020-12-14/model.epifed").unlink()


def _foreign_release(year: Path) -> None:
    models = year / "kits/site-1/models"
    shutil.copy(models / "week-2020-12-07.epifed", models / "week-2020-12-21.epifed")


def _skip(year: Path) -> None:
    journal = Journal(year / "weeks")
    journal.path.write_text(journal.path.read_text().replace('"done"', '"skipped"', 1))


def _pay_again(year: Path) -> None:
    path = year / "budget.ledger"
    runs = Ledger(path, copy=True).book().runs.values()
    path.unlink()
    ledger = Ledger.create(path, Cap(50.0, 1e-5, "pld"))
    for number, run in enumerate([*runs, *runs]):
        with ledger.reserve(
            sampling_rate=run.sampling_rate,
            noise_multiplier=run.noise_multiplier,
            rounds=1,
            settings_hash=run.settings_hash,
            training=run.training if number < 2 else f"again-{number}",
        ) as again:
            again.spend(1)
            again.finish(str(run.model_hash))


def _forget(year: Path) -> None:
    (year / "kits/site-1/site.ledger").unlink()


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (_drop_release, "cannot be read at the server"),
        (_foreign_release, "holds a release that no ledger was charged for"),
        (_skip, "the journal has 'skipped'; expected 'done'"),
        (_pay_again, "but no week that was to be run"),
        (_forget, "site-1: has no ledger; expected one of 2 weeks"),
    ],
)
def test_wrong_books_are_found(
    year: Path, tmp_path: Path, harm: Callable[[Path], None], said: str
) -> None:
    copy = tmp_path / "year"
    shutil.copytree(year, copy, ignore=shutil.ignore_patterns("startup", "logs", "reports"))
    assert settle_accounts(copy, _plan(copy)).right
    harm(copy)
    faults = settle_accounts(copy, _plan(copy)).faults
    assert any(said in one for one in faults), faults
