"""What sealed reports cost: bytes, a site's and an aggregator's time, an aggregator's memory.

    python benchmarks/aggregators.py [SITES] [--keep]

A site splits, seals and signs; an aggregator unpacks the question of a round, checks the
signatures, opens all shares and adds the noise, and keeps the answer. CPU seconds; no network.
"""

import argparse
import json
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from _clock import Times, clocked, machine, median
from epifed.federation.aggregator import ROSTER, TERMS, AggregatorWork, own_keys
from epifed.federation.crypto import ReportKey
from epifed.federation.messages import (
    PartialSum,
    Report,
    RoundTerms,
    accept_partial,
    make_report,
    pack_question,
    pack_report,
)
from epifed.federation.secure_training import question_of
from epifed.federation.terms import Aggregator, Federation, Server, Site, Terms
from epifed.privacy.plan import PrivacyPlan
from epifed.settings import Settings
from kept import keep, table

NAMES = ("one", "other")
LENGTHS = (7, 11_777)
REPETITIONS = 5


def main(sites: int, folder: Path) -> list[dict[str, Any]]:
    """Print the machine, then a line for each length."""
    kits = {name: folder / name for name in NAMES}
    for kit in kits.values():
        kit.mkdir()
    public = {name: own_keys(kit).public for name, kit in kits.items()}
    keys = {f"site-{i}": ReportKey.make(folder / f"{i}.key") for i in range(sites)}
    enrolled = tuple(Site(name=n, clients=(n,), signs=key.public) for n, key in keys.items())
    adding = tuple(Aggregator(name=name) for name in NAMES)
    roster = Federation(server=Server(host="localhost"), sites=enrolled, aggregators=adding)
    for name, kit in kits.items():
        pins = {other: public[other].fingerprint for other in NAMES if other != name}
        terms = Terms(epsilon_per_release=1e6, epsilon_total=1e6, aggregators=pins)
        (kit / TERMS).write_text(terms.to_toml())
        (kit / ROSTER).write_text(roster.to_toml())
    print(json.dumps(machine()))
    rounds = REPETITIONS + 1
    settings = Settings.of(
        learner="trend", noise="aggregators", rounds=rounds, clients_per_round=sites, epsilon=1.0
    )
    plan = PrivacyPlan.of(settings, sites)
    found = []
    for length in LENGTHS:
        values = {
            "training": f"bench-{length}",
            "rounds": rounds,
            "settings": settings.to_toml(),
            "first_day": "2026-01-01",
            "last_day": "2026-02-01",
            "enrolled": sites,
            "noise_multiplier": plan.noise_multiplier,
            "randomness": "secure",
            "length": length,
            "aggregators": [(name, keys.text) for name, keys in public.items()],
        }
        found.append(measured(kits, keys, values))
        print(json.dumps(found[-1]), flush=True)
    return found


def as_table(found: list[dict[str, Any]]) -> dict[str, Any]:
    """What was measured, as the documentation has it."""
    heads = ["numbers", "bytes a report", "ms at a site", "seconds at each aggregator"]
    formats = ["{}", "{:,.0f}", "{:.1f}", "{:.2f}, {:.2f}", "{:.1f} MB", "{:.0f} MB"]
    rows = [
        [
            f"{one['numbers']:,}",
            one["bytes_a_report"],
            one["ms_at_a_site"],
            one["seconds_at_each_aggregator"],
            one["bytes_of_the_last_question"] / 1e6,
            one["peak_mb_of_this_process"],
        ]
        for one in found
    ]
    return table([*heads, "the last one's question", "peak of one process"], formats, rows)


def measured(
    kits: dict[str, Path], keys: dict[str, ReportKey], values: dict[str, Any]
) -> dict[str, Any]:
    """The costs of one length; the first round is left out, for it loads what later ones have."""
    length = values["length"]
    steps = np.random.default_rng(0).integers(-(2**20), 2**20, length)
    times: dict[str, list[Times]] = {"site": [], **{name: [] for name in NAMES}}
    size = 0
    for number in range(1, values["rounds"] + 1):
        terms = RoundTerms.of(values | {"round": number})
        reports: list[Report] = []
        times["site"].append(clocked(lambda: reports.extend(_sealed(terms, keys, steps)))())  # noqa: B023
        sums: list[PartialSum] = []
        for name, kit in kits.items():
            question = question_of(terms, name, tuple(reports), sums)
            packed, work, given = pack_question(question), AggregatorWork(kit), []
            times[name].append(clocked(lambda: given.append(work.answer(packed)[0]))())  # noqa: B023
            sums.append(accept_partial(given[0], question))
            size = len(packed["array"])
    site, *adding = (median(found[1:]).cpu for found in times.values())
    peak = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    return {
        "numbers": length,
        "reports": len(keys),
        "bytes_a_report": len(pack_report(terms, reports[0])["array"]),
        "bytes_of_the_last_question": size,
        "ms_at_a_site": round(1000 * site / len(keys), 2),
        "seconds_at_each_aggregator": [round(seconds, 3) for seconds in adding],
        "peak_mb_of_this_process": int(peak[1]) // 1024 if peak else None,
    }


def _sealed(
    terms: RoundTerms, keys: dict[str, ReportKey], steps: NDArray[np.int64]
) -> list[Report]:
    return [make_report(terms, name, key, steps) for name, key in keys.items()]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sites", type=int, nargs="?", default=400)
    parser.add_argument("--keep", action="store_true")
    given = parser.parse_args()
    with TemporaryDirectory() as temporary:
        costs = main(given.sites, Path(temporary))
    if given.keep:
        kept = {"aggregators": as_table(costs)}
        print(keep("federation", "python benchmarks/aggregators.py --keep", kept))
