"""Ten thousand damaged files of every kind that is read: none may end in anything but a sentence.

    PYTHONPATH=. python benchmarks/fuzz.py --work FOLDER --keep

In parts, each with its own seed, which stay in the folder under a hash of the code, so it may be
stopped. `tests/fuzzing.py` says which kinds there are and how they are damaged.
"""

import argparse
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.fuzzing import LONGEST, fuzz

from epifed.evaluation.experiment import code_digest
from kept import keep, table

PART = 500
"""Files of a part."""


def form(name: str) -> str:
    """The form of a file, by its name."""
    endings = {".gz": "gzip", ".zip": "zip", ".xlsx": "Excel", ".parquet": "parquet"}
    return endings.get(Path(name).suffix, "text")


def main() -> None:
    """Read what has not been read yet, say what came of it, and keep it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--keep", action="store_true")
    asked = parser.parse_args()
    read, refused, names, broken = Counter[str](), Counter[str](), set[str](), list[str]()
    longest = 0
    folder = asked.work / f"fuzz_{code_digest()[:16]}"
    folder.mkdir(parents=True, exist_ok=True)
    for part in range(-(-asked.files // PART)):
        path = folder / f"{part}.json"
        if not path.exists():
            inside = Path(tempfile.mkdtemp(dir=folder))
            path.write_text(json.dumps(vars(fuzz(PART, part, inside))))
            print(f"part {part}", file=sys.stderr, flush=True)
        found = json.loads(path.read_text())
        for counts, key in ((read, "read"), (refused, "refused")):
            names |= set(found[key])
            for name, times in found[key].items():
                counts[form(name)] += times
        longest = max(longest, found["longest"])
        broken += found["broken"]
    rows = [
        [one, read[one] + refused[one], read[one], refused[one]] for one in sorted(read | refused)
    ]
    rows.append(["all", read.total() + refused.total(), read.total(), refused.total()])
    print(*rows, *broken, sep="\n")
    if asked.keep:
        shown = table(["form", "files", "read", "refused"], ["{}", "{:,}", "{:,}", "{:,}"], rows)
        about = {"kinds": len(names), "longest": longest, "most": LONGEST, "broken": len(broken)}
        command = f"python benchmarks/fuzz.py --files {asked.files} --keep"
        print(keep("fuzz", command, {"damaged": shown, "outcome": about}))
    sys.exit(bool(broken))


if __name__ == "__main__":
    main()
