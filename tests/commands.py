"""Commands as a person runs them: in this process, or in one of their own where the process matters."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from validator.__main__ import main

ROOT = Path(__file__).parents[1]

Done = subprocess.CompletedProcess[str]


def run(
    *arguments: object, cwd: Path = ROOT, environment: Mapping[str, str] | None = None, stdin: str = ""
) -> Done:
    """Run `python -m validator` in this process, which saves the start of a Python.

    environment: everything that the command finds in its environment; by default that of this process.
    """
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, _as_it_was():
        patch.chdir(cwd)
        patch.setattr(sys, "argv", ["validator", *map(str, arguments)])
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        for name in os.environ.keys() - (environment or os.environ).keys():
            patch.delenv(name)
        for name, value in (environment or {}).items():
            patch.setenv(name, value)
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            pytest.raises(SystemExit) as end,
        ):
            main()
    assert isinstance(end.value.code, int)
    return Done(["validator", *map(str, arguments)], end.value.code, out.getvalue(), err.getvalue())


def run_alone(*arguments: object, cwd: Path = ROOT, environment: Mapping[str, str] | None = None) -> Done:
    """Run `python -m validator` in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "validator", *map(str, arguments)],
        cwd=cwd, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def run_forked(*arguments: object, memory: int, stdin: int | None = None, cwd: Path = ROOT) -> Done:
    """Run `python -m validator` in a fork of this process, which has loaded what earlier commands needed.

    memory: how many bytes more than this process it may use. stdin: a file's number; empty by default.
    """
    words = ["validator", *map(str, arguments)]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, open(os.devnull, "rb") as nothing:
        streams = (nothing.fileno() if stdin is None else stdin, out.fileno(), err.fileno())
        child = os.fork()
        if child == 0:
            code = 70
            try:
                code = _fork_runs(words, streams, memory, cwd)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        status = _ended(child, 120)
        assert status is not None, f"{' '.join(words)[:200]} does not end"
        out.seek(0)
        err.seek(0)
        return Done(words, status, out.read().decode(), err.read().decode())


def _fork_runs(words: list[str], streams: tuple[int, int, int], memory: int, cwd: Path) -> int:
    """Run a command with these streams in this process, which was forked for it, and return its exit code."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.chdir(cwd)
    sys.argv, sys.stdin = words, os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", encoding="utf-8", closefd=False) for number in (1, 2))
    pages = int(Path("/proc/self/statm").read_text().split()[5])
    most = pages * resource.getpagesize() + memory
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    try:
        main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 70
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 70


def _ended(child: int, seconds: float) -> int | None:
    """Wait for a child and return its exit code, or kill it and return None."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


@contextlib.contextmanager
def _as_it_was() -> Iterator[None]:
    """Undo what a command sets for its process."""
    threshold, handler = gc.get_threshold(), signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        gc.set_threshold(*threshold)
        signal.signal(signal.SIGTERM, handler)
