"""Read requirements that a user already has: a requirements.txt with the files that it includes."""

from __future__ import annotations

import functools
import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from uv import find_uv_bin

from .._vendor.packaging.markers import InvalidMarker, Marker
from .._vendor.packaging.requirements import InvalidRequirement, Requirement
from .._vendor.packaging.utils import canonicalize_name
from ..compat.inspect import InvalidWheelName, wheel_name
from ..model.spec import LocalWheel, Requirements
from ..system import processes, toml
from ..versions import is_release_of
from .problems import quote

_COMMENT = re.compile(r"(?:^|(?<=\s))#.*$")
INCLUDE = re.compile(r"(?:-r|--requirement)(?:\s+|\s*=\s*|(?=[^-\s]))(?P<file>\S.*)$")
CONSTRAIN = re.compile(r"(?:-c|--constraint)(?:\s+|\s*=\s*|(?=[^-\s]))(?P<file>\S.*)$")
OPTIONS = re.compile(r"\s+(?=--)")
_HASH = re.compile(r"--hash[= ](?P<algorithm>\w+):(?P<digest>[0-9a-fA-F]+)")
_REFERENCE = re.compile(r"\$\{[A-Z0-9_]+\}")
#: Options that ask for what every lock does anyway.
_ALWAYS = re.compile(r"--only-binary\b.*|--prefer-binary")
_INDEX = re.compile(r"-i\b|--index-url|--extra-index-url|--no-index|-f\b|--find-links|--trusted-host")
_REQUIRE_HASHES = "--require-hashes"

#: A requirements file may include this many others, itself included.
MAX_FILES = 50


@dataclass
class Collected:
    """The requirements of the files read so far.

    hashes: accepted SHA-256 digests by normalized name.
    """

    lines: list[str] = field(default_factory=list)
    constraints: list[str] = field(default_factory=list)
    wheels: list[LocalWheel] = field(default_factory=list)
    hashes: dict[str, set[str]] = field(default_factory=dict)

    def requirements(self, origin: str) -> Requirements:
        hashes = tuple((name, tuple(sorted(accepted))) for name, accepted in sorted(self.hashes.items()))
        lines, constraints = (tuple(dict.fromkeys(found)) for found in (self.lines, self.constraints))
        return Requirements(origin, lines, constraints, hashes)


def read_requirements_txt(path: Path, root: Path) -> Collected:
    """Read a requirements file and those that it includes.

    root: the directory of the matrix file. Raises ValueError, with file and line, for what can't be read or
    can't be honoured in a lock.
    """
    found = Collected()
    _read(path, root, found, {path.resolve()}, constrain=False)
    return found


def _read(path: Path, root: Path, found: Collected, seen: set[Path], *, constrain: bool) -> None:
    lines = list(logical_lines(read_text(path, root)))
    demands_hashes = any(text == _REQUIRE_HASHES for _, text in lines)
    for number, text in lines:
        try:
            inner = INCLUDE.fullmatch(text) or CONSTRAIN.fullmatch(text)
            if inner is not None:
                constrained = constrain or inner.re is CONSTRAIN
                _include(path.parent / inner["file"], root, found, seen, constrain=constrained)
            elif text != _REQUIRE_HASHES:
                _read_line(text, path.parent, root, found, constrain=constrain, demands_hashes=demands_hashes)
        except _InFile:
            raise
        except ValueError as error:
            raise _InFile(f"{relative_to(path, root)}:{number}: {error}") from None


class _InFile(ValueError):
    """An error that already names its file and line."""


def _include(path: Path, root: Path, found: Collected, seen: set[Path], *, constrain: bool) -> None:
    if path.resolve() in seen:
        raise ValueError(f"includes {quote(path.name)} again")
    seen.add(path.resolve())
    if len(seen) > MAX_FILES:
        raise ValueError(f"more than {MAX_FILES} files are included")
    _read(path, root, found, seen, constrain=constrain)


def _read_line(
    text: str, directory: Path, root: Path, found: Collected, *, constrain: bool, demands_hashes: bool
) -> None:
    if _REFERENCE.search(text):
        raise ValueError(f"{quote(text)} uses an environment variable, but a lock is the same everywhere")
    if _ALWAYS.fullmatch(text):
        return
    if _INDEX.match(text):
        raise ValueError(
            f"{quote(text)} can't be honoured: indexes are configured for uv or pip on each machine, not here"
        )
    if text.startswith("-") and not text.startswith(("-e", "--editable")):
        raise ValueError(f"{quote(text)} can't be honoured in a lock; remove it")
    wanted, *options = OPTIONS.split(text)
    try:
        package = read_package(wanted, directory, root)
    except ValueError as error:
        raise ValueError(f"{quote(wanted)} {error}") from None
    hashes = {_digest(option) for option in options}
    if isinstance(package, LocalWheel):
        if constrain:
            raise ValueError(f"{quote(wanted)} is a file, which can't be a constraint")
        found.wheels.append(package)
        name = package.name
        if hashes and package.sha256 not in hashes:
            raise ValueError(f"{quote(wanted)} has the SHA-256 {package.sha256}, which is not in the list")
    else:
        name = canonicalize_name(Requirement(package).name)
        (found.constraints if constrain else found.lines).append(package)
    if hashes:
        found.hashes.setdefault(name, set()).update(hashes)
    elif demands_hashes:
        raise ValueError(f"{quote(wanted)} has no hash, but the file says {_REQUIRE_HASHES}")


def _digest(option: str) -> str:
    match = _HASH.fullmatch(option.strip())
    if match is None:
        raise ValueError(f"{quote(option)} can't be honoured in a lock; remove it")
    if match["algorithm"] != "sha256" or len(match["digest"]) != 64:
        raise ValueError(f"{quote(option)} is not a SHA-256, the only hash that locks have")
    return match["digest"].lower()


def logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Return the lines that say something, with the number of their first line."""
    first, collected = 0, ""
    for number, line in enumerate(text.splitlines(), start=1):
        first = first or number
        if line.endswith("\\") and not line.lstrip().startswith("#"):
            collected += line[:-1] + " "
            continue
        complete = " ".join(_COMMENT.sub("", collected + line).split())
        if complete:
            yield first, complete
        first, collected = 0, ""
    if collected.strip():
        yield first, " ".join(collected.split())


def read_text(path: Path, root: Path) -> str:
    """Return the text of a file. Raises ValueError with the reason if it can't be read."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ValueError(f"{quote(relative_to(path, root))} can't be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{quote(relative_to(path, root))} is not UTF-8") from None


# Read one package that a matrix or a requirements file asks for: a requirement, or the path of a wheel.


_EDITABLE = re.compile(r"(?:-e|--editable)\b")
_VCS = re.compile(r"(?:git|hg|svn|bzr)\+", re.IGNORECASE)
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://|file:", re.IGNORECASE)
_ARCHIVES = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".zip")
#: The platforms of wheels that the images can install; the lock compares versions of glibc.
_PLATFORM = re.compile(r"any|(?:manylinux[0-9_]*|linux)_x86_64")


def read_package(text: str, directory: Path, root: Path) -> str | LocalWheel:
    """Return a requirement in its normal form, or the wheel that a path names.

    directory: the one to which the path is relative. root: the directory of the matrix file.
    Raises ValueError, with what to do, for everything that is not a wheel or not the name of one.
    """
    if _EDITABLE.match(text):
        raise ValueError(_from_source("is an editable requirement", re.sub(r"^\S+?[ =]+", "", text)))
    if _VCS.match(text):
        raise ValueError(_from_source("names a repository", text))
    if _ADDRESS.match(text):
        raise ValueError(_ADDRESS_REFUSED)
    if _is_path(text):
        return _wheel(text, directory, root)
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        raise ValueError(f"is not a requirement: {str(error).splitlines()[0]}") from None
    if requirement.url is None:
        return str(requirement)
    if _VCS.match(requirement.url):
        raise ValueError(_from_source("names a repository", requirement.url))
    raise ValueError(_ADDRESS_REFUSED)


_ADDRESS_REFUSED = (
    "is an address, but a lock is the same on every network; download the wheel, and write its path,"
    " such as ./wheels/ours-1.0-py3-none-any.whl"
)


def _from_source(what: str, source: str) -> str:
    return (
        f"{what}; images are made only from wheels: build one with"
        f" `uvx pip wheel --no-deps --wheel-dir wheels {quote(source)}` and write its path"
    )


def _is_path(text: str) -> bool:
    if " @ " in text:
        return False
    return text.startswith((".", "/", "~")) or "\\" in text or text.lower().endswith((".whl", *_ARCHIVES))


def _wheel(text: str, directory: Path, root: Path) -> LocalWheel:
    if text.startswith(("/", "~")) or "\\" in text:
        raise ValueError("must be a path relative to this file, with /, so that it is the same elsewhere")
    path = directory / text
    if not text.lower().endswith(".whl"):
        what = "is a source distribution" if text.lower().endswith(_ARCHIVES) else "is not a wheel"
        raise ValueError(_from_source(what, text))
    try:
        name, version, tags = wheel_name(path.name)
    except InvalidWheelName as error:
        raise ValueError(f"is not the name of a wheel: {error}") from None
    platforms = sorted({tag.platform for tag in tags})
    if not any(_PLATFORM.fullmatch(platform) for platform in platforms):
        raise ValueError(
            f"is for {', '.join(platforms)}, but images are for Linux on x86_64 with glibc; build it for that"
        )
    sha256, size = file_hash(path)
    return LocalWheel(relative_to(path, root), name, str(version), sha256, size)


def relative_to(path: Path, root: Path) -> str:
    """Return a path relative to the directory of the matrix file, with `/` and without `./`."""
    return Path(os.path.relpath(path, root)).as_posix()


def file_hash(path: Path) -> tuple[str, int]:
    """Return the SHA-256 (hex) and the size of a file. Raises ValueError if it can't be read."""
    try:
        found = path.stat()
        if not path.is_file():
            raise ValueError("is not a file")
        return _hash(path, found.st_mtime_ns, found.st_size), found.st_size
    except OSError as error:
        raise ValueError(f"can't be read: {error.strerror}") from None


@functools.lru_cache(maxsize=256)
def _hash(path: Path, modified_ns: int, size: int) -> str:
    """Return the hash of a file. The other parameters make a changed file another one for the cache."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while part := stream.read(1024 * 1024):
            digest.update(part)
    return digest.hexdigest()


# Read requirements from a pylock.toml (PEP 751), and from a uv project, which uv exports as one.


_PACKAGE = re.compile(r"^[ \t]*\[\[\s*packages\s*\]\]", re.MULTILINE)
#: Where a package comes from if not from an index's wheels -> the words for it.
_SOURCES = {"vcs": "a repository", "directory": "a directory", "archive": "an archive"}
#: Variables of markers that only an installer's options give a value.
_CHOICES = re.compile(r"\b(?:extras|dependency_groups)\b")
_TIMEOUT_S = 60.0


def read_pylock(path: Path, root: Path) -> Collected:
    """Read a pylock.toml: its packages as exact pins, with the hashes of their wheels.

    Raises ValueError, with file and line, for what can't be read or is not made of wheels.
    """
    return _parse(read_text(path, root), path.name)


def read_project(directory: Path, group: str) -> Collected:
    """Read the dependencies of a uv project, and of one of its groups, from its uv.lock.

    group: empty for no group. Raises ValueError if uv can't export them.
    """
    command = [
        find_uv_bin(), "export", "--project", directory, "--locked", "--offline", "--no-emit-project",
        "--no-default-groups", "--format", "pylock.toml", "--no-header", "--quiet", "--no-python-downloads",
        *(("--group", group) if group else ()),
    ]  # fmt: skip
    if not (directory / "pyproject.toml").is_file():
        raise ValueError(f"{quote(directory.name or '.')} is not a project: it has no pyproject.toml")
    result = processes.run(command, cwd=directory, timeout_s=_TIMEOUT_S)
    if not result.ok:
        said = " ".join(result.stderr_tail.removeprefix("error: ").split()) or "uv export failed"
        raise ValueError(f"uv can't export the project: {said}")
    return _parse(result.stdout.decode(), "uv export")


def _parse(text: str, where: str) -> Collected:
    try:
        document = toml.loads(text)
    except toml.TOMLDecodeError as error:
        raise ValueError(f"{where}: not TOML: {error}") from None
    version = str(document.get("lock-version", ""))
    if not is_release_of(version, "1"):
        raise ValueError(f"{where}: its lock-version is {quote(version)}; only 1.x is known (PEP 751)")
    starts = [text.count("\n", 0, match.start()) + 1 for match in _PACKAGE.finditer(text)]
    found = Collected()
    for index, package in enumerate(document.get("packages", [])):
        line = f":{starts[index]}" if index < len(starts) else ""
        try:
            _add(package, found)
        except (KeyError, TypeError, AttributeError):
            raise ValueError(f"{where}{line}: is not a package as PEP 751 describes it") from None
        except ValueError as error:
            raise ValueError(f"{where}{line}: {quote(str(package['name']))} {error}") from None
    return found


def _add(package: dict[str, Any], found: Collected) -> None:
    source = next((words for key, words in _SOURCES.items() if key in package), None)
    if source is not None:
        raise ValueError(
            f"comes from {source}; build a wheel of it with"
            " `uvx pip wheel --no-deps --wheel-dir wheels SOURCE`, leave it out here, and write the path of"
            " the wheel in packages"
        )
    if not package.get("wheels"):
        raise ValueError(
            f"{package['version']} has no wheel; build one with"
            f" `uvx pip wheel --no-deps --wheel-dir wheels {package['name']}=={package['version']}`,"
            " leave it out here, and write the path of the wheel in packages"
        )
    marker = package.get("marker")
    try:
        if marker and _CHOICES.search(marker):
            raise InvalidMarker
        condition = f" ; {Marker(marker)}" if marker else ""
        requirement = Requirement(f"{package['name']}=={package['version']}{condition}")
    except (InvalidMarker, InvalidRequirement):
        raise ValueError(f"has a condition that can't be evaluated: {quote(str(marker))}") from None
    hashes = {entry["hashes"]["sha256"].lower() for entry in package["wheels"]}
    found.lines.append(str(requirement))
    found.hashes.setdefault(canonicalize_name(requirement.name), set()).update(hashes)
