"""What a check is: one question with an id, a stage, needs, a time limit, and a function that answers it."""

import re
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Optional, Tuple

PASS, FAIL, SKIP = "pass", "fail", "skip"
#: What the supervisor makes of a check that did not answer: a fault of the check itself, a limit that ran
#: out, or the end of the process.
ERROR, TIMEOUT, CRASH = "error", "timeout", "crash"

#: Without TensorFlow, and in the one process that imports it.
HOST, TENSORFLOW = "host", "tensorflow"

#: How deep a run goes: what a verdict needs, or all that is worth measuring too.
QUICK, FULL = "quick", "full"


@dataclass(frozen=True)
class Result:
    """What a check found. `summary` is one sentence for a person; for `skip` it is the reason.

    evidence: what was seen, as JSON; absence is None.
    """

    outcome: str
    summary: str
    evidence: Dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Context:
    """What a check may look at.

    facts: what the collectors found (`facts/collect.py`).
    lock: pinned versions by normalized name, or None when no lock was given.
    tensorflow: the imported module in the `tensorflow` stage, else None.
    """

    facts: Dict[str, Any]
    lock: Optional[Dict[str, str]] = None
    tensorflow: Any = None


@dataclass(frozen=True)
class Check:
    """One question.

    requires: what must be there for the question to make sense (`NEEDS`); without it the check is skipped
        and the reason said.
    required: whether certification needs it to pass; such a check is `quick`.
    depth: `quick`: runs always; `full`: only when a run of that depth, or this very check, was asked for.
    limit_s: seconds after which the process is ended and the check recorded as `timeout`.
    """

    id: str
    title: str
    stage: str
    run: Callable[[Context], Result]
    limit_s: float
    requires: Tuple[str, ...] = ()
    required: bool = True
    depth: str = QUICK

    def unmet(self, context: Context) -> Optional[str]:
        """Why this check makes no sense here, or None."""
        reasons = (NEEDS[_family(need)](context, need) for need in self.requires)
        return next((reason for reason in reasons if reason), None)


def gpu_count(facts: Dict[str, Any]) -> int:
    """How many GPUs anything speaks of: NVML, the CUDA driver or the device nodes, whichever says most.

    A GPU that only one of them knows is there all the same; that the others do not see it is the fault
    to find, not a reason to skip.
    """
    host = facts["host"]
    cuda = host["driver_libraries"]["cuda"]
    nodes = [node for node in host["device_nodes"] if re.fullmatch(r"/dev/nvidia\d+", node["path"])]
    return max(len(host["gpus"]), cuda.get("count") or 0, len(nodes))


def _needs_gpu(context: Context, need: str) -> Optional[str]:
    wanted = int(need.partition(">=")[2] or 1)
    found = gpu_count(context.facts)
    if found >= wanted:
        return None
    return "no GPU here" if not found else f"{wanted} GPUs are needed, {found} found"


def _needs_cuda_build(context: Context, need: str) -> Optional[str]:
    tensorflow = context.facts["tensorflow"]
    if tensorflow is None:
        return "TensorFlow is not installed"
    build = tensorflow["build"]
    if build is not None and not build.get("is_cuda_build"):
        return "this TensorFlow is built without CUDA"
    return None


def _needs_lock(context: Context, need: str) -> Optional[str]:
    return None if context.lock is not None else "no lock was given"


def _family(need: str) -> str:
    return {"gpus": "gpu"}.get(need.partition(">=")[0], need.partition(">=")[0])


#: `gpu`, `gpus>=N`, `cuda-build`, `lock`.
NEEDS: Dict[str, Callable[[Context, str], Optional[str]]] = {
    "gpu": _needs_gpu,
    "cuda-build": _needs_cuda_build,
    "lock": _needs_lock,
}
