"""The script that builds a release."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import validator

from ..commands import ROOT


@pytest.mark.service
@pytest.mark.parametrize("tag", ["", "v0.0.0", validator.__version__])
def test_a_tag_that_is_not_the_version_is_rejected(tag: str) -> None:
    before = (ROOT / "dist").exists()
    done = subprocess.run(
        [ROOT / "scripts" / "release"],
        env={**os.environ, "TAG": tag}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 2
    assert f"but the version of the package is {validator.__version__}" in done.stderr
    assert (ROOT / "dist").exists() == before


@pytest.mark.service
def test_a_release_without_notes_is_rejected(tmp_path: Path) -> None:
    """The notes of a release are its section in the changelog, which a commit can lack."""
    subprocess.run(["git", "clone", "--quiet", "--shared", ROOT, tmp_path / "clone"], check=True)
    clone = tmp_path / "clone"
    # What is committed is built; the script is that of the working tree.
    for name in ("scripts/release", "setup.py", "pyproject.toml"):
        shutil.copy(ROOT / name, clone / name)
    (clone / ".venv").symlink_to(ROOT / ".venv")
    (clone / "scripts/environment").write_text("#!/bin/sh\n")
    (clone / "CHANGELOG.md").write_text("# Changelog\n\n## [Unreleased]\n\n## [0.0.1]\n\n- Something.\n")
    done = subprocess.run(
        [clone / "scripts/release", "--rehearse"], capture_output=True, text=True, timeout=120, cwd=tmp_path
    )
    assert done.returncode == 2, done.stderr
    assert 'CHANGELOG.md has no section "## [Unreleased]"' in done.stderr
