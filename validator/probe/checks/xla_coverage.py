"""Which common layers and operations does XLA compile in this TensorFlow?

Each is compiled by itself, with its gradient where training uses it. If XLA rejects one, that is a fact
about the release and not a fault, unless every model needs the operation. The cases run in a separate
interpreter, so a case that crashes it does not lose the results of earlier ones.
"""

import time
from typing import Any, Dict, Iterator, List, Optional

from ...problems import problem, statement
from .. import child, tensorflow_devices
from ..check import CRASH, FAIL, FULL, TENSORFLOW, TIMEOUT, Check, Context, Result, judged
from ..child import TIMED_OUT
from ..tensorflow_devices import gpus
from ..xla_cases import BY_NAME, CASES, inputs, step

#: Outcomes of a case. `unavailable`: it doesn't run without XLA either, for example because the release has
#: no such operation; that says nothing about XLA.
COMPILED, REFUSED, UNAVAILABLE, CRASHED, HUNG = "compiled", "refused", "unavailable", "crashed", "hung"
_OUTCOMES = (COMPILED, REFUSED, UNAVAILABLE, CRASHED, HUNG)
_LIMIT_S = 500.0
#: How many interpreters may crash before the check gives up on the other cases.
_DEATHS = 5


def _run(context: Context) -> Result:
    device_type = "GPU" if gpus(context.tensorflow) else "CPU"
    found: Dict[str, Dict[str, Any]] = {}
    deadline = time.monotonic() + _LIMIT_S
    left = [case.name for case in CASES]
    for _ in range(_DEATHS):
        answer = child.fresh(_compile_all, device_type, left, limit_s=max(1.0, deadline - time.monotonic()))
        begun: Optional[str] = None
        for value in answer.values:
            begun = value["name"]
            if "outcome" in value:
                found[begun] = value
        if answer.failure is None:
            break
        if begun is None or begun in found:
            return child.broken_off("xla_coverage", answer, {"device_type": device_type})
        outcome = HUNG if answer.failure.kind == TIMED_OUT else CRASHED
        found[begun] = {"name": begun, "outcome": outcome, "error": str(answer.failure), "seconds": None}
        left = left[left.index(begun) + 1 :]
        if not left or time.monotonic() >= deadline:
            break
    return _judged(device_type, found)


def _compile_all(tf: Any, device_type: str, names: List[str]) -> Iterator[Dict[str, Any]]:
    """Yield the name of each case before it is tried, and again with its result."""
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
        # The layers create their weights in the first call, which has nothing to do with XLA.
        tf.function(function, autograph=False)(*tensors)
    except Exception as error:  # if anything is raised here, there is nothing to compile
        return {"outcome": UNAVAILABLE, "error": tensorflow_devices.refusal(error), "seconds": None}
    start = time.perf_counter()
    try:
        tf.function(function, jit_compile=True, autograph=False)(*tensors)
    except Exception as error:  # as above: XLA may reject it with any exception
        return {"outcome": REFUSED, "error": tensorflow_devices.refusal(error), "seconds": None}
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
        nothing = problem("xla_compiles_nothing", device_type=device_type, error=_first_error(cases))
        return Result(FAIL, None, [nothing], evidence)
    if unknown and not core:
        # It is not known whether the case that was running at the time limit would have ended.
        lost = [entry["name"] for entry in cases if entry["outcome"] in (CRASHED, HUNG)]
        untold = statement("xla_coverage_unknown", cases=unknown[:5], lost=lost)
        return Result(TIMEOUT if counts[HUNG] else CRASH, untold, [], evidence)
    problems = [
        problem("core_not_compiled", case=entry["name"], outcome=entry["outcome"], error=entry["error"])
        for entry in core
    ]
    return judged(
        problems,
        lambda: statement("xla_coverage", device_type=device_type, total=len(CASES), **counts),
        evidence,
    )


def _grouped(cases: List[Dict[str, Any]]) -> Dict[str, List[str]]:
    """Return the names of the cases that did not compile, by group."""
    groups: Dict[str, List[str]] = {}
    for entry in cases:
        if entry["outcome"] in (REFUSED, CRASHED, HUNG):
            groups.setdefault(entry["group"], []).append(entry["name"])
    return groups


def _first_error(cases: List[Dict[str, Any]]) -> Optional[str]:
    return next((entry["error"] for entry in cases if entry["error"]), None)


CHECK = Check(
    id="xla_coverage",
    title="Which common layers and operations does XLA compile?",
    stage=TENSORFLOW,
    run=_run,
    limit_s=600,
    required=False,
    depth=FULL,
)
