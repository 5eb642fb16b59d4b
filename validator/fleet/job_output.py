"""Turn the output of a job into an answer, the same way for every engine."""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import re
from dataclasses import dataclass, field

import msgspec

from ..engines.host_reading import Answer as Reading
from ..engines.host_reading import reading_of
from ..errors import ValidatorError
from ..model import codec
from ..model.codec import DocumentError
from ..model.measurement import Outside, Unread
from .inside import LARGEST
from .protocol import Answer, Fault, Phase, State

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


@dataclass
class _Open:
    """A frame whose end was not read yet. Its data never becomes longer than it said."""

    length: int
    digest: str
    data: bytearray = field(default_factory=bytearray)


def read_frames(log: bytes, *required: str) -> dict[str, bytes]:
    """Return the contents of all frames in a log, by name.

    required: names that must be there. Raises CutError unless every frame that begins is whole.
    """
    found: dict[str, bytes] = {}
    opened: dict[str, _Open] = {}
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
            opened[name] = _Open(length, header[3].decode())
        elif data := _DATA.fullmatch(line):
            name = data[1].decode()
            if name not in opened:
                raise CutError(f"the frame {name} has data before its beginning")
            frame = opened[name]
            try:
                frame.data += base64.b64decode(data[2], validate=True)
            except binascii.Error:
                raise CutError(f"the frame {name} has a damaged line") from None
            if len(frame.data) > frame.length:
                raise CutError(f"the frame {name} has more than the {frame.length} bytes that it should have")
        elif end := _END.fullmatch(line):
            name = end[1].decode()
            if name not in opened:
                raise CutError(f"the frame {name} ends before its beginning")
            content = _whole(name, opened.pop(name))
            if found.setdefault(name, content) != content:
                raise CutError(f"there are two frames {name} with different contents")
    if opened:
        raise CutError(f"the frame {min(opened)} has no end: the output was cut")
    for name in required:
        if name not in found:
            raise CutError(f"the output has no frame {name}")
    return found


def _whole(name: str, frame: _Open) -> bytes:
    content = bytes(frame.data)
    if len(content) != frame.length:
        raise CutError(f"the frame {name} has {len(content)} of {frame.length} bytes")
    if hashlib.sha256(content).hexdigest() != frame.digest:
        raise CutError(f"the frame {name} was altered: its SHA-256 is not the one in its first line")
    return content


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


def read_answer(
    log: bytes,
    outside: Outside | Unread,
    *,
    engine: str,
    isolates: bool,
    image_digest: str | None = None,
    node: str = "",
) -> Answer:
    """Return the answer in the output of a job. Raises CutError unless it is whole.

    log: what the container wrote, with the frames of `inside.py`; what the node says from outside must come
    another way, because the container can write any frame here. The other arguments are those of `Answer`.
    """
    frames = read_frames(log, "ending")
    ending = read_ending(frames["ending"])
    report = frames.get("report")
    found = None if report is None else hashlib.sha256(report).hexdigest()
    if found != ending.report:
        raise CutError("the report is not the one that the ending names")
    failure = ""
    if ending.report is None:
        # In the words of the engines that run the probe here.
        if ending.timed_out:
            failure = f"the probe exceeded its time limit of {ending.limit_s:.0f} s and was stopped"
        elif ending.overflow:
            failure = "the probe's output is too large for a report"
        else:
            last = ending.last_line or "no message"
            failure = f"the probe exited with status {ending.status} without a report: {last}"
    return Answer(
        report=report,
        failure=failure,
        outside=outside,
        engine=engine,
        isolates=isolates,
        image_digest=image_digest,
        node=node,
        started=ending.started,
        finished=ending.finished,
    )


# Read the result that the job of a unit left: the answer of its probe, or the fault that ended it.


class _Node(msgspec.Struct, frozen=True):
    """The `node` frame of a result, see `slurm_job.run`."""

    unit: str
    job: str
    restart: str
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
            outside = Outside(outside.driver, outside.kernel_driver, gpus)
    return read_answer(
        frames["output"],
        outside,
        engine=node.engine,
        isolates=node.isolates and isolated,
        image_digest=node.image_digest,
        node=node.node,
    )


def read_fault(content: bytes) -> State:
    """Return the state of a unit from the content of its `.fault` file. Raises DocumentError."""
    fault = codec.convert(codec.parse(content), _Fault)
    return State(Phase.LOST, fault.detail, fault.node, fault.fault)
