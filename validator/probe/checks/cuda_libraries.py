"""Does every CUDA library that this TensorFlow opens at run time resolve to one of a fitting version?"""

import re
from typing import Any, Dict, List, Optional, Tuple

from ..check import ERROR, FAIL, HOST, PASS, Check, Context, Result
from ..collectors import loader
from ..text import tail

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
        "method": f"opened by the loader in {loader.FRAMEWORK}",
        "libraries": libraries,
        "built_with_source": tensorflow["built_with_source"],
    }
    if answer.failure is not None:
        return _unanswered(answer.failure, answer.stderr, evidence)
    if not phases[loader.GATE_PHASE]:
        return Result(ERROR, "TensorFlow's loader ran, but did not log what it opened", evidence)
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
    faults = [_missing(entry) for entry in libraries if entry["error"]]
    for entry in libraries:
        if entry["soname"].startswith("libcudnn.") and too_old(entry["version"], entry["built_with"]):
            faults.append(
                f"cuDNN {entry['version']} is older than the {entry['built_with']} that TensorFlow was built"
                f" with, which it refuses ({entry['path']})"
            )
    if faults:
        return Result(FAIL, "; ".join(faults), evidence)
    older = [entry["soname"] for entry in libraries if too_old(entry["version"], entry["built_with"])]
    note = f"; older than what TensorFlow was built with: {', '.join(older)}" if older else ""
    return Result(PASS, f"all {len(libraries)} libraries that TensorFlow opens are found{note}", evidence)


def _missing(entry: Dict[str, Any]) -> str:
    soname, error = entry["soname"], entry["error"]
    same = [path for path in entry["others"] if path.rpartition("/")[2] == soname]
    if same:
        return f"{soname} is installed ({same[0]}), but not where the loader looks"
    others = sorted({path.rpartition("/")[2] for path in entry["others"]})
    instead = f" (there is {', '.join(others)})" if others else ""
    missing = error.partition(":")[0]
    return f"{soname} is not found{instead}" if missing == soname else f"{soname} can't be opened: {error}"


def _unanswered(failure: str, stderr: str, evidence: Dict[str, Any]) -> Result:
    evidence = {**evidence, "last_lines": tail(stderr, lines=20)}
    if "undefined symbol" in failure:
        return Result(ERROR, f"this TensorFlow's loader is not known to the probe ({failure})", evidence)
    return Result(FAIL, f"opening the libraries ended the process: {failure}", evidence)


def built_with(soname: str, wheels: Dict[str, str]) -> Optional[str]:
    """The version of a library that TensorFlow was built with, as its metadata tells."""
    stem = _WHEELS.get(loader.short_name(soname))
    return next((version for name, version in wheels.items() if re.fullmatch(f"{stem}-cu\\d+", name)), None)


def too_old(version: Optional[str], floor: Optional[str]) -> bool:
    """Whether major.minor is below the floor's; the patch level does not count in TensorFlow's own rule for
    cuDNN (cuda_dnn.cc, IsSourceCompatibleWithCudnnLibrary)."""
    return version is not None and floor is not None and _minor(version) < _minor(floor)


def _minor(version: str) -> Tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])


CHECK = Check(
    id="cuda_libraries",
    title="every CUDA library that this TensorFlow opens is found, in a fitting version",
    stage=HOST,
    run=_run,
    limit_s=loader.LIMIT_S + 10,
    requires=("cuda-build",),
)
