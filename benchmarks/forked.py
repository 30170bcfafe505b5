"""Processor time of a rehearsal whose parties are forked with all imports done, or started anew.

    python benchmarks/forked.py [--sites 3] [--trainings 4] [--keep]

The same small federation both ways, in turn, on real processes; counted is the processor time of
all parties and their workers, from the start of the first to the end of the last training.
"""

import argparse
import tempfile
import time
from pathlib import Path

from epifed.federation.server import Order
from epifed.rehearsal.local import LocalFederation, rehearsal_federation, simulated_panel
from epifed.settings import Settings
from kept import keep, table


def measured(sites: int, trainings: int, preloaded: tuple[str, ...] | None) -> tuple[float, float]:
    """Processor seconds until all parties are connected, and then of each training."""
    panel = simulated_panel(4 * sites, seed=1)
    roster = rehearsal_federation(panel, sites, rounds_per_job=1)
    settings = Settings.of(learner="trend", rounds=1, clients_per_round=sites, epsilon=2.0)
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalFederation.make(Path(folder), roster, panel, preloaded=preloaded) as local,
    ):
        local.start()
        started = _used(local)
        for number in range(trainings):
            local.train(Order.of(f"number-{number}", settings, panel.start, panel.end, seeded=True))
        time.sleep(5)  # what FLARE tidies up after a job is a part of it
        return started, (_used(local) - started) / trainings


def _used(local: LocalFederation) -> float:
    return sum(map(local.processor_seconds, local.processes))


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--sites", type=int, default=3)
    options.add_argument("--trainings", type=int, default=4)
    options.add_argument("--keep", action="store_true")
    given = options.parse_args()
    found = {
        name: measured(given.sites, given.trainings, preloaded)
        for name, preloaded in (("started anew", None), ("forked", ()))
    }
    anew, forked = found["started anew"], found["forked"]
    found["ratio"] = anew[0] / forked[0], anew[1] / forked[1]
    for name, (start, training) in found.items():
        print(f"{name:>12}: start {start:.1f}, a training {training:.1f}")
    if given.keep:
        columns = ["parties", "processor seconds to start", "of a training"]
        forms = ["{}", "{:.1f}", "{:.1f}"]
        rows = [[name, *values] for name, values in found.items()]
        command = f"python benchmarks/forked.py --sites {given.sites} --trainings {given.trainings}"
        keep("federation", f"{command} --keep", {"forked": table(columns, forms, rows)})


if __name__ == "__main__":
    main()
