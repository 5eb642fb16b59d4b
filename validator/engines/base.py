"""The small protocol behind which the engines stand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from ..model.lock import Lock
from ..model.record import Layer
from ..model.spec import ImageSpec

#: Told what is going on, one short line at a time, from any thread.
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Built:
    """An environment ready to be probed.

    reference: an image reference, or the path of an environment.
    digest: of the image's manifest (`sha256:…`), or None where there is no image.
    base: where the base came from, as one word and a name (`registry:python:3.12-slim-bookworm`,
        `bootstrap:bookworm`), or None.
    size: bytes on disk, as far as the engine tells.
    layers: of the image, lowest first, as far as the engine tells.
    engine_id: what the engine calls the image by, where that is not the digest.
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
    """What to run inside: the probe's zipapp, its arguments, and files to put beside it by name."""

    archive: bytes
    arguments: tuple[str, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)
    timeout_s: float = 600.0


class Engine(Protocol):
    """Builds an environment from a lock and runs the probe in it."""

    name: str

    def describe(self) -> str:
        """One line: what it is, and its version."""

    def provides(self, python: str) -> str | None:
        """None when it can provide this Python (`3.12`), else why it can't (`no python3.12 here`)."""

    def host_facts(self) -> dict[str, Any]:
        """Stable facts of the host behind the engine, cheap to ask: what a measurement depends on."""

    def existing(self, spec: ImageSpec, lock: Lock) -> Built | None:
        """What was built earlier from this very lock, if it is still there."""

    def build(self, spec: ImageSpec, lock: Lock, progress: Progress) -> Built:
        """Build. Raises BuildError when it does not build, MissingError when what it needs is not there."""

    def probe(self, built: Built, request: ProbeRequest, progress: Progress) -> bytes:
        """Run the probe inside and give back what it wrote to stdout: the report, as JSON.

        Raises ValidatorError when no report came.
        """

    def close(self) -> None:
        """Let go of connections."""


@runtime_checkable
class ImageEngine(Engine, Protocol):
    """An engine that builds images, which a registry can hold. References are `host/path:tag` and
    `host/path@sha256:…`; credentials are the engine's own."""

    def made_from(self, spec: ImageSpec, lock: Lock, labels: Mapping[str, str]) -> bool:
        """Whether an image with these labels is of this spec and this very lock."""

    def up_to_date(self, spec: ImageSpec, lock: Lock, labels: Mapping[str, str]) -> bool:
        """The same, and `build` would make nothing newer of it."""

    def push(self, built: Built, lock: Lock, reference: str, progress: Progress) -> Built:
        """Send an image and give it that tag there; what is answered has the digest that the registry holds.

        That is another image than the one given, of the same content, where the registry does not take its
        layers as they are. Raises MissingError when the registry does not take it.
        """

    def pull(self, spec: ImageSpec, lock: Lock, reference: str, progress: Progress) -> Built:
        """Take an image by its digest. Raises MissingError when the registry does not give it."""
