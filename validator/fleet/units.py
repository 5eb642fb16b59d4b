"""Units of work: one cell, measured once, under a name that is derived from its content.

The name is the identity of the work everywhere: of the job, of its result, and in the run store. Submitting a
unit a second time finds the first one under the same name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec

from ..model import codec
from ..model.spec import cell_identifier

#: Every name of a unit or of an array begins with this.
PREFIX = "tfm-"
#: The first try, and two more after infrastructure faults.
ATTEMPTS = 3
_DIGITS = 16


class Unit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One attempt to measure one cell.

    image: the image spec's identifier. reference: `host/path@sha256:…`, by which nodes pull the image.
    image_digest: of the image's manifest, `sha256:…`, as in the reference. lock_digest: see `Lock.digest`.
    probe_version: see `probe_version`. depth: of the probe, `quick` or `full`.
    attempt: 1 to ATTEMPTS.
    after: the id of the record that this measurement replaces, or "" if the cell has none. It makes a new
        measurement of an unchanged cell a new unit.
    tasks: on how many nodes the unit runs at once: 1, or 2 for the checks that need two workers.
    """

    image: str
    reference: str
    image_digest: str
    lock_digest: str
    probe_version: str
    depth: str
    host_class: str
    attempt: int = 1
    after: str = ""
    tasks: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.attempt <= ATTEMPTS:
            raise ValueError(f"a unit has the attempts 1 to {ATTEMPTS}, not {self.attempt}")
        if self.reference.partition("@")[2] != self.image_digest:
            raise ValueError(f"{self.reference} does not name the image {self.image_digest}")

    @property
    def cell(self) -> str:
        """The cell's identifier, `image@host_class`."""
        return cell_identifier(self.image, self.host_class)

    @property
    def name(self) -> str:
        """`tfm-` and 16 hexadecimal digits: valid as the name of a job, a file and a Kubernetes object.

        It covers everything but the reference: the same image may be pulled from another registry.
        """
        content = codec.encode(self)
        del content["reference"]
        return _named(codec.canonical(content))

    def next_attempt(self) -> Unit | None:
        """Return the unit that tries the same cell again, or None after the last attempt."""
        if self.attempt == ATTEMPTS:
            return None
        return msgspec.structs.replace(self, attempt=self.attempt + 1)


def array_name(units: Iterable[Unit]) -> str:
    """Return the name of an array of units, which depends on which units they are, not on their order."""
    return _named("\n".join(sorted(unit.name for unit in units)).encode())


def _named(content: bytes) -> str:
    return PREFIX + hashlib.sha256(content).hexdigest()[:_DIGITS]
