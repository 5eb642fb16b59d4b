"""The destinations of images: a registry, an OCI layout or a local engine, behind one protocol."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import msgspec

from ..errors import InputError, ValidatorError
from ..model.spec import ImageSpec, image_reference
from ..registry.blobs import Blobs, Known
from ..registry.client import NAME, blob_path
from ..registry.names import Repository, identifier_of
from ..system.files import write_atomically, writing
from ..system.runs import temporary_directory
from .layers import Encoded, Write


class Destination(Protocol):
    """Receives the blobs of images, and then their manifests. Methods may be called from several threads.

    Nothing is visible under a name before `finish`, and what was received completely is kept and not sent
    again. Every method raises MissingError for faults of the network, the disk, the registry or the engine.
    """

    def has(self, blob: Encoded) -> bool:
        """Return True if the blob is there. A registry also tries to take it from another repository."""

    def receive(self, encode: Callable[[Write], Encoded], known: Encoded | None) -> Encoded:
        """Store the blob that `encode` writes. known: its digest and size, where they are known in advance.

        Raises ValidatorError if `encode` then gives another digest; the destination keeps nothing of it. An
        error that `encode` raises passes through.
        """

    def finish(self, manifest: bytes, media_type: str) -> str:
        """Store the manifest, whose blobs are all there, under the image's name. Return its digest."""


def differs(made: Encoded, known: Encoded) -> ValidatorError:
    """Return the error for a layer that is not what the layer table says."""
    return ValidatorError(
        f"a layer was made with the digest {made.digest}, but the layer table says {known.digest}:"
        " the table is wrong, or a wheel changed while it was read",
        hint="run the same command again; if the error stays, remove the layer's row from the table",
    )


def destinations(
    repository: Repository,
    base_repository: Callable[[ImageSpec], Repository | None],
    mount_from: Sequence[Repository] = (),
) -> Callable[[ImageSpec], RegistryDestination]:
    """Return a function that gives each image's destination in a repository, without a tag.

    base_repository: returns the repository of an image's base. If that is in the same registry, the layers of
    the base are mounted from it. mount_from: more repositories; from those of other registries, layers are
    copied.
    """

    @cache
    def destination(*others: Repository) -> RegistryDestination:
        return RegistryDestination(repository, None, others)

    def of(spec: ImageSpec) -> RegistryDestination:
        base = base_repository(spec)
        near = [base] if base is not None and base.host == repository.host else []
        return destination(*dict.fromkeys([*near, *mount_from]))

    return of


class RegistryDestination:
    """An image in a repository, under a tag or only by its digest. mount_from: as in `destinations`."""

    def __init__(
        self, repository: Repository, tag: str | None, mount_from: Sequence[Repository] = ()
    ) -> None:
        self._blobs, self._tag = Blobs.to_write(repository, mount_from), tag

    def has(self, blob: Encoded) -> bool:
        return self._blobs.has(blob.digest, blob.size)

    def receive(self, encode: Callable[[Write], Encoded], known: Encoded | None) -> Encoded:
        expected = Known(known.digest, known.size) if known else None
        # After a failure, it is called again.
        return self._blobs.send(encode, lambda encoded: encoded.digest, expected)

    def finish(self, manifest: bytes, media_type: str) -> str:
        return self._blobs.send_manifest(manifest, media_type, self._tag)


# Write images to a directory in the OCI image layout, and read them. No registry or engine is needed.
#
# https://github.com/opencontainers/image-spec/blob/main/image-layout.md
#
# `docker load` accepts an archive of such a directory. With containerd's image store it reads the name of an
# image from an annotation in `index.json`; with the older one it reads only `manifest.json`.

_VERSION = "1.0.0"
_INDEX = "application/vnd.oci.image.index.v1+json"
_DOCKER_NAME = "io.containerd.image.name"
#: What containerd's names have before Docker's names of local images.
_LOCAL = "docker.io/library/"
_PLATFORM = {"architecture": "amd64", "os": "linux"}


class OciLayout:
    """An image in an OCI layout, under a tag. Other images stay. Several processes may write there."""

    def __init__(self, directory: Path, tag: str) -> None:
        """Make the directory unless it is there. Raises InputError if it has something else in it."""
        self._directory, self._tag = directory, tag
        self._blobs = directory / "blobs" / "sha256"
        with writing(directory):
            directory.mkdir(parents=True, exist_ok=True)
            with self._alone():
                marker = directory / "oci-layout"
                if not marker.exists():
                    if any(directory.iterdir()):
                        raise InputError(
                            f"{directory}: is neither empty nor an OCI layout",
                            hint="give an empty or a new directory",
                        )
                    write_atomically(marker, msgspec.json.encode({"imageLayoutVersion": _VERSION}))
                self._blobs.mkdir(parents=True, exist_ok=True)

    def has(self, blob: Encoded) -> bool:
        with contextlib.suppress(FileNotFoundError):
            return self._blob(blob.digest).stat().st_size == blob.size
        return False

    def receive(self, encode: Callable[[Write], Encoded], known: Encoded | None) -> Encoded:
        with temporary_directory("layout", self._directory) as place, writing(self._directory):
            partial = place / "blob"
            with partial.open("wb") as stream:
                encoded = encode(stream.write)
                stream.flush()
                os.fdatasync(stream.fileno())
            if known is not None and known.digest != encoded.digest:
                raise differs(encoded, known)
            partial.replace(self._blob(encoded.digest))
        return encoded

    def finish(self, manifest: bytes, media_type: str) -> str:
        digest = f"sha256:{hashlib.sha256(manifest).hexdigest()}"
        write_atomically(self._blob(digest), manifest)
        descriptor = {
            "mediaType": media_type,
            "digest": digest,
            "size": len(manifest),
            "platform": _PLATFORM,
            "annotations": docker_annotations(image_reference(identifier_of(self._tag) or self._tag))
            | {NAME: self._tag},
        }
        path = self._directory / "index.json"
        with self._alone():
            entries = [*(entry for entry in self._listed(path) if _tag(entry) != self._tag), descriptor]
            index = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": entries}
            write_atomically(path, msgspec.json.encode(index))
            older = []
            for entry in entries:
                name = (entry.get("annotations") or {}).get(_DOCKER_NAME)
                # Only images that this program wrote have one.
                if isinstance(name, str):
                    image = self._blob(entry["digest"]).read_bytes()
                    older.append(docker_manifest(name.removeprefix(_LOCAL), image))
            write_atomically(self._directory / "manifest.json", msgspec.json.encode(older))
        return digest

    def _blob(self, digest: str) -> Path:
        return self._blobs / digest.removeprefix("sha256:")

    def _listed(self, path: Path) -> list[Any]:
        try:
            return msgspec.json.decode(path.read_bytes(), type=_Index).manifests
        except FileNotFoundError:
            return []
        except (OSError, msgspec.DecodeError) as error:
            raise InputError(
                f"{path}: is not the index of an OCI layout: {error}", hint="give an empty or a new directory"
            ) from None

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other processes out while the directory or its index is changed."""
        handle = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


class _Index(msgspec.Struct):
    manifests: list[dict[str, Any]] = []


def docker_annotations(name: str) -> dict[str, str]:
    """Return the annotations in `index.json` by which a Docker Engine names an image. name: with a tag."""
    return {_DOCKER_NAME: _LOCAL + name, NAME: name.partition(":")[2]}


def docker_manifest(name: str, manifest: bytes) -> dict[str, Any]:
    """Return the entry of an image in `manifest.json`. name: with a tag. manifest: in OCI's format."""
    document = msgspec.json.decode(manifest)
    paths = [blob_path(blob["digest"]) for blob in (document["config"], *document["layers"])]
    return {"Config": paths[0], "RepoTags": [name], "Layers": paths[1:]}


def _tag(entry: dict[str, Any]) -> object:
    return (entry.get("annotations") or {}).get(NAME)
