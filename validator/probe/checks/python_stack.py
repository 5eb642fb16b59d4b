"""Do the Python packages fit this TensorFlow, and is the TensorFlow that is imported the installed one?"""

from dataclasses import asdict
from typing import Any, Dict

from .. import stack
from ..check import FAIL, HOST, PASS, SKIP, Check, Context, Result
from ..tables import table
from ..variables import FAULT, NOTICE


def _run(context: Context) -> Result:
    facts = context.facts
    tensorflow, packages = facts["tensorflow"], facts["environment"]["packages"]
    installed = {name: packages[name] for name in _distributions() if name in packages}
    if tensorflow is None and not installed:
        return Result(SKIP, "TensorFlow is not installed")
    required = stack.requirements(facts)
    problems = list(stack.problems(facts, required))
    evidence = {
        "tensorflow": {key: tensorflow[key] for key in ("distribution", "version", "directory")}
        if tensorflow
        else None,
        "distributions": installed,
        "requirements": required,
        "problems": [asdict(problem) for problem in problems],
    }
    faults = [problem.wrong for problem in problems if problem.severity == FAULT]
    if faults:
        return Result(FAIL, "; ".join(faults), evidence)
    if not required:
        return Result(SKIP, "this TensorFlow has no metadata that says what it requires", evidence)
    notices = [problem.wrong for problem in problems if problem.severity == NOTICE]
    return Result(PASS, _summary(packages, len(required)) + "".join(f"; {one}" for one in notices), evidence)


def _distributions() -> Any:
    return table("stack")["same_package"]["tensorflow"]


def _summary(packages: Dict[str, str], count: int) -> str:
    shown = [f"{name} {packages[name]}" for name in table("stack")["shown"] if name in packages]
    return f"all {count} packages that TensorFlow requires fit it ({', '.join(shown)})"


CHECK = Check(
    id="python_stack",
    title="the Python packages fit this TensorFlow, and it is the one that is imported",
    stage=HOST,
    run=_run,
    limit_s=20,
)
