"""`doctor`: find out why TensorFlow does not use the GPU."""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import click

from ..errors import EXIT_FAILED, EXIT_OK, InputError
from ..reports.printable import json_text
from .options import depth_option, format_option, reject_options, verbose_option
from .staleness import say_if_stale

if TYPE_CHECKING:
    from ..model.diagnosis import Diagnosis
    from ..model.report import Report

_SOURCES = ("a log", "--report", "--image", "--python")
#: How many bytes at each end of a text are searched for names, in addition to the lines that are shown. This
#: takes a second or two.
_NAMES_LIMIT = 1 << 20
_FILE = click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path)


@click.command("doctor")
@click.argument("log_path", metavar="[LOG]", type=_FILE, required=False)
@click.option(
    "--report", "report_path", type=_FILE, help="Read a report of the probe from this file, or - for stdin."
)
@click.option("--image", metavar="NAME", help="Run the probe in this Docker image.")
@click.option(
    "--python",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Run the probe with this Python, the one you train with.  [default: the one that runs this]",
)
@depth_option
@click.option(
    "--save-report",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Save the probe's report in this file.",
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
    """Name the cause when TensorFlow does not use the GPU, with the evidence and how to fix it.

    Runs the probe in this environment, in an image or with another Python; or reads a report, also from LOG
    if its name ends with .json; or reads pasted text from the file LOG, or from stdin if that is -: log
    lines, a traceback, nvidia-smi, pip list, errors of docker run, in any mixture. The format markdown is for
    issue trackers: it leaves out names of people and machines. The exit code is 1 if a cause was found, or a
    fault that matches no known cause.
    """
    given = [
        name
        for name, value in zip(_SOURCES, (log_path, report_path, image, python), strict=True)
        if value is not None
    ]
    if len(given) > 1:
        raise click.UsageError(f"{' and '.join(given)} can't be combined")
    if log_path or report_path:
        reject_options(("depth", "save_report"), "has an effect only when the probe runs")
    if log_path and _is_report(log_path):
        log_path, report_path = None, log_path
    if log_path:
        diagnosis, read = _diagnose_log(log_path)
    else:
        report = _read_report(report_path) if report_path else _run_probe(image, python, depth, save_report)
        diagnosis, read = _diagnose_report(report, image), json.dumps(report.raw, indent=0)
    if format_ == "text":
        _show(diagnosis)
    else:
        click.echo(_rendered(diagnosis, format_, read), nl=False)
    say_if_stale()
    return EXIT_FAILED if diagnosis.causes or diagnosis.unknown else EXIT_OK


class _RememberingStream:
    """A stream that remembers the first and the last part of what was read from it."""

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
        # Without its zeros, Latin text in UTF-16 is plain text.
        return (self._first + b"\n" + self._last).replace(b"\0", b"").decode("utf-8", errors="replace")


def _diagnose_log(path: Path) -> tuple[Diagnosis, str]:
    """Return the diagnosis, and the part of the text in which names are looked for."""
    from ..diagnosis import diagnose_file

    with click.open_file(str(path), "rb") as stream:
        remembering = _RememberingStream(cast("BinaryIO", stream))
        try:
            return diagnose_file(cast("BinaryIO", remembering), _name(path)), remembering.text()
        except OSError as error:
            raise InputError(f"{_name(path)} can't be read: {error.strerror}") from error


def _diagnose_report(report: Report, image: str | None) -> Diagnosis:
    from ..diagnosis import diagnose_report

    return diagnose_report(report, image or "")


def _is_report(path: Path) -> bool:
    """Return whether a file is a report by its name and its content, so that it needs no `--report`."""
    from ..model import codec

    if path.suffix != ".json" or path.stat().st_size > codec.LARGEST:
        return False
    try:
        document = codec.parse(path.read_bytes())
    except (codec.DocumentError, OSError):
        return False
    return isinstance(document, dict) and {"format", "probe", "checks"} <= document.keys()


def _read_report(path: Path) -> Report:
    from ..diagnosis.text import refuse_compressed
    from ..model.codec import LARGEST
    from ..model.report import ReportError, read_report

    name = _name(path)
    with click.open_file(str(path), "rb") as stream:
        content = stream.read(LARGEST + 1)
    refuse_compressed(content, name)
    try:
        return read_report(content)
    except ReportError as error:
        raise InputError(
            f"{name} is not a report that can be read: {error}",
            hint="leave --report out for text that TensorFlow printed; `check --json` writes a report",
        ) from error


def _name(path: Path) -> str:
    return "stdin" if str(path) == "-" else str(path)


def _run_probe(image: str | None, python: Path | None, depth: str, save_report: Path | None) -> Report:
    from .probing import probe

    report = probe(image, python, depth).report
    if save_report:
        from ..system.files import write_atomically

        write_atomically(save_report, json.dumps(report.raw, indent=1).encode() + b"\n")
    return report


def _show(diagnosis: Diagnosis) -> None:
    from ..diagnosis.next_step import ANYWHERE
    from ..reports.diagnosis import text
    from .program import as_started, program

    # Other formats may be read on another machine.
    diagnosis = replace(diagnosis, next_command=diagnosis.next_command.replace(ANYWHERE, program()))

    terminal = sys.stdout.isatty()
    plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    columns = shutil.get_terminal_size().columns if terminal else None
    click.echo(as_started(text(diagnosis, columns)), nl=False, color=terminal and not plain)


def _rendered(diagnosis: Diagnosis, format_: str, read: str) -> str:
    """Return the diagnosis as JSON or Markdown.

    read: what the diagnosis was made from. It reveals names that the shown lines do not.
    """
    if format_ == "json":
        from ..model.codec import encode

        return json_text(encode(diagnosis)) + "\n"
    from ..redaction.redact import names_in
    from ..reports.issue import markdown

    return markdown(diagnosis, names_in(read))
