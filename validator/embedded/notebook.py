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

import array
import atexit
import contextlib
import dataclasses
import fcntl
import json
import os
import re
import select
import sys
import termios
import threading
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_cell_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring

from ..diagnosis import diagnose_ends, diagnose_log
from ..diagnosis.text import ends_of
from ..errors import InputError, ValidatorError
from ..model.diagnosis import Diagnosis
from ..redaction.redact import names_in
from ..reports.diagnosis import cell_html, cell_text, shareable
from .examine import CHECKS, examine, shareable_diagnosis

_MAGIC = "gpu_doctor"
#: Characters of a traceback that are kept: its end names the exception.
_TRACEBACK = 20_000
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
    by_code = {
        cause.code: cause
        for cause in log.causes
        # A cause that is only possible may be a guess from the words in the code of a cell.
        if cause.strength != "possible" or any("output line" in entry.where for entry in cause.evidence)
    }
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
            ends = ends_of(stream, str(path))
    except OSError as error:
        raise InputError(f"{path} can't be read: {error.strerror}") from error
    return Answer("", (), shareable(diagnose_ends(ends, str(path)), names_in(ends.named())))


# Keep what is printed to stderr while a notebook runs, by cell.
#
# TensorFlow's C++ code writes its log to file descriptor 2 and not to `sys.stderr`. This puts a pipe in
# front of that descriptor, keeps what comes through it, and passes it on to where it went before: a
# terminal, or ipykernel's own pipe, which shows it below the cell. What was printed earlier is not known.


#: Bytes that are kept of a cell's output, at its beginning and at its end.
_HEAD, _TAIL = 64 << 10, 192 << 10
#: How many cells with output are kept: TensorFlow prints most at its import, so the first ones stay.
_FIRST_CELLS, _CELLS = 16, 64
#: A pipe that is full blocks its writer, who may hold the lock that the reader needs. This is the most that
#: an unprivileged process may ask for (pipe(7)).
_PIPE_BYTES = 1 << 20
#: Seconds to wait for what was written but not read yet.
_DRAIN_S = 1.0
_STDERR = 2


class Output:
    """The beginning and the end of a cell's output."""

    def __init__(self) -> None:
        self._head = self._tail = b""
        self._dropped = False

    def add(self, data: bytes) -> None:
        room = _HEAD - len(self._head)
        self._head += data[:room]
        rest = self._tail + data[room:]
        self._dropped = self._dropped or len(rest) > _TAIL
        self._tail = rest[-_TAIL:]

    def __bool__(self) -> bool:
        return bool(self._head)

    def text(self) -> str:
        """Return the text, without the partial line after a gap."""
        last = self._tail.partition(b"\n")[2] if self._dropped else self._tail
        between = b"\n" if self._dropped else b""
        return (self._head + between + last).decode("utf-8", errors="replace")


class KernelLog:
    """The outputs by the number of their cell, which is known for certain only when the cell has ended.

    What is printed between two cells, as by a thread, belongs to the one that ended last.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._outputs: dict[int, Output] = {}
        self._current = Output()
        self._number: int | None = None
        self._process = os.getpid()
        self._reader = self._saved = -1

    def start(self) -> None:
        """Put the pipe in front of stderr. Raises OSError if there is no stderr."""
        self._saved = os.dup(_STDERR)
        self._reader, writer = os.pipe()
        with contextlib.suppress(OSError):
            fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        os.dup2(writer, _STDERR)
        os.close(writer)
        threading.Thread(target=self._follow, daemon=True, name="validator-kernel-log").start()
        # Nobody reads the pipe after the end of Python's threads, but libraries may still print.
        atexit.register(self.stop)

    def stop(self) -> None:
        """Remove the pipe. It is still read while a child process holds it."""
        atexit.unregister(self.stop)
        # A fork has no thread that reads, and what the lock protects may be locked there for ever.
        if self._process == os.getpid() and self._saved >= 0:
            os.dup2(self._saved, _STDERR)
            self._drain()

    def begin(self) -> None:
        """Say that a cell begins."""
        self._drain()
        with self._lock:
            self._keep()
            self._current, self._number = Output(), None

    def end(self, cell: int | None) -> None:
        """Say that the cell has ended. cell: its number; None if it has none, as those of a widget."""
        self._drain()
        with self._lock:
            self._number = cell
            self._keep()

    def add(self, text: str) -> None:
        """Add text that does not come through the pipe, such as a traceback."""
        self._drain()
        with self._lock:
            self._current.add(text.encode("utf-8", errors="replace"))

    def outputs(self, cell: int) -> dict[int, str]:
        """Return the text by the number of its cell. cell: the one that runs."""
        self._drain()
        with self._lock:
            self._number = cell
            self._keep()
            return {number: output.text() for number, output in self._outputs.items()}

    def _keep(self) -> None:
        if self._current and self._number is not None:
            self._outputs[self._number] = self._current
        if len(self._outputs) > _CELLS:
            del self._outputs[sorted(self._outputs)[_FIRST_CELLS]]

    def _follow(self) -> None:
        """Read until no process has the pipe any more."""
        waiting = select.poll()
        waiting.register(self._reader, select.POLLIN)
        while True:
            # Wait without the lock, but keep and pass on with it: `_drain` is done when both are.
            waiting.poll()
            with self._lock:
                data = os.read(self._reader, _PIPE_BYTES)
                if not data:
                    for descriptor in (self._reader, self._saved):
                        os.close(descriptor)
                    self._reader = self._saved = -1
                    return
                self._current.add(data)
                with contextlib.suppress(OSError):
                    while data:
                        data = data[os.write(self._saved, data) :]

    def _drain(self) -> None:
        """Wait until everything that was written is kept and passed on."""
        deadline = time.monotonic() + _DRAIN_S
        while time.monotonic() < deadline:
            with self._lock:
                waiting = array.array("i", [0])
                if self._reader >= 0:
                    fcntl.ioctl(self._reader, termios.FIONREAD, waiting)
                if not waiting[0]:
                    return
            time.sleep(0.001)


# Look at the TensorFlow of this process without importing it, and without a change to it.
#
# The first question about its GPUs makes TensorFlow initialize CUDA. From then on, a change of
# `CUDA_VISIBLE_DEVICES` has no effect in this process, so it is never asked first.


#: The module with TensorFlow's one context, whose devices are None until somebody asks for them.
_CONTEXT = "tensorflow.python.eager.context"


@dataclass(frozen=True)
class KernelState:
    """The TensorFlow of this process.

    tensorflow: its version; None if it is not imported.
    listed, used: its GPUs, and those of them that it was not told to leave alone; None if nobody has asked it
        yet.
    """

    tensorflow: str | None = None
    listed: int | None = None
    used: int | None = None

    @property
    def sentence(self) -> str:
        """Say it in a sentence."""
        if self.tensorflow is None:
            return "TensorFlow is not imported in this kernel."
        release = f"TensorFlow {self.tensorflow} is imported in this kernel"
        if self.listed is None or self.used is None:
            return f"{release}, and has not looked for GPUs yet."
        if self.used == self.listed:
            return f"{release}, and has {_gpus(self.listed)}."
        return f"{release}, and uses {self.used} of {_gpus(self.listed)}."


def kernel_state() -> KernelState:
    """Return the state of this process's TensorFlow."""
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is None:
        return KernelState()
    version = str(getattr(tensorflow, "__version__", "(of an unknown version)"))
    context = getattr(sys.modules.get(_CONTEXT), "_context", None)
    if getattr(context, "_physical_devices", None) is None:
        return KernelState(version)
    try:
        # These are only lists now.
        config = tensorflow.config
        return KernelState(
            version, len(config.list_physical_devices("GPU")), len(config.get_visible_devices("GPU"))
        )
    except Exception:
        # A TensorFlow that is half imported, or that something replaced, must not stop the diagnosis.
        return KernelState(version)


def _gpus(count: int) -> str:
    return "no GPU" if count == 0 else "1 GPU" if count == 1 else f"{count} GPUs"
