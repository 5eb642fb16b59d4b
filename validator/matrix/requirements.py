"""Read requirements that a user already has: a requirements.txt with the files that it includes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from .._vendor.packaging.requirements import Requirement
from .._vendor.packaging.utils import canonicalize_name
from ..model.additions import LocalWheel, Requirements
from .packages import read_package, relative_to
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
