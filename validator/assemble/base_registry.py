"""Bases from an OCI registry, by digest, without an engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from ..errors import InputError, MissingError
from ..registry.blobs import Blobs
from ..registry.client import Registry
from ..registry.documents import LARGEST_CONFIG, PLATFORM, Manifest
from ..registry.names import Repository, is_digest
from .base import Base, BaseLayer, oci_type, read_base
from .layer_table import LayerTable
from .layers import Encoded

_RECIPE = "base of a registry 1"


@dataclass(frozen=True)
class ImageName:
    """The name of an image as people write it: `python:3.12-slim` is `docker.io/library/python:3.12-slim`.

    plain: as written, without the digest.
    """

    plain: str
    repository: Repository
    tag: str
    digest: str | None

    @classmethod
    def parse(cls, text: str) -> ImageName:
        """Parse `[HOST/]NAME[:TAG][@DIGEST]`. Raises InputError for anything else."""
        plain, at, digest = text.partition("@")
        if at and not is_digest(digest):
            raise InputError(f"{text!r} is not the name of an image: its digest is not a SHA-256 digest")
        path, colon, tag = plain.rpartition(":")
        if not colon or "/" in tag:
            path, tag = plain, "latest"
        host, slash, rest = path.partition("/")
        if not slash or not ("." in host or ":" in host or host == "localhost"):
            host, rest = "docker.io", path if slash else f"library/{path}"
        repository = Repository.parse(f"{host}/{rest}")
        repository.tagged(tag)
        return cls(plain, repository, tag, digest or None)


def registry_base(name: ImageName, python: str, table: LayerTable) -> Base:
    """Return a base from its registry. A digest that was read before is not asked for again.

    Raises MissingError if the registry can't be reached or does not have it, AlteredError if it sends
    something else, and InputError if the base lacks something that an image needs.
    """
    digest = name.digest or tag_digest(name)
    found = table.facts(f"{_RECIPE} {digest}", lambda: _read(Registry(name.repository), digest))
    config, layers = found["config"], found["layers"]
    assert isinstance(config, dict) and isinstance(layers, list)
    blobs = Blobs.to_read(name.repository)
    described = tuple(
        BaseLayer(diff_id, Encoded(one, size, diff_id, kind), partial(blobs.read, one, size))
        for one, size, diff_id, kind in layers
    )
    origin = f"registry:{name.plain}@{digest}"
    return read_base(origin, name.plain, digest, config, described, python, table)


def tag_digest(name: ImageName) -> str:
    """Return the digest that a name has in its registry now. Raises MissingError."""
    digest = Registry(name.repository).digest_of(name.tag)
    if digest is None:
        raise _missing(name.repository.tagged(name.tag))
    return digest


def _read(registry: Registry, digest: str) -> Mapping[str, object]:
    """Return the configuration and the layers: digest, size, diff_id and OCI media type of each."""
    reference = registry.repository.at(digest)
    manifest = registry.manifest(digest)
    if manifest is not None and manifest.manifests is not None:
        entry = manifest.for_platform()
        if entry is None:
            raise InputError(f"the base image {reference} is not for {'/'.join(PLATFORM)}")
        reference = registry.repository.at(entry.digest)
        manifest = registry.manifest(entry.digest)
    if manifest is None:
        raise _missing(reference)
    config, diff_ids = read_config(registry, manifest, f"the base image {reference}")
    return {
        "config": config,
        "layers": [
            [layer.digest, layer.size, diff_id, oci_type(layer.media_type)]
            for layer, diff_id in zip(manifest.layers or (), diff_ids, strict=True)
        ],
    }


def read_config(registry: Registry, manifest: Manifest, what: str) -> tuple[dict[str, Any], list[str]]:
    """Return the configuration of an image, and the diff_ids of its layers.

    what: the image, which begins each message. Raises InputError if it is not an image of one platform.
    """
    if manifest.config is None or manifest.layers is None or manifest.config.size > LARGEST_CONFIG:
        raise InputError(f"{what} is not an image of one platform")
    content = registry.blob(manifest.config.digest, LARGEST_CONFIG)
    try:
        config = msgspec.json.decode(content, type=dict[str, Any])
        diff_ids = [str(diff_id) for diff_id in config["rootfs"]["diff_ids"]]
    except (msgspec.DecodeError, KeyError, TypeError) as error:
        raise InputError(f"the configuration of {what} is not valid: {error}") from error
    if len(manifest.layers) != len(diff_ids) or not all(map(is_digest, diff_ids)):
        raise InputError(
            f"{what} has {len(manifest.layers)} layers, but its configuration has {len(diff_ids)}"
        )
    return config, diff_ids


def _missing(reference: str) -> MissingError:
    return MissingError(
        f"the base image {reference} can't be read: it is not in the registry", hint="check its name"
    )
