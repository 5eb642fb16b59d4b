"""Bases from an OCI registry, by digest, without an engine."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from ..errors import InputError, MissingError, ValidatorError
from ..registry.blobs import Blobs
from ..registry.documents import LARGEST_CONFIG, LARGEST_MANIFEST, PLATFORM, Manifest, parse
from ..registry.errors import AlteredError
from ..registry.names import Repository, is_digest
from ..registry.session import FailedRequest, Session
from .base import Base, BaseLayer, oci_type, read_base
from .layer_table import LayerTable
from .layers import Encoded

_ACCEPTED = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)
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
    session = Session(name.repository, push=False)
    digest = name.digest or _digest(read_manifest(session, name.repository, name.tag, None))
    found = table.facts(f"{_RECIPE} {digest}", lambda: _read(session, name.repository, digest))
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
    return _digest(read_manifest(Session(name.repository, push=False), name.repository, name.tag, None))


def _read(session: Session, repository: Repository, digest: str) -> Mapping[str, object]:
    """Return the configuration and the layers: digest, size, diff_id and OCI media type of each."""
    what = f"the manifest {repository.at(digest)}"
    manifest = parse(read_manifest(session, repository, digest, digest), Manifest, what)
    if manifest.manifests is not None:
        entry = manifest.for_platform()
        if entry is None:
            raise InputError(f"the base image {repository.at(digest)} is not for {'/'.join(PLATFORM)}")
        content = read_manifest(session, repository, entry.digest, entry.digest)
        manifest = parse(content, Manifest, f"the manifest {repository.at(entry.digest)}")
    if manifest.config is None or manifest.layers is None or manifest.config.size > LARGEST_CONFIG:
        raise InputError(f"{repository.at(digest)} is not an image")
    blobs = Blobs.to_read(repository)
    content = b"".join(blobs.read(manifest.config.digest, manifest.config.size))
    try:
        config = msgspec.json.decode(content, type=dict[str, Any])
        diff_ids = [str(one) for one in config["rootfs"]["diff_ids"]]
    except (msgspec.DecodeError, KeyError, TypeError) as error:
        raise InputError(f"the configuration of {repository.at(digest)} is not valid: {error}") from error
    if len(diff_ids) != len(manifest.layers) or not all(map(is_digest, diff_ids)):
        raise InputError(f"the configuration of {repository.at(digest)} does not describe its layers")
    return {
        "config": config,
        "layers": [
            [layer.digest, layer.size, diff_id, oci_type(layer.media_type)]
            for layer, diff_id in zip(manifest.layers, diff_ids, strict=True)
        ],
    }


def read_manifest(session: Session, repository: Repository, reference: str, digest: str | None) -> bytes:
    """Return a manifest or index. digest: what it must have, or None if the reference is a tag."""
    shown = repository.at(digest) if digest else repository.tagged(reference)
    what = f"the base image {shown} can't be read"
    address, headers = f"/v2/{repository.path}/manifests/{reference}", {"Accept": _ACCEPTED}
    try:
        answer = session.send("GET", address, expect=(200, 404), headers=headers)
    except FailedRequest as failure:
        if not failure.status:
            # Where no registry can be reached, nobody should wait for it.
            raise failure.error(session.host, what) from failure
        answer = session.request("GET", address, what=what, expect=(200, 404), headers=headers)
    if answer.status_code == 404:
        raise MissingError(f"{what}: it is not in the registry", hint="check its name")
    if len(answer.content) > LARGEST_MANIFEST:
        raise ValidatorError(f"{what}: its manifest is larger than {LARGEST_MANIFEST >> 20} MiB")
    if digest is not None and _digest(answer.content) != digest:
        raise AlteredError(
            f"{what}: the registry sent {_digest(answer.content)}",
            hint="check the registry and any mirror or proxy before it; one of them sends something else",
        )
    return answer.content


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
