"""The images of an engine, and the layers of an image with their sizes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

import docker
import msgspec
from docker import DockerClient
from docker.errors import ImageNotFound
from docker.models.images import Image

from ...assemble.image_names import LABEL_LOCK, LABEL_SPEC, PROJECT
from ...errors import ValidatorError
from ...model import codec
from ...model.codec import DocumentError
from ...model.record import Layer

T = TypeVar("T")

#: Instructions that change only the configuration of an image, not its files.
_CONFIGURATION = (
    *("ARG", "CMD", "ENTRYPOINT", "ENV", "EXPOSE", "HEALTHCHECK", "LABEL"),
    *("MAINTAINER", "ONBUILD", "SHELL", "STOPSIGNAL", "USER", "VOLUME"),
)


def list_images(client: docker.DockerClient, label: str | None = None) -> list[Image]:
    """Return the images with this label, or all images, without any that is removed during the call.

    The SDK's `images.list` raises ImageNotFound if an image is removed before it is looked up.
    """
    filters = {} if label is None else {"label": label}
    found = []
    for entry in client.api.images(filters=filters):
        with contextlib.suppress(ImageNotFound):
            found.append(client.images.get(entry["Id"]))
    return found


def layers_of(image: Image) -> tuple[Layer, ...] | None:
    """Return the layers, lowest first, or None if sizes can't be matched to layers.

    The engine lists the digests of layers without sizes, and the sizes of build steps without digests. Steps
    that made no layer are left out; the rest match if their number is the number of layers.
    """
    digests = facts_of(image).layers
    sizes = [step.size for step in _steps(image) if _made_a_layer(step)]
    if len(sizes) != len(digests):
        return None
    return tuple(Layer(digest, size) for digest, size in zip(digests, sizes, strict=True))


class _Step(msgspec.Struct, rename="pascal"):
    size: int
    created_by: str = ""


class _RootFs(msgspec.Struct, rename="pascal"):
    layers: list[str] | None = None


class Facts(msgspec.Struct, rename="pascal"):
    """What an engine says about an image, as far as it is read here. repo_digests: `NAME@DIGEST`."""

    root: _RootFs = msgspec.field(name="RootFS", default_factory=_RootFs)
    repo_digests: list[str] | None = None

    @property
    def layers(self) -> list[str]:
        """The diff_ids of the layers, lowest first."""
        return self.root.layers or []


def facts_of(image: Image) -> Facts:
    """Return what the engine says about an image. Raises ValidatorError if it can't be read."""
    return read(image.attrs, Facts, "an image")


def read(answer: object, kind: type[T], what: str) -> T:
    """Return an answer of an engine as a typed value. Raises ValidatorError if it can't be read."""
    try:
        return codec.convert(answer, kind)
    except DocumentError as error:
        raise ValidatorError(f"the engine's answer about {what} can't be read: {error}") from None


def _steps(image: Image) -> list[_Step]:
    """Return the history, oldest first."""
    return read(image.history(), list[_Step], "the history of an image")[::-1]


def _made_a_layer(step: _Step) -> bool:
    """Return True if a step of an image's history made a layer, even an empty one."""
    if step.size:
        return True
    # BuildKit writes `ENV A=1`, the older builder `/bin/sh -c #(nop)  ENV A=1`.
    words = step.created_by.partition("#(nop)")
    instruction = (words[2] or words[0]).split()[:1]
    return bool(instruction) and instruction[0] not in _CONFIGURATION


# Tell an image that was derived from one of this project from that image itself.


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
    history = _steps(image)
    steps = [step.created_by for step in history]
    own = [number for number, step in enumerate(steps) if step.startswith(f"{PROJECT}: ")]
    if not own or own[-1] == len(steps) - 1:
        return None
    layers = facts_of(image).layers[: sum(map(_made_a_layer, history[: own[-1] + 1]))]
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
        if (facts := facts_of(image)).layers == layers:
            known = [entry.partition("@")[2] for entry in facts.repo_digests or ()]
            return next(iter(known), str(image.id))
    return None
