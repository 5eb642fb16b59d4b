"""`check`: run the probe once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import EXIT_FAILED, EXIT_OK
from .options import depth_option, format_option, refuse, say, verbose_option

if TYPE_CHECKING:
    from ..model.report import Report

#: Parameters that speak of a run.
_OF_A_RUN = ("image", "python", "lock_path", "depth", "only", "skip")


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
@depth_option
@click.option("--only", metavar="CHECK", multiple=True, help="Run this check, of any depth; repeatable.")
@click.option("--skip", metavar="CHECK", multiple=True, help="Leave this check out; repeatable.")
@click.option("--list", "list_", is_flag=True, help="List the checks and run none.")
@click.option(
    "--save-probe",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the probe to this file, to be run by hand on any machine, and run nothing.",
)
@format_option("text", "json", "junit")
@verbose_option
def command(
    image: str | None,
    python: Path | None,
    lock_path: Path | None,
    depth: str,
    only: tuple[str, ...],
    skip: tuple[str, ...],
    list_: bool,
    save_probe: Path | None,
    format_: str,
) -> int:
    """Run the probe once: in this very environment, in an image, or in another environment.

    Nothing is recorded. The exit code is 1 when a check failed.
    """
    if image is not None and python:
        raise click.UsageError("--image and --python exclude each other")
    if list_:
        refuse((*_OF_A_RUN, "save_probe"), "says nothing beside --list, which runs nothing")
        return _list(format_)
    if save_probe:
        refuse((*_OF_A_RUN, "format_", "as_json"), "says nothing beside --save-probe, which runs nothing")
        return _save(save_probe)
    from ..model.verdict import failed_checks
    from .probing import chosen, probe

    report = probe(image, python, depth, lock_path, chosen(only, skip))
    _show(report, format_)
    return EXIT_FAILED if failed_checks(report) else EXIT_OK


def _list(format_: str) -> int:
    from ..engines.probe_archive import probe_checks

    if format_ == "junit":
        raise click.UsageError("--list has no JUnit form")
    checks = probe_checks()
    if format_ == "json":
        click.echo(json.dumps(checks, indent=2))
    else:
        from ..reports.terminal import check_list, show

        show(check_list(checks))
    return EXIT_OK


def _save(path: Path) -> int:
    from ..engines.probe_archive import probe_archive
    from ..system.files import write_atomically

    write_atomically(path, probe_archive())
    say(f"written: {path}; run it with: python3 {path.name} > report.json")
    return EXIT_OK


def _show(report: Report, format_: str) -> None:
    if format_ == "json":
        click.echo(json.dumps(report.raw, indent=2))
    elif format_ == "junit":
        from ..reports.junit import junit

        click.echo(junit(report), nl=False)
    else:
        from ..model.verdict import judge
        from ..reports.printable import printable
        from ..reports.terminal import checks_table, show

        show(checks_table(report))
        judgement = judge(report)
        click.echo(printable(f"{judgement.verdict.value}: {judgement.sentence}"))
