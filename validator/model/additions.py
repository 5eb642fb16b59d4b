"""The user's packages, files and settings in an image, in addition to TensorFlow."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath

#: Ids of checks begin with this if they are the user's own, so that they never have the id of another.
PREFIX = "ours/"
#: The name of a check's file without `.py`: it is a module, and the rest of the check's id.
NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
#: The length of the digest that names an image whose additions have no name.
_SHORT = 8

#: The fields of additions that do not change the image.
_NOT_ADDED = ("name", "directory")

#: A name for additions. Eight hexadecimal digits are an image without a name.
_NAME = re.compile(r"(?![0-9a-f]{8}$)[a-z0-9](?:[a-z0-9.-]{0,30}[a-z0-9])?")


@dataclass(frozen=True)
class LocalWheel:
    """A wheel on this machine.

    path: relative to the directory of the matrix file, with `/`. name: normalized. size: in bytes.
    """

    path: str
    name: str
    version: str
    sha256: str
    size: int

    @property
    def requirement(self) -> str:
        """The wheel as a requirement with its hash, so that another file is another requirement."""
        return f"{self.name} @ {self.path}#sha256={self.sha256}"


@dataclass(frozen=True)
class Requirements:
    """The requirements that a file asks for.

    origin: where they come from, for people: `requirements.txt`, `pyproject.toml (group train)`.
    lines: requirements (PEP 508) without hashes. constraints: the same, for packages that something else
        requires. hashes: the accepted SHA-256 digests of a package's files, by its normalized name; a package
        without an entry may have any.
    """

    origin: str
    lines: tuple[str, ...]
    constraints: tuple[str, ...] = ()
    hashes: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True)
class CheckFile:
    """A check of the user's own.

    path: like that of a wheel. required: the verdict depends on it. timeout_s: for the whole check, the
    import of TensorFlow included.
    """

    path: str
    sha256: str
    required: bool = True
    timeout_s: float = 120.0

    @property
    def id(self) -> str:
        """`ours/our_check` for `checks/our_check.py`, as in reports and certificates."""
        return PREFIX + PurePosixPath(self.path).stem


@dataclass(frozen=True)
class Additions:
    """The additions of an image entry in the matrix.

    name: what its identifier ends in, or None; then it ends in digits of the digest.
    packages: requirements (PEP 508) from the matrix file. wheels: those that it names by path.
    requirements: those of a file, or None. system_packages: Debian or Ubuntu packages.
    environment: variables with their values, by name.
    directory: the one of the matrix file, to which all paths are relative. It does not count in comparisons.
    """

    name: str | None = None
    packages: tuple[str, ...] = ()
    wheels: tuple[LocalWheel, ...] = ()
    requirements: Requirements | None = None
    system_packages: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    checks: tuple[CheckFile, ...] = ()
    directory: Path = field(default=Path(), compare=False)

    @property
    def digest(self) -> str:
        """The SHA-256 (hex) of everything that is added; the name is not part."""
        added = {key: value for key, value in asdict(self).items() if key not in _NOT_ADDED}
        return hashlib.sha256(json.dumps(added, sort_keys=True).encode()).hexdigest()

    @property
    def required(self) -> tuple[str, ...]:
        """The requirements to resolve together with TensorFlow: each once, in order."""
        lines = self.requirements.lines if self.requirements else ()
        return tuple(dict.fromkeys((*self.packages, *(wheel.requirement for wheel in self.wheels), *lines)))

    @property
    def constraints(self) -> tuple[str, ...]:
        """The constraints of the requirements file."""
        return self.requirements.constraints if self.requirements else ()

    @property
    def notes(self) -> tuple[str, ...]:
        """Everything added except wheels, as lines for the lock; the lock is stale if a line changes."""
        required = {True: "required check", False: "check"}
        return (
            *(f"constraint {line}" for line in self.constraints),
            *(f"system package {name}" for name in self.system_packages),
            *(f"variable {name}={value}" for name, value in self.environment),
            *(f"{required[check.required]} {check.path} sha256:{check.sha256}" for check in self.checks),
        )

    @property
    def label(self) -> str:
        """Its part of the identifier: the name, or eight hexadecimal digits of the digest."""
        return self.name or self.digest[:_SHORT]


def is_name(text: str) -> bool:
    """Return True for a valid name: 1 to 32 lower-case letters, digits, dots and dashes within.

    Eight hexadecimal digits are not valid, because images without a name end in them.
    """
    return _NAME.fullmatch(text) is not None
