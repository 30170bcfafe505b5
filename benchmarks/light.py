"""What a site costs: the start of a command, a site's memory. With --run: the first `epifed run`.

    python benchmarks/light.py
    python benchmarks/light.py --run

The federation has two sites with real certificates and the learner `trend`: one release of two
numbers a client. A site is FLARE's client and the worker that it starts for a training. Run in an
environment without PyTorch it measures what a county office needs.
"""

import argparse
import importlib.util
import json
import os
import pty
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from _clock import machine
from epifed.federation.server import Order
from epifed.rehearsal.local import LocalFederation, rehearsal_federation
from epifed.settings import Settings
from federation import Scale, invented

CLIENTS = 24


def first_run() -> dict[str, float]:
    """`epifed run` in a terminal: its seconds, and those until something is shown."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        process, terminal = pty.fork()
        if process == 0:
            code = "from epifed.cli import main; main()"
            os.execl(sys.executable, "epifed", "-c", code, "run", "--out", folder)
        first = 0.0
        with suppress(OSError):  # the end of the terminal
            while os.read(terminal, 65536):
                first = first or time.perf_counter() - began
        os.waitpid(process, 0)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "first_sign_seconds": round(first, 1),
        "seconds": round(time.perf_counter() - began, 1),
        "user_seconds": round(after.ru_utime - before.ru_utime, 1),
        "system_seconds": round(after.ru_stime - before.ru_stime, 1),
    }


def cpu(*arguments: str, times: int = 9) -> dict[str, float]:
    """Seconds on a core of a Python process, the least and the median."""
    found = []
    for _ in range(times):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return {"least": round(min(found), 3), "median": round(statistics.median(found), 3)}


def federation(learner: str) -> dict[str, Any]:
    """A training by two sites, and the first of them while it runs."""
    panel = invented(CLIENTS)
    settings = Settings.resolve(CLIENTS, {"learner": learner, "epsilon": 1.0})
    roster = rehearsal_federation(
        panel, 2, rounds_per_job=settings.rounds, min_sites=2, round_timeout=600
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalFederation.make(Path(folder), roster, panel) as local,
    ):
        local.start("server")
        began = time.perf_counter()
        local.start(*(site.name for site in roster.sites))
        started = time.perf_counter() - began
        order = Order.of("measured", settings, panel.start, panel.end, seeded=True)
        with Scale(local) as scale:
            began = time.perf_counter()
            local.train(order)
            trained = time.perf_counter() - began
    return {
        "learner": learner,
        "sites_start_seconds": round(started, 1),
        "training_seconds": round(trained, 1),
        "site_pss_mb": round(scale.most["site-1"]["pss"]),
        "site_rss_mb": round(scale.most["site-1"]["rss"]),
        "server_pss_mb": round(scale.most["server"]["pss"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--learner", default="trend")
    parser.add_argument("--run", action="store_true", help="time 'epifed run' alone")
    arguments = parser.parse_args()
    if arguments.run:
        print(json.dumps(first_run() | {"machine": machine()}, indent=2))
        return
    show_help = "import sys; from epifed.cli import main; sys.argv = ['epifed', '--help']; main()"
    measured = {
        "torch": importlib.util.find_spec("torch") is not None,
        "python_cpu": cpu("-c", "pass"),
        "import_cpu": cpu("-c", "import epifed"),
        "help_cpu": cpu("-c", show_help),
        **federation(arguments.learner),
        "machine": machine(),
    }
    print(json.dumps(measured, indent=2))


if __name__ == "__main__":
    main()
