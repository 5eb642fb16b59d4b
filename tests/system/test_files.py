"""Files are written whole or not at all, and a full disk is reported as such."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from validator.errors import MissingError
from validator.system.files import full_disk_named, says_full_disk, write_atomically

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

    def fail(source: str, target: Path) -> None:
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

    def look(source: Path, target: Path) -> None:
        seen.append((Path(source).read_bytes(), path.read_bytes()))
        replace(source, target)

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


def test_a_symbolic_link_is_followed_and_not_replaced(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"old")
    link.symlink_to(target)
    write_atomically(link, b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"


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
def test_a_full_disk_is_reported_and_the_old_file_stays(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", "64k") as place:
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
