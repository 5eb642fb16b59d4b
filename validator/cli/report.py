"""Show what was predicted and measured: `report`, as a page (`serve`), to assistants (`mcp`), as `data`."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import signal
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import EXIT_INTERRUPTED, InputError, MissingError
from ..model.codec import DocumentError, RunProgress, now_utc
from ..model.diagnosis import Diagnosis
from ..model.record import Certificate, Record, Verdict, read_verification
from ..model.spec import ImageSpec, python_label
from ..records.history import credible_time
from ..registry.names import Repository
from ..reports.overview import Row, markdown, overview
from ..reports.page.measurements import gather
from ..reports.printable import counted, json_text
from ..resources import install_hint
from ..serve import Events
from ..system.output_directory import update_directory
from . import Command, SuggestingGroup, options
from .options import Project, argument, flag, option, print_status

if TYPE_CHECKING:
    from mcp.server import MCPServer

    from ..records.store import Store


# Define the page's options, and make its files: for `report --html` and `serve`.


#: The values of --answers that are not a file: let npm download the pinned version, or answer nothing.
NPM, NONE = "npm", "none"


@dataclass(frozen=True)
class PageOptions:
    """What the options of `page_options` say."""

    registry: str | None
    certificate_files: tuple[Path, ...]
    answers: str


def page_options(*, answers: str, only_with: str = "") -> Any:
    """Return `PageOptions` of `--registry`, `--certificates` and `--answers`.

    answers: the default of `--answers`. only_with: the option without which these have no effect.
    """

    def described(usage: str, text: str) -> str:
        return f"{usage}  With {only_with}: {text}" if only_with else f"{usage}  {text[:1].upper()}{text[1:]}"

    return options.gathered(
        PageOptions,
        option(
            described("--registry REGISTRY/NAME", "the repository to pull the images from."),
            env="VALIDATOR_REGISTRY",
        ),
        option(
            described(
                "--certificates FILE...", "certificates, as written by `verify --format json`; repeatable."
            ),
            "certificate_files",
        ),
        option(
            described(
                "--answers npm|none|FILE",
                "let the page answer questions. npm: download Pyodide, which answers them, once; FILE: use"
                " what `npm pack` wrote; none: don't answer.",
            ),
            default=answers,
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
    from ..system.package_sources import pyodide_package

    pin = pinned()
    print_status(f"Pyodide {pin.version} answers the questions: npm downloads it if it is not in the cache.")
    try:
        return pyodide_package(pin.version, pin.integrity)
    except MissingError as error:
        _say_unanswered(error)
        return None


def _say_unanswered(error: MissingError) -> None:
    print_status(f"The page can't answer questions: {error}. To change that, {error.hint}.")


def make_page(
    store: Store, project: Project, page: PageOptions, pyodide: Path | None, live: str | None = None
) -> tuple[list[Row], Iterator[tuple[str, bytes]]]:
    """Return the rows of the page's overview, and its files, see `site`.

    store: must stay open until all files are read. pyodide: of `pyodide_of`. live: see `Sources`.
    """
    from ..reports.page.answers import make_answers, read_table
    from ..reports.page.site import MARK, Sources, site
    from ..system.package_sources import run_by_node
    from .planning import locks_of
    from .records import diagnosis_of

    locks = locks_of(project.matrix_path)
    registry = str(Repository.parse(page.registry)) if page.registry else None

    def wheels(image: ImageSpec) -> Mapping[str, str]:
        try:
            lock = locks.read(image.identifier)
        except InputError:
            # The page shows all the rest.
            return {}
        return {wheel.name: wheel.version for wheel in lock.wheels} if lock else {}

    def diagnose(record: Record) -> Diagnosis | None:
        good = record.verdict in (Verdict.CERTIFIED, Verdict.WORKS_ON_CPU)
        return None if good else diagnosis_of(record)

    answers = None
    try:
        answers = make_answers(pyodide, MARK, read_table(), run_by_node) if pyodide else None
    except MissingError as error:
        _say_unanswered(error)
    measurements = gather(store.all(), now_utc())
    rows = measured_rows(project, measurements.latest)
    sources = Sources(
        rows=rows, measurements=measurements, profile=project.profile_name, diagnose=diagnose,
        certificates=_certificates(page.certificate_files), registry=registry, fetch=store.fetch,
        answers=answers, wheels=wheels, live=live,
    )  # fmt: skip
    return rows, site(sources)


def measured_rows(project: Project, latest: Mapping[str, Record]) -> list[Row]:
    """Return the rows of the overview. A profile that needs one of several Pythons takes the measured one."""
    from .planning import load_plan

    measured = {record.image for record in latest.values()}

    def available(python: str) -> str | None:
        ending = python_label(python)
        return "records" if any(ending in image.split("-") for image in measured) else None

    plan = load_plan(*project.cells, available, latest.values())
    return overview(plan.cells, latest)


def _certificates(files: Sequence[Path]) -> dict[str, list[Certificate]]:
    """Return the certificates by image digest, newest measurement first. `verify` has verified them."""
    by_digest: dict[str, list[Certificate]] = {}
    for path in files:
        try:
            certificates = read_verification(options.read_input(path)).certificates
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


@click.command("report", cls=Command)
def report_command(
    project: Project = options.project("cells store"),
    output: Path | None = option(
        "--output  Write Markdown or JSON to this file instead of stdout.", type=options.OUTPUT
    ),
    directory: Path | None = option(
        "--html DIR  Write a static web page to this directory, with badges and a Markdown table.",
        type=options.PATH,
    ),
    page: PageOptions = page_options(answers=NONE, only_with="--html"),
    format_: str = options.formats("terminal", "markdown", "json"),
) -> None:
    """Show the matrix with its predictions and measured verdicts, or write it as a web page."""
    if directory is not None and (output is not None or format_ != "terminal"):
        raise click.UsageError("--html can't be combined with --output or --format")
    if directory is None:
        options.reject(("certificate_files", "answers"), "has no effect without --html")
    if output is not None and format_ == "terminal":
        raise click.UsageError("--output needs --format markdown or --format json")
    from .planning import refuse_wrong_selection

    # Report wrong input before reading anything else.
    refuse_wrong_selection(*project.cells)
    with project.open_store() as store:
        wrong = [entry for entry in store.entries() if credible_time(entry.finished, now_utc()) is None]
        if wrong:
            print_status(
                f"{counted(len(wrong), 'record')} left out, because of a finish time that can't be right:"
                " see `records list`"
            )
        if directory is None:
            rows = measured_rows(project, store.latest())
        else:
            from ..reports.page.site import ENTRY, FOLDERS, MARK

            rows, files = make_page(store, project, page, pyodide_of(page.answers))
            done = update_directory(directory, files, entry=ENTRY, mark=MARK.encode(), folders=FOLDERS)
            written = f"{counted(done.written, 'file')} written"
            print_status(
                f"Wrote {directory / 'index.html'}"
                f" ({written}, {done.unchanged} unchanged, {done.removed} removed)"
            )
    if format_ == "terminal" and directory is None:
        from ..reports.terminal import overview_text, show

        show(overview_text(rows))
    elif directory is None:
        title = f"TensorFlow on GPUs: profile {project.profile_name}"
        as_json = [row.as_json() for row in rows]
        text = markdown(rows, title) if format_ == "markdown" else json_text(as_json) + "\n"
        options.write_or_print(text, output)
    contradicted = [row.cell for row in rows if row.agrees is False]
    if contradicted:
        cells = counted(len(contradicted), "cell")
        print_status(f"{cells} with a prediction that the measurement contradicts: {', '.join(contradicted)}")


#: IANA has not registered this port for another program, and no browser blocks it.
_PORT = 8642


@click.command("serve", cls=Command)
def serve_command(
    project: Project = options.project("cells store"),
    host: str = option(
        "--host ADDRESS  The address to listen on. Only this machine can reach 127.0.0.1. Whoever can reach"
        " another address can read the page.",
        default="127.0.0.1",
    ),
    port: int = option(
        "--port  The port to listen on; 0 lets the system choose a free one.",
        type=click.IntRange(0, 65535),
        default=_PORT,
    ),
    page: PageOptions = page_options(answers=NPM),
) -> None:
    """Show the page on this machine, with the progress of a running `build-matrix`, until Ctrl-C.

    It is the page of `report --html`, which is made again when there are new records. The server only reads.
    It shows the runs of `build-matrix` with the same matrix on this machine.
    """
    from ..pipeline.run import read_progress
    from ..serve import PageServer, Watch
    from .planning import refuse_wrong_selection

    # Report wrong input before reading anything else.
    refuse_wrong_selection(*project.cells)
    pyodide, version_of_records, events = pyodide_of(page.answers), _versions(project), Events()
    with PageServer({}, events, host, port) as server:

        def update(version: str) -> None:
            with project.open_store() as store:
                server.show(dict(make_page(store, project, page, pyodide, version)[1]))

        def progress() -> list[RunProgress]:
            return read_progress(project.progress)

        version = version_of_records()
        update(version)
        with Watch(events, version_of_records, update, progress, print_status, version):
            print_status(f"The page is at {server.url} until Ctrl-C.")
            try:
                server.serve_forever()
            except KeyboardInterrupt:
                print_status("Stopped.")


def _versions(project: Project) -> Callable[[], str]:
    """Return a function that returns a digest of the ids of a store's records, and of when each ended.

    It does not read an SQLite file again that did not change.
    """
    known: dict[object, str] = {}

    def version() -> str:
        files = _state_of_files(project.store_file)
        if files is None or files not in known:
            with project.open_store() as store:
                entries = sorted((entry.id, entry.finished) for entry in store.entries())
            known.clear()
            known[files] = hashlib.sha256(repr(entries).encode(errors="replace")).hexdigest()[:20]
        return known[files]

    return version


def _state_of_files(path: Path | None) -> tuple[tuple[int, int], ...] | None:
    """Return the times and sizes of an SQLite file and its log; None for a store that is not a file."""
    if path is None:
        return None
    states = []
    for suffix in ("", "-wal", "-journal"):
        try:
            found = Path(f"{path}{suffix}").stat()
            states.append((found.st_mtime_ns, found.st_size))
        except OSError:
            states.append((0, 0))
    return tuple(states)


#: IANA has not registered this port for another program, and `serve` has another one.
_MCP_PORT = 8643
#: Only this machine reaches this address.
_LOOPBACK = "127.0.0.1"


@click.command("mcp", cls=Command)
def mcp_command(
    http: bool = flag(
        f"--http  Serve streamable HTTP on {_LOOPBACK}, which only programs of this machine can reach."
    ),
    port: int = option(
        "--port  With --http: the port to listen on; 0 lets the system choose a free one.",
        type=click.IntRange(0, 65535),
        default=_MCP_PORT,
    ),
) -> None:
    """Answer the questions of assistants, by the Model Context Protocol.

    An assistant starts this command and talks to it over stdin and stdout: which releases work, whether one
    combination works, why a log shows no GPU, what can't work in a Dockerfile, and what this machine has. The
    server only reads, and uses no network. Only `this_machine` starts other programs: those that `validator`
    without a command starts to look at this machine. It needs the extra mcp.
    """
    if importlib.util.find_spec("mcp") is None:
        raise MissingError("the package mcp is not installed", hint=f"install it: {install_hint('mcp')}")
    from .mcp import server

    if http:
        _serve_http(server(), port)
    else:
        # The thread that waits for the next line of stdin can't be ended otherwise.
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: os._exit(EXIT_INTERRUPTED))
        server().run()


def _serve_http(server: MCPServer, port: int) -> None:
    """Serve until Ctrl-C. Raises MissingError if the port is taken."""
    import uvicorn
    from mcp.server.transport_security import TransportSecuritySettings

    from .mcp import MOST_CHARACTERS

    try:
        listening = socket.create_server((_LOOPBACK, port))
    except OSError as error:
        raise MissingError(
            f"port {port} of {_LOOPBACK}: {os.strerror(error.errno or 0)}",
            hint="choose another with --port, or let the system choose a free one with --port 0",
        ) from error
    with listening:
        port = listening.getsockname()[1]
        hosts = [f"{name}:{port}" for name in (_LOOPBACK, "localhost")]
        # A web page can make its host name resolve to this address, but can't change its Host and Origin.
        security = TransportSecuritySettings(
            allowed_hosts=hosts, allowed_origins=[f"http://{host}" for host in hosts]
        )
        app = server.streamable_http_app(
            stateless_http=True,
            json_response=True,
            # JSON writes a character with up to six bytes.
            max_request_body_size=8 * MOST_CHARACTERS,
            transport_security=security,
        )
        print_status(f"The server is at http://{hosts[0]}/mcp until Ctrl-C.")
        uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])


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
def export_command(
    directory: Path = argument(type=options.PATH),
    project: Project = options.project("cells store"),
    formats: tuple[str, ...] = option(
        "--format LIST  The formats to write, separated by commas.  [default: json,csv,parquet; Parquet"
        " needs pyarrow]",
        callback=_formats,
    ),
    no_redact: bool = flag(
        "--no-redact  Keep names of people and machines, addresses and credentials. Do not publish such an"
        " export."
    ),
) -> None:
    """Write facts, predictions, records and messages to DIRECTORY, with schemas and a description.

    DIRECTORY must be new, be empty, or hold an older export, which the new one replaces when it is complete.
    The same input gives the same bytes.
    """
    from ..dataset.export import export, writable_formats
    from .planning import load_cells

    formats = writable_formats(formats, print_status)
    cells = load_cells(*project.cells)
    with project.open_store() as store:
        # Somebody may add records meanwhile, and they are read several times.
        there = [entry.id for entry in store.entries()]

        def records() -> Iterator[Record]:
            return store.each(there)

        done = export(
            directory, cells, records, formats,
            profile=project.profile_name, selectors=project.selectors, redact=not no_redact,
        )  # fmt: skip
    rows = ", ".join(f"{written.rows} {written.table.name}" for written in done.tables)
    print_status(f"Wrote {directory}: {rows}")
    print_status(f"{counted(len(done.tables), 'table')} as {', '.join(formats)}; data {done.digest}")
