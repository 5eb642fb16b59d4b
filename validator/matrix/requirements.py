"""Read requirements that a user already has: a requirements.txt with the files that it includes."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from uv import find_uv_bin

from .._vendor.packaging.markers import InvalidMarker
from .._vendor.packaging.requirements import InvalidRequirement
from .._vendor.packaging.specifiers import InvalidSpecifier, SpecifierSet
from .._vendor.packaging.utils import canonicalize_name
from ..model.spec import LocalWheel, Requirements
from ..system import files, processes
from ..system.runs import temporary_directory
from ..versions import InvalidWheelName, is_release_of, read_marker, read_requirement, wheel_name
from .document import quote, quote_line, without_user

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
#: Bytes of a wheel that a matrix names. TensorFlow's have less than 1 GB.
MAX_WHEEL = 2 << 30


@dataclass
class Collected:
    """The requirements of the files read so far. hashes: accepted SHA-256 digests by normalized name."""

    lines: list[str] = field(default_factory=list)
    constraints: list[str] = field(default_factory=list)
    wheels: list[LocalWheel] = field(default_factory=list)
    hashes: dict[str, set[str]] = field(default_factory=dict)

    def requirements(self, origin: str) -> Requirements:
        hashes = tuple((name, tuple(sorted(accepted))) for name, accepted in sorted(self.hashes.items()))
        lines, constraints = (tuple(dict.fromkeys(found)) for found in (self.lines, self.constraints))
        return Requirements(origin, lines, constraints, hashes)


def read_requirements_txt(path: Path, root: Path) -> Collected:
    """Read a requirements file and those that it includes. root: the directory of the matrix file.

    Raises ValueError, with file and line, for what can't be read or can't be honoured in a lock.
    """
    found = Collected()
    _read(path, root, found, {path.resolve()}, constrain=False)
    return found


def _read(path: Path, root: Path, found: Collected, seen: set[Path], *, constrain: bool) -> None:
    lines = list(logical_lines(_text(path, root)))
    demands_hashes = any(text == _REQUIRE_HASHES for _, text in lines)
    for number, text in lines:
        try:
            inner = INCLUDE.fullmatch(text) or CONSTRAIN.fullmatch(text)
            if inner is not None:
                other = path.parent / inner["file"]
                if other.resolve() in seen:
                    raise ValueError(f"includes {quote(other.name)} again")
                seen.add(other.resolve())
                if len(seen) > MAX_FILES:
                    raise ValueError(f"more than {MAX_FILES} files are included")
                _read(other, root, found, seen, constrain=constrain or inner.re is CONSTRAIN)
            elif text != _REQUIRE_HASHES:
                _read_line(text, path.parent, root, found, constrain=constrain, demands_hashes=demands_hashes)
        except _InFile:
            raise
        except ValueError as error:
            raise _InFile(f"{relative_to(path, root)}:{number}: {error}") from None


class _InFile(ValueError):
    """An error that already names its file and line."""


def _read_line(
    text: str, directory: Path, root: Path, found: Collected, *, constrain: bool, demands_hashes: bool
) -> None:
    if _REFERENCE.search(text):
        raise ValueError(
            f"{quote_line(text)} uses an environment variable, but a lock is the same everywhere"
        )
    if _ALWAYS.fullmatch(text):
        return
    if _INDEX.match(text):
        raise ValueError(
            f"{quote_line(text)} can't be honoured: indexes are configured for uv or pip on each machine,"
            " not here"
        )
    if text.startswith("-") and not text.startswith(("-e", "--editable")):
        raise ValueError(f"{quote_line(text)} can't be honoured in a lock; remove it")
    wanted, *options = OPTIONS.split(text)
    try:
        package = read_package(wanted, directory, root)
    except ValueError as error:
        raise ValueError(f"{quote_line(wanted)} {error}") from None
    hashes = {_digest(option) for option in options}
    if isinstance(package, LocalWheel):
        if constrain:
            raise ValueError(f"{quote_line(wanted)} is a file, which can't be a constraint")
        found.wheels.append(package)
        name = package.name
        if hashes and package.sha256 not in hashes:
            raise ValueError(
                f"{quote_line(wanted)} has the SHA-256 {package.sha256}, which is not in the list"
            )
    else:
        name = canonicalize_name(read_requirement(package).name)
        (found.constraints if constrain else found.lines).append(package)
    if hashes:
        found.hashes.setdefault(name, set()).update(hashes)
    elif demands_hashes:
        raise ValueError(f"{quote_line(wanted)} has no hash, but the file says {_REQUIRE_HASHES}")


def _digest(option: str) -> str:
    match = _HASH.fullmatch(option.strip())
    if match is None:
        raise ValueError(f"{quote_line(option)} can't be honoured in a lock; remove it")
    if match["algorithm"] != "sha256" or len(match["digest"]) != 64:
        raise ValueError(f"{quote_line(option)} is not a SHA-256, the only hash that locks have")
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


def _text(path: Path, root: Path) -> str:
    """Return the text of a file below a directory. Raises ValueError with the reason if it can't be read."""
    try:
        return files.read_text(path, inside=root)
    except OSError as error:
        raise ValueError(f"{quote(relative_to(path, root))} can't be read: {error.strerror}") from None


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
    looks_like_path = text.startswith((".", "/", "~")) or "\\" in text
    if " @ " not in text and (looks_like_path or text.lower().endswith((".whl", *_ARCHIVES))):
        return _wheel(text, directory, root)
    try:
        requirement = read_requirement(text)
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
        f" `uvx pip wheel --no-deps --wheel-dir wheels {quote(without_user(source))}` and write its path"
    )


def _wheel(text: str, directory: Path, root: Path) -> LocalWheel:
    if text.startswith(("/", "~")) or "\\" in text:
        raise ValueError("must be a path relative to this file, with /, so that it is the same elsewhere")
    path = directory / text
    if not text.lower().endswith(".whl"):
        what = "is a source distribution" if text.lower().endswith(_ARCHIVES) else "is not a wheel"
        raise ValueError(_from_source(what, text))
    name, version = project_in(path.name)
    sha256, size = file_hash(path, root, MAX_WHEEL)
    return LocalWheel(relative_to(path, root), name, version, sha256, size)


def project_in(filename: str) -> tuple[str, str]:
    """Return the project and the version of a wheel. Raises ValueError if no image can install it."""
    try:
        name, version, tags = wheel_name(filename)
    except InvalidWheelName as error:
        raise ValueError(f"is not the name of a wheel: {error}") from None
    platforms = sorted({tag.platform for tag in tags})
    if not any(_PLATFORM.fullmatch(platform) for platform in platforms):
        raise ValueError(
            f"is for {', '.join(platforms)}, but images are for Linux on x86_64 with glibc; build it for that"
        )
    return name, str(version)


def relative_to(path: Path, root: Path) -> str:
    """Return a path relative to the directory of the matrix file, with `/` and without `./`."""
    return Path(os.path.relpath(path, root)).as_posix()


_hashes: dict[tuple[Path, int, int], str] = {}


def file_hash(path: Path, root: Path, most: int = files.MAX_BYTES) -> tuple[str, int]:
    """Return the SHA-256 (hex) and the size of a file below a directory. Raises ValueError."""
    try:
        with files.open_file(path, most, inside=root) as stream:
            status = os.fstat(stream.fileno())
            # The time and the size tell the cache that a file changed.
            key = (path, status.st_mtime_ns, status.st_size)
            if key not in _hashes:
                digest = hashlib.sha256()
                while part := stream.read(1 << 20):
                    digest.update(part)
                _hashes[key] = digest.hexdigest()
            return _hashes[key], status.st_size
    except OSError as error:
        raise ValueError(f"can't be read: {error.strerror}") from None


# Read requirements from a pylock.toml (PEP 751), and from a uv project, which uv exports as one.

_PACKAGE = re.compile(r"^[ \t]*\[\[\s*packages\s*\]\]", re.MULTILINE)
#: Where a package comes from if not from an index's wheels -> the words for it.
_SOURCES = {"vcs": "a repository", "directory": "a directory", "archive": "an archive"}
#: Variables of markers that only an installer's options give a value.
_CHOICES = re.compile(r"\b(?:extras|dependency_groups)\b")
#: Keys of a requirement in uv.lock that say where it comes from if not from an index.
_PLACES = {"url", "git", "path", "directory", "editable", "virtual"}
_TIMEOUT_S = 20.0
#: Bytes of memory for uv.
_MEMORY = 1 << 30


def read_pylock(path: Path, root: Path) -> Collected:
    """Read a pylock.toml as exact pins with hashes. Raises ValueError with its line, also without wheels."""
    return _parse(_text(path, root), path.name)


def read_project(directory: Path, group: str, root: Path) -> Collected:
    """Read the dependencies of a uv project, and of one of its groups, from its uv.lock.

    Nothing of the project runs: neither a build backend, nor a Python that it contains or names. So if its
    dependencies are dynamic, nobody can tell whether the lock is up to date, and it counts as it is.
    group: empty for no group. root: the directory of the matrix file. Raises ValueError if there is no lock,
    if it is out of date, or if uv can't export it.
    """
    project = _table(directory / "pyproject.toml", directory, root)
    # The lock of a member of a workspace is in the directory of the workspace.
    above = (directory, *directory.absolute().parents)
    place = next((one for one in above if (one / "uv.lock").is_file()), directory)
    _refuse_stale(project, _table(place / "uv.lock", directory, root), group)
    with temporary_directory("export") as work:
        # Only --frozen keeps uv from building an editable project, even with --no-build.
        command = [
            find_uv_bin(), "export", "--project", directory.absolute(), "--frozen", "--offline", "--no-build",
            "--no-emit-project", "--no-default-groups", "--format", "pylock.toml", "--no-header", "--quiet",
            "--no-python-downloads", "--python", sys.executable, *(("--group", group) if group else ()),
        ]  # fmt: skip
        environment = {"UV_NO_CONFIG": "1", "UV_PROJECT_ENVIRONMENT": str(work / "environment")}
        result = processes.run(
            command, cwd=work, env={**os.environ, **environment}, timeout_s=_TIMEOUT_S, memory_bytes=_MEMORY
        )
    if not result.ok:
        said = " ".join(result.stderr_tail.removeprefix("error: ").split()) or "uv export failed"
        raise ValueError(f"uv can't export the project: {said[:500]}")
    return _parse(result.stdout.decode(), "uv export")


def _table(path: Path, directory: Path, root: Path) -> dict[str, Any]:
    """Return a TOML file of a project. Raises ValueError with the reason."""
    shown = directory.name or "."
    if not os.path.lexists(path):
        raise ValueError(f"{quote(shown)} is not a project with a lock: it has no {path.name}")
    text = _text(path, root)
    try:
        return files.parse_toml(text)
    except ValueError:
        raise ValueError(f"{quote(relative_to(path, root))} is not TOML") from None


def _refuse_stale(document: dict[str, Any], lock: dict[str, Any], group: str) -> None:
    """Raise ValueError if a project asks for other versions than its lock was made for."""
    try:
        project = document["project"]
        name = canonicalize_name(project["name"])
        own = next(one for one in lock["package"] if canonicalize_name(one["name"]) == name)
        metadata = own.get("metadata", {})
        groups = metadata.get("requires-dev", {})
        pairs = [(document["dependency-groups"][group], groups.get(group, ()))] if group else []
        if "dependencies" not in project.get("dynamic", ()):
            extra = "extra =="
            locked = [one for one in metadata.get("requires-dist", ()) if extra not in one.get("marker", "")]
            pairs.append((project.get("dependencies", ()), locked))
        for asked, locked in pairs:
            known = {
                (canonicalize_name(one["name"]), SpecifierSet(one.get("specifier", ""))) for one in locked
            }
            # A source in tool.uv.sources, such as a path, replaces the versions.
            free = {canonicalize_name(one["name"]) for one in locked if _PLACES & one.keys()}
            wanted = [read_requirement(line) for line in asked if isinstance(line, str)]
            names = {canonicalize_name(one.name) for one in wanted}
            current = len(wanted) < len(asked) or names == {one for one, _ in known}
            if not current or any(
                (found := canonicalize_name(one.name)) not in free and (found, one.specifier) not in known
                for one in wanted
            ):
                raise ValueError("the project's uv.lock is out of date; run `uv lock` in its directory")
    except (KeyError, TypeError, AttributeError, StopIteration, InvalidRequirement, InvalidSpecifier):
        of = f" with the group {quote(group)}" if group else ""
        raise ValueError(f"pyproject.toml and uv.lock don't describe a project{of}") from None


def _parse(text: str, where: str) -> Collected:
    try:
        document = files.parse_toml(text)
    except ValueError as error:
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
            raise ValueError(f"{where}{line}: {quote(str(package.get('name')))} {error}") from None
    return found


def _add(package: dict[str, Any], found: Collected) -> None:
    source = next((words for key, words in _SOURCES.items() if key in package), None)
    if source is not None:
        raise ValueError(
            f"comes from {source}; build a wheel of it with `uvx pip wheel --no-deps --wheel-dir wheels"
            " SOURCE`, leave it out here, and write the path of the wheel in packages"
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
        condition = f" ; {read_marker(marker)}" if marker else ""
        requirement = read_requirement(f"{package['name']}=={package['version']}{condition}")
    except (InvalidMarker, InvalidRequirement):
        raise ValueError(f"has a condition that can't be evaluated: {quote(str(marker))}") from None
    hashes = {entry["hashes"]["sha256"].lower() for entry in package["wheels"]}
    found.lines.append(str(requirement))
    found.hashes.setdefault(canonicalize_name(requirement.name), set()).update(hashes)
