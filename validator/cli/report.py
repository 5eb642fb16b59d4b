"""`report`: the matrix, predicted beside measured."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click

from ..diagnosis.diagnose import diagnose_report
from ..errors import InputError
from ..model.certificate import Certificate, read_verification
from ..model.codec import DocumentError
from ..model.diagnosis import Diagnosis
from ..model.record import Record, Verdict
from ..model.report import ReportError
from ..reports.overview import Row
from ..reports.page.measurements import Measurements
from ..reports.page.site import ENTRY, FOLDERS, MARK, Sources, site
from ..system.output_directory import update_directory
from .options import (
    format_option,
    matrix_option,
    profile_option,
    say,
    select_option,
    store_option,
    store_to_read,
    verbose_option,
)


@click.command("report")
@matrix_option
@profile_option
@select_option
@store_option
@click.option(
    "--output", type=click.Path(path_type=Path), help="Write Markdown or JSON to a file instead of stdout."
)
@click.option(
    "--html",
    "directory",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write a static page into a directory, with badges and a Markdown table.",
)
@click.option(
    "--registry",
    envvar="VALIDATOR_REGISTRY",
    metavar="REGISTRY/NAME",
    help="With --html: where the images can be pulled from.",
)
@click.option(
    "--certificates",
    "certificate_files",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="With --html: what `verify --format json` wrote of an image in the registry; repeatable.",
)
@format_option("terminal", "markdown", "json")
@verbose_option
def command(
    matrix_path: Path,
    profile: str | None,
    selectors: tuple[str, ...],
    store_url: str | None,
    output: Path | None,
    directory: Path | None,
    registry: str | None,
    certificate_files: tuple[Path, ...],
    format_: str,
) -> None:
    """Show the matrix, predicted beside measured."""
    if directory is not None and (output is not None or format_ != "terminal"):
        raise click.UsageError("--html goes without --output and --format")
    if directory is None and certificate_files:
        raise click.UsageError("--certificates is for --html")
    if output is not None and format_ == "terminal":
        raise click.UsageError("--output is for --format markdown and json")
    from ..matrix.load import DEFAULT_PROFILE
    from ..model.spec import python_label
    from ..reports.overview import overview
    from ..reports.page.measurements import gather
    from .planning import planned

    planned(matrix_path, profile, selectors)  # wrong input is told before anything is read
    with store_to_read(matrix_path, store_url) as store:
        measurements = gather(store.all()) if directory is not None else None
        latest = store.latest() if measurements is None else measurements.latest
    measured = {record.image for record in latest.values()}

    def available(python: str) -> str | None:
        """A profile that takes one Python of several is shown with the one that was measured."""
        ending = python_label(python)
        return "records" if any(ending in image.split("-") for image in measured) else None

    plan = planned(matrix_path, profile, selectors, available)
    rows = overview(plan.cells, latest)
    if directory is not None and measurements is not None:
        write_page(directory, rows, measurements, profile or DEFAULT_PROFILE, registry, certificate_files)
    elif format_ == "terminal":
        from ..reports.terminal import overview_text, show

        show(overview_text(rows))
    else:
        from ..reports.markdown import markdown

        title = f"TensorFlow on GPUs: profile {profile or DEFAULT_PROFILE}"
        text = (
            markdown(rows, title)
            if format_ == "markdown"
            else json.dumps([row.as_json() for row in rows], indent=2) + "\n"
        )
        if output is None:
            click.echo(text, nl=False)
        else:
            from ..system.files import write_atomically

            write_atomically(output, text.encode())
            say(f"written: {output}")
    against = [row.cell for row in rows if row.agrees is False]
    if against:
        say(f"{len(against)} measured otherwise than predicted: {', '.join(against)}")


# `report --html`: from the overview to files in a directory.


def write_page(
    directory: Path,
    rows: Sequence[Row],
    measurements: Measurements,
    profile: str,
    registry: str | None,
    certificate_files: Sequence[Path],
) -> None:
    """Write the page, or bring one that is there up to date."""
    sources = Sources(
        rows=rows,
        measurements=measurements,
        profile=profile,
        certificates=_certificates(certificate_files),
        diagnose=_diagnose,
        registry=registry,
    )
    done = update_directory(directory, site(sources), entry=ENTRY, mark=MARK.encode(), folders=FOLDERS)
    say(
        f"written: {directory / ENTRY}"
        f" ({done.written} files written, {done.unchanged} unchanged, {done.removed} removed)"
    )


def _certificates(files: Sequence[Path]) -> dict[str, list[Certificate]]:
    """By image digest, newest measurement first; whoever wrote the files has verified them."""
    by_digest: dict[str, list[Certificate]] = {}
    for certificate in [certificate for path in files for certificate in _certificates_in(path)]:
        known = by_digest.setdefault(certificate.image_digest, [])
        if certificate not in known:
            known.append(certificate)
    for known in by_digest.values():
        known.sort(key=lambda each: (each.measured, each.issued, each.signer), reverse=True)
    return by_digest


def _certificates_in(path: Path) -> list[Certificate]:
    try:
        return list(read_verification(path.read_bytes()).certificates)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    except DocumentError as error:
        raise InputError(
            f"{path}: holds no certificates ({error})",
            hint="write it with `python -m validator verify --format json`",
        ) from error


def _diagnose(record: Record) -> Diagnosis | None:
    if record.verdict is Verdict.CERTIFIED:
        return None
    try:
        report = record.read_report()
    except ReportError:
        # Its checks are shown all the same.
        return None
    return diagnose_report(report) if report else None
