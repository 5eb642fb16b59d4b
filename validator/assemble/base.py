"""The base of an image: its configuration, its layers as they are, and the few of its files that matter."""

from __future__ import annotations

import hashlib
import lzma
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

import msgspec
import zstandard

from ..errors import InputError, MissingError, ValidatorError
from ..model import codec
from ..model.codec import DocumentError
from ..registry.blobs import Blobs
from ..registry.client import LARGEST_CONFIG, PLATFORM, ImageConfig, Manifest, Registry, parse
from ..registry.names import Repository, is_digest
from ..system.files import cache_directory
from . import base_files
from .base_files import BaseFiles, BoundedTarInfo, FileSystem, ForwardFile, read_file_system
from .layer_table import LayerTable
from .layers import MEDIA_TYPE, Encoded, Write, hashed

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
    """A layer of a base. diff_id: the digest of the uncompressed archive.

    blob: the layer as a blob, or None if there is only an archive. read: returns the parts of the blob or
    archive; raises ValidatorError, at the end at the latest, if they don't match the digest. packed: returns
    the archive in zstd, exactly as `compressed` writes it, or None without such a copy.
    """

    diff_id: str
    blob: Encoded | None
    read: Callable[[], Iterator[bytes]]
    packed: Callable[[], Iterator[bytes] | None] = lambda: None

    def archive(self) -> Iterator[bytes]:
        """Return the parts of the uncompressed archive."""
        return decompressed(self.read(), self.blob.media_type if self.blob else _OCI)

    def compress(self, write: Write) -> Encoded:
        """Write the archive of a layer without a blob. Raises ValidatorError for another digest."""
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
            for _ in written(compressed(hashed(self.archive(), found))):
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
    """The base of an image. origin: as in records. settings: the field `config` of its configuration.

    name, digest: for the OCI labels; the digest is None if the base is not from a registry. added: the
    packages of its distribution that were added to an image: `git:amd64=1:2.39.5-0+deb12u2`.
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
    """Return a base with what an image needs to know of its files, which are read once on this machine.

    config: the whole configuration. python: the version that the image needs. Raises InputError for another
    platform, or if something is missing.
    """
    platform = f"{config.get('os')}/{config.get('architecture')}"
    if platform != "linux/amd64":
        raise InputError(f"the base image {name} is for {platform}, not linux/amd64")
    key = " ".join([base_files.RECIPE, *(layer.diff_id for layer in layers)])
    found = table.facts(
        key, lambda: msgspec.to_builtins(read_file_system([layer.archive for layer in layers]))
    )
    settings = config.get("config") or {}
    search = dict(line.partition("=")[::2] for line in settings.get("Env") or ()).get("PATH")
    files = base_files.base_files(msgspec.convert(found, FileSystem), name, python, search)
    return Base(origin, name, digest, settings, layers, files)


def compression() -> str:
    """Return what decides the bytes that `BaseLayer.compress` writes, next to the archive."""
    return f"base layer 1, zstd, level {_LEVEL}, library {'.'.join(map(str, zstandard.ZSTD_VERSION))}"


def decompressed(parts: Iterator[bytes], media_type: str) -> Iterator[bytes]:
    """Return the content of a compressed archive. Raises InputError if it is damaged."""
    try:
        if media_type.endswith("+gzip"):
            # 31: with a gzip header. A layer may have several members.
            decompressor = zlib.decompressobj(31)
            for part in parts:
                while part:
                    # A part of zeros is a thousand times as long.
                    yield decompressor.decompress(part, _PART)
                    part = decompressor.unconsumed_tail
                    if decompressor.eof:
                        part = decompressor.unused_data
                        decompressor = zlib.decompressobj(31)
        elif media_type.endswith("+zstd"):
            # Several frames are one archive.
            reader = zstandard.ZstdDecompressor().stream_reader(
                cast(IO[bytes], ForwardFile(parts)), read_across_frames=True
            )
            while content := reader.read(_PART):
                yield content
        else:
            yield from parts
    except (zlib.error, zstandard.ZstdError) as error:
        raise InputError(f"a layer of the base image can't be decompressed: {error}") from error


def compressed(parts: Iterator[bytes]) -> Iterator[bytes]:
    """Return the parts of an archive, compressed. `compression` names everything else that decides them."""
    compressor = zstandard.ZstdCompressor(level=_LEVEL).compressobj()
    for part in parts:
        if data := compressor.compress(part):
            yield data
    yield compressor.flush()


# Bases that are files: an archive of `docker image save`, or a compressed root file system.

_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_LARGEST_DOCUMENT = 8 << 20


class _Saved(msgspec.Struct):
    config: str = msgspec.field(name="Config")
    layers: list[str] = msgspec.field(name="Layers")


class _Blob(msgspec.Struct):
    digest: str

    @property
    def path(self) -> str:
        return f"blobs/{self.digest.replace(':', '/')}"


class _Index(msgspec.Struct):
    manifests: list[_Blob]


class _Manifest(msgspec.Struct):
    config: _Blob
    layers: list[_Blob]


def saved_image(
    archive: Path, origin: str, name: str, digest: str | None, python: str, table: LayerTable
) -> Base:
    """Return the only image in an archive of `docker image save`; the file must stay. Raises InputError."""
    try:
        with tarfile.open(archive, tarinfo=BoundedTarInfo) as opened:
            members = {member.name: member for member in opened if member.isreg()}

            def read(path: str) -> object:
                return codec.parse(_content(opened, members[path]))

            if "manifest.json" in members:
                saved = codec.convert(read("manifest.json"), list[_Saved])
            else:
                index = codec.convert(read("index.json"), _Index)
                manifests = [codec.convert(read(one.path), _Manifest) for one in index.manifests]
                saved = [_Saved(one.config.path, [layer.path for layer in one.layers]) for one in manifests]
            if len(saved) != 1:
                raise InputError(f"{archive} contains {len(saved)} images instead of one")
            config, diff_ids = _checked(_content(opened, members[saved[0].config]), str(archive))
            if len(diff_ids) != len(saved[0].layers):
                raise InputError(f"{archive} has {len(saved[0].layers)} layers instead of {len(diff_ids)}")
            found = [members[path] for path in saved[0].layers]
    except (
        tarfile.TarError,
        KeyError,
        DocumentError,
        OSError,
        EOFError,
        zlib.error,
        lzma.LZMAError,
    ) as error:
        raise InputError(f"{archive} is not the archive of an image: {error}") from error
    layers = tuple(_layer(archive, *pair) for pair in zip(found, diff_ids, strict=True))
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


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    stream = archive.extractfile(member)
    assert stream is not None
    return stream.read(_LARGEST_DOCUMENT)


# Bases from an OCI registry, by digest, without an engine.

_RECIPE = "base of a registry 1"


@dataclass(frozen=True)
class ImageName:
    """The name of an image as people write it. plain: as written, without the digest."""

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

    Raises MissingError if it can't be read, AlteredError for other content, InputError if it lacks something.
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
    layers = []
    for layer, diff_id in zip(manifest.layers or (), diff_ids, strict=True):
        if layer.media_type not in _TYPES:
            raise InputError(
                f"a layer of the base image has the type {layer.media_type[:100]!r}",
                hint="use a base whose layers are tar archives, uncompressed or with gzip or zstd",
            )
        layers.append([layer.digest, layer.size, diff_id, _TYPES[layer.media_type]])
    return {"config": config, "layers": layers}


def read_config(registry: Registry, manifest: Manifest, what: str) -> tuple[dict[str, Any], list[str]]:
    """Return the configuration of an image, and the diff_ids of its layers.

    what: the image, which begins each message. Raises InputError if it is not an image of one platform.
    """
    if manifest.config is None or manifest.layers is None or manifest.config.size > LARGEST_CONFIG:
        raise InputError(f"{what} is not an image of one platform")
    config, diff_ids = _checked(registry.blob(manifest.config.digest, LARGEST_CONFIG), what)
    if len(manifest.layers) != len(diff_ids) or not all(map(is_digest, diff_ids)):
        raise InputError(
            f"{what} has {len(manifest.layers)} layers, but its configuration has {len(diff_ids)}"
        )
    return config, diff_ids


def _checked(content: bytes, what: str) -> tuple[dict[str, Any], list[str]]:
    """Return a configuration and its diff_ids, all with the right types."""
    parse(content, ImageConfig, f"the configuration of {what}")
    try:
        config = codec.parse_unique(content)
        return config, [str(diff_id) for diff_id in config["rootfs"]["diff_ids"]]
    except (DocumentError, KeyError, TypeError) as error:
        raise InputError(f"the configuration of {what} is not valid: {error}") from error


def _missing(reference: str) -> MissingError:
    return MissingError(
        f"the base image {reference} can't be read: it is not in the registry", hint="check its name"
    )
