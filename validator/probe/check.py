"""A check: one question with an id, a stage, requirements, a time limit, and a function that answers it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Callable

from ..problems import FAULT, statement, summary

PASS, FAIL, SKIP = "pass", "fail", "skip"
#: Outcomes that a check gets without an answer: a bug in the check itself, a limit that ran
#: out, or the end of the process.
ERROR, TIMEOUT, CRASH = "error", "timeout", "crash"

#: Stages: without TensorFlow; in the one process that imports it, at the same time; then what the user added
#: to the image, each check in a process of its own; and after all have ended.
HOST, TENSORFLOW, OWN, END = "host", "tensorflow", "own", "end"

#: How deep a run goes: only what a verdict needs, or also everything worth measuring.
QUICK, FULL = "quick", "full"


@dataclass(frozen=True)
class Result:
    """A check's findings, as codes and values.

    statement: what passed, why the check was skipped, or how it ended; None for `fail`.
    problems: what is wrong; a `fault` among them means `fail`.
    evidence: the facts that were seen, as JSON; absence is None.
    """

    outcome: str
    statement: dict[str, Any] | None = None
    problems: list[dict[str, Any]] = field(default_factory=list)
    evidence: dict[str, Any] = field(default_factory=dict)

    def fields(self) -> dict[str, Any]:
        """Return it as a report and the messages of a worker hold it."""
        return dict(vars(self))

    @property
    def sentence(self) -> str:
        """Return one line for people."""
        return summary({"statement": self.statement, "problems": self.problems})


def judged(problems: list[dict[str, Any]], passed: dict[str, Any], evidence: dict[str, Any]) -> Result:
    """Return `fail` if there is a fault, otherwise `pass` with the statement `passed`."""
    if any(problem["severity"] == FAULT for problem in problems):
        return Result(FAIL, None, problems, evidence)
    return Result(PASS, passed, problems, evidence)


def skipped(reason: dict[str, Any], evidence: dict[str, Any] | None = None) -> Result:
    """Return `skip` for a reason, which is a statement."""
    return Result(SKIP, reason, [], evidence or {})


@dataclass(frozen=True)
class Context:
    """Everything a check may look at.

    facts: what `cli.collect` found.
    lock: pinned versions by normalized name, or None when no lock was given.
    added: normalized names of the packages that the user added to the image, according to the lock.
    tensorflow: the imported module in the `tensorflow` stage, else None.
    tell: sends an event of `child` with fields, while the check runs.
    """

    facts: dict[str, Any]
    lock: dict[str, str] | None = None
    tensorflow: Any = None
    added: tuple[str, ...] = ()
    tell: Callable[..., None] = field(default=lambda event, **fields: None, compare=False)


@dataclass(frozen=True)
class Check:
    """One question.

    requires: what the question needs to make sense: `gpu`, `cuda-build` (a TensorFlow with CUDA), `device`
    (both, or a CPU if the lock has only that) or `lock`. Without it the check is skipped.
    title: the question, as `--list` shows it.
    required: whether certification needs it to pass; such a check is `quick`.
    depth: a `quick` check always runs; a `full` one only when that depth or this check was asked for.
    limit_s: seconds after which the process is killed and the check recorded as `timeout`.
    """

    id: str
    title: str
    stage: str
    run: Callable[[Context], Result]
    limit_s: float
    requires: tuple[str, ...] = ()
    required: bool = True
    depth: str = QUICK

    def unmet(self, context: Context) -> dict[str, Any] | None:
        """Return the reason (a statement) why this check makes no sense here, or None."""
        needs = set(self.requires)
        if "lock" in needs and context.lock is None:
            return statement("no_lock")
        # If the lock has tensorflow-cpu, the device is the CPU.
        if "device" in needs and "tensorflow-cpu" not in (context.lock or {}):
            needs |= {"cuda-build", "gpu"}
        if "cuda-build" in needs:
            tensorflow = context.facts["tensorflow"]
            if tensorflow is None:
                return statement("tensorflow_not_installed", check=None)
            if tensorflow["build"] is not None and not tensorflow["build"].get("is_cuda_build"):
                return statement("tensorflow_without_cuda")
        return statement("no_gpu") if "gpu" in needs and not gpu_count(context.facts) else None


def check(
    title: str,
    stage: str,
    limit_s: float,
    requires: tuple[str, ...] = (),
    required: bool | None = None,
    depth: str = QUICK,
) -> Callable[[Callable[[Context], Result]], Check]:
    """Make a check of the function below, whose name is the check's id; the fields are those of `Check`.

    required: None is True for a `quick` check. Raises ValueError for True with a `full` one.
    """
    if required and depth == FULL:
        raise ValueError(f"a check that certification requires can't be {FULL}: {title}")
    needed = depth == QUICK if required is None else required
    return lambda run: Check(run.__name__, title, stage, run, limit_s, requires, needed, depth)


def gpu_count(facts: dict[str, Any]) -> int:
    """Return the number of GPUs that NVML, the CUDA driver or the device files show, whichever is highest.

    If the others don't see a GPU that one of them shows, that is a fault to find, not a reason to skip.
    """
    host = facts["host"]
    cuda = host["driver_libraries"]["cuda"]
    nodes = [node for node in host["device_nodes"] if re.fullmatch(r"/dev/nvidia\d+", node["path"])]
    return max(len(host["gpus"]), cuda.get("count") or 0, len(nodes))
