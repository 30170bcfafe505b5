"""What the audit would notice, and how a membership attack fares: the tables of docs/privacy.md.

    python benchmarks/audit.py                       # about 2 minutes of one core
    epifed audit --membership --json >attacks.json   # about 2 minutes more
    python benchmarks/audit.py attacks.json

The first takes from each statistical check of the deployed paths the deviation that it says to
find with 99 % probability; the second keeps what the command found.
"""

import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from epifed.audit.aggregator_checks import check_aggregators
from epifed.audit.audit import paths
from epifed.audit.noise_checks import check_draws, check_mechanism
from epifed.audit.statistics import Check
from epifed.report.tables import budget
from epifed.settings import Settings
from kept import keep, table

NOISE = {
    "noise": "noise low over all",
    "noise of each coordinate": "noise low in one coordinate",
    "noise of each round": "noise low in one round",
    "empty round": "noise low in empty rounds (about a third)",
    "fresh noise": "correlation of the noise of neighbouring rounds",
    "equal weights": "a client's weight off",
    "clipping": "a clip bound off",
}
SEALED = {
    "null round": "all noise low",
    "noise of each aggregator": "noise of one aggregator low",
    "insider's view": "noise of one aggregator low, by the insiders' attack alone",
    "what an aggregator sees": "bytes of a partial sum or an opened share in the clear",
}
DRAWS = {
    "sampling rate": "q low for all",
    "sampling of each client": "q low for one client",
    "sampling over rounds": "correlation of the cohorts of rounds",
}
FOUND = "found with 99 % probability"


def powers(checks: Iterable[Check]) -> dict[str, str]:
    """The deviation that each check says to find."""
    said = ((check.name, re.match(r"\D*([\d.]+) ?%", check.power)) for check in checks)
    return {name: f"{float(found[1]):g} %" for name, found in said if found}


def tables(settings: Settings) -> dict[str, Any]:
    """Of the paths, of aggregators, of draws."""
    columns, heads = [], []
    for path in paths("all"):
        checks = check_mechanism(
            path.mechanism, settings, rounds=path.rounds, length=path.length, seed=0
        )
        columns.append([*map(powers(checks).get, NOISE)])
        heads.append(f"{path.mechanism.name} ({path.rounds} × {path.length:,})")
    rows = [[label, *cells] for label, *cells in zip(NOISE.values(), *columns, strict=True)]
    sealed = powers(check_aggregators(settings, 0))
    # The first of a name is that of most draws.
    drawn = powers(check for _, check in reversed(check_draws(settings, 0)))
    return {
        "mechanism": table(["Deviation", *heads], ["{}"] * (len(heads) + 1), rows),
        "aggregators": table(
            ["Deviation", FOUND], ["{}"] * 2, [[s, sealed[c]] for c, s in SEALED.items()]
        ),
        "draws": table(["Deviation", FOUND], ["{}"] * 2, [[s, drawn[c]] for c, s in DRAWS.items()]),
    }


def attacks(found: list[dict[str, Any]]) -> dict[str, Any]:
    """What `audit --membership` printed, as a table."""
    share, area = "{:.0%} ({:.0%} to {:.0%})", "{:.2f} ({:.2f} to {:.2f})"
    rows = [
        [
            budget(float(one["epsilon"])),
            [one["right"], one["right_low"], one["right_high"]],
            [one["auc"], one["auc_low"], one["auc_high"]],
            one["advantage"],
            one["allowed_by_noise"],
            one["allowed"],
        ]
        for one in found
    ]
    heads = ["ε", "right guesses (95 % interval)", "AUC", "advantage", "this noise allows"]
    formats = ["{}", share, area, "{:.2f}", "{:.0%}", "{:.0%}"]
    return {"membership": table([*heads, "(ε, δ) allows"], formats, rows)}


def main(given: list[str]) -> None:
    """Keep the tables of one of the two."""
    if given:
        found = attacks(json.loads(Path(given[0]).read_text()))
        print(keep("audit", "epifed audit --membership --json", found))
    else:
        print(keep("audit", "python benchmarks/audit.py", tables(Settings())))


if __name__ == "__main__":
    main(sys.argv[1:])
