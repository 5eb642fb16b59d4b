"""Define the page's options, gather what it is made from, and write it: for `report --html` and `serve`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import InputError, MissingError
from ..model.certificate import Certificate, read_verification
from ..model.codec import DocumentError
from ..model.diagnosis import Diagnosis
from ..model.record import Record, Verdict
from ..model.report import ReportError
from ..model.spec import ImageSpec, python_label
from ..reports.overview import Row
from ..reports.page.measurements import Measurements
from ..system.output_directory import Changes, update_directory
from .options import F, print_status

if TYPE_CHECKING:
    from ..records.store import Store
    from ..reports.page.site import Sources


@dataclass(frozen=True)
class PageOptions:
    """The options of a page; see the options of `report`. pyodide: the file of `pyodide_of`."""

    matrix_path: Path
    profile: str | None
    registry: str | None
    certificate_files: tuple[Path, ...]
    pyodide: Path | None


#: The values of --answers that are not a file: let npm download the pinned version, or answer nothing.
NPM, NONE = "npm", "none"


def page_options(*, answers: str, only_with: str = "") -> Callable[[F], F]:
    """Add `--registry`, `--certificates` and `--answers`.

    answers: the default of `--answers`. only_with: the option without which these have no effect.
    """

    def described(text: str) -> str:
        return f"With {only_with}: {text}" if only_with else f"{text[:1].upper()}{text[1:]}"

    options = (
        click.option(
            "--registry",
            envvar="VALIDATOR_REGISTRY",
            metavar="REGISTRY/NAME",
            help=described("the repository to pull the images from."),
        ),
        click.option(
            "--certificates",
            "certificate_files",
            multiple=True,
            type=click.Path(path_type=Path),
            metavar="FILE",
            help=described("certificates, as written by `verify --format json`; repeatable."),
        ),
        click.option(
            "--answers",
            metavar="npm|none|FILE",
            default=answers,
            show_default=True,
            help=described(
                "let the page answer questions. npm: download Pyodide, which answers them, once; FILE: use"
                " what `npm pack` wrote; none: don't answer."
            ),
        ),
    )

    def decorate(function: F) -> F:
        decorated = function
        for option in reversed(options):
            decorated = option(decorated)
        return decorated

    return decorate


def pyodide_of(answers: str) -> Path | None:
    """Return the package of Pyodide that --answers asks for, or None.

    If npm can't provide it, say so and return None: the page shows all the rest.
    """
    if answers == NONE:
        return None
    if answers != NPM:
        return Path(answers)
    from ..reports.page.answers import pinned
    from ..supply.npm import pyodide_package

    pin = pinned()
    print_status(f"Pyodide {pin.version} answers the questions: npm downloads it if it is not in the cache.")
    try:
        return pyodide_package(pin.version, pin.integrity)
    except MissingError as error:
        print_status(f"The page can't answer questions: {error}. To change that, {error.hint}.")
        return None


def page_sources(
    asked: PageOptions, rows: Sequence[Row], measurements: Measurements, store: Store, live: str | None = None
) -> Sources:
    """Return what the page is made from. live: the version of a page that is served; see `Sources`.

    The store must be open until the page is written.
    """
    from ..matrix.load import DEFAULT_PROFILE
    from ..reports.page.answers import make_answers
    from ..reports.page.site import MARK, Sources

    return Sources(
        rows=rows,
        measurements=measurements,
        profile=asked.profile or DEFAULT_PROFILE,
        certificates=_certificates(asked.certificate_files),
        diagnose=_diagnose,
        registry=asked.registry,
        fetch=store.fetch,
        answers=make_answers(asked.pyodide, MARK) if asked.pyodide else None,
        wheels=_locked_wheels(asked.matrix_path),
        live=live,
    )


def write_page(directory: Path, sources: Sources) -> Changes:
    """Write the page, or update an existing one."""
    from ..reports.page.site import ENTRY, FOLDERS, MARK, site

    return update_directory(directory, site(sources), entry=ENTRY, mark=MARK.encode(), folders=FOLDERS)


def measured_python(latest: Mapping[str, Record]) -> Callable[[str], str | None]:
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
