"""A bundle has each layer once, in volumes, and is never a bundle before all of it is there."""

from __future__ import annotations

import base64
import csv
import functools
import hashlib
import io
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from validator.assemble.image import OciLayout
from validator.cli.planning import images_of, locks_of
from validator.errors import InputError, MissingError, ValidatorError
from validator.model.codec import convert
from validator.model.spec import LABEL_LOCK, LABEL_SPEC, ImageSpec, Lock
from validator.offline.receive import receive
from validator.pipeline import bundle
from validator.pipeline.bundle import BundledImage, Request, own_wheel, write_bundle
from validator.pipeline.measuring import Question
from validator.registry.client import in_layout, named_in_layout
from validator.registry.names import image_tag
from validator.resources import SHIPPED, shipped_matrix
from validator.system.package_sources import PackageSources

from ..assemble.synthetic import Image, Layer
from ..locks.local_index import LocalIndex
from ..support import killed, small_disk

NOTHING = Request(PackageSources())
NAMES = ("tf2.21.0-cuda12.5-cudnn9.3-py311", "tf2.21.0-cuda12.5-cudnn9.3-py312")


@functools.cache
def planned() -> tuple[tuple[ImageSpec, Lock], ...]:
    """Return two image specs of this project's matrix with their locks."""
    specs, locks = images_of(shipped_matrix()), locks_of(shipped_matrix())
    found = tuple((specs[name], locks.read(name)) for name in NAMES)
    return tuple((spec, lock) for spec, lock in found if lock is not None)


def layout(directory: Path, size: int = 300_000) -> list[BundledImage]:
    """Write a layout with two images that share a layer, and return them."""
    found = []
    for number, (spec, lock) in enumerate(planned()):
        labels = ((LABEL_SPEC, spec.identifier), (LABEL_LOCK, lock.digest))
        Image((Layer(0, size), Layer(number + 1, size)), labels).send(OciLayout(directory, image_tag(spec)))
        registry, digest = named_in_layout(directory, image_tag(spec))
        found.append(BundledImage(registry, digest, image_tag(spec), spec.identifier, spec, lock))
    return found


@pytest.fixture(autouse=True)
def small_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Don't pack the whole tool each time."""
    monkeypatch.setattr(bundle, "own_wheel", lambda: ("tool-1-py3-none-any.whl", b"a wheel" * 1000))
    monkeypatch.setattr(bundle, "supported_pythons", tuple)


def write(
    directory: Path, images: list[BundledImage], size: int = 100_000, request: Request = NOTHING
) -> list[str]:
    said: list[str] = []
    with tempfile.TemporaryDirectory() as work:
        write_bundle(directory, images, size, request, Path(work), said.append)
    return said


def document(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((directory / "bundle.json").read_bytes())
    return found


def stream(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(directory.glob("volume-*")))


def check(directory: Path, images: list[BundledImage]) -> None:
    """Receive a bundle, and read its images."""
    into = directory.parent / f"{directory.name}-received"
    receive(directory, into, False, lambda _: None)
    registry = in_layout(into / "images")
    for image in images:
        assert registry.find(image.tag) == image.digest
        manifest = registry.manifest(image.digest)
        assert manifest is not None and manifest.layers is not None
        for layer in manifest.layers:
            assert b"".join(registry.blobs.read(layer.digest, layer.size))
    assert not list(directory.glob("*.part"))


@pytest.mark.slow
def test_shared_layers_are_there_once_and_volumes_have_the_asked_size(tmp_path: Path) -> None:
    images = layout(tmp_path / "layout")
    write(tmp_path / "out", images)
    found = document(tmp_path / "out")
    sizes = [volume["size"] for volume in found["volumes"]]
    assert set(sizes[:-1]) == {100_000} and 0 < sizes[-1] <= 100_000
    assert sizes == [(tmp_path / "out" / volume["name"]).stat().st_size for volume in found["volumes"]]
    blobs = [
        path
        for volume in found["volumes"]
        for path, start, _ in volume["holds"]
        if "/blobs/" in path and not start
    ]
    # Three layers, two configurations, two manifests.
    assert len(blobs) == len(set(blobs)) == 7
    assert (tmp_path / "out" / "measure").read_bytes() == stream(tmp_path / "out")[
        : found["files"]["measure"]["size"]
    ]
    for entry, image in zip(found["images"], images, strict=True):
        question = convert(entry["question"], Question)
        assert image.lock is not None
        assert (question.image, question.image_digest, question.lock_digest) == (
            image.source, image.digest, image.lock.digest,
        )  # fmt: skip
        assert entry["arguments"][-2:] == ["--lock", "lock.txt"]
    check(tmp_path / "out", images)


@pytest.mark.slow
def test_the_program_in_it_receives_it_with_any_python(tmp_path: Path) -> None:
    images = layout(tmp_path / "layout")
    write(tmp_path / "out", images)
    program = tmp_path / "out" / "measure"
    command = [sys.executable, "-I", str(program), "--receive-only", "--into", str(tmp_path / "in")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "in" / "measure").read_bytes() == program.read_bytes()
    (tmp_path / "out" / "volume-0002").unlink()
    done = subprocess.run([*command[:-1], str(tmp_path / "in2")], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "volume-0002 is missing" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.slow
def test_each_image_has_the_challenges_that_were_made_for_it(tmp_path: Path) -> None:
    images = layout(tmp_path / "layout")
    # A machine may have GPUs of two models.
    asked = {f"{NAMES[0]}@r580-h100": "a" * 64, f"{NAMES[0]}@r580-a100": "b" * 64}
    write(tmp_path / "out", images, request=Request(PackageSources(), challenges=asked))
    first, second = document(tmp_path / "out")["images"]
    assert (first["challenges"], second["challenges"]) == (asked, {})


@pytest.mark.slow
def test_it_is_killed_at_ten_moments_and_can_be_started_again(tmp_path: Path) -> None:
    images = layout(tmp_path / "layout")
    # At `fsync`, a volume reaches the disk; at `replace`, the program and `bundle.json` get their names.
    moments = [("fsync", after) for after in (0, 5, 9, 12, 16, 20, 24, 26)] + [("replace", 6), ("replace", 7)]
    for number, (call, after) in enumerate(moments):
        out = tmp_path / str(number)
        assert killed(call, after, functools.partial(write, out, images)) == -signal.SIGKILL, (call, after)
        assert not (out / "bundle.json").exists(), (call, after)
        # Larger volumes, of which there are fewer.
        write(out, images, 150_000)
        names = {volume["name"] for volume in document(out)["volumes"]}
        assert {path.name for path in out.iterdir()} == names | {"measure", "bundle.json"}
        check(out, images)


@pytest.mark.slow
@pytest.mark.parametrize("at_the_end", [False, True])
def test_a_damaged_layer_leaves_no_bundle(at_the_end: bool, tmp_path: Path) -> None:
    # Layers of a size with which a layer is the last blob: the blobs are in the order of their digests.
    for number in itertools.count():
        images = layout(tmp_path / f"layout-{number}", 300_000 + number)
        blobs = {path.name: path for path in (tmp_path / f"layout-{number}" / "blobs/sha256").iterdir()}
        blob = blobs[max(blobs)]
        if blob.stat().st_size > 100_000:
            break
    write(tmp_path / "whole", images)
    # It may end where the last volume ends, too.
    size = (
        sum(volume["size"] for volume in document(tmp_path / "whole")["volumes"]) if at_the_end else 100_000
    )
    right = blob.read_bytes()
    blob.write_bytes(right[:-10] + bytes(10))
    with pytest.raises(ValidatorError, match="is damaged"):
        write(tmp_path / "out", images, size)
    assert not (tmp_path / "out" / "bundle.json").exists()
    blob.write_bytes(right)
    write(tmp_path / "out", images, size)
    check(tmp_path / "out", images)


@pytest.mark.service
def test_a_full_disk_leaves_no_bundle_and_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = layout(tmp_path / "layout")
    with small_disk("4m") as disk:
        filler = disk / "filler"
        filler.write_bytes(bytes(2_400_000))
        with pytest.raises(
            MissingError, match=r"no space left on the disk that holds .*, and the bundle has"
        ):
            write(disk / "out", images)
        real = shutil.disk_usage
        with monkeypatch.context() as patch, pytest.raises(MissingError, match="no space left"):
            patch.setattr(shutil, "disk_usage", lambda _: real("/"))
            write(disk / "out", images)
        assert not (disk / "out" / "bundle.json").exists()
        filler.unlink()
        write(disk / "out", images)
        shutil.copytree(disk / "out", tmp_path / "out")
    check(tmp_path / "out", images)


def test_a_directory_with_something_else_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine", encoding="utf-8")
    with pytest.raises(InputError, match="has other files: mine"):
        write(tmp_path, [])
    (tmp_path / "mine").rename(tmp_path / "bundle.json")
    with pytest.raises(InputError, match="has a bundle already"):
        write(tmp_path, [])
    assert os.listdir(tmp_path) == ["bundle.json"]


@pytest.mark.slow
def test_the_tools_own_wheel_is_what_is_here(tmp_path: Path) -> None:
    name, content = own_wheel()
    assert own_wheel() == (name, content) and re.fullmatch(
        r"tensorflow_gpu_matrix-[\d.]+-py3-none-any\.whl", name
    )
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        files: Mapping[str, bytes] = {one: archive.read(one) for one in archive.namelist()}
    about = f"{name.rpartition('-py3')[0]}.dist-info"
    rows = {row[0]: row[1:] for row in csv.reader(io.StringIO(files[f"{about}/RECORD"].decode()))}
    assert rows.keys() == files.keys()
    for one, (digest, size) in rows.items():
        if digest:
            made = base64.urlsafe_b64encode(hashlib.sha256(files[one]).digest()).decode().rstrip("=")
            assert (digest, size) == (f"sha256={made}", str(len(files[one])))
    assert {
        "validator/__main__.py",
        "validator/shipped/matrix.yaml",
        f"{about}/entry_points.txt",
    } <= files.keys()
    assert not any("__pycache__" in one for one in files)
    setup = Path(__file__).parents[2] / "setup.py"
    assert f"SHIPPED = {SHIPPED!r}".replace("'", '"') in setup.read_text("utf-8")


def test_images_with_one_tag_are_not_bundled_together(tmp_path: Path) -> None:
    first, second = layout(tmp_path / "layout")
    with pytest.raises(InputError, match=f"two of the images have the tag {first.tag}"):
        write(tmp_path / "out", [first, replace(second, tag=first.tag)])
    assert not (tmp_path / "out").exists()


@pytest.mark.engine
def test_the_wheels_come_from_the_index_and_an_unreachable_one_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index: LocalIndex
) -> None:
    monkeypatch.setenv("VALIDATOR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(metadata, "requires", lambda _: ["one>=1", "two; extra == 'test'"])
    index.add_requiring("one", "1.5", "three")
    index.add_requiring("three", "3.0")
    images = layout(tmp_path / "layout")
    monkeypatch.setattr(bundle, "supported_pythons", lambda: ("3.11", "3.12"))
    write(tmp_path / "out", images, request=Request(index.sources))
    wheels = {path for path in document(tmp_path / "out")["files"] if path.startswith("tool/")}
    assert wheels == {
        "tool/one-1.5-py3-none-any.whl",
        "tool/three-3.0-py3-none-any.whl",
        "tool/tool-1-py3-none-any.whl",
    }
    nobody = PackageSources(index_url="http://127.0.0.1:9/simple")
    # uv would wait longer and longer between its attempts.
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    with pytest.raises(
        MissingError,
        match=r"this tool for Python 3\.11: can't be resolved: the package index can't be reached",
    ):
        write(tmp_path / "other", images, request=Request(nobody))
    del index.files["three-3.0-py3-none-any.whl"]
    with pytest.raises(InputError, match="three"):
        write(tmp_path / "other", images, request=Request(index.sources))
    assert not (tmp_path / "other" / "bundle.json").exists()
