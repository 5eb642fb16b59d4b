"""`lint`: check the files with which a project pins its software."""

from __future__ import annotations

from pathlib import Path

import click

from .. import __version__
from ..errors import EXIT_FAILED, EXIT_OK
from ..resources import manual
from .options import PATH, flag, format_option, print_status
from .program import Command


@click.command("lint", cls=Command)
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=PATH)
@flag(
    "--gpu",
    "for_gpu",
    help="Also report what runs only on the CPU where no file says that the project uses a GPU.",
)
@click.option(
    "--ignore",
    "ignored",
    multiple=True,
    metavar="CODE",
    help="Leave out the findings with this code; repeatable.",
)
@format_option("text", "json", "github", "sarif")
def lint_command(files: tuple[Path, ...], for_gpu: bool, ignored: tuple[str, ...], format_: str) -> int:
    """Report what can't work with the TensorFlow that a project pins.

    Reads Dockerfiles, requirements files, pyproject.toml, environment.yml, Pipfile, pixi.toml and lock files.
    Each finding has its place, a code, and what to write instead. `lint` never guesses a version that a file
    leaves open: a finding holds for every version that the file allows. A comment
    `# validator: ignore[CODE]` on the line or above it silences a finding. The format github prints
    annotations for a workflow, sarif what code scanning reads. The exit code is 1 if something was found.
    """
    from ..lint.blame import CODES
    from ..lint.readers import lint
    from ..reports.findings import FINDINGS, findings_sarif, findings_summary

    unknown = [code for code in ignored if code not in CODES]
    if unknown:
        raise click.UsageError(f'--ignore: there is no code "{unknown[0]}"; the codes are {", ".join(CODES)}')
    linted = lint(files, frozenset(ignored), for_gpu=for_gpu)
    found = linted.findings
    if format_ == "sarif":
        shown = findings_sarif(found, CODES, __version__, manual("how-to/check-a-project.md"))
    else:
        shown = FINDINGS[format_](found)
    click.echo(shown, nl=False)
    for place, error in linted.unknown:
        print_status(f"{place.file}:{place.line}: not checked: {error}")
    if format_ == "text":
        print_status(findings_summary(found, len(files)))
    return EXIT_FAILED if found else EXIT_OK
