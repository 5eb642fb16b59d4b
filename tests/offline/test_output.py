"""The file with the records of `./measure`: checked before measuring, and shared by several machines."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import pytest

from validator.offline import main as program

from .making import TAG, Layers, received


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a received bundle with an image of no layers."""
    return received(tmp_path, "# a probe", Layers(tmp_path / "images"))


@pytest.fixture
def run(place: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Return a function that measures on a machine with a name, and returns the digests that it measured."""
    measured: list[str] = []

    @contextlib.contextmanager
    def work(_: Path) -> Iterator[tuple[Path, IO[str]]]:
        with open(os.devnull, "w", encoding="utf-8") as cleaner:
            yield place, cleaner

    def by_command(_: Path, __: Any, image: Any, *___: Any) -> bytes:
        measured.append(image.digest)
        return json.dumps({"image": image.digest, "number": len(measured)}).encode() + b"\n"

    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(program, "_why_not", lambda *_: "")
    monkeypatch.setattr(program, "_work", work)
    monkeypatch.setattr(program, "_by_command", by_command)
    monkeypatch.setattr(sys, "argv", [str(place / "measure")])

    def run(*options: str, machine: str = "first", status: int = 0) -> list[str]:
        monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(nodename=machine))
        before = len(measured)
        assert program.main(["--with", "namespace", *options]) == status
        return measured[before:]

    return run


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("absent/m.jsonl", "No such file or directory"),
        ("file/m.jsonl", "Not a directory"),
        ("directory", "it is not a regular file"),
        ("link", "it is not a regular file"),
        ("pipe", "it is not a regular file"),
    ],
)
def test_an_output_that_can_not_be_written_is_refused_before_measuring(
    name: str, why: str, place: Path, run: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "directory").mkdir()
    (place / "file").write_bytes(b"")
    (place / "link").symlink_to("file")
    os.mkfifo(place / "pipe")
    assert run("--output", str(place / name), status=1) == []
    said = capsys.readouterr().err
    assert f"error: {place / name} can't be written: {why}" in said and "hint: with --output, name" in said
    # Neither needs it.
    assert run("--output", str(place / name), "--receive-only") == []
    assert run("--output", str(place / name), "--explain") == []


@pytest.mark.parametrize("named", [False, True])
def test_a_disk_that_is_carried_on_is_measured_on_each_machine_once(
    named: bool, place: Path, run: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    output = place / ("other.jsonl" if named else "measured.jsonl")
    options = ("--output", str(output)) if named else ()
    [digest] = run(*options, machine="first-host")
    assert run(*options, machine="second-host") == [digest]
    capsys.readouterr()
    for machine in ("first-host", "second-host"):
        assert run(*options, machine=machine) == []
        assert f"{TAG}: {output} has it already, measured on this machine" in capsys.readouterr().err
    assert [json.loads(line)["number"] for line in output.read_bytes().splitlines()] == [1, 2]
    # Whoever gets the disk does not learn the names of the machines.
    notes = (place / f".{output.name}.done").read_bytes()
    assert b"host" not in notes + output.read_bytes() and len(notes.splitlines()) == 2
    assert hashlib.sha256(digest.encode()).hexdigest().encode() not in notes
    # A file that was taken away is made again.
    output.unlink()
    assert run(*options, machine="first-host") == [digest]
