"""The tools that can start an image: one module for each, which writes a `Start` in the tool's own format."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..start import Start
from . import apptainer, compose, devcontainer, engines, kubernetes, slurm


@dataclass(frozen=True)
class Format:
    """A format. write: returns the whole file. usual: where such a file has to be, or an empty text.

    uses_docker: whether the local Docker Engine starts the container. command: returns the words to run at
    once, or None if the tool takes a file.
    """

    write: Callable[[Start], str]
    usual: str = ""
    uses_docker: bool = False
    command: Callable[[Start], list[str]] | None = None


FORMATS: dict[str, Format] = {
    "docker": Format(engines.write_docker, uses_docker=True, command=engines.docker_command),
    "compose": Format(compose.write, uses_docker=True),
    "devcontainer": Format(devcontainer.write, usual=devcontainer.USUAL, uses_docker=True),
    "apptainer": Format(apptainer.write),
    "slurm": Format(slurm.write),
    "kubernetes": Format(kubernetes.write),
    "podman": Format(engines.write_podman, command=engines.podman_command),
}
