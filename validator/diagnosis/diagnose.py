"""Diagnose a pasted text or a report: causes, what is harmless, and what was not recognized."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, BinaryIO

from ..compat import loose_values
from ..compat.older_releases import newest_with_cuda, release_of_any_age
from ..model.diagnosis import GPU_USED, NO_FAULT, NOT_SHOWN, Diagnosis, Harmless
from ..model.diagnosis import UNRECOGNIZED as UNRECOGNIZED_FAULT
from ..versions import major
from . import next_step, read_log, text
from .causal_order import causes_in_order
from .combination import judge
from .conclusions import capability, conclude, newest_release_for, requested_cudart
from .messages import FAULT, UNRECOGNIZED, catalogue, printed
from .observations import Observations, on_windows, tensorflow
from .situation import read_host, read_software
from .suitable_release import suitable_release
from .ways import Reader

if TYPE_CHECKING:
    from ..model.report import Report

#: Lines that are given as not recognized, and lines that are given for one harmless message.
_UNKNOWN, _HARMLESS = 20, 3
#: Kinds that are known as messages but still count as not recognized where no cause fits.
_SYMPTOMS = (
    "cuda_error",
    "nvml_error",
    "cudnn_handle_failed",
    "import_failed",
    "python_exception",
    "device_not_registered",
    "gpu_list_empty",
)
#: Facts about the environment: name -> kind and value.
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
_ALL_PASSED = "nothing to fix: every check that could run here passed"
_CHECKS_FAILED = "no known cause explains the checks that did not pass; their evidence is in the report"


def diagnose_log(pasted: str) -> Diagnosis:
    """Name the causes that a pasted text shows. Raises InputError if it is empty."""
    return _diagnose_text(text.read_text(pasted))


def diagnose_file(stream: BinaryIO, name: str) -> Diagnosis:
    """Name the causes that the text in a file or pipe shows, looking at most at `text.LIMIT` bytes of it.

    name: its name in errors. Raises InputError if it is empty or not text.
    """
    return _diagnose_text(text.read(stream, name))


def diagnose_ends(ends: text.Ends, name: str) -> Diagnosis:
    """Name the causes that a text shows which was read elsewhere. Raises InputError as `diagnose_file`."""
    return _diagnose_text(text.read_ends(ends, name))


def diagnose_report(report: Report, image: str = "") -> Diagnosis:
    """Name the causes that a probe's report shows. image: the one in which the probe ran, if it is known."""
    # The diagnosis of text does not need this module, and a browser does not have what it imports.
    from .read_report import observe_report

    observations = observe_report(report, catalogue())
    read = f"a report of {report.started} with {len(report.checks)} checks"
    diagnosis = _diagnose(observations, read, image)
    if diagnosis.causes:
        return diagnosis
    failed = observations.evidence(observations.of("check_not_passed"))
    if failed:
        return replace(
            diagnosis,
            answer=UNRECOGNIZED_FAULT,
            unknown=failed,
            missing=(),
            works="",
            next_step=_CHECKS_FAILED,
        )
    return replace(diagnosis, unknown=(), works="", next_step=_ALL_PASSED, next_command="")


def _diagnose_text(pasted: text.Pasted) -> Diagnosis:
    return _diagnose(read_log.observe(pasted, catalogue() if pasted.is_paste else printed()), pasted.read)


def _diagnose(observations: Observations, read: str, image: str = "") -> Diagnosis:
    conclude(observations)
    prediction = judge(observations)
    facts = _facts(observations)
    reader = Reader.of(observations, image)
    causes = causes_in_order(observations, {**facts, **_requirements(observations, facts)}, reader)
    faults = [kind for kind in (UNRECOGNIZED, FAULT, *_SYMPTOMS) if observations.has(kind)]
    if causes or next_step.is_cpu_wanted(observations):
        faults = [kind for kind in faults if kind == UNRECOGNIZED]
    unknown = observations.evidence(one for kind in faults for one in observations.of(kind))[:_UNKNOWN]
    kind = next_step.answer(observations, prediction, causes, faults)
    works = ""
    if not causes and kind not in (GPU_USED, NO_FAULT):
        works = suitable_release(read_host(observations), read_software(observations).python)
    return Diagnosis(
        answer=kind,
        causes=causes,
        harmless=_harmless(observations),
        unknown=unknown,
        facts=facts,
        read=read,
        missing=prediction.missing if kind == NOT_SHOWN else (),
        works=works,
        next_step=next_step.next_step(kind, only_machine=bool(works) and "tensorflow" not in facts),
        next_command=reader.doctor,
    )


def _facts(observations: Observations) -> dict[str, str]:
    release = tensorflow(observations)
    facts = {"tensorflow": release.values["version"]} if release is not None else {}
    for name, (kind, value) in _FACTS.items():
        fact = observations.value(kind, value)
        if fact:
            facts[name] = fact
    return facts


def _requirements(observations: Observations, facts: Mapping[str, str]) -> dict[str, str]:
    """Return the other values for remedies, as far as they are known.

    These are the release's minor version, CUDA and cuDNN, the driver's branch, the GPU's compute capability
    and the newest release for it, and the system.
    """
    release = facts.get("tensorflow", "")
    build = release_of_any_age(release) or newest_with_cuda(requested_cudart(observations))
    # Older releases print cuDNN's version as 7003.
    compiled = observations.value("cudnn_version_mismatch", "compiled") or ""
    cudnn = compiled if "." in compiled else build.cudnn if build else ""
    gpu_capability = capability(observations) or ""
    system = "windows" if on_windows(observations) else facts.get("os", "")
    requirements = {
        "tensorflow_minor": loose_values.minor(release) or "",
        "cuda_needed": build.cuda if build else "",
        "cuda_major": major(build.cuda) if build else "",
        "cudnn_needed": cudnn,
        "cudnn_major": major(cudnn),
        "driver_branch": major(facts.get("driver", "")),
        "capability": gpu_capability,
        "release_for_gpu": newest_release_for(gpu_capability) or "",
        "system": system,
    }
    # The extra asks for NVIDIA's wheels of CUDA, which exist only for Linux.
    extra = {"extra": "[and-cuda]" if system in ("", "linux") else ""}
    return extra | {name: value for name, value in requirements.items() if value}


def _harmless(observations: Observations) -> tuple[Harmless, ...]:
    explanations: dict[str, str] = {}
    for one in observations:
        if one.harmless is not None:
            explanations.setdefault(one.kind, one.harmless)
    return tuple(
        Harmless(kind, explanation, observations.evidence(observations.of(kind))[:_HARMLESS])
        for kind, explanation in explanations.items()
    )
