"""The error that a user can cause, and how numbers are written in sentences.

The command line turns an `EpifedError` into one sentence and exit code 2.
"""

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError

_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Signs that a terminal obeys instead of showing them: codes for colours and titles, and such that
turn the direction of writing."""


def printable(text: str) -> str:
    """A text whose control signs are spelled out, so that no terminal obeys them.

    >>> printable("North\\x1b[31m")
    'North\\\\x1b[31m'
    """
    return _UNPRINTABLE.sub(lambda sign: ascii(sign[0])[1:-1], text)


class EpifedError(Exception):
    """A mistake the user can mend: says what was found and what was expected."""

    def __str__(self) -> str:
        """The sentence; what a file says in it cannot command a terminal."""
        return printable(super().__str__())


def counted(number: int, word: str) -> str:
    """So many of something.

    >>> counted(0, "region"), counted(1, "region"), counted(1200, "county"), counted(2, "day")
    ('0 regions', '1 region', '1,200 counties', '2 days')
    """
    if number == 1:
        return f"1 {word}"
    if word.endswith("y") and word[-2] not in "aeou":
        return f"{number:,} {word[:-1]}ies"
    return f"{number:,} {word}s"


def was(number: int) -> str:
    """The verb of so many: one was, several were."""
    return "was" if number == 1 else "were"


EPSILON = "a number above 0: try 1; inf means no privacy"
"""What is expected of ε, wherever a user gives it."""


def sentence_of(error: "ValidationError", known: str = "it left out") -> str:
    """What is wrong first, as one sentence; `known` is expected instead of an unknown name."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    if not where:
        return message
    if first["type"] == "missing":
        return f"{where}: found nothing; expected a value"
    if first["type"] == "extra_forbidden":
        return f"{where}: not a setting; expected {known}"
    message = message.replace("Input should be", "expected")
    for comparison, plain in (
        ("expected greater than or equal to ", "expected at least "),
        ("expected less than or equal to ", "expected at most "),
        ("expected greater than ", "expected a number above "),
        ("expected less than ", "expected a number below "),
    ):
        message = message.replace(comparison, plain)
    if where == "epsilon":
        message = f"expected {EPSILON}"
    return f"{where}: found {first['input']!r}; {message[0].lower()}{message[1:]}"
