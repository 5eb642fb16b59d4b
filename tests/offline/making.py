"""Received bundles with a small image, as `./measure` finds them on a machine without a network."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import pynvml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import validator
from tests.fleet.slurm.python_image import entries
from validator.assemble.image import OciLayout, RegistryDestination
from validator.assemble.layers import Encoded, Entry, InMemory, encode
from validator.engines.venv import find_python
from validator.fleet.protocol import read_frames
from validator.model.codec import encode as as_json
from validator.model.spec import Choice, ImageSpec, Variant
from validator.offline.receive import Bundle, File, Image, Volume
from validator.pipeline.bundle import own_wheel
from validator.pipeline.measuring import Question
from validator.registry.names import image_tag

SPEC = ImageSpec("2.21.0", "3.12", Variant.GPU, Choice("as-built", "12.5"), Choice("as-built", "9.3"))
TAG = image_tag(SPEC)
CHALLENGE = "c0" * 32
LOCK = b"# a lock\n"
LOCK_DIGEST = "sha256:" + hashlib.sha256(LOCK).hexdigest()
PACKAGE = Path(validator.__file__).parent


def python_of(version: str) -> str:
    """Return a Python of this machine; the one of the tests if there is none of this version."""
    # pyenv's `python3.9` may not start.
    of_pyenv = next(Path.home().glob(f".pyenv/versions/{version}*/bin/python{version}"), None)
    return str(of_pyenv or find_python(version) or sys.executable)


#: The oldest Python that `./measure` supports, where this machine has it.
OLD = python_of("3.9")
_MAIN = b"import sys\nfrom validator.offline.main import main\nsys.exit(main(sys.argv[1:]))\n"
_CARRIED = ("fleet/slurm_job.py", "fleet/inside.py", "engines/ask_nvml.py")


@cache
def measure_program() -> bytes:
    """Return the zipapp `measure`."""
    paths = [*PACKAGE.glob("offline/*.py"), *(PACKAGE / name for name in _CARRIED)]
    files = {f"validator/{path.relative_to(PACKAGE)}": path.read_bytes() for path in paths}
    empty = {f"validator/{room}__init__.py": b"" for room in ("", "fleet/", "engines/")}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        module = Path(str(pynvml.__file__)).read_bytes()
        for name, content in {**empty, **files, "pynvml.py": module, "__main__.py": _MAIN}.items():
            archive.writestr(name, content)
    return b"#!/usr/bin/env python3\n" + buffer.getvalue()


@cache
def _python_layer() -> tuple[bytes, Encoded]:
    shell = Path("/bin/sh").resolve().read_bytes()
    more = [Entry("bin", 0o755), Entry("bin/sh", 0o755, InMemory(shell))]
    buffer = io.BytesIO()
    blob = encode(sorted([*entries(), *more], key=lambda entry: entry.path), buffer.write)
    return buffer.getvalue(), blob


class Layers:
    """An OCI layout, or a registry, that gets one image."""

    def __init__(self, place: Path | RegistryDestination, labels: Mapping[str, str] | None = None) -> None:
        self._place = OciLayout(place, TAG) if isinstance(place, Path) else place
        self._labels = labels or {}
        self._layers: list[Encoded] = []

    def add_python(self) -> Layers:
        """Add this machine's Python and shell, as zstd."""
        content, blob = _python_layer()
        self._layers.append(self._put(content, blob))
        return self

    def add_archive(self, write: Callable[[tarfile.TarFile], None]) -> Layers:
        """Add a layer with any content, as gzip."""
        plain = io.BytesIO()
        with tarfile.open(fileobj=plain, mode="w") as archive:
            write(archive)
        return self._add_gzip(gzip.compress(plain.getvalue(), 1), plain.getvalue())

    def add_damaged(self) -> Layers:
        """Add a layer that has its digest, but is not what gzip writes after two of its three megabytes."""
        packed = zlib.compressobj(1, zlib.DEFLATED, 31)
        entry = tarfile.TarInfo("large")
        entry.size = 3 << 20
        good = packed.compress(entry.tobuf() + bytes(2 << 20)) + packed.flush(zlib.Z_FULL_FLUSH)
        return self._add_gzip(good + b"\xff" * 100, b"")

    def _add_gzip(self, content: bytes, plain: bytes) -> Layers:
        blob = Encoded(
            f"sha256:{hashlib.sha256(content).hexdigest()}", len(content),
            f"sha256:{hashlib.sha256(plain).hexdigest()}",
            "application/vnd.oci.image.layer.v1.tar+gzip",
        )  # fmt: skip
        self._layers.append(self._put(content, blob))
        return self

    def finish(self) -> str:
        """Return the digest of the image."""
        config = json.dumps(
            {
                "architecture": "amd64",
                "os": "linux",
                "config": {"Env": ["PATH=/usr/bin:/bin", "OF_THE_IMAGE=yes"], "Labels": self._labels},
                "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in self._layers]},
            }
        ).encode()
        digest = f"sha256:{hashlib.sha256(config).hexdigest()}"
        kind = "application/vnd.oci.image.config.v1+json"
        described = self._put(config, Encoded(digest, len(config), "", kind))
        blobs = [
            {"mediaType": blob.media_type, "digest": blob.digest, "size": blob.size}
            for blob in (described, *self._layers)
        ]
        kind = "application/vnd.oci.image.manifest.v1+json"
        manifest = {"schemaVersion": 2, "mediaType": kind, "config": blobs[0], "layers": blobs[1:]}
        return self._place.finish(json.dumps(manifest).encode(), kind)

    def _put(self, content: bytes, blob: Encoded) -> Encoded:
        def copy(write: Callable[[bytes], object]) -> Encoded:
            write(content)
            return blob

        return self._place.receive(copy, blob)


def received(place: Path, probe: str, layers: Layers | None = None, timeout_s: float = 60.0) -> Path:
    """Make a received bundle. probe: the source of its probe. layers: of its image; by default, a Python."""
    digest = (layers or Layers(place / "images").add_python()).finish()
    for name, content in {
        "measure": measure_program(), "locks/image.txt": LOCK, "probe/probe.pyz": probe.encode(),
    }.items():  # fmt: skip
        path = place / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    (place / "measure").chmod(0o755)
    question = Question(
        image=SPEC.identifier, variant=Variant.GPU, lock_digest=LOCK_DIGEST, probe_version="2.3.0+test",
        depth="quick", key="", engine="", image_digest=digest,
    )  # fmt: skip
    image = Image(
        tag=TAG, digest=digest, image=SPEC.identifier, source=TAG, lock="locks/image.txt",
        probe="probe/probe.pyz", arguments=("--lock", "lock.txt"), timeout_s=timeout_s,
        challenges={SPEC.identifier: CHALLENGE}, question=question,
    )  # fmt: skip
    # Its volumes are gone.
    sizes = {path: (place / path).stat().st_size for path in ("locks/image.txt", "probe/probe.pyz")}
    files = {path: File(size, "0" * 64) for path, size in sizes.items()}
    pieces = tuple((path, 0, size) for path, size in sizes.items() if size)
    volume = Volume("volume-0001", sum(sizes.values()), "0" * 64, pieces)
    document = as_json(Bundle((image,), files, (volume,)))
    (place / "bundle.json").write_text(json.dumps(document), encoding="utf-8")
    return place


def command(place: Path, *options: str, python: str = OLD) -> list[str]:
    """Return the command that measures in a network namespace without routes."""
    return ["unshare", "-n", python, str(place / "measure"), *options]


def measure(
    place: Path, *options: str, python: str = OLD, variables: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(place, *options, python=python), capture_output=True, text=True, timeout=900,
        env={**os.environ, **(variables or {})},
    )  # fmt: skip


def frames_of(place: Path) -> dict[str, bytes]:
    """Return what the only line of the output has: the node, the host outside, and the container's output."""
    [line] = (place / "measured.jsonl").read_bytes().splitlines()
    found = read_frames(json.loads(line)["result"].encode())
    return {**found, **read_frames(found["output"])}


def records_of(place: Path, store: Path) -> list[dict[str, Any]]:
    """Import the output with the command line, and return the records of the store."""
    run = [sys.executable, "-m", "validator", "records"]
    options = ["--store", str(store), "--matrix", str(PACKAGE.parent / "matrix.yaml")]
    subprocess.run([*run, "import", str(place / "measured.jsonl"), *options], check=True, cwd=PACKAGE.parent)
    done = subprocess.run(
        [*run, "export", *options], check=True, cwd=PACKAGE.parent, capture_output=True, text=True
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def leftovers(place: Path) -> Sequence[str]:
    """Return what measuring has left behind: directories, mounts, processes."""
    mounts = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    inside = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if b"/tfm/" in words or str(place).encode() in words:
            inside.append(words.replace(b"\0", b" ").decode())
    return [
        *map(str, place.glob("measuring-*")), *(line for line in mounts if f"{place}/" in line), *inside,
    ]  # fmt: skip


def add_tool(wheels: Path) -> None:
    """Write wheels of this tool, and of what it needs. They fit only the Python of the tests."""
    own, content = own_wheel()
    (wheels / own).write_bytes(content)
    add_needed(wheels)


def add_needed(wheels: Path) -> None:
    """Write wheels of what this tool needs, as it is installed here."""
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    waiting, seen = [("tensorflow-gpu-matrix", "")], set[tuple[str, str]]()
    while waiting:
        name, extra = waiting.pop()
        found = metadata.distribution(name)
        for needed in map(Requirement, found.requires or ()):
            if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                more = {(needed.name, one) for one in ("", *needed.extras)} - seen
                seen |= more
                waiting += more
        if not extra and name != "tensorflow-gpu-matrix":
            files = {
                str(file): Path(str(file.locate())) for file in found.files or () if ".." not in file.parts
            }
            files = {name: path for name, path in files.items() if path.suffix != ".pyc"}
            stem = f"{canonicalize_name(name).replace('-', '_')}-{found.version}"
            _write_wheel(wheels / f"{stem}-{tag}-{tag}-manylinux_2_28_x86_64.whl", files)


def _write_wheel(path: Path, files: Mapping[str, Path]) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, source in files.items():
            archive.write(source, name)
