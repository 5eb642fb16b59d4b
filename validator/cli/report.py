"""`report`: show the matrix with its predictions and measured verdicts, or write it as a web page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import InputError
from ..model.certificate import Certificate, read_verification
from ..model.codec import DocumentError
from ..model.diagnosis import Diagnosis
from ..model.record import Record, Verdict
from ..model.report import ReportError
from ..model.spec import ImageSpec, python_label
from ..model.timestamps import now_utc
from ..records.finish_time import credible_time
from ..reports.markdown import markdown
from ..reports.overview import overview
from ..reports.page.measurements import gather
from ..reports.printable import counted, json_text
from ..system.files import write_atomically
from ..system.output_directory import update_directory
from .options import (
    format_option,
    matrix_option,
    open_store,
    print_status,
    profile_option,
    select_option,
    store_option,
    verbose_option,
)

if TYPE_CHECKING:
    from ..reports.page.site import Sources


@click.command("report")
@matrix_option
@profile_option
@select_option
@store_option
@click.option(
    "--output", type=click.Path(path_type=Path), help="Write Markdown or JSON to this file instead of stdout."
)
@click.option(
    "--html",
    "directory",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write a static web page to this directory, with badges and a Markdown table.",
)
@click.option(
    "--registry",
    envvar="VALIDATOR_REGISTRY",
    metavar="REGISTRY/NAME",
    help="With --html: the repository to pull the images from.",
)
@click.option(
    "--certificates",
    "certificate_files",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="With --html: certificates, as written by `verify --format json`; repeatable.",
)
@click.option(
    "--answers",
    "pyodide",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="With --html: let the page answer questions. FILE is Pyodide's package, as `npm pack` writes it.",
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
    pyodide: Path | None,
    format_: str,
) -> None:
    """Show the matrix with its predictions and measured verdicts, or write it as a web page."""
    if directory is not None and (output is not None or format_ != "terminal"):
        raise click.UsageError("--html can't be combined with --output or --format")
    if directory is None and certificate_files:
        raise click.UsageError("--certificates has no effect without --html")
    if directory is None and pyodide is not None:
        raise click.UsageError("--answers has no effect without --html")
    if output is not None and format_ == "terminal":
        raise click.UsageError("--output needs --format markdown or --format json")
    from ..matrix.load import DEFAULT_PROFILE
    from .planning import load_plan

    # Report wrong input before reading anything else.
    load_plan(matrix_path, profile, selectors)
    with open_store(matrix_path, store_url) as store:
        measurements = gather(store.all(), now_utc()) if directory is not None else None
        latest = store.latest() if measurements is None else measurements.latest
        wrong = [entry for entry in store.entries() if credible_time(entry.finished, now_utc()) is None]
        if wrong:
            print_status(
                f"{counted(len(wrong), 'record')} left out, because of a finish time that can't be right:"
                " see `records list`"
            )
        plan = load_plan(matrix_path, profile, selectors, _measured_python(latest))
        rows = overview(plan.cells, latest)
        if directory is not None and measurements is not None:
            from ..reports.page.answers import make_answers
            from ..reports.page.site import MARK, Sources

            sources = Sources(
                rows=rows,
                measurements=measurements,
                profile=profile or DEFAULT_PROFILE,
                certificates=_certificates(certificate_files),
                diagnose=_diagnose,
                registry=registry,
                fetch=store.fetch,
                answers=make_answers(pyodide, MARK) if pyodide else None,
                wheels=_locked_wheels(matrix_path),
            )
            _write_page(directory, sources)
    if format_ == "terminal" and directory is None:
        from ..reports.terminal import overview_text, show

        show(overview_text(rows))
    elif directory is None:
        title = f"TensorFlow on GPUs: profile {profile or DEFAULT_PROFILE}"
        as_json = [row.as_json() for row in rows]
        text = markdown(rows, title) if format_ == "markdown" else json_text(as_json) + "\n"
        if output is None:
            click.echo(text, nl=False)
        else:
            write_atomically(output, text.encode())
            print_status(f"Wrote {output}")
    contradicted = [row.cell for row in rows if row.agrees is False]
    if contradicted:
        cells = counted(len(contradicted), "cell")
        print_status(f"{cells} with a prediction that the measurement contradicts: {', '.join(contradicted)}")


def _measured_python(latest: Mapping[str, Record]) -> Callable[[str], str | None]:
    """Return the function that chooses the measured Python for a profile that needs only one of several."""
    measured = {record.image for record in latest.values()}

    def available(python: str) -> str | None:
        ending = python_label(python)
        return "records" if any(ending in image.split("-") for image in measured) else None

    return available


def _locked_wheels(matrix_path: Path) -> Callable[[ImageSpec], Mapping[str, str]]:
    """Return the function that reads the wheels of an image's lock; a wrong lock has none."""
    from .planning import locks_of

    locks = locks_of(matrix_path)

    def wheels(image: ImageSpec) -> Mapping[str, str]:
        try:
            lock = locks.read(image.identifier)
        except InputError:
            return {}
        return {wheel.name: wheel.version for wheel in lock.wheels} if lock else {}

    return wheels


def _write_page(directory: Path, sources: Sources) -> None:
    """Write the page, or update an existing one."""
    from ..reports.page.site import ENTRY, FOLDERS, MARK, site

    done = update_directory(directory, site(sources), entry=ENTRY, mark=MARK.encode(), folders=FOLDERS)
    print_status(
        f"Wrote {directory / ENTRY}"
        f" ({counted(done.written, 'file')} written, {done.unchanged} unchanged, {done.removed} removed)"
    )


def _certificates(files: Sequence[Path]) -> dict[str, list[Certificate]]:
    """Return the certificates by image digest, newest measurement first. `verify` has verified them."""
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
            f"{path}: not a file with certificates ({error})",
            hint="write it with `python -m validator verify --format json`",
        ) from error


def _diagnose(record: Record) -> Diagnosis | None:
    if record.verdict in (Verdict.CERTIFIED, Verdict.WORKS_ON_CPU):
        return None
    from ..diagnosis import diagnose_report

    try:
        report = record.read_report()
    except ReportError:
        # The page shows the record's checks without a diagnosis.
        return None
    return diagnose_report(report) if report else None
