"""Files are written whole or not at all, and a full disk is reported as such."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from validator.errors import InputError, MissingError
from validator.system.files import cache_directory, full_disk_named, says_full_disk, write_atomically

from ..support import small_disk


def test_a_file_is_written_with_the_usual_permissions(tmp_path: Path) -> None:
    path = tmp_path / "deeper" / "file"
    write_atomically(path, b"one")
    write_atomically(path, b"two")
    assert path.read_bytes() == b"two"
    plain = tmp_path / "plain"
    plain.write_bytes(b"")
    assert path.stat().st_mode == plain.stat().st_mode
    assert list(path.parent.iterdir()) == [path]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def fail(source: str, target: str, **_: int) -> None:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(MissingError, match="can't be written: broken"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_target_is_complete_at_every_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")
    seen: list[tuple[bytes, bytes]] = []
    replace = os.replace

    def look(source: str, target: str, **directories: int) -> None:
        seen.append(((tmp_path / source).read_bytes(), path.read_bytes()))
        replace(source, target, **directories)

    monkeypatch.setattr(os, "replace", look)
    write_atomically(path, b"new")
    assert (seen, path.read_bytes()) == ([(b"new", b"old")], b"new")


def test_the_umask_is_respected_and_not_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.umask(0o077)
    try:
        with monkeypatch.context() as patch:
            # The umask belongs to the process: a thread that sets it changes the files of all others.
            patch.setattr(os, "umask", lambda mask: pytest.fail("the umask was set"))
            write_atomically(tmp_path / "file", b"")
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_atomically(pipe, b"content")
    assert os.read(reader, 100) == b"content"
    os.close(reader)
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]


@pytest.mark.parametrize("exists", [True, False])
def test_a_symbolic_link_is_neither_followed_nor_replaced(tmp_path: Path, exists: bool) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    if exists:
        target.write_bytes(b"old")
    link.symlink_to(target)
    with pytest.raises(InputError, match="link: is a symbolic link"):
        write_atomically(link, b"new")
    assert link.is_symlink()
    assert (target.read_bytes() == b"old") if exists else not target.exists()


def test_the_directory_that_the_user_names_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    write_atomically(tmp_path / "link" / "file", b"content")
    assert (tmp_path / "real" / "file").read_bytes() == b"content"


def test_a_link_that_takes_the_place_of_the_file_at_the_last_moment_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, target = tmp_path / "file", tmp_path / "target"
    target.write_bytes(b"old")
    replace = os.replace

    def plant(source: str, name: str, **directories: int) -> None:
        path.symlink_to(target)
        replace(source, name, **directories)

    monkeypatch.setattr(os, "replace", plant)
    write_atomically(path, b"new")
    assert (path.is_symlink(), path.read_bytes(), target.read_bytes()) == (False, b"new", b"old")


@pytest.mark.slow
def test_standard_output_is_written_to_by_its_name(tmp_path: Path) -> None:
    program = "from pathlib import Path; from validator.system.files import write_atomically as write"
    program += "; write(Path('/dev/stdout'), b'content')"
    with open(tmp_path / "redirected", "wb") as file:
        subprocess.run([sys.executable, "-c", program], check=True, stdout=file)
    assert (tmp_path / "redirected").read_bytes() == b"content"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    assert done.stdout == b"content"


@pytest.mark.parametrize("place", [".", "/proc/nowhere/file", "file/below"])
def test_a_path_that_can_not_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(MissingError, match="can't be written") as caught:
        write_atomically(Path(place), b"")
    assert str(caught.value).startswith(f"{place}: ")
    assert caught.value.hint


@pytest.mark.service
def test_a_full_disk_is_reported_and_the_old_file_stays() -> None:
    with small_disk("64k") as place:
        path = place / "file"
        write_atomically(path, b"old")
        with pytest.raises(MissingError, match="no space left on the disk that holds"):
            write_atomically(path, b"x" * 200_000)
        assert path.read_bytes() == b"old"
        assert list(place.iterdir()) == [path]


def test_other_errors_are_not_taken_for_a_full_disk(tmp_path: Path) -> None:
    with pytest.raises(PermissionError), full_disk_named(tmp_path):
        raise PermissionError(errno.EACCES, "no")


def test_the_messages_of_tools_about_a_full_disk_are_recognized() -> None:
    assert says_full_disk("write /x: no space left on device")
    assert says_full_disk("sqlite3.OperationalError: database or disk is full")
    assert not says_full_disk("disk quota is fine")


def test_a_user_without_a_home_is_told_to_set_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", none)
    for name in ("VALIDATOR_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(MissingError, match="this user has no home directory") as caught:
        cache_directory()
    assert "set HOME" in (caught.value.hint or "")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert cache_directory() == Path("/somewhere/tensorflow-gpu-matrix")
