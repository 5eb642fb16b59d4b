"""Help for the tests of several packages: a small file system that fills up quickly, forked processes,
reading YAML with libyaml, and what a check of a made-up report says."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

#: Starts processes that have already imported the modules of the tests that use it.
FORKED = multiprocessing.get_context("forkserver")
FORKED.set_forkserver_preload(
    ["tests.assemble.pushes", "tests.records.test_schema", "tests.records.test_store"]
)


def read_yaml(text: str) -> Any:
    """Read a document of this repository, ten times as quickly as `yaml.safe_load`."""
    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def said(text: str, outcome: str = "pass") -> dict[str, Any]:
    """Return the fields of a check whose sentence is this text, as a check of the user's own has them."""
    if outcome == "fail":
        fault = {"code": "own_check_failed", "severity": "fault", "summary": text}
        return {"statement": None, "problems": [fault]}
    code = {"pass": "own_check_passed", "skip": "own_check_skipped"}.get(outcome, "own_check_failed")
    return {"statement": {"code": code, "summary": text}, "problems": []}


@contextlib.contextmanager
def mount_place() -> Iterator[Path]:
    """Yield a directory for mounts, and unmount what is left in it.

    It is outside pytest's temporary directory: the mounts of a killed run stay, and a later run of pytest
    would fail because it can't remove the directory that holds them.
    """
    place = Path(tempfile.mkdtemp(prefix="tests-mounts-"))
    try:
        yield place
    finally:
        unmount_below(place)
        shutil.rmtree(place, ignore_errors=True)


def unmount_below(place: Path) -> None:
    """Unmount everything in a directory, the newest mount first."""
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines()]
    for mount in reversed([mount for mount in mounts if mount.startswith(f"{place}/")]):
        subprocess.run(["umount", "--lazy", mount], check=True)


@contextlib.contextmanager
def small_disk(size: str) -> Iterator[Path]:
    """Yield a tmpfs of that size (`64k`, `8m`). Skips the test where none can be mounted."""
    mount = shutil.which("mount")
    if mount is None or os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    with mount_place() as directory:
        place = directory / "small"
        place.mkdir()
        done = subprocess.run(
            [mount, "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)], capture_output=True
        )
        if done.returncode:
            pytest.skip(f"a small file system can't be mounted here: {done.stderr.decode().strip()}")
        yield place


def killed(call: str, after: int, work: Callable[[], object]) -> int | None:
    """Do some work in a child that is killed at a call of `os`, and return its exit code.

    call: a name in `os`, such as `fsync`. after: the calls before that one.
    """

    def run() -> None:
        real, left = getattr(os, call), after

        def counted(*arguments: Any, **named: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **named)

        setattr(os, call, counted)
        work()

    child = multiprocessing.get_context("fork").Process(target=run)
    child.start()
    child.join(60)
    return child.exitcode
