"""Note what this machine's runs create in an engine, before it is created, in the notes of `system.runs`.

Only containers and names of images that have a note are ever removed. A label, a name or an image does not
prove who created something: anybody can copy them.
"""

from __future__ import annotations

import docker
import requests
from docker.errors import DockerException, ImageNotFound, NotFound

from ...system import runs
from ...system.runs import Note
from .endpoint import Endpoint

CONTAINER, LOADING = "container", "loading"
#: Seconds that an engine may take to create a container, even if nobody waits for it any more.
_CREATION_LIMIT_S = 600.0


def intend(endpoint: Endpoint, kind: str, name: str) -> Note:
    """Note that something will be created under this name, which nothing else has.

    Raises MissingError if the note can't be written.
    """
    return runs.current().note(kind, engine=_engine(endpoint), name=name)


def leftovers(endpoint: Endpoint, kind: str) -> list[Note]:
    """Return the notes of runs that were killed, about this engine."""
    return [
        note
        for note in runs.current().inherited(kind)
        if note.content.get("engine") == _engine(endpoint) and "name" in note.content
    ]


def created(note: Note, container: str) -> None:
    """Note the engine's id of a container. Call this before starting it."""
    note.write(container=container)


def remove_container(client: docker.DockerClient, note: Note) -> bool:
    """Remove a container, running or not, with its volumes. Return True if it was there.

    If the engine does not respond, the note stays for the next run.
    """
    identifier = note.content.get("container")
    try:
        client.api.remove_container(identifier or note.content["name"], force=True, v=True)
    except NotFound:
        if identifier is not None or note.age_s > _CREATION_LIMIT_S:
            note.erase()
        return False
    except (DockerException, requests.RequestException):
        return False
    note.erase()
    return True


def remove_image_name(client: docker.DockerClient, note: Note) -> None:
    """Remove the name of an image. If the engine does not respond, the note stays for the next run."""
    try:
        client.images.remove(note.content["name"], noprune=False)
    except ImageNotFound:
        pass
    except (DockerException, requests.RequestException):
        return
    note.erase()


def _engine(endpoint: Endpoint) -> str:
    """Return the engine's own id, however it is reached, or its address if it has no id."""
    return str(endpoint.info.get("ID") or endpoint.client.api.base_url)
