"""Run the probe once for `check` and `doctor`: in this environment, in an image, or with another Python."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from ..engines.host_reading import read_host
from ..engines.local_probe import refuse_other_program, run_probe
from ..engines.own_checks import PackedCheck
from ..engines.probe_archive import probe_checks, probe_request
from ..engines.protocol import ProbeRequest
from ..errors import InputError, ValidatorError
from ..model.measurement import Outside, Unread
from ..model.report import Report, ReportError, read_report
from ..reports.derived import Changes
from .derivation import Derived, changes_in, find_derived
from .options import print_status


@dataclass(frozen=True)
class Probed:
    """A report, and what the host says about its driver and its GPUs, or why it was not asked.

    changes: what an image that was derived from one of this project has that the other has not.
    """

    report: Report
    outside: Outside | Unread
    changes: Changes | None = None


def probe(
    image: str | None,
    python: Path | None,
    depth: str,
    lock: Path | None = None,
    selection: tuple[str, ...] = (),
    challenge: str | None = None,
    own: tuple[PackedCheck, ...] = (),
) -> Probed:
    """Run the probe and return its report.

    lock: a lock to compare the installed packages with. selection: the result of `select_checks`. challenge:
    for the report to repeat. own: checks of the user's own.

    Raises ValidatorError if the probe gives no report.
    """
    request = probe_request(
        depth, lock.read_bytes() if lock else None, selection, challenge=challenge, own=own
    )
    derived: Derived | None = None
    if image is not None:
        outside, answer, derived = _in_image(image, request)
    else:
        outside, answer = _with_python(python, request)
    try:
        report = read_report(answer)
        return Probed(report, outside, changes_in(derived, report) if derived else None)
    except ReportError as error:
        raise ValidatorError(f"the probe's report can't be read: {error}") from error


def select_checks(
    only: tuple[str, ...], skip: tuple[str, ...], own: tuple[PackedCheck, ...] = ()
) -> tuple[str, ...]:
    """Return the probe's arguments that select checks. Raises InputError for a check that does not exist."""
    known = [check.id for check in probe_checks()] if only or skip else []
    known += [check.file.id for check in own]
    for name in (*only, *skip):
        if name not in known:
            raise InputError(f'there is no check "{name}"', hint=f"the checks are {', '.join(known)}")
    if only and set(only) <= set(skip):
        raise InputError(f"there is no check left to run: --only and --skip both name {', '.join(only)}")
    pairs = [("--only", name) for name in only] + [("--skip", name) for name in skip]
    return tuple(word for pair in pairs for word in pair)


def _in_image(image: str, request: ProbeRequest) -> tuple[Outside | Unread, bytes, Derived | None]:
    from ..engines.docker import DockerEngine, connect

    if not image or image.startswith("-"):
        raise InputError(
            f'--image: "{image}" is not the name of an image', hint="give a name or ID as for `docker run`"
        )
    engine = DockerEngine(connect())
    try:
        answer = engine.probe_image(image, request, print_status)
        return engine.outside(), answer, find_derived(engine, image, print_status)
    finally:
        engine.close()


def _with_python(python: Path | None, request: ProbeRequest) -> tuple[Outside | Unread, bytes]:
    if python is None:
        return read_host(), run_probe(Path(sys.executable), request, print_status)
    # Make it absolute without resolving it: a virtual environment's Python is a link that must be kept.
    refuse_other_program(python.absolute())
    return read_host(), run_probe(python.absolute(), request, print_status)
