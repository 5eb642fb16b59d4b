"""The probe's command line: the report goes to standard output, progress to standard error.

The exit status is 0 when the output was written, whatever the checks found: the report says that. 2 means
that the command line or the lock is wrong, 130 or 143 that the probe was told to stop. From a source tree,
`python -m validator.probe.cli` starts it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import re
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from . import installed, own, stages, version
from .check import END, FULL, HOST, OWN, QUICK, TENSORFLOW, Check
from .checks import CHECKS, packages
from .host import host_facts
from .stages import Progress, Stage
from .watch import Watch

#: The format of the report, which docs/reference/report.md describes. It rises when a reader of the older
#: format would misread the newer.
FORMAT = 2
#: Seconds after which the probe gives up.
TIME_LIMIT_S = 1800.0
#: Seconds that the checks of the last stage always have; they only judge what was seen.
_END_LIMIT_S = 30.0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, terminated)
    if options.list:
        return _print([describe(check) for check in (*CHECKS, *own.CHECKS)])
    if options.host_facts:
        return _print(shareable(host_facts(), str(Path.home())))
    lock: dict[str, str] | None = None
    added: tuple[str, ...] = ()
    try:
        checks = selected(options.only, options.skip, options.depth)
        if options.lock:
            text = Path(options.lock).read_text(encoding="utf-8")
            lock, added = packages.pins(text), tuple(packages.added(text))
    except (OSError, ValueError) as error:
        # No usage: whoever runs the probe has seen other options.
        parser.exit(2, f"probe: error: {error}\n")
    try:
        return _print(probe(checks, lock, added, options.time_limit, options.challenge))
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="probe",
        description="Find out whether this Python's TensorFlow works here, and report it as JSON.",
    )
    add = parser.add_argument
    add(
        "--lock", metavar="FILE", help="file with pins (name==version) to compare with the installed packages"
    )
    add("--only", metavar="CHECK", action="append", default=[], help="run only this check; repeatable")
    add("--skip", metavar="CHECK", action="append", default=[], help="leave this check out; repeatable")
    depths = "quick: what a verdict needs (default); full: also every measurement"
    add("--depth", choices=(QUICK, FULL), default=QUICK, help=depths)
    challenge = "repeat this text in the report, so that it can't be one from an earlier run"
    add("--challenge", metavar="TEXT", help=challenge)
    add("--list", action="store_true", help="list the checks as JSON and run none")
    facts = "print only the facts about the machine: driver, GPUs, system"
    add("--host-facts", action="store_true", help=facts)
    limit = "give up after this long (default 1800)"
    add("--time-limit", metavar="SECONDS", type=float, default=TIME_LIMIT_S, help=limit)
    add("--version", action="version", version=version())
    return parser


def selected(only: list[str], skip: list[str], depth: str) -> list[Check]:
    """Return the checks to run, in their order. Raises ValueError for a name that no check has."""
    offered = (*CHECKS, *own.CHECKS)
    known = [check.id for check in offered]
    unknown = [name for name in [*only, *skip] if name not in known]
    if unknown:
        raise ValueError(f"there is no check {', '.join(unknown)}; the checks are {', '.join(known)}")
    chosen = [check for check in offered if check.id not in skip]
    if only:
        return [check for check in chosen if check.id in only]
    return [check for check in chosen if depth == FULL or check.depth == QUICK]


def collect(limit_s: float) -> dict[str, Any]:
    """Return the facts that the checks judge: `host` and `environment` (as in the report), `tensorflow`.

    limit_s: the time limit of the whole probe, of which a driver that does not answer takes at most half.
    """
    packages = installed.packages()
    tensorflow = installed.tensorflow(packages)
    environment = installed.environment(packages, tensorflow)
    return {"host": host_facts(limit_s / 4), "environment": environment, "tensorflow": tensorflow}


def probe(
    checks: list[Check],
    lock: dict[str, str] | None,
    added: tuple[str, ...],
    limit_s: float,
    challenge: str | None,
) -> dict[str, Any]:
    """Run the checks and return the report.

    lock: versions by name, or None without a lock. added: the packages that the user added to the image.
    """
    started, began = _now(), time.monotonic()
    progress = Progress(lambda line: print(line, file=sys.stderr, flush=True))
    if added:
        # An image that was made with these packages has to work with them.
        checks = [replace(check, required=True) if check is packages.packages else check for check in checks]
    by_stage = {
        name: Stage(name, [check for check in checks if check.stage == name], progress)
        for name in (TENSORFLOW, HOST, OWN, END)
    }
    last, users = by_stage[END], by_stage[OWN]
    message: dict[str, Any] = {}
    with contextlib.ExitStack() as stack:
        stack.callback(progress.finish)
        watch = stack.enter_context(Watch()) if last.checks else None

        def collected() -> dict[str, Any]:
            message.update(facts=collect(limit_s), lock=lock, added=added)
            if watch is not None:
                # No check runs before the worker gets the facts.
                watch.begun()
            return message

        def remaining_s() -> float:
            return limit_s - (time.monotonic() - began)

        stages.run([by_stage[TENSORFLOW], by_stage[HOST]], collected, limit_s)
        for check in users.checks:
            # Each has a worker of its own, and the log and the results of the stage.
            registry = own.__name__ if check in own.CHECKS else stages.REGISTRY
            alone = replace(users, checks=[check], registry=registry)
            stages.run([alone], lambda: message, max(0.0, remaining_s()))
        if watch is not None:
            message["facts"]["health"] = watch.end()
            stages.run([last], lambda: message, max(_END_LIMIT_S, remaining_s()))
    duration_s = time.monotonic() - began
    return report(checks, by_stage.values(), message["facts"], started, _now(), duration_s, challenge)


def report(
    checks: Iterable[Check],
    stages: Iterable[Stage],
    facts: dict[str, Any],
    started: str,
    finished: str,
    duration_s: float,
    challenge: str | None,
) -> dict[str, Any]:
    """Return the report as JSON, with the home directory written as `~`."""
    by_name = {stage.name: stage for stage in stages}
    logs: dict[str, Any] = {}
    for name, stage in by_name.items():
        logs.update({f"{name}_stderr": stage.log.text, f"{name}_stderr_bytes": stage.log.total})
    reported = []
    for check in checks:
        result, seconds = by_name[check.stage].results[check.id]
        reported.append({**describe(check), **result.fields(), "duration_s": round(seconds, 3)})
    document = {
        "format": FORMAT,
        "probe": {"version": version()},
        "started": started,
        "finished": finished,
        "duration_s": round(duration_s, 3),
        "challenge": challenge,
        "host": facts["host"],
        "environment": facts["environment"],
        "checks": reported,
        "logs": {
            **logs,
            "truncated": any(stage.log.dropped for stage in by_name.values()),
            "limit_bytes": next(iter(by_name.values())).log.limit,
        },
    }
    return dict(shareable(document, os.path.expanduser("~")))


def describe(check: Check) -> dict[str, Any]:
    """Return a check as `--list` shows it, and as every report holds it."""
    fields = ("id", "stage", "title", "required", "depth", "requires", "limit_s")
    return {**{name: getattr(check, name) for name in fields}, "requires": list(check.requires)}


def shareable(value: Any, home: str) -> Any:
    """Return the value as a report may hold it: valid JSON, with the home directory as `~` in every text.

    The path of a home directory names a person. NaN and infinity are not JSON; they become null.
    """
    if isinstance(value, str):
        # `/home/anna/x` and `/mnt/home/ann/x` are not in `/home/ann`.
        inside = rf"(?<![\w./~-]){re.escape(home)}(?![\w.-])"
        return value if home in ("", "/", "~") else re.sub(inside, "~", value)
    if isinstance(value, dict):
        return {key: shareable(entry, home) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        entries: list[Any] = [shareable(entry, home) for entry in value]
        return entries
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")


def _print(document: Any) -> int:
    # Surrogates (from undecodable bytes in paths or variables) can't be written as UTF-8; escaped they can.
    json.dump(document, sys.stdout, indent=1, ensure_ascii=True, allow_nan=False)
    sys.stdout.write("\n")
    return 0


def terminated(number: int, frame: Any) -> None:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
