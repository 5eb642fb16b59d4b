"""Hostile files: names that no file can have, deep nesting, and sizes that would take forever."""

from __future__ import annotations

from pathlib import Path

import pytest

from validator.errors import InputError
from validator.lint import source

from .support import found, short, write


@pytest.mark.parametrize("name", ["a" * 5000, "a\0b", "../" * 400])
def test_names_that_no_file_can_have(tmp_path: Path, name: str) -> None:
    assert short(write(tmp_path, "Dockerfile", f"FROM a\nRUN pip install -r {name}\n")) == []
    with pytest.raises(InputError):
        found(write(tmp_path, "requirements.txt", f"-r {name}\n"))


def test_a_marker_that_nests_too_deep_is_left_out(tmp_path: Path) -> None:
    assert short(write(tmp_path, "requirements.txt", f"a; {'(' * 5000}\ntensorflow==2.18.0\n")) == []


def test_a_command_that_nests_too_deep_is_left_out(tmp_path: Path) -> None:
    assert short(write(tmp_path, "Dockerfile", f"FROM a\nRUN {'[' * 5000}\n")) == []


def test_a_package_with_countless_limits_is_not_judged(tmp_path: Path) -> None:
    limits = "".join(f"tensorflow!=0.{number}\n" for number in range(300))
    text = f"{limits}tensorflow==2.18.0\nnvidia-cudnn-cu12==8.9.7.29\n"
    assert short(write(tmp_path, "requirements.txt", text)) == []
    repeated = "tensorflow==2.18.0\n" * 300 + "nvidia-cudnn-cu12==8.9.7.29\n"
    assert short(write(tmp_path, "requirements.txt", repeated)) == ["301:1 cudnn_of_another_major"]


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("Dockerfile", "FROM a\n" * 501, "more than 500 stages"),
        ("uv.lock", '[[package]]\nname = "a"\nsource = {virtual = "."}\n' * 201, "more than 200 projects"),
    ],
)
def test_limits(tmp_path: Path, name: str, text: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        found(write(tmp_path, name, text))


def test_a_large_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "MAX_BYTES", 10)
    with pytest.raises(InputError, match="is larger than 10 bytes"):
        found(write(tmp_path, "requirements.txt", "tensorflow==2.18.0\n"))
