"""The layer with the entry point, which checks the host's driver before the container's command starts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from .. import resources
from .entries import Entry, InMemory
from .host_requirements import tables
from .layers import LayerSource
from .merge import merged

_DIRECTORY = "opt/tensorflow-gpu-matrix"
#: The path of the program in the image.
START = f"/{_DIRECTORY}/start"


def entry_point() -> LayerSource:
    """Return the layer. It is the same in all images with CUDA."""
    start = (resources.images_directory() / "entrypoint" / "start").read_bytes()
    facts = tables().encode()

    def entries() -> Iterable[Entry]:
        files = [
            Entry(f"{_DIRECTORY}/start", 0o755, InMemory(start)),
            Entry(f"{_DIRECTORY}/tables", 0o644, InMemory(facts)),
        ]
        return merged([("entry point", files)])

    digests = [hashlib.sha256(content).hexdigest() for content in (start, facts)]
    return LayerSource("entry point", ("entry point 1", *digests), entries)
