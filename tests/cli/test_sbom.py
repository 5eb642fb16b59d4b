"""`sbom` lists what is in the image of a lock."""

from __future__ import annotations

import json
from pathlib import Path
from unittest.mock import Mock

import pytest

from validator.assemble import bootstrap
from validator.locks.lock_files import read as read_lock
from validator.model.spec import LABEL_BASE, LABEL_LOCK, LABEL_SPEC

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


@pytest.mark.slow
def test_an_image_of_the_local_engine_is_listed_from_what_its_labels_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = NAME.replace("py312", "py313")
    lock = read_lock(ROOT / "images" / "locks", name)
    assert lock is not None
    labels = {LABEL_SPEC: name, LABEL_LOCK: lock.digest, LABEL_BASE: bootstrap.origin("trixie")}
    image = Mock(labels=labels, attrs={}, tags=[])
    image.history.return_value = [{"CreatedBy": "tensorflow-gpu-matrix: host files", "Size": 1}]
    client = Mock()
    client.images.get = {"here:1": image}.get
    client.api.images.return_value = []
    monkeypatch.setattr("validator.engines.endpoint.reach", lambda: Mock(quick=client))
    listed = run("sbom", "here:1")
    assert listed.stdout == run("sbom", name, "--base", "bootstrap").stdout != ""
    # Nobody knows what another build added, and the wheels of another lock are other wheels.
    image.history.return_value.insert(0, {"CreatedBy": "RUN pip install pandas", "Size": 1})
    done = run("sbom", "here:1")
    assert (done.returncode, done.stdout) == (2, "") and f"was derived from {name}" in done.stderr
    image.history.return_value.pop(0)
    labels[LABEL_LOCK] = "sha256:0"
    done = run("sbom", "here:1")
    assert (done.returncode, done.stdout) == (2, "") and "no lock with the same wheels" in done.stderr


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("tf9.9.9-cpu-py312", 2, "is neither a lock of matrix.yaml nor an image in a registry"),
        ("pyproject.toml", 2, "is not a valid line of a lock file"),
        ("a.example/Team/x:1", 2, "is not the name of an image"),
        ("localhost:1/x:1", 3, "can't be looked up"),
        ("ghcr.io/team/x@sha256:12", 2, "is not the name of an image"),
    ],
)
def test_what_is_not_there_is_an_error(name: str, code: int, message: str) -> None:
    trust = ROOT / "trust.yaml"
    done = run("sbom", name, "--base", "unlisted", "--trust", trust)
    assert (done.returncode, message in done.stderr) == (code, True), done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--attach", "--output", "list.json"], "--output has no effect with --attach"),
        (["--builder-key", "our.key"], "--builder-key has no effect without --attach"),
    ],
)
def test_wrong_options_are_reported_before_the_name_is_looked_up(
    options: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up = Mock()
    monkeypatch.setattr("validator.cli.bundle.split_reference", looked_up)
    done = run("sbom", NAME, *options)
    assert (done.returncode, message in done.stderr, looked_up.called) == (2, True, False), done.stderr
