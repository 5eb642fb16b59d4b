"""The script that builds a release."""

from __future__ import annotations

import os
import subprocess

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
