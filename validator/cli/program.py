"""The command that starts this program again as it was started.

Messages, hints and fixes write this command as `python -m validator`. It is replaced when they are printed
for a person, because `python` may be missing in that person's shell or may be a different one: a checkout
uses `.venv/bin/python`.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from pathlib import Path

#: Directories in the cache of uv that hold the environments of `uvx`, which may be removed at any time.
_THROWAWAY = ("archive-v", "environments-v")
#: A command of this program in a text, but not `python -m validator.probe`.
_COMMAND = re.compile(r"(?<![\w./-])python -m validator(?![\w.-])")


def program(directory: Path | None = None) -> str:
    """Return how this program was started: `.venv/bin/python -m validator`, `validator`, or with `uvx`.

    directory: where the command is to be typed; the current directory if None.
    """
    # Imported here because most subcommands print no command and need not load the diagnosis.
    from ..diagnosis.next_step import ANYWHERE

    if any(part.startswith(_THROWAWAY) for part in Path(sys.prefix).parts):
        return ANYWHERE
    started = Path(sys.argv[0])
    directory = Path.cwd() if directory is None else directory.resolve()
    if started.name == "__main__.py":
        return f"{_shown(Path(sys.executable), directory)} -m validator"
    return _shown(started.absolute(), directory)


def as_started(text: str) -> str:
    """Return a text in which the commands of this program start it the way it was started."""
    if "python -m validator" not in text or not _is_program(Path(sys.argv[0])):
        return text
    started = program()
    return _COMMAND.sub(lambda _: started, text)


def _is_program(started: Path) -> bool:
    # Other programs may import this one, as its tests do.
    return started.name == "validator" or started.parts[-2:] == ("validator", "__main__.py")


def _shown(path: Path, directory: Path) -> str:
    """Return what to type to start a program: a relative path, a name in PATH, or a full path."""
    if path.is_relative_to(directory):
        return shlex.quote(str(path.relative_to(directory)))
    found = shutil.which(path.name)
    return path.name if found is not None and os.path.abspath(found) == str(path) else shlex.quote(str(path))
