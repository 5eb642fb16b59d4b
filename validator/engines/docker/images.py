"""The images of an engine, and the layers of an image with their sizes."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

import docker
from docker.errors import ImageNotFound
from docker.models.images import Image

from ...model.record import Layer

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
    digests = image.attrs.get("RootFS", {}).get("Layers") or []
    sizes = [int(step["Size"]) for step in reversed(image.history()) if made_a_layer(step)]
    if len(sizes) != len(digests):
        return None
    return tuple(Layer(str(digest), size) for digest, size in zip(digests, sizes, strict=True))


def made_a_layer(step: Mapping[str, object]) -> bool:
    """Return True if a step of an image's history made a layer, even an empty one."""
    if step["Size"]:
        return True
    # BuildKit writes `ENV A=1`, the older builder `/bin/sh -c #(nop)  ENV A=1`.
    words = str(step.get("CreatedBy") or "").partition("#(nop)")
    instruction = (words[2] or words[0]).split()[:1]
    return bool(instruction) and instruction[0] not in _CONFIGURATION
