"""The engine for making images without running them: they go to an OCI layout or to a registry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..assemble.destinations import OciLayout
from ..assemble.image import Assembler
from ..assemble.progress import Progress
from ..errors import MissingError
from ..model.lock import Lock
from ..model.measurement import Outside, Unread
from ..model.record import Layer
from ..model.spec import ImageSpec
from ..registry.names import image_tag
from .probe_archive import local_host_facts
from .protocol import Built, ProbeRequest


class LayoutEngine:
    """Makes images without running them.

    directory: the OCI layout that they are written to, each under its tag; None if they only go to a
    registry.
    """

    name = "none"
    isolates = False

    def __init__(self, maker: Assembler, directory: Path | None = None) -> None:
        self._maker = maker
        self._directory = directory

    def describe(self) -> str:
        return "none: images are made but not run"

    def provides(self, python: str) -> str | None:
        return self._maker.provides(python)

    def host_facts(self) -> dict[str, Any]:
        return local_host_facts()

    def outside(self) -> Outside | Unread:
        return Unread.NO_GPU_OFFERED

    def existing(self, spec: ImageSpec, lock: Lock) -> Built | None:
        return None

    def build(self, spec: ImageSpec, lock: Lock, progress: Progress) -> Built:
        assert self._directory is not None
        tag = image_tag(spec)
        made = self._maker.make(spec, lock, OciLayout(self._directory, tag), progress)
        layers = tuple(Layer(layer.encoded.diff_id, layer.encoded.size) for layer in made.layers)
        size = sum(layer.size for layer in layers)
        return Built(
            spec, f"{self._directory}:{tag}", lock.digest, made.digest, made.base.origin, size, layers
        )

    def probe(self, built: Built, request: ProbeRequest, progress: Progress) -> bytes:
        raise MissingError(
            f"{built.spec} can't be measured: nothing runs images here",
            hint="leave out --oci on a machine with a Docker Engine, or push the image and measure it there"
            " with --pull-from",
        )

    def close(self) -> None:
        """Do nothing: there are no connections."""
