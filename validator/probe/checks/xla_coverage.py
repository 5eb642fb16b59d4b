"""Which of the common layers and operations does this TensorFlow's XLA refuse?

Each is compiled alone, with its gradient where training goes through it. A refusal is a fact about the
release and no fault; where something is refused without which no model compiles, it is one. All is done in an
interpreter of its own, which a case may take down without taking the answers before it along.
"""

import time
from typing import Any, Dict, Iterator, List, Optional

from .. import fresh, hlo
from ..check import CRASH, FAIL, FULL, PASS, TENSORFLOW, TIMEOUT, Check, Context, Result
from ..devices import gpus
from ..xla_cases import BY_NAME, CASES, inputs, step

#: Outcomes of a case. `unavailable`: it does not run without XLA either, as when a release has no such
#: operation; nothing is known of XLA then.
COMPILED, REFUSED, UNAVAILABLE, CRASHED, HUNG = "compiled", "refused", "unavailable", "crashed", "hung"
_OUTCOMES = (COMPILED, REFUSED, UNAVAILABLE, CRASHED, HUNG)
_LIMIT_S = 500.0
#: Interpreters that may die before the rest is given up.
_DEATHS = 5


def _run(context: Context) -> Result:
    device_type = "GPU" if gpus(context.tensorflow) else "CPU"
    found: Dict[str, Dict[str, Any]] = {}
    deadline = time.monotonic() + _LIMIT_S
    left = [case.name for case in CASES]
    for _ in range(_DEATHS):
        answer = fresh.call(_compile_all, device_type, left, limit_s=max(1.0, deadline - time.monotonic()))
        begun: Optional[str] = None
        for value in answer.values:
            begun = value["name"]
            if "outcome" in value:
                found[begun] = value
        if answer.failure is None:
            break
        if begun is None or begun in found:
            return fresh.fault(answer, "compiling one operation after another")
        outcome = HUNG if answer.failure == "timeout" else CRASHED
        found[begun] = {"name": begun, "outcome": outcome, "error": answer.failure, "seconds": None}
        left = left[left.index(begun) + 1 :]
        if not left or time.monotonic() >= deadline:
            break
    return _judged(device_type, found)


def _compile_all(tf: Any, device_type: str, names: List[str]) -> Iterator[Dict[str, Any]]:
    """For each case its name before it is tried, and again with what came of it."""
    gpus(tf)
    with tf.device(f"/{device_type}:0"):
        for name in names:
            yield {"name": name}
            yield {"name": name, **_compile(tf, name)}


def _compile(tf: Any, name: str) -> Dict[str, Any]:
    case = BY_NAME[name]
    try:
        tensors = inputs(tf, case)
        function = step(tf, case)
        # The layers make their weights at the first call, which is none of XLA's business.
        tf.function(function, autograph=False)(*tensors)
    except Exception as error:  # whatever is raised here, there is nothing to ask XLA
        return {"outcome": UNAVAILABLE, "error": hlo.refusal(error), "seconds": None}
    start = time.perf_counter()
    try:
        tf.function(function, jit_compile=True, autograph=False)(*tensors)
    except Exception as error:  # as above: a refusal may be any exception
        return {"outcome": REFUSED, "error": hlo.refusal(error), "seconds": None}
    return {"outcome": COMPILED, "error": None, "seconds": time.perf_counter() - start}


def _judged(device_type: str, found: Dict[str, Dict[str, Any]]) -> Result:
    cases = [
        {"name": case.name, "group": case.group, "core": case.core, **found[case.name]}
        for case in CASES
        if case.name in found
    ]
    counts = {outcome: sum(entry["outcome"] == outcome for entry in cases) for outcome in _OUTCOMES}
    evidence = {
        "device_type": device_type,
        "total": len(CASES),
        "counts": counts,
        "untried": [case.name for case in CASES if case.name not in found],
        "refused": _grouped(cases),
        "cases": cases,
    }
    core = [entry for entry in cases if entry["core"] and entry["outcome"] not in (COMPILED, HUNG)]
    unknown = [
        case.name
        for case in CASES
        if case.core and (case.name not in found or found[case.name]["outcome"] == HUNG)
    ]
    if not counts[COMPILED]:
        return Result(FAIL, f"XLA compiles nothing for the {device_type}: {_first_error(cases)}", evidence)
    if core:
        named = "; ".join(f"{entry['name']} ({entry['outcome']}): {entry['error']}" for entry in core[:5])
        return Result(FAIL, f"what every model needs is not compiled: {named}", evidence)
    if unknown:
        # Whether the one that the time ran out in would have ended can't be known.
        lost = [entry["name"] for entry in cases if entry["outcome"] in (CRASHED, HUNG)]
        named = f"{', '.join(unknown[:5])} is not known, after {', '.join(lost)}"
        return Result(TIMEOUT if counts[HUNG] else CRASH, f"whether XLA compiles {named}", evidence)
    other = "".join(f", {counts[outcome]} {outcome}" for outcome in _OUTCOMES[2:] if counts[outcome])
    return Result(
        PASS,
        f"XLA compiles {counts[COMPILED]} of {len(CASES)} layers and operations for the {device_type}, and"
        f" refuses {counts[REFUSED]}{other}",
        evidence,
    )


def _grouped(cases: List[Dict[str, Any]]) -> Dict[str, List[str]]:
    """The names of what did not compile, by group."""
    groups: Dict[str, List[str]] = {}
    for entry in cases:
        if entry["outcome"] in (REFUSED, CRASHED, HUNG):
            groups.setdefault(entry["group"], []).append(entry["name"])
    return groups


def _first_error(cases: List[Dict[str, Any]]) -> str:
    return next((entry["error"] for entry in cases if entry["error"]), "nothing was tried")


CHECK = Check(
    id="xla_coverage",
    title="which common layers and operations XLA compiles, each alone",
    stage=TENSORFLOW,
    run=_run,
    limit_s=600,
    required=False,
    depth=FULL,
)
