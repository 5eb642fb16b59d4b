"""The engine that an image is pulled into. Nothing is built, so no buildx is needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import requests
from docker.errors import DockerException, ImageNotFound

from ..engines.docker import endpoint, transfer
from ..engines.docker.failures import engine_gone
from ..errors import MissingError, ValidatorError
from .take import Taken


class Engine:
    """The Docker Engine that the docker command would use."""

    def __init__(self) -> None:
        """Raises MissingError, saying in one line why there is none."""
        try:
            self._reached = endpoint.reach()
        except MissingError as error:
            raise MissingError(
                str(error), hint="start Docker Engine 23 or newer, or name another with DOCKER_HOST"
            ) from error

    @property
    def info(self) -> Mapping[str, Any]:
        """As `docker info` has it."""
        return self._reached.info

    @property
    def is_local(self) -> bool:
        return self._reached.is_local

    def pull(self, taken: Taken, ids: frozenset[str], progress: Callable[[str], None]) -> None:
        """Take an image by its digest, look at what has come, and give it its name.

        ids: those by which the engine may hold it. Raises ValidatorError when what came is something else,
        MissingError when it can't be had; the name is then what it was before.
        """
        transfer.pull("docker", taken.reference, progress, self._answers)
        try:
            image = self._reached.quick.images.get(taken.reference)
            if image.id not in ids:
                raise ValidatorError(
                    f"{taken.reference} was pulled, but the engine holds {image.id} under that name",
                    hint="do not use it; see what else works with this engine's images",
                )
            repository, _, tag = taken.name.rpartition(":")
            image.tag(repository, tag)
        except ImageNotFound as error:
            raise MissingError(f"{taken.reference} was pulled, and is gone from the engine again") from error
        except (DockerException, requests.RequestException) as error:
            raise engine_gone(taken.reference) from error

    def close(self) -> None:
        self._reached.quick.close()

    def _answers(self) -> bool:
        try:
            return bool(self._reached.quick.ping())
        except (DockerException, requests.RequestException):
            return False
