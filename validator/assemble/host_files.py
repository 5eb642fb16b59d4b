"""The layer of small files that depend on the base: the user, the empty environment, the loader's cache."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatch

from ..errors import InputError
from .base_files import BaseFile, BaseFiles, Interpreter
from .configuration import HOME, USER, USER_NAME
from .entries import Entry, InMemory
from .layers import LayerSource
from .loader_cache import CacheEntry, LoaderCache, parse, render
from .merge import merged

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
    """Return the layer.

    libraries: directory of NVIDIA's libraries in the image -> their names, as `WheelFacts` gives them; empty
    for an image without CUDA. Raises InputError if the base has files that contradict the image.
    """
    entries = _with_directories(base, _entries(base, libraries))
    digest = hashlib.sha256()
    for entry in entries:
        content = entry.content.sha256 if entry.content else entry.link
        digest.update(f"{entry.path}\0{entry.mode}\0{entry.uid}\0{entry.gid}\0{content}\n".encode())
    return LayerSource("user, environment, loader", (RECIPE, digest.hexdigest()), lambda: entries)


def _entries(base: BaseFiles, libraries: Mapping[str, tuple[str, ...]]) -> Iterator[Entry]:
    # The root of the topmost layer counts. If that layer has none, Podman 4.3 gives it the mode 0700 in a
    # partial pull, and then only root can start a program.
    yield Entry("", 0o755)
    yield from _user(base)
    yield from _environment(base.interpreter)
    if libraries:
        yield from _loader(base, libraries)


def _with_directories(base: BaseFiles, entries: Iterable[Entry]) -> list[Entry]:
    """Return the entries with their directories, which keep the permissions that they have in the base."""
    found = merged([("host files", entries)])
    return [
        base.directories.get(entry.path, entry) if entry.content is None and entry.link is None else entry
        for entry in found
    ]


def _user(base: BaseFiles) -> Iterator[Entry]:
    """Return the files that creating the user would change. None if the base has a user with its number."""
    users = _table(base.files.get("etc/passwd"))
    home = base.files.get("etc/passwd")
    if home is None:
        raise InputError(
            "the base image has no /etc/passwd", hint="use a base with a Linux distribution in it"
        )
    if any(len(fields) > 2 and fields[2] == str(USER) for fields in users):
        return
    groups = _table(base.files.get("etc/group"))
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
            yield Entry(
                f"{HOME[1:]}/{path.removeprefix(skeleton)}",
                file.mode,
                InMemory(file.content),
                None,
                USER,
                USER,
            )


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
