"""What the hostile site does in which round; the tests compare with it."""

import os

SECRET = "CANARY-in-an-exception"
DEEDS = {
    1: "nan",
    2: "infinite",
    3: "shape",
    4: "dtype",
    5: "norm",
    6: "rows",
    7: "exception",
    8: "nonsense",
    9: "endless",
    10: "nested",
    11: "wordless",
    12: "huge",
    13: "undecodable",
    14: "fatal",
    15: "large",
    16: "late",
    17: "stale",
    18: "good",
}
ALONE = ("nan", "infinite")
"""Deeds that spoil the vector of the site's first client and no other."""
ROUND = 180.0
"""Seconds that a round waits."""
LARGE = int(os.environ.get("HOSTILE_LARGE", "8000000"))
"""Bytes of an answer that is larger than any can be."""
