"""`report`: show what was predicted and measured; `serve`: the same as a page; `data`: as tables."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import EXIT_OK, InputError, MissingError
from ..model.codec import DocumentError, now_utc
from ..model.diagnosis import Diagnosis
from ..model.record import Certificate, Record, Verdict, read_verification
from ..model.spec import ImageSpec, python_label
from ..records.history import credible_time
from ..reports.overview import Row, markdown, overview
from ..reports.page.measurements import Measurements, gather
from ..reports.printable import counted, json_text
from ..serve import Events
from ..system.output_directory import Changes, update_directory
from .options import (
    PATH,
    F,
    cell_options,
    flag,
    format_option,
    open_store,
    print_status,
    progress_directory,
    read_input,
    reject_options,
    store_option,
    store_url_for,
    together,
    verbose_option,
    write_or_print,
)
from .program import Command, SuggestingGroup

if TYPE_CHECKING:
    from ..records.store import Store


# Define the page's options, gather what it is made from, and write it: for `report --html` and `serve`.


#: The values of --answers that are not a file: let npm download the pinned version, or answer nothing.
NPM, NONE = "npm", "none"


def page_options(*, answers: str, only_with: str = "") -> Callable[[F], F]:
    """Add `--registry`, `--certificates` and `--answers`.

    answers: the default of `--answers`. only_with: the option without which these have no effect.
    """

    def described(text: str) -> str:
        return f"With {only_with}: {text}" if only_with else f"{text[:1].upper()}{text[1:]}"

    return together(
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
            type=PATH,
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


def pyodide_of(answers: str) -> Path | None:
    """Return the package of Pyodide that --answers asks for, or None.

    If npm can't provide it, say so and return None: the page shows all the rest.
    """
    if answers == NONE:
        return None
    if answers != NPM:
        return Path(answers)
    from ..reports.page.answers import pinned
    from ..supply.python_packages import pyodide_package

    pin = pinned()
    print_status(f"Pyodide {pin.version} answers the questions: npm downloads it if it is not in the cache.")
    try:
        return pyodide_package(pin.version, pin.integrity)
    except MissingError as error:
        _say_unanswered(error)
        return None


def _say_unanswered(error: MissingError) -> None:
    print_status(f"The page can't answer questions: {error}. To change that, {error.hint}.")


def write_page(
    directory: Path,
    store: Store,
    measurements: Measurements,
    rows: Sequence[Row],
    *,
    matrix_path: Path,
    profile: str | None,
    registry: str | None,
    certificate_files: Sequence[Path],
    pyodide: Path | None,
    live: str | None = None,
) -> Changes:
    """Write the page, or update an existing one.

    store: must stay open until the page is written. pyodide: of `pyodide_of`. registry, live: see `Sources`.
    """
    from ..matrix.load import DEFAULT_PROFILE
    from ..reports.page.answers import make_answers, read_table
    from ..reports.page.site import ENTRY, FOLDERS, MARK, Sources, site
    from ..supply.python_packages import run_by_node
    from .planning import locks_of

    locks = locks_of(matrix_path)

    def wheels(image: ImageSpec) -> Mapping[str, str]:
        try:
            lock = locks.read(image.identifier)
        except InputError:
            # The page shows all the rest.
            return {}
        return {wheel.name: wheel.version for wheel in lock.wheels} if lock else {}

    answers = None
    try:
        answers = make_answers(pyodide, MARK, read_table(), run_by_node) if pyodide else None
    except MissingError as error:
        _say_unanswered(error)
    sources = Sources(
        rows=rows,
        measurements=measurements,
        profile=profile or DEFAULT_PROFILE,
        certificates=_certificates(certificate_files),
        diagnose=_diagnose,
        registry=registry,
        fetch=store.fetch,
        answers=answers,
        wheels=wheels,
        live=live,
    )
    return update_directory(directory, site(sources), entry=ENTRY, mark=MARK.encode(), folders=FOLDERS)


def measured_rows(
    matrix_path: Path, profile: str | None, selectors: tuple[str, ...], latest: Mapping[str, Record]
) -> list[Row]:
    """Return the rows of the overview. A profile that needs one of several Pythons takes the measured one."""
    from .planning import load_plan

    measured = {record.image for record in latest.values()}

    def available(python: str) -> str | None:
        ending = python_label(python)
        return "records" if any(ending in image.split("-") for image in measured) else None

    plan = load_plan(matrix_path, profile, selectors, available, latest.values())
    return overview(plan.cells, latest)


def _certificates(files: Sequence[Path]) -> dict[str, list[Certificate]]:
    """Return the certificates by image digest, newest measurement first. `verify` has verified them."""
    by_digest: dict[str, list[Certificate]] = {}
    for path in files:
        try:
            certificates = read_verification(read_input(path)).certificates
        except DocumentError as error:
            raise InputError(
                f"{path}: not a file with certificates ({error})",
                hint="write it with `validator verify --format json`",
            ) from error
        for certificate in certificates:
            known = by_digest.setdefault(certificate.image_digest, [])
            if certificate not in known:
                known.append(certificate)
    for known in by_digest.values():
        known.sort(key=lambda each: (each.measured, each.issued, each.signer), reverse=True)
    return by_digest


def _diagnose(record: Record) -> Diagnosis | None:
    if record.verdict in (Verdict.CERTIFIED, Verdict.WORKS_ON_CPU):
        return None
    from .records import diagnosis_of

    return diagnosis_of(record)


@click.command("report", cls=Command)
@cell_options
@store_option
@click.option("--output", type=PATH, help="Write Markdown or JSON to this file instead of stdout.")
@click.option(
    "--html",
    "directory",
    type=PATH,
    metavar="DIR",
    help="Write a static web page to this directory, with badges and a Markdown table.",
)
@page_options(answers=NONE, only_with="--html")
@format_option("terminal", "markdown", "json")
@verbose_option
def report_command(
    matrix_path: Path,
    profile: str | None,
    selectors: tuple[str, ...],
    store_url: str | None,
    output: Path | None,
    directory: Path | None,
    registry: str | None,
    certificate_files: tuple[Path, ...],
    answers: str,
    format_: str,
) -> None:
    """Show the matrix with its predictions and measured verdicts, or write it as a web page."""
    if directory is not None and (output is not None or format_ != "terminal"):
        raise click.UsageError("--html can't be combined with --output or --format")
    if directory is None:
        reject_options(("certificate_files", "answers"), "has no effect without --html")
    if output is not None and format_ == "terminal":
        raise click.UsageError("--output needs --format markdown or --format json")
    from ..matrix.load import DEFAULT_PROFILE
    from .planning import refuse_wrong_selection

    # Report wrong input before reading anything else.
    refuse_wrong_selection(matrix_path, profile, selectors)
    with open_store(matrix_path, store_url) as store:
        measurements = gather(store.all(), now_utc()) if directory is not None else None
        latest = store.latest() if measurements is None else measurements.latest
        wrong = [entry for entry in store.entries() if credible_time(entry.finished, now_utc()) is None]
        if wrong:
            print_status(
                f"{counted(len(wrong), 'record')} left out, because of a finish time that can't be right:"
                " see `records list`"
            )
        rows = measured_rows(matrix_path, profile, selectors, latest)
        if directory is not None and measurements is not None:
            done = write_page(
                directory, store, measurements, rows,
                matrix_path=matrix_path, profile=profile, registry=registry,
                certificate_files=certificate_files, pyodide=pyodide_of(answers),
            )  # fmt: skip
            written = f"{counted(done.written, 'file')} written"
            print_status(
                f"Wrote {directory / 'index.html'}"
                f" ({written}, {done.unchanged} unchanged, {done.removed} removed)"
            )
    if format_ == "terminal" and directory is None:
        from ..reports.terminal import overview_text, show

        show(overview_text(rows))
    elif directory is None:
        title = f"TensorFlow on GPUs: profile {profile or DEFAULT_PROFILE}"
        as_json = [row.as_json() for row in rows]
        text = markdown(rows, title) if format_ == "markdown" else json_text(as_json) + "\n"
        write_or_print(text, output)
    contradicted = [row.cell for row in rows if row.agrees is False]
    if contradicted:
        cells = counted(len(contradicted), "cell")
        print_status(f"{cells} with a prediction that the measurement contradicts: {', '.join(contradicted)}")


#: IANA has not registered this port for another program, and no browser blocks it.
_PORT = 8642


@click.command("serve", cls=Command)
@cell_options
@store_option
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="The address to listen on. Only this machine can reach 127.0.0.1. Whoever can reach another address"
    " can read the page.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=_PORT,
    show_default=True,
    help="The port to listen on; 0 lets the system choose a free one.",
)
@page_options(answers=NPM)
@verbose_option
def serve_command(
    matrix_path: Path,
    profile: str | None,
    selectors: tuple[str, ...],
    store_url: str | None,
    host: str,
    port: int,
    registry: str | None,
    certificate_files: tuple[Path, ...],
    answers: str,
) -> int:
    """Show the page on this machine, with the progress of a running `build-matrix`, until Ctrl-C.

    The page of `report --html` is written to a temporary directory, and again when there are new records. The
    server only reads. It shows the runs of `build-matrix` with the same matrix on this machine.
    """
    from ..pipeline.run import read_progress
    from ..serve import PageServer, Watch
    from ..system.runs import temporary_directory
    from .planning import refuse_wrong_selection

    # Report wrong input before reading anything else.
    refuse_wrong_selection(matrix_path, profile, selectors)
    write = functools.partial(
        write_page, matrix_path=matrix_path, profile=profile, registry=registry,
        certificate_files=certificate_files, pyodide=pyodide_of(answers),
    )  # fmt: skip
    progress = progress_directory(matrix_path)
    records = _Records(matrix_path, store_url)
    events = Events()
    with temporary_directory("serve") as directory, PageServer(directory, events, host, port) as server:

        def update(version: str) -> None:
            with open_store(matrix_path, store_url) as store:
                measurements = gather(store.all(), now_utc())
                rows = measured_rows(matrix_path, profile, selectors, measurements.latest)
                write(directory, store, measurements, rows, live=version)

        version = records.version()
        update(version)
        with Watch(events, records.version, update, lambda: read_progress(progress), print_status, version):
            print_status(f"The page is at {server.url} until Ctrl-C.")
            try:
                server.serve_forever()
            except KeyboardInterrupt:
                print_status("Stopped.")
    return EXIT_OK


class _Records:
    """The version of a store's records: a digest of their ids, and of when each ended."""

    def __init__(self, matrix_path: Path, store_url: str | None) -> None:
        self._matrix_path, self._store_url = matrix_path, store_url
        self._files = self._state_of_files()
        self._version: str | None = None

    def version(self) -> str:
        """Return the version. An SQLite file that did not change is not read again."""
        files = self._state_of_files()
        if self._version is None or files is None or files != self._files:
            with open_store(self._matrix_path, self._store_url) as store:
                entries = sorted((entry.id, entry.finished) for entry in store.entries())
            self._files = files
            self._version = hashlib.sha256(repr(entries).encode(errors="replace")).hexdigest()[:20]
        return self._version

    def _state_of_files(self) -> tuple[tuple[int, int], ...] | None:
        """Return the times and sizes of an SQLite file and its log; None for a store that is not a file."""
        url = store_url_for(self._matrix_path, self._store_url)
        if "://" in url:
            return None
        states = []
        for suffix in ("", "-wal", "-journal"):
            try:
                found = Path(f"{url}{suffix}").stat()
                states.append((found.st_mtime_ns, found.st_size))
            except OSError:
                states.append((0, 0))
        return tuple(states)


_FORMATS = ("json", "csv", "parquet")


def _formats(_: click.Context, __: click.Parameter, value: str | None) -> tuple[str, ...]:
    """Return the formats that were named, each once, in the order of `_FORMATS`; none if none was named."""
    if value is None:
        return ()
    named = [name.strip() for name in value.split(",")]
    if wrong := [name for name in named if name not in _FORMATS]:
        raise click.BadParameter(
            f"{wrong[0]!r} is not a format: name some of {', '.join(_FORMATS)}, separated by commas"
        )
    return tuple(name for name in _FORMATS if name in named)


@click.group("data", cls=SuggestingGroup)
def data_command() -> None:
    """Write the facts, predictions, records and messages as tables for other programs."""


@data_command.command("export")
@click.argument("directory", type=PATH)
@cell_options
@store_option
@click.option(
    "--format",
    "formats",
    callback=_formats,
    metavar="LIST",
    help="The formats to write, separated by commas.  [default: json,csv,parquet; Parquet needs pyarrow]",
)
@flag(
    "--no-redact",
    help="Keep names of people and machines, addresses and credentials. Do not publish such an export.",
)
@verbose_option
def export_command(
    directory: Path,
    matrix_path: Path,
    profile: str | None,
    selectors: tuple[str, ...],
    store_url: str | None,
    formats: tuple[str, ...],
    no_redact: bool,
) -> None:
    """Write facts, predictions, records and messages to DIRECTORY, with schemas and a description.

    DIRECTORY must be new, be empty, or hold an older export, which the new one replaces when it is complete.
    The same input gives the same bytes.
    """
    from ..dataset.export import export
    from ..dataset.tables import writable_formats
    from ..matrix.load import DEFAULT_PROFILE
    from .planning import load_cells

    formats = writable_formats(formats, print_status)
    cells = load_cells(matrix_path, profile, selectors)
    with open_store(matrix_path, store_url) as store:
        # Somebody may add records meanwhile, and they are read several times.
        there = [entry.id for entry in store.entries()]

        def records() -> Iterator[Record]:
            return store.each(there)

        name = profile or DEFAULT_PROFILE
        done = export(
            directory, cells, records, formats, profile=name, selectors=selectors, redact=not no_redact
        )
    rows = ", ".join(f"{written.rows} {written.table.name}" for written in done.tables)
    print_status(f"Wrote {directory}: {rows}")
    print_status(f"{counted(len(done.tables), 'table')} as {', '.join(formats)}; data {done.digest}")
