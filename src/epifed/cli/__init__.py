"""The command line: a light way in, so that even a start that is interrupted ends in order."""

import io
import os
import sys

from epifed.errors import EpifedError, spoken

INTERRUPTED = "interrupted; what was finished is kept"


class InterruptedByUser(Exception):  # noqa: N818
    """Ctrl-C within a command, which the command library would end without a word."""


def main() -> None:
    """Run the command line; a user's mistake is one sentence on stderr and exit code 2.

    So is what the operating system refuses: a full disk, a file that may not be read. A reader
    that has enough (`| head`) ends the command without a word.
    """
    for stream in (sys.stdout, sys.stderr):
        # A Windows console is Unicode, but a file or a pipe there has no ε.
        if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower() != "utf-8":
            stream.reconfigure(encoding="utf-8")
    try:
        from epifed.cli.app import app

        try:
            app()
        finally:
            sys.stdout.flush()
    except EpifedError as error:
        _end(2, str(error))
    except (KeyboardInterrupt, InterruptedByUser):
        _end(130, INTERRUPTED)
    except BrokenPipeError:
        _end(141)
    except OSError as error:
        _end(2, _sentence(error))


def _sentence(error: OSError) -> str:
    place = f"{error.filename}: " if error.filename else ""
    return f"{place}{error.strerror or error}"


def _end(code: int, sentence: str = "") -> None:
    """Say why, and leave nothing in the buffers that the interpreter could stumble over."""
    try:
        if sentence:
            print(f"epifed: {spoken(sentence)}", file=sys.stderr, flush=True)
    except OSError:
        pass
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
    sys.exit(code)
