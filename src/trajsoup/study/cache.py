"""Where corpora, fork points and hashes of documents are kept between studies."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """TRAJSOUP_CACHE, else the user's cache folder."""
    if folder := os.environ.get("TRAJSOUP_CACHE"):
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trajsoup"
