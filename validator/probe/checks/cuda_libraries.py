"""Is every CUDA library that this TensorFlow opens at run time found, in a version that fits?"""

import re
from typing import Any, Dict, List, Optional

from ...problems import problem, statement
from ...version_numbers import leading_numbers
from ..check import ERROR, FAIL, HOST, Check, Context, Result, judged
from ..child import tail
from ..collectors import loader

#: The wheel of each library, without the suffix that names its CUDA major.
_WHEELS = {
    "cudart": "nvidia-cuda-runtime",
    "cublas": "nvidia-cublas",
    "cublasLt": "nvidia-cublas",
    "cufft": "nvidia-cufft",
    "cusolver": "nvidia-cusolver",
    "cusparse": "nvidia-cusparse",
    "cudnn": "nvidia-cudnn",
    "nccl": "nvidia-nccl",
    "cupti": "nvidia-cuda-cupti",
}


def _run(context: Context) -> Result:
    tensorflow = context.facts["tensorflow"]
    answer = loader.open_libraries(tensorflow["directory"])
    phases = {value["phase"]: value["attempts"] for value in answer.values if "phase" in value}
    found = {value["soname"]: value for value in answer.values if "soname" in value}
    libraries = [
        _library(soname, error, phase, found.get(soname), tensorflow)
        for phase, attempts in phases.items()
        for soname, error in attempts.items()
    ]
    evidence = {
        "opened_by": loader.FRAMEWORK,
        "libraries": libraries,
        "built_with_source": tensorflow["built_with_source"],
    }
    if answer.failure is not None:
        return _unanswered(str(answer.failure), answer.stderr, evidence)
    if not phases[loader.GATE_PHASE]:
        return Result(ERROR, statement("loader_silent", error=None), [], evidence)
    return _judge([entry for entry in libraries if entry["phase"] == loader.GATE_PHASE], evidence)


def _library(
    soname: str, error: Optional[str], phase: str, found: Optional[Dict[str, Any]], tensorflow: Dict[str, Any]
) -> Dict[str, Any]:
    return {
        "soname": soname,
        "phase": phase,
        "path": found["path"] if found else None,
        "version": found["version"] if found else None,
        "built_with": built_with(soname, tensorflow["built_with"]),
        "error": error,
        "others": loader.neighbours(tensorflow["directory"], soname) if error else [],
    }


def _judge(libraries: List[Dict[str, Any]], evidence: Dict[str, Any]) -> Result:
    problems = [_missing(entry) for entry in libraries if entry["error"]]
    for entry in libraries:
        if entry["soname"].startswith("libcudnn.") and too_old(entry["version"], entry["built_with"]):
            problems.append(
                problem(
                    "cudnn_too_old",
                    version=entry["version"],
                    built_with=entry["built_with"],
                    path=entry["path"],
                )
            )
    older = [entry["soname"] for entry in libraries if too_old(entry["version"], entry["built_with"])]
    return judged(problems, lambda: statement("libraries_found", count=len(libraries), older=older), evidence)


def _missing(entry: Dict[str, Any]) -> Dict[str, Any]:
    soname, error = entry["soname"], entry["error"]
    same = [path for path in entry["others"] if path.rpartition("/")[2] == soname]
    if same:
        return problem("library_installed_not_found", soname=soname, path=same[0])
    if error.partition(":")[0] != soname:
        return problem("library_not_opened", soname=soname, error=error)
    others = sorted({path.rpartition("/")[2] for path in entry["others"]})
    return problem("library_not_found", soname=soname, others=others)


def _unanswered(failure: str, stderr: str, evidence: Dict[str, Any]) -> Result:
    evidence = {**evidence, "last_lines": tail(stderr, lines=20).splitlines()}
    if "undefined symbol" in failure:
        return Result(ERROR, statement("loader_unknown", error=failure), [], evidence)
    return Result(FAIL, None, [problem("loading_ended_process", error=failure)], evidence)


def built_with(soname: str, wheels: Dict[str, str]) -> Optional[str]:
    """Return the version of a library that TensorFlow was built with, according to its metadata."""
    stem = _WHEELS.get(loader.short_name(soname))
    return next((version for name, version in wheels.items() if re.fullmatch(f"{stem}-cu\\d+", name)), None)


def too_old(version: Optional[str], floor: Optional[str]) -> bool:
    """Return whether a version is below the lowest allowed one, by major and minor.

    The patch level doesn't count in TensorFlow's own rule for cuDNN (cuda_dnn.cc,
    IsSourceCompatibleWithCudnnLibrary).
    """
    if version is None or floor is None:
        return False
    return leading_numbers(version)[:2] < leading_numbers(floor)[:2]


CHECK = Check(
    id="cuda_libraries",
    title="Is every CUDA library that TensorFlow opens found, in a version that fits?",
    stage=HOST,
    run=_run,
    limit_s=loader.LIMIT_S + 10,
    requires=("cuda-build",),
)
