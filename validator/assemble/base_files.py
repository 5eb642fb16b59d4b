"""Read the few files of a base that decide what its images need, and check that it has what they need."""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from ..errors import InputError
from ..resources import manual
from ..versions import leading_numbers, major_minor
from .layers import Entry

#: Changes when other files are read, or in another way.
RECIPE = "base files 2"
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
#: What is kept besides links and small files: the names of programs and libraries, directories.
_RELEVANT = re.compile(
    "|".join(
        (_PYTHON.pattern, _GLIBC.pattern, r"(.*/)?ld-[^/]+\.so[.\d]*", *_DIRECTORIES, *_PATHS, "opt/venv")
    )
)
_LOADER = "lib64/ld-linux-x86-64.so.2"
#: The version as a string of its own, which other strings may end with.
_VERSION = re.compile(rb"(?<![\d.])(3\.\d+\.\d+(?:(?:a|b|rc)\d+)?)\+?\x00")
_GLIBC_VERSION = re.compile(rb"GNU C Library [^\x00]{0,120} release version (\d+\.\d+)")
_MACHINE_AT, _X86_64 = 18, 62
#: A base's small files are read up to this size in bytes.
_SMALL = 4 << 20
_LARGEST_BINARY = 64 << 20
#: Names to follow in one path, with those of symbolic links.
_STEPS = 400
#: Where Docker looks for programs if the base does not say.
_SEARCH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: Entries that say something about the next one.
_EXTENSIONS = (
    tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)  # fmt: skip
#: Entries in all layers of a base. Images with CUDA have about 100,000.
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
                _apply(archive, nodes)
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
            # By its own name, and not by that of a link to it.
            return Interpreter(f"/{directory.strip('/')}/python{python}", versions.pop())
    has = f"Python {' and '.join(sorted(others))}" if others else "no Python"
    raise InputError(f"the base image {name} has {has} on its PATH; Python {python} is needed", hint=_HINT)


def _apply(archive: tarfile.TarFile, nodes: dict[str, Node]) -> None:
    """Apply a layer to what is below it, as the OCI image specification says."""
    own: set[str] = set()
    while (member := archive.next()) is not None:
        # It keeps all entries that it has read.
        archive.members.clear()  # type: ignore[attr-defined]
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
    """Return the path that a whiteout hides, with a slash at the end if only what is below it, or None."""
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
        content = _content(archive, member) if member.size <= _LARGEST_BINARY else b""
        if content[:6] == b"\x7fELF\x02\x01":
            node.machine = int.from_bytes(content[_MACHINE_AT : _MACHINE_AT + 2], "little")
        pattern = _VERSION if _PYTHON.fullmatch(path) else _GLIBC_VERSION
        node.versions = tuple(sorted({match.decode() for match in pattern.findall(content)}))
    return node


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    stream = archive.extractfile(member)
    assert stream is not None
    return stream.read()


def parts_of(path: str) -> list[str]:
    """Return the parts of a path, without `.` and `..`."""
    found: list[str] = []
    for part in path.split("/"):
        if part == "..":
            found = found[:-1]
        elif part not in ("", "."):
            found.append(part)
    return found


class BoundedTarInfo(tarfile.TarInfo):
    """An entry whose long names and extended attributes are not longer than any archiver writes them.

    They are read into memory, and a few bytes that are compressed can stand for gigabytes.
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
