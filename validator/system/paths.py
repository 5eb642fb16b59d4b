"""Where things are kept: caches under the user's cache directory, records beside the matrix."""

from __future__ import annotations

import os
from pathlib import Path

#: Kept inside the project's checkout: records and reports. Ignored by git.
STATE_DIRECTORY = Path(".validator")


def cache_directory() -> Path:
    """`$VALIDATOR_CACHE`, else `validator` under the XDG cache directory. May be removed at any time."""
    own = os.environ.get("VALIDATOR_CACHE")
    if own:
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "tensorflow-gpu-matrix"
