"""The lock of an image spec: its exact wheels."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import date

from .spec import build_of


@dataclass(frozen=True)
class Wheel:
    """One pinned wheel.

    name: normalized by PyPA's rules (lower case, dashes). sha256: hex digest of the file. filename: of the
    wheel, which has its tags. size: bytes to download, or None if the index does not say. path: of a wheel on
    this machine, relative to the directory of the matrix file, or the address of one elsewhere, without what
    may be secret in it; None for the index's. address: where it is from here, with all secrets: it is never
    written anywhere.
    """

    name: str
    version: str
    sha256: str
    filename: str
    size: int | None = None
    path: str | None = None
    address: str | None = field(default=None, compare=False, repr=False)

    @property
    def is_local(self) -> bool:
        """True if it is a file next to the matrix file."""
        return self.path is not None and "://" not in self.path

    @property
    def origin(self) -> str:
        """Where it comes from, with its hash: `wheels/ours-1.0-py3-none-any.whl#sha256=…`."""
        return f"{self.path or self.filename}#sha256={self.sha256}"

    def __str__(self) -> str:
        return f"{self.name}=={self.version}"


@dataclass(frozen=True)
class OnIndex:
    """A TensorFlow that a package index has to be asked for.

    version: None for the newest. index: its address; None for the index of this machine.
    """

    version: str | None
    index: str | None = field(default=None, repr=False)

    @property
    def project(self) -> str:
        return "tf-nightly" if self.version is None or ".dev" in self.version else "tensorflow"


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

    @property
    def own_tensorflow(self) -> Wheel | None:
        """The wheel of TensorFlow that the identifier names by its hash, or None."""
        build = build_of(self.identifier)
        return next((one for one in self.wheels if build and one.sha256.startswith(build[-8:])), None)

    @property
    def own_origin(self) -> str | None:
        """Where that wheel comes from, as records and certificates say it."""
        return self.own_tensorflow.origin if self.own_tensorflow else None

    def version(self, name: str) -> str | None:
        """Return the pinned version of a distribution, or None if it is not in the lock."""
        return next((wheel.version for wheel in self.wheels if wheel.name == name), None)
