"""Only a clean checkout of this project has a source commit."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from validator.certify import provenance
from validator.certify.provenance import source_commit

pytestmark = pytest.mark.service


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a checkout with a package that is committed."""
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    monkeypatch.setattr(provenance, "_PACKAGE", package)
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "--quiet", "-m", "first")
    return tmp_path


def git(directory: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(directory), *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_a_clean_checkout_has_its_commit(checkout: Path) -> None:
    (checkout / "night").write_text("a file that nobody tracks")
    assert source_commit() == git(checkout, "rev-parse", "HEAD")


def test_a_changed_file_is_no_commit(checkout: Path) -> None:
    (checkout / "package" / "__init__.py").write_text("changed = True")
    assert source_commit() is None


def test_a_package_that_is_installed_in_somebody_s_checkout_is_not_theirs(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = checkout / ".venv" / "package"
    installed.mkdir(parents=True)
    (installed / "__init__.py").write_text("")
    monkeypatch.setattr(provenance, "_PACKAGE", installed)
    assert source_commit() is None


def test_without_a_repository_or_git_there_is_none(
    checkout: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path_factory.mktemp("empty")))
    assert source_commit() is None
    monkeypatch.undo()
    monkeypatch.setattr(provenance, "_PACKAGE", tmp_path_factory.mktemp("plain"))
    assert source_commit() is None
