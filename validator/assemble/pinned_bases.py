"""Read and write images/bases.yaml, which pins the default base image for each Python by digest."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from ..errors import InputError
from ..resources import images_directory, refresh_hint

FILE = images_directory() / "bases.yaml"
#: The tag whose digest is pinned.
TAG = "python:{}-slim-bookworm"

_REFERENCE = re.compile(r"(?P<name>[a-z0-9][a-z0-9._/-]*:[\w.-]+)@(?P<digest>sha256:[0-9a-f]{64})")
_PYTHON = re.compile(r"3\.\d+")


@dataclass(frozen=True)
class PinnedBase:
    """An image in a registry: its name with a tag, and the digest that the tag had when it was pinned."""

    name: str
    digest: str

    def __str__(self) -> str:
        return f"{self.name}@{self.digest}"

    @classmethod
    def parse(cls, text: object) -> PinnedBase | None:
        """Parse `name:tag@sha256:…`. Return None for anything else."""
        match = _REFERENCE.fullmatch(text) if isinstance(text, str) else None
        return cls(match["name"], match["digest"]) if match else None


def pinned_bases(path: Path = FILE) -> Mapping[str, PinnedBase]:
    """Return the bases by Python. Raises InputError for a base without a digest."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise InputError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict) or not content:
        raise InputError(f"{path} must be a mapping from Python versions to images")
    found: dict[str, PinnedBase] = {}
    for python, text in content.items():
        base = PinnedBase.parse(text)
        if base is None or not _PYTHON.fullmatch(str(python)):
            raise InputError(
                f"{path}: {python}: {text} is not pinned; it must be a name, a tag and a digest,"
                f" such as {TAG.format('3.12')}@sha256:…",
                hint=refresh_hint("bases", " on a machine that can reach the registry"),
            )
        found[str(python)] = base
    return found


def text_of(bases: Mapping[str, PinnedBase]) -> str:
    """Return the content of the file."""
    lines = [f'"{python}": {base}' for python, base in bases.items()]
    header = (
        "# The default base image for each Python, pinned by digest."
        " Written by `scripts/refresh bases`, not by hand."
    )
    return "\n".join([header, *lines]) + "\n"
