"""The engine that holds images and runs the probe in containers: Docker or Podman."""

from __future__ import annotations

import contextlib
import logging
import platform
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import requests
from docker.errors import DockerException, ImageNotFound
from docker.models.images import Image

from ...assemble.image import Assembler
from ...errors import BuildError
from ...model.measurement import Outside, Unread
from ...model.spec import LABEL_BASE, LABEL_LOCK, LABEL_RECIPE, LABEL_SPEC, ImageSpec, Lock, image_reference
from ...system.processes import Progress
from ..host_reading import read_host
from ..protocol import Built, ProbeRequest
from . import containers
from .containers import offers_gpus
from .endpoint import Endpoint, engine_gone
from .images import Derivation, derivation_of, layers_of, pull
from .load import load

logger = logging.getLogger(__name__)

_KERNEL_DRIVER = Path("/sys/module/nvidia/version")


class DockerEngine:
    """Holds images and runs the probe in one Docker or Podman. Methods may be called from any thread."""

    isolates = True

    def __init__(
        self,
        endpoint: Endpoint,
        maker: Assembler | None = None,
        host: Callable[[], Outside | Unread] = read_host,
    ) -> None:
        """maker: assembles images (None: this engine only runs images that exist).
        host: reads the driver and the GPUs of this machine.
        """
        self._read_host = host
        self._endpoint = endpoint
        self._client = endpoint.client
        self._maker = maker
        with self._answering("the engine"):
            if removed := containers.remove_leftovers(endpoint):
                logger.info("removed %d containers of a run that was killed", removed)

    @property
    def name(self) -> str:
        """`docker` or `podman`."""
        return self._endpoint.product.lower()

    def describe(self) -> str:
        gpus = "with GPUs" if offers_gpus(self._endpoint.info) else "no GPUs"
        return f"{self._endpoint.product} {self._endpoint.version}, {gpus}"

    def provides(self, python: str) -> str | None:
        return self._images.provides(python)

    def host_facts(self) -> dict[str, Any]:
        info = self._endpoint.info
        facts: dict[str, Any] = {
            "kernel": info.get("KernelVersion"),
            "machine": info.get("Architecture"),
            "gpus_offered": offers_gpus(info),
        }
        # Only the probe can find the driver of a remote engine.
        if facts["gpus_offered"] and self._endpoint.is_local:
            with contextlib.suppress(OSError):
                facts["driver"] = _KERNEL_DRIVER.read_text(encoding="ascii").strip()
        return facts

    def outside(self) -> Outside | Unread:
        info = self._endpoint.info
        if not offers_gpus(info):
            return Unread.NO_GPU_OFFERED
        if info.get("OperatingSystem") == "Docker Desktop":
            return Unread.VIRTUAL_MACHINE
        # A socket may be forwarded from another machine.
        if not self._endpoint.is_local or info.get("KernelVersion") != platform.release():
            return Unread.OTHER_MACHINE
        return self._read_host()

    def existing(self, spec: ImageSpec, lock: Lock) -> Built | None:
        found = self._existing(spec, lock)
        if found is not None:
            self._images.warn_if_moved(spec, found.base or "")
        return found

    def _existing(self, spec: ImageSpec, lock: Lock) -> Built | None:
        with self._answering(str(spec)):
            try:
                image = self._client.images.get(image_reference(spec.identifier))
            except ImageNotFound:
                return None
        # The engine's own images have the labels that `build` gave them. Those in a registry may have any.
        labels = image.labels
        is_current = (
            labels.get(LABEL_SPEC) == spec.identifier
            and labels.get(LABEL_LOCK) == lock.digest
            and labels.get(LABEL_RECIPE) == self._images.recipe(spec)
            and self._images.is_current_base(spec, labels.get(LABEL_BASE, ""))
        )
        if not is_current:
            return None
        with self._answering(str(spec)):
            return _built(spec, image)

    def build(self, spec: ImageSpec, lock: Lock, progress: Progress) -> Built:
        if (found := self.existing(spec, lock)) is not None:
            return found
        reference = image_reference(spec.identifier)
        load(self._endpoint, reference, lambda into: self._images.make(spec, lock, into, progress), progress)
        built = self._existing(spec, lock)
        if built is None:
            raise BuildError(
                f"{spec}: the engine does not have {reference}, which it has just received",
                hint="check if another process makes the same image from another lock",
            )
        return built

    def pull(self, spec: ImageSpec, lock: Lock, reference: str, progress: Progress) -> Built:
        pull(self._endpoint, reference, progress)
        with self._answering(reference):
            built = _built(spec, self._client.images.get(reference))
        digest = reference.partition("@")[2]
        return replace(
            built, reference=reference, lock_digest=lock.digest, digest=digest, engine_id=built.digest
        )

    def probe(self, built: Built, request: ProbeRequest, progress: Progress) -> bytes:
        return self.probe_image(built.engine_id or built.digest or built.reference, request, progress)

    def probe_image(self, image: str, request: ProbeRequest, progress: Progress) -> bytes:
        """Run the probe in any image that the engine has, given its name or digest.

        Raises the errors of `probe`, and InputError if the image has no Python.
        """
        return containers.run_probe(self._endpoint, image, request, progress)

    def made_from(self, image: str) -> tuple[str, str]:
        """Return the image spec and the digest of the lock in an image's labels; empty without them."""
        with self._answering(image):
            try:
                labels = self._client.images.get(image).labels
            except ImageNotFound:
                return "", ""
        return labels.get(LABEL_SPEC, ""), labels.get(LABEL_LOCK, "")

    def derivation(self, image: str) -> Derivation | None:
        """Return what an image was derived from, see `derivation_of`."""
        with self._answering(image):
            return derivation_of(self._client, image)

    @property
    def _images(self) -> Assembler:
        if self._maker is None:
            raise AssertionError("this engine only runs images that exist")
        return self._maker

    def close(self) -> None:
        self._client.close()
        self._endpoint.quick.close()

    @contextlib.contextmanager
    def _answering(self, what: str) -> Iterator[None]:
        """Raise MissingError if the engine stops responding. `what` begins the message."""
        try:
            yield
        except DockerException as error:
            # The SDK also derives the engine's own error answers from RequestException.
            if not self._endpoint.responds():
                raise engine_gone(what) from error
            raise
        except requests.RequestException as error:
            raise engine_gone(what) from error


def _built(spec: ImageSpec, image: Image) -> Built:
    return Built(
        spec=spec,
        reference=image_reference(spec.identifier),
        lock_digest=image.labels.get(LABEL_LOCK, ""),
        # With the containerd image store, the id is the digest of the manifest, otherwise of the
        # configuration.
        digest=image.id,
        base=image.labels.get(LABEL_BASE),
        size=image.attrs.get("Size"),
        layers=layers_of(image),
    )
