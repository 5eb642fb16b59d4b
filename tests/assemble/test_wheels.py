"""The cache of wheels: downloads, verification, eviction, and several users at once."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from validator.assemble.wheels import Wheelhouse
from validator.errors import InputError, MissingError
from validator.model.spec import Wheel

from ..locks.local_index import LocalIndex
from ..support import small_disk
from .wheels import Archive, with_metadata

#: Uses a wheel in another process until its stdin is closed.
USER = """
import sys
from pathlib import Path
from validator.assemble.wheels import Wheelhouse
from validator.model.spec import Wheel
from validator.system.package_sources import PackageSources
index, directory, name, sha256, filename, size = sys.argv[1:]
house = Wheelhouse(PackageSources(index_url=index), Path(directory))
print(house.path(Wheel(name, "1.0", sha256, filename, int(size))), flush=True)
sys.stdin.read()
"""


def added(index: LocalIndex, name: str, content: bytes) -> Wheel:
    """Add a wheel to the index and return its row in a lock."""
    filename = f"{name}-1.0-py3-none-any.whl"
    index.add(filename, content=content)
    return Wheel(name, "1.0", hashlib.sha256(content).hexdigest(), filename, len(content))


def cached(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def user(index: LocalIndex, directory: Path, wheel: Wheel) -> subprocess.Popen[str]:
    address = str(index.sources.index_url)
    words = [address, str(directory), wheel.name, wheel.sha256, wheel.filename, str(wheel.size)]
    return subprocess.Popen(
        [sys.executable, "-c", USER, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def test_a_wheel_is_downloaded_once(index: LocalIndex, tmp_path: Path) -> None:
    wheel = added(index, "demo", b"content")
    first = Wheelhouse(index.sources, tmp_path).path(wheel)
    assert first.read_bytes() == b"content"
    house = Wheelhouse(index.sources, tmp_path)
    assert house.path(wheel) == house.path(wheel) == first
    assert len(index.downloads()) == 1
    assert cached(tmp_path) == {f"{wheel.sha256}.whl"}


def test_a_wheel_is_kept_in_the_cache_directory(
    index: LocalIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VALIDATOR_CACHE", str(tmp_path / "cache"))
    wheel = added(index, "demo", b"content")
    assert Wheelhouse(index.sources).path(wheel) == tmp_path / "cache/wheels" / f"{wheel.sha256}.whl"


def test_a_wheel_whose_content_changed_is_downloaded_again(index: LocalIndex, tmp_path: Path) -> None:
    wheel = added(index, "demo", b"content")
    path = Wheelhouse(index.sources, tmp_path).path(wheel)
    path.write_bytes(b"c0ntent")
    assert Wheelhouse(index.sources, tmp_path).path(wheel).read_bytes() == b"content"
    assert len(index.downloads()) == 2


REAL = Archive(with_metadata({"example/__init__.py": b"1\n"})).render()


def test_a_wheel_is_downloaded_once_and_opened_several_times(index: LocalIndex, tmp_path: Path) -> None:
    wheel = added(index, "example", REAL)
    for downloads in (1, 1):
        house = Wheelhouse(index.sources, tmp_path)
        with house.open(wheel) as opened, house.open(wheel) as again:
            assert b"".join(opened.members["example/__init__.py"].chunks()) == b"1\n"
            assert again.members.keys() == opened.members.keys()
        assert len(index.downloads()) == downloads


def test_an_open_wheel_is_not_evicted(index: LocalIndex, tmp_path: Path) -> None:
    wheel, other = added(index, "example", REAL), added(index, "demo", b"content")
    Wheelhouse(index.sources, tmp_path).path(wheel)
    house = Wheelhouse(index.sources, tmp_path, most_bytes=1)
    house.open(wheel).close()
    Wheelhouse(index.sources, tmp_path, most_bytes=1).path(other)
    assert f"{wheel.sha256}.whl" in cached(tmp_path)
    house.close()
    Wheelhouse(index.sources, tmp_path, most_bytes=1).path(added(index, "last", b"another"))
    assert f"{wheel.sha256}.whl" not in cached(tmp_path)


@pytest.mark.parametrize("content", [REAL[:-1] + b"\1", REAL[:-1], b"", b"no archive"])
def test_a_wheel_that_changed_is_downloaded_again_before_it_is_opened(
    index: LocalIndex, tmp_path: Path, content: bytes
) -> None:
    wheel = added(index, "example", REAL)
    Wheelhouse(index.sources, tmp_path).path(wheel).write_bytes(content)
    with Wheelhouse(index.sources, tmp_path).open(wheel) as opened:
        assert opened.path.read_bytes() == REAL
    assert len(index.downloads()) == 2


def test_a_cache_that_cannot_be_used_is_an_error_that_holds_nothing(
    index: LocalIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    def held() -> list[str]:
        """Return the files of the cache that this process has open."""
        found = []
        for number in os.listdir("/proc/self/fd"):
            with contextlib.suppress(FileNotFoundError):
                found.append(os.readlink(f"/proc/self/fd/{number}"))
        return [path for path in found if path.startswith(str(tmp_path))]

    wheel = added(index, "example", REAL)
    with contextlib.closing(Wheelhouse(index.sources, tmp_path)) as first:
        first.path(wheel)
        assert held()
    house = Wheelhouse(index.sources, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "utime", refuse)
        for use in (house.open, house.path):
            with pytest.raises(MissingError, match="wheels can't be stored here"):
                use(wheel)
    assert held() == []


def test_a_wheel_that_no_image_may_contain_can_be_evicted(index: LocalIndex, tmp_path: Path) -> None:
    refused = added(index, "example", Archive(with_metadata({"a/../../b": b""})).render())
    Wheelhouse(index.sources, tmp_path).path(refused)
    house = Wheelhouse(index.sources, tmp_path)
    with pytest.raises(InputError, match="can't be put into an image"):
        house.open(refused)
    Wheelhouse(index.sources, tmp_path, most_bytes=1).path(added(index, "demo", b"content"))
    assert f"{refused.sha256}.whl" not in cached(tmp_path)


def test_a_lock_whose_wheel_is_gone_is_an_error_that_leaves_nothing(
    index: LocalIndex, tmp_path: Path
) -> None:
    wheel = added(index, "demo", b"content")
    index.files.pop(wheel.filename)
    with pytest.raises(MissingError, match=f"the package index does not have {wheel.filename}"):
        Wheelhouse(index.sources, tmp_path).path(wheel)
    assert not list(tmp_path.glob("*.whl"))


def test_a_wheel_with_another_content_than_the_lock_says_is_an_error(
    index: LocalIndex, tmp_path: Path
) -> None:
    wheel = added(index, "demo", b"content")
    index.hashes[wheel.filename] = wheel.sha256
    index.add(wheel.filename, content=b"changed")
    with pytest.raises(MissingError, match="its SHA-256 is"):
        Wheelhouse(index.sources, tmp_path).path(wheel)
    assert cached(tmp_path) == set()


def test_wheels_are_fetched_at_once_with_progress(index: LocalIndex, tmp_path: Path) -> None:
    wheels = [added(index, f"demo{number}", bytes([number]) * 1_000_000) for number in range(6)]
    house = Wheelhouse(index.sources, tmp_path)
    house.path(wheels[0])
    assert house.missing(wheels) == wheels[1:]
    reports: list[str] = []
    house.fetch([*wheels, wheels[1]], reports.append)
    assert house.missing(wheels) == []
    assert len(index.downloads()) == 6
    assert reports[0] == "downloading 5 wheels: 0 of 5 MB"


def test_the_least_recently_used_wheels_are_evicted_beyond_the_limit(
    index: LocalIndex, tmp_path: Path
) -> None:
    one, two, three, four = (added(index, name, name.encode() * 1000) for name in ("w1", "w2", "w3", "w4"))
    for age, wheel in ((30, one), (20, two), (10, three)):
        path = Wheelhouse(index.sources, tmp_path).path(wheel)
        os.utime(path, (time.time() - age, path.stat().st_mtime))
    user = Wheelhouse(index.sources, tmp_path, most_bytes=6000)
    user.path(one)
    user.path(four)
    assert cached(tmp_path) == {f"{wheel.sha256}.whl" for wheel in (one, three, four)}


@pytest.mark.slow
def test_wheels_in_use_by_another_process_are_not_evicted(index: LocalIndex, tmp_path: Path) -> None:
    one, two, three = (added(index, name, name.encode() * 1000) for name in ("w1", "w2", "w3"))
    with user(index, tmp_path, one) as other:
        assert other.stdout is not None and other.stdout.readline()
        small = Wheelhouse(index.sources, tmp_path, most_bytes=1)
        small.path(two)
        small.close()
        small.path(three)
        assert cached(tmp_path) == {f"{wheel.sha256}.whl" for wheel in (one, three)}
        other.kill()
    small.close()
    small.path(two)
    assert cached(tmp_path) == {f"{two.sha256}.whl"}


@pytest.mark.slow
def test_several_processes_download_a_wheel_once(index: LocalIndex, tmp_path: Path) -> None:
    wheel = added(index, "demo", b"x" * 20_000_000)
    users = [user(index, tmp_path, wheel) for _ in range(3)]
    outputs = [one.communicate(timeout=300)[0] for one in users]
    assert outputs == [f"{tmp_path / wheel.sha256}.whl\n"] * 3
    assert len(index.downloads()) == 1
    assert cached(tmp_path) == {f"{wheel.sha256}.whl"}


@pytest.mark.slow
def test_a_wheel_that_another_process_finished_and_uses_is_not_waited_for(
    index: LocalIndex, tmp_path: Path
) -> None:
    wheel = added(index, "demo", b"content")
    path = tmp_path / f"{wheel.sha256}.whl"
    partial = path.with_name(f"{path.name}.partial")
    partial.write_bytes(b"content")
    with partial.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with user(index, tmp_path, wheel) as other:
            time.sleep(1.5)
            partial.rename(path)
            fcntl.flock(file, fcntl.LOCK_SH)
            assert other.communicate(timeout=60)[0] == f"{path}\n"
    assert index.downloads() == []


@pytest.mark.slow
def test_a_download_goes_on_after_its_process_was_killed(index: LocalIndex, tmp_path: Path) -> None:
    wheel = added(index, "demo", bytes(range(256)) * 40_000)
    index.stall = 4_000_000
    partial = tmp_path / f"{wheel.sha256}.whl.partial"
    with user(index, tmp_path, wheel) as other:
        deadline = time.monotonic() + 30
        while not (partial.exists() and partial.stat().st_size > 0):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        other.send_signal(signal.SIGKILL)
    there = partial.stat().st_size
    assert 0 < there < 4_000_001
    assert Wheelhouse(index.sources, tmp_path).path(wheel).read_bytes() == bytes(range(256)) * 40_000
    assert index.downloads()[1:] == [(wheel.filename, f"bytes={there}-")]


@pytest.mark.service
def test_a_full_disk_is_an_error_and_the_download_can_go_on(index: LocalIndex) -> None:
    wheel = added(index, "demo", b"x" * 3_000_000)
    with small_disk("2m") as place:
        with pytest.raises(MissingError, match="no space left on the disk"):
            Wheelhouse(index.sources, place).path(wheel)
        assert not list(place.glob("*.whl"))


@pytest.mark.service
def test_a_full_disk_makes_room_by_eviction(index: LocalIndex) -> None:
    one, two = (added(index, name, name.encode() * 700_000) for name in ("w1", "w2"))
    with small_disk("2m") as place:
        Wheelhouse(index.sources, place).path(one)
        Wheelhouse(index.sources, place).path(two)
        assert cached(place) == {f"{two.sha256}.whl"}


def test_a_directory_that_cannot_be_written_is_an_error(index: LocalIndex, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MissingError, match="wheels can't be stored here") as caught:
        Wheelhouse(index.sources, tmp_path / "file").path(added(index, "demo", b"content"))
    assert "VALIDATOR_CACHE" in str(caught.value.hint)
