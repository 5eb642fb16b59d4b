"""Runs the probe once for `check` and `doctor`: here, in an image, or with another Python."""

from __future__ import annotations

import sys
from pathlib import Path

from ..engines.base import ProbeRequest
from ..engines.probe_archive import probe_checks, probe_request
from ..errors import InputError, ValidatorError
from ..model.report import Report, ReportError, read_report
from .options import say


def probe(
    image: str | None,
    python: Path | None,
    depth: str,
    lock: Path | None = None,
    choice: tuple[str, ...] = (),
) -> Report:
    """The probe's report. lock: compared with what is installed. choice: what `chosen` gave.

    Raises ValidatorError when no report came.
    """
    request = probe_request(depth, lock.read_bytes() if lock else None, choice)
    answer = _in_image(image, request) if image is not None else _with_python(python, request)
    try:
        return read_report(answer)
    except ReportError as error:
        raise ValidatorError(f"the probe's report can't be read: {error}") from error


def chosen(only: tuple[str, ...], skip: tuple[str, ...]) -> tuple[str, ...]:
    """The probe's arguments for a choice of checks. Raises InputError for a check that does not exist."""
    known = [check["id"] for check in probe_checks()] if only or skip else []
    for name in (*only, *skip):
        if name not in known:
            raise InputError(f'no check is called "{name}"', hint=f"there are {', '.join(known)}")
    if only and set(only) <= set(skip):
        raise InputError(f"nothing is left to run: {', '.join(only)} is to be run and to be left out")
    pairs = [("--only", name) for name in only] + [("--skip", name) for name in skip]
    return tuple(word for pair in pairs for word in pair)


def _in_image(image: str, request: ProbeRequest) -> bytes:
    from ..engines.docker import find
    from ..system.sources import host_sources

    if not image or image.startswith("-"):
        raise InputError(
            f'"{image}" is no name of an image', hint="give one as for `docker run`, or its identifier"
        )
    engine = find(host_sources())
    try:
        return engine.probe_image(image, request, say)
    finally:
        engine.close()


def _with_python(python: Path | None, request: ProbeRequest) -> bytes:
    from ..engines.venv import refuse_other_program, run_probe

    if python is None:
        return run_probe(Path(sys.executable), request, say)
    # Made absolute and not resolved: a virtual environment's Python is a link, and it runs elsewhere.
    refuse_other_program(python.absolute())
    return run_probe(python.absolute(), request, say)
