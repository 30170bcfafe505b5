"""The one error a user can cause; the command line turns it into a sentence and exit code 2."""


class EpifedError(Exception):
    """A mistake the user can mend: says what was found and what was expected."""
