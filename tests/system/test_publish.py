"""A directory of files that is replaced as a whole, beside files of other people."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from validator.errors import InputError
from validator.system.output_directory import Published, publish

MARK = b"made here"


def files(text: str, *names: str) -> list[tuple[str, bytes]]:
    return [(name, MARK + b": " + text.encode()) for name in (*names, "index.html")]


def write(directory: Path, text: str, *names: str) -> Published:
    return publish(directory, files(text, *names), entry="index.html", mark=MARK, folders=("data",))


def found(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}


def test_files_are_written_kept_and_removed(tmp_path: Path) -> None:
    site = tmp_path / "a" / "site"
    assert write(site, "1", "data/a.js", "data/b.js") == Published(3, 0, 0)
    assert write(site, "1", "data/a.js") == Published(0, 2, 1)
    assert found(site) == {"index.html", "data/a.js"}
    assert write(site, "2", "data/a.js") == Published(2, 0, 0)
    assert (site / "index.html").read_bytes() == MARK + b": 2"


def test_what_is_unchanged_is_not_touched(tmp_path: Path) -> None:
    write(tmp_path, "1", "data/a.js")
    before = (tmp_path / "data" / "a.js").stat()
    write(tmp_path, "1", "data/a.js")
    assert (tmp_path / "data" / "a.js").stat().st_ino == before.st_ino


def test_files_of_others_stay(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for name in ("notes.txt", "data/other.js", "data/.hidden.0123456789abcdef"):
        (tmp_path / name).write_text("mine")
    write(tmp_path, "1", "data/a.js")
    write(tmp_path, "2")
    assert found(tmp_path) == {"notes.txt", "data/other.js", "data/.hidden.0123456789abcdef", "index.html"}


@pytest.mark.parametrize("name", ["index.html", "data/a.js"])
def test_a_file_of_another_under_our_name_is_refused(tmp_path: Path, name: str) -> None:
    write(tmp_path, "1", "data/a.js")
    (tmp_path / name).write_text("mine")
    with pytest.raises(InputError, match="was not written by this program"):
        write(tmp_path, "2", "data/a.js")
    assert (tmp_path / name).read_text() == "mine"
    if name != "index.html":
        assert (tmp_path / "index.html").read_bytes() == MARK + b": 1"


def test_a_foreign_entry_is_seen_before_anything_is_written(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("mine")
    with pytest.raises(InputError):
        write(tmp_path, "1", "data/a.js")
    assert found(tmp_path) == {"index.html"}


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "site").write_text("")
    with pytest.raises(InputError, match="is no directory"):
        write(tmp_path / "site", "1")


def test_a_failure_half_way_leaves_the_old_entry(tmp_path: Path) -> None:
    write(tmp_path, "1", "data/a.js")

    def breaking() -> Iterator[tuple[str, bytes]]:
        yield "data/b.js", MARK
        yield "index.html", MARK + b": 2"
        raise RuntimeError("half-way")

    with pytest.raises(RuntimeError):
        publish(tmp_path, breaking(), entry="index.html", mark=MARK, folders=("data",))
    assert (tmp_path / "index.html").read_bytes() == MARK + b": 1"
    assert (tmp_path / "data" / "a.js").exists()
    write(tmp_path, "3", "data/a.js")
    assert found(tmp_path) == {"index.html", "data/a.js"}


_KILLED = """
import sys
from pathlib import Path
from validator.system import files, publish
def slow():
    for number in range(10**6):
        yield f"data/{number}.js", b"made here"
        print(number, flush=True)
publish.publish(Path(sys.argv[1]), slow(), entry="index.html", mark=b"made here", folders=("data",))
"""


def test_a_killed_process_leaves_the_old_page_and_the_next_one_cleans_up(tmp_path: Path) -> None:
    write(tmp_path, "1", "data/a.js")
    process = subprocess.Popen([sys.executable, "-c", _KILLED, str(tmp_path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert (tmp_path / "index.html").read_bytes() == MARK + b": 1"
    assert (tmp_path / "data" / "a.js").exists()
    # As `write_atomically` leaves it when it is killed before it renames.
    (tmp_path / "data" / ".b.js.0123456789abcdef").write_bytes(MARK[:3])
    (tmp_path / "data" / ".no-more.js.0123456789abcdef").write_bytes(b"")
    (tmp_path / "data" / ".mine.js.0123456789abcdef").write_bytes(b"mine")
    write(tmp_path, "2", "data/b.js")
    assert found(tmp_path) == {"index.html", "data/b.js", "data/.mine.js.0123456789abcdef"}


def test_two_at_once_wait_for_each_other(tmp_path: Path) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow() -> Iterator[tuple[str, bytes]]:
        yield "data/a.js", MARK
        begun.set()
        assert go_on.wait(30)
        yield "index.html", MARK + b": 1"

    def first() -> None:
        publish(tmp_path, slow(), entry="index.html", mark=MARK, folders=("data",))

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


def test_a_file_without_the_mark_is_a_fault_of_the_program(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has no mark"):
        publish(tmp_path, [("index.html", b"x")], entry="index.html", mark=MARK, folders=())
