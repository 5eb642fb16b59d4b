"""Read the result that the job of a unit left: the answer of its probe, or the fault that ended it."""

from __future__ import annotations

import msgspec

from ..engines.host_reading import Answer as Reading
from ..engines.host_reading import reading_of
from ..model import codec
from ..model.codec import DocumentError
from ..model.measurement import Outside, Unread
from .frame import CutError, read_frames
from .job_output import read_answer
from .protocol import Answer, Fault, Phase, State


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
    return read_answer(
        frames["output"],
        _offered(reading, node),
        engine=node.engine,
        isolates=node.isolates and isolated,
        image_digest=node.image_digest,
        node=node.node,
    )


def read_fault(content: bytes) -> State:
    """Return the state of a unit from the content of its `.fault` file. Raises DocumentError."""
    fault = codec.convert(codec.parse(content), _Fault)
    return State(Phase.LOST, fault.detail, fault.node, fault.fault)


def _offered(reading: Reading, node: _Node) -> Outside | Unread:
    """Return what the node offered to the container: the driver, and the GPUs that Slurm gave to the job."""
    if not node.isolates:
        return Unread.NOT_ASKED
    outside = reading_of(reading)
    if isinstance(outside, Unread):
        return outside
    gpus = tuple(gpu for gpu in outside.gpus if gpu.uuid in node.gpus)
    return Outside(outside.driver, outside.kernel_driver, gpus)
