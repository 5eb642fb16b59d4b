"""`audit`: match what is in an image against known vulnerabilities."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..audit.severity import Rating
from ..errors import EXIT_FAILED, EXIT_OK
from ..model.timestamps import now_utc
from ..reports.printable import counted, json_text
from .image_contents import Asked, contents_options, read_sbom
from .options import format_option, print_status

if TYPE_CHECKING:
    from ..audit.findings import Audit, Finding

#: A database of this age counts as old. osv.dev changes every day.
_OLD = timedelta(days=7)
_SHOWN = 5


@click.command("audit")
@contents_options
@click.option(
    "--database",
    type=click.Path(path_type=Path, exists=True),
    metavar="PATH",
    required=True,
    help="Vulnerabilities in the format OSV: the all.zip of an ecosystem from osv.dev, a file, or a directory"
    " with either.",
)
@click.option(
    "--fail-on",
    type=click.Choice(("any", "fixable", "low", "medium", "high", "critical", "none")),
    default="any",
    show_default=True,
    help="Exit with 1 only for these findings: any, those with a fix, or those of at least this severity.",
)
@format_option("text", "json")
def command(asked: Asked, database: Path, fail_on: str, format_: str) -> int:
    """Match what is in an image against known vulnerabilities, without a network.

    Name an image in a registry, whose list of packages its builder must have signed, or a lock: see `sbom`.
    `audit` matches wheels against PyPI's advisories, and Debian packages against those of their release.
    """
    from ..audit.findings import audit
    from ..audit.listed_packages import listed_packages
    from ..reports import audit as shown
    from ..reports.terminal import show

    found = audit(listed_packages(read_sbom(asked, "cyclonedx")), database)
    counted = [one for one in found.findings if _counts(one, fail_on)]
    if format_ == "json":
        click.echo(json_text(shown.document(found, asked.name, bool(counted), now_utc())))
    elif found.findings:
        show(shown.table(found))
    _say(found, fail_on, now_utc() - found.newest)
    return EXIT_FAILED if counted else EXIT_OK


def _counts(finding: Finding, fail_on: str) -> bool:
    """Return True if a finding is one of those that `--fail-on` names."""
    if fail_on in ("any", "none"):
        return fail_on == "any"
    if fail_on == "fixable":
        return finding.fixed is not None

    return finding.rating >= Rating[fail_on.upper()]


def _say(found: Audit, fail_on: str, age: timedelta) -> None:
    packages = {(one.ecosystem, one.name) for one in found.findings}
    if found.findings:
        print_status(
            f"{counted(len(found.findings), 'finding')} in {len(packages)} of the"
            f" {counted(len(found.listed.audited), 'audited package')}."
        )
    else:
        print_status(
            f"No known vulnerability in the {counted(len(found.listed.audited), 'audited package')}."
        )
    print_status(f"The database has {found.read} entries; the last was changed on {found.newest:%Y-%m-%d}.")
    if age > _OLD:
        print_status(
            f"Warning: the database is {age.days} days old, so newer vulnerabilities are not found."
            " Download it again."
        )
    if found.unreadable:
        print_status(
            f"Warning: {counted(found.unreadable, 'file')} of the database can't be read:"
            f" {'; '.join(found.faults)}"
        )
    if found.undecided:
        some = ", ".join(found.undecided[:_SHOWN])
        print_status(
            f"Warning: {counted(len(found.undecided), 'vulnerability record')} can't be compared with the"
            f" version of an installed package; look at them yourself: {some}"
        )
    if not found.listed.has_system_packages:
        print_status("Warning: no Debian packages are listed, so those of the base are not audited.")
    if found.listed.others:
        print_status(
            "Not audited, because `audit` matches only packages of PyPI and of Debian:"
            f" {', '.join(found.listed.others)}"
        )
    unrated = [one for one in found.findings if not one.rating]
    if unrated and fail_on in ("low", "medium", "high", "critical"):
        print_status(f"--fail-on {fail_on} ignores {counted(len(unrated), 'finding')} without a severity.")
