"""Where epifed keeps what it can make or fetch again."""

import os
from pathlib import Path

import platformdirs


def cache_root() -> Path:
    """EPIFED_CACHE, or the user's cache directory."""
    return Path(os.environ.get("EPIFED_CACHE") or platformdirs.user_cache_dir("epifed"))
