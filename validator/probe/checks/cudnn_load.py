"""Does cuDNN load, whole, at the version that the lock says?"""

import re
from typing import Any, Dict, List, Optional

from ..check import FAIL, HOST, PASS, Check, Context, Result
from ..collectors import loader
from ..text import tail
from .cuda_libraries import built_with, too_old


def _run(context: Context) -> Result:
    tensorflow = context.facts["tensorflow"]
    answer = loader.open_cudnn(tensorflow["directory"])
    main = next((value for value in answer.values if "soname" in value), None)
    evidence: Dict[str, Any] = {
        "library": main,
        "sub_libraries": [value for value in answer.values if "sub_library" in value],
        "version_checks": {value["check"]: value["status"] for value in answer.values if "check" in value},
        "locked": locked_version(context.lock),
        "built_for_major": (tensorflow["build"] or {}).get("cudnn_version"),
        "built_with": built_with("libcudnn.so", tensorflow["built_with"]),
        "built_with_source": tensorflow["built_with_source"],
    }
    if answer.failure is not None:
        evidence["last_lines"] = tail(answer.stderr, lines=20)
        return Result(FAIL, f"loading cuDNN ended the process: {answer.failure}", evidence)
    if main is None:
        return Result(FAIL, "TensorFlow's loader did not try to open cuDNN", evidence)
    if main["path"] is None:
        return Result(FAIL, f"cuDNN does not load: {main['error']}", evidence)
    faults = _faults(main["version"], evidence)
    if faults:
        return Result(FAIL, "; ".join(faults), evidence)
    parts = len(evidence["sub_libraries"])
    return Result(PASS, f"cuDNN {main['version']} with {parts} sub-libraries", evidence)


def _faults(version: str, evidence: Dict[str, Any]) -> List[str]:
    faults = []
    locked, major, floor = evidence["locked"], evidence["built_for_major"], evidence["built_with"]
    if locked is not None and version.split(".") != locked.split(".")[:3]:
        faults.append(f"cuDNN {version} is loaded, {locked} is locked ({evidence['library']['path']})")
    if major is not None and version.partition(".")[0] != major.partition(".")[0]:
        faults.append(f"cuDNN {version} is loaded, TensorFlow was built for cuDNN {major}")
    elif too_old(version, floor):
        faults.append(f"cuDNN {version} is older than the {floor} that TensorFlow was built with")
    faults += [
        f"{entry['sub_library']}: {entry['error']}" for entry in evidence["sub_libraries"] if entry["error"]
    ]
    faults += [
        f"{check} answers {status}: a sub-library of another version"
        for check, status in evidence["version_checks"].items()
        if status != 0
    ]
    return faults


def locked_version(lock: Optional[Dict[str, str]]) -> Optional[str]:
    """The cuDNN wheel's version in the lock, or None."""
    pins = (lock or {}).items()
    return next((pin for name, pin in pins if re.fullmatch(r"nvidia-cudnn-cu\d+", name)), None)


CHECK = Check(
    id="cudnn_load",
    title="cuDNN loads with all its parts, at the locked version",
    stage=HOST,
    run=_run,
    limit_s=loader.LIMIT_S + 10,
    requires=("cuda-build",),
)
