"""The error that a user can cause, and how numbers are written in sentences.

The command line turns an `EpifedError` into one sentence and exit code 2.
"""


class EpifedError(Exception):
    """A mistake the user can mend: says what was found and what was expected."""


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
