"""Turn the output of a job into an answer, the same way for every engine."""

from __future__ import annotations

import hashlib

import msgspec

from ..model import codec
from ..model.codec import DocumentError
from ..model.measurement import Outside, Unread
from .frame import CutError, read_frames
from .protocol import Answer


class Ending(msgspec.Struct, frozen=True):
    """The end of a run of the probe, as `inside.py` writes it in its `ending` frame and termination message.

    status: of the probe's process, negative for a signal. report: SHA-256 of the report in hexadecimal, or
    None if there is none. length: of the report, in bytes. last_line: of standard
    error.
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
    return Answer(
        report=report,
        failure=_failure(ending),
        outside=outside,
        engine=engine,
        isolates=isolates,
        image_digest=image_digest,
        node=node,
        started=ending.started,
        finished=ending.finished,
    )


def _failure(ending: Ending) -> str:
    """Return why there is no report, in the words of the engines that run the probe here; "" if there is."""
    if ending.report is not None:
        return ""
    if ending.timed_out:
        return f"the probe exceeded its time limit of {ending.limit_s:.0f} s and was stopped"
    if ending.overflow:
        return "the probe's output is too large for a report"
    last = ending.last_line or "no message"
    return f"the probe exited with status {ending.status} without a report: {last}"
