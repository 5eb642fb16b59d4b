"""The report of one run of the probe. The probe writes it as JSON; the host side reads it here.

docs/fields.py prints the texts in `Annotated` (docs/reference/report.md). A check holds codes with typed
fields, no sentences.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import Enum
from typing import Annotated, Any, ClassVar, TypeVar

import msgspec

from .. import problems
from . import codec
from .codec import DocumentError, convert_what_fits
from .prediction import Limit

# The machine and the Python environment, as the probe describes them.


class Gpu(msgspec.Struct, frozen=True):
    """One GPU, from NVML or else from the CUDA driver."""

    name: Annotated[str | None, "The model, as the driver names it."] = None
    uuid: Annotated[str | None, "Its identifier."] = None
    compute_capability: Annotated[str | None, "Such as `9.0`."] = None
    memory_bytes: Annotated[int | None, "Its memory."] = None


class Cpu(msgspec.Struct, frozen=True):
    model: Annotated[str | None, "As Linux names it."] = None
    count: Annotated[int | None, "How many the probe's process may use."] = None


class DeviceNode(msgspec.Struct, frozen=True):
    """A device file of NVIDIA's driver or of WSL."""

    path: Annotated[str, "Such as `/dev/nvidia0`."] = ""
    device: Annotated[bool | None, "Whether it is a character device."] = None
    registered: Annotated[
        bool | None,
        "Whether its major number is NVIDIA's in `/proc/devices`; null if it is not listed there.",
    ] = None
    opens: Annotated[bool | None, "Whether it opens for reading and writing."] = None
    error: Annotated[str | None, "Why it does not open."] = None


class DriverLibrary(msgspec.Struct, frozen=True):
    """One of the driver's libraries, asked in a process of its own."""

    answered: Annotated[bool, "Whether it loaded and answered."] = False
    path: Annotated[str | None, "The file that was loaded."] = None
    error: Annotated[str | None, "Why there is no answer."] = None
    cuda: Annotated[str | None, "The newest CUDA version that it supports. Missing if it did not say."] = None


class Nvml(DriverLibrary, frozen=True):
    driver: Annotated[str | None, "The driver's release. Missing without an answer."] = None


class CudaGpu(Gpu, frozen=True):
    """A GPU that this process may use, from the CUDA driver."""

    multiprocessors: Annotated[int | None, "How many it has."] = None


class CudaDriver(DriverLibrary, frozen=True):
    code: Annotated[int | None, "What `cuInit` returned."] = None
    count: Annotated[int | None, "Devices that this process may use."] = None
    gpus: Annotated[
        tuple[CudaGpu, ...] | None,
        "These devices: the fields of a GPU, and `multiprocessors`. Missing without an answer.",
    ] = None


class DriverLibraries(msgspec.Struct, frozen=True):
    nvml: Annotated[Nvml, "`libnvidia-ml.so.1`."] = Nvml()
    cuda: Annotated[CudaDriver, "`libcuda.so.1`."] = CudaDriver()


class Host(msgspec.Struct, frozen=True):
    """The machine."""

    driver: Annotated[str | None, "The driver's release, as NVML says it: `535.183.01`."] = None
    driver_cuda: Annotated[
        str | None,
        "The newest CUDA version that the driver supports (`12.2`). If there is a cuda-compat library on the"
        " loader's path, that library's version.",
    ] = None
    gpus: Annotated[tuple[Gpu, ...], "The GPUs, from NVML, or otherwise from the CUDA driver."] = ()
    kernel_driver: Annotated[str | None, "The release of the loaded kernel module."] = None
    pci_gpus: Annotated[
        int | None,
        "How many NVIDIA display or 3D controllers are on the PCI bus, with or without a driver; null if the"
        " bus can't be read.",
    ] = None
    device_nodes: Annotated[tuple[DeviceNode, ...], "The driver's device files."] = ()
    driver_libraries: Annotated[DriverLibraries, "The driver's libraries."] = DriverLibraries()
    kernel: Annotated[str | None, "The kernel's release."] = None
    machine: Annotated[str | None, "The processor's architecture."] = None
    os: Annotated[str | None, "The distribution."] = None
    glibc: Annotated[str | None, "The version of the C library."] = None
    cpu: Annotated[Cpu | None, "The processor."] = None
    memory_bytes: Annotated[int | None, "Physical memory."] = None
    container: Annotated[
        str | None, "`docker`, `podman`, `kubernetes`, `container` (another kind), or null."
    ] = None
    wsl: Annotated[bool | None, "Whether this is Windows Subsystem for Linux."] = None

    @property
    def gpu_names(self) -> tuple[str, ...]:
        """The model of each GPU, in the probe's order."""
        return tuple(gpu.name or "unknown GPU" for gpu in self.gpus)


class Environment(msgspec.Struct, frozen=True):
    """The Python environment."""

    python: Annotated[str | None, "The version of the interpreter."] = None
    executable: Annotated[str | None, "Its path."] = None
    tensorflow: Annotated[str | None, "The version of the installed distribution; null if there is none."] = (
        None
    )
    packages: Annotated[
        dict[str, str],
        "The version of every distribution by normalized name. Two versions of one name are joined by a"
        " comma.",
    ] = {}
    variables: Annotated[
        dict[str, str],
        "Environment variables that change what TensorFlow, XLA, CUDA or the loader do, without any that"
        " look like credentials.",
    ] = {}


def host_of(document: Mapping[str, Any]) -> Host:
    """Return the facts in a record or from an engine; a fact of an unexpected type is left out."""
    return convert_what_fits(document, Host)


def environment_of(document: Mapping[str, Any]) -> Environment:
    """Return the environment in a record's report; a value of an unexpected type is left out."""
    return convert_what_fits(document, Environment)


# The evidence of the checks: a class for each check whose evidence the host side reads.
#
# Each class has only the fields that are read here. `raw` is all of the evidence, as the probe wrote it
# (docs/reference/report.md describes every field).


class Evidence(msgspec.Struct, frozen=True):
    """The evidence that any check may have. Some checks write `last_lines`, printed last, as one text."""

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
    "xla_train_step", "xla_convolution", "keras_jit", "attention", "embedding", "cudnn_rnn", "data_feed",
    "save_load",
)  # fmt: skip


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
    """`xla_speedup`: one model trained in three modes. ratios: by `graph/eager`, `xla/graph`, `xla/eager`."""

    check: ClassVar[str] = "xla_speedup"

    device_type: str | None = None
    model: Model | None = None
    modes: tuple[Mode, ...] = ()
    ratios: dict[str, Ratio] = {}


class OtherWorker(msgspec.Struct, frozen=True):
    rank: int | None = None
    address: str | None = None
    tensorflow: str | None = None
    devices: str | None = None
    stage: str | None = None
    lost: str | None = None


class MultiWorker(Evidence, frozen=True):
    """`multi_worker`: several machines that train together. ranks: the other workers."""

    check: ClassVar[str] = "multi_worker"

    device_type: str | None = None
    workers: int | None = None
    rank: int | None = None
    ranks: tuple[OtherWorker, ...] = ()
    communication: str | None = None
    step: dict[str, Any] | None = None
    seconds: dict[str, float | None] | None = None


#: The class of a check's evidence, by the check's id; `Evidence` for every other check.
BY_CHECK: dict[str, type[Evidence]] = {
    **{kind.check: kind for kind in (CudaLibraries, CudnnLoad, MultiWorker, XlaSpeedup)},
    **dict.fromkeys(COMPUTING_CHECKS, Computed),
}


#: The format that the probe writes. It changes when a reader of the older format would misread the newer one.
FORMAT = 2

E = TypeVar("E", bound=Evidence)


class ReportError(ValueError):
    """The text is not a probe's report, or has a format that this version can't read."""


class CheckOutcome(str, Enum):
    """`error`: the check itself has a fault. `crash` and `timeout`: how its process ended."""

    PASS = "pass"
    FAIL = "fail"
    SKIP = "skip"
    ERROR = "error"
    TIMEOUT = "timeout"
    CRASH = "crash"


class Finding(msgspec.Struct, frozen=True):
    """A statement or a problem of a check: a code of `validator/problems.py` with the fields listed there.

    severity: `fault`, `advisory` or `limit`; None for a statement. entry: the whole object, fields included.
    """

    code: str
    severity: str | None = None
    entry: dict[str, Any] = {}


class CheckResult(msgspec.Struct, frozen=True):
    """A question asked inside the environment, and its answer. document: as the probe wrote it."""

    id: Annotated[str, "Which check it is."]
    outcome: Annotated[
        CheckOutcome,
        "`pass`; `fail`; `skip`; `error`: a fault of the check itself; `timeout`; `crash`: the process ended"
        " in the middle of it.",
    ]
    stage: Annotated[
        str,
        "`host` checks run without TensorFlow, `tensorflow` checks in the process that imported it, `own`"
        " checks look at what was added to the image, after both and each in a process of its own, `end`"
        " checks after all others.",
    ] = "host"
    title: Annotated[str, "What it asks."] = ""
    required: Annotated[bool, "Whether the check must pass for certification. `skip` is not a pass."] = False
    depth: Annotated[
        str, "`quick` checks always run, `full` checks only with `--depth full` or when named."
    ] = "quick"
    requires: Annotated[
        tuple[str, ...],
        "What must exist for the question to make sense: `gpu`, `cuda-build`, `lock`, or `device` (a GPU and"
        " a build with CUDA, or a lock with `tensorflow-cpu`). Without it, the check is skipped.",
    ] = ()
    limit_s: Annotated[float, "The seconds after which the check is stopped."] = 0.0
    statement: Annotated[
        Finding | None,
        "A [code](../../validator/problems.json) with its fields: what passed, why the check was skipped, or"
        " how it ended; null for `fail`.",
    ] = None
    problems: Annotated[
        tuple[Finding, ...],
        "What the check found wrong: each a `code`, a `severity` (`fault`, `advisory` or `limit`) and the"
        " fields of the code. A check fails if one of them is a fault.",
    ] = ()
    evidence: Annotated[
        Evidence,
        "What was seen. After an exception: its `traceback`. After a `crash`: the `signal` or exit `status`,"
        " and the `last_lines` that were printed. After a `timeout`: where it hung.",
    ] = Evidence()
    duration_s: Annotated[float, "The seconds it took."] = 0.0
    document: dict[str, Any] = {}

    @property
    def sentence(self) -> str:
        """The findings of the check, as one line for people."""
        return problems.summary(self.document)

    @property
    def limits(self) -> tuple[Limit, ...]:
        """What failed only in full float32. A check that did not pass has none: what fails by default is a
        fault."""
        if self.outcome is not CheckOutcome.PASS:
            return ()
        found = []
        for problem in (one for one in self.problems if one.severity == problems.LIMIT):
            # Reports can call any problem a limit.
            kind = problems.CATALOGUE.get(problem.code)
            gpu, error = problem.entry.get("gpu"), problem.entry.get("error")
            is_limit = kind is not None and kind.severity == problems.LIMIT
            if is_limit and isinstance(gpu, str) and isinstance(error, str):
                found.append(Limit(problem.code, gpu, error))
        return tuple(found)

    @property
    def went_wrong(self) -> bool:
        return self.outcome not in (CheckOutcome.PASS, CheckOutcome.SKIP)

    def recorded(self) -> dict[str, Any]:
        """Return the part of the check that a record holds."""
        return {
            "id": self.id,
            "outcome": self.outcome.value,
            "statement": self.document.get("statement"),
            "problems": self.document.get("problems", []),
            "required": self.required,
            "evidence": self.evidence.raw,
            "duration_s": self.duration_s,
        }


class CheckDescription(msgspec.Struct, frozen=True):
    """A check as the probe's `--list` describes it. requires: such as `gpu`. limit_s: in seconds."""

    id: str
    stage: str
    title: str
    required: bool
    depth: str
    requires: tuple[str, ...]
    limit_s: int | float


class Probe(msgspec.Struct, frozen=True):
    """The program that wrote the report."""

    version: Annotated[
        str,
        "The declared version, `+`, and a digest of the probe's sources (`2.3.0+0123456789ab`); `+source` if"
        " it ran from a source tree.",
    ]


_PRINTED = "What the processes of this stage printed, including standard output."
_LENGTH = "How many bytes were printed."


class Logs(msgspec.Struct, frozen=True):
    """The beginning and the end of what the processes of each stage printed."""

    host_stderr: Annotated[str | None, _PRINTED] = None
    host_stderr_bytes: Annotated[int | None, _LENGTH] = None
    tensorflow_stderr: Annotated[str | None, _PRINTED] = None
    tensorflow_stderr_bytes: Annotated[int | None, _LENGTH] = None
    own_stderr: Annotated[str | None, _PRINTED] = None
    own_stderr_bytes: Annotated[int | None, _LENGTH] = None
    end_stderr: Annotated[str | None, _PRINTED] = None
    end_stderr_bytes: Annotated[int | None, _LENGTH] = None
    truncated: Annotated[bool | None, "Whether anything was left out."] = None
    limit_bytes: Annotated[
        int | None, "How much of each is kept, half from the start and half from the end."
    ] = None


class Report(msgspec.Struct, frozen=True):
    """A report. fixture: a test made it up, so it proves nothing. raw: the document as the probe wrote it."""

    format: Annotated[
        int, "2. It is raised when a program that reads the older format would misread the newer one."
    ]
    probe: Annotated[Probe, "The program that wrote the report."]
    started: Annotated[str, "UTC, ISO 8601."]
    finished: Annotated[str, "UTC, ISO 8601."]
    host: Annotated[Host, "The machine."]
    environment: Annotated[Environment, "The Python environment."]
    checks: Annotated[tuple[CheckResult, ...], "The outcomes, in the order of the checks."]
    logs: Annotated[Logs, "What the processes printed."] = Logs()
    duration_s: Annotated[float | None, "The seconds from start to end."] = None
    challenge: Annotated[
        str | None, "The text of `--challenge`, which the probe was asked to repeat, or null."
    ] = None
    fixture: bool = False
    raw: dict[str, Any] = {}

    def check(self, identifier: str) -> CheckResult | None:
        """Return the result of one check, or None when the probe did not run it."""
        return next((check for check in self.checks if check.id == identifier), None)

    @property
    def limits(self) -> tuple[Limit, ...]:
        """What the checks saw fail only in full float32, in the order of the checks."""
        return tuple(limit for check in self.checks for limit in check.limits)

    def evidence(self, kind: type[E]) -> E:
        """Return the evidence of a check; it is empty when the probe did not run the check."""
        check = self.check(kind.check)
        return check.evidence if check is not None and isinstance(check.evidence, kind) else kind()


def read_report(data: bytes | str) -> Report:
    """Read a report from JSON. Raises ReportError with the place and the reason."""
    try:
        return _report(codec.parse(data))
    except DocumentError as error:
        raise ReportError(str(error)) from None


def report_of(document: object) -> Report:
    """Read a report from parsed JSON, such as a record's. Raises ReportError with place and reason."""
    try:
        codec.check_limits(document)
        return _report(document)
    except DocumentError as error:
        raise ReportError(str(error)) from None


def check_of(document: object, where: str = "check") -> CheckResult:
    """Read a check from a record. Raises ReportError with the place and the reason."""
    try:
        return _check(document, where)
    except DocumentError as error:
        raise ReportError(str(error)) from None


def _report(document: object) -> Report:
    top = codec.convert(document, dict[str, Any], "the report")
    found = top.get("format")
    if found != FORMAT or isinstance(found, bool):
        raise ReportError(
            f"the report has format {found!r}; this version reads {FORMAT}"
            " (use the probe that this version ships, or the version that made the report)"
        )
    entries = codec.convert(top.get("checks"), list[Any], "checks")
    checks = tuple(_check(entry, f"checks[{number}]") for number, entry in enumerate(entries))
    return codec.convert({**top, "checks": checks, "raw": top}, Report)


def _check(entry: object, where: str) -> CheckResult:
    document = codec.convert(entry, dict[str, Any], where)
    statement = document.get("statement")
    entries = codec.convert(document.get("problems", []), list[Any], f"{where}.problems")
    parts = {
        **document,
        "document": document,
        "evidence": {},
        "statement": None if statement is None else _finding(statement, f"{where}.statement"),
        "problems": tuple(
            _finding(entry, f"{where}.problems[{number}]") for number, entry in enumerate(entries)
        ),
    }
    check = codec.convert(parts, CheckResult, where)
    found = codec.convert(document.get("evidence", {}), dict[str, Any], f"{where}.evidence")
    kind = BY_CHECK.get(str(document.get("id")), Evidence)
    evidence = codec.convert({**found, "raw": found}, kind, f"{where}.evidence")
    return msgspec.structs.replace(check, evidence=evidence)


def _finding(entry: object, where: str) -> Finding:
    fields = codec.convert(entry, dict[str, Any], where)
    return codec.convert({**fields, "entry": fields}, Finding, where)


def versions_of(report: Report) -> dict[str, str]:
    """Return the versions that the probe found (`cuda`: the runtime library's), never those requested."""
    libraries = report.evidence(CudaLibraries).libraries or ()
    cudnn = report.evidence(CudnnLoad).library
    found = {
        "python": report.environment.python,
        "tensorflow": report.environment.tensorflow,
        "cuda": next((entry.version for entry in libraries if "libcudart" in (entry.soname or "")), None),
        "cudnn": cudnn.version if cudnn else None,
    }
    return {name: version for name, version in found.items() if version}
