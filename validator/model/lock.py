"""The lock of an image spec: its exact wheels."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import date


@dataclass(frozen=True)
class Wheel:
    """One pinned wheel.

    name: normalized by PyPA's rules (lower case, dashes). sha256: hex digest of the file. filename: of the
    wheel, which has its tags. size: bytes to download, or None if the index does not say. path: of a wheel on
    this machine, relative to the directory of the matrix file; None for the index's.
    """

    name: str
    version: str
    sha256: str
    filename: str
    size: int | None = None
    path: str | None = None

    def __str__(self) -> str:
        return f"{self.name}=={self.version}"


@dataclass(frozen=True)
class Lock:
    """The wheels of one image spec, sorted by name.

    identifier: the image spec's. requirements: the requested requirements, one per line; if they differ from
    today's requirements of the spec, the lock no longer satisfies the spec. platform: the wheel platform it
    was resolved for, as uv names it (`x86_64-manylinux_2_28`). additions: what the matrix adds to the image
    except wheels, one line for each (`Additions.notes`). resolved: the day (UTC) when these wheels were
    chosen, which is the date of the image; or None. It does not count in comparisons.
    """

    identifier: str
    python: str
    platform: str
    requirements: tuple[str, ...]
    wheels: tuple[Wheel, ...]
    additions: tuple[str, ...] = ()
    resolved: date | None = field(default=None, compare=False)

    @property
    def digest(self) -> str:
        """`sha256:` over name, version and hash of every wheel. The same wheels have the same digest."""
        text = "".join(f"{wheel.name}=={wheel.version} {wheel.sha256}\n" for wheel in self.wheels)
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()

    @property
    def size(self) -> int:
        """Bytes to download for all wheels whose size is known."""
        return sum(wheel.size or 0 for wheel in self.wheels)

    def version(self, name: str) -> str | None:
        """Return the pinned version of a distribution, or None if it is not in the lock."""
        return next((wheel.version for wheel in self.wheels if wheel.name == name), None)
