"""Bases that are files: an archive of `docker image save`, or a compressed root file system."""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from ..errors import InputError
from .base import Base, BaseLayer, compressed, decompressed, read_base
from .encoding import MEDIA_TYPE
from .layer_table import LayerTable
from .layers import Encoded

_PART = 1 << 20
_OCI = "application/vnd.oci.image.layer.v1.tar"
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_LARGEST_DOCUMENT = 8 << 20

T = TypeVar("T")


class _Saved(msgspec.Struct):
    """An image in `manifest.json`: paths in the archive."""

    config: str = msgspec.field(name="Config")
    layers: list[str] = msgspec.field(name="Layers")


def saved_image(
    archive: Path, origin: str, name: str, digest: str | None, python: str, table: LayerTable
) -> Base:
    """Return the only image of an archive that `docker image save` or `podman save` wrote.

    The file must stay as long as the base is used. Raises InputError if it is something else.
    """
    try:
        with tarfile.open(archive) as opened:
            members = {member.name: member for member in opened if member.isreg()}
            saved = _document(opened, members, "manifest.json", list[_Saved])
            if len(saved) != 1:
                raise InputError(f"{archive} contains {len(saved)} images instead of one")
            config = _document(opened, members, saved[0].config, dict[str, Any])
    except (tarfile.TarError, KeyError, msgspec.DecodeError) as error:
        raise InputError(f"{archive} is not the archive of an image: {error}") from error
    diff_ids = (config.get("rootfs") or {}).get("diff_ids") or []
    if len(diff_ids) != len(saved[0].layers):
        raise InputError(f"{archive} has {len(saved[0].layers)} layers instead of {len(diff_ids)}")
    layers = tuple(
        _layer(archive, members[path], diff_id)
        for path, diff_id in zip(saved[0].layers, diff_ids, strict=True)
    )
    return read_base(origin, name, digest, config, layers, python, table)


def compress_archive(archive: Path, target: Path) -> None:
    """Write a copy of a tar archive as the blob of a layer in zstd."""
    with target.open("wb") as stream:
        for part in compressed(read_file(archive)):
            stream.write(part)


def read_archive(path: Path) -> Iterator[bytes]:
    """Return the parts of an archive that `compress_archive` wrote."""
    return decompressed(read_file(path), MEDIA_TYPE)


def _layer(archive: Path, member: tarfile.TarInfo, diff_id: str) -> BaseLayer:
    read = partial(read_file, archive, member.offset_data, member.size)
    start = next(read(), b"")[:4]
    kind = "+gzip" if start[:2] == _GZIP else "+zstd" if start == _ZSTD else ""
    if not kind:
        return BaseLayer(diff_id, None, read)
    hashing = hashlib.sha256()
    for part in read():
        hashing.update(part)
    blob = Encoded(f"sha256:{hashing.hexdigest()}", member.size, diff_id, _OCI + kind)
    return BaseLayer(diff_id, blob, read)


def read_file(path: Path, start: int = 0, size: int | None = None) -> Iterator[bytes]:
    """Return the parts of a file, or of `size` bytes of it from an offset on."""
    with path.open("rb") as stream:
        stream.seek(start)
        left = size if size is not None else -1
        while left and (part := stream.read(min(_PART, left) if left > 0 else _PART)):
            if left > 0:
                left -= len(part)
            yield part


def _document(archive: tarfile.TarFile, members: dict[str, tarfile.TarInfo], name: str, kind: type[T]) -> T:
    member = members[name]
    stream = archive.extractfile(member)
    assert stream is not None
    return msgspec.json.decode(stream.read(_LARGEST_DOCUMENT), type=kind)
