"""Help for the tests of lint: write a file, and say in short what is found in it."""

from __future__ import annotations

import textwrap
from pathlib import Path

from validator.lint.findings import lint
from validator.model.prediction import Finding


def write(directory: Path, name: str, text: str) -> Path:
    """Write a file whose text is indented as in a test."""
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text).lstrip("\n"), encoding="utf-8")
    return path


def found(path: Path, *, for_gpu: bool = False) -> list[Finding]:
    """Return the findings in a file."""
    return list(lint([path], for_gpu=for_gpu).findings)


def short(path: Path, *, for_gpu: bool = False) -> list[str]:
    """Return the findings in a file as `line:column code`."""
    return [f"{one.place.line}:{one.place.column} {one.code}" for one in found(path, for_gpu=for_gpu)]
