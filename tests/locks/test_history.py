"""The lock before its last change, from a repository."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from validator.locks import lock_files
from validator.locks.lock_files import previous
from validator.model.spec import Lock, Wheel

NAME = "tf2.21.0-cpu-py312"
ONE = Lock(NAME, "3.12", "x", (), (Wheel("six", "1.16.0", "a" * 64, "six-1.16.0-py3-none-any.whl", 1),))
TWO = replace(ONE, wheels=(replace(ONE.wheels[0], version="1.17.0"),))

pytestmark = pytest.mark.engine


def git(directory: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=Test", "-c", "user.email=test@example.com")
    subprocess.run(["git", *identity, *arguments], cwd=directory, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init", "--quiet")
    commit(tmp_path, ONE)
    return tmp_path / "locks"


def commit(root: Path, lock: Lock) -> None:
    lock_files.write(root / "locks", lock)
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "lock")


def test_a_lock_that_is_not_committed_yet_is_compared_with_the_committed_one(repository: Path) -> None:
    lock_files.write(repository, TWO)
    assert previous(repository, NAME) == ONE


def test_a_committed_lock_is_compared_with_the_one_before(repository: Path) -> None:
    commit(repository.parent, TWO)
    assert previous(repository, NAME) == ONE


def test_commits_that_changed_no_wheel_are_left_out(repository: Path) -> None:
    commit(repository.parent, TWO)
    for requirement in ("six", "six>=1", "six>=1.17"):
        commit(repository.parent, replace(TWO, requirements=(requirement,)))
    assert previous(repository, NAME) == ONE


def test_a_lock_that_never_changed_has_none_before(repository: Path) -> None:
    assert previous(repository, NAME) is None
    assert previous(repository, "tf2.21.0-cpu-py313") is None


def test_outside_a_repository_there_is_none(tmp_path: Path) -> None:
    lock_files.write(tmp_path, ONE)
    assert previous(tmp_path, NAME) is None
    assert previous(tmp_path / "nowhere", NAME) is None
