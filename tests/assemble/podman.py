"""A Podman with a storage of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from ..support import mount_place

Podman = Callable[..., str]


@contextmanager
def own_podman(*, partial_pulls: bool) -> Iterator[Podman]:
    """Yield a function that runs podman with its own storage.

    partial_pulls: of a layer, fetch only the files that are not there. Podman 4 does not do this unless it is
        told to.
    """
    program = shutil.which("podman")
    if program is None:
        pytest.skip("podman is not installed (Debian package podman)")
    if os.getuid():
        pytest.skip("Podman's overlay storage in a directory of a test needs root")
    with mount_place() as place:
        configuration = place / "storage.conf"
        options = f'{{enable_partial_images = "{str(partial_pulls).lower()}", use_hard_links = "false"}}'
        configuration.write_text(
            f'[storage]\ndriver = "overlay"\ngraphroot = "{place}/graph"\nrunroot = "{place}/run"\n'
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

        yield run
