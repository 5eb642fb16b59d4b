"""Read the images in an OCI layout, a directory, as if they were in a registry.

https://github.com/opencontainers/image-spec/blob/main/image-layout.md
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

from ..errors import InputError, ValidatorError
from ..system.files import open_file, read_file
from .client import INDEX_TYPE, LARGEST_MANIFEST, Manifest, Registry, parse
from .names import Repository, is_digest
from .session import Document

#: The annotation of an image's tag in `index.json`.
NAME = "org.opencontainers.image.ref.name"
_LARGEST_BLOB, _BLOCK = 1 << 40, 1 << 20
_AGAIN = "write it again, to an empty directory: `build-matrix --no-validate --oci DIRECTORY`"


class Layout:
    """The files of a layout: answers what `Registry` asks its session and its blobs.

    attached: the directory with the list of what is attached to each image; None if there is none.
    """

    def __init__(self, directory: Path, attached: Path | None = None) -> None:
        self._directory, self._attached = directory, attached
        path = directory / "index.json"
        try:
            index = parse(read_file(path, LARGEST_MANIFEST), Manifest, str(path))
        except OSError as error:
            raise InputError(
                f"{directory} can't be read as an OCI layout: {path.name}: {error.strerror}",
                hint="`build-matrix --no-validate --oci DIRECTORY` writes one",
            ) from None
        except ValidatorError as error:
            raise InputError(str(error), hint=_AGAIN) from None
        entries = index.manifests or ()
        self._types = {entry.digest: entry.media_type for entry in entries}
        self._tags = {(entry.annotations or {}).get(NAME, ""): entry.digest for entry in entries}

    @property
    def session(self) -> Layout:
        return self

    def document(
        self, address: str, *, what: str, most: int, digest: str | None = None, accept: str = "",
        head: bool = False,
    ) -> Document | None:  # fmt: skip
        """Return a manifest or a small blob, None if it is not here. The parameters are those of Session."""
        name = address.rpartition("/")[2]
        found = name if is_digest(name) else self._tags.get(name)
        if found is None or (found not in self._types and not (self._directory / blob_path(found)).exists()):
            return None
        return Document(b"".join(self.read(found, most=most)), self._types.get(found, ""), found, None)

    def pages(self, address: str, *, what: str, most: int) -> Iterator[Document]:
        """Yield the list of tags, or of what is attached to an image."""
        name = address.rpartition("/")[2]
        if not is_digest(name):
            yield Document(json.dumps({"tags": sorted(filter(None, self._tags))}).encode(), "", "", None)
            return
        path = self._attached and self._attached / f"{name.replace(':', '-')}.json"
        if path and path.is_file():
            yield Document(read_file(path, most), INDEX_TYPE, "", None)

    def read(self, digest: str, size: int | None = None, most: int = _LARGEST_BLOB) -> Iterator[bytes]:
        """Return the content of a blob in parts. Raises InputError, at the end at the latest."""
        path, hashing, done = self._directory / blob_path(digest), hashlib.sha256(), 0
        try:
            with open_file(path, most) as stream:
                while part := stream.read(_BLOCK):
                    hashing.update(part)
                    done += len(part)
                    yield part
        except OSError as error:
            raise InputError(f"{path} can't be read: {error.strerror}", hint=_AGAIN) from None
        if f"sha256:{hashing.hexdigest()}" != digest or size not in (None, done):
            raise InputError(f"{path} is damaged: its content has another digest", hint=_AGAIN)


def blob_path(digest: str) -> str:
    """Return the path of a blob in a layout."""
    return f"blobs/{digest.replace(':', '/')}"


def in_layout(directory: Path, attached: Path | None = None) -> Registry:
    """Return the images of a layout as a registry, whose name is the directory. See `Layout`."""
    place = Repository("", str(directory.resolve()).removeprefix("/"))
    return Registry(place, layout=Layout(directory, attached))


def named_in_layout(directory: Path, tag: str) -> tuple[Registry, str]:
    """Return a layout and the digest of its image with this tag. Raises InputError if there is none."""
    registry = in_layout(directory)
    digest = registry.find(tag)
    if digest is None:
        has = ", ".join(registry.tags()) or "no image with a tag"
        raise InputError(f"{directory} has no image {tag}", hint=f"it has {has}")
    return registry, digest
