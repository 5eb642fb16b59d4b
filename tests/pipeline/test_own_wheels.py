"""The lock of an image whose TensorFlow has an address: what is secret in that stays out of it."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from validator.assemble.wheels import Wheelhouse, ensure_lock
from validator.cli import planning
from validator.compat import releases
from validator.compat.policies import requirements
from validator.errors import MissingError
from validator.locks import lock_files
from validator.locks.lock_files import LockDirectory, mismatches, parse, path_of, render
from validator.locks.resolve import PLATFORM
from validator.model.spec import ImageSpec, Lock, Wheel
from validator.system import package_sources
from validator.system.http import basic
from validator.system.package_sources import PackageSources

from ..locks.local_index import LocalIndex, running
from ..supply import own_wheel_files as made

NAME, CONTENT = made.file_name(), made.content()
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def index() -> Iterator[LocalIndex]:
    with running() as index:
        index.add(NAME, content=CONTENT)
        yield index


@pytest.fixture
def spec(tmp_path: Path, index: LocalIndex, monkeypatch: pytest.MonkeyPatch) -> ImageSpec:
    monkeypatch.setenv("VALIDATOR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(releases, "_OWN", {})
    monkeypatch.setattr(package_sources, "host_sources", PackageSources)
    where = f"http://ours:hunter2@127.0.0.1:{index.port}/files/{NAME}?token=s3cret#sha256={SHA256}"
    (tmp_path / "matrix.yaml").write_text(
        f'images: [{{tensorflow: "{where}", python: "3.12"}}]\n'
        'hosts: [{driver: "580", gpu: h100}]\nprofiles: {quick: {}}\n'
    )
    [spec] = planning.images_of(tmp_path / "matrix.yaml").values()
    return spec


def lock_of(spec: ImageSpec) -> Lock:
    """Return the lock as uv would resolve it: the wheel, and the pins of what it needs."""
    origin = releases.origin_of(spec.tensorflow)
    assert origin is not None
    pins = dict(line.split("==") for line in requirements(spec) if "==" in line) | {"pip": "26.0"}
    others = (
        Wheel(name, version, "0" * 64, f"{name}-{version}-py3-none-any.whl") for name, version in pins.items()
    )
    wheels = (*others, replace(origin, size=len(CONTENT)))
    return Lock(spec.identifier, spec.python, PLATFORM, requirements(spec), tuple(wheels))


def test_a_lock_has_no_secrets_and_the_download_uses_them(
    spec: ImageSpec, tmp_path: Path, index: LocalIndex
) -> None:
    locks = LockDirectory(tmp_path / "locks")
    lock_files.write(locks.own, lock_of(spec))
    text = path_of(locks.own, spec.identifier).read_text()
    assert f"http://127.0.0.1:{index.port}/files/{NAME}" in text
    assert "hunter2" not in text and "s3cret" not in text
    found = ensure_lock(locks, spec, PackageSources(), lambda _: None)
    origin = f"http://127.0.0.1:{index.port}/files/{NAME}#sha256={SHA256}"
    assert (found.why, found.lock.own_origin) == ("kept", origin)
    assert render(found.lock) == text and "hunter2" not in repr(found)
    [wheel] = [one for one in found.lock.wheels if one.path]
    (tmp_path / "cache" / "wheels" / f"{SHA256}.whl").unlink()
    index.asked.clear()
    index.logins.clear()
    with contextlib.closing(Wheelhouse(PackageSources())) as house:
        assert house.missing([wheel]) == [wheel]
        assert house.path(wheel).read_bytes() == CONTENT
    assert [path for path, _ in index.asked] == [f"/files/{NAME}?token=s3cret"]
    assert index.logins == [basic("ours:hunter2")]


def test_without_the_matrix_the_place_in_the_lock_is_asked(
    spec: ImageSpec, tmp_path: Path, index: LocalIndex
) -> None:
    wheel = parse(render(lock_of(spec))).own_tensorflow
    assert wheel is not None and wheel.address is None
    (tmp_path / "cache" / "wheels" / f"{SHA256}.whl").unlink()
    index.files.clear()
    with (
        contextlib.closing(Wheelhouse(PackageSources())) as house,
        pytest.raises(MissingError, match="its server does not have this file"),
    ):
        house.path(wheel)


def test_another_wheel_makes_the_lock_stale(spec: ImageSpec, tmp_path: Path) -> None:
    lock = lock_of(spec)
    moved = replace(
        lock, requirements=tuple(line.replace("/files/", "/moved/") for line in lock.requirements)
    )
    assert mismatches(lock, spec, requirements(spec)) == []
    assert len(mismatches(moved, spec, requirements(spec))) == 2
