"""The layer of small files that depend on the base: the user, the empty environment, the loader's cache."""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch

from ..errors import InputError
from .base import BaseFile, BaseFiles, Interpreter
from .configuration import HOME, USER, USER_NAME
from .install import merged
from .layers import Entry, InMemory, LayerSource

# Read and write the cache of glibc's dynamic loader, `/etc/ld.so.cache`.
#
# The format is glibc's own (`sysdeps/generic/dl-cache.h`, `elf/cache.c`), since 2.32 the only one that
# ldconfig writes: a header, entries sorted by name in descending order, their strings, and an extension
# with the name of the program that wrote it and the names of the `glibc-hwcaps` directories.

_MAGIC = b"glibc-ld.so.cache1.1"
_HEADER = struct.Struct("<20sIIB3xI12x")
_ENTRY = struct.Struct("<iIIIQ")
_EXTENSION = struct.Struct("<II")
_SECTION = struct.Struct("<IIII")
_EXTENSION_MAGIC = 0xEAA42174
_GENERATOR, _HWCAPS = 0, 1
#: The bits of the byte after the number of strings that say which byte order the file has: little-endian.
_ENDIANNESS, _LITTLE = 3, 2
#: An entry for a library of glibc 2 for x86-64: FLAG_ELF_LIBC6 | FLAG_X8664_LIB64.
LIBRARY_FLAGS = 0x0303
#: The bit of `hwcap` of an entry in a `glibc-hwcaps` directory. The lower half is the directory's index.
_IN_HWCAPS = 1 << 62
_INDEX = 0xFFFFFFFF


@dataclass(frozen=True)
class CacheEntry:
    """A library: its name and its path. flags: of its type. hwcap: as in the file.

    hwcaps: the name of its `glibc-hwcaps` directory, such as `x86-64-v3`, or None.
    """

    name: str
    path: str
    flags: int = LIBRARY_FLAGS
    osversion: int = 0
    hwcap: int = 0
    hwcaps: str | None = None

    @property
    def directory(self) -> str:
        return self.path.rpartition("/")[0]


@dataclass(frozen=True)
class LoaderCache:
    """The entries in the order of the file. generator: which program wrote it, or None."""

    entries: tuple[CacheEntry, ...] = ()
    generator: str | None = None

    def with_libraries(
        self, added: Iterable[CacheEntry], comes_before: Callable[[CacheEntry], bool]
    ) -> LoaderCache:
        """Return the cache with more entries, in the order in which ldconfig lists them.

        comes_before: returns True for an entry of this cache that stays before an added one with the same
        name, because ldconfig reads its directory earlier.
        """
        earlier = [entry for entry in self.entries if comes_before(entry)]
        later = [entry for entry in self.entries if not comes_before(entry)]
        # Sort as `compare` in elf/cache.c does. Entries that it considers equal keep their order.
        ordered = sorted([*earlier, *added, *later], key=lambda entry: entry.hwcaps or "")
        ordered.sort(key=_rank, reverse=True)
        return LoaderCache(tuple(ordered), self.generator)


def _rank(entry: CacheEntry) -> tuple[object, ...]:
    # The loader stops at the first entry that is not in a glibc-hwcaps directory.
    is_special = entry.hwcaps is not None
    return name_key(entry.name), entry.flags, is_special, 0 if is_special else entry.hwcap


def name_key(name: str) -> list[tuple[bool, int]]:
    """Return a key that orders names of libraries, with numbers by their value (`_dl_cache_libcmp`)."""
    parts = re.findall(rb"\d+|\D", name.encode())
    return [(True, int(part)) if part.isdigit() else (False, part[0]) for part in parts]


def parse(data: bytes) -> LoaderCache:
    """Return the content of a cache. Raises InputError if it is damaged."""
    # Until glibc 2.31, the same file begins with an older format. Offsets count from the newer one.
    start = data.find(_MAGIC)
    if start < 0:
        raise InputError("/etc/ld.so.cache of the base does not have glibc's format")
    data = data[start:]
    try:
        _, count, _, flags, extension = _HEADER.unpack_from(data)
        if flags & _ENDIANNESS not in (0, _LITTLE):
            raise InputError("/etc/ld.so.cache of the base is for big-endian machines")
        generator, directories = _parse_extension(data, extension)
        entries = []
        for number in range(count):
            row = _ENTRY.unpack_from(data, _HEADER.size + number * _ENTRY.size)
            kind, name, path, osversion, hwcap = row
            hwcaps = directories[hwcap & _INDEX] if hwcap & _IN_HWCAPS else None
            entries.append(CacheEntry(_text(data, name), _text(data, path), kind, osversion, hwcap, hwcaps))
    except (struct.error, ValueError, IndexError) as error:
        raise InputError(f"/etc/ld.so.cache of the base is damaged: {error}") from error
    return LoaderCache(tuple(entries), generator)


def render(cache: LoaderCache) -> bytes:
    """Return the file. `parse(render(cache)) == cache`."""
    directories = sorted({entry.hwcaps for entry in cache.entries if entry.hwcaps is not None})
    strings = bytearray()
    offsets: dict[str, int] = {}
    start = _HEADER.size + len(cache.entries) * _ENTRY.size

    def place(text: str) -> int:
        if text not in offsets:
            offsets[text] = start + len(strings)
            strings.extend(text.encode() + b"\0")
        return offsets[text]

    rows = bytearray()
    for entry in cache.entries:
        hwcap = entry.hwcap
        if entry.hwcaps is not None:
            hwcap = hwcap & ~_INDEX | directories.index(entry.hwcaps)
        rows += _ENTRY.pack(entry.flags, place(entry.name), place(entry.path), entry.osversion, hwcap)
    indexes = struct.pack(f"<{len(directories)}I", *(place(name) for name in directories))
    # The indexes have to be aligned, so they come before the text.
    sections = [(_HWCAPS, indexes)] if directories else []
    if cache.generator is not None:
        sections.append((_GENERATOR, cache.generator.encode()))
    strings += bytes(-(start + len(strings)) % 4)
    end = start + len(strings)
    head = _HEADER.pack(_MAGIC, len(cache.entries), len(strings), _LITTLE, end if sections else 0)
    table, content = _EXTENSION.pack(_EXTENSION_MAGIC, len(sections)) if sections else b"", b""
    end += _EXTENSION.size + len(sections) * _SECTION.size
    for tag, data in sections:
        table += _SECTION.pack(tag, 0, end + len(content), len(data))
        content += data
    return head + bytes(rows + strings) + table + content


def _parse_extension(data: bytes, offset: int) -> tuple[str | None, tuple[str, ...]]:
    """Return the generator and the names of the hwcaps directories."""
    magic, count = _EXTENSION.unpack_from(data, offset) if offset else (0, 0)
    if magic != _EXTENSION_MAGIC:
        return None, ()
    generator: str | None = None
    directories: tuple[str, ...] = ()
    for number in range(count):
        at = offset + _EXTENSION.size + number * _SECTION.size
        tag, _, start, size = _SECTION.unpack_from(data, at)
        if tag == _GENERATOR:
            generator = data[start : start + size].decode()
        elif tag == _HWCAPS:
            indexes = struct.unpack_from(f"<{size // 4}I", data, start)
            directories = tuple(_text(data, index) for index in indexes)
    return generator, directories


def _text(data: bytes, offset: int) -> str:
    return data[offset : data.index(b"\0", offset)].decode()


RECIPE = "host files 3"
_VENV = "opt/venv"
#: Permissions of the directories into which pip installs. The image's user may add packages to them in a
#: derived image, but because of the sticky bit not replace those of the lock, which belong to root.
_EXTENSIBLE = 0o1775
_NVIDIA = f"{_VENV}/lib/python3/site-packages/nvidia"
_CONF = "etc/ld.so.conf"
_CONF_DIRECTORY = "etc/ld.so.conf.d"
_OWN_CONF = f"{_CONF_DIRECTORY}/nvidia-wheels.conf"
_CACHE = "etc/ld.so.cache"
_CUDA = "usr/local/cuda"
#: The line of the user in each file, which `useradd --uid 10001 --user-group` would add.
_LINES = {
    "etc/passwd": f"{USER_NAME}:x:{USER}:{USER}::{HOME}:/bin/sh",
    "etc/group": f"{USER_NAME}:x:{USER}:",
    "etc/shadow": f"{USER_NAME}:!::0:99999:7:::",
    "etc/gshadow": f"{USER_NAME}:!::",
}
#: Files that the base may have without lines: numbers of users for containers inside the container.
_SUBORDINATE = ("etc/subuid", "etc/subgid")
_SUBORDINATE_LINE = f"{USER_NAME}:100000:65536"
_ACTIVATE = """\
# This file must be used with "source bin/activate" from a shell. It makes the packages in /opt/venv the
# default, as they are when a container starts.
deactivate() {
    if [ -n "${_OLD_VIRTUAL_PATH:-}" ]; then
        PATH=$_OLD_VIRTUAL_PATH
        export PATH
        unset _OLD_VIRTUAL_PATH
    fi
    unset VIRTUAL_ENV
    if [ "${1:-}" != nondestructive ]; then unset -f deactivate; fi
    hash -r 2>/dev/null || true
}
deactivate nondestructive
VIRTUAL_ENV=/opt/venv
export VIRTUAL_ENV
_OLD_VIRTUAL_PATH=$PATH
PATH=$VIRTUAL_ENV/bin:$PATH
export PATH
hash -r 2>/dev/null || true
"""


def host_files(base: BaseFiles, libraries: Mapping[str, tuple[str, ...]]) -> LayerSource:
    """Return the layer. Raises InputError if the base has files that contradict the image.

    libraries: NVIDIA's by their directory in the image, as in `WheelFacts`; empty without CUDA.
    """
    # The root of the topmost layer counts. If that layer has none, Podman 4.3 gives it the mode 0700 in a
    # partial pull, and then only root can start a program.
    files = [Entry("", 0o755), *_user(base), *_environment(base.interpreter)]
    if libraries:
        files += _loader(base, libraries)
    # Directories keep the permissions that they have in the base.
    entries = [
        base.directories.get(entry.path, entry) if entry.content is None and entry.link is None else entry
        for entry in merged([("host files", files)])
    ]
    digest = hashlib.sha256()
    for entry in entries:
        content = entry.content.sha256 if entry.content else entry.link
        digest.update(f"{entry.path}\0{entry.mode}\0{entry.uid}\0{entry.gid}\0{content}\n".encode())
    return LayerSource("user, environment, loader", (RECIPE, digest.hexdigest()), lambda: entries)


def _user(base: BaseFiles) -> Iterator[Entry]:
    """Return the files that creating the user would change. None if the base has a user with its number."""
    users, groups = _table(base.files.get("etc/passwd")), _table(base.files.get("etc/group"))
    if "etc/passwd" not in base.files:
        raise InputError(
            "the base image has no /etc/passwd", hint="use a base with a Linux distribution in it"
        )
    if any(len(fields) > 2 and fields[2] == str(USER) for fields in users):
        return
    for kind, rows in (("user", users), ("group", groups)):
        if any(fields[0] == USER_NAME for fields in rows):
            raise InputError(
                f"the base image has a {kind} {USER_NAME} whose number is not {USER}",
                hint=f"rename it in the base, or give it the number {USER}",
            )
    for path, line in _LINES.items():
        if path in base.files:
            yield _changed(path, base.files[path], line)
    for path in _SUBORDINATE:
        if path in base.files and not base.files[path].content.strip():
            yield _changed(path, base.files[path], _SUBORDINATE_LINE)
    yield Entry(HOME[1:], 0o755, uid=USER, gid=USER)
    skeleton = "etc/skel/"
    for path, file in base.files.items():
        if path.startswith(skeleton):
            target = f"{HOME[1:]}/{path.removeprefix(skeleton)}"
            yield Entry(target, file.mode, InMemory(file.content), None, USER, USER)


def _environment(python: Interpreter) -> Iterator[Entry]:
    """Return an empty virtual environment of the base's Python, as `python -m venv` makes it.

    Packages lie in `lib/python3`, whatever the Python, so that layers with packages are the same for each.
    """
    home = python.path.rpartition("/")[0]
    settings = (
        f"home = {home}\ninclude-system-site-packages = false\nversion = {python.version}\n"
        f"executable = {python.path}\ncommand = {python.path} -m venv --without-pip /{_VENV}\n"
    )
    feature = f"python{python.feature}"
    yield Entry(f"{_VENV}/pyvenv.cfg", 0o644, InMemory(settings.encode()))
    yield Entry(f"{_VENV}/bin/activate", 0o644, InMemory(_ACTIVATE.encode()))
    for link in dict.fromkeys(("python", "python3", feature)):
        yield Entry(f"{_VENV}/bin/{link}", 0o777, link=python.path if link == feature else feature)
    yield Entry(f"{_VENV}/include", 0o755)
    yield Entry(f"{_VENV}/include/{feature}", 0o755)
    yield Entry(f"{_VENV}/include/site", 0o755)
    yield Entry(f"{_VENV}/include/site/{feature}", 0o777, link="python3")
    for directory in (_VENV, f"{_VENV}/bin", f"{_VENV}/lib/python3/site-packages", f"{_VENV}/share"):
        yield Entry(directory, _EXTENSIBLE, gid=USER)
    yield Entry(f"{_VENV}/lib/{feature}", 0o777, link="python3")
    yield Entry(f"{_VENV}/lib64", 0o777, link="lib")


def _loader(base: BaseFiles, libraries: Mapping[str, tuple[str, ...]]) -> Iterator[Entry]:
    """Make the dynamic loader and XLA find NVIDIA's wheels with every TensorFlow release.

    Some releases have no RUNPATH to them (2.12, 2.13 and 2.16.1). LD_LIBRARY_PATH and RUNPATH take precedence
    over the loader's configuration. The NVIDIA container runtime, which rewrites the loader's cache at every
    start, reads the configuration, too.
    """
    conf = "".join(f"/{directory}\n" for directory in sorted(libraries))
    yield Entry(_OWN_CONF, 0o644, InMemory(conf.encode()))
    existing = base.files.get(_CACHE)
    cache = parse(existing.content) if existing else LoaderCache()
    earlier = _directories_before(base)
    added = [
        CacheEntry(name, f"/{directory}/{name}")
        for directory in sorted(libraries)
        for name in libraries[directory]
    ]
    whole = cache.with_libraries(added, lambda entry: entry.directory in earlier)
    yield Entry(_CACHE, 0o644, InMemory(render(whole)))
    # By default, XLA looks for libdevice and ptxas here.
    if _CUDA not in base.paths:
        yield Entry(_CUDA, 0o777, link=f"/{_NVIDIA}/cuda_nvcc")


def _directories_before(base: BaseFiles) -> frozenset[str]:
    """Return the directories that ldconfig reads before those in our own file."""
    found: set[str] = set()
    main = base.files.get(_CONF)
    for line in _lines(main):
        word, _, pattern = line.partition(" ")
        if word != "include":
            found.add(line.rstrip("/"))
            continue
        pattern = pattern.strip().lstrip("/")
        pattern = pattern if pattern.startswith("etc/") else f"etc/{pattern}"
        matching = sorted(path for path in {*base.files, _OWN_CONF} if fnmatch(path, pattern))
        for path in matching:
            if path == _OWN_CONF:
                return frozenset(found)
            found.update(line.rstrip("/") for line in _lines(base.files[path]))
    raise InputError(
        f"the base image's /{_CONF} does not include /{_CONF_DIRECTORY}/*.conf",
        hint=f"add the line `include /{_CONF_DIRECTORY}/*.conf` to it in the base",
    )


def _lines(file: BaseFile | None) -> Iterator[str]:
    for line in (file.content if file else b"").decode("utf-8", "replace").splitlines():
        if text := line.partition("#")[0].strip():
            yield text


def _table(file: BaseFile | None) -> list[list[str]]:
    lines: Iterable[str] = (file.content if file else b"").decode("utf-8", "replace").splitlines()
    return [line.split(":") for line in lines]


def _changed(path: str, file: BaseFile, line: str) -> Entry:
    before = file.content
    if before and not before.endswith(b"\n"):
        before += b"\n"
    return Entry(path, file.mode, InMemory(before + line.encode() + b"\n"), None, file.uid, file.gid)
