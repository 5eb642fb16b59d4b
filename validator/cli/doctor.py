"""`doctor`: find out why TensorFlow does not use the GPU; `check`: run the probe once."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

import click

from ..engines import changed_files
from ..engines.protocol import (
    PackedCheck,
    ProbeRequest,
    probe_archive,
    probe_checks,
    probe_request,
    read_files,
    refuse_other_program,
    run_probe,
)
from ..engines.this_machine import active_python, read_host
from ..errors import EXIT_FAILED, EXIT_OK, InputError, ValidatorError
from ..model import codec
from ..model.codec import DocumentError, encode
from ..model.record import Outside, Unread
from ..model.report import Report, ReportError, read_report, report_of
from ..model.spec import INSTALLED, Variant, variant_of
from ..model.verdict import failed_checks, judge
from ..registry.names import check_image_name, tag_of
from ..reports.diagnosis import Changes, derived_text, packages_changed
from ..reports.overview import junit
from ..reports.printable import json_text, printable
from ..system.files import open_file, read_file, write_atomically
from . import Command, options
from .options import argument, flag, option, print_status

if TYPE_CHECKING:
    from ..engines.images import Derivation
    from ..model.diagnosis import Diagnosis


#: Seconds for reading every file of an image's packages, which is needed only if all of them have new times.
_LIMIT_S = 600.0
_FILE_OR_STDIN = click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path)


@click.command("doctor", cls=Command)
def doctor_command(
    log_path: Path | None = argument("[LOG]", type=_FILE_OR_STDIN, required=False),
    report_path: Path | None = option(
        "--report  Read a report of the probe from this file, or - for stdin.", type=_FILE_OR_STDIN
    ),
    image: str | None = option("--image NAME  Run the probe in this Docker image."),
    python: Path | None = option(
        "--python  Run the probe with this Python, the one you train with.  [default: that of the active"
        " environment]",
        type=options.FILE,
    ),
    depth: str = options.depth,
    save_report: Path | None = option(
        "--save-report  Save the probe's report in this file.", type=options.OUTPUT
    ),
    format_: str = options.formats("text", "json", "markdown", short=("json", "markdown")),
) -> int:
    """Name the cause when TensorFlow does not use the GPU, with the evidence and how to fix it.

    Runs the probe in the active environment, in an image or with another Python; or reads pasted text from
    the file LOG, or from stdin if LOG is -: log lines, a traceback, nvidia-smi, pip list, errors of docker
    run, a report of the probe, in any mixture. The format markdown is for issue trackers: it leaves out names
    of people and machines. The exit code is 1 if a cause was found, or a fault that matches no known cause.
    """
    sources = {"a log": log_path, "--report": report_path, "--image": image, "--python": python}
    given = [name for name, value in sources.items() if value is not None]
    if len(given) > 1:
        raise click.UsageError(f"{' and '.join(given)} can't be combined")
    if log_path or report_path:
        options.reject(("depth", "save_report"), "has an effect only when the probe runs")
    if log_path:
        from ..diagnosis import diagnose_ends
        from ..diagnosis.text import ends_of

        try:
            with open_file(log_path, sys.maxsize) as stream:
                ends = ends_of(cast("BinaryIO", stream), _name(log_path))
        except OSError as error:
            raise InputError(f"{_name(log_path)} can't be read: {error.strerror}") from error
        diagnosis, read = diagnose_ends(ends, _name(log_path)), ends.named
    else:
        if report_path:
            report = _read_report(report_path)
        else:
            if not (image or python):
                python = active_python(os.environ)[0]
            report = probe(image, python, depth).report
            if save_report:
                write_atomically(save_report, json.dumps(report.raw, indent=1).encode() + b"\n")
        from ..diagnosis import diagnose_report

        diagnosis = diagnose_report(report, image or "")
        read = functools.partial(json.dumps, report.raw, indent=0)
    if format_ == "text":
        _show(diagnosis)
    elif format_ == "json":
        click.echo(json_text(encode(diagnosis)))
    else:
        from ..redaction.redact import names_in
        from ..reports.diagnosis import markdown

        # What the diagnosis was made from reveals names that the lines that are shown do not.
        click.echo(markdown(diagnosis, names_in(read())), nl=False)
    options.say_if_stale()
    return EXIT_FAILED if diagnosis.causes or diagnosis.unknown else EXIT_OK


def _read_report(path: Path) -> Report:
    from ..diagnosis.text import begins_report, damaged_report, split_reports

    name = _name(path)
    try:
        with open_file(path, sys.maxsize) as stream:
            content = stream.read(codec.LARGEST + 1) or b""
    except OSError as error:
        raise InputError(f"{name} can't be read: {error.strerror}") from error
    try:
        # It may be a part of a measurement or of a record.
        reports, _ = split_reports(content)
        return report_of(reports[0]) if len(reports) == 1 else read_report(content)
    except ReportError as error:
        if begins_report(content, name):
            raise damaged_report(name, f": {error}") from error
        raise InputError(
            f"{name} is not a report that can be read: {error}",
            hint="leave --report out for text that TensorFlow printed; `check --json` writes a report",
        ) from error


def _name(path: Path) -> str:
    return "stdin" if str(path) == "-" else str(path)


def _show(diagnosis: Diagnosis) -> None:
    from ..diagnosis.remedies import ANYWHERE
    from ..reports.diagnosis import text
    from . import as_started, program

    # Other formats may be read on another machine.
    diagnosis = replace(diagnosis, next_command=diagnosis.next_command.replace(ANYWHERE, program()))

    terminal = sys.stdout.isatty()
    plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    columns = shutil.get_terminal_size().columns if terminal else None
    click.echo(as_started(text(diagnosis, columns)), nl=False, color=terminal and not plain)


#: Parameters that only affect a run of the probe.
_RUN_PARAMETERS = ("image", "python", "lock_path", "depth", "only", "skip", "challenge")


@click.command("check", cls=Command)
def check_command(
    image: str | None = option(
        "--image NAME  Run in this Docker image, which needs Python and should have TensorFlow."
    ),
    python: Path | None = option("--python  Run with this Python, in its environment.", type=options.FILE),
    lock_path: Path | None = option(
        "--lock  Compare the installed packages with this lock.  [default: that of the image, if it is here]",
        type=options.FILE,
    ),
    depth: str = options.depth,
    only: tuple[str, ...] = option("--only CHECK...  Only run this check, whatever its depth; repeatable."),
    skip: tuple[str, ...] = option("--skip CHECK...  Do not run this check; repeatable."),
    own_checks: tuple[Path, ...] = option(
        "--own-check FILE...  Also run a check of your own, from this file; repeatable.", type=options.FILE
    ),
    challenge: str | None = options.challenge,
    list_: bool = flag("--list  List the checks without running any."),
    save_probe: Path | None = option(
        "--save-probe  Only write the probe to this file, so that you can run it on any machine.",
        type=options.OUTPUT,
    ),
    format_: str = options.formats("text", "json", "junit"),
) -> int:
    """Run the probe once: in this environment, in an image, or with another Python.

    Nothing is recorded. The exit code is 1 if a check failed.
    """
    if image is not None and python:
        raise click.UsageError("--image and --python can't be combined")
    if list_:
        options.reject((*_RUN_PARAMETERS, "own_checks", "save_probe"), "has no effect with --list")
        if format_ == "junit":
            raise click.UsageError("--list cannot be written as JUnit")
        checks = probe_checks()
        if format_ == "json":
            click.echo(json_text(encode(checks)))
        else:
            from ..reports.terminal import check_list, show

            show(check_list(checks))
        return EXIT_OK
    if save_probe:
        options.reject((*_RUN_PARAMETERS, "format_", "as_json"), "has no effect with --save-probe")
        write_atomically(save_probe, probe_archive(read_files(own_checks)))
        print_status(f"Wrote {save_probe}. Run it with: python3 {save_probe.name} > report.json")
        return EXIT_OK

    own = read_files(own_checks)
    probed = probe(image, python, depth, lock_path, select_checks(only, skip, own), challenge, own)
    report = probed.report
    if format_ == "json":
        changes = {} if probed.changes is None else {"derived": asdict(probed.changes)}
        click.echo(json_text({**report.raw, **changes}))
    elif format_ == "junit":
        click.echo(junit(report), nl=False)
    else:
        from ..reports.terminal import checks_table, show

        show(checks_table(report.checks))
        judgement = judge(report, outside=probed.outside, challenge=challenge, variant=probed.variant)
        click.echo(printable(f"{judgement.verdict.value}: {judgement.sentence}"))
        if probed.changes is not None:
            for line in derived_text(probed.changes).splitlines():
                click.echo(printable(line))
    return EXIT_FAILED if failed_checks(report) else EXIT_OK


# Run the probe once for `check` and `doctor`: in this environment, in an image, or with another Python.


@dataclass(frozen=True)
class Probed:
    """A report, and what the host says about its driver and its GPUs, or why it was not asked.

    variant: `cpu` if TensorFlow should have no CUDA, as the lock or the image says. changes: what an image
    that was derived from one of this project has that the other has not.
    """

    report: Report
    outside: Outside | Unread
    variant: Variant = Variant.GPU
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

    lock: a lock to compare the installed packages with; an image of this project is compared with its own
    one if that is here. selection: the result of `select_checks`. challenge: for the report to repeat.
    own: checks of the user's own.

    Raises ValidatorError if the probe gives no report.
    """
    pins = read_file(lock) if lock else None
    variant = Variant.CPU if re.search(rb"^tensorflow-cpu==", pins or b"", re.MULTILINE) else Variant.GPU
    request = functools.partial(probe_request, depth, arguments=selection, challenge=challenge, own=own)
    derived: tuple[Derivation, dict[str, list[str]]] | None = None
    if image is not None:
        outside, answer, labelled, derived = _in_image(image, request, pins)
        variant = variant if pins else labelled
    else:
        # Make it absolute without resolving it: a virtual environment's Python is a link that must be kept.
        program = (python or Path(sys.executable)).absolute()
        if python is not None:
            refuse_other_program(program)
        outside, answer = read_host(), run_probe(program, request(pins), print_status)
    try:
        report = read_report(answer)
    except ReportError as error:
        raise ValidatorError(f"the probe's report can't be read: {error}") from error
    if derived is None:
        return Probed(report, outside, variant)
    from .planning import lock_of_image

    # The packages are compared with the lock of the image that this one was derived from, if that is here.
    origin, files = derived
    base = lock_of_image(options.default_matrix(), origin.image, origin.lock_digest)
    packages = packages_changed(base, report.environment.packages) if base else ({}, {}, {})
    changes = Changes(
        origin.image, origin.lock_digest, origin.base, origin.commands, base is not None, *packages, files
    )
    return Probed(report, outside, variant, changes)


def select_checks(
    only: tuple[str, ...], skip: tuple[str, ...], own: tuple[PackedCheck, ...] = ()
) -> tuple[str, ...]:
    """Return the probe's arguments that select checks. Raises InputError for a check that does not exist."""
    known = [check.id for check in probe_checks()] if only or skip else []
    known += [check.file.id for check in own]
    for name in (*only, *skip):
        # Only the environment knows the checks of its packages.
        if name not in known and not name.startswith(INSTALLED):
            raise InputError(f'there is no check "{name}"', hint=f"the checks are {', '.join(known)}")
    if only and set(only) <= set(skip):
        raise InputError(f"there is no check left to run: --only and --skip both name {', '.join(only)}")
    pairs = [("--only", name) for name in only] + [("--skip", name) for name in skip]
    return tuple(word for pair in pairs for word in pair)


def _in_image(
    image: str, request: Callable[[bytes | None], ProbeRequest], pins: bytes | None
) -> tuple[Outside | Unread, bytes, Variant, tuple[Derivation, dict[str, list[str]]] | None]:
    """Run the probe in an image.

    request: makes the request from the lock. pins: the lock that was asked for. The last values are the
    variant that the image's label names, what the image was derived from, and its changed files.
    """
    from ..engines.docker import DockerEngine
    from ..engines.endpoint import connect, connect_any
    from ..locks.lock_files import render
    from .planning import lock_of_image

    check_image_name(image)
    with contextlib.closing(DockerEngine(connect_any(connect))) as engine:
        spec, digest = engine.made_from(image)
        origin = engine.derivation(image)
        if pins is None and origin is None and spec:
            lock = lock_of_image(options.default_matrix(), spec, digest)
            if lock is not None:
                pins = render(lock).encode()
            else:
                print_status(
                    f"The lock of {spec} is not here, so its packages are not compared: see `check --lock`."
                )
        answer, outside = engine.probe_image(image, request(pins), print_status), engine.outside()
        try:
            # A label may hold anything.
            tag_of(origin.image if origin else "")
        except ValueError:
            origin = None
        if origin is None:
            return outside, answer, variant_of(spec), None
        script = ProbeRequest(Path(changed_files.__file__).read_bytes(), timeout_s=_LIMIT_S)
        files = engine.probe_image(image, script, print_status)
    try:
        changed = codec.convert(codec.parse(files), dict[str, list[str]])
    except DocumentError as error:
        raise ValidatorError(f"{image}: the comparison of its files can't be read: {error}") from error
    return outside, answer, variant_of(spec), (origin, changed)
