"""Help for the tests of several packages: a small file system that fills up quickly, forked processes, and
reading YAML with libyaml."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import subprocess
from collections.abc import Iterator
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


@contextlib.contextmanager
def small_disk(place: Path, size: str) -> Iterator[Path]:
    """Yield a tmpfs of that size (`64k`, `8m`). Skips the test where none can be mounted."""
    mount = shutil.which("mount")
    if mount is None or os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    place.mkdir()
    done = subprocess.run(
        [mount, "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)], capture_output=True
    )
    if done.returncode:
        pytest.skip(f"a small file system can't be mounted here: {done.stderr.decode().strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)
