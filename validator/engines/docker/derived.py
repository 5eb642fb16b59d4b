"""Tell an image that was derived from one of this project from that image itself."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from docker import DockerClient
from docker.errors import ImageNotFound
from docker.models.images import Image

from ...assemble.image_names import LABEL_LOCK, LABEL_SPEC, PROJECT
from .images import list_images, made_a_layer


@dataclass(frozen=True)
class Derivation:
    """The image of this project that another image was made from.

    image: its image spec. lock_digest: of its lock. base: its digest, or None if the engine doesn't have it.
    commands: what was done to it, oldest first, as the builder wrote it down.
    """

    image: str
    lock_digest: str
    base: str | None
    commands: tuple[str, ...]


def derivation_of(client: DockerClient, name: str) -> Derivation | None:
    """Return what an image was derived from; None for an image of this project, or of another.

    A derived image inherits the labels. So the history decides, which begins with this project's steps.
    """
    try:
        image = client.images.get(name)
    except ImageNotFound:
        return None
    if LABEL_SPEC not in image.labels:
        return None
    history = list(reversed(image.history()))
    steps = [str(step.get("CreatedBy") or "") for step in history]
    own = [number for number, step in enumerate(steps) if step.startswith(f"{PROJECT}: ")]
    if not own or own[-1] == len(steps) - 1:
        return None
    layers = _layers(image)[: sum(map(made_a_layer, history[: own[-1] + 1]))]
    images = list_images(client, f"{LABEL_SPEC}={image.labels[LABEL_SPEC]}")
    return Derivation(
        image.labels[LABEL_SPEC],
        image.labels.get(LABEL_LOCK, ""),
        _with_layers(images, layers),
        tuple(steps[own[-1] + 1 :]),
    )


def _with_layers(images: Iterable[Image], layers: list[str]) -> str | None:
    """Return the digest of the image that has exactly these layers: its manifest's, if that is known."""
    for image in images:
        if _layers(image) == layers:
            known = [str(entry).partition("@")[2] for entry in image.attrs.get("RepoDigests") or ()]
            return next(iter(known), str(image.id))
    return None


def _layers(image: Image) -> list[str]:
    return [str(digest) for digest in image.attrs.get("RootFS", {}).get("Layers") or ()]
