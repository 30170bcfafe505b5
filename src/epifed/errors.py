"""The error for users' mistakes, numbers in sentences, and the German translation of sentences.

The command line prints an `EpifedError` as one sentence and ends with exit code 2.
"""

import locale
import os
import re
import sys
import tomllib
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from pydantic import ValidationError

_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""Characters that a terminal obeys instead of showing them: codes for colours and titles, and
those that change the direction of writing."""


def printable(text: str) -> str:
    """A text with control characters spelled out, so that no terminal obeys them.

    >>> printable("North\\x1b[31m")
    'North\\\\x1b[31m'
    """
    return _UNPRINTABLE.sub(lambda sign: ascii(sign[0])[1:-1], text)


class EpifedError(Exception):
    """A user's mistake; the message names what was found and what was expected.

    Parameters
    ----------
    message : str
        One sentence: where, what was found, what was expected.

    Examples
    --------
    >>> str(EpifedError("--epsilon: found '0'; expected a number above 0"))
    "--epsilon: found '0'; expected a number above 0"
    """

    def __str__(self) -> str:
        """The message, with control characters from files spelled out."""
        return printable(super().__str__())


def counted(number: int, word: str) -> str:
    """A number with its noun, in the plural where needed.

    >>> counted(0, "region"), counted(1, "region"), counted(1200, "county"), counted(2, "day")
    ('0 regions', '1 region', '1,200 counties', '2 days')
    """
    if number == 1:
        return f"1 {word}"
    if word.endswith("y") and word[-2] not in "aeou":
        return f"{number:,} {word[:-1]}ies"
    return f"{number:,} {word}s"


def was(number: int) -> str:
    """The verb for a number: one was, several were."""
    return "was" if number == 1 else "were"


EPSILON = "a number above 0: try 1; inf means no privacy"
"""The expected values of ε in error messages."""


def sentence_of(error: "ValidationError", known: str = "it left out") -> str:
    """The first error as one sentence; `known` is what is expected instead of an unknown name."""
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


Language = Literal["en", "de"]
_asked: list[Language] = []
"""The language of --lang, if given."""
LONGEST_TRANSLATED = 2000


def speak(language: str | None) -> None:
    """Set the language of messages; none: that of the system."""
    _asked.clear()
    if language is None:
        return
    if language not in get_args(Language):
        raise EpifedError(f"--lang: found '{language[:20]}'; expected en or de")
    _asked[:] = ["de" if language == "de" else "en"]


def spoken_language() -> Language:
    """The language of messages: the requested one, or the system's."""
    if _asked:
        return _asked[0]
    names = [os.environ.get(name) for name in ("LC_ALL", "LC_MESSAGES", "LANG")]
    if sys.platform == "win32":
        import ctypes  # noqa: PLC0415

        names.append(locale.windows_locale.get(ctypes.windll.kernel32.GetUserDefaultUILanguage()))
    first = next(filter(None, names), "")
    return "de" if first.lower().startswith("de") else "en"


def spoken(sentence: str) -> str:
    """A sentence in the language of messages."""
    return in_german(sentence) if spoken_language() == "de" else sentence


def in_german(sentence: str) -> str:
    """A sentence in German, if `german.toml` has it; else unchanged.

    >>> in_german("cases.csv: row 2, column cases: found 'abc'; expected a number of at least 0")
    "cases.csv: Zeile 2, Spalte cases: gefunden: 'abc'; erwartet: eine Zahl ab 0"
    """
    german = _matched(sentence)
    if german is None:
        plain = sentence[:1].lower() + sentence[1:].removesuffix(".")
        german = _matched(plain)
        if german is not None:
            german = german[:1].upper() + german[1:] + "." * sentence.endswith(".")
    return sentence if german is None else german


def _matched(sentence: str) -> str | None:
    alone, patterns = _german()
    if sentence in alone:
        return alone[sentence]
    if day := re.fullmatch(r"(\d{4})-(\d\d)-(\d\d)", sentence):
        return f"{day[3]}.{day[2]}.{day[1]}"
    if re.fullmatch(r"[±−-]?[\d,]*\d(\.\d+)?( ?%)?", sentence):
        swapped = sentence.translate(str.maketrans(",.", ".,"))
        return re.sub(r"(?<=\d)%", " %", swapped)
    for pattern, german in patterns if len(sentence) <= LONGEST_TRANSLATED else ():
        if match := pattern.fullmatch(sentence):
            return german.format(*map(_Part, match.groups()))
    return None


class _Part(str):
    """A variable part of a sentence, which is translated to German when formatted."""

    __slots__ = ()

    def __format__(self, how: str) -> str:
        text = str(self)
        if how == "where":
            return in_german(text) if ": " in text else text
        return in_german(text)


@cache
def _german() -> tuple[dict[str, str], list[tuple[re.Pattern[str], str]]]:
    """Complete sentences, and patterns in the order in which they are tried."""
    text = files("epifed").joinpath("german.toml").read_text(encoding="utf-8")
    parts = tomllib.loads(text)
    first: dict[str, str] = parts["first"]
    pairs: dict[str, str] = {}
    for part in parts.values():
        pairs |= part

    def order(english: str) -> tuple[bool, bool, int]:
        return english not in first, "; expected " not in english, -len(english)

    patterns = [
        (
            re.compile("(.*?)".join(map(re.escape, english.split("{}"))), re.DOTALL),
            pairs[english].replace("'{}'", "'{!s}'"),
        )
        for english in sorted(pairs, key=order)
        if "{}" in english
    ]
    return {english: german for english, german in pairs.items() if "{}" not in english}, patterns
