"""The probe's command line: the report goes to standard output, progress to standard error.

The exit status is 0 when the output was written, whatever the checks found: the report says that. 2 means
that the command line or the lock is wrong, 130 or 143 that the probe was told to stop.
"""

import argparse
import contextlib
import json
import math
import os
import re
import signal
import sys
import time
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from . import own, stages, version
from .check import END, FULL, HOST, OWN, QUICK, TENSORFLOW, Check
from .checks import CHECKS, packages
from .stages import Progress, Stage
from .watch import Watch

# Builds the report. docs/reference/report.md describes its format.


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


#: Seconds after which the probe gives up.
TIME_LIMIT_S = 1800.0
#: Seconds that the checks of the last stage always have; they only judge what was seen.
_END_LIMIT_S = 30.0


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the command line and return the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, _terminated)
    if options.list:
        return _print([describe(check) for check in (*CHECKS, *own.CHECKS)])
    if options.host_facts:
        from .collectors.host import host_facts

        return _print(shareable(host_facts(), str(Path.home())))
    try:
        checks = _selected(options.only, options.skip, options.depth)
        lock = _Lock.read(options.lock) if options.lock else _Lock(None, ())
    except (OSError, ValueError) as error:
        parser.error(str(error))
    try:
        return _print(_probe(checks, lock, options.time_limit, options.challenge))
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="probe",
        description="Find out whether this Python's TensorFlow works here, and report it as JSON.",
    )
    parser.add_argument(
        "--lock", metavar="FILE", help="file with pins (name==version) to compare with the installed packages"
    )
    parser.add_argument(
        "--only", metavar="CHECK", action="append", default=[], help="run only this check; repeatable"
    )
    parser.add_argument(
        "--skip", metavar="CHECK", action="append", default=[], help="leave this check out; repeatable"
    )
    parser.add_argument(
        "--depth",
        choices=(QUICK, FULL),
        default=QUICK,
        help="quick: what a verdict needs (default); full: also every measurement",
    )
    parser.add_argument(
        "--challenge",
        metavar="TEXT",
        help="repeat this text in the report, so that it can't be one from an earlier run",
    )
    parser.add_argument("--list", action="store_true", help="list the checks as JSON and run none")
    parser.add_argument(
        "--host-facts",
        action="store_true",
        help="print only the facts about the machine: driver, GPUs, system",
    )
    parser.add_argument(
        "--time-limit",
        metavar="SECONDS",
        type=float,
        default=TIME_LIMIT_S,
        help="give up after this long (default 1800)",
    )
    parser.add_argument("--version", action="version", version=version())
    return parser


def _selected(only: List[str], skip: List[str], depth: str) -> List[Check]:
    offered = (*CHECKS, *own.CHECKS)
    known = [check.id for check in offered]
    unknown = [name for name in [*only, *skip] if name not in known]
    if unknown:
        raise ValueError(f"there is no check {', '.join(unknown)}; the checks are {', '.join(known)}")
    chosen = [check for check in offered if check.id not in skip]
    if only:
        return [check for check in chosen if check.id in only]
    return [check for check in chosen if depth == FULL or check.depth == QUICK]


class _Lock(NamedTuple):
    """pins: versions by name, or None without a lock. added: the packages that the user added."""

    pins: Optional[Dict[str, str]]
    added: Tuple[str, ...]

    @classmethod
    def read(cls, path: str) -> "_Lock":
        text = Path(path).read_text(encoding="utf-8")
        return cls(packages.pins(text), tuple(packages.added(text)))


def _probe(checks: List[Check], lock: _Lock, limit_s: float, challenge: Optional[str]) -> Dict[str, Any]:
    started, began, progress = _now(), time.monotonic(), Progress(_to_stderr)
    if lock.added:
        # An image that was made with these packages has to work with them.
        checks = [replace(check, required=True) if check is packages.packages else check for check in checks]
    side_by_side, last = [
        [Stage(name, [check for check in checks if check.stage == name], progress) for name in names]
        for names in ((TENSORFLOW, HOST), (END,))
    ]
    added = Stage(OWN, [check for check in checks if check.stage == OWN], progress)
    message: Dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        stack.callback(progress.finish)
        watch = stack.enter_context(Watch()) if any(stage.checks for stage in last) else None

        def collected() -> Dict[str, Any]:
            # Imported here, while the worker imports TensorFlow: an archive holds no compiled modules, so
            # each import takes time.
            from .collectors import collect

            message.update(facts=collect(), lock=lock.pins, added=lock.added)
            if watch is not None:
                # No check runs before the worker gets the facts.
                watch.begun()
            return message

        def remaining_s() -> float:
            return limit_s - (time.monotonic() - began)

        stages.run(side_by_side, collected, limit_s)
        for check in added.checks:
            # Each has a worker of its own, and the log and the results of the stage.
            registry = own.__name__ if check in own.CHECKS else stages.REGISTRY
            alone = replace(added, checks=[check], registry=registry)
            stages.run([alone], lambda: message, max(0.0, remaining_s()))
        if watch is not None:
            message["facts"]["health"] = watch.end()
            stages.run(last, lambda: message, max(_END_LIMIT_S, remaining_s()))
    duration_s = time.monotonic() - began
    ran = [*side_by_side, added, *last]
    return report(checks, ran, message["facts"], started, _now(), duration_s, challenge)


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _print(document: Any) -> int:
    # Surrogates (from undecodable bytes in paths or variables) can't be written as UTF-8; escaped they can.
    json.dump(document, sys.stdout, indent=1, ensure_ascii=True, allow_nan=False)
    sys.stdout.write("\n")
    return 0


def _terminated(number: int, frame: Any) -> None:
    raise SystemExit(128 + number)
