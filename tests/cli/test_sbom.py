"""`sbom` lists what is in the image of a lock."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ..commands import ROOT, run

NAME = "tf2.21.0-cuda12.5-cudnn9.3-py312"


@pytest.mark.slow
def test_a_lock_is_named_by_its_image_or_by_its_file(tmp_path: Path) -> None:
    by_name = run("sbom", NAME, "--base", "unlisted")
    assert by_name.returncode == 0, by_name.stderr
    document = json.loads(by_name.stdout)
    assert document["specVersion"] == "1.6"
    purls = {part.get("purl") for part in document["components"]}
    assert "pkg:pypi/tensorflow@2.21.0" in purls and "pkg:pypi/nvidia-cudnn-cu12@9.3.0.75" in purls
    by_file = run("sbom", f"images/locks/{NAME}.txt", "--base", "unlisted", "--output", tmp_path / "out")
    assert (by_file.returncode, by_file.stdout) == (0, "")
    assert (tmp_path / "out").read_text() == by_name.stdout


def test_the_packages_of_a_bootstrapped_base_are_listed() -> None:
    done = run("sbom", NAME.replace("py312", "py313"), "--base", "bootstrap")
    names = {part["name"] for part in json.loads(done.stdout)["components"]}
    assert {"tensorflow", "libc6", "debian"} <= names


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("tf9.9.9-cpu-py312", 2, "is neither a lock of matrix.yaml nor an image in a registry"),
        ("pyproject.toml", 2, "is not a valid line of a lock file"),
        ("Team/x:1", 2, "is not a registry with a repository"),
        ("localhost:1/x:1", 3, "can't be looked up"),
        ("ghcr.io/team/x@sha256:12", 2, "is not a valid tag"),
    ],
)
def test_what_is_not_there_is_an_error(name: str, code: int, message: str) -> None:
    trust = ROOT / "trust.yaml"
    done = run("sbom", name, "--base", "unlisted", "--trust", trust)
    assert (done.returncode, message in done.stderr) == (code, True), done.stderr
