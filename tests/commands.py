"""Commands as a person runs them: in this process, or in one of their own where the process matters."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import signal
import subprocess
import sys
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


@contextlib.contextmanager
def _as_it_was() -> Iterator[None]:
    """Undo what a command sets for its process."""
    threshold, handler = gc.get_threshold(), signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        gc.set_threshold(*threshold)
        signal.signal(signal.SIGTERM, handler)
