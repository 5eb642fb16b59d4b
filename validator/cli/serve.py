"""`serve`: show the page on this machine, with the progress of what runs."""

from __future__ import annotations

import hashlib
from pathlib import Path

import click

from ..errors import EXIT_OK
from ..model.timestamps import now_utc
from ..reports.overview import overview
from ..reports.page.measurements import gather
from ..serve.events import Events
from .options import (
    matrix_option,
    open_store,
    print_status,
    profile_option,
    progress_directory,
    select_option,
    store_option,
    store_url_for,
    verbose_option,
)
from .page import NPM, PageOptions, measured_python, page_options, page_sources, pyodide_of, write_page

#: IANA has not registered this port for another program, and no browser blocks it.
_PORT = 8642


@click.command("serve")
@matrix_option
@profile_option
@select_option
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
def command(
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
    from ..pipeline.progress_file import read_progress
    from ..serve.server import PageServer
    from ..serve.watch import Watch
    from ..system.runs import temporary_directory
    from .planning import load_plan, refuse_wrong_selection

    # Report wrong input before reading anything else.
    refuse_wrong_selection(matrix_path, profile, selectors)
    asked = PageOptions(matrix_path, profile, registry, certificate_files, pyodide_of(answers))
    progress = progress_directory(matrix_path)
    records = _Records(matrix_path, store_url)
    events = Events()
    with temporary_directory("serve") as directory, PageServer(directory, events, host, port) as server:

        def update(version: str) -> None:
            with open_store(matrix_path, store_url) as store:
                measurements = gather(store.all(), now_utc())
                latest = measurements.latest
                plan = load_plan(matrix_path, profile, selectors, measured_python(latest), latest.values())
                rows = overview(plan.cells, latest)
                write_page(directory, page_sources(asked, rows, measurements, store, version))

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
        return tuple(_state(Path(f"{url}{suffix}")) for suffix in ("", "-wal", "-journal"))


def _state(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size
