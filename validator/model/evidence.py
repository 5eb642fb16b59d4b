"""The evidence of the checks: a class for each check whose evidence the host side reads.

Each class has only the fields that are read here. `raw` is all of the evidence, as the probe wrote it
(docs/reference/report.md describes every field).
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import msgspec


class Evidence(msgspec.Struct, frozen=True):
    """The evidence that any check may have.

    traceback: lines of the exception that ended the check. last_lines: what the process printed last; some
    checks write it as one text.
    """

    check: ClassVar[str] = ""

    raw: dict[str, Any] = {}
    traceback: tuple[str, ...] | None = None
    last_lines: tuple[str, ...] | str | None = None

    @property
    def printed(self) -> tuple[str, ...]:
        """The lines of both."""
        last = self.last_lines if isinstance(self.last_lines, tuple) else ()
        return (*(self.traceback or ()), *last)


class Library(msgspec.Struct, frozen=True):
    """A shared library that TensorFlow opens. version: as the library reports it."""

    soname: str | None = None
    version: str | None = None


class CudaLibraries(Evidence, frozen=True):
    """`cuda_libraries`: every CUDA library, opened as TensorFlow does."""

    check: ClassVar[str] = "cuda_libraries"

    libraries: tuple[Library, ...] | None = None


class CudnnLoad(Evidence, frozen=True):
    """`cudnn_load`: the cuDNN that TensorFlow opens."""

    check: ClassVar[str] = "cudnn_load"

    library: Library | None = None


class Computed(Evidence, frozen=True):
    """The evidence of a check that computes. device_type: `GPU` if it computed on a GPU, otherwise `CPU`."""

    device_type: str | None = None


#: The required checks whose result counts only if they computed on a GPU. (`gpu_compute` and `silent_cpu`
#: have other evidence of that, and fail without it.)
COMPUTING_CHECKS = (
    "xla_train_step",
    "xla_convolution",
    "keras_jit",
    "attention",
    "embedding",
    "cudnn_rnn",
    "data_feed",
    "save_load",
)


class Spread(msgspec.Struct, frozen=True):
    """A median with its quartiles."""

    median: float
    q1: float
    q3: float

    @property
    def is_positive(self) -> bool:
        """True if the values can be shown as a time or a ratio."""
        return all(math.isfinite(number) and number > 0 for number in (self.median, self.q1, self.q3))

    def inverted(self) -> Spread:
        """Return the spread of the reciprocals: for example a share of the time as "times as fast"."""
        return Spread(1 / self.median, 1 / self.q3, 1 / self.q1)


class Model(msgspec.Struct, frozen=True):
    """The model that was trained. batch: examples in a step."""

    batch: int | None = None


class Mode(msgspec.Struct, frozen=True):
    """One of the ways in which the model was trained. mode: `eager`, `graph` or `xla`. step_s: seconds."""

    mode: str | None = None
    step_s: Spread | None = None


class Ratio(msgspec.Struct, frozen=True):
    """Two modes compared, turn by turn."""

    step_time: Spread | None = None


class XlaSpeedup(Evidence, frozen=True):
    """`xla_speedup`: one model trained eagerly, as a graph and compiled by XLA, in one run.

    ratios: by `graph/eager`, `xla/graph` and `xla/eager`.
    """

    check: ClassVar[str] = "xla_speedup"

    device_type: str | None = None
    model: Model | None = None
    modes: tuple[Mode, ...] = ()
    ratios: dict[str, Ratio] = {}


class OtherWorker(msgspec.Struct, frozen=True):
    """Another worker. stage: `start`, `connect`, `train` or `end`. lost: `closed`, `silent` or None."""

    rank: int | None = None
    address: str | None = None
    tensorflow: str | None = None
    devices: str | None = None
    stage: str | None = None
    lost: str | None = None


class WorkersStep(msgspec.Struct, frozen=True):
    """The steps of all workers together. largest_difference: of their gradients from those of one worker."""

    replicas: int | None = None
    largest_difference: float | None = None
    tolerance: float | None = None


class WorkersSeconds(msgspec.Struct, frozen=True):
    """Seconds until all workers had met, and for the training, with TensorFlow's start."""

    join: float | None = None
    train: float | None = None


class MultiWorker(Evidence, frozen=True):
    """`multi_worker`: several machines that train together.

    workers: their number. rank: of the worker that wrote the report. ranks: the others.
    communication: `NCCL` or `RING` (gRPC).
    """

    check: ClassVar[str] = "multi_worker"

    device_type: str | None = None
    workers: int | None = None
    rank: int | None = None
    ranks: tuple[OtherWorker, ...] = ()
    communication: str | None = None
    step: WorkersStep | None = None
    seconds: WorkersSeconds | None = None


#: The class of a check's evidence, by the check's id; `Evidence` for every other check.
BY_CHECK: dict[str, type[Evidence]] = {
    **{kind.check: kind for kind in (CudaLibraries, CudnnLoad, MultiWorker, XlaSpeedup)},
    **dict.fromkeys(COMPUTING_CHECKS, Computed),
}
