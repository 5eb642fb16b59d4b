"""The Docker engine, which builds images with BuildKit and runs the probe in containers."""

from __future__ import annotations

import contextlib
import logging
import platform
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import requests
from docker.errors import DockerException, ImageNotFound
from docker.models.images import Image

from ...assemble import names
from ...assemble.progress import Progress
from ...errors import BuildError, MissingError
from ...model.lock import Lock
from ...model.measurement import Outside, Unread
from ...model.spec import ImageSpec
from ...system.sources import PackageSources
from ..base import Built, ProbeRequest
from ..host_reading import read_host
from . import build, containers, transfer
from .bake import Compression, recipe_digest
from .bases import BasePolicy, Bases
from .derived import Derivation, derivation_of
from .endpoint import Endpoint, connect
from .failures import engine_gone
from .gpus import offers_gpus
from .layers import layers_of
from .transfer import ZstdRefused

logger = logging.getLogger(__name__)

_KERNEL_DRIVER = Path("/sys/module/nvidia/version")


class DockerEngine:
    """Builds images and runs the probe in one Docker Engine. Methods may be called from any thread."""

    name = "docker"
    isolates = True

    def __init__(
        self,
        endpoint: Endpoint,
        sources: PackageSources,
        base_policy: BasePolicy = BasePolicy.AUTO,
        cache: str | None = None,
        host: Callable[[], Outside | Unread] = read_host,
    ) -> None:
        """cache: a repository (`host/path`) for the layers of builds, for engines without a local cache.
        host: reads the driver and the GPUs of this machine.
        """
        self._read_host = host
        if cache and not endpoint.has_image_store:
            raise MissingError(
                "--cache needs an engine that stores images with containerd",
                hint='enable "containerd-snapshotter" in /etc/docker/daemon.json, or run without --cache',
            )
        self._endpoint = endpoint
        self._client = endpoint.client
        self._sources = sources
        self._cache = cache
        self._bases = Bases(endpoint.client, endpoint.quick, base_policy)
        with self._answering("the engine"):
            if removed := containers.remove_leftovers(self._client, endpoint.info):
                logger.info("removed %d containers of a run that was killed", removed)

    def describe(self) -> str:
        gpus = "with GPUs" if offers_gpus(self._endpoint.info) else "no GPUs"
        buildx = ".".join(str(part) for part in self._endpoint.buildx.version)
        return f"Docker {self._endpoint.version}, buildx {buildx}, {gpus}"

    def provides(self, python: str) -> str | None:
        return self._bases.provides(python)

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
        with self._answering(str(spec)):
            try:
                image = self._client.images.get(names.image_reference(spec.identifier))
            except ImageNotFound:
                return None
        if not self._is_current(spec, lock, image.labels):
            return None
        with self._answering(str(spec)):
            return _built(spec, image)

    def recipe(self) -> str:
        return recipe_digest()

    def is_current_base(self, spec: ImageSpec, origin: str) -> bool:
        return self._bases.is_current(spec, origin)

    def _is_current(self, spec: ImageSpec, lock: Lock, labels: Mapping[str, str]) -> bool:
        """Return True if an image of this engine with these labels need not be built again.

        The engine's own images have the labels that `build` gave them. Those in a registry may have any.
        """
        return (
            labels.get(names.LABEL_SPEC) == spec.identifier
            and labels.get(names.LABEL_LOCK) == lock.digest
            and labels.get(names.LABEL_RECIPE) == self.recipe()
            and self.is_current_base(spec, labels.get(names.LABEL_BASE, ""))
        )

    def build(self, spec: ImageSpec, lock: Lock, progress: Progress) -> Built:
        return self._build(spec, lock, progress, Compression.ZSTD)

    def _build(self, spec: ImageSpec, lock: Lock, progress: Progress, compression: Compression) -> Built:
        with self._answering(str(spec)):
            base = self._bases.base(spec, progress)
            tools = self._bases.tools(progress)
        # The older image store unpacks layers.
        stored = compression if self._endpoint.has_image_store else Compression.NONE
        cache = names.cache_reference(self._cache, spec.identifier) if self._cache else None
        with build.order_files(spec, lock, base, tools, self._sources, stored, cache) as order:
            build.bake(order, self._endpoint.buildx, self._sources, progress, self.answers)
        built = self.existing(spec, lock)
        if built is None:
            raise BuildError(
                f"{spec}: buildx reported success, but the engine does not have {order.reference}",
                hint="check if another process builds the same image from another lock",
            )
        return built

    def push(self, built: Built, lock: Lock, reference: str, progress: Progress) -> Built:
        try:
            return self._push(built, reference, progress)
        except ZstdRefused as refused:
            if not self._endpoint.has_image_store:
                raise
            progress(f"building again with gzip layers: {refused}")
        return self._push(self._build(built.spec, lock, progress, Compression.GZIP), reference, progress)

    def _push(self, built: Built, reference: str, progress: Progress) -> Built:
        image_id = built.engine_id or built.digest
        with self._answering(reference):
            try:
                image = self._client.images.get(str(image_id))
            except ImageNotFound as error:
                raise MissingError(
                    f"{built.spec}: the engine no longer has its image {image_id}",
                    hint="another run may have built it again; run the same command again",
                ) from error
            had = reference in image.tags
            image.tag(reference)
        try:
            digest = transfer.push(self._endpoint.docker, reference, progress, self.answers)
        finally:
            if not had:
                with contextlib.suppress(DockerException, requests.RequestException):
                    # Somebody else may have given the name to another image since.
                    if self._client.images.get(reference).id == image.id:
                        self._client.images.remove(reference, noprune=True)
        return replace(built, digest=digest, engine_id=image_id)

    def pull(self, spec: ImageSpec, lock: Lock, reference: str, progress: Progress) -> Built:
        transfer.pull(self._endpoint.docker, reference, progress, self.answers)
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
        return containers.run_probe(self._client, self._endpoint.info, image, request, progress)

    def derivation(self, image: str) -> Derivation | None:
        """Return what an image was derived from, see `derivation_of`."""
        with self._answering(image):
            return derivation_of(self._client, image)

    def answers(self) -> bool:
        """Return True if the engine still responds."""
        try:
            return bool(self._endpoint.quick.ping())
        except (DockerException, requests.RequestException):
            return False

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
            if not self.answers():
                raise engine_gone(what) from error
            raise
        except requests.RequestException as error:
            raise engine_gone(what) from error


def find(
    sources: PackageSources, base_policy: BasePolicy = BasePolicy.AUTO, cache: str | None = None
) -> DockerEngine:
    """Return the Docker Engine that the Docker command line would use.

    Raises MissingError with the reason in one line: no socket, no permission, too old, no buildx.
    """
    return DockerEngine(connect(), sources, base_policy, cache)


def _built(spec: ImageSpec, image: Image) -> Built:
    return Built(
        spec=spec,
        reference=names.image_reference(spec.identifier),
        lock_digest=image.labels.get(names.LABEL_LOCK, ""),
        # With the containerd image store, the id is the digest of the manifest, otherwise of the
        # configuration.
        digest=image.id,
        base=image.labels.get(names.LABEL_BASE),
        size=image.attrs.get("Size"),
        layers=layers_of(image),
    )
