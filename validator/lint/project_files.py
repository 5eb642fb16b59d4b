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
    (re.compile(r"pyproject\.toml"), project.of_pyproject),
    (re.compile(r"(?:uv|poetry|pdm)\.lock|pylock(?:\..+)?\.toml"), locks.of_lock),
    (re.compile(r"Pipfile"), pipenv.of_pipfile),
    (re.compile(r"Pipfile\.lock"), pipenv.of_pipfile_lock),
    (re.compile(r"pixi\.toml"), pixi.of_pixi_toml),
    (re.compile(r"pixi\.lock"), pixi.of_pixi_lock),
    (re.compile(r"(?is)(?:docker-)?compose(?:[._-].+)?\.ya?ml"), compose.of_compose),
    (re.compile(r"(?is).+\.ya?ml"), conda.of_conda),
    (re.compile(r"(?is).+\.(?:txt|in)|[^/]*requirements[^/]*\.lock"), requirements.of_requirements),
)


def reader(name: str) -> Read | None:
    """Return what reads a file of this name, or None for a kind that is not known."""
    return next((read for pattern, read in _READERS if pattern.fullmatch(name)), None)
