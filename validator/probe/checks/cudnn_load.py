"""Does cuDNN load with all its parts, in the locked version?"""

import re
from typing import Any, Dict, List, Optional

from ...problems import problem, statement
from ...version_numbers import leading_numbers
from ..check import FAIL, HOST, Check, Context, Result, judged
from ..child import tail
from ..collectors import driver, loader
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
        evidence["last_lines"] = tail(answer.stderr, lines=20).splitlines()
        ended = problem("cudnn_load_ended_process", error=str(answer.failure))
        return Result(FAIL, None, [ended], evidence)
    if main is None:
        return Result(FAIL, None, [problem("cudnn_not_tried")], evidence)
    if main["path"] is None:
        return Result(FAIL, None, [problem("cudnn_not_loaded", error=main["error"])], evidence)
    version = main["version"]
    parts = sum(not entry["error"] for entry in evidence["sub_libraries"])
    return judged(
        _problems(version, evidence),
        lambda: statement("cudnn_loaded", version=version, parts=parts),
        evidence,
    )


def _problems(version: str, evidence: Dict[str, Any]) -> List[Dict[str, Any]]:
    found = []
    locked, major, floor = evidence["locked"], evidence["built_for_major"], evidence["built_with"]
    path = evidence["library"]["path"]
    if locked is not None and leading_numbers(version) != leading_numbers(locked)[:3]:
        found.append(problem("cudnn_not_as_locked", version=version, locked=locked, path=path))
    if major is not None and leading_numbers(version)[:1] != leading_numbers(major)[:1]:
        found.append(problem("cudnn_of_another_major", version=version, built_for=major))
    elif too_old(version, floor):
        found.append(problem("cudnn_too_old", version=version, built_with=floor, path=path))
    found += [
        problem("cudnn_part_not_loaded", part=entry["sub_library"], error=entry["error"])
        for entry in evidence["sub_libraries"]
        # From 9.28 on, a part needs the driver's library. If there is none, the check `driver` reports it.
        if entry["error"] and not entry["error"].startswith(f"{driver.NAME}:")
    ]
    found += [
        problem("cudnn_part_of_another_version", function=check, status=status)
        for check, status in evidence["version_checks"].items()
        if status != 0
    ]
    return found


def locked_version(lock: Optional[Dict[str, str]]) -> Optional[str]:
    """Return the version of the cuDNN wheel in the lock, or None."""
    pins = (lock or {}).items()
    return next((pin for name, pin in pins if re.fullmatch(r"nvidia-cudnn-cu\d+", name)), None)


CHECK = Check(
    id="cudnn_load",
    title="Does cuDNN load with all its parts, in the locked version?",
    stage=HOST,
    run=_run,
    limit_s=loader.LIMIT_S + 10,
    requires=("cuda-build",),
)
