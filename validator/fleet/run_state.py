"""A run of a fleet, and the units of work in it, with the stage of each.

A *run* is the work of one command: cells, each with up to ATTEMPTS units. The stages of a unit:

    PLANNED ─▶ BATCHED ─▶ SUBMITTED ─▶ KEPT ─▶ DONE
                   │           └─────▶ LOST (then another unit, PLANNED)
                   └─────────────────▶ MISSING

Units become BATCHED, with the name of their batch, before they are submitted. A process that finds them so
submits the same batch again, and the engine recognizes what it already has. KEPT holds the finished record,
so that the same record, not a second one, is added to the store of records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from ..engines.protocol import ProbeRequest
from .protocol import Fault, Handle, Phase
from .units import Unit


class Stage(str, Enum):
    """The stage of a unit, see the module's picture. CANCELLED: a person ended the run before it."""

    PLANNED = "planned"
    BATCHED = "batched"
    SUBMITTED = "submitted"
    KEPT = "kept"
    DONE = "done"
    LOST = "lost"
    MISSING = "missing"
    CANCELLED = "cancelled"

    @property
    def is_end(self) -> bool:
        """True if nothing will happen to the unit any more."""
        return self in (Stage.DONE, Stage.LOST, Stage.MISSING, Stage.CANCELLED)


@dataclass(frozen=True)
class Work:
    """A unit with what it needs. question: the caller's own bytes about the cell, which are given back."""

    unit: Unit
    request: ProbeRequest
    question: bytes = b""


@dataclass
class Tried:
    """A unit in the run store.

    batch: the name of the list that it is submitted with. submitted: when it was, UTC, or "".
    phase, node, detail: as the scheduler last said, or why the unit was lost or is missing.
    record: of a unit that is KEPT, the caller's bytes; no longer when it is DONE, since they are large.
    record_id: the record's id, for KEPT and DONE. failed: the record says that the cell failed.
    """

    unit: Unit
    question: bytes
    stage: Stage = Stage.PLANNED
    batch: str = ""
    handle: Handle = ""
    submitted: str = ""
    phase: Phase | None = None
    node: str = ""
    detail: str = ""
    fault: Fault | None = None
    record: bytes = b""
    record_id: str = ""
    failed: bool = False

    @property
    def name(self) -> str:
        """The unit's name."""
        return self._name

    def __post_init__(self) -> None:
        self._name = self.unit.name


@dataclass(frozen=True)
class FleetRun:
    """A run. key: of the command, the same if it is given again. command: its words, for messages.

    place: what the submitter needs to continue, the caller's own words. ended: when, or "".
    cancelled: somebody asked for its end.
    """

    id: str
    key: str
    fleet: str
    command: tuple[str, ...]
    place: Mapping[str, str]
    created: str
    ended: str = ""
    cancelled: bool = False


@dataclass(frozen=True)
class Added:
    """The result of adding work to a run. busy: units that another open run has, with its id."""

    new: tuple[Unit, ...]
    known: tuple[Unit, ...]
    busy: Mapping[str, str] = field(default_factory=dict)
