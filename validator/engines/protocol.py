"""The protocol that all engines implement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from ..model.measurement import Outside, Unread
from ..model.record import Layer
from ..model.spec import ImageSpec, Lock
from ..system.processes import Progress


@dataclass(frozen=True)
class Built:
    """An environment that is ready for the probe.

    reference: an image reference, or the path of an environment.
    digest: the digest of the image's manifest (`sha256:…`), or None if this is not an image.
    base: the origin of the base image (`registry:python:3.12-slim-bookworm`, `bootstrap:bookworm@…`), or
    None. size: the size on disk in bytes, or None if unknown. layers: the layers of the image, lowest first,
    or None if unknown. engine_id: the engine's own identifier of the image, if that is not the digest.
    """

    spec: ImageSpec
    reference: str
    lock_digest: str
    digest: str | None = None
    base: str | None = None
    size: int | None = None
    layers: tuple[Layer, ...] | None = None
    engine_id: str | None = None


@dataclass(frozen=True)
class ProbeRequest:
    """A run of the probe: its zipapp, its arguments, and the files to put next to it, by name.

    gpus: the UUIDs of the GPUs that a container gets; empty for all that the engine offers.
    """

    archive: bytes
    arguments: tuple[str, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)
    timeout_s: float = 600.0
    gpus: tuple[str, ...] = ()


class Engine(Protocol):
    """Builds an environment from a lock and runs the probe in it."""

    @property
    def name(self) -> str:
        """Return `docker`, `podman`, `venv` or `layout`."""

    #: The probe runs in a container: it can't reach this machine's files or keys, and it gets only the GPUs
    #: that the request names. Only such measurements are signed.
    isolates: bool

    def describe(self) -> str:
        """Return the name and version, then details, separated by commas (`Docker 28.5.2, no GPUs`)."""

    def provides(self, python: str) -> str | None:
        """Return None if the engine can provide this Python (`3.12`), otherwise the reason why not."""

    def host_facts(self) -> dict[str, Any]:
        """Return the stable facts about the engine's host that a measurement depends on. This is fast."""

    def outside(self) -> Outside | Unread:
        """Return the driver and the GPUs that it offers to the probe, read on the host, outside the
        environment; or why they can't be read. This may take seconds.
        """

    def existing(self, spec: ImageSpec, lock: Lock) -> Built | None:
        """Return what was built earlier from exactly this lock, or None if it no longer exists."""

    def build(self, spec: ImageSpec, lock: Lock, progress: Progress) -> Built:
        """Build the environment. Raises BuildError if that fails, MissingError if something it needs is
        missing.
        """

    def probe(self, built: Built, request: ProbeRequest, progress: Progress) -> bytes:
        """Run the probe in the environment and return its standard output: the report, as JSON.

        Raises ValidatorError if there is no report.
        """

    def close(self) -> None:
        """Close connections."""


@runtime_checkable
class ImageEngine(Engine, Protocol):
    """An engine that runs images. It pulls with its own credentials.

    References are `host/path@sha256:…`.
    """

    def pull(self, spec: ImageSpec, lock: Lock, reference: str, progress: Progress) -> Built:
        """Pull an image by its digest. Raises MissingError if that fails."""
