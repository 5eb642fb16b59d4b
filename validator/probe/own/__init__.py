"""The user's own checks: those that the host side packs next to this file, and those of installed packages.

The packed ones are `checks.json` and one module each; a source tree has none. Packages name theirs as entry
points. docs/how-to/write-a-check.md describes how a check is written.
"""

from __future__ import annotations

import functools
import importlib
import json
import pkgutil
import re
from dataclasses import dataclass
from importlib import metadata
from typing import Any, Callable

from ...problems import problem, statement
from ..check import ERROR, FAIL, OWN, PASS, SKIP, Check, Context, Result, gpu_count

#: Describes the packed checks: for each its `id`, `module`, `title`, `required` and `limit_s`.
FILE = "checks.json"
#: The group of the entry points, and the beginning of the ids of their checks.
GROUP, INSTALLED = "tensorflow_gpu_matrix.checks", "installed/"
#: Seconds for a check of a package, its imports included: as for a file without a `timeout`.
_LIMIT_S = 120.0


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
        run = functools.partial(_run, functools.partial(_module, entry["module"]), None)
        limit_s, required = entry["limit_s"], entry["required"]
        found.append(Check(entry["id"], entry["title"], OWN, run, limit_s, required=required))
    return tuple(found)


def _module(name: str) -> Any:
    return importlib.import_module(f"{__name__}.{name}").check


def _installed() -> tuple[Check, ...]:
    """Return the checks of the packages in this environment, by id. Nothing of the packages is imported yet.

    None of them is required: whoever measures an image does not know what its packages name.
    """
    named = []
    seen = set()
    for distribution in metadata.distributions():
        try:
            points = [point for point in distribution.entry_points if point.group == GROUP]
            origin = f"{distribution.metadata['Name']} {distribution.version}" if points else ""
        except Exception:  # whatever is wrong with a package that may have no checks at all
            continue
        # A package may be on the path twice.
        for point in points if origin not in seen else ():
            name = re.sub("[^a-z0-9_]+", "_", point.name.lower())[:64]
            named.append((INSTALLED + name, f"{point.value} of {origin}"[:200], point))
        seen.add(origin)
    found: dict[str, Check] = {}
    for identifier, title, point in sorted(named, key=lambda one: one[:2]):
        while identifier in found:
            identifier += "_"
        run = functools.partial(_run, point.load, title)
        found[identifier] = Check(identifier, title, OWN, run, _LIMIT_S, required=False)
    return tuple(found.values())


def _run(load: Callable[[], Any], origin: "str | None", context: Context) -> Result:
    """Run a check, which describes its result as `{"outcome": …, "summary": …, "evidence": {…}}`.

    load: returns its function. origin: of the check of a package, None for a file.
    """
    given = Given(gpu_count(context.facts), context.facts["host"], context.facts["environment"])
    try:
        check = load()
    except Exception as error:
        if origin is None:
            raise
        said = f"{type(error).__name__}: {error}"[:300]
        return Result(ERROR, statement("own_check_not_loaded", origin=origin, error=said))
    try:
        returned = check(given)
    except AssertionError as error:
        return Result(FAIL, None, [problem("own_check_failed", summary=str(error) or "an assertion failed")])
    wrong = _wrong(returned)
    if wrong is not None:
        return Result(ERROR, statement("own_check_answer", error=wrong))
    outcome, summary = returned["outcome"], returned["summary"]
    # Within a field of its own: the evidence of any check may have fields that the host side reads.
    evidence = {"own": returned.get("evidence") or {}, **({"origin": origin} if origin else {})}
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


#: The packed ones first: one of a package can't take the time of one that the matrix requires.
CHECKS = (*_packed(), *_installed())
