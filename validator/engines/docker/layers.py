"""The layers of an image, with their sizes."""

from __future__ import annotations

from docker.models.images import Image

from ...model.record import Layer

#: Instructions that change an image's configuration and no file.
_CONFIGURATION = (
    *("ARG", "CMD", "ENTRYPOINT", "ENV", "EXPOSE", "HEALTHCHECK", "LABEL"),
    *("MAINTAINER", "ONBUILD", "SHELL", "STOPSIGNAL", "USER", "VOLUME"),
)


def layers_of(image: Image) -> tuple[Layer, ...] | None:
    """Lowest first; None where the engine's history does not tell whose size is whose.

    The engine lists digests without sizes, and sizes, among those of steps that made no layer, without
    digests. The two belong together when there are as many of the one as of the other.
    """
    digests = image.attrs.get("RootFS", {}).get("Layers") or []
    sizes = [int(step["Size"]) for step in reversed(image.history()) if _made_a_layer(step)]
    if len(sizes) != len(digests):
        return None
    return tuple(Layer(str(digest), size) for digest, size in zip(digests, sizes, strict=True))


def _made_a_layer(step: dict[str, object]) -> bool:
    if step["Size"]:
        return True
    # As BuildKit writes it (`ENV A=1`), and the older builder (`/bin/sh -c #(nop)  ENV A=1`).
    words = str(step.get("CreatedBy") or "").partition("#(nop)")
    instruction = (words[2] or words[0]).split()[:1]
    return bool(instruction) and instruction[0] not in _CONFIGURATION
