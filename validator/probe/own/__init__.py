"""The user's own checks, which the host side packs next to this file: `checks.json` and one module each.

docs/how-to/write-a-check.md describes how a check is written. A source tree has none.
"""

from __future__ import annotations

import functools
import importlib
import json
import pkgutil
from dataclasses import dataclass
from typing import Any

from ...problems import problem, statement
from ..check import ERROR, FAIL, OWN, PASS, SKIP, Check, Context, Result, gpu_count

#: Describes the packed checks: for each its `id`, `module`, `title`, `required` and `limit_s`.
FILE = "checks.json"


@dataclass(frozen=True)
class Given:
    """The argument of a user's check.

    gpus: the number of GPUs that the driver shows. host, environment: the parts of the report with these
    names.
    """

    gpus: int
    host: dict[str, Any]
    environment: dict[str, Any]


def _packed() -> tuple[Check, ...]:
    try:
        content = pkgutil.get_data(__name__, FILE)
    except OSError:
        content = None
    found = []
    for entry in json.loads(content or b"[]"):
        run = functools.partial(_run, entry["module"])
        limit_s, required = entry["limit_s"], entry["required"]
        found.append(Check(entry["id"], entry["title"], OWN, run, limit_s, required=required))
    return tuple(found)


def _run(module: str, context: Context) -> Result:
    """Run a check, which describes its result as `{"outcome": …, "summary": …, "evidence": {…}}`."""
    given = Given(gpu_count(context.facts), context.facts["host"], context.facts["environment"])
    check = importlib.import_module(f"{__name__}.{module}").check
    try:
        returned = check(given)
    except AssertionError as error:
        return Result(FAIL, None, [problem("own_check_failed", summary=str(error) or "an assertion failed")])
    wrong = _wrong(returned)
    if wrong is not None:
        return Result(ERROR, statement("own_check_answer", error=wrong))
    outcome, summary = returned["outcome"], returned["summary"]
    # Within a field of its own: the evidence of any check may have fields that the host side reads.
    evidence = {"own": returned.get("evidence") or {}}
    if outcome == FAIL:
        return Result(FAIL, None, [problem("own_check_failed", summary=summary)], evidence)
    code = "own_check_passed" if outcome == PASS else "own_check_skipped"
    return Result(outcome, statement(code, summary=summary), [], evidence)


def _wrong(returned: Any) -> "str | None":
    if not isinstance(returned, dict):
        return f"a {type(returned).__name__} instead of a dict"
    if returned.get("outcome") not in (PASS, FAIL, SKIP):
        return f"the outcome {returned.get('outcome')!r} instead of 'pass', 'fail' or 'skip'"
    if not isinstance(returned.get("summary"), str) or not returned["summary"].strip():
        return "no text as summary"
    if not isinstance(returned.get("evidence") or {}, dict):
        return "evidence that is not a dict"
    unknown = sorted(str(key) for key in returned.keys() - {"outcome", "summary", "evidence"})
    return f"unknown fields: {', '.join(unknown)}" if unknown else None


CHECKS = _packed()
