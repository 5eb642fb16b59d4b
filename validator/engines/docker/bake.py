"""The bake file of one image: what `docker buildx bake` is asked to build, as JSON."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from ...model.lock import Lock
from ...model.spec import ImageSpec
from . import names
from .host_requirements import needs, tables

#: The name of the only target. (Bake allows no dots in one, so it can't be the identifier.)
TARGET = "image"
#: Every file and the image itself carry this time, so that the same inputs give the same digests.
SOURCE_DATE_EPOCH = 0


class Compression(str, Enum):
    """How layers are kept. NONE: by an engine whose older store keeps them unpacked."""

    ZSTD = "zstd"
    GZIP = "gzip"
    NONE = "none"


_OUTPUTS = {
    # The fastest level: a build waits longer for compression than for anything else.
    Compression.ZSTD: "type=image,compression=zstd,compression-level=1,oci-mediatypes=true",
    # Forced, since the layers are there as zstd already.
    Compression.GZIP: "type=image,compression=gzip,force-compression=true,oci-mediatypes=true",
    Compression.NONE: "type=docker",
}
_CACHE = "compression=zstd,oci-mediatypes=true,image-manifest=true,ignore-error=true"


@dataclass(frozen=True)
class Base:
    """Where an image starts from.

    reference: what the engine finds it by.
    origin: as records say it, `registry:python:3.12-slim-bookworm@sha256:…` or `bootstrap:bookworm`.
    name, digest: for the OCI labels; the digest is None where no registry gave one.
    """

    reference: str
    origin: str
    name: str
    digest: str | None = None


@dataclass(frozen=True)
class Order:
    """One image to build.

    tools: where NVIDIA's wheels are unpacked; the same for every image of an engine.
    requirements, uv, facts: directories, the build contexts of these names.
    secrets: id -> file.
    cache: where in a registry the layers of earlier builds are, and those of this one go.
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
    images: Path = names.IMAGES

    @property
    def reference(self) -> str:
        return names.image_reference(self.spec.identifier)


def bake_document(order: Order) -> dict[str, Any]:
    """The bake file of an order."""
    arguments = {
        "BASE": order.base.reference,
        "TOOLS": order.tools.reference,
        "PYTHON": order.spec.python,
        "SOURCE_DATE_EPOCH": str(SOURCE_DATE_EPOCH),
    }
    if found := needs(order.spec):
        arguments["NVIDIA_REQUIRE_CUDA"] = found.constraint
        if capability := found.compute_capability:
            arguments["VALIDATOR_COMPUTE_CAPABILITY"] = str(capability)
    target = {
        "context": str(order.images),
        "dockerfile": "Dockerfile",
        "target": order.spec.variant.value,
        "contexts": {
            "requirements": str(order.requirements),
            "uv": str(order.uv),
            "facts": str(order.facts),
        },
        "args": arguments,
        "labels": labels(order),
        "tags": [order.reference],
        "secret": [f"id={name},src={path}" for name, path in sorted(order.secrets.items())],
        # Steps see the network as the host's own pip does: proxies and indexes on localhost included.
        "network": "host",
        "output": [_OUTPUTS[order.compression]],
        # A provenance attestation would put the builder's address and the time into the image's digest.
        "attest": ["type=provenance,disabled=true"],
    }
    if order.cache:
        target["cache-from"] = [f"type=registry,ref={order.cache}"]
        # The image's own layers alone: those of the stages before it are the same bytes again. A cache that
        # can't be written costs the next build its time, and no build fails for it.
        target["cache-to"] = [f"type=registry,ref={order.cache},mode=min,{_CACHE}"]
    return {"target": {TARGET: target}}


def labels(order: Order) -> dict[str, str]:
    """OCI's labels and ours. None of them depends on the day or the builder."""
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
    if wanted := needs(spec):
        if wanted.driver:
            found[names.LABEL_DRIVER] = str(wanted.driver)
        if wanted.sass or wanted.ptx:
            found[names.LABEL_SASS] = " ".join(map(str, wanted.sass))
            found[names.LABEL_PTX] = " ".join(map(str, wanted.ptx))
    if order.base.digest:
        found["org.opencontainers.image.base.digest"] = order.base.digest
    return found


def recipe_digest(directory: Path = names.IMAGES) -> str:
    """`sha256:` over the Dockerfile, its scripts, and the facts that go into every image: an image made by an
    older recipe is not up to date."""
    digest = hashlib.sha256()
    scripts = [*(directory / "build").iterdir(), *(directory / "entrypoint").iterdir()]
    contents = {path.name: path.read_bytes() for path in [directory / "Dockerfile", *sorted(scripts)]}
    for name, content in {**contents, "tables": tables().encode()}.items():
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return f"sha256:{digest.hexdigest()}"
