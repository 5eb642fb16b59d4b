"""The kinds of files in which a project says what it installs, apart from Dockerfiles, and their readers."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from . import compose, conda, locks, pipenv, pixi, project, requirements
from .environment import Environment
from .source_file import Source

Read = Callable[[Path], "tuple[Sequence[Environment], Sequence[Source]]"]


#: The name of a file -> what reads it. The first one that matches counts.
_READERS: tuple[tuple[re.Pattern[str], Read], ...] = (
    (re.compile(r"pyproject\.toml"), project.environments),
    (re.compile(r"(?:uv|poetry|pdm)\.lock|pylock(?:\..+)?\.toml"), locks.environments),
    (re.compile(r"Pipfile"), pipenv.environments),
    (re.compile(r"Pipfile\.lock"), pipenv.locked_environments),
    (re.compile(r"pixi\.toml"), pixi.environments),
    (re.compile(r"pixi\.lock"), pixi.locked_environments),
    (re.compile(r"(?is)(?:docker-)?compose(?:[._-].+)?\.ya?ml"), compose.environments),
    (re.compile(r"(?is).+\.ya?ml"), conda.environments),
    (re.compile(r"(?is).+\.(?:txt|in)|[^/]*requirements[^/]*\.lock"), requirements.environments),
)


def reader(name: str) -> Read | None:
    """Return what reads a file of this name, or None for a kind that is not known."""
    return next((read for pattern, read in _READERS if pattern.fullmatch(name)), None)
