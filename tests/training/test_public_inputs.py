"""What all clients of a releasable training share never comes from the rows of one of them."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any, get_args

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from typer.testing import CliRunner

import epifed
from epifed.cli.app import app
from epifed.data.calendar import Step
from epifed.data.readers import load_panel
from epifed.errors import EpifedError
from epifed.federation.flare import jobs
from epifed.federation.messages import Parts, Task, pack_task
from epifed.federation.schedule import Schedule, Weekday
from epifed.federation.server import Order, Problem, ServedTraining
from epifed.federation.site import SiteWork, Source
from epifed.federation.terms import Federation, Server, Site, Terms
from epifed.ledger.budget import Cap
from epifed.ledger.ledger import Ledger
from epifed.privacy.noise import Rows, SecureRandomness
from epifed.privacy.plan import PrivacyPlan
from epifed.registry import LEARNERS
from epifed.settings import Settings
from epifed.training.public_inputs import PublicRegions, ReleasableData
from epifed.training.release import Release, read_release
from tests.federation.helpers import SitesPost
from tests.helpers import START, small_panel

REGIONS = tuple(f"{i:05d}" for i in range(6))
HOSTILE = REGIONS[3]
STEPS = 63
SMALL: dict[str, dict[str, Any]] = {
    "fedavg": {"rounds": 1, "epochs": 8, "learning_rate": 0.05, "model": "linear"}
    | {"clients_per_round": 6}
}


def _runs(learner: str, step: Any) -> bool:
    try:
        return bool(LEARNERS.load(learner).at(step))
    except EpifedError:
        return False


CASES = [
    (learner, step)
    for learner in LEARNERS.names()
    for step in get_args(Step)
    if _runs(learner, step)
]
"""Every learner that is registered, by days and by weeks where it can."""
START_OF = {"day": START, "week": date(2019, 9, 8)}
CHANGES = ("gone", "row ahead", "early row", "last row only", "huge counts", "zero counts")


def cases(step: str) -> pl.DataFrame:
    panel = small_panel(len(REGIONS), STEPS)
    if step == "week":
        panel = replace(panel, step="week", start=START_OF["week"])
    return panel.to_long().rename({"day": "date"})


def given_days(frame: pl.DataFrame, step: str) -> tuple[date, date]:
    """Days inside the table, and one more step than it has at its end."""
    unit = timedelta(days=7 if step == "week" else 1)
    first, last = frame["date"].min(), frame["date"].max()
    assert isinstance(first, date) and isinstance(last, date)
    return first + 5 * unit, last + unit


def changed(frame: pl.DataFrame, change: str, step: str) -> pl.DataFrame:
    """The table after one client has changed its rows."""
    own = pl.col("region") == HOSTILE
    unit = timedelta(days=7 if step == "week" else 1)
    first, last = frame["date"].min(), frame["date"].max()
    assert isinstance(first, date) and isinstance(last, date)

    def with_row(day: date) -> pl.DataFrame:
        row = {"date": [day], "region": [HOSTILE], "cases": [1e8]}
        return pl.concat([frame, pl.DataFrame(row).select(frame.columns)])

    if change in ("huge counts", "zero counts"):
        count = 1e9 if change == "huge counts" else 0.0
        return frame.with_columns(pl.when(own).then(count).otherwise("cases").alias("cases"))
    return {
        "gone": lambda: frame.filter(~own),
        "row ahead": lambda: with_row(last + unit),
        "early row": lambda: with_row(first - 40 * unit),
        "last row only": lambda: frame.filter(~own | (pl.col("date") == last)),
    }[change]()


@pytest.fixture
def sums(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Rows]]:
    """The clipped vectors of each round; everybody is drawn and nothing is added."""
    seen: list[Rows] = []

    def release(self: SecureRandomness, updates: Rows, plan: PrivacyPlan) -> Rows:
        seen.append(updates.copy())
        return np.zeros(updates.shape[1], dtype=np.float32)

    def everybody(self: SecureRandomness, plan: PrivacyPlan) -> NDArray[np.int64]:
        return np.arange(plan.clients)

    monkeypatch.setattr(SecureRandomness, "release", release)
    monkeypatch.setattr(SecureRandomness, "sample", everybody)
    yield seen


def un_noised(release: Release) -> dict[str, Any]:
    """Every field of a release but the noisy state, its name and the clock."""
    drawn = {"vector", "sha256", "ledger_run", "created"}
    return {key: value for key, value in vars(release).items() if key not in drawn}


def others(frame: pl.DataFrame, rows: Rows) -> Rows:
    """The vectors of all clients but the hostile one; of a client without rows there is none."""
    present = [region for region in REGIONS if region in set(frame["region"])]
    assert len(rows) == len(present)
    return np.stack([row for name, row in zip(present, rows, strict=True) if name != HOSTILE])


def trained(frame: pl.DataFrame, learner: str, step: str, folder: Path) -> Release:
    path = folder / "budget.ledger"
    path.unlink(missing_ok=True)
    training = epifed.train(
        load_panel(frame, cadence=step),
        learner=learner,
        epsilon=1.0,
        step=step,
        period=given_days(cases(step), step),
        regions=REGIONS,
        ledger=Ledger.create(path, Cap(50.0, 1e-5, "pld")),
        **SMALL.get(learner, {}),
    )
    assert training.release is not None
    return training.release


@pytest.mark.parametrize(("learner", "step"), CASES)
def test_one_client_s_rows_change_nothing_that_others_send(
    learner: str, step: str, sums: list[Rows], tmp_path: Path
) -> None:
    plain = cases(step)
    about = un_noised(trained(plain, learner, step, tmp_path))
    expected = others(plain, sums[0])
    assert len(np.unique(expected, axis=0)) == len(expected)  # they do depend on the counts
    for change in CHANGES:
        sums.clear()
        frame = changed(plain, change, step)
        assert un_noised(trained(frame, learner, step, tmp_path)) == about, change
        np.testing.assert_array_equal(others(frame, sums[0]), expected, err_msg=change)


@settings(max_examples=25, derandomize=True)
@given(
    rows=st.lists(
        st.tuples(st.integers(-300, 300), st.floats(0, 1e9)), unique_by=lambda row: row[0]
    )
)
def test_no_rows_of_one_client_change_what_others_send(
    rows: list[tuple[int, float]], sums: list[Rows], tmp_path: Path
) -> None:
    plain = cases("day")
    sums.clear()
    about = un_noised(trained(plain, "trend", "day", tmp_path))
    own = pl.DataFrame(
        {
            "date": [START + timedelta(days=day) for day, _ in rows],
            "region": [HOSTILE] * len(rows),
            "cases": [count for _, count in rows],
        },
        schema=plain.schema,
    )
    frame = pl.concat([plain.filter(pl.col("region") != HOSTILE), own])
    assert un_noised(trained(frame, "trend", "day", tmp_path)) == about
    here = given_days(plain, "day")
    present = own.filter(pl.col("date").is_between(*here)).height > 0
    if not present:
        frame = frame.filter(pl.col("region") != HOSTILE)
    np.testing.assert_array_equal(others(frame, sums[1]), others(plain, sums[0]))


def test_a_client_without_rows_sends_zero(sums: list[Rows], tmp_path: Path) -> None:
    plain = cases("day")
    trained(plain.filter(pl.col("region") != HOSTILE), "trend", "day", tmp_path)
    assert len(sums[0]) == len(REGIONS) - 1


def write(folder: Path, frame: pl.DataFrame) -> tuple[Path, Path]:
    data, listed = folder / "cases.csv", folder / "regions.csv"
    frame.write_csv(data)
    pl.DataFrame({"region": REGIONS}).write_csv(listed)
    return data, listed


def run(folder: Path, data: Path, *options: str | Path) -> Release:
    ledger, out = folder / "budget.ledger", folder / "week.model"
    ledger.unlink(missing_ok=True)
    Ledger.create(ledger, Cap(50.0, 1e-5, "pld"))
    words = ["train", "--data", data, "--learner", "trend", "--epsilon", "1", "--ledger", ledger]
    done = CliRunner().invoke(app, [*map(str, (*words, "--out", out, *options))])
    if done.exception is not None:
        raise done.exception
    return read_release(out)


@pytest.mark.parametrize("step", ["day", "week"])
def test_the_command_takes_nothing_shared_from_rows(
    step: str, sums: list[Rows], tmp_path: Path
) -> None:
    plain = cases(step)
    first, last = given_days(plain, step)
    options = ("--from", str(first), "--to", str(last), "--cadence", step)
    data, listed = write(tmp_path, plain)
    about = un_noised(run(tmp_path, data, "--regions", listed, *options))
    for change in CHANGES:
        frame = changed(plain, change, step)
        write(tmp_path, frame)
        assert un_noised(run(tmp_path, data, "--regions", listed, *options)) == about, change
        np.testing.assert_array_equal(others(frame, sums[-1]), others(plain, sums[0]))


OWN = pl.col("region") == HOSTILE
WHOLE = pl.col("cases").round().cast(pl.Int64)
Laid = Callable[[pl.DataFrame], pl.DataFrame]


def _across(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.pivot("region", index="date", values="cases").sort("date")


def _days_across(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.sort("date").pivot("date", index="region", values="cases")


def _two_rows(frame: pl.DataFrame) -> pl.DataFrame:
    return pl.concat([frame, frame]).sort("region", "date")


def _running(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.sort("date").with_columns(pl.col("cases").cum_sum().over("region"))


def _with_cell(day: int, cell: str) -> Laid:
    """One cell of the hostile client has this text."""
    here = OWN & (pl.col("date") == START + timedelta(days=day))
    return lambda frame: frame.with_columns(
        cases=pl.when(here).then(pl.lit(cell)).otherwise(WHOLE.cast(pl.String))
    )


def _kinds(own: str) -> Laid:
    """A column of kinds, in which one client may have another word than the others."""
    return lambda frame: frame.with_columns(
        sex=pl.when(OWN).then(pl.lit(own)).otherwise(pl.lit("total"))
    )


def _same(frame: pl.DataFrame) -> pl.DataFrame:
    return frame


WAYS: dict[str, tuple[tuple[str, ...], Laid, Laid | None]] = {
    "doubled": (
        ("--duplicates", "sum"),
        _two_rows,
        lambda f: pl.concat([_two_rows(f), f.filter(OWN)]),
    ),
    "again": (("--duplicates", "drop"), _two_rows, _same),
    "corrected": (("--duplicates", "last"), _two_rows, pl.DataFrame.reverse),
    "kinds": (("--duplicates", "sum", "--totals", "drop"), _kinds("total"), _kinds("m")),
    "totals": (("--totals", "keep"), _same, None),
    "accumulated": (("--counts", "cumulative"), _running, None),
    "of the year": (("--counts", "cumulative-yearly"), _running, None),
    "spread": (("--negatives", "spread"), _with_cell(9, "-3"), _with_cell(40, "-90000")),
    "zeroed": (("--negatives", "zero"), _with_cell(9, "-3"), _with_cell(40, "-90000")),
    "words": (("--missing", "NA"), _with_cell(9, "NA"), _same),
    "hidden": (("--below", "2.5"), _with_cell(9, "<5"), _with_cell(40, "<900")),
    "decimal": (("--decimal", ","), _with_cell(9, "1,5"), _same),
    "thousands": (("--thousands", "."), _with_cell(9, "1.500"), _with_cell(9, "9.000.000")),
    "until": (("--until", "2020-11-25"), _same, None),
    "regions across": (("--layout", "regions-across"), _across, None),
    "days across": (("--layout", "days-across"), _days_across, None),
    "only": (("--only", "sex=total"), _kinds("total"), _kinds("m")),
    "ids": (("--id-width", "5"), _same, None),
    "inhabitants": (("--population-from", "people.csv"), _same, None),
    "delimiter": (("--delimiter", ",", "--encoding", "utf-8"), _same, None),
    "format": (("--date-format", "%Y-%m-%d"), _same, None),
}
"""Options of reading, how the file looks then, and the file after one more change of one client."""
CELLS = ("kinds", "spread", "words", "hidden", "decimal", "thousands")
"""Those in which a cell of one client makes a column of numbers one of texts."""


@pytest.mark.parametrize(
    ("way", "excel"), [(way, False) for way in WAYS] + [(way, True) for way in CELLS]
)
def test_no_way_of_reading_lets_one_client_change_what_others_send(
    way: str, excel: bool, sums: list[Rows], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file is refused, and nothing charged, or all other clients' vectors stay the same."""
    options, laid, spoiled = WAYS[way]
    monkeypatch.chdir(tmp_path)
    unrounded = cases("day")
    plain = unrounded.with_columns(WHOLE)
    first, last = given_days(plain, "day")
    people = pl.DataFrame({"region": REGIONS, "population": [1000] * len(REGIONS)})
    people.write_csv(tmp_path / "people.csv")
    days = ("--from", str(first), "--to", str(last))

    def vectors(frame: pl.DataFrame) -> dict[str, Any] | None:
        data, listed = write(tmp_path, frame)
        if excel:
            data = tmp_path / "cases.xlsx"
            _write_excel(frame, data)
        sums.clear()
        try:
            release = run(tmp_path, data, "--regions", listed, *days, *options)
        except EpifedError:
            assert Ledger(tmp_path / "budget.ledger").book().runs == {}
            return None
        rows = sums[0] if len(sums[0]) == len(REGIONS) else np.insert(sums[0], 3, 0.0, axis=0)
        return un_noised(release) | {"others": np.delete(rows, 3, axis=0).tolist()}

    expected = vectors(laid(plain))
    assert expected is not None
    frames = [laid(changed(unrounded, change, "day").with_columns(WHOLE)) for change in CHANGES[:2]]
    for frame in (*frames, *([spoiled(plain)] if spoiled else [])):
        assert vectors(frame) in (None, expected)


def _write_excel(frame: pl.DataFrame, path: Path) -> None:
    """A sheet in which a number is a number, whatever the other cells of its column are."""
    xlsxwriter = pytest.importorskip("xlsxwriter")
    book = xlsxwriter.Workbook(path)
    sheet = book.add_worksheet()
    for place, row in enumerate((frame.columns, *frame.iter_rows())):
        for column, cell in enumerate(row):
            count = frame.columns[column] == "cases" and place > 0 and str(cell).isdigit()
            sheet.write(place, column, int(cell) if count else str(cell))
    book.close()


def test_rows_that_take_their_day_from_the_row_above_are_refused(
    sums: list[Rows], tmp_path: Path
) -> None:
    """The day of a merged cell may stand in one client's rows alone."""
    plain = cases("day").sort("date", "region")
    first, last = given_days(plain, "day")
    day = pl.when(pl.col("region") == REGIONS[0]).then(pl.col("date").cast(pl.String))
    data, listed = write(tmp_path, plain.with_columns(date=day))
    with pytest.raises(EpifedError, match="take their region or day from the row above"):
        run(tmp_path, data, "--regions", listed, "--from", str(first), "--to", str(last),
            "--fill-down")  # fmt: skip
    assert not sums


def test_no_counts_decide_that_another_region_is_dropped_as_a_sum(
    sums: list[Rows], tmp_path: Path
) -> None:
    """With --totals drop, a region whose counts are the sum of others' is left out."""
    first, last = given_days(cases("day"), "day")
    whole = pl.col("cases").round()
    plain = cases("day").with_columns(whole).pivot("region", index="date", values="cases")
    total = pl.sum_horizontal("00001", "00002", HOSTILE) + 50
    plain = plain.with_columns(total.alias("00004"))
    options = ("--from", str(first), "--to", str(last), "--totals", "drop")
    for hostile, dropped in ((pl.col(HOSTILE), False), (pl.col(HOSTILE) + 50, True)):
        wide = plain.with_columns(hostile.alias(HOSTILE))
        data, listed = write(tmp_path, wide.unpivot(REGIONS, index="date").rename(
            {"variable": "region", "value": "cases"}))  # fmt: skip
        if not dropped:
            run(tmp_path, data, "--regions", listed, *options)
            assert len(sums[0]) == len(REGIONS)
            continue
        with pytest.raises(EpifedError, match="found region 00004, which is in the list and was"):
            run(tmp_path, data, "--regions", listed, *options)
        pl.DataFrame({"region": [name for name in REGIONS if name != "00004"]}).write_csv(listed)
        run(tmp_path, data, "--regions", listed, *options)  # a total, as the list says
    assert len(sums) == 2


def test_a_region_of_a_line_list_counts_by_its_own_cases_alone(
    sums: list[Rows], tmp_path: Path
) -> None:
    first, last = given_days(cases("day"), "day")
    others_days = {name: [first - timedelta(days=3)] for name in REGIONS if name != HOSTILE}
    options = ("--from", str(first), "--to", str(last), "--line-list")
    for day in (first - timedelta(days=2), first + timedelta(days=20)):
        rows = [
            (day, name) for name, days in (others_days | {HOSTILE: [day]}).items() for day in days
        ]
        frame = pl.DataFrame(rows, schema=["date", "region"], orient="row")
        data, listed = write(tmp_path, frame)
        run(tmp_path, data, "--regions", listed, *options)
    assert [len(rows) for rows in sums] == [0, 1]


def test_weeks_summed_up_to_the_last_row_of_all_regions_are_refused() -> None:
    """One region's row a day ahead would move all regions' weeks by a day."""
    panel = load_panel(changed(cases("day"), "row ahead", "day"), cadence="day").weekly()
    ReleasableData.of(panel, panel.start, panel.end, REGIONS, "week")
    with pytest.raises(EpifedError, match=f"expected {panel.end} or another day by which a week"):
        ReleasableData.of(panel, panel.start, panel.end + timedelta(days=6), REGIONS, "week")


def test_vintages_of_weeks_are_refused_for_a_release() -> None:
    vintages: Any = object()
    panel = replace(load_panel(cases("week"), cadence="week"), revisions=vintages)
    with pytest.raises(EpifedError, match="found data vintages of all regions together"):
        ReleasableData.of(panel, panel.start, panel.end, REGIONS, "week")


DAYS = ("--from", "2020-10-05", "--to", "2020-11-20")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ((), "found no first and last day"),
        (DAYS[2:], "add --from and --to"),
        (DAYS[:2], "add --from and --to"),
        (DAYS, "found no public list of regions"),
        (("--from", "2020-10-05", "--to", "2999-01-01"), "expected a day before today"),
    ],
)
def test_what_is_shared_must_be_given(
    options: tuple[str, ...], sentence: str, tmp_path: Path
) -> None:
    data, _ = write(tmp_path, cases("day"))
    with pytest.raises(EpifedError, match=sentence):
        run(tmp_path, data, *options)
    assert not (tmp_path / "week.model").exists()
    assert Ledger(tmp_path / "budget.ledger").book().runs == {}


def test_counts_of_weeks_must_be_announced(tmp_path: Path) -> None:
    data, listed = write(tmp_path, cases("week"))
    with pytest.raises(EpifedError, match="add --cadence week"):
        run(tmp_path, data, "--regions", listed, *DAYS)


def test_a_region_outside_the_list_is_refused(tmp_path: Path) -> None:
    data, listed = write(tmp_path, cases("day"))
    pl.DataFrame({"region": REGIONS[1:]}).write_csv(listed)
    with pytest.raises(EpifedError, match="region 00000, which is not in the list of 5 regions"):
        run(tmp_path, data, "--regions", listed, *DAYS)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.txt", "00000\n00001\n"),
        ("a.txt", "region\n00000\n00001\n"),
        ("a.csv", "region,population\n00000,10\n00001,20\n"),
    ],
)
def test_a_list_of_regions_is_read(name: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)
    listed = PublicRegions.of(path)
    assert listed.regions == ("00000", "00001")
    assert listed.facts.population == ({"00000": 10, "00001": 20} if "," in text else None)


def test_public_facts_come_from_the_list_alone(tmp_path: Path) -> None:
    people = pl.DataFrame({"region": REGIONS, "population": [100] * 6})
    frame = cases("day").join(people, on="region")
    panel = PublicRegions.of(list(REGIONS)).lay_out(load_panel(frame))
    assert panel.population is None
    with_people = PublicRegions.of(people).lay_out(load_panel(frame))
    assert with_people.population is not None
    assert list(with_people.population) == [100] * 6


def test_most_regions_without_reports_at_the_end_are_noted(tmp_path: Path) -> None:
    data, listed = write(tmp_path, cases("day"))
    ledger = tmp_path / "budget.ledger"
    Ledger.create(ledger, Cap(50.0, 1e-5, "pld"))
    words = ["train", "--data", data, "--learner", "trend", "--epsilon", "1", "--ledger", ledger]
    late = ["--regions", listed, "--from", "2020-10-05", "--to", "2021-03-01"]
    done = CliRunner().invoke(app, [*map(str, (*words, "--out", tmp_path / "m", *late))])
    assert "6 of 6 regions have no report in the last week" in " ".join(done.stderr.split())


def played(frame: pl.DataFrame, learner: str, step: str, folder: Path) -> Release:
    """The release of a scheduled week at two sites, the hostile client at the first."""
    folder.mkdir()
    chosen = Settings.for_learner(learner, len(REGIONS), epsilon=1.0, step=step)
    chosen = chosen.but(**SMALL.get(learner, {}))
    first, _ = given_days(cases(step), step)
    last = START_OF[step] + timedelta(days=(STEPS - 1) * (7 if step == "week" else 1))
    when = Schedule(first=last + timedelta(days=1), days=(last - first).days + 1)
    when = when.model_copy(update={"weekday": get_args(Weekday)[when.first.weekday()]})
    hosted = tuple(Site(name=f"s{i}", clients=REGIONS[i::2]) for i in (1, 0))
    roster = Federation(server=Server(host="localhost"), sites=hosted)
    ledger = Ledger.create(folder / "budget.ledger", Cap(50.0, 1e-5, "pld"))
    for site in hosted:
        kit = folder / site.name
        kit.mkdir()
        (kit / "site.toml").write_text(Terms(epsilon_per_release=9.0).to_toml())
        (kit / "clients.json").write_text(json.dumps(site.clients))
        frame.filter(pl.col("region").is_in(site.clients)).write_csv(kit / "cases.csv")
        Source(str(kit / "cases.csv"), None, {}).write(kit)
    made: list[Release] = []

    def answer(tasks: dict[str, Task]) -> tuple[dict[str, Parts], list[Problem]]:
        answers = {}
        for name, task in tasks.items():
            answers[name], error = SiteWork(folder / name).answer(pack_task(task))
            assert error is None
        return answers, []

    def run_training(
        desk: object, roster: Federation, order: Order, watch: object, **_: Any
    ) -> Any:
        training = ServedTraining(folder / "training", roster, order, ledger)
        while not training.finished:
            lines: list[dict[str, Any]] = []
            training.play(SitesPost(answer), lines.append)
            assert lines[0]["problems"] == []
        made.append(training.finish())
        return {"finished": True, "paid": order.settings.rounds}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jobs, "run_training", run_training)
        desk: Any = None
        running = jobs.Trainings(desk, roster, when, chosen, ledger, print)
        running.train(when.planned()[0])
    assert (made[0].first_day, made[0].last_day) == (first, last)
    return made[0]


@pytest.mark.parametrize(("learner", "step"), CASES)
def test_one_client_s_rows_change_nothing_that_others_send_from_sites_each_week(
    learner: str, step: str, sums: list[Rows], tmp_path: Path
) -> None:
    """Schedule, server, tasks and sites: the days are the calendar's, the list is the roster's."""
    plain = cases(step)
    about = un_noised(played(plain, learner, step, tmp_path / "plain"))
    everybody = [row for row, name in enumerate(sorted(REGIONS)) if name != HOSTILE]
    expected = sums[0][everybody]
    assert expected.any(axis=1).sum() >= 4
    for change in CHANGES:
        sums.clear()
        frame = changed(plain, change, step)
        found = un_noised(played(frame, learner, step, tmp_path / change))
        assert found == about, change
        np.testing.assert_array_equal(sums[0][everybody], expected, err_msg=change)


@pytest.mark.parametrize("pair", [("01001", "1001"), ("Harz", "harz"), ("a", " a")])
def test_one_client_is_not_listed_under_two_ids(pair: tuple[str, str]) -> None:
    with pytest.raises(EpifedError, match=r"^regions: .*expected each"):
        PublicRegions.of(list(pair))
