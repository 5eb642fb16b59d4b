"""Runs the probe once for `check` and `doctor`: here, in an image, or with another Python."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from ..engines.archive import probe_archive, probe_checks
from ..engines.base import ProbeRequest
from ..errors import InputError, ValidatorError
from ..model.report import Report, ReportError
from .options import say

#: Seconds for a run; the probe ends itself before that.
_LIMIT_S = 1900.0


def probe(image: str | None, python: Path | None, arguments: tuple[str, ...], lock: Path | None) -> Report:
    """The probe's report. lock: compared with what is installed. Raises ValidatorError when none came."""
    request = ProbeRequest(
        probe_archive(),
        (*arguments, *(("--lock", "lock.txt") if lock else ())),
        {"lock.txt": lock.read_bytes()} if lock else {},
        timeout_s=_LIMIT_S,
    )
    answer = _in_image(image, request) if image else _with_python(python or Path(sys.executable), request)
    try:
        return Report.from_json(json.loads(answer))
    except (ReportError, ValueError) as error:
        raise ValidatorError(f"the probe's report can't be read: {error}") from error


def chosen(only: tuple[str, ...], skip: tuple[str, ...], depth: str) -> tuple[str, ...]:
    """The probe's arguments for a choice of checks. Raises InputError for a check that does not exist."""
    known = [check["id"] for check in probe_checks()] if only or skip else []
    for name in (*only, *skip):
        if name not in known:
            raise InputError(f'no check is called "{name}"', hint=f"there are {', '.join(known)}")
    pairs = [("--only", name) for name in only] + [("--skip", name) for name in skip]
    return ("--depth", depth, *(word for pair in pairs for word in pair))


def _in_image(image: str, request: ProbeRequest) -> bytes:
    from ..engines.docker import find
    from ..system.sources import host_sources

    engine = find(host_sources())
    try:
        return engine.probe_image(image, request, say)
    finally:
        engine.close()


def _with_python(python: Path, request: ProbeRequest) -> bytes:
    from ..engines.venv import run_probe

    return run_probe(python, request, say)
