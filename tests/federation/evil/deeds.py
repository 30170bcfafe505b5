"""What the evil site does in which round; the tests compare with it."""

SECRET = "CANARY-in-an-exception"
DEEDS = {
    1: "nan",
    2: "infinite",
    3: "shape",
    4: "dtype",
    5: "norm",
    6: "twice",
    7: "foreign",
    8: "exception",
    9: "nonsense",
    10: "late",
    11: "stale",
    12: "good",
}
ROUND = 15.0
"""Seconds that a round waits."""
LATE = ROUND + 2
