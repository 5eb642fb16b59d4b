"""The tools that can start an image: one module for each, which writes a `Start` in the tool's own format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..start import Place, Start
from . import apptainer, compose, devcontainer, engines, kubernetes, slurm


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
#: which Docker 25 and newer refuse.
_OTHERS = frozenset({Place.REGISTRY, Place.LAYOUT})

FORMATS: dict[str, Format] = {
    "docker": Format(engines.write_docker, _DOCKER, uses_docker=True, command=engines.docker_command),
    "compose": Format(compose.write, _DOCKER, uses_docker=True),
    "devcontainer": Format(devcontainer.write, _DOCKER, usual=devcontainer.USUAL, uses_docker=True),
    "apptainer": Format(apptainer.write, _OTHERS),
    "slurm": Format(slurm.write, _OTHERS),
    "kubernetes": Format(kubernetes.write, frozenset({Place.REGISTRY})),
    "podman": Format(engines.write_podman, _OTHERS, command=engines.podman_command),
}
