"""The command that starts this program again as it was started."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

from ..diagnosis.next_step import ANYWHERE

#: Directories in the cache of uv that hold the environments of `uvx`, which may be removed at any time.
_THROWAWAY = ("archive-v", "environments-v")


def program() -> str:
    """Return how this program was started: `.venv/bin/python -m validator`, `validator`, or with `uvx`."""
    if any(part.startswith(_THROWAWAY) for part in Path(sys.prefix).parts):
        return ANYWHERE
    started = Path(sys.argv[0])
    if started.name == "__main__.py":
        return f"{_shown(Path(sys.executable))} -m validator"
    return _shown(started.absolute())


def _shown(path: Path) -> str:
    """Return what to type to start a program: a path below this directory, a name in PATH, or a full path."""
    here = Path.cwd()
    if path.is_relative_to(here):
        return shlex.quote(str(path.relative_to(here)))
    found = shutil.which(path.name)
    return path.name if found is not None and os.path.abspath(found) == str(path) else shlex.quote(str(path))
