"""Does a variable hide the GPU, or break XLA, Keras or the loader?"""

from typing import Any, Dict, List, Optional

from ..check import FAIL, HOST, PASS, Check, Context, Result
from ..tables import table
from ..variables import FAULT, NOTICE, Problem, problems

#: Characters of a value that stand in the evidence, and entries at most.
_VALUE_LIMIT, _ENTRIES = 2000, 200


def _run(context: Context) -> Result:
    variables = context.facts["environment"]["variables"]
    rows = {row["name"]: row for row in table("variables")["variables"]}
    entries = [
        entry
        for name, value in sorted(variables.items())
        if name in rows
        for entry in _entries(rows[name], value, context.facts)
    ]
    evidence = {
        "variables": entries[:_ENTRIES],
        "others": sorted(name for name in variables if name not in rows)[:_ENTRIES],
    }
    faults = [_sentence(entry) for entry in entries if entry["severity"] == FAULT]
    notices = [_sentence(entry) for entry in entries if entry["severity"] == NOTICE]
    if faults:
        return Result(FAIL, "; ".join(faults), evidence)
    if notices:
        return Result(
            PASS, f"no variable breaks anything here; worth knowing: {'; '.join(notices)}", evidence
        )
    return Result(PASS, _harmless(sorted({entry["name"] for entry in entries})), evidence)


def _harmless(names: List[str]) -> str:
    if not names:
        return "no variable that could do harm is set here"
    if len(names) == 1:
        return f"{names[0]} is set, and does no harm"
    return f"none of the {len(names)} variables that are set here does harm"


def _entries(row: Dict[str, Any], value: str, facts: Dict[str, Any]) -> List[Dict[str, Any]]:
    """One entry a problem, or one that says that there is none."""
    found: List[Optional[Problem]] = list(problems(row, value, facts))
    return [
        {
            "name": row["name"],
            "value": value[:_VALUE_LIMIT],
            "kind": row["kind"],
            "effect": row["effect"],
            "problem": problem.problem if problem else None,
            "severity": problem.severity if problem else None,
            "wrong": problem.wrong if problem else None,
        }
        for problem in (found or [None])
    ]


def _sentence(entry: Dict[str, Any]) -> str:
    shown = entry["value"] if len(entry["value"]) <= 80 else entry["value"][:77] + "..."
    return f"{entry['name']}={shown!r}: {entry['wrong']}"


CHECK = Check(
    id="environment",
    title="no variable hides the GPU, or breaks XLA, Keras or the loader",
    stage=HOST,
    run=_run,
    limit_s=20,
)
