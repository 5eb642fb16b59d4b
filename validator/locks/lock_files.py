"""Lock files: requirements with hashes that pip and uv can install, one wheel per line.

# Lock of tf2.21.0-cuda12.9-cudnn9.28-py312; written by `python -m validator lock`, not by hand.
# python: 3.12
# platform: x86_64-manylinux_2_28
# digest: sha256:…
# resolved: 2026-11-22
# requires: tensorflow==2.21.0
absl-py==2.5.1 --hash=sha256:…  # absl_py-2.5.1-py3-none-any.whl 135758
ours==1.0 --hash=sha256:…  # ours-1.0-py3-none-any.whl 4711 wheels/ours-1.0-py3-none-any.whl

The last field is the path or the address of a wheel that does not come from the index.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from .._vendor.packaging.requirements import InvalidRequirement
from .._vendor.packaging.utils import canonicalize_name
from ..errors import InputError
from ..matrix.document import quote_line
from ..model.spec import Additions, ImageSpec, Lock, Wheel
from ..system.files import read_text, write_atomically
from ..system.processes import git
from ..versions import read_requirement

#: The directory of the locks, relative to the matrix file.
DIRECTORY = Path("images") / "locks"

_WHEEL = re.compile(
    r"^(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[A-Za-z0-9.!+_-]+)"
    r" --hash=sha256:(?P<sha256>[0-9a-f]{64})  # (?P<filename>[A-Za-z0-9._+-]+\.whl)"
    r"(?: (?P<size>\d{1,18})(?: (?P<path>\S.*))?)?$"
)
_HEADER = re.compile(r"^# (?P<key>python|platform|digest|resolved|requires|adds): (?P<value>.+)$")
_TITLE = re.compile(r"^# Lock of (?P<identifier>\S+); written by")
_FIX = "write it again with `validator lock --upgrade --select image={}`"


def render(lock: Lock) -> str:
    """Return the text of a lock file. `parse(render(lock)) == lock`."""
    wheels = []
    for wheel in lock.wheels:
        places = [str(place) for place in (wheel.size, wheel.path) if place is not None]
        wheels.append(" ".join([f"{wheel} --hash=sha256:{wheel.sha256}  # {wheel.filename}", *places]))
    lines = [
        f"# Lock of {lock.identifier}; written by `python -m validator lock`, not by hand.",
        f"# python: {lock.python}",
        f"# platform: {lock.platform}",
        f"# digest: {lock.digest}",
        *([f"# resolved: {lock.resolved}"] if lock.resolved else ()),
        *(f"# requires: {requirement}" for requirement in lock.requirements),
        *(f"# adds: {line}" for line in lock.additions),
        *wheels,
    ]
    return "\n".join(lines) + "\n"


def requirements_text(lock: Lock, directory: Path) -> str:
    """Return the lock as requirements with hashes. directory: of the matrix, for paths of wheels."""
    lines = [
        f"# The environment of {lock.identifier} with the lock {lock.digest}.",
        f"# Only for Python {lock.python} on Linux with x86_64. Install it with --require-hashes.",
    ]
    for wheel in lock.wheels:
        place = (directory / (wheel.path or "")).resolve().as_uri() if wheel.is_local else wheel.path
        lines.append(f"{f'{wheel.name} @ {place}' if place else wheel} --hash=sha256:{wheel.sha256}")
    return "\n".join(lines) + "\n"


def pylock_text(lock: Lock, places: Mapping[str, str] | None = None) -> str:
    """Return pylock.toml (PEP 751). places: addresses or paths by file name; without them, no files."""

    def text(value: str) -> str:
        return json.dumps(value, ensure_ascii=False)

    where = "sys_platform == 'linux' and platform_machine == 'x86_64' and implementation_name == 'cpython'"
    lines = [
        'lock-version = "1.0"',
        f"environments = [{text(where)}]",
        f'requires-python = "=={lock.python}.*"',
        'created-by = "tensorflow-gpu-matrix"',
    ]
    for wheel in lock.wheels:
        lines += ["", "[[packages]]", f"name = {text(wheel.name)}", f"version = {text(wheel.version)}"]
        if places is not None:
            place = "path" if wheel.is_local else "url"
            lines += [
                "[[packages.wheels]]",
                f"name = {text(wheel.filename)}",
                f"{place} = {text(places[wheel.filename])}",
                *([] if wheel.size is None else [f"size = {wheel.size}"]),
                f"hashes = {{sha256 = {text(wheel.sha256)}}}",
            ]
    tool = f"image = {text(lock.identifier)}\nlock = {text(lock.digest)}"
    return "\n".join([*lines, "", "[tool.tensorflow-gpu-matrix]", tool]) + "\n"


def parse(text: str, where: str = "lock") -> Lock:
    """Read a lock file's text. Raises InputError with the line that is wrong."""
    values: dict[str, str] = {}
    lists: dict[str, list[str]] = {"requires": [], "adds": []}
    wheels: list[Wheel] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if match := _TITLE.match(line):
            values["identifier"] = match["identifier"]
        elif match := _HEADER.match(line):
            if match["key"] in lists:
                lists[match["key"]].append(match["value"])
            else:
                values[match["key"]] = match["value"]
        elif match := _WHEEL.match(line):
            name, version, sha256, filename, size, path = match.groups()
            wheels.append(Wheel(name, version, sha256, filename, int(size) if size else None, path))
        else:
            raise InputError(
                f"{where}:{number}: {quote_line(line)} is not a valid line of a lock file",
                hint=_FIX.format(values.get("identifier", "NAME")),
            )
    missing = [key for key in ("identifier", "python", "platform", "digest") if key not in values]
    if missing:
        raise InputError(f"{where}: missing in the header: {', '.join(missing)}", hint=_FIX.format("NAME"))
    stamp = values.get("resolved")
    try:
        resolved = date.fromisoformat(stamp) if stamp else None
    except ValueError:
        raise InputError(
            f"{where}: its header has no date such as 2026-11-22 as `resolved`, but {stamp!r}",
            hint=_FIX.format("NAME"),
        ) from None
    lock = Lock(
        values["identifier"], values["python"], values["platform"], tuple(lists["requires"]), tuple(wheels),
        tuple(lists["adds"]), resolved,
    )  # fmt: skip
    if lock.digest != values["digest"]:
        raise InputError(
            f"{where}: the digest of its wheels is {lock.digest}, but its header says {values['digest']}:"
            " the file was edited by hand or is incomplete",
            hint=_FIX.format(lock.identifier),
        )
    return lock


def path_of(directory: Path, identifier: str) -> Path:
    return directory / f"{identifier}.txt"


def read(directory: Path, identifier: str) -> Lock | None:
    """Return the lock of an image spec, or None if there is none. Raises InputError if it is invalid."""
    path = path_of(directory, identifier)
    try:
        text = read_text(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        hint = _FIX.format(identifier)
        raise InputError(f"{path}: can't be read: {error.strerror}", hint=hint) from error
    lock = parse(text, str(path))
    if lock.identifier != identifier:
        raise InputError(
            f"{path} contains the lock of {lock.identifier} instead",
            hint=f"rename the file, or {_FIX.format(identifier)}",
        )
    return lock


@dataclass(frozen=True)
class LockDirectory:
    """The locks of a matrix. own: written, and looked for first. shipped: those that this tool has."""

    own: Path
    shipped: Path | None = None

    def read(self, identifier: str) -> Lock | None:
        """Return the lock of an image spec, or None if there is none. Raises InputError if it is invalid."""
        found = read(self.own, identifier)
        return read(self.shipped, identifier) if found is None and self.shipped is not None else found


def write(directory: Path, lock: Lock) -> Path:
    """Write the lock, completely or not at all, and return its path."""
    path = path_of(directory, lock.identifier)
    write_atomically(path, render(lock).encode())
    return path


def mismatches(lock: Lock, spec: ImageSpec, requirements: Iterable[str]) -> list[str]:
    """Return why a lock no longer satisfies its spec and the requirements of today, as sentences."""
    found = []
    if lock.python != spec.python:
        found.append(f"it is for Python {lock.python}, but the spec needs {spec.python}")
    asked = tuple(requirements)
    for line in sorted(set(asked) - set(lock.requirements)):
        found.append(f"the spec requires {line}, but the lock was resolved without it")
    for line in sorted(set(lock.requirements) - set(asked)):
        found.append(f"the lock was resolved with {line}, which the spec no longer requires")
    added = spec.additions or Additions()
    for line in sorted(set(added.notes) - set(lock.additions)):
        found.append(f"the matrix adds the {line}, but the lock was written without it")
    for line in sorted(set(lock.additions) - set(added.notes)):
        found.append(f"the lock was written with the {line}, which the matrix no longer adds")
    accepted = dict(added.requirements.hashes) if added.requirements else {}
    for wheel in lock.wheels:
        if wheel.sha256 not in accepted.get(wheel.name, (wheel.sha256,)):
            assert added.requirements is not None
            found.append(f"{added.requirements.origin} no longer accepts the hash of {wheel}")
    for line in asked:
        try:
            requirement = read_requirement(line)
        except InvalidRequirement:
            # Ours are always valid, and those of the user were checked when the matrix was loaded.
            raise AssertionError(f"{spec}: {line!r} is not a requirement") from None
        marker = requirement.marker
        if marker is not None and not marker.evaluate(target_environment(lock.python)):
            continue
        version = lock.version(canonicalize_name(requirement.name))
        if version is None:
            found.append(f"it has no {requirement.name}")
        elif not requirement.specifier.contains(version, prereleases=True):
            found.append(
                f"it has {requirement.name} {version}, but the spec requires {requirement.specifier}"
            )
    return found


def target_environment(python: str) -> dict[str, str]:
    """Return the values of environment markers in an image with this Python."""
    return {
        "implementation_name": "cpython",
        "implementation_version": f"{python}.0",
        "os_name": "posix",
        "platform_machine": "x86_64",
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": f"{python}.0",
        "python_version": python,
        "sys_platform": "linux",
        "extra": "",
    }


# Find what a lock was before its last change, in the git history of the repository that has it.

#: Commits to look at. Some changes of a lock leave its wheels as they are.
_COMMITS = 20


def previous(directory: Path, identifier: str) -> Lock | None:
    """Return the newest committed lock that has other wheels than the one that is there now.

    None without git, outside a repository, and if the wheels did not change in the last 20 commits of the
    lock that are here: a shallow clone has none.
    """
    name = f"./{path_of(Path(), identifier)}"
    listed = git(directory, "rev-list", f"--max-count={_COMMITS}", "HEAD", "--", name)
    now = read(directory, identifier) if listed else None
    for commit in (listed or "").split():
        text = git(directory, "cat-file", "blob", f"{commit}:{name}")
        try:
            found = parse(text) if text else None
        except InputError:
            return None
        if found is not None and (now is None or found.digest != now.digest):
            return found
    return None
