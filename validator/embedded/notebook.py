"""`%gpu_doctor`: say in a notebook why TensorFlow doesn't use the GPU.

Three things are read: the TensorFlow of this kernel, as far as it already knows its GPUs; a run of the probe
in a child process, with the variables that this process has now; and the notebook itself: the cells that were
run, what they printed to stderr since the extension was loaded, and their exceptions.

The notebook's file is not read, because a kernel doesn't know it for certain. `JPY_SESSION_NAME` has the path
under which the session began, which may be that of a renamed file or no path at all (jupyter_server pull
request 679 and issue 1059). And the file has what was saved last, maybe by another kernel. `--log FILE` reads
a file.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_cell_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring

from ..diagnosis import diagnose_file, diagnose_log
from ..errors import InputError, ValidatorError
from ..model.diagnosis import Cause, Diagnosis
from ..redaction.redact import names_in
from ..reports.cell import cell_html, cell_text
from ..reports.shareable import shareable
from .examine import CHECKS, examine, shareable_diagnosis
from .kernel_log import KernelLog
from .kernel_state import KernelState, kernel_state

_MAGIC = "gpu_doctor"
#: Characters of a traceback that are kept: its end names the exception.
_TRACEBACK = 20_000
#: Bytes at the beginning and at the end of a file that are searched for names.
_NAMES = 1 << 20
#: IPython keeps the quotes of an argument.
_QUOTED = re.compile(r"""^(["'])(.*)\1$""")
_NEXT = "fix the first cause, restart the kernel, then run `%gpu_doctor` again"


class Answer:
    """The answer, which a notebook shows as HTML and a terminal as text.

    headline: whether the GPU is used, in a sentence; empty for a text from elsewhere. notes: more sentences.
    """

    def __init__(self, headline: str, notes: tuple[str, ...], diagnosis: Diagnosis) -> None:
        self.headline, self.notes, self.diagnosis = headline, notes, diagnosis

    def __repr__(self) -> str:
        return cell_text(self.headline, self.notes, self.diagnosis).rstrip("\n")

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        html = cell_html(self.headline, self.notes, self.diagnosis)
        return {"text/plain": repr(self), "text/html": html}


@magics_class
class GpuDoctor(Magics):
    """The magic, with the log of its shell."""

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell)
        self._shell = shell
        self._log = KernelLog()
        self._log_starts_late = kernel_state().tensorflow is not None

    def start(self) -> None:
        """Begin to listen to the shell."""
        self._shell.events.register("pre_run_cell", self._begin)
        self._shell.events.register("post_run_cell", self._end)
        # Without a stderr, there is no log of TensorFlow either.
        try:
            self._log.start()
        except OSError:
            return

    def stop(self) -> None:
        """Leave the shell as it was."""
        self._shell.events.unregister("pre_run_cell", self._begin)
        self._shell.events.unregister("post_run_cell", self._end)
        for kind in ("line", "cell"):
            self._shell.magics_manager.magics[kind].pop(_MAGIC, None)
        self._log.stop()

    @magic_arguments()  # type: ignore[untyped-decorator]
    @argument("--log", metavar="FILE", help="Read this log or notebook instead of this kernel.")  # type: ignore[untyped-decorator]
    @line_cell_magic
    def gpu_doctor(self, line: str, cell: str | None = None) -> Answer:
        """Say why TensorFlow doesn't use the GPU, with the evidence and how to fix it.

        Without anything else, it looks at this kernel and its environment. As a cell magic, it reads the text
        of the cell: log lines, a traceback, nvidia-smi, pip list, in any mixture.
        """
        log = parse_argstring(self.gpu_doctor, line).log
        if log is not None and cell is not None:
            raise UsageError(f"%%{_MAGIC} reads the cell, and --log a file: use one of them.")
        try:
            if cell is not None:
                return Answer("", (), shareable(diagnose_log(cell), names_in(cell)))
            return self._of_kernel() if log is None else _of_file(Path(_QUOTED.sub(r"\2", log)).expanduser())
        except ValidatorError as error:
            raise UsageError(" ".join(filter(None, (f"{error}.", error.hint)))) from error

    def _begin(self, info: Any) -> None:
        self._log.begin()

    def _end(self, result: Any) -> None:
        error = result.error_before_exec or result.error_in_exec
        if error is not None and not isinstance(error, UsageError):
            lines = traceback.format_exception(type(error), error, error.__traceback__)
            self._log.add("".join(lines)[-_TRACEBACK:])
        self._log.end(result.execution_count)

    def _of_kernel(self) -> Answer:
        state = kernel_state()
        # A kernel that uses the GPU may hold all of its memory.
        checks = tuple(name for name in CHECKS if not (state.used and name == "gpu_compute"))
        examined = examine(checks)
        found = shareable_diagnosis(examined)
        notes = [state.sentence]
        document = self._notebook()
        if document is not None:
            found = _with_log(found, shareable(diagnose_log(document), names_in(document)))
        if self._log_starts_late:
            notes.append(
                "TensorFlow was imported before `%load_ext validator`, so what it printed until then was not"
                " read. A child process has imported it again."
            )
        if found.causes:
            found = dataclasses.replace(found, next_step=_NEXT, next_command="")
        return Answer(_headline(state, examined.has_gpu), tuple(notes), found)

    def _notebook(self) -> str | None:
        """Return the cells that were run with what they printed; None if none printed anything.

        The number of a cell is that of its execution, which the notebook shows next to it.
        """
        history = getattr(self._shell.history_manager, "input_hist_raw", [""])
        outputs = self._log.outputs(len(history) - 1)
        if not outputs:
            return None
        cells = [_cell(source, outputs.get(number, "")) for number, source in enumerate(history[1:], start=1)]
        return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


def load(shell: InteractiveShell) -> None:
    """Add the magic to a shell."""
    magics = GpuDoctor(shell)
    shell.register_magics(magics)
    magics.start()


def unload(shell: InteractiveShell) -> None:
    """Take the magic out of a shell."""
    magics = shell.magics_manager.registry.pop(GpuDoctor.__name__, None)
    if magics is not None:
        magics.stop()


def _headline(state: KernelState, child_has_gpu: bool) -> str:
    if state.used:
        return "TensorFlow sees the GPU in this kernel."
    if not child_has_gpu:
        return "TensorFlow doesn't use a GPU."
    if state.listed is None:
        return "TensorFlow uses the GPU, as far as a new process with the settings of this kernel shows."
    if state.listed:
        return "This notebook has told TensorFlow not to use the GPU, with tf.config.set_visible_devices."
    return (
        "A new process with the settings of this kernel uses the GPU, but this kernel doesn't, because its"
        " TensorFlow looked for GPUs under other settings: restart the kernel."
    )


def _with_log(found: Diagnosis, log: Diagnosis) -> Diagnosis:
    """Add what the notebook's log shows to the diagnosis of its environment."""
    by_code = {cause.code: cause for cause in log.causes if _is_shown(cause)}
    causes = tuple(
        dataclasses.replace(cause, evidence=(*cause.evidence, *by_code[cause.code].evidence))
        if cause.code in by_code
        else cause
        for cause in found.causes
    )
    known = {code for cause in found.causes for code in (cause.code, *cause.explains)}
    more = tuple(cause for code, cause in by_code.items() if code not in known)
    harmless = {entry.code: entry for entry in (*log.harmless, *found.harmless)}
    return dataclasses.replace(
        found,
        causes=causes + more,
        unknown=(*found.unknown, *log.unknown),
        harmless=tuple(harmless.values()),
        read=f"{found.read}, and {log.read}",
    )


def _is_shown(cause: Cause) -> bool:
    """Return whether a cause is more than a guess from the words in the code of a cell."""
    return cause.strength != "possible" or any("output line" in entry.where for entry in cause.evidence)


def _cell(source: str, printed: str) -> Mapping[str, Any]:
    """Return a cell without the lines of this magic: pasted text is from elsewhere."""
    if source.startswith(f"%%{_MAGIC}"):
        source = printed = ""
    source = "\n".join(line for line in source.splitlines() if f"%{_MAGIC}" not in line)
    printed = "".join(line for line in printed.splitlines(keepends=True) if not line.startswith("UsageError"))
    outputs = [{"output_type": "stream", "name": "stderr", "text": printed}] if printed else []
    return {"cell_type": "code", "source": source, "outputs": outputs}


def _of_file(path: Path) -> Answer:
    try:
        with path.open("rb") as stream:
            diagnosis = diagnose_file(stream, str(path))
            # The lines that are shown may hold names that only other lines give away.
            size = stream.seek(0, os.SEEK_END)
            ends = []
            for start in (0, max(_NAMES, size - _NAMES)):
                stream.seek(start)
                ends.append(stream.read(_NAMES))
    except OSError as error:
        raise InputError(f"{path} can't be read: {error.strerror}") from error
    # Without its zeros, Latin text in UTF-16 is plain text.
    text = b"\n".join(ends).replace(b"\0", b"").decode("utf-8", errors="replace")
    return Answer("", (), shareable(diagnosis, names_in(text)))
