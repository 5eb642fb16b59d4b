"""Make the image of a spec and its lock: find its base, plan its layers, and put it at a destination."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from ..model.lock import Lock
from ..model.spec import ImageSpec
from ..registry.names import Repository
from .base import Base
from .base_finder import Bases
from .bytecode import CompiledWheels, Runner
from .destinations import Destination
from .image import Assembled, assemble
from .layer_sources import plan_image, recipe_digest
from .layer_table import LayerTable
from .progress import Progress
from .wheels import Wheelhouse

logger = logging.getLogger(__name__)


class ImageMaker(Protocol):
    """Makes images. Methods may be called from any thread."""

    def provides(self, python: str) -> str | None:
        """Return None if there is a base with this Python (`3.12`), otherwise the reason why not."""

    def recipe(self, spec: ImageSpec) -> str:
        """Return the digest of everything but the lock and the base that decides what is in an image."""

    def is_current_base(self, spec: ImageSpec, origin: str) -> bool:
        """Return True if `make` would use this base, which is named as in `Base.origin`."""

    def warn_if_moved(self, spec: ImageSpec, origin: str) -> None:
        """Warn, once for each image, if the base is named without a digest and now is another image.

        origin: of the base that the image has, as in `Base.origin`. This may ask a registry.
        """

    def base_repository(self, spec: ImageSpec) -> Repository | None:
        """Return the repository that the base of an image spec is read from, if it can be in a registry."""

    def make(self, spec: ImageSpec, lock: Lock, destination: Destination, progress: Progress) -> Assembled:
        """Put the image at its destination, making only the layers that are not there.

        Raises BuildError if it can't be made, MissingError if something that it needs is missing, and the
        destination's errors.
        """


@dataclass(frozen=True)
class Assembler:
    """Makes images from bases and wheels, on this machine.

    runner: returns what runs the Python of a base, to compile byte code; None if nothing can.
    accept: called with the size of an image in bytes, as a pull downloads it, and True if that is all of it:
        whenever more of the size is known, and before the image gets its name.
    """

    bases: Bases
    wheels: Wheelhouse
    table: LayerTable
    runner: Callable[[Base], Runner | None]
    accept: Callable[[ImageSpec, Lock, int, bool], None] = lambda spec, lock, size, is_whole: None
    _compiled: CompiledWheels = field(default_factory=CompiledWheels)

    def provides(self, python: str) -> str | None:
        return self.bases.provides(python)

    def recipe(self, spec: ImageSpec) -> str:
        return recipe_digest(spec.variant)

    def is_current_base(self, spec: ImageSpec, origin: str) -> bool:
        return self.bases.is_current(spec, origin)

    def warn_if_moved(self, spec: ImageSpec, origin: str) -> None:
        self.bases.warn_if_moved(spec, origin)

    def base_repository(self, spec: ImageSpec) -> Repository | None:
        return self.bases.repository(spec)

    def make(self, spec: ImageSpec, lock: Lock, destination: Destination, progress: Progress) -> Assembled:
        base = self.bases.base(spec, progress)
        runner = self.runner(base)
        if runner is None:
            # A line of progress would soon be replaced by the next one.
            logger.warning(
                "%s gets no byte code, so its imports take longer: neither a Docker Engine nor bubblewrap can"
                " run the base's Python here",
                spec,
            )
        plan = plan_image(spec, lock, base, self.wheels, self.table, runner, self._compiled)
        return assemble(
            plan,
            destination,
            self.table,
            progress,
            fetch=lambda needed: self.wheels.fetch(needed, progress),
            accept=lambda size, is_whole: self.accept(spec, lock, size, is_whole),
        )
