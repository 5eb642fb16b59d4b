"""The bake file of one image: the input of `docker buildx bake`, as JSON."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from ...assemble import names
from ...assemble.host_requirements import host_requirements, tables
from ...model.lock import Lock
from ...model.spec import ImageSpec
from ...resources import images_directory

#: The name of the only target. It can't be the image's identifier, because bake rejects dots.
TARGET = "image"
#: The time of every file and of the image itself, so that the same inputs give the same digests.
SOURCE_DATE_EPOCH = 0
_IMAGES = images_directory()


class Compression(str, Enum):
    """The compression of layers. NONE: for an engine with the older image store, which unpacks them."""

    ZSTD = "zstd"
    GZIP = "gzip"
    NONE = "none"


_OUTPUTS = {
    # The fastest level, because compression takes longer than any other part of a build.
    Compression.ZSTD: "type=image,compression=zstd,compression-level=1,oci-mediatypes=true",
    # Forced, because the layers exist already, with zstd compression.
    Compression.GZIP: "type=image,compression=gzip,force-compression=true,oci-mediatypes=true",
    Compression.NONE: "type=docker",
}
_CACHE = "compression=zstd,oci-mediatypes=true,image-manifest=true,ignore-error=true"


@dataclass(frozen=True)
class Base:
    """The base image of an image.

    reference: the engine's reference of it.
    origin: `registry:python:3.12-slim-bookworm@sha256:…` or `bootstrap:bookworm@sha256:…`, as in records.
    name, digest: for the OCI labels; the digest is None if the base is not from a registry.
    """

    reference: str
    origin: str
    name: str
    digest: str | None = None


@dataclass(frozen=True)
class Order:
    """One image to build.

    tools: the base in which NVIDIA's wheels are unpacked; the same for all images of an engine.
    requirements, uv, facts: the directories of the build contexts with these names.
    secrets: id -> file.
    cache: the registry reference to read cached layers from, and to write them to.
    """

    spec: ImageSpec
    lock: Lock
    base: Base
    tools: Base
    requirements: Path
    uv: Path
    facts: Path
    secrets: Mapping[str, Path]
    compression: Compression = Compression.ZSTD
    cache: str | None = None
    images: Path = _IMAGES

    @property
    def reference(self) -> str:
        return names.image_reference(self.spec.identifier)


def bake_document(order: Order) -> dict[str, Any]:
    """Return the bake file for an order."""
    arguments = {
        "BASE": order.base.reference,
        "TOOLS": order.tools.reference,
        "PYTHON": order.spec.python,
        "SOURCE_DATE_EPOCH": str(SOURCE_DATE_EPOCH),
    }
    if found := host_requirements(order.spec):
        arguments["NVIDIA_REQUIRE_CUDA"] = found.constraint
        if capability := found.compute_capability:
            arguments["VALIDATOR_COMPUTE_CAPABILITY"] = str(capability)
    target = {
        "context": str(order.images),
        "dockerfile": "Dockerfile",
        "target": "gpu" if order.spec.variant.has_cuda else "cpu",
        "contexts": {
            "requirements": str(order.requirements),
            "uv": str(order.uv),
            "facts": str(order.facts),
        },
        "args": arguments,
        "labels": labels(order),
        "tags": [order.reference],
        "secret": [f"id={name},src={path}" for name, path in sorted(order.secrets.items())],
        # Build steps use the host's network, like pip on the host, including proxies and indexes on
        # localhost.
        "network": "host",
        "output": [_OUTPUTS[order.compression]],
        # With a provenance attestation, the image's digest would depend on the builder and the time.
        "attest": ["type=provenance,disabled=true"],
    }
    if order.cache:
        target["cache-from"] = [f"type=registry,ref={order.cache}"]
        # Only the image's own layers, which have the same bytes as those of the other stages. If the cache
        # can't be written, the next build takes longer, but no build fails.
        target["cache-to"] = [f"type=registry,ref={order.cache},mode=min,{_CACHE}"]
    return {"target": {TARGET: target}}


def labels(order: Order) -> dict[str, str]:
    """Return the OCI labels and this project's own. None of them depends on the time or the builder."""
    spec = order.spec
    parts = [f"TensorFlow {spec.tensorflow}"]
    if spec.cuda and spec.cudnn:
        parts.append(f"CUDA {spec.cuda.version}, cuDNN {spec.cudnn.version}")
    parts.append(f"Python {spec.python}")
    found = {
        "org.opencontainers.image.title": spec.identifier,
        "org.opencontainers.image.description": ", ".join(parts),
        "org.opencontainers.image.version": spec.tensorflow,
        "org.opencontainers.image.base.name": order.base.name,
        names.LABEL_SPEC: spec.identifier,
        names.LABEL_LOCK: order.lock.digest,
        names.LABEL_BASE: order.base.origin,
        names.LABEL_RECIPE: recipe_digest(order.images),
        names.LABEL_TENSORFLOW: spec.tensorflow,
        names.LABEL_PYTHON: spec.python,
    }
    if spec.cuda and spec.cudnn:
        found |= {names.LABEL_CUDA: spec.cuda.version, names.LABEL_CUDNN: spec.cudnn.version}
    if wanted := host_requirements(spec):
        if wanted.driver:
            found[names.LABEL_DRIVER] = str(wanted.driver)
        if wanted.sass or wanted.ptx:
            found[names.LABEL_SASS] = " ".join(map(str, wanted.sass))
            found[names.LABEL_PTX] = " ".join(map(str, wanted.ptx))
    if order.base.digest:
        found["org.opencontainers.image.base.digest"] = order.base.digest
    return found


def recipe_digest(directory: Path = _IMAGES) -> str:
    """Return the SHA-256 digest of the Dockerfile, its scripts, the pinned uv, and the facts in every image.

    An image with another recipe digest is not up to date.
    """
    digest = hashlib.sha256()
    files = [directory / "Dockerfile", directory / "uv.txt"]
    scripts = [*(directory / "build").iterdir(), *(directory / "entrypoint").iterdir()]
    contents = {path.name: path.read_bytes() for path in [*files, *sorted(scripts)]}
    for name, content in {**contents, "tables": tables().encode()}.items():
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return f"sha256:{digest.hexdigest()}"
