"""The answer: from a pasted text or a report to causes, what is harmless, and what was not understood."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, BinaryIO

from ..model.diagnosis import Diagnosis, Harmless
from . import read_log, text
from .builds import build, built_with, number
from .causal_order import rank
from .derive import derive, tensorflow
from .derive.devices import capability, newest_release
from .derive.mismatches import cudart_asked_for
from .messages import FAULT, UNRECOGNIZED, catalogue
from .observations import Observations, evidence_of, on_windows

if TYPE_CHECKING:
    from ..model.report import Report

#: Lines given as not understood, and lines given for one harmless message.
_UNKNOWN, _HARMLESS = 20, 3
#: What is known as a message and, where no cause fits it, is a line that was not understood all the same.
_TELLING = (
    "cuinit_failed",
    "cuda_error",
    "cuda_init_error",
    "nvml_error",
    "cudnn_handle_failed",
    "import_failed",
    "python_exception",
    "device_not_registered",
    "gpu_list_empty",
)
#: Facts that are told: name -> kind and value.
_FACTS = {
    "python": ("python", "version"),
    "keras": ("keras", "version"),
    "cuda": ("cuda", "version"),
    "cudnn": ("cudnn", "version"),
    "driver": ("driver", "version"),
    "driver_cuda": ("driver_cuda", "version"),
    "gpu": ("gpu", "name"),
    "os": ("os", "name"),
    "image": ("image", "name"),
}
#: Signs of how TensorFlow came to be there: kind -> way of installing.
_WAYS = (
    ("container", "docker"),
    ("image", "docker"),
    ("docker_run", "docker"),
    ("wsl", "wsl"),
    ("conda", "conda"),
)

#: What only a container engine says.
_ENGINE = (
    "docker_no_gpu_driver",
    "docker_unknown_runtime",
    "docker_hook_failed",
    "cdi_unresolvable",
    "container_cli_error",
    "cgroup_lost_gpu",
)

_AFTER_CAUSE = "mend the first cause, then run `python -m validator doctor` in that environment"
_NOT_UNDERSTOOD = (
    "these lines fit no known cause; run `python -m validator doctor` in that environment, or paste all"
    " that was printed from the import of TensorFlow on"
)
_NO_FAULT = (
    "no fault in these lines; whether the GPU is used they do not tell: run `python -m validator doctor`"
    " in that environment"
)
_REGISTERED = (
    "no fault in these lines, and TensorFlow has registered a GPU; whether training runs on it,"
    " `python -m validator doctor` measures in that environment"
)
_ALL_IS_WELL = "nothing to mend: every check that could run here passed"
_CHECKS_FAILED = "no known cause fits the checks that did not pass; their evidence is in the report"


def diagnose_log(pasted: str) -> Diagnosis:
    """Name the causes that a pasted text shows. Raises InputError for an empty one."""
    return _of_pasted(text.read_text(pasted))


def diagnose_file(stream: BinaryIO, name: str) -> Diagnosis:
    """The same of a file or pipe of any size, of which at most `text.LIMIT` bytes are looked at.

    name: what to call it in errors. Raises InputError for what is empty, or no text.
    """
    return _of_pasted(text.read(stream, name))


def diagnose_report(report: Report) -> Diagnosis:
    """Name the causes that a probe's report shows."""
    # Text needs nothing of it.
    from .read_report import observe_report

    found = observe_report(report, catalogue())
    read = f"a report of {report.started} with {len(report.checks)} checks"
    diagnosis = _diagnosis(found, read)
    if diagnosis.causes:
        return diagnosis
    failed = evidence_of(found, found.of("check_not_passed"))
    step = _CHECKS_FAILED if failed else _ALL_IS_WELL
    return Diagnosis((), diagnosis.harmless, failed, diagnosis.facts, read, step)


def _of_pasted(pasted: text.Pasted) -> Diagnosis:
    found = read_log.observe(pasted, catalogue())
    return _diagnosis(found, pasted.read)


def _diagnosis(found: Observations, read: str) -> Diagnosis:
    derive(found)
    facts = _facts(found)
    causes = rank(found, {**facts, **_needed(found, facts)}, _ways(found))
    kinds = (UNRECOGNIZED,) if causes else (UNRECOGNIZED, FAULT, *_TELLING)
    unknown = evidence_of(found, (seen for kind in kinds for seen in found.of(kind)))[:_UNKNOWN]
    well = _REGISTERED if found.has("gpu_list") or found.has("gpu_created") else _NO_FAULT
    otherwise = _NOT_UNDERSTOOD if unknown else well
    step = _AFTER_CAUSE if causes else otherwise
    return Diagnosis(causes, _harmless(found), unknown, facts, read, step)


def _facts(found: Observations) -> dict[str, str]:
    release = tensorflow(found)
    facts = {"tensorflow": release.values["version"]} if release is not None else {}
    for name, (kind, value) in _FACTS.items():
        seen = found.value(kind, value)
        if seen:
            facts[name] = seen
    return facts


def _needed(found: Observations, facts: Mapping[str, str]) -> dict[str, str]:
    """What remedies name and depend on: the release's minor version, CUDA and cuDNN, the driver's branch, the
    GPU's compute capability and the release for it, the system."""
    release = facts.get("tensorflow", "")
    needed = build(release) or built_with(cudart_asked_for(found))
    # Older releases say 7003.
    compiled = found.value("cudnn_version_mismatch", "compiled") or ""
    cudnn = compiled if "." in compiled else needed.cudnn if needed else ""
    of_gpu = capability(found) or ""
    system = "windows" if on_windows(found) else facts.get("os", "")
    wanted = {
        "tensorflow_minor": ".".join(str(part) for part in number(release)[:2]),
        "cuda_needed": needed.cuda if needed else "",
        "cuda_major": needed.cuda.partition(".")[0] if needed else "",
        "cudnn_needed": cudnn,
        "cudnn_major": cudnn.partition(".")[0],
        "driver_branch": facts.get("driver", "").partition(".")[0],
        "capability": of_gpu,
        "release_for_gpu": newest_release(of_gpu) or "",
        "system": system,
    }
    # NVIDIA's wheels of CUDA, which the extra asks for, exist for Linux alone.
    extra = {"extra": "[and-cuda]" if system in ("", "linux") else ""}
    return extra | {name: value for name, value in wanted.items() if value}


def _ways(found: Observations) -> Sequence[Collection[str]]:
    """Ways of installing, in groups: what mends an error of the container's engine, what fits here, and pip
    where another way was used."""
    used = {way for kind, way in _WAYS if found.has(kind)}
    engine = {"docker"} if any(found.has(kind) for kind in _ENGINE) else set()
    pip = {"pip"} if "conda" not in used else set()
    return [engine, {"any", "host"} | (used - engine) | pip, {"pip"} - pip]


def _harmless(found: Observations) -> tuple[Harmless, ...]:
    says: dict[str, str] = {}
    for seen in found:
        if seen.harmless is not None:
            says.setdefault(seen.kind, seen.harmless)
    return tuple(Harmless(kind, says[kind], evidence_of(found, found.of(kind))[:_HARMLESS]) for kind in says)
