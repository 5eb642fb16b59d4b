"""The docker engine: images by BuildKit, probes in containers."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import requests
from docker.errors import DockerException, ImageNotFound
from docker.models.images import Image

from ...errors import BuildError, MissingError, ValidatorError
from ...model.lock import Lock
from ...model.spec import ImageSpec
from ...system.sources import PackageSources
from ..base import Built, ProbeRequest, Progress
from . import build, containers, names, transfer
from .bake import Compression, recipe_digest
from .bases import BasePolicy, Bases
from .endpoint import Endpoint, connect
from .failures import engine_gone
from .gpus import offers_gpus
from .layers import layers_of
from .transfer import ZstdRefused

logger = logging.getLogger(__name__)

_KERNEL_DRIVER = Path("/sys/module/nvidia/version")


class DockerEngine:
    """Builds images and runs the probe in one Docker Engine. Several threads may call its methods."""

    name = "docker"

    def __init__(
        self,
        endpoint: Endpoint,
        sources: PackageSources,
        base_policy: BasePolicy = BasePolicy.AUTO,
        cache: str | None = None,
    ) -> None:
        """cache: a repository (`host/path`) that keeps the layers of builds, for engines that have none."""
        if cache and not endpoint.has_image_store:
            raise MissingError(
                "a cache in a registry needs an engine that keeps images with containerd",
                hint='turn on "containerd-snapshotter" in /etc/docker/daemon.json, or leave out --cache',
            )
        self._endpoint = endpoint
        self._client = endpoint.client
        self._sources = sources
        self._policy = base_policy
        self._cache = cache
        self._bases = Bases(endpoint.client, endpoint.quick, base_policy)
        with self._answering("the engine"):
            if removed := containers.remove_leftovers(self._client):
                logger.info("removed %d containers that a killed run had left", removed)

    def describe(self) -> str:
        gpus = "with GPUs" if offers_gpus(self._endpoint.info) else "without GPUs"
        buildx = ".".join(str(part) for part in self._endpoint.buildx.version)
        return f"Docker Engine {self._endpoint.version}, buildx {buildx}, {gpus}"

    def provides(self, python: str) -> str | None:
        return self._bases.provides(python)

    def host_facts(self) -> dict[str, Any]:
        info = self._endpoint.info
        facts: dict[str, Any] = {
            "kernel": info.get("KernelVersion"),
            "machine": info.get("Architecture"),
            "gpus_offered": offers_gpus(info),
        }
        # A remote engine's driver is known only to the probe.
        if facts["gpus_offered"] and self._endpoint.is_local:
            with contextlib.suppress(OSError):
                facts["driver"] = _KERNEL_DRIVER.read_text(encoding="ascii").strip()
        return facts

    def existing(self, spec: ImageSpec, lock: Lock) -> Built | None:
        with self._answering(str(spec)):
            try:
                image = self._client.images.get(names.image_reference(spec.identifier))
            except ImageNotFound:
                return None
        if not self.up_to_date(spec, lock, image.labels):
            return None
        with self._answering(str(spec)):
            return _built(spec, image)

    def made_from(self, spec: ImageSpec, lock: Lock, labels: Mapping[str, str]) -> bool:
        return labels.get(names.LABEL_SPEC) == spec.identifier and labels.get(names.LABEL_LOCK) == lock.digest

    def up_to_date(self, spec: ImageSpec, lock: Lock, labels: Mapping[str, str]) -> bool:
        origin = labels.get(names.LABEL_BASE, "")
        wanted = self._policy is BasePolicy.AUTO or origin.startswith(f"{self._policy.value}:")
        same_recipe = labels.get(names.LABEL_RECIPE) == recipe_digest()
        return wanted and same_recipe and self.made_from(spec, lock, labels)

    def build(self, spec: ImageSpec, lock: Lock, progress: Progress) -> Built:
        return self._build(spec, lock, progress, Compression.ZSTD)

    def _build(self, spec: ImageSpec, lock: Lock, progress: Progress, compression: Compression) -> Built:
        with self._answering(str(spec)):
            base = self._bases.base(spec, progress)
            tools = self._bases.tools(progress)
        # The older store keeps layers unpacked.
        kept = compression if self._endpoint.has_image_store else Compression.NONE
        cache = names.cache_reference(self._cache, spec.identifier) if self._cache else None
        with build.order_files(spec, lock, base, tools, self._sources, kept, cache) as order:
            build.bake(order, self._endpoint.buildx, self._sources, progress, self.answers)
        built = self.existing(spec, lock)
        if built is None:
            raise BuildError(
                f"{spec}: buildx says that it built {order.reference}, but the engine has no such image",
                hint="look whether another process builds the same image from another lock",
            )
        return built

    def push(self, built: Built, lock: Lock, reference: str, progress: Progress) -> Built:
        try:
            return self._push(built, reference, progress)
        except ZstdRefused as refused:
            if not self._endpoint.has_image_store:
                raise
            progress(f"building with gzip layers: {refused}")
        return self._push(self._build(built.spec, lock, progress, Compression.GZIP), reference, progress)

    def _push(self, built: Built, reference: str, progress: Progress) -> Built:
        image_id = built.engine_id or built.digest
        with self._answering(reference):
            try:
                image = self._client.images.get(str(image_id))
            except ImageNotFound as error:
                raise MissingError(
                    f"{built.spec}: the engine has its image {image_id} no more",
                    hint="another run may have built it anew; run the same command again",
                ) from error
            had = reference in image.tags
            image.tag(reference)
        try:
            digest = transfer.push(self._endpoint.docker, reference, progress, self.answers)
        finally:
            if not had:
                with contextlib.suppress(DockerException, requests.RequestException):
                    self._client.images.remove(reference, noprune=True)
        return replace(built, digest=digest, engine_id=image_id)

    def pull(self, spec: ImageSpec, lock: Lock, reference: str, progress: Progress) -> Built:
        transfer.pull(self._endpoint.docker, reference, progress, self.answers)
        with self._answering(reference):
            built = _built(spec, self._client.images.get(reference))
        if built.lock_digest != lock.digest:
            raise ValidatorError(
                f"{reference} was built from the lock {built.lock_digest}, not {lock.digest}"
            )
        digest = reference.partition("@")[2]
        return replace(built, reference=reference, digest=digest, engine_id=built.digest)

    def probe(self, built: Built, request: ProbeRequest, progress: Progress) -> bytes:
        return self.probe_image(built.engine_id or built.digest or built.reference, request, progress)

    def probe_image(self, image: str, request: ProbeRequest, progress: Progress) -> bytes:
        """Run the probe in any image that the engine has, by name or digest; ours or not.

        Raises as `probe` does, and InputError when there is no Python in the image.
        """
        return containers.run_probe(self._client, self._endpoint.info, image, request, progress)

    def answers(self) -> bool:
        """Whether the engine still does."""
        try:
            return bool(self._endpoint.quick.ping())
        except (DockerException, requests.RequestException):
            return False

    def close(self) -> None:
        self._client.close()
        self._endpoint.quick.close()

    @contextlib.contextmanager
    def _answering(self, what: str) -> Iterator[None]:
        """Name an engine that stops answering in the middle."""
        try:
            yield
        except DockerException as error:
            # An answer of the engine's, which the SDK derives from the one below as well.
            if not self.answers():
                raise engine_gone(what) from error
            raise
        except requests.RequestException as error:
            raise engine_gone(what) from error


def find(
    sources: PackageSources, base_policy: BasePolicy = BasePolicy.AUTO, cache: str | None = None
) -> DockerEngine:
    """The Docker Engine that the Docker command line would use.

    Raises MissingError that says in one line why there is none that can be used: no socket, no permission,
    too old, no buildx.
    """
    return DockerEngine(connect(), sources, base_policy, cache)


def _built(spec: ImageSpec, image: Image) -> Built:
    return Built(
        spec=spec,
        reference=names.image_reference(spec.identifier),
        lock_digest=image.labels.get(names.LABEL_LOCK, ""),
        # With the containerd image store the id is the manifest's digest, else the configuration's.
        digest=image.id,
        base=image.labels.get(names.LABEL_BASE),
        size=image.attrs.get("Size"),
        layers=layers_of(image),
    )
