from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tests.support import small_disk
from validator.errors import MissingError
from validator.system.files import full_disk_named, says_full_disk, write_atomically


def test_a_file_is_written_whole_with_usual_permissions(tmp_path: Path) -> None:
    path = tmp_path / "deeper" / "file"
    write_atomically(path, b"one")
    write_atomically(path, b"two")
    assert path.read_bytes() == b"two"
    plain = tmp_path / "plain"
    plain.write_bytes(b"")
    assert path.stat().st_mode == plain.stat().st_mode
    assert list(path.parent.iterdir()) == [path]


def test_a_failure_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def fail(source: str, target: Path) -> None:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(MissingError, match="can.t be written: broken"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_named_and_keeps_the_old_file(tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", "64k") as place:
        path = place / "file"
        write_atomically(path, b"old")
        with pytest.raises(MissingError, match="no space left on the disk that holds"):
            write_atomically(path, b"x" * 200_000)
        assert path.read_bytes() == b"old"
        assert list(place.iterdir()) == [path]


def test_other_faults_are_not_taken_for_a_full_disk(tmp_path: Path) -> None:
    with pytest.raises(PermissionError), full_disk_named(tmp_path):
        raise PermissionError(errno.EACCES, "no")


def test_tools_say_it_in_several_ways() -> None:
    assert says_full_disk("write /x: no space left on device")
    assert says_full_disk("sqlite3.OperationalError: database or disk is full")
    assert not says_full_disk("disk quota is fine")
