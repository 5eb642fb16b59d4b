"""Read requirements from a pylock.toml (PEP 751), and from a uv project, which uv exports as one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from uv import find_uv_bin

from .._vendor.packaging.markers import InvalidMarker, Marker
from .._vendor.packaging.requirements import InvalidRequirement, Requirement
from .._vendor.packaging.utils import canonicalize_name
from ..system import processes, toml
from ..versions import is_release_of
from .problems import quote
from .requirements import Collected, read_text

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
