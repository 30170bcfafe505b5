"""The grid: splits × periods × budgets × runs, with baselines, in parallel processes or on Dask.

Each task is computed from its name alone, stored as one file, and never computed twice. So the
tables do not depend on the order, the number of workers or interruptions. Results of other code
are not reused.
"""

import hashlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import polars as pl
from pydantic import BaseModel, ConfigDict, Field

import epifed
from epifed.data.panel import CasePanel
from epifed.data.readers import read_communities
from epifed.errors import EpifedError
from epifed.evaluation.metrics import BASELINES, CLIPPED, baseline, random_baselines, scores
from epifed.evaluation.results_folder import (
    KEYS,
    GridRecord,
    Results,
    WorkRecord,
    gather,
    method_of,
    refuse_other,
    write_grid,
)
from epifed.files import Part, load_part, save_part
from epifed.learners.base import Windows, make_learner, slide
from epifed.privacy.plan import PrivacyPlan
from epifed.settings import EPSILONS, PERIODS, Settings, SplitName, seed_sequence
from epifed.training.loop import Clients, make_clients, train


@cache
def code_digest(folder: Path = Path(epifed.__file__).parent) -> str:
    """A hash of all Python files of the package."""
    sha = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        content = path.read_bytes()
        sha.update(f"{path.relative_to(folder).as_posix()} {len(content)}\n".encode())
        sha.update(content)
    return sha.hexdigest()


PIECES = 4
"""Number of pieces into which the work of each of several workers is cut."""
WORKERS_COST = 5.0
"""Seconds that starting workers must save, judged by the time of the first of many tasks."""
CONNECT = 20
"""Seconds to wait for a scheduler and for its first worker."""


@contextmanager
def parallel(
    workers: int | None, scheduler: str | None, shared: Sequence[object] = ()
) -> Iterator[Callable[[Iterable[Any]], Iterator[Any]]]:
    """Run `joblib.delayed` calls in parallel and yield each result as it is finished, in any order.

    `shared` is data that many calls have among their arguments; a scheduler's workers get it once.
    Without a scheduler or `workers` the surrounding `joblib.parallel_config` applies, or all cores.
    """
    if scheduler is None:
        # Data are sent whole: a memory map would be read-only, which PyTorch does not accept.
        yield joblib.Parallel(
            n_jobs=workers or -1, return_as="generator_unordered", max_nbytes=None
        )
        return
    client = _connect(scheduler)
    try:
        with joblib.parallel_config("dask", client=client, scatter=list(shared)):
            backend, _ = joblib.parallel.get_active_backend()
            cores = backend.effective_n_jobs
            # With one worker joblib would compute everything here; others may still connect.
            backend.effective_n_jobs = lambda n_jobs: max(2, cores(n_jobs))
            yield joblib.Parallel(
                n_jobs=-1, return_as="generator_unordered", pre_dispatch="all", batch_size=1
            )
    finally:
        client.close()


def in_pieces(
    work: Callable[..., Any],
    shared: tuple[object, ...],
    todo: Sequence[Any],
    workers: int | None,
    scheduler: str | None,
) -> Iterator[Any]:
    """The results of `work(*shared, some of todo)`, piece by piece, the first computed here.

    Processes are started only if the time of the first task shows that they save time.
    """
    began = time.perf_counter()
    first, rest = todo[:1], todo[1:]
    if first:
        yield work(*shared, first)
    if not rest:
        return
    jobs = workers or joblib.cpu_count()
    saved = (time.perf_counter() - began) * len(rest) * (1 - 1 / jobs)
    if saved <= WORKERS_COST:
        jobs = 1
    # A scheduler's workers have the data already; local processes get them with each piece.
    size = 1 if scheduler or jobs == 1 else math.ceil(len(rest) / (PIECES * jobs))
    pieces = (rest[at : at + size] for at in range(0, len(rest), size))
    with parallel(jobs, scheduler, shared) as run:
        yield from run(joblib.delayed(work)(*shared, piece) for piece in pieces)


def _connect(scheduler: str) -> Any:
    """A client of the scheduler, which has at least one worker."""
    try:
        from distributed import Client  # noqa: PLC0415
    except ImportError as error:
        raise EpifedError(
            f"--scheduler: {error}; expected Dask ('pip install epifed[cluster]')"
        ) from None
    try:
        client = Client(scheduler, timeout=CONNECT)
    except (OSError, ValueError) as error:
        raise EpifedError(
            f"--scheduler: no answer from '{scheduler}' ({error}); expected a Dask scheduler, "
            "such as tcp://host:8786"
        ) from None
    try:
        client.wait_for_workers(1, timeout=CONNECT)
    except TimeoutError:
        client.close()
        raise EpifedError(
            f"--scheduler: found no worker of '{scheduler}' within {CONNECT} s; expected one at "
            "least ('dask worker')"
        ) from None
    return client


Progress = Callable[[int, int], None]


class Grid(BaseModel):
    """What an experiment compares, around one base setting.

    Parameters
    ----------
    settings : Settings
        The base; splits and budgets replace its own.
    splits : tuple of {"temporal", "shuffled"}
        How windows are split into training and test.
    periods : dict of (date, date)
        First and last day of each period, by its name.
    epsilons : tuple of float
        Budgets ε; infinity is the non-private federation.
    runs, baseline_runs : int
        Trainings of each cell, and runs of the baselines that have a seed.
    baselines : tuple of str
        Names of the baselines.
    resplit : bool
        Whether each run shuffles its windows anew.

    Raises
    ------
    ValidationError
        If a field has another type, or `runs` is below 1.

    Examples
    --------
    >>> Grid(settings=Settings.paper(), epsilons=(1.0,), runs=2).runs
    2
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    settings: Settings
    splits: tuple[SplitName, ...] = ("temporal", "shuffled")
    periods: dict[str, tuple[date, date]] = Field(default_factory=lambda: dict(PERIODS))
    epsilons: tuple[float, ...] = EPSILONS
    runs: int = Field(15, ge=1)
    baselines: tuple[str, ...] = tuple(BASELINES)
    baseline_runs: int = Field(3, ge=1, description="runs of the baselines that have a seed")
    resplit: bool = Field(False, description="each run shuffles its windows anew")


@dataclass(frozen=True)
class GridPoint:
    """One point of the grid: one training, or one run of a baseline (then without ε)."""

    split: SplitName
    period: str
    method: str
    epsilon: float | None
    run: int

    @property
    def file_name(self) -> str:
        """The name of the file with its result."""
        budget = "" if self.epsilon is None else f"_{self.epsilon!r}"
        return f"{self.split}_{self.period}_{self.method.replace(' ', '-')}{budget}_{self.run}.npz"

    def keys(self) -> dict[str, object]:
        """The task as columns of a table."""
        return {key: getattr(self, key) for key in KEYS}

    def settings(self, base: Settings) -> Settings:
        """The base settings with this task's split and budget.

        A private training is always Poisson-sampled; the base's sampler is for ε = ∞.
        """
        if self.epsilon is None:
            return base.but(split=self.split)
        sampler = "poisson" if np.isfinite(self.epsilon) else base.sampler
        return base.but(split=self.split, epsilon=self.epsilon, sampler=sampler)


def tasks(grid: Grid) -> Iterator[GridPoint]:
    """All tasks of a grid: for each split and period the baselines, then run by run."""
    seeded = random_baselines(grid.settings)
    for split in grid.splits:
        for period in grid.periods:
            for method in grid.baselines:
                anew = grid.runs if method == CLIPPED or _anew(grid, split) else 1
                for run in range(grid.baseline_runs if method in seeded else anew):
                    yield GridPoint(split, period, method, None, run)
            for run in range(grid.runs):
                for epsilon in grid.epsilons:
                    yield GridPoint(split, period, method_of(grid.settings), epsilon, run)


def run_grid(
    panel: CasePanel,
    grid: Grid,
    out: Path | str,
    *,
    workers: int | None = None,
    scheduler: str | None = None,
    progress: Progress | None = None,
) -> Results:
    """Compute what is missing of a grid and write its tables to `out`.

    Parameters
    ----------
    panel : CasePanel
        New cases [regions, days].
    grid : Grid
        What to compare.
    out : path
        The results folder. The same call resumes after an interruption.
    workers : int, optional
        Worker processes; none: all cores. The numbers do not depend on it.
    scheduler : str, optional
        The address of a Dask scheduler whose workers compute.
    progress : callable, optional
        `progress(done, total)` is called first with what an earlier run left, then at each task's
        end.

    Returns
    -------
    Results
        The tables, as they stand in `out`.

    Raises
    ------
    EpifedError
        If `out` has other results, or the panel lacks a period's days.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from epifed.simulate import SimulationSettings, simulate
    >>> panel = simulate(SimulationSettings(counties=12, communities=24, seed=1)).county_panel
    >>> settings = Settings.for_learner("one-shot", 12, clients_per_round=12)
    >>> grid = Grid(
    ...     settings=settings, splits=("temporal",), periods={"all": (panel.start, panel.end)},
    ...     epsilons=(1.0,), runs=1, baselines=("persistence",),
    ... )
    >>> with TemporaryDirectory() as folder:
    ...     sorted(run_grid(panel, grid, folder, workers=1).runs["method"].unique())
    ['one-shot', 'persistence']
    """
    began, out = time.monotonic(), Path(out)
    refuse_other(out, "grid")
    clients = {
        (split, period, run): _clients(panel, grid, split, period, run)
        for split in grid.splits
        for period in grid.periods
        for run in range(max(grid.runs, grid.baseline_runs) if _anew(grid, split) else 1)
    }

    def of(task: GridPoint) -> Clients:
        run = task.run if _anew(grid, task.split) else 0
        return clients[task.split, task.period, run]

    folders = {p: out / "parts" / _fingerprint(panel, grid, p) for p in grid.periods}
    todo = {task: folders[task.period] / task.file_name for task in tasks(grid)}
    missing = [task for task, path in todo.items() if not path.exists()]
    missing.sort(key=lambda t: t.epsilon is None and t.method != CLIPPED)  # the long ones first
    done = len(todo) - len(missing)
    if progress:
        progress(done, len(todo))
    _fill_calibration_cache(grid, {len(c) for c in clients.values()})
    jobs = (
        joblib.delayed(_compute)(task, task.settings(grid.settings), of(task)) for task in missing
    )
    if missing:
        with parallel(workers, scheduler, tuple(clients.values())) as run:
            for task, part in run(jobs):
                save_part(todo[task], part)
                done += 1
                if progress:
                    progress(done, len(todo))
    loaded = [(task, load_part(path)) for task, path in todo.items()]
    results = gather([(t.keys(), part, of(t)) for t, part in loaded])
    work = WorkRecord(
        tasks=len(todo),
        tasks_of_this_call=len(missing),
        seconds_of_all_tasks=round(sum(float(part["seconds"]) for _, part in loaded), 1),
        seconds_of_this_call=round(time.monotonic() - began, 1),
    )
    compared = GridRecord.model_validate(grid.model_dump(exclude={"settings"}))
    write_grid(out, panel, grid.settings, results, compared, work)
    return results


def _anew(grid: Grid, split: SplitName) -> bool:
    """Whether each run has its own windows."""
    return grid.resplit and split == "shuffled"


def _clients(panel: CasePanel, grid: Grid, split: SplitName, period: str, run: int) -> Clients:
    """The clients of a run; all budgets of a split have the same windows, and usually all runs."""
    name = ("split", period, run) if _anew(grid, split) else ("split", period)
    shuffle = np.random.default_rng(seed_sequence(grid.settings.seed, *name))
    return make_clients(panel, grid.settings.but(split=split), grid.periods[period], shuffle)


def _fingerprint(panel: CasePanel, grid: Grid, period: str) -> str:
    """A hash of what parts depend on; grids that differ only in their tasks share parts."""
    base = grid.settings.but(epsilon=1.0, split="temporal", sampler="poisson")
    shuffled = "anew" if grid.resplit else ""
    chosen = f"{base.to_toml()}{shuffled}{grid.settings.sampler}{grid.periods[period]}"
    text = f"{code_digest()}{chosen}{panel.digest()}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _fill_calibration_cache(grid: Grid, sizes: set[int]) -> None:
    """Compute calibrations once, before all workers need the same ones."""
    base = grid.settings.but(sampler="poisson")
    for clients in sizes:
        for epsilon in grid.epsilons:
            PrivacyPlan.of(base.but(epsilon=epsilon), clients).price()


def _compute(task: GridPoint, settings: Settings, clients: Clients) -> tuple[GridPoint, Part]:
    began = time.monotonic()
    seeds = seed_sequence(settings.seed, *(str(value) for value in task.keys().values()))
    if task.epsilon is None:
        part: Part = {"prediction": baseline(task.method, settings)(clients, settings, seeds)}
    else:
        part = _train(settings, clients, seeds)
    part["seconds"] = np.array(time.monotonic() - began)
    return task, part


def _train(settings: Settings, clients: Clients, seeds: np.random.SeedSequence) -> Part:
    learner = make_learner(settings)
    curve: list[tuple[float, float, float, float]] = []

    def scored(windows: Windows, state: Any) -> dict[str, float]:
        prediction = learner.predict(state, windows.inputs)
        return scores(windows.targets.astype(np.float64), prediction)

    def watch(i: int, state: Any) -> None:
        if i % settings.evaluate_every == 0 or i == settings.rounds:
            test = scored(clients.test, state)
            curve.append((i, scored(clients.train, state)["mse"], test["mse"], test["mape"]))

    training = train(clients.view, settings, seeds=seeds, learner=learner, watch=watch)
    return {
        "prediction": training.predict(clients.test.inputs),
        "convergence": np.array(curve),
        "noise_multiplier": np.array(training.calibration.noise_multiplier),
        "epsilon_spent": np.array(training.calibration.epsilon_spent),
        "mean_cohort": np.array(np.mean(training.cohort_sizes)),
    }


def disaggregate(
    counties: CasePanel, communities: pl.DataFrame, rng: np.random.Generator
) -> CasePanel:
    """Draw each county's daily cases into its communities, by share of population.

    As in the paper: every case is assigned to a community with probability community population /
    county population; days without a case are zero. Communities add up to their county on every
    day. Infection chains are lost, as the paper warns. `communities` has the columns community,
    name, county and population.
    """
    if (counties.counts != np.round(counties.counts)).any():
        raise EpifedError(
            f"{counties.source}: found counts that are not whole numbers; expected daily cases, "
            "not averages, to draw into communities"
        )
    places = communities.sort("county", "community")
    unknown = set(places["county"].unique()) ^ set(counties.regions)
    if unknown:
        raise EpifedError(
            f"{counties.source}: county {min(unknown)} has cases or communities but not both; "
            "expected communities for every county"
        )
    row_of = {county: row for row, county in enumerate(counties.regions)}
    within = np.array([row_of[county] for county in places["county"]])
    counts = np.zeros((len(places), counties.counts.shape[1]))
    of_county = {key[0]: rows for key, rows in places.with_row_index().group_by("county")}
    for k, county in enumerate(counties.regions):
        rows = of_county[county]
        people = rows["population"].to_numpy().astype(np.float64)
        drawn = rng.multinomial(counties.counts[k].astype(np.int64), people / people.sum())
        counts[rows["index"].to_numpy()] = drawn.T
    return replace(
        counties,
        counts=counts,
        regions=tuple(places["community"]),
        names=tuple(places["name"]),
        parents=tuple(places["county"]),
        population=places["population"].to_numpy(),
        states=tuple(counties.states[row] for row in within) if counties.states else (),
        calendars=tuple(counties.calendars[row] for row in within) if counties.calendars else (),
        positions=None if counties.positions is None else counties.positions[within],
        reported=None,
        boundaries=None,
        notes=(*counties.notes, "communities drawn at random by population: no infection chains"),
    )


def drawn_communities(counties: CasePanel, directory: Path, seed: int = 0) -> CasePanel:
    """The counties of a prepared directory, drawn into the communities of its table."""
    rng = np.random.default_rng(seed_sequence(seed, "communities"))
    return disaggregate(counties, read_communities(directory), rng)


def zero_entries(panel: CasePanel, settings: Settings, period: tuple[date, date]) -> pl.DataFrame:
    """The number of zeros among a sample's H inputs and its target (the paper's Fig. 3).

    One row for each number of zeros from 0 to H + 1: the samples with so many, their share, and
    the quartiles of their populations.
    """
    windows = slide(panel, settings, period)
    if panel.population is None:
        raise EpifedError(f"{panel.source}: found no population; expected one for each region")
    zeros = (windows.inputs == 0).sum(axis=2) + (windows.targets == 0)
    samples = pl.DataFrame(
        {
            "zeros": zeros.ravel().astype(np.int64),
            "population": np.repeat(panel.population, zeros.shape[1]),
        }
    )
    table = samples.group_by("zeros").agg(
        pl.len().cast(pl.Int64).alias("samples"),
        (pl.len() / len(samples)).alias("share"),
        *(
            pl.col("population").quantile(q, "linear").alias(f"population_{name}")
            for name, q in (("q1", 0.25), ("median", 0.5), ("q3", 0.75))
        ),
    )
    numbers = pl.DataFrame({"zeros": np.arange(settings.window + 2)})
    return numbers.join(table, on="zeros", how="left").with_columns(
        pl.col("samples", "share").fill_null(0)
    )
