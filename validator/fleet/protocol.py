"""The protocol that all fleet engines implement, and the values that they exchange with the submitter.

The output of a job becomes an answer the same way for every engine.

An engine is a module `validator/fleet/NAME.py`, which `--on NAME` finds by its name. Nothing outside the
module knows the engine. It has the functions `open_fleet(settings: FleetSettings) -> Fleet` and
`survey(settings: FleetSettings) -> Survey`, see `settings`.

Rules for an engine:

- The name of a unit is its identity. An engine's own ids are forgotten and given to others, so they are at
  most a faster way to something whose name is then checked.
- Every call to the scheduler has a time limit. What timed out may have been done, so it is looked up by name
  before it is repeated.
- If the scheduler does not answer, a method raises FleetDown, and changes nothing that a repeated call does
  not find.
- No retries of the engine's own: a fault ends the unit, and the submitter decides about the next attempt."""

from __future__ import annotations

import base64
import binascii
import hashlib
import importlib
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from types import ModuleType
from typing import TYPE_CHECKING, Protocol

import msgspec

from ..engines.protocol import ProbeRequest
from ..engines.this_machine import Reading, reading_of
from ..errors import InputError, MissingError, ValidatorError
from ..model import codec
from ..model.codec import DocumentError
from ..model.record import Outside, Unread
from ..model.spec import cell_identifier
from .inside import LARGEST

if TYPE_CHECKING:
    from .settings import Limits

#: An engine's own text for a unit that was submitted, kept in the run store. It has to stay valid after the
#: submitter was killed, also on another day.
Handle = str


class FleetDown(MissingError):
    """The scheduler's controller does not answer. The submitter waits for it."""


class Phase(str, Enum):
    """The state of a unit that was submitted.

    ENDED: its result may be there. LOST: an infrastructure fault ended it. GONE: the scheduler no longer
    knows it; its result may be there nevertheless.
    """

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"
    LOST = "lost"
    GONE = "gone"


class Fault(str, Enum):
    """The infrastructure faults that end an attempt. None of them is a verdict. sentence: for people."""

    NODE_LOST = "node_lost", "its node was lost"
    PREEMPTED = "preempted", "it was preempted"
    CANCELLED = "cancelled", "it was cancelled"
    DEADLINE = "deadline", "it exceeded the scheduler's time limit"
    IMAGE_MISSING = "image_missing", "the registry does not have its image"
    PULL_FAILED = "pull_failed", "its image could not be pulled"
    WRONG_IMAGE = "wrong_image", "a different image was run"
    DISK_FULL = "disk_full", "the disk of its node is full"
    OUT_OF_MEMORY = "out_of_memory", "it was stopped because it used too much memory"
    QUOTA = "quota", "the quota does not allow it"
    NOT_STARTED = "not_started", "it could not be started"
    OUTPUT_CUT = "output_cut", "its output is incomplete"
    WRONG_ANSWER = "wrong_answer", "its report is about another measurement"
    FORGOTTEN = "forgotten", "the scheduler has forgotten it, and there is no result"

    _value_: str
    sentence: str

    def __new__(cls, value: str, sentence: str = "") -> Fault:
        found = str.__new__(cls, value)
        found._value_, found.sentence = value, sentence
        return found

    @property
    def is_retried(self) -> bool:
        """True if another attempt may end otherwise. Whoever cancels a job wants no other in its place."""
        return self is not Fault.CANCELLED


@dataclass(frozen=True)
class State:
    """The state of one unit.

    detail: the scheduler's own words, for people (`ReqNodeNotAvail`). node: where it runs or ran, or "".
    fault: set if, and only if, the phase is LOST.
    """

    phase: Phase
    detail: str = ""
    node: str = ""
    fault: Fault | None = None

    def __post_init__(self) -> None:
        if (self.fault is None) == (self.phase is Phase.LOST):
            raise ValueError("a state has a fault if, and only if, it is LOST")


@dataclass(frozen=True)
class Capacity:
    """The nodes of one host class.

    nodes: how many the scheduler has, 0 if none can ever run a unit. usable: those that are not down, drained
    or cordoned. gpus_per_node: of the node with the fewest. detail: for people, such as why no node fits.
    """

    host_class: str
    nodes: int
    usable: int
    gpus_per_node: int = 0
    detail: str = ""


@dataclass(frozen=True)
class Refused:
    """The reason why the scheduler did not accept a unit. fault: None if no node can ever run the unit."""

    detail: str
    fault: Fault | None = None


@dataclass(frozen=True)
class Answer:
    """The complete answer of a unit. `read_answer` makes it from a log.

    outside: the driver and the GPUs as the node itself read them, or why they were not read.
    engine: what ran the image on the node: `podman`, `containerd`, `venv`, ...
    isolates: the probe ran in a container that keeps it away from the node's files and from other results.
    image_digest: of the image that was run, as its engine or scheduler says; None if that is not known.
    report: the probe's standard output; None if the probe ended without one, and `failure` says why. That is
        a verdict: the probe ran in the image and could not report.
    started, finished: of the probe, by the node's clock; UTC, ISO 8601.
    """

    outside: Outside | Unread
    engine: str
    isolates: bool
    image_digest: str | None = None
    node: str = ""
    report: bytes | None = None
    failure: str = ""
    started: str = ""
    finished: str = ""


class Fleet(Protocol):
    """A scheduler that owns machines.

    All methods may raise FleetDown, and MissingError or InputError for what waiting does not change, such as
    expired credentials.
    """

    name: str
    #: The most units of one call of `submit`.
    batch: int

    def limits(self, host_class: str) -> Limits:
        """Return how many units of a host class may be submitted at once, and how large they are."""

    def inventory(self) -> tuple[Capacity, ...]:
        """Return the nodes of every host class that the settings name, also of those without any node."""

    def submit(
        self, units: Sequence[Unit], requests: Mapping[str, ProbeRequest]
    ) -> Mapping[str, Handle | Refused]:
        """Submit at most `batch` units of one host class and one number of tasks. Return what became of each.

        A unit that the scheduler already has under its name is adopted: its handle is returned, and nothing
        is submitted again. After a crash or FleetDown, the submitter calls this again with exactly the same
        units in the same order, since it stores the list first; so an array can be named after it. requests:
        the run of the probe, by the unit's name.
        """

    def poll(self, handles: Sequence[Handle]) -> Mapping[Handle, State]:
        """Return the states of units, as far as the scheduler knows them. What is left out is GONE."""

    def collect(self, handle: Handle) -> Answer:
        """Return what a unit that ended brought back. Raises CutError unless it is there and whole."""

    def cancel(self, handles: Sequence[Handle]) -> None:
        """End units, or take them out of the queue, as far as they have not ended."""

    def logs(self, handle: Handle) -> str:
        """Return what a unit wrote, as far as it can still be read; "" if there is nothing."""

    def forget(self, handles: Sequence[Handle]) -> None:
        """Remove the objects and files of units whose results are stored. It may do nothing."""

    def preview(self, units: Sequence[Unit], requests: Mapping[str, ProbeRequest]) -> str:
        """Return exactly what `submit` would submit, without asking the scheduler."""

    def close(self) -> None:
        """Close connections."""


# Units of work: one cell, measured once, under a name that is derived from its content. The name is the
# identity of the work everywhere: of the job, of its result, and in the run store.

#: Every name of a unit or of an array begins with this.
PREFIX = "tfm-"
#: The first try, and two more after infrastructure faults.
ATTEMPTS = 3
_DIGITS = 16


class Unit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One attempt to measure one cell.

    image: the image spec's identifier. reference: `host/path@sha256:…`, by which nodes pull the image.
    image_digest: as in the reference. lock_digest: see `Lock.digest`. depth: of the probe, `quick` or `full`.
    attempt: 1 to ATTEMPTS.
    after: the id of the record that this measurement replaces, or "". It makes a new measurement of an
        unchanged cell a new unit.
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


# Find a fleet engine by its name.


def engine_of(name: str) -> ModuleType:
    """Return the module of an engine. Raises InputError if there is no engine of this name."""
    full_name = f"{__package__}.{name}"
    try:
        module = importlib.import_module(full_name) if name.isidentifier() else None
    except ModuleNotFoundError as error:
        if error.name != full_name:
            raise
        module = None
    if module is None or not hasattr(module, "open_fleet"):
        raise InputError(
            f"there is no fleet engine {name!r}",
            hint="use --on slurm or --on kubernetes; --on local is only for `build-matrix`",
        )
    return module


# Read frames: files that came through the output of a job, which is a log that anything may write to.
#
#     tfm-frame NAME LENGTH SHA256
#     tfm-data NAME BASE64
#     tfm-end NAME
#
# `inside.frame` writes them. There may be any other lines before, after and between these. A frame counts
# only if it is whole; anything else is a CutError, which is a fault of the infrastructure and never a
# verdict.
#
# Two frames with one name and different contents are refused together: a job that ran twice writes two, and
# so does a container that tries to put its own words in the place of what its node said.

#: Frames of one log.
MOST = 32

_NAME = rb"[a-z][a-z0-9.-]{0,63}"
_HEADER = re.compile(rb"tfm-frame (%s) (0|[1-9][0-9]{0,9}) ([0-9a-f]{64})" % _NAME)
_DATA = re.compile(rb"tfm-data (%s) ([A-Za-z0-9+/]+={0,2})" % _NAME)
_END = re.compile(rb"tfm-end (%s)" % _NAME)
_MARK = b"tfm-"


class CutError(ValidatorError):
    """The output is incomplete: cut off, mixed with another copy, or missing."""


def read_frames(log: bytes, *required: str) -> dict[str, bytes]:
    """Return the contents of all frames in a log, by name.

    required: names that must be there. Raises CutError unless every frame that begins is whole.
    """
    found: dict[str, bytes] = {}
    #: Length and digest of the frames whose end was not read yet, and their data so far.
    opened: dict[str, tuple[int, str, bytearray]] = {}
    frames = 0
    for raw in io.BytesIO(log):
        if not raw.startswith(_MARK):
            continue
        line = raw.removesuffix(b"\n").rstrip(b"\r")
        if header := _HEADER.fullmatch(line):
            name, length = header[1].decode(), int(header[2])
            frames += 1
            if frames > MOST:
                raise CutError(f"the output has more than {MOST} frames")
            if length > LARGEST:
                raise CutError(f"the frame {name} claims to have {length} bytes, more than any report")
            if name in opened:
                raise CutError(f"the frame {name} begins again before its end")
            opened[name] = (length, header[3].decode(), bytearray())
        elif data := _DATA.fullmatch(line):
            name = data[1].decode()
            if name not in opened:
                raise CutError(f"the frame {name} has data before its beginning")
            length, _, content = opened[name]
            try:
                content += base64.b64decode(data[2], validate=True)
            except binascii.Error:
                raise CutError(f"the frame {name} has a damaged line") from None
            if len(content) > length:
                raise CutError(f"the frame {name} has more than the {length} bytes that it should have")
        elif end := _END.fullmatch(line):
            name = end[1].decode()
            if name not in opened:
                raise CutError(f"the frame {name} ends before its beginning")
            length, digest, content = opened.pop(name)
            if len(content) != length:
                raise CutError(f"the frame {name} has {len(content)} of {length} bytes")
            if hashlib.sha256(content).hexdigest() != digest:
                raise CutError(f"the frame {name} was altered: its SHA-256 is not the one in its first line")
            if found.setdefault(name, bytes(content)) != content:
                raise CutError(f"there are two frames {name} with different contents")
    if opened:
        raise CutError(f"the frame {min(opened)} has no end: the output was cut")
    for name in required:
        if name not in found:
            raise CutError(f"the output has no frame {name}")
    return found


class Ending(msgspec.Struct, frozen=True):
    """The end of a run of the probe, as `inside.py` writes it in its `ending` frame and termination message.

    status: of the probe's process, negative for a signal. report: SHA-256 of the report in hexadecimal, or
    None if there is none. length: of the report, in bytes. last_line: of standard error.
    """

    status: int
    timed_out: bool
    overflow: bool
    limit_s: float
    last_line: str
    report: str | None
    length: int
    started: str
    finished: str


def read_ending(text: bytes) -> Ending:
    """Read an ending. Raises CutError if it can't be read."""
    try:
        return codec.convert(codec.parse(text), Ending)
    except DocumentError as error:
        raise CutError(f"the ending can't be read: {error}") from None


def read_answer(log: bytes, known: Answer) -> Answer:
    """Return the answer in the output of a job. Raises CutError unless it is whole.

    log: what the container wrote, with the frames of `inside.py`. known: what the node says from outside,
    which must come another way, because the container can write any frame here.
    """
    frames = read_frames(log, "ending")
    ending = read_ending(frames["ending"])
    report = frames.get("report")
    found = None if report is None else hashlib.sha256(report).hexdigest()
    if found != ending.report:
        raise CutError("the report is not the one that the ending names")
    failure = ""
    if ending.report is None:
        # Use the same words as the engines that run the probe on this machine.
        if ending.timed_out:
            failure = f"the probe exceeded its time limit of {ending.limit_s:.0f} s and was stopped"
        elif ending.overflow:
            failure = "the probe's output is too large for a report"
        else:
            last = ending.last_line or "no message"
            failure = f"the probe exited with status {ending.status} without a report: {last}"
    return replace(known, report=report, failure=failure, started=ending.started, finished=ending.finished)


# Read the result that the job of a unit left: the answer of its probe, or the fault that ended it.


class _Node(msgspec.Struct, frozen=True):
    """The fields of the `node` frame of a result that are read, see `slurm_job.run`."""

    unit: str
    node: str
    engine: str
    isolates: bool
    image_digest: str | None
    gpus: tuple[str, ...]


class _Fault(msgspec.Struct, frozen=True):
    """The content of a `.fault` file."""

    fault: Fault
    detail: str
    node: str = ""


def read_result(content: bytes, unit: str, isolated: bool) -> Answer:
    """Return the answer in a result. isolated: no job of the cluster could change another one's result."""
    frames = read_frames(content, "node", "outside", "output")
    try:
        node = codec.convert(codec.parse(frames["node"]), _Node)
        reading = codec.convert(codec.parse(frames["outside"]), Reading)
    except DocumentError as error:
        raise CutError(f"the node's part of the result can't be read: {error}") from None
    if node.unit != unit:
        raise CutError(f"the result is for {node.unit}")
    outside: Outside | Unread = Unread.NOT_ASKED
    if node.isolates:
        # The GPUs that Slurm gave to the job are those that the node offered to the container.
        outside = reading_of(reading)
        if isinstance(outside, Outside):
            gpus = tuple(gpu for gpu in outside.gpus if gpu.uuid in node.gpus)
            outside = msgspec.structs.replace(outside, gpus=gpus)
    known = Answer(outside, node.engine, node.isolates and isolated, node.image_digest, node.node)
    return read_answer(frames["output"], known)


def read_fault(content: bytes) -> State:
    """Return the state of a unit from the content of its `.fault` file. Raises DocumentError."""
    fault = codec.convert(codec.parse(content), _Fault)
    return State(Phase.LOST, fault.detail, fault.node, fault.fault)
