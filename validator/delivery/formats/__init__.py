"""The tools that can start an image: one module for each, which writes a `Start` in the tool's own format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..start import Place, Start
from . import commands, documents


@dataclass(frozen=True)
class Format:
    """A format. write: returns the whole file. usual: where such a file has to be, or an empty text.

    places: where the tool finds an image. uses_docker: whether the local Docker Engine starts the container.
    command: returns the words to run at once, or None if the tool takes a file.
    """

    write: Callable[[Start], str]
    places: frozenset[Place]
    usual: str = ""
    uses_docker: bool = False
    command: Callable[[Start], list[str]] | None = None


_DOCKER = frozenset({Place.REGISTRY, Place.ENGINE})
#: Podman and Apptainer don't read images from every Docker Engine: Podman 4.3 uses version 1.22 of its API,
#: which Docker 25 and newer refuse. Podman's local images are its own.
_OTHERS = frozenset({Place.REGISTRY, Place.LAYOUT})

FORMATS: dict[str, Format] = {
    "docker": Format(commands.write_docker, _DOCKER, uses_docker=True, command=commands.docker_command),
    "compose": Format(documents.write_compose, _DOCKER, uses_docker=True),
    "devcontainer": Format(documents.write_devcontainer, _DOCKER, usual=documents.USUAL, uses_docker=True),
    "apptainer": Format(commands.write_apptainer, _OTHERS),
    "slurm": Format(commands.write_slurm, _OTHERS),
    "kubernetes": Format(documents.write_kubernetes, frozenset({Place.REGISTRY})),
    "podman": Format(commands.write_podman, _OTHERS | {Place.ENGINE}, command=commands.podman_command),
}
