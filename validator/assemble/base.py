"""The base of an image: its configuration, its layers as they are, and the few of its files that matter."""

from __future__ import annotations

import hashlib
import io
import lzma
import re
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
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
from ..registry.names import Repository, check_image_name, is_digest, is_host
from ..resources import manual
from ..system.files import cache_directory
from ..versions import leading_numbers, major_minor
from .layer_table import LayerTable
from .layers import MEDIA_TYPE, Encoded, Entry, Write, hashed

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


# Read the few files of a base that images depend on, once, and check that they have what an image needs.

#: Change it when this module reads other files, or reads them differently.
FILES_RECIPE = "base files 2"
_WANTED = re.compile(
    r"etc/(passwd|group|shadow|gshadow|subuid|subgid|ld\.so\.cache|ld\.so\.conf|ld\.so\.conf\.d/[^/]+|skel/.+)"
    # Which distribution it is, and which packages it has.
    r"|(etc|usr/lib)/os-release|var/lib/dpkg/status(\.d/[^/]+(?<!\.md5sums))?"
)
#: Directories that images add something to.
_DIRECTORIES = ("etc", "etc/ld.so.conf.d", "home", "opt", "usr", "usr/local")
#: What images add themselves, unless the base has it.
_PATHS = ("usr/local/cuda",)
_PYTHON = re.compile(r"(.*/)?(bin/python3(\.\d+)?|lib[^/]*/(.*/)?libpython3\.\d+\.so[.\d]*)")
_GLIBC = re.compile(r"(.*/)?(libc\.so\.6|libc-2\.\d+\.so)")
#: What is kept besides symbolic links and small files: programs, libraries and directories.
_RELEVANT = re.compile(
    "|".join(
        (_PYTHON.pattern, _GLIBC.pattern, r"(.*/)?ld-[^/]+\.so[.\d]*", *_DIRECTORIES, *_PATHS, "opt/venv")
    )
)
_LOADER = "lib64/ld-linux-x86-64.so.2"
#: The version at the end of a NUL-terminated string.
_VERSION = re.compile(rb"(?<![\d.])(3\.\d+\.\d+(?:(?:a|b|rc)\d+)?)\+?\x00")
_GLIBC_VERSION = re.compile(rb"GNU C Library [^\x00]{0,120} release version (\d+\.\d+)")
_MACHINE_AT, _X86_64 = 18, 62
#: A base's small files are read up to this size in bytes.
_SMALL = 4 << 20
_LARGEST = 64 << 20
#: The most names to follow in one path, including those in the targets of symbolic links.
_STEPS = 400
#: Where Docker looks for programs if the base does not say.
_SEARCH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: Entries that extend the header of the next one, or of all that follow (XGLTYPE).
_EXTENSIONS = (
    tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)  # fmt: skip
#: The most entries in all layers of a base. Images with CUDA have about 100,000.
_MOST_ENTRIES = 1_000_000
_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"
_HINT = f"{manual('reference/images.md')} says what a base must have"


@dataclass(frozen=True)
class BaseFile:
    """A small regular file of a base. mode: permissions, such as 0o640."""

    content: bytes
    mode: int = 0o644
    uid: int = 0
    gid: int = 0


@dataclass(frozen=True)
class Interpreter:
    """The Python of a base. path: such as `/usr/local/bin/python3.12`. version: exact, such as `3.12.12`."""

    path: str
    version: str

    @property
    def feature(self) -> str:
        """The version without its last part: `3.12`."""
        return major_minor(self.version)


@dataclass(frozen=True)
class BaseFiles:
    """The facts about the file system of a base.

    glibc: such as `2.36`. files: small regular files by path without a leading slash, such as `etc/passwd`.
    paths: `usr/local/cuda` if it is there. directories: those that an image adds something to, such as `etc`.
    """

    interpreter: Interpreter
    glibc: str
    files: Mapping[str, BaseFile] = field(default_factory=dict)
    paths: frozenset[str] = frozenset()
    directories: Mapping[str, Entry] = field(default_factory=dict)

    @property
    def glibc_version(self) -> tuple[int, int]:
        major, minor = leading_numbers(self.glibc)[:2]
        return major, minor


class Node(msgspec.Struct):
    """A path of a base. kind: `file`, `link`, `directory` or `other`. target: of a symbolic link.

    content: of a small file that matters. versions: those of Python or glibc in a program or library.
    machine: of an ELF file, as a number.
    """

    kind: str
    mode: int = 0
    uid: int = 0
    gid: int = 0
    target: str = ""
    content: bytes | None = None
    versions: tuple[str, ...] = ()
    machine: int | None = None


class FileSystem(msgspec.Struct):
    """All layers of a base as one file system: its links, and the paths that this module asks for."""

    nodes: dict[str, Node]

    def find(self, path: str) -> tuple[str, Node] | None:
        """Return what is at a path, after following symbolic links, or None."""
        parts, done = parts_of(path), ""
        for _ in range(_STEPS):
            if not parts:
                break
            done = f"{done}/{parts.pop(0)}".lstrip("/")
            node = self.nodes.get(done)
            if node is not None and node.kind == "link":
                start = "" if node.target.startswith("/") else done.rpartition("/")[0]
                parts, done = [*parts_of(f"{start}/{node.target}"), *parts], ""
        node = self.nodes.get(done)
        return None if node is None or parts else (done, node)


def read_file_system(layers: Iterable[Callable[[], Iterator[bytes]]]) -> FileSystem:
    """Return the files of a base. layers: lowest first, uncompressed tar. Raises InputError for others."""
    nodes: dict[str, Node] = {}
    for open_layer in layers:
        try:
            stream = ForwardFile(open_layer())
            with tarfile.open(fileobj=stream, mode="r|", bufsize=1 << 20, tarinfo=BoundedTarInfo) as archive:
                own: set[str] = set()
                while (member := archive.next()) is not None:
                    # Otherwise the archive keeps every entry that it has read in memory.
                    archive.members.clear()  # type: ignore[attr-defined]
                    _apply(archive, member, nodes, own)
        except (tarfile.TarError, EOFError) as error:
            raise InputError(f"a layer of the base image can't be read: {error}", hint=_HINT) from error
    kept = {
        path: node
        for path, node in nodes.items()
        if node.kind == "link" or node.content is not None or _RELEVANT.fullmatch(path)
    }
    return FileSystem(kept)


def base_files(system: FileSystem, name: str, python: str, search: str | None = None) -> BaseFiles:
    """Return what an image needs of a base. Raises InputError if the base lacks something.

    name: of the base, for messages. python: the version that the image needs, `3.12`. search: the base's
    PATH.
    """
    wrong = None
    if system.find("opt/venv") is not None:
        wrong = "has /opt/venv, where the image's packages belong"
    elif system.find("etc/passwd") is None:
        wrong = "has no /etc/passwd"
    elif system.find(_LOADER) is None:
        wrong = f"has no /{_LOADER}, glibc's dynamic loader for x86-64"
    if wrong is not None:
        raise InputError(f"the base image {name} {wrong}", hint=_HINT)
    interpreter = _interpreter(system, name, python, search or _SEARCH)
    libraries = [node for path, node in system.nodes.items() if _GLIBC.fullmatch(path)]
    glibc = {version for node in libraries if node.machine == _X86_64 for version in node.versions}
    if len(glibc) != 1:
        several = "several versions of" if glibc else "no"
        raise InputError(f"the base image {name} has {several} glibc for x86-64", hint=_HINT)
    return BaseFiles(
        interpreter,
        glibc.pop(),
        {
            path: BaseFile(node.content, node.mode, node.uid, node.gid)
            for path, node in system.nodes.items()
            if node.content is not None
        },
        frozenset(path for path in _PATHS if path in system.nodes),
        {
            path: Entry(path, node.mode, uid=node.uid, gid=node.gid)
            for path in _DIRECTORIES
            if (node := system.nodes.get(path)) and node.kind == "directory"
        },
    )


def _interpreter(system: FileSystem, name: str, python: str, search: str) -> Interpreter:
    libraries = [
        version
        for path, node in system.nodes.items()
        if _PYTHON.fullmatch(path)
        for version in node.versions
        if version.startswith(f"{python}.")
    ]
    others = set()
    for directory in search.split(":"):
        for program in (f"python{python}", "python3"):
            found = system.find(f"{directory}/{program}")
            if found is None or found[1].kind != "file":
                continue
            path, node = found
            if node.machine not in (None, _X86_64):
                raise InputError(
                    f"the Python of the base image {name} is not a program for x86-64", hint=_HINT
                )
            feature = re.search(r"python(3\.\d+)$", path)
            if feature is None or feature[1] != python:
                others.add(feature[1] if feature else path)
                continue
            versions = {one for one in (*node.versions, *libraries) if one.startswith(f"{python}.")}
            if len(versions) != 1:
                raise InputError(
                    f"the exact version of Python can't be read from /{path} of the base image {name}: it"
                    f" may be {' or '.join(sorted(versions)) or 'any'}",
                    hint=_HINT,
                )
            # Use the program's own name, not that of a link to it.
            return Interpreter(f"/{directory.strip('/')}/python{python}", versions.pop())
    has = f"Python {' and '.join(sorted(others))}" if others else "no Python"
    raise InputError(f"the base image {name} has {has} on its PATH; Python {python} is needed", hint=_HINT)


def _apply(archive: tarfile.TarFile, member: tarfile.TarInfo, nodes: dict[str, Node], own: set[str]) -> None:
    """Apply an entry of a layer to what is below it. own: the paths of the layer itself so far."""
    path = "/".join(parts_of(member.name))
    if (hidden := hidden_by(path)) is not None:
        _remove(nodes, hidden.rstrip("/"), own)
        if hidden not in own:
            nodes.pop(hidden, None)
    elif path:
        node = _node(archive, member, path, nodes)
        if node.kind != "directory" and (old := nodes.get(path)) and old.kind == "directory":
            _remove(nodes, path, own)
        nodes[path] = node
        own.add(path)
        if len(nodes) > _MOST_ENTRIES:
            raise InputError(f"the base image has more than {_MOST_ENTRIES:,} files", hint=_HINT)


def hidden_by(path: str) -> str | None:
    """Return the path that a whiteout hides, or None. With a final slash, only what is below it is hidden."""
    directory, _, base = path.rpartition("/")
    if base == _OPAQUE:
        return f"{directory}/"
    if base.startswith(_WHITEOUT):
        return f"{directory}/{base.removeprefix(_WHITEOUT)}".lstrip("/")
    return None


def _remove(nodes: dict[str, Node], directory: str, kept: set[str]) -> None:
    prefix = f"{directory}/" if directory else ""
    for path in [path for path in nodes if path.startswith(prefix) and path not in kept]:
        del nodes[path]


def _node(archive: tarfile.TarFile, member: tarfile.TarInfo, path: str, nodes: Mapping[str, Node]) -> Node:
    mode, uid, gid = member.mode & 0o7777, member.uid, member.gid
    if member.islnk():
        return nodes.get("/".join(parts_of(member.linkname))) or Node("other", mode, uid, gid)
    if member.issym():
        return Node("link", mode, uid, gid, target=member.linkname)
    if member.isdir():
        return Node("directory", mode, uid, gid)
    if not member.isreg():
        return Node("other", mode, uid, gid)
    node = Node("file", mode, uid, gid)
    if _WANTED.fullmatch(path) and member.size <= _SMALL:
        node.content = _content(archive, member)
    elif _PYTHON.fullmatch(path) or _GLIBC.fullmatch(path):
        content = _content(archive, member) if member.size <= _LARGEST else b""
        if content[:6] == b"\x7fELF\x02\x01":
            node.machine = int.from_bytes(content[_MACHINE_AT : _MACHINE_AT + 2], "little")
        pattern = _VERSION if _PYTHON.fullmatch(path) else _GLIBC_VERSION
        node.versions = tuple(sorted({match.decode() for match in pattern.findall(content)}))
    return node


def parts_of(path: str) -> list[str]:
    """Return the parts of a path, after resolving `.` and `..`."""
    found: list[str] = []
    for part in path.split("/"):
        if part == "..":
            found = found[:-1]
        elif part not in ("", "."):
            found.append(part)
    return found


class BoundedTarInfo(tarfile.TarInfo):
    """An entry of an archive. Reading raises ReadError for a name or attributes longer than archivers write.

    They are read into memory, and a few compressed bytes can expand to gigabytes.
    """

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> BoundedTarInfo:
        found = super().frombuf(buf, encoding, errors)
        if found.type in _EXTENSIONS and found.size > _SMALL:
            raise tarfile.ReadError(f"the extension of an entry has {found.size} bytes")
        return found


class ForwardFile(io.RawIOBase):
    """The parts of an archive as a file that can only be read forward."""

    def __init__(self, parts: Iterator[bytes]) -> None:
        self._parts, self._rest = parts, memoryview(b"")

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        found = []
        while size:
            if not self._rest:
                part = next(self._parts, None)
                if part is None:
                    break
                self._rest = memoryview(part)
                continue
            piece = self._rest[:size]
            self._rest = self._rest[len(piece) :]
            size -= len(piece)
            found.append(piece)
        return b"".join(found)


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo, largest: int = _LARGEST) -> bytes:
    stream = archive.extractfile(member)
    assert stream is not None
    return stream.read(largest)


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
    key = " ".join([FILES_RECIPE, *(layer.diff_id for layer in layers)])
    found = table.facts(
        key, lambda: msgspec.to_builtins(read_file_system([layer.archive for layer in layers]))
    )
    settings = config.get("config") or {}
    search = dict(line.partition("=")[::2] for line in settings.get("Env") or ()).get("PATH")
    files = base_files(msgspec.convert(found, FileSystem), name, python, search)
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


# Bases that are files: an archive of `docker image save` or in the format of OCI, or a compressed root file
# system.

_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_LARGEST_DOCUMENT = 8 << 20
_BROKEN_ARCHIVE = (tarfile.TarError, OSError, EOFError, zlib.error, lzma.LZMAError)


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
    """Return the only image in an archive that an engine saved; the file must stay. Raises InputError."""
    try:
        with tarfile.open(archive, tarinfo=BoundedTarInfo) as opened:
            members = {member.name: member for member in opened if member.isreg()}

            def read(path: str) -> object:
                return codec.parse(_content(opened, members[path], _LARGEST_DOCUMENT))

            if "manifest.json" in members:
                saved = codec.convert(read("manifest.json"), list[_Saved])
            else:
                # Podman writes archives in the format of OCI.
                index = codec.convert(read("index.json"), _Index)
                manifests = [codec.convert(read(one.path), _Manifest) for one in index.manifests]
                saved = [_Saved(one.config.path, [layer.path for layer in one.layers]) for one in manifests]
            if len(saved) != 1:
                raise InputError(f"{archive} contains {len(saved)} images instead of one")
            content = _content(opened, members[saved[0].config], _LARGEST_DOCUMENT)
            config, diff_ids = _checked(content, str(archive))
            if len(diff_ids) != len(saved[0].layers):
                raise InputError(f"{archive} has {len(saved[0].layers)} layers instead of {len(diff_ids)}")
            found = [members[path] for path in saved[0].layers]
    except (*_BROKEN_ARCHIVE, KeyError, DocumentError) as error:
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
        check_image_name(text)
        plain, _, digest = text.partition("@")
        path, colon, tag = plain.rpartition(":")
        if not colon or "/" in tag:
            path, tag = plain, "latest"
        host, slash, rest = path.partition("/")
        if not slash or not is_host(host):
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
