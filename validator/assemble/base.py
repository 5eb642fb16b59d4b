"""The base of an image: its configuration, its layers as they are, and the few of its files that matter."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any, cast

import msgspec
import zstandard

from ..errors import InputError, ValidatorError
from ..system.files import cache_directory
from . import base_files
from .base_files import BaseFiles, FileSystem, ForwardFile, read_file_system
from .encoding import MEDIA_TYPE
from .layer_table import LayerTable
from .layers import Encoded, Write

_PART = 1 << 20
#: The compression of a layer by the end of its media type, in Docker's and in OCI's notation.
_OCI = "application/vnd.oci.image.layer.v1.tar"
_TYPES = {
    "application/vnd.docker.image.rootfs.diff.tar.gzip": f"{_OCI}+gzip",
    "application/vnd.docker.image.rootfs.diff.tar": _OCI,
    f"{_OCI}+gzip": f"{_OCI}+gzip",
    f"{_OCI}+zstd": f"{_OCI}+zstd",
    _OCI: _OCI,
}
_LEVEL = 3


@dataclass(frozen=True)
class BaseLayer:
    """A layer of a base.

    diff_id: the digest of the uncompressed archive. blob: the layer as a blob, which becomes part of the
    image without a change, or None if it is only there as an archive. read: returns the parts of the blob or
    archive; raises ValidatorError, at the end at the latest, if they don't match the digest.
    packed: returns the parts of the archive compressed with zstd, exactly as `compressed` does it, or None if
    no such copy is in the cache.
    """

    diff_id: str
    blob: Encoded | None
    read: Callable[[], Iterator[bytes]]
    packed: Callable[[], Iterator[bytes] | None] = lambda: None

    def archive(self) -> Iterator[bytes]:
        """Return the parts of the uncompressed archive."""
        kind = self.blob.media_type if self.blob else _OCI
        return decompressed(self.read(), kind)

    def compress(self, write: Write) -> Encoded:
        """Write the archive as a blob. Only for a layer that has none.

        Raises ValidatorError if the archive does not have the digest.
        """
        hashing, found, size = hashlib.sha256(), hashlib.sha256(), 0

        def written(parts: Iterator[bytes]) -> Iterator[bytes]:
            nonlocal size
            for part in parts:
                hashing.update(part)
                size += len(part)
                write(part)
                yield part

        packed = self.packed()
        if packed is None:
            for _ in written(compressed(_hashed(self.archive(), found))):
                pass
        else:
            for part in decompressed(written(packed), MEDIA_TYPE):
                found.update(part)
        if f"sha256:{found.hexdigest()}" != self.diff_id:
            raise ValidatorError(
                f"a layer of the base image no longer has the content {self.diff_id}",
                hint="repeat the command; if that does not help, delete"
                f" {cache_directory() / 'bases'} to make the base again",
            )
        return Encoded(f"sha256:{hashing.hexdigest()}", size, self.diff_id, MEDIA_TYPE)


@dataclass(frozen=True)
class Base:
    """The base of an image.

    origin: see `validator.model.base_origin`; as in records.
    name, digest: for the OCI labels; the digest is None if the base is not from a registry.
    settings: the field `config` of its configuration: `Env`, `Labels`, and so on.
    added: the packages of its distribution that were added to an image, such as
        `git:amd64=1:2.39.5-0+deb12u2`.
    """

    origin: str
    name: str
    digest: str | None
    settings: Mapping[str, Any]
    layers: tuple[BaseLayer, ...]
    files: BaseFiles
    added: tuple[str, ...] = ()


def read_base(
    origin: str,
    name: str,
    digest: str | None,
    config: Mapping[str, Any],
    layers: tuple[BaseLayer, ...],
    python: str,
    table: LayerTable,
) -> Base:
    """Return a base with what an image needs to know of its files, which are read only once on this machine.

    config: the whole configuration of the base. python: the version that the image needs. Raises InputError
    if the base is for another platform or lacks what an image needs.
    """
    platform = (config.get("os"), config.get("architecture"))
    if platform != ("linux", "amd64"):
        raise InputError(
            f"the base image {name} is for {'/'.join(str(part) for part in platform)}, not linux/amd64"
        )
    key = " ".join([base_files.RECIPE, *(layer.diff_id for layer in layers)])
    found = table.facts(
        key, lambda: msgspec.to_builtins(read_file_system([layer.archive for layer in layers]))
    )
    settings = config.get("config") or {}
    search = dict(line.partition("=")[::2] for line in settings.get("Env") or ()).get("PATH")
    files = base_files.base_files(msgspec.convert(found, FileSystem), name, python, search)
    return Base(origin, name, digest, settings, layers, files)


def compression() -> str:
    """Return what decides the bytes of a layer that `BaseLayer.compress` writes, next to its archive.

    It changes with the version of the compression library.
    """
    return f"base layer 1, zstd, level {_LEVEL}, library {'.'.join(map(str, zstandard.ZSTD_VERSION))}"


def oci_type(media_type: str) -> str:
    """Return OCI's media type for a layer. Raises InputError for one that can't be part of an image."""
    if media_type not in _TYPES:
        raise InputError(
            f"a layer of the base image has the type {media_type[:100]!r}",
            hint="use a base whose layers are tar archives, uncompressed or with gzip or zstd",
        )
    return _TYPES[media_type]


def decompressed(parts: Iterator[bytes], media_type: str) -> Iterator[bytes]:
    """Return the content of a compressed archive. Raises InputError if it is damaged."""
    try:
        if media_type.endswith("+gzip"):
            yield from _gunzip(parts)
        elif media_type.endswith("+zstd"):
            # Several frames are one archive.
            reader = zstandard.ZstdDecompressor().stream_reader(
                cast(IO[bytes], ForwardFile(parts)), read_across_frames=True
            )
            while part := reader.read(_PART):
                yield part
        else:
            yield from parts
    except (zlib.error, zstandard.ZstdError) as error:
        raise InputError(f"a layer of the base image can't be decompressed: {error}") from error


def _gunzip(parts: Iterator[bytes]) -> Iterator[bytes]:
    # 31: with a gzip header. A layer may have several members.
    decompressor = zlib.decompressobj(31)
    for part in parts:
        while part:
            yield decompressor.decompress(part)
            part = decompressor.unused_data
            if decompressor.eof:
                decompressor = zlib.decompressobj(31)


def _hashed(parts: Iterator[bytes], hashing: Any) -> Iterator[bytes]:
    for part in parts:
        hashing.update(part)
        yield part


def compressed(parts: Iterator[bytes]) -> Iterator[bytes]:
    """Return the parts of an archive, compressed. `compression` names everything else that decides them."""
    compressor = zstandard.ZstdCompressor(level=_LEVEL).compressobj()
    for part in parts:
        if data := compressor.compress(part):
            yield data
    yield compressor.flush()
