"""`doctor`: name the cause."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import click

from ..errors import EXIT_FAILED, EXIT_OK, InputError
from .options import depth_option, format_option, refuse, verbose_option

if TYPE_CHECKING:
    from ..model.diagnosis import Diagnosis
    from ..model.report import Report

_SOURCES = ("--log", "--report", "--image", "--python")
#: Bytes at each end of a text in which names are looked for, besides the lines that are shown. It takes a
#: second or two.
_NAMES_LIMIT = 1 << 20
_FILE = click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path)


@click.command("doctor")
@click.option("--log", "log_path", type=_FILE, help="Read a pasted text from this file, or - for stdin.")
@click.option("--report", "report_path", type=_FILE, help="Read a probe's report, or - for stdin.")
@click.option("--image", metavar="NAME", help="Run the probe in this Docker image.")
@click.option(
    "--python",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Run the probe with this Python: the one that trains.  [default: the one that runs this]",
)
@depth_option
@click.option(
    "--save-report",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Keep the probe's report in this file.",
)
@format_option("text", "json", "markdown", short=("json", "markdown"))
@verbose_option
def command(
    log_path: Path | None,
    report_path: Path | None,
    image: str | None,
    python: Path | None,
    depth: str,
    save_report: Path | None,
    format_: str,
) -> int:
    """Name the cause when TensorFlow does not use the GPU, with what proves it and what mends it.

    Runs the probe in this very environment, in an image or with another Python; or reads a report; or reads
    text that was pasted: log lines, a traceback, nvidia-smi, pip list, errors of docker run, in any mixture.
    The format markdown is for an issue tracker: without names of people and machines. The exit code is 1 when
    a cause was named, or a fault was seen that fits none.
    """
    given = [
        name
        for name, value in zip(_SOURCES, (log_path, report_path, image, python), strict=True)
        if value is not None
    ]
    if len(given) > 1:
        raise click.UsageError(f"{' and '.join(given)} exclude each other")
    if log_path or report_path:
        refuse(("depth", "save_report"), "goes with a run of the probe")
    if log_path:
        diagnosis, read = _of_log(log_path)
    else:
        report = _read_report(report_path) if report_path else _probed(image, python, depth, save_report)
        diagnosis, read = _of_report(report), json.dumps(report.raw, indent=0)
    if format_ == "text":
        _show(diagnosis)
    else:
        click.echo(_rendered(diagnosis, format_, read), nl=False)
    return EXIT_FAILED if diagnosis.causes or diagnosis.unknown else EXIT_OK


class _Kept:
    """A stream that remembers the first and the last of what was read from it."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._first = self._last = b""

    def read(self, size: int = -1) -> bytes:
        piece = self._stream.read(size)
        room = _NAMES_LIMIT - len(self._first)
        self._first += piece[:room]
        self._last = (self._last + piece[room:])[-_NAMES_LIMIT:]
        return piece

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def text(self) -> str:
        # Without the zeros, Latin text in UTF-16 is itself.
        return (self._first + b"\n" + self._last).replace(b"\0", b"").decode("utf-8", errors="replace")


def _of_log(path: Path) -> tuple[Diagnosis, str]:
    """The diagnosis, and the text itself as far as names are looked for in it."""
    from ..diagnosis import diagnose_file

    with click.open_file(str(path), "rb") as stream:
        kept = _Kept(cast("BinaryIO", stream))
        try:
            return diagnose_file(cast("BinaryIO", kept), _named(path)), kept.text()
        except OSError as error:
            raise InputError(f"{_named(path)} can't be read: {error.strerror}") from error


def _of_report(report: Report) -> Diagnosis:
    from ..diagnosis import diagnose_report

    return diagnose_report(report)


def _read_report(path: Path) -> Report:
    from ..diagnosis.text import refuse_packed
    from ..model.codec import LARGEST
    from ..model.report import ReportError, read_report

    name = _named(path)
    with click.open_file(str(path), "rb") as stream:
        content = stream.read(LARGEST + 1)
    refuse_packed(content, name)
    try:
        return read_report(content)
    except ReportError as error:
        raise InputError(
            f"{name} is not a report that can be read: {error}",
            hint="text that TensorFlow printed goes to --log; `check --json` makes a report",
        ) from error


def _named(path: Path) -> str:
    return "stdin" if str(path) == "-" else str(path)


def _probed(image: str | None, python: Path | None, depth: str, save_report: Path | None) -> Report:
    from .probing import probe

    report = probe(image, python, depth)
    if save_report:
        from ..system.files import write_atomically

        write_atomically(save_report, json.dumps(report.raw, indent=1).encode() + b"\n")
    return report


def _show(diagnosis: Diagnosis) -> None:
    import shutil

    from ..reports.diagnosis import text

    terminal = sys.stdout.isatty()
    plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    columns = shutil.get_terminal_size().columns if terminal else None
    click.echo(text(diagnosis, columns), nl=False, color=terminal and not plain)


def _rendered(diagnosis: Diagnosis, format_: str, read: str) -> str:
    """read: what the diagnosis was made from. It gives away names that its own lines would not."""
    if format_ == "json":
        from ..model.codec import encode

        return json.dumps(encode(diagnosis), indent=2) + "\n"
    from ..redaction.redact import names_in
    from ..reports.issue import markdown

    return markdown(diagnosis, names_in(read))
