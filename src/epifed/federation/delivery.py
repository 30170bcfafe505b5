"""What a party does with the finished release: check it, close the book on it, keep it."""

from pathlib import Path

from epifed.errors import EpifedError
from epifed.federation.codes import Code
from epifed.federation.messages import NAME, MessageError
from epifed.federation.terms import SiteBook, Terms
from epifed.release import Release, read_release

MODELS = "models"


def keep_release(
    kit: Path, ledger: str, terms: Terms, content: bytes, paid: int, training: str
) -> Release:
    """Keep the finished release, once it has been checked, and close the party's book on it.

    One that is not private is taken only where the party agrees to such tests, and none takes the
    place of another.
    """
    if not NAME.fullmatch(training):
        raise MessageError(Code.BAD_TASK)
    path = kit / MODELS / f"{training}.epifed"
    path.parent.mkdir(exist_ok=True)
    waiting = path.with_suffix(".received")
    waiting.write_bytes(content)
    try:
        release = read_release(waiting)
        if release.randomness != "secure" and not terms.seeded:
            raise MessageError(Code.REFUSED_SEEDED)
        if path.exists() and read_release(path).sha256 != release.sha256:
            raise EpifedError(
                f"{path}: another release of training '{training}' came; expected the same"
            )
        if release.randomness == "secure":
            SiteBook(kit / ledger, terms).finish(training, paid, release.sha256)
        waiting.replace(path)
    finally:
        waiting.unlink(missing_ok=True)
    return release
