"""The smallest inputs of the faults that mutated inputs have found. What is found next gets a case here."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ..assemble import bases
from ..compat.wheel_files import MEMBERS, packed
from . import machine_targets as machines
from .targets import DOCUMENTED, TARGETS

DIGITS = "9" * 5000
PREDICT = "--tensorflow 2.21.0 --gpu h100 --driver 535"
IMAGES = ("2.17.0_x-gpu", "2.17.0.x-gpu", f"2.{'1' * 500}.0-gpu")


def changed(seed: bytes, *path: str | int, to: Any) -> bytes:
    """Return a document with another value at a place."""
    document = place = json.loads(seed)
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = to
    return json.dumps(document).encode()


def kubernetes(what: str, *path: str | int, to: Any, seed: int = 0) -> bytes:
    return changed(machines.seeds_of("kubernetes")[seed], what, *path, to=to)


def docker(*path: str | int, to: Any) -> bytes:
    return changed(machines.seeds_of("docker")[0], *path, to=to)


def marked(fields: bytes) -> bytes:
    """Return a wheel whose directory has other fields: the version to extract with, and flags."""
    data = packed(MEMBERS)
    assert b"PK\1\2\x14\3\x14\0\0\0" in data
    return data.replace(b"PK\1\2\x14\3\x14\0\0\0", b"PK\1\2\x14\3" + fields)


def saved(**files: bytes) -> bytes:
    """Return the archive of a saved image with other files. A file's name has no `.` here, but one there."""
    stream = io.BytesIO(machines.saved_seeds()[0])
    with tarfile.open(fileobj=stream) as archive:
        content = {one.name: archive.extractfile(one).read() for one in archive}  # type: ignore[union-attr]
    return bases.archive({**content, **{name.replace("_", "."): data for name, data in files.items()}})


def store(old: bytes, new: bytes) -> bytes:
    [data] = machines.store_seeds()
    assert old in data and len(old) == len(new)
    return data.replace(old, new)


POD = ("items", 0)
FOUND: dict[str, list[Callable[[], bytes] | bytes]] = {
    "compose.yaml": [
        *(f"services: {{a: {{image: 'tensorflow/tensorflow:{tag}'}}}}".encode() for tag in IMAGES),
    ],
    "pylock.toml": [b'lock-version = "1.0"\n[[packages]]\nversion = "1"\nmarker = "y"\nwheels = [{}]\n'],
    "pyproject.toml": [
        f'[tool.poetry.dependencies]\ntensorflow = "{sign}{version}"\n'.encode()
        for sign in "~^"
        for version in ("2.20٣", DIGITS, f"2.{DIGITS}")
    ],
    "pdm.lock": [f'[metadata]\nrequires_python = ">=3{DIGITS}"\n'.encode()],
    "requirements.txt": [
        f"tensorflow>=2.{DIGITS},<3\n".encode(),
        f"tensorflow==2.18.0; python_version > '3.{DIGITS}'\n".encode(),
    ],
    "slurm": [b"x"],
    "kubernetes": [
        b'{"items": "\xff"}',
        b'{"x":' * 100_000 + b"1" + b"}" * 100_000,
        kubernetes("list pods", "metadata", "continue", to="x"),
        *(
            kubernetes(what, *POD, to=to)
            for what in ("list Jobs", "list pods", "list nodes")
            for to in (None, {"x": 1})
        ),
        *(
            kubernetes("list pods", *POD, *path, to=to)
            for path, to in (
                (("metadata", "labels"), {}),
                (("status", "conditions"), [1]),
                (("status", "conditions"), [{"status": "True"}]),
                (("status", "containerStatuses"), [None]),
                (("status", "message"), 1),
                (("spec", "containers"), []),
                (("spec", "containers", 0, "resources", "limits"), {"nvidia.com/gpu": "²"}),
            )
        ),
        kubernetes("list pods", *POD, "status", "startTime", to="2026-11-22T00:00:00", seed=1),
        kubernetes("list nodes", *POD, "spec", "taints", to=[{"key": None}]),
        kubernetes("list nodes", *POD, "metadata", "labels", "nvidia.com/gpu.compute.major", to=9),
    ],
    "docker": [
        docker("history", to=[{"Size": "x"}]),
        docker("history", to=None),
        docker("history", to=[{}]),
        docker("image", "RootFS", to=[]),
        docker("image", "RootFS", "Layers", to=1),
        docker("info", "Runtimes", to=1),
        changed(docker("info", "Runtimes", to=None), "info", "DiscoveredDevices", to=["x"]),
    ],
    "metadata": [
        b"Name: \xff\n",
        b"Name: x\nVersion: 1\nRequires-Dist: [[x\n",
        f"Name: x\nVersion: 1\nRequires-Dist: numpy<2,>=1.{DIGITS}\n".encode(),
        b"{" * 200 + b"0\nL",
    ],
    "tensorflow": [
        marked(b"\x14\0\1\0"),
        marked(b"\xff\0\0\0"),
    ],
    "saved": [
        saved(manifest_json=b'[{"Config": "config.json", "Layers": ["x"]}]'),
        saved(config_json=b'{"\xff": 1}'),
        saved(config_json=b'{"rootfs": [1], "config": {}}'),
    ],
    "store": [
        lambda: store(b"unproven", b"unprowen"),
        lambda: store(b"CREATE TABLE", b"CREATE\xff\xffABLE"),
    ],
    "words": [
        f"{PREDICT} --package torch==2&".encode(),
        *(f"--image tensorflow/tensorflow:{tag}".encode() for tag in IMAGES),
    ],
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "made"), [(kind, made) for kind, cases in FOUND.items() for made in cases])
def test_an_input_that_broke_the_program_ends_as_documented(
    kind: str, made: Callable[[], bytes] | bytes, tmp_path: Path
) -> None:
    data = made if isinstance(made, bytes) else made()
    try:
        TARGETS[kind].read(data, tmp_path)
    except DOCUMENTED as error:
        assert len(str(error)) < 1000
