"""Map the files of a wheel to the paths of an environment, as installers do.

Source: https://packaging.python.org/en/latest/specifications/binary-distribution-format/
"""

from __future__ import annotations

import configparser
import hashlib
import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from email.parser import BytesHeaderParser
from functools import cached_property, lru_cache

from .._vendor.packaging.tags import Tag
from ..errors import InputError
from ..locks.resolve import target_tags
from ..model.spec import Wheel
from ..versions import wheel_name
from .layers import Content, Entry, InMemory, directories_of, path_problem
from .wheel import InstallableWheel, Member, RecordRow, refusal, render_record

# Put the files of several wheels together, as they are in one environment.

_DIRECTORY_MODE = 0o755

#: The SHA-256 of each file, by path.
Contents = Mapping[str, str]


def merged(parts: Iterable[tuple[str, Iterable[Entry]]]) -> list[Entry]:
    """Return the entries of several wheels, given with their names, with directories, in a layer's order.

    A file that several have with the same content is there once. Raises InputError for different content.
    """
    owners: dict[str, tuple[str, Entry]] = {}
    for name, some in parts:
        for entry in some:
            if entry.path not in owners:
                owners[entry.path] = (name, entry)
            elif not _same(owners[entry.path][1], entry):
                raise _conflict(owners[entry.path][0], name, entry.path)
    directories = directories_of(owners)
    for path in directories & owners.keys():
        name, entry = owners[path]
        if entry.content is not None or entry.link is not None:
            other = next(owner for below, (owner, _) in owners.items() if below.startswith(f"{path}/"))
            raise refusal(f"{name} and {other}", f"{path} is a file in one and a directory in the other")
    everything = {path: Entry(path, _DIRECTORY_MODE) for path in directories}
    everything.update((path, entry) for path, (_, entry) in owners.items())
    return [everything[path] for path in sorted(everything)]


def contents_of(entries: Iterable[Entry]) -> Contents:
    """Return what the files of a wheel contain."""
    return {entry.path: _digest(entry.content) for entry in entries if entry.content is not None}


def check_no_conflict(parts: Iterable[tuple[str, Contents]]) -> None:
    """Raise InputError if two wheels have a file with different content. parts: as in `merged`."""
    owners: dict[str, tuple[str, str]] = {}
    for name, contents in parts:
        for path, digest in contents.items():
            other, expected = owners.setdefault(path, (name, digest))
            if digest != expected:
                raise _conflict(other, name, path)


def _conflict(one: str, other: str, path: str) -> InputError:
    return refusal(
        f"{one} and {other}",
        f"both contain {path}, with different content",
        "leave out one of the two packages, or lock releases that agree",
    )


def _same(one: Entry, other: Entry) -> bool:
    if one.content is None or other.content is None:
        return one == other
    # Permissions don't matter: the first wheel's count.
    return one.content.size == other.content.size and _digest(one.content) == _digest(other.content)


def _digest(content: Content) -> str:
    if content.sha256 is not None:
        return content.sha256
    hashing = hashlib.sha256()
    for chunk in content.chunks():
        hashing.update(chunk)
    return hashing.hexdigest()


#: Changes when the same wheel would give other entries.
RECIPE = "install 1"
INSTALLER = "tensorflow-gpu-matrix"

_DIRECTORY, _FILE, _EXECUTABLE = 0o755, 0o644, 0o755
_PLACEHOLDER = b"#!python"
#: What the environment itself contains, below `bin`.
_RESERVED = re.compile(r"python[\d.]*|activate(\.\w+)?|Activate\.ps1")
#: These are made here, whatever the wheel contains.
_REPLACED = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")
_VERSIONED_LIBRARY = re.compile(r"lib(64)?/python3(\.\d+)?/")
_SCRIPT_GROUPS = ("console_scripts", "gui_scripts")
_SCRIPT_NAME = re.compile(r"\w[\w.@+ -]*")
_REFERENCE = re.compile(r"(?P<module>\w+(\.\w+)*)\s*:\s*(?P<object>\w+(\.\w+)*)\s*(\[.*\])?")
_MANYLINUX = re.compile(r"manylinux_(\d+)_(\d+)_x86_64")
_LINUX = re.compile(r"(many)?linux.*_x86_64")
_X86_64 = 62


#: The environment in an image, the directory of its packages, and its Python.
_VENV = "opt/venv"
_PACKAGES = f"{_VENV}/lib/python3/site-packages"
_INTERPRETER = f"/{_VENV}/bin/python"


@dataclass(frozen=True)
class Environment:
    """The environment that wheels are installed in. glibc: such as (2, 36).

    python: `3.11`; it only decides which wheels fit. A wheel that fits several versions of Python has the
    same files in each: `lib/python3.11` and `include/site/python3.11` are links. There is no script
    `pip3.11`.
    """

    python: str
    glibc: tuple[int, int]

    @cached_property
    def extension_suffixes(self) -> tuple[str, ...]:
        """The ends of the file names of extension modules that are built for one architecture."""
        return f".cpython-{self.python.replace('.', '')}-x86_64-linux-gnu.so", ".abi3.so"


def entries(wheel: InstallableWheel, environment: Environment) -> tuple[Entry, ...]:
    """Return the files that an installation of the wheel consists of, sorted, without their directories.

    As with `uv pip install` of a lock, every package counts as one that was asked for. So the layer of a
    wheel does not depend on what else an image asks for. Raises InputError for a wheel that may not be
    installed.
    """
    check_compatible(wheel.wheel, environment)
    scripts = _entry_points(wheel)
    installed: dict[str, Entry] = {}
    for entry in (*_unpacked(wheel, environment, scripts), *_generated(wheel, scripts)):
        if entry.path in installed:
            raise wheel.refused(f"two of its files are installed as {entry.path}")
        installed[entry.path] = entry
    for entry in _metadata(wheel, installed):
        installed[entry.path] = entry
    return tuple(installed[path] for path in sorted(installed))


def check_compatible(wheel: Wheel, environment: Environment) -> None:
    """Raise InputError if the tags of the wheel's name don't fit the environment."""
    tags = wheel_name(wheel.filename)[2]
    if tags & _accepted_tags(environment.python, environment.glibc):
        return
    glibc = ".".join(map(str, environment.glibc))
    newest = (environment.glibc[0], 1000)
    if tags & _accepted_tags(environment.python, newest):
        matches = (_MANYLINUX.fullmatch(tag.platform) for tag in tags)
        needed = min((int(match[1]), int(match[2])) for match in matches if match)
        raise refusal(
            wheel.filename,
            f"it needs glibc {needed[0]}.{needed[1]}, and the base has {glibc}",
            "choose a newer base, or an older release of this package",
        )
    platforms = sorted({tag.platform for tag in tags})
    if not any(name == "any" or _LINUX.fullmatch(name) for name in platforms):
        raise refusal(wheel.filename, f"it is for {', '.join(platforms)}, and images are for Linux on x86_64")
    raise refusal(
        wheel.filename,
        f"it does not fit Python {environment.python} with glibc {glibc}",
        "lock the image again",
    )


@lru_cache(maxsize=8)
def _accepted_tags(python: str, glibc: tuple[int, int]) -> frozenset[Tag]:
    """Return the tags of `target_tags`: about 25,000, with which every wheel of an image is compared."""
    return frozenset(target_tags(python, glibc))


def _unpacked(
    wheel: InstallableWheel, environment: Environment, scripts: Mapping[str, str]
) -> Iterator[Entry]:
    """Return the files that the wheel contains, where they belong."""
    data = wheel.info.removesuffix(".dist-info") + ".data"
    replaced = {f"{wheel.info}/{name}" for name in _REPLACED}
    schemes = {
        "purelib": _PACKAGES,
        "platlib": _PACKAGES,
        "scripts": f"{_VENV}/bin",
        "headers": f"{_VENV}/include/site/python3/{wheel.wheel.name}",
        "data": _VENV,
    }
    for path, member in wheel.members.items():
        if path in replaced:
            continue
        first, _, rest = path.partition("/")
        if first != data:
            if first.endswith(".data"):
                raise wheel.refused(f"{path} belongs to another package")
            yield _file(wheel, environment, f"{_PACKAGES}/{path}", member)
            continue
        scheme, _, rest = rest.partition("/")
        if scheme not in schemes or not rest:
            raise wheel.refused(f"{path} belongs to no part of an environment")
        if scheme == "scripts":
            # Older versions of setuptools also pack the scripts that installers make.
            if rest not in scripts:
                content: Content = member
                if member.head(len(_PLACEHOLDER)) == _PLACEHOLDER:
                    below = member.content().partition(b"\n")[2]
                    content = InMemory(b"#!" + _INTERPRETER.encode() + b"\n" + below)
                yield Entry(_checked(wheel, f"{schemes[scheme]}/{rest}"), _EXECUTABLE, content)
            continue
        if scheme == "data" and (versioned := _VERSIONED_LIBRARY.match(rest)):
            rest = f"lib/python3/{rest[versioned.end() :]}"
        yield _file(wheel, environment, f"{schemes[scheme]}/{rest}", member)


def _file(wheel: InstallableWheel, environment: Environment, path: str, member: Member) -> Entry:
    if path.endswith(environment.extension_suffixes):
        head = member.head(20)
        if head[:4] == b"\x7fELF" and (len(head) < 20 or struct.unpack_from("<H", head, 18)[0] != _X86_64):
            raise wheel.refused(f"{member.path} is not made for x86_64, though the name of the wheel says so")
    return Entry(_checked(wheel, path), _EXECUTABLE if member.is_executable else _FILE, member)


def _checked(wheel: InstallableWheel, path: str) -> str:
    """Return the path. Raises InputError if it is one of the environment itself, or not allowed."""
    inside = path.removeprefix(f"{_VENV}/")
    directory, _, name = inside.rpartition("/")
    if inside == "pyvenv.cfg" or (directory == "bin" and _RESERVED.fullmatch(name)):
        raise wheel.refused(f"it would replace {inside} of the environment")
    if problem := path_problem(path):
        raise wheel.refused(f"the path {path!r} {problem}")
    return path


def _entry_points(wheel: InstallableWheel) -> dict[str, str]:
    """Return the scripts that the wheel declares: name -> `module:object`."""
    member = wheel.members.get(f"{wheel.info}/entry_points.txt")
    if member is None:
        return {}
    parser = configparser.RawConfigParser(delimiters=("=",), strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment]  # names are case-sensitive
    try:
        parser.read_string(member.content().decode("utf-8"))
    except (UnicodeDecodeError, configparser.Error) as error:
        raise wheel.refused(f"{member.path} can't be read: {' '.join(str(error).split())}") from None
    groups = [group for group in _SCRIPT_GROUPS if parser.has_section(group)]
    return {name: reference for group in groups for name, reference in parser.items(group)}


def _generated(wheel: InstallableWheel, scripts: Mapping[str, str]) -> Iterator[Entry]:
    for name, reference in scripts.items():
        match = _REFERENCE.fullmatch(reference.strip())
        if match is None or not _SCRIPT_NAME.fullmatch(name):
            raise wheel.refused(f"its script {name!r} has no valid reference: {reference[:200]!r}")
        start = match["object"].partition(".")[0]
        text = (
            f"#!{_INTERPRETER}\n"
            "import sys\n\n"
            f"from {match['module']} import {start}\n\n"
            'if __name__ == "__main__":\n'
            f"    sys.exit({match['object']}())\n"
        )
        yield Entry(_checked(wheel, f"{_VENV}/bin/{name}"), _EXECUTABLE, InMemory(text.encode()))


def _metadata(wheel: InstallableWheel, installed: Mapping[str, Entry]) -> Iterator[Entry]:
    """Return what an installer writes about the installation: INSTALLER, REQUESTED and RECORD."""
    member = wheel.members.get(f"{wheel.info}/WHEEL")
    if member is None or f"{wheel.info}/METADATA" not in wheel.members:
        raise wheel.refused(f"{wheel.info} has no WHEEL or no METADATA")
    version = str(BytesHeaderParser().parsebytes(member.content()).get("Wheel-Version", "")).strip()
    if not re.fullmatch(r"1\.\d+", version):
        raise wheel.refused(f"it has the version {version[:20]!r} of the wheel format, and only 1.x is known")
    info = f"{_PACKAGES}/{wheel.info}"
    written = (
        Entry(f"{info}/INSTALLER", _FILE, InMemory(f"{INSTALLER}\n".encode())),
        Entry(f"{info}/REQUESTED", _FILE, InMemory(b"")),
    )
    yield from written
    rows = {f"{wheel.info}/RECORD": RecordRow()}
    for entry in (*installed.values(), *written):
        content = entry.content
        path = entry.path.removeprefix(f"{_PACKAGES}/")
        if path == entry.path:
            path = f"../../../{path.removeprefix(f'{_VENV}/')}"
        if isinstance(content, Member):
            rows[path] = content.row._replace(size=content.size)
        elif content is not None:
            rows[path] = RecordRow("sha256", content.sha256, content.size)
    yield Entry(f"{info}/RECORD", _FILE, InMemory(render_record(rows)))
