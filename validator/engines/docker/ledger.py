"""Keep a note of each container of this machine's runs, written before the container is created.

Only containers with a note are ever removed. A label, a name or an image does not prove who created a
container: anybody can copy them.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import docker
import requests
from docker.errors import DockerException, NotFound

from ...system import runs
from ...system.notes import Note

_KIND = "container"
#: Seconds that an engine may take to create a container, even if nobody waits for it any more.
_CREATION_LIMIT_S = 600.0


@dataclass(frozen=True)
class Entry:
    """A container of a run. It may not exist yet, or no longer."""

    note: Note

    @property
    def name(self) -> str:
        """The name to create it with. No other container has it, because it contains a random number."""
        return self.note.content["name"]

    def created(self, identifier: str) -> None:
        """Note the engine's id of the container. Call this before starting it."""
        self.note.write(container=identifier)

    def not_created(self) -> None:
        """Erase the entry, because the engine refused to create the container."""
        self.note.erase()

    def remove(self, client: docker.DockerClient) -> bool:
        """Remove the container, running or not, with its volumes. Return True if it was there.

        If the engine does not respond, the entry stays for the next run.
        """
        identifier = self.note.content.get("container")
        try:
            client.api.remove_container(identifier or self.name, force=True, v=True)
        except NotFound:
            if identifier is not None or self.note.age_s > _CREATION_LIMIT_S:
                self.note.erase()
            return False
        except (DockerException, requests.RequestException):
            return False
        self.note.erase()
        return True


def intend(client: docker.DockerClient, info: Mapping[str, Any]) -> Entry:
    """Note that a container will be created. Raises MissingError if the note can't be written."""
    run = runs.current()
    name = f"validator-probe-{run.directory.name}-{secrets.token_hex(8)}"
    return Entry(run.note(_KIND, engine=_engine(client, info), name=name))


def leftovers(client: docker.DockerClient, info: Mapping[str, Any]) -> list[Entry]:
    """Return the containers of runs that were killed, in this engine."""
    here = _engine(client, info)
    notes = runs.current().inherited(_KIND)
    return [Entry(note) for note in notes if note.content.get("engine") == here and "name" in note.content]


def _engine(client: docker.DockerClient, info: Mapping[str, Any]) -> str:
    """Return the engine's own id, however it is reached, or its address if it has no id."""
    return str(info.get("ID") or client.api.base_url)
