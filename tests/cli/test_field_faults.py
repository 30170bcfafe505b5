"""What went wrong in the field, each as it was met: a command of its own, and how it ends."""

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path

import polars as pl
import pytest

from epifed.data.readers import load_panel
from epifed.errors import EpifedError
from tests.commands import epifed
from tests.helpers import small_panel
from tests.waiting import GUARD

pytestmark = pytest.mark.field

MAIN = [sys.executable, "-c", "from epifed.cli import main; main()"]


def limited(*arguments: str | Path, before: Callable[[], None]) -> subprocess.CompletedProcess[str]:
    command = [*MAIN, *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, preexec_fn=before, timeout=GUARD
    )


def one_sentence(done: subprocess.CompletedProcess[str], code: int = 2) -> str:
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    said = [line for line in done.stderr.splitlines() if line.startswith("epifed: ")]
    assert len(said) == 1, done.stderr
    return said[0]


def full_after(size: int) -> Callable[[], None]:
    """No file of the process grows beyond so many bytes, as on a full disk."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def write_cases(path: Path) -> Path:
    table = small_panel(regions=6, days=100).to_long().rename({"day": "date"})
    table.with_columns(pl.col("cases").cast(pl.Int64)).write_csv(path)
    return path


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    return write_cases(tmp_path / "cases.csv")


QUICK = ("--learner", "trend", "--runs", "1", "--epsilon", "inf", "--workers", "1")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of a run whose data have a gap and end after its period, and what it said."""
    folder = tmp_path_factory.mktemp("run")
    lines = write_cases(folder / "cases.csv").read_text().splitlines(keepends=True)
    (folder / "cases.csv").write_text("".join(lines[:30] + lines[31:]))
    last = date(2020, 10, 1) + timedelta(days=90)
    data = ("--data", folder / "cases.csv", "--to", f"{last}")
    done = epifed("run", *data, "--out", folder / "out", *QUICK)
    assert done.returncode == 0, done.stderr
    return folder / "out", done.stderr


def test_a_run_repeats_what_the_check_warns_of(finished: tuple[Path, str]) -> None:
    assert "note: no report: 1 region-day (0.2%), taken as zero" in finished[1]


def test_a_run_that_ends_early_knows_its_own_data(finished: tuple[Path, str]) -> None:
    assert "not what the results were computed from" not in finished[1]
    assert (finished[0] / "report.html").is_file()


def test_data_without_any_case_ends_in_a_table(cases: Path, tmp_path: Path) -> None:
    lines = [line.rsplit(",", 1)[0] for line in cases.read_text().splitlines()[1:]]
    cases.write_text("date,region,cases\n" + "".join(f"{line},0\n" for line in lines))
    done = epifed("run", "--data", cases, "--out", tmp_path / "out", *QUICK)
    assert done.returncode == 0, done.stderr
    assert "nothing to beat" in done.stdout
    assert "there is no case at all" in done.stderr
    assert (tmp_path / "out" / "privacy_utility.png").is_file()


def test_a_full_disk_is_one_sentence(cases: Path, tmp_path: Path) -> None:
    for arguments in (
        ("run", "--data", cases, "--out", tmp_path / "out", *QUICK),
        ("data", "convert", cases, "--out", tmp_path / "clean.csv"),
        ("data", "convert", cases, "--out", tmp_path / "clean.parquet"),
    ):
        said = one_sentence(limited(*arguments, before=full_after(150)))
        assert "File too large" in said
    assert not list(tmp_path.glob("clean*"))


def test_a_report_on_a_full_disk_is_one_sentence(
    finished: tuple[Path, str], tmp_path: Path
) -> None:
    page = tmp_path / "report.html"
    said = one_sentence(limited("report", finished[0], "--out", page, before=full_after(10_000)))
    assert said == f"epifed: {page}: cannot be written: File too large"
    assert not page.exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_output_to_a_full_device_is_one_sentence(cases: Path) -> None:
    with Path("/dev/full").open("w") as full:
        command = [*MAIN, "data", "check", str(cases)]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "epifed: No space left on device\n"


@pytest.mark.parametrize("as_json", [True, False])
def test_a_reader_that_has_enough_ends_it_without_a_word(cases: Path, as_json: bool) -> None:
    command = [*MAIN, "data", "check", str(cases), *(["--json"] if as_json else [])]
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert done.stderr == ""
    assert done.returncode in (1, 141)


AT_MOMENT = """
import sys
from epifed.cli import main

def hook(event, arguments):
    if (event, str(arguments[0])) == moment:
        print("begun", flush=True)

moment = sys.argv.pop(1), sys.argv.pop(1)
sys.addaudithook(hook)
main()
"""


@pytest.mark.parametrize("moment", ["import epifed.cli.app", "import numpy", "os.mkdir OUT"])
def test_an_interruption_is_one_sentence(moment: str, tmp_path: Path) -> None:
    """Whenever it comes once epifed itself has begun to start, long before the end of the run."""
    out = str(tmp_path / "out")
    child = subprocess.Popen(
        [sys.executable, "-c", AT_MOMENT, *moment.replace("OUT", out).split(), "run", "--out", out],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert child.stdout is not None
    assert "begun\n" in child.stdout
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=GUARD)
    assert child.returncode == 130
    assert said.splitlines()[-1] == "epifed: interrupted; what was finished is kept"
    assert "Traceback" not in said


def test_standard_input_is_a_file(cases: Path) -> None:
    command = [*MAIN, "data", "check", "-", "--json"]
    done = subprocess.run(command, input=cases.read_bytes(), capture_output=True, check=True)
    assert json.loads(done.stdout)["cases"] == load_panel(cases).counts.sum()
    empty = subprocess.run(command, input=b"", capture_output=True, check=False)
    assert empty.stderr == b"epifed: standard input: found nothing; expected case counts\n"


def test_the_check_names_all_that_must_be_said_at_once(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    days = [date(2020, 11, 1) + timedelta(days=i) for i in range(28)]
    lines = [f"{day:%d.%m.%Y};{region};{1000 + i * 37 % 100:,}".replace(",", ".")
             for region in (1001, 10041) for i, day in enumerate(days)]  # fmt: skip
    path.write_bytes("\n".join(["Datum;Kreis;Fälle", *lines]).encode("latin-1"))
    done = epifed("data", "check", path)
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    words = (
        "--encoding latin-1 --column-date Datum --column-region Kreis --column-cases Fälle "
        "--id-width 5 --thousands ."
    )
    assert last == f"epifed: with the first way of each: {words}"
    read = epifed("data", "check", path, "--json", *words.split())
    report = json.loads(read.stdout)
    assert (report["regions"], report["days"]) == (2, 28)
    assert report["read_as"]["date_format"] == "%d.%m.%Y"


def test_a_horizon_of_a_hub_is_looked_at_before_the_work(cases: Path, tmp_path: Path) -> None:
    hub, out = tmp_path / "hub", tmp_path / "out"
    span = ("--from", "2020-12-10", "--to", "2020-12-30", "--out", out, "--epsilon", "inf")
    said = one_sentence(epifed("backtest", "--data", cases, *span, "--horizon", "10", "--hub", hub))
    assert "horizon: found 10 days; expected whole weeks" in said
    assert not out.exists()
    twice = ("--horizon", "7", "--horizon", "14")
    said = one_sentence(epifed("backtest", "--data", cases, *span, *twice))
    assert said == "epifed: --horizon: found 2 times; expected it once"


def test_a_prepared_directory_with_the_population_of_any_year(tmp_path: Path) -> None:
    days = [date(2020, 1, 2) + timedelta(days=i) for i in range(3)]
    frame = pl.DataFrame({"date": days, "county": "01001", "cases": [3, 1, 2]})
    frame.write_parquet(tmp_path / "county_cases.parquet")
    head = "county,name,state,population_2021,population_density\n"
    (tmp_path / "counties.csv").write_text(head + "01001,Town,State,900,12.5\n")
    panel = load_panel(tmp_path)
    assert panel.population is not None and panel.population.tolist() == [900]


def test_a_prepared_directory_is_looked_at_as_a_table_is(tmp_path: Path) -> None:
    days = [date(2020, 1, 5) + timedelta(days=7 * i) for i in range(10)]
    frame = pl.DataFrame({"date": days, "county": "01001", "cases": [3, 1] * 5})
    frame.write_parquet(tmp_path / "county_cases.parquet")
    head = "county,name,state,population\n"
    (tmp_path / "counties.csv").write_text(head + "01001,Town,State,900\n")
    assert load_panel(tmp_path).step == "week"
    daily = frame.with_columns(
        date=pl.Series(days[:1]).first() + pl.duration(days=pl.int_range(10))
    )
    daily.with_columns(cases=pl.Series([3, 1, 4, -2, 5, 9, 2, 6, 5, 3])).write_parquet(
        tmp_path / "county_cases.parquet"
    )
    with pytest.raises(EpifedError, match="--negatives spread"):
        load_panel(tmp_path)
    assert load_panel(tmp_path, negatives="spread").counts.sum() == 36
    with pytest.raises(EpifedError, match="thousands: not an option of the format prepared"):
        load_panel(tmp_path, thousands=".")
