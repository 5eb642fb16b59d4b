"""`check`: run the probe once."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..engines.own_checks import read_files
from ..errors import EXIT_FAILED, EXIT_OK
from ..model.codec import encode
from ..model.spec import Variant
from ..model.verdict import failed_checks, judge
from ..reports.derived import derived_text
from ..reports.junit import junit
from ..reports.printable import json_text, printable
from ..system.files import write_atomically
from .options import (
    challenge_option,
    depth_option,
    format_option,
    print_status,
    reject_options,
    verbose_option,
)

if TYPE_CHECKING:
    from .probing import Probed

#: Parameters that only affect a run of the probe.
_RUN_PARAMETERS = ("image", "python", "lock_path", "depth", "only", "skip", "challenge")


@click.command("check")
@click.option(
    "--image", metavar="NAME", help="Run in this Docker image, which needs Python and should have TensorFlow."
)
@click.option(
    "--python",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Run with this Python, in its environment.",
)
@click.option(
    "--lock",
    "lock_path",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Compare the installed packages with this lock.",
)
@depth_option
@click.option(
    "--only", metavar="CHECK", multiple=True, help="Only run this check, whatever its depth; repeatable."
)
@click.option("--skip", metavar="CHECK", multiple=True, help="Do not run this check; repeatable.")
@click.option(
    "--own-check",
    "own_checks",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    multiple=True,
    help="Also run a check of your own, from this file; repeatable.",
)
@challenge_option
@click.option("--list", "list_", is_flag=True, help="List the checks without running any.")
@click.option(
    "--save-probe",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Only write the probe to this file, so that you can run it on any machine.",
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
    own_checks: tuple[Path, ...],
    challenge: str | None,
    list_: bool,
    save_probe: Path | None,
    format_: str,
) -> int:
    """Run the probe once: in this environment, in an image, or with another Python.

    Nothing is recorded. The exit code is 1 if a check failed.
    """
    if image is not None and python:
        raise click.UsageError("--image and --python can't be combined")
    if list_:
        reject_options((*_RUN_PARAMETERS, "own_checks", "save_probe"), "has no effect with --list")
        return _list(format_)
    if save_probe:
        reject_options((*_RUN_PARAMETERS, "format_", "as_json"), "has no effect with --save-probe")
        return _save(save_probe, own_checks)
    from .probing import probe, select_checks

    own = read_files(own_checks)
    probed = probe(image, python, depth, lock_path, select_checks(only, skip, own), challenge, own)
    _show(probed, format_, challenge, _variant(lock_path))
    return EXIT_FAILED if failed_checks(probed.report) else EXIT_OK


def _list(format_: str) -> int:
    from ..engines.probe_archive import probe_checks

    if format_ == "junit":
        raise click.UsageError("--list cannot be written as JUnit")
    checks = probe_checks()
    if format_ == "json":
        click.echo(json_text(encode(checks)))
    else:
        from ..reports.terminal import check_list, show

        show(check_list(checks))
    return EXIT_OK


def _save(path: Path, own_checks: tuple[Path, ...]) -> int:
    from ..engines.probe_archive import probe_archive

    write_atomically(path, probe_archive(read_files(own_checks)))
    print_status(f"Wrote {path}. Run it with: python3 {path.name} > report.json")
    return EXIT_OK


def _variant(lock_path: Path | None) -> Variant:
    """Return what the environment should be: without CUDA if the lock has the TensorFlow without it."""
    text = lock_path.read_text(encoding="utf-8", errors="replace") if lock_path else ""
    return Variant.CPU if re.search(r"^tensorflow-cpu==", text, re.MULTILINE) else Variant.GPU


def _show(probed: Probed, format_: str, challenge: str | None, variant: Variant) -> None:
    report = probed.report
    if format_ == "json":
        changes = {} if probed.changes is None else {"derived": probed.changes.document()}
        click.echo(json_text({**report.raw, **changes}))
    elif format_ == "junit":
        click.echo(junit(report), nl=False)
    else:
        from ..reports.terminal import checks_table, show

        show(checks_table(report))
        judgement = judge(report, outside=probed.outside, challenge=challenge, variant=variant)
        click.echo(printable(f"{judgement.verdict.value}: {judgement.sentence}"))
        if probed.changes is not None:
            for line in derived_text(probed.changes).splitlines():
                click.echo(printable(line))
