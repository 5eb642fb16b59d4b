"""Find the reader of a file by its name, and lint files together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..compat.errors import UnknownRelease
from ..errors import InputError
from ..model.finding import Finding, Place
from . import dockerfile
from .blame import findings, unknown_release
from .environment import Environment
from .project_files import Read, reader
from .source_file import Source

_DOCKERFILE = re.compile(r"(?is)(?:.+[._-])?(?:dockerfile|containerfile)(?:[._-].+)?")
_KNOWN = (
    "Dockerfiles, compose files, requirements files (*.txt, *.in, requirements.lock), pyproject.toml,"
    " environment.yml, Pipfile, pixi.toml, uv.lock, poetry.lock, pdm.lock, pylock.toml, Pipfile.lock,"
    " pixi.lock and conda-lock.yml"
)


@dataclass(frozen=True)
class Linted:
    """The findings in files, sorted by place.

    unknown: the pins of TensorFlow releases that the facts don't have, which were not judged.
    """

    findings: tuple[Finding, ...]
    unknown: tuple[tuple[Place, UnknownRelease], ...]


def lint(paths: Iterable[Path], ignored: frozenset[str] = frozenset(), *, for_gpu: bool = False) -> Linted:
    """Return what can't work in the files, without what their comments silence.

    ignored: codes that are left out everywhere. for_gpu: True if the project is meant for a GPU even where
    its files don't say so. Raises InputError for a file that can't be read, or of an unknown kind.
    """
    found: set[Finding] = set()
    unknown: dict[Place, UnknownRelease] = {}
    silenced: dict[tuple[str, int], frozenset[str]] = {}
    for path in paths:
        environments, sources = read(path)
        for source in sources:
            silenced.update({(source.name, line): codes for line, codes in source.ignored.items()})
        for environment in environments:
            found.update(findings(replace(environment, for_gpu=True) if for_gpu else environment))
            unknown.update(unknown_release(environment))
    shown = (
        finding
        for finding in found
        if finding.code not in ignored
        and finding.code not in silenced.get((finding.place.file, finding.place.line), ())
    )
    return Linted(tuple(sorted(shown)), tuple((place, unknown[place]) for place in sorted(unknown)))


def read(path: Path) -> tuple[Sequence[Environment], Sequence[Source]]:
    """Return what a file installs, and the files that were read.

    Raises InputError for a file that can't be read, or of an unknown kind.
    """
    read_file = _reader(path)
    if read_file is None:
        raise InputError(f"{path} is not a kind of file that lint knows", hint=f"it reads {_KNOWN}")
    return read_file(path)


def reads(path: Path) -> bool:
    """Return True for a file of a kind that lint knows."""
    return _reader(path) is not None


def _reader(path: Path) -> Read | None:
    return dockerfile.of_dockerfile if _DOCKERFILE.fullmatch(path.name) else reader(path.name)
