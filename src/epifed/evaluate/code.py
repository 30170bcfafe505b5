"""The code that computed a result, as a fingerprint: what older code computed is not reused."""

import hashlib
from functools import cache
from pathlib import Path

import epifed


@cache
def code_digest(folder: Path = Path(epifed.__file__).parent) -> str:
    """A hash of all Python files of the package."""
    sha = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        content = path.read_bytes()
        sha.update(f"{path.relative_to(folder).as_posix()} {len(content)}\n".encode())
        sha.update(content)
    return sha.hexdigest()
