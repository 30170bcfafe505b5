"""Where the tasks of an experiment are computed: in processes here, or by a Dask scheduler."""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import joblib

from epifed.errors import EpifedError

PIECES = 4
"""Into how many pieces the work of each of several workers is cut."""
WORKERS_COST = 5.0
"""Seconds that workers must save to be started, by how long the first of many tasks takes."""
CONNECT = 20
"""Seconds to wait for a scheduler and for its first worker."""


@contextmanager
def parallel(
    workers: int | None, scheduler: str | None, shared: Sequence[object] = ()
) -> Iterator[Callable[[Iterable[Any]], Iterator[Any]]]:
    """What runs `joblib.delayed` calls and yields each result as it is finished, in any order.

    `shared` is data that many calls have among their arguments: a scheduler's workers get it once.
    Without a scheduler or `workers` the surrounding `joblib.parallel_config` decides, or all cores.
    """
    if scheduler is None:
        # Data are sent whole: a memory map would be read-only, which PyTorch does not take.
        yield joblib.Parallel(
            n_jobs=workers or -1, return_as="generator_unordered", max_nbytes=None
        )
        return
    client = _connect(scheduler)
    try:
        with joblib.parallel_config("dask", client=client, scatter=list(shared)):
            backend, _ = joblib.parallel.get_active_backend()
            cores = backend.effective_n_jobs
            # With one worker joblib would compute everything here; others may still come.
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
    """What `work(*shared, some of todo)` returns, piece by piece, the first done here.

    Processes are started only if the first task says that they pay for themselves.
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
    # A scheduler's workers have the data already; with processes here they go with each piece.
    size = 1 if scheduler or jobs == 1 else math.ceil(len(rest) / (PIECES * jobs))
    pieces = (rest[at : at + size] for at in range(0, len(rest), size))
    with parallel(jobs, scheduler, shared) as run:
        yield from run(joblib.delayed(work)(*shared, piece) for piece in pieces)


def _connect(scheduler: str) -> Any:
    """A client of the scheduler, which has a worker at least."""
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
            f"--scheduler: found nobody at '{scheduler}' ({error}); expected a Dask scheduler, "
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
