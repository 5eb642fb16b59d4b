"""The cache of the dynamic loader in an assembled image, and the one that `ldconfig` makes there."""

from __future__ import annotations

import subprocess
from pathlib import Path

from validator.assemble.base_finder import BasePolicy, Bases
from validator.assemble.image import assemble
from validator.assemble.layer_table import LayerTable
from validator.assemble.wheel_layers import plan_image
from validator.engines.endpoint import Endpoint
from validator.engines.images import load

from ...assemble.bases import GPU, Shelf, lock_of

# Prints what the image's cache lists, then what ldconfig would list.
_SCRIPT = """
ldconfig -p | sed 1d >/tmp/ours
ldconfig -X -C /tmp/cache
ldconfig -p -C /tmp/cache | sed 1d >/tmp/theirs
grep -c nvidia /tmp/ours
cmp /tmp/ours /tmp/theirs && echo same
python3 -c 'import os, pwd; print(pwd.getpwnam("tensorflow").pw_dir, os.path.realpath("/usr/local/cuda"))'
"""


def library(name: str) -> bytes:
    """Return a library of this machine, whose soname is its name."""
    return next(Path("/lib/x86_64-linux-gnu").glob(f"{name}.*")).read_bytes()


def test_the_cache_is_that_of_ldconfig(endpoint: Endpoint, tmp_path: Path) -> None:
    shelf, table = Shelf(tmp_path / "wheels"), LayerTable(tmp_path / "table")
    # One that the base has, too, one that is no library, and one that is not named like its soname.
    one = {"nvidia/one/lib/libz.so.1": library("libz.so.1")}
    two = {"nvidia/two/lib/libexpat.so.1": library("libexpat.so.1"), "nvidia/two/lib/libx.so": b"text"}
    three = {"nvidia/three/lib/libthree.so.12": library("libexpat.so.1")}
    lock = lock_of(
        GPU,
        *(shelf.wheel(f"nvidia-{number}-cu12", files) for number, files in enumerate((one, two, three))),
        shelf.wheel("tensorflow", {"tensorflow/__init__.py": b""}),
    )
    base = Bases(BasePolicy.BOOTSTRAP, table).base(GPU, print)
    plan = plan_image(GPU, lock, base, shelf, table)
    reference = "tensorflow-gpu-matrix:test-loader"
    load(
        endpoint,
        reference,
        lambda destination: assemble(plan, destination, table, print),
    )
    command = ["docker", "run", "--rm", "--user=0", "--entrypoint=sh", reference, "-c", _SCRIPT]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    count, same, paths = done.stdout.splitlines()
    assert (count, same) == ("3", "same"), done.stdout + done.stderr
    assert paths == "/home/tensorflow /opt/venv/lib/python3/site-packages/nvidia/cuda_nvcc"
