"""A directory of generated files is replaced as a whole; the user's own files in it stay."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from validator.errors import InputError
from validator.system import output_directory
from validator.system.files import replace_file
from validator.system.output_directory import Changes, update_directory

MARK = b"made here"


def files(text: str, *names: str) -> list[tuple[str, bytes]]:
    return [(name, MARK + b": " + text.encode()) for name in (*names, "index.html")]


def write(directory: Path, text: str, *names: str) -> Changes:
    return update_directory(directory, files(text, *names), entry="index.html", mark=MARK, folders=("data",))


def found(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}


def test_files_are_written_left_unchanged_and_removed(tmp_path: Path) -> None:
    site = tmp_path / "a" / "site"
    assert write(site, "1", "data/a.js", "data/b.js") == Changes(3, 0, 0)
    assert write(site, "1", "data/a.js") == Changes(0, 2, 1)
    assert found(site) == {"index.html", "data/a.js"}
    assert write(site, "2", "data/a.js") == Changes(2, 0, 0)
    assert (site / "index.html").read_bytes() == MARK + b": 2"


def test_an_unchanged_file_is_not_rewritten(tmp_path: Path) -> None:
    write(tmp_path, "1", "data/a.js")
    before = (tmp_path / "data" / "a.js").stat()
    write(tmp_path, "1", "data/a.js")
    assert (tmp_path / "data" / "a.js").stat().st_ino == before.st_ino


def test_the_user_s_own_files_stay(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for name in ("notes.txt", "data/other.js", "data/.hidden.0123456789abcdef"):
        (tmp_path / name).write_text("mine")
    write(tmp_path, "1", "data/a.js")
    write(tmp_path, "2")
    assert found(tmp_path) == {"notes.txt", "data/other.js", "data/.hidden.0123456789abcdef", "index.html"}


@pytest.mark.parametrize("name", ["index.html", "data/a.js"])
def test_a_file_of_the_user_s_with_a_generated_name_is_rejected(tmp_path: Path, name: str) -> None:
    write(tmp_path, "1", "data/a.js")
    (tmp_path / name).write_text("mine")
    with pytest.raises(InputError, match="was not written by this program"):
        write(tmp_path, "2", "data/a.js")
    assert (tmp_path / name).read_text() == "mine"
    if name != "index.html":
        assert (tmp_path / "index.html").read_bytes() == MARK + b": 1"


def test_an_entry_file_of_the_user_s_is_rejected_before_anything_is_written(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("mine")
    with pytest.raises(InputError):
        write(tmp_path, "1", "data/a.js")
    assert found(tmp_path) == {"index.html"}


def test_a_file_in_place_of_the_directory_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "site").write_text("")
    with pytest.raises(InputError, match="not a directory"):
        write(tmp_path / "site", "1")


@pytest.mark.parametrize("planted", ["", "data", "data/a.js", "index.html"])
@pytest.mark.parametrize("marked", [True, False])
def test_a_planted_link_is_neither_followed_nor_replaced(tmp_path: Path, planted: str, marked: bool) -> None:
    site, outside = tmp_path / "site", tmp_path / "outside"
    link = site / planted
    link.parent.mkdir(parents=True, exist_ok=True)
    if planted in ("", "data"):
        (outside / "data").mkdir(parents=True)
        for name in ("index.html", "a.js", "data/a.js", "old.js", "data/old.js"):
            (outside / name).write_bytes(MARK if marked else b"mine")
    else:
        outside.write_bytes(MARK if marked else b"mine")
    link.symlink_to(outside)
    before = {path: path.read_bytes() for path in [outside, *outside.rglob("*")] if path.is_file()}
    with pytest.raises(InputError, match="is a symbolic link"):
        write(site, "1", "data/a.js")
    assert link.is_symlink()
    assert {path: path.read_bytes() for path in [outside, *outside.rglob("*")] if path.is_file()} == before


def test_links_and_pipes_among_outdated_files_stay(tmp_path: Path) -> None:
    write(tmp_path / "site", "1", "data/a.js")
    (tmp_path / "outside.js").write_bytes(MARK)
    (tmp_path / "site" / "data" / "link.js").symlink_to(tmp_path / "outside.js")
    os.mkfifo(tmp_path / "site" / "data" / "pipe.js")
    assert write(tmp_path / "site", "2").removed == 1
    assert sorted(path.name for path in (tmp_path / "site" / "data").iterdir()) == ["link.js", "pipe.js"]
    assert (tmp_path / "outside.js").read_bytes() == MARK


def test_a_failure_halfway_leaves_the_old_entry(tmp_path: Path) -> None:
    write(tmp_path, "1", "data/a.js")

    def fails_at_the_end() -> Iterator[tuple[str, bytes]]:
        yield "data/b.js", MARK
        yield "index.html", MARK + b": 2"
        raise RuntimeError("halfway")

    with pytest.raises(RuntimeError):
        update_directory(tmp_path, fails_at_the_end(), entry="index.html", mark=MARK, folders=("data",))
    assert (tmp_path / "index.html").read_bytes() == MARK + b": 1"
    assert (tmp_path / "data" / "a.js").exists()
    write(tmp_path, "3", "data/a.js")
    assert found(tmp_path) == {"index.html", "data/a.js"}


def test_the_entry_is_written_when_all_others_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    replace = replace_file

    def remembering(directory: int, name: str, content: bytes) -> None:
        replace(directory, name, content)
        written.append(name)

    monkeypatch.setattr(output_directory, "replace_file", remembering)
    others = [f"data/{number}.js" for number in range(100)]
    made = files("1", *others)
    # The entry's place among the files does not matter.
    changes = update_directory(
        tmp_path, made[-1:] + made[:-1], entry="index.html", mark=MARK, folders=("data",)
    )
    assert changes == Changes(101, 0, 0)
    assert (written[-1], len(written)) == ("index.html", 101)
    assert found(tmp_path) == {"index.html", *others}


_KILLED = """
import sys
from pathlib import Path
from validator.system import output_directory
def slow():
    for number in range(10**6):
        yield f"data/{number}.js", b"made here"
        print(number, flush=True)
output_directory.update_directory(
    Path(sys.argv[1]), slow(), entry="index.html", mark=b"made here", folders=("data",)
)
"""


@pytest.mark.slow
def test_a_killed_process_leaves_the_old_page_and_the_next_one_cleans_up(tmp_path: Path) -> None:
    write(tmp_path, "1", "data/a.js")
    process = subprocess.Popen([sys.executable, "-c", _KILLED, str(tmp_path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"0\n", "the process wrote nothing"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert (tmp_path / "index.html").read_bytes() == MARK + b": 1"
    assert (tmp_path / "data" / "a.js").exists()
    # The temporary file of a `write_atomically` that was killed before it could rename it.
    (tmp_path / "data" / ".b.js.0123456789abcdef").write_bytes(MARK[:3])
    (tmp_path / "data" / ".no-more.js.0123456789abcdef").write_bytes(b"")
    (tmp_path / "data" / ".mine.js.0123456789abcdef").write_bytes(b"mine")
    write(tmp_path, "2", "data/b.js")
    assert found(tmp_path) == {"index.html", "data/b.js", "data/.mine.js.0123456789abcdef"}


def test_two_updates_at_once_wait_for_each_other(tmp_path: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow() -> Iterator[tuple[str, bytes]]:
        yield "data/a.js", MARK
        begun.set()
        assert go_on.wait(30)
        yield "index.html", MARK + b": 1"

    def first() -> None:
        update_directory(tmp_path, slow(), entry="index.html", mark=MARK, folders=("data",))

    threads = [threading.Thread(target=first), threading.Thread(target=write, args=(tmp_path, "2"))]
    threads[0].start()
    assert begun.wait(30)
    threads[1].start()
    threads[1].join(0.2)
    assert threads[1].is_alive()
    assert not (tmp_path / "index.html").exists()
    go_on.set()
    for thread in threads:
        thread.join(30)
    assert (tmp_path / "index.html").read_bytes() == MARK + b": 2"
    assert found(tmp_path) == {"index.html"}


def test_a_generated_file_without_the_mark_is_a_bug(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has no mark"):
        update_directory(tmp_path, [("index.html", b"x")], entry="index.html", mark=MARK, folders=())
