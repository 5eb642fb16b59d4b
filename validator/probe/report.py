"""Builds the report. docs/reference/report.md describes its format."""

import math
import os
import re
from typing import Any, Dict, Iterable, List, Optional

from .check import Check
from .stages import Stage
from .tables import version

#: Rises when a reader of the older format would misread the newer.
FORMAT = 2


def report(
    checks: Iterable[Check],
    stages: Iterable[Stage],
    facts: Dict[str, Any],
    started: str,
    finished: str,
    duration_s: float,
    challenge: Optional[str],
) -> Dict[str, Any]:
    """Return the report as JSON, with the home directory written as `~`."""
    by_name = {stage.name: stage for stage in stages}
    document = {
        "format": FORMAT,
        "probe": {"version": version()},
        "started": started,
        "finished": finished,
        "duration_s": round(duration_s, 3),
        "challenge": challenge,
        "host": facts["host"],
        "environment": facts["environment"],
        "checks": [_check(check, by_name[check.stage]) for check in checks],
        "logs": _logs(by_name),
    }
    return dict(shareable(document, os.path.expanduser("~")))


def describe(check: Check) -> Dict[str, Any]:
    """Return a check as `--list` shows it, and as every report holds it."""
    return {
        "id": check.id,
        "stage": check.stage,
        "title": check.title,
        "required": check.required,
        "depth": check.depth,
        "requires": list(check.requires),
        "limit_s": check.limit_s,
    }


def _check(check: Check, stage: Stage) -> Dict[str, Any]:
    entry = stage.results[check.id]
    return {
        **describe(check),
        "outcome": entry.result.outcome,
        "statement": entry.result.statement,
        "problems": entry.result.problems,
        "evidence": entry.result.evidence,
        "duration_s": round(entry.duration_s, 3),
    }


def _logs(stages: Dict[str, Stage]) -> Dict[str, Any]:
    logs: Dict[str, Any] = {}
    for name, stage in stages.items():
        logs[f"{name}_stderr"] = stage.log.text
        logs[f"{name}_stderr_bytes"] = stage.log.total
    first = next(iter(stages.values()))
    return {
        **logs,
        "truncated": any(stage.log.dropped for stage in stages.values()),
        "limit_bytes": first.log.limit,
    }


def shareable(value: Any, home: str) -> Any:
    """Return the value as a report may hold it: valid JSON, with the home directory as `~` in every text.

    The path of a home directory names a person. NaN and infinity are not JSON; they become null.
    """
    if isinstance(value, str):
        return value if home in ("", "/", "~") else _abbreviated(value, home)
    if isinstance(value, dict):
        return {key: shareable(entry, home) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        entries: List[Any] = [shareable(entry, home) for entry in value]
        return entries
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _abbreviated(text: str, home: str) -> str:
    """Turn `/home/ann/x` into `~/x`, and leave `/home/anna/x` and `/mnt/home/ann/x` as they are."""
    parts = text.split(home)
    joined = parts[0]
    for part in parts[1:]:
        continues = re.match(r"[\w.-]", part) or re.search(r"[\w./~-]$", joined)
        joined += (home if continues else "~") + part
    return joined
