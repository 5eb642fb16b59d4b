"""Podman pulls layers of both encodings, and fetches only the files that it does not have."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.registry.proxy import Proxy
from validator.assemble.entries import Entry, InMemory
from validator.assemble.layers import Layers

from . import images

pytestmark = pytest.mark.service
Podman = Callable[..., str]

COMMON = random.Random(1).randbytes(3_000_000)
NEW = b"new" * 5000


@pytest.fixture
def podman(tmp_path: Path) -> Iterator[Podman]:
    """Yield a function that runs podman with a storage of its own, in which partial pulls are switched on."""
    program = shutil.which("podman")
    if program is None:
        pytest.skip("podman is not installed (Debian package podman)")
    if os.getuid():
        pytest.skip("Podman's overlay storage in a directory of a test needs root")
    storage = tmp_path / "podman"
    configuration = tmp_path / "storage.conf"
    configuration.write_text(
        f'[storage]\ndriver = "overlay"\ngraphroot = "{storage}/graph"\nrunroot = "{storage}/run"\n'
        '[storage.options]\npull_options = {enable_partial_images = "true", use_hard_links = "false"}\n',
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
    mounts = [line.split()[1] for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines()]
    for mount in reversed([mount for mount in mounts if mount.startswith(f"{storage}/")]):
        subprocess.run(["umount", mount], check=True)
    shutil.rmtree(storage)


@pytest.mark.parametrize("choice", Layers)
def test_only_new_files_are_fetched(choice: Layers, podman: Podman, proxy: Proxy) -> None:
    first = [
        Entry("data", 0o755),
        Entry("data/common", 0o644, InMemory(COMMON)),
        Entry("data/link", 0o777, link="common"),
    ]
    second = [
        Entry("data", 0o750),
        Entry("data/common", 0o600, InMemory(COMMON)),
        Entry("data/empty", 0o644, InMemory(b"")),
        Entry("data/new", 0o755, InMemory(NEW)),
    ]
    references = [
        images.push(proxy.address, f"podman/{choice.value}-{name}", choice, [entries])
        for name, entries in (("first", first), ("second", second))
    ]
    received = []
    for reference in references:
        before = proxy.received
        podman("pull", "--quiet", "--tls-verify=false", reference)
        received.append(proxy.received - before)

    assert received[0] > len(COMMON)
    assert received[1] < len(COMMON) / 10
    mounted = Path(podman("image", "mount", references[1]))
    assert (mounted / "data/common").read_bytes() == COMMON
    assert (mounted / "data/new").read_bytes() == NEW
    assert (mounted / "data/empty").read_bytes() == b""
    modes = {path.name: path.stat().st_mode & 0o777 for path in (mounted / "data").iterdir()}
    assert modes == {"common": 0o600, "empty": 0o644, "new": 0o755}
    # Podman 4.3 does not set the times of files of partial pulls, so they are not compared.
    common, link = (
        Path(podman("image", "mount", references[0])) / "data" / name for name in ("common", "link")
    )
    assert common.read_bytes() == COMMON
    assert os.readlink(link) == "common"
