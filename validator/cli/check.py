"""`check`: run the probe once."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import EXIT_FAILED, EXIT_OK, ValidatorError
from .options import format_option, say, verbose_option

if TYPE_CHECKING:
    from ..engines.base import ProbeRequest


@click.command("check")
@click.option(
    "--image", metavar="NAME", help="In a Docker image with a Python and TensorFlow in it, ours or not."
)
@click.option(
    "--python",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="With this Python, so in its environment.",
)
@click.option(
    "--lock",
    "lock_path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Compare what is installed with this lock.",
)
@click.option(
    "--save-probe",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the probe to this file, to be run by hand on any machine, and run nothing.",
)
@format_option("text", "json")
@verbose_option
def command(
    image: str | None, python: Path | None, lock_path: Path | None, save_probe: Path | None, format_: str
) -> int:
    """Run the probe once: in this very environment, in an image, or in another environment.

    Nothing is recorded. The exit code is 1 when a check failed.
    """
    if image and python:
        raise click.UsageError("--image and --python exclude each other")
    from ..engines.archive import probe_archive

    if save_probe:
        from ..system.files import write_atomically

        write_atomically(save_probe, probe_archive())
        say(f"written: {save_probe}; run it with: python3 {save_probe.name} > report.json")
        return EXIT_OK
    from ..engines.base import ProbeRequest
    from ..model.report import Report, ReportError
    from ..records.verdict import failed_checks, judge

    request = ProbeRequest(
        probe_archive(),
        ("--lock", "lock.txt") if lock_path else (),
        {"lock.txt": lock_path.read_bytes()} if lock_path else {},
    )
    answer = _in_image(image, request) if image else _with_python(python or Path(sys.executable), request)
    try:
        report = Report.from_json(json.loads(answer))
    except (ReportError, ValueError) as error:
        raise ValidatorError(f"the probe's report can't be read: {error}") from error
    if format_ == "json":
        click.echo(json.dumps(report.raw, indent=2))
    else:
        from ..reports.terminal import checks_table, show

        show(checks_table(report))
        judgement = judge(report)
        click.echo(f"{judgement.verdict.value}: {judgement.reason}")
    return EXIT_FAILED if failed_checks(report) else EXIT_OK


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
