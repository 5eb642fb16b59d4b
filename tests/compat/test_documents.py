"""The project's own data files are read as PyYAML reads them, with libyaml and without, and parsed once."""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import validator
from validator.compat import facts

FILES = sorted(Path(validator.__file__).parent.rglob("data/**/*.yaml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_says_the_same_without_libyaml(path: Path) -> None:
    # As text, so that 1, 1.0 and true are three things.
    assert repr(facts.read(path)) == repr(yaml.safe_load(path.read_bytes()))


def test_what_is_no_yaml_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "data.yaml"
    path.write_text("a: [1\n")
    with pytest.raises(yaml.YAMLError):
        facts.read(path)


@pytest.fixture
def bytecode(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The directory in which Python keeps what it has compiled."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path / "bytecode"))
    return tmp_path / "bytecode"


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """All that is parsed, in turn."""
    seen: list[bytes] = []
    parse: Callable[[bytes], Any] = facts._parsed

    def spy(source: bytes) -> Any:
        seen.append(source)
        return parse(source)

    monkeypatch.setattr(facts, "_parsed", spy)
    return seen


def kept(bytecode: Path) -> list[Path]:
    return [path for path in bytecode.rglob("*") if path.is_file()]


@pytest.mark.usefixtures("bytecode")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_is_parsed_once_and_says_the_same_again(path: Path, parsed: list[bytes]) -> None:
    first = facts.read(path)
    again = facts.read(path)
    assert parsed == [path.read_bytes()]
    assert repr(again) == repr(first)
    assert again is not first


def test_a_file_that_has_changed_is_parsed_anew(bytecode: Path, parsed: list[bytes], tmp_path: Path) -> None:
    path = tmp_path / "data.yaml"
    for content in ("a: 1\n", "a: 2\n", "a: 1\n"):
        path.write_text(content)
        assert facts.read(path) == yaml.safe_load(content)
    assert len(parsed) == 3
    assert len(kept(bytecode)) == 1


@pytest.mark.parametrize("garbage", [b"", b"no marshal", b"i\x01\0\0\0", b"N", b"\xe9\0\0\0\0"], ids=repr)
def test_what_was_kept_and_is_spoilt_is_not_taken(garbage: bytes, bytecode: Path, tmp_path: Path) -> None:
    path = tmp_path / "data.yaml"
    path.write_text("a: 1\n")
    facts.read(path)
    (file,) = kept(bytecode)
    assert file.read_bytes() != garbage
    file.write_bytes(garbage)
    assert facts.read(path) == {"a": 1}
    assert file.read_bytes() != garbage


def test_a_full_disk_keeps_nothing_and_is_no_fault(
    bytecode: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "data.yaml"
    path.write_text("a: 1\n")

    def half(file: Path, content: bytes) -> int:
        with file.open("wb") as stream:
            stream.write(content[:3])
        raise OSError(errno.ENOSPC, "No space left on device", str(file))

    monkeypatch.setattr(Path, "write_bytes", half)
    assert facts.read(path) == {"a": 1}
    assert kept(bytecode) == []


def test_a_directory_that_can_not_be_made_is_no_fault(
    bytecode: Path, parsed: list[bytes], tmp_path: Path
) -> None:
    path = tmp_path / "data.yaml"
    path.write_text("a: 1\n")
    bytecode.write_text("a file is in its place")
    assert facts.read(path) == facts.read(path) == {"a": 1}
    assert len(parsed) == 2


def test_nothing_is_kept_where_python_keeps_no_bytecode(
    bytecode: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    path = tmp_path / "data.yaml"
    path.write_text("a: 1\n")
    assert facts.read(path) == {"a": 1}
    assert kept(bytecode) == []
