"""A Podman with a storage of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

Podman = Callable[..., str]


@contextmanager
def own_podman(place: Path, *, partial_pulls: bool) -> Iterator[Podman]:
    """Yield a function that runs podman with its storage in a directory.

    partial_pulls: of a layer, fetch only the files that are not there. Podman 4 does not do this unless it is
        told to.
    """
    program = shutil.which("podman")
    if program is None:
        pytest.skip("podman is not installed (Debian package podman)")
    if os.getuid():
        pytest.skip("Podman's overlay storage in a directory of a test needs root")
    storage = place / "podman"
    configuration = place / "storage.conf"
    options = f'{{enable_partial_images = "{str(partial_pulls).lower()}", use_hard_links = "false"}}'
    configuration.write_text(
        f'[storage]\ndriver = "overlay"\ngraphroot = "{storage}/graph"\nrunroot = "{storage}/run"\n'
        f"[storage.options]\npull_options = {options}\n",
        encoding="utf-8",
    )
    environment = {**os.environ, "CONTAINERS_STORAGE_CONF": str(configuration)}

    def run(*arguments: str) -> str:
        result = subprocess.run(
            [program, *arguments], env=environment, capture_output=True, text=True, timeout=120
        )
        assert result.returncode == 0, result.stderr
        return result.stdout.strip()

    try:
        yield run
    finally:
        # Also after a failure: pytest can't remove a directory with mounts.
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines()]
        for mount in reversed([mount for mount in mounts if mount.startswith(f"{storage}/")]):
            subprocess.run(["umount", mount], check=True)
        shutil.rmtree(storage, ignore_errors=True)
