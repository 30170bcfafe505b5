"""What was typed wrongly, as one of epifed's sentences: the library would print a box."""

import re
from typing import Any

EXPECTED = (
    (r"valid integer", "a whole number"),
    (r"valid number", "a number"),
    (r"greater than or equal to (\S+)", r"at least {}"),
    (r"less than or equal to (\S+)", r"at most {}"),
    (r"greater than (\S+)", r"more than {}"),
    (r"less than (\S+)", r"less than {}"),
    (r"does not match the formats '%Y-%m-%d'", "a day such as 2020-11-30"),
)


def sentence(error: Any, typed: list[str]) -> str:
    """What a usage error of the library says, in one sentence.

    `typed` is all that stood behind the command's name.
    """
    context, parameter = error.ctx, getattr(error, "param", None)
    said = " ".join(error.format_message().split()).rstrip(".")
    if type(error).__name__ == "BadParameter" and parameter is not None:
        name = next((one for one in parameter.opts if one.startswith("--")), parameter.opts[0])
        found = _value(parameter.opts, typed)
        for pattern, expected in EXPECTED:
            if match := re.search(pattern, said):
                wanted = expected.format(*match.groups())
                return f"{name}: found {found}; expected {wanted}"
        return said[:1].lower() + said[1:]
    where = _path(context)
    return f"{said[:1].lower()}{said[1:]}; '{where} --help' has all there is"


def _value(names: list[str], typed: list[str]) -> str:
    """What was given to an option; of several the last."""
    found = ""
    for i, word in enumerate(typed):
        name, equals, value = word.partition("=")
        if name in names:
            found = value if equals else next(iter(typed[i + 1 :]), "")
    return f"'{found}'"


def _path(context: Any) -> str:
    """The command as it is typed."""
    words = context.command_path.split() if context is not None else []
    inner = [word for word in words[1:] if word not in ("-m", "epifed")]
    return " ".join(["epifed", *inner])
