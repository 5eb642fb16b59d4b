"""The uv that installs wheels in images: only the pinned program, whichever one is installed here."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from validator.engines.docker import uv_binary
from validator.errors import InputError, MissingError
from validator.system.sources import PackageSources, host_sources

PINNED = b"the pinned uv"
DIGEST = hashlib.sha256(PINNED).hexdigest()
REQUIREMENT = "uv==0.99.0 \\\n    --hash=sha256:" + "1" * 64


@pytest.fixture
def pin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pin of a program that is not installed here, and an empty cache."""
    path = tmp_path / "uv.txt"
    path.write_text(uv_binary.pin_text(REQUIREMENT, DIGEST))
    monkeypatch.setenv("VALIDATOR_CACHE", str(tmp_path / "cache"))
    installed = tmp_path / "installed"
    installed.write_bytes(b"another uv")
    monkeypatch.setattr(uv_binary, "find_uv_bin", lambda: str(installed))
    return path


def downloads(monkeypatch: pytest.MonkeyPatch, content: bytes) -> list[Path]:
    """Return the list of installed requirements. What is downloaded has this content."""
    asked: list[Path] = []

    def install(requirement: Path, directory: Path, sources: PackageSources) -> Path:
        asked.append(requirement)
        program = directory / "uv"
        program.write_bytes(content)
        return program

    monkeypatch.setattr(uv_binary, "install", install)
    return asked


def test_the_installed_program_is_used_if_it_is_the_pinned_one(
    pin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "installed").write_bytes(PINNED)
    asked = downloads(monkeypatch, PINNED)
    assert uv_binary.pinned_uv(PackageSources(), pin) == tmp_path / "installed"
    assert asked == []


def test_another_installed_uv_is_not_used_and_the_pinned_one_is_downloaded_once(
    pin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = downloads(monkeypatch, PINNED)
    first, second = (uv_binary.pinned_uv(PackageSources(), pin) for _ in range(2))
    assert first == second
    assert first.read_bytes() == PINNED
    assert asked == [pin]


def test_a_kept_program_that_was_changed_is_not_used(pin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = downloads(monkeypatch, PINNED)
    uv_binary.pinned_uv(PackageSources(), pin).write_bytes(b"planted")
    assert uv_binary.pinned_uv(PackageSources(), pin).read_bytes() == PINNED
    assert len(asked) == 2


def test_a_downloaded_program_with_another_hash_is_refused(
    pin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    downloads(monkeypatch, b"planted")
    with pytest.raises(
        MissingError, match=r"the program in the wheel of uv 0\.99\.0 has the sha256"
    ) as raised:
        uv_binary.pinned_uv(PackageSources(), pin)
    assert DIGEST in str(raised.value)
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(
    "text",
    [
        "uv==0.99.0\n",
        "# sha256 of the program: " + "0" * 64 + "\nuv==0.99.0\n",
        "# sha256 of the program: " + "0" * 64 + "\nuv>=0.99 \\\n    --hash=sha256:" + "1" * 64 + "\n",
        REQUIREMENT + "\n",
    ],
)
def test_a_pin_without_a_version_or_hashes_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "uv.txt"
    path.write_text(text)
    with pytest.raises(InputError, match="does not pin uv by version and hash"):
        uv_binary.read_pin(path)


@pytest.mark.engine
def test_the_pinned_wheel_contains_the_pinned_program(tmp_path: Path) -> None:
    pin = uv_binary.read_pin()
    program = uv_binary.install(uv_binary.PIN, tmp_path / "uv", host_sources())
    assert hashlib.sha256(program.read_bytes()).hexdigest() == pin.program


@pytest.mark.engine
def test_a_wheel_with_another_hash_is_not_installed(tmp_path: Path) -> None:
    requirement = tmp_path / "uv.txt"
    requirement.write_text(f"uv=={uv_binary.read_pin().version} --hash=sha256:{'1' * 64}\n")
    with pytest.raises(MissingError, match=r"the uv that uv\.txt pins can't be installed: .*[Hh]ash"):
        uv_binary.install(requirement, tmp_path / "uv", host_sources())
