"""Does a variable hide the GPU, or break XLA, Keras or the loader?"""

from ...problems import statement
from ..check import HOST, Check, Context, Result, judged
from ..tables import table
from ..variables import problems

#: Characters of a value in the report, and entries of a list.
_VALUE_LIMIT, _ENTRIES = 2000, 200


def _run(context: Context) -> Result:
    variables = context.facts["environment"]["variables"]
    rows = {row["name"]: row for row in table("variables")["variables"]}
    known = {name: value[:_VALUE_LIMIT] for name, value in sorted(variables.items()) if name in rows}
    evidence = {
        "variables": [
            {"name": name, "value": value, "kind": rows[name]["kind"]} for name, value in known.items()
        ][:_ENTRIES],
        "others": sorted(name for name in variables if name not in rows)[:_ENTRIES],
    }
    found = [
        {**entry, "variable": name, "value": value}
        for name, value in known.items()
        for entry in problems(rows[name], variables[name], context.facts)
    ]
    harmless = statement("variables_harmless", count=len(known))
    return judged(found, lambda: harmless if known else statement("variables_unset"), evidence)


CHECK = Check(
    id="environment",
    title="Does a variable hide the GPU, or break XLA, Keras or the loader?",
    stage=HOST,
    run=_run,
    limit_s=20,
)
