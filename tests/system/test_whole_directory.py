"""A directory is there as a whole or not at all, whatever ends the program that writes it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from validator.errors import InputError, MissingError
from validator.system.output_directory import whole_directory

#: Writes one file, says so, and waits for its end.
HALF = """\
import sys, time
from pathlib import Path
from validator.system.output_directory import whole_directory
with whole_directory(Path(sys.argv[1]), lambda _: None) as place:
    (place / "half").write_text("half")
    print("writing", flush=True)
    time.sleep(600)
"""


def write(path: Path, text: str = "new") -> None:
    with whole_directory(path, lambda _: None) as place:
        (place / "file").write_text(text)


def names(path: Path) -> list[str]:
    return sorted(os.listdir(path))


def test_it_appears_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b"
    with whole_directory(path, lambda _: None) as place:
        (place / "file").write_text("new")
        assert not path.exists()
    assert (path / "file").read_text() == "new"
    assert names(path.parent) == ["b"]
    assert path.stat().st_mode == path.parent.stat().st_mode


def test_an_empty_directory_is_filled_without_asking(tmp_path: Path) -> None:
    def never(_: Path) -> None:
        raise AssertionError

    path = tmp_path / "there"
    path.mkdir()
    with whole_directory(path, never) as place:
        (place / "file").touch()
    assert names(path) == ["file"]


def test_an_older_one_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "there"
    write(path)
    (path / "older").touch()
    with whole_directory(path, lambda _: None) as place:
        (place / "file").touch()
        assert names(path) == ["file", "older"]
    assert names(path) == ["file"]
    assert names(tmp_path) == ["there"]


def test_an_error_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "there"
    write(path)
    with pytest.raises(KeyError), whole_directory(path, lambda _: None) as place:
        (place / "file").write_text("half")
        raise KeyError
    assert (path / "file").read_text() == "new"
    assert names(tmp_path) == ["there"]


def test_what_may_not_be_replaced_stays_also_if_it_came_meanwhile(tmp_path: Path) -> None:
    def refuse(path: Path) -> None:
        raise InputError(f"{path}: no")

    path = tmp_path / "there"
    with pytest.raises(InputError, match="no"), whole_directory(path, refuse):
        path.mkdir()
        (path / "mine").touch()
    assert names(path) == ["mine"]
    with pytest.raises(InputError, match="no"), whole_directory(path, refuse):
        raise AssertionError
    assert names(tmp_path) == ["there"]


def test_a_link_and_a_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="not a directory"):
        write(tmp_path / "file")
    with pytest.raises(InputError, match="symbolic link"):
        write(tmp_path / "link")
    assert names(tmp_path) == ["file", "link"]


def test_a_directory_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "file" / "a", tmp_path / "file" / "a" / "b"):
        with pytest.raises(InputError, match=f"{path.parent}: not a directory"):
            write(path)


def test_a_failed_rename_brings_the_older_one_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "there"
    write(path, "old")
    rename = os.rename

    def fail_for_the_new_one(source: Path, target: Path) -> None:
        if source.name == "new":
            raise PermissionError(13, "Permission denied")
        rename(source, target)

    with monkeypatch.context() as patch, pytest.raises(MissingError, match="Permission denied"):
        patch.setattr(os, "rename", fail_for_the_new_one)
        write(path)
    assert (path / "file").read_text() == "old"


@pytest.mark.slow
def test_a_killed_process_leaves_nothing_at_the_path_and_the_next_one_cleans_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = tmp_path / "place" / "there"
    with subprocess.Popen(
        [sys.executable, "-c", HALF, str(path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "writing\n"
        process.send_signal(signal.SIGKILL)
    assert not path.exists()
    [left] = names(path.parent)
    assert left.startswith("validator-export-")
    write(path)
    assert names(path.parent) == ["there"]
