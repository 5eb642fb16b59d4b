"""Podman is found, or the reason is named; its devices are those of CDI."""

from __future__ import annotations

import json
from pathlib import Path
from unittest.mock import Mock

import pytest

from validator.engines import endpoint
from validator.engines.endpoint import Endpoint
from validator.errors import MissingError


def program(directory: Path, script: str) -> None:
    path = directory / "podman"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.mark.service
@pytest.mark.parametrize(
    ("script", "message"),
    [
        (None, "Podman is not installed"),
        ("echo 4.2.9", "Podman 4.2.9 is too old; 4.3 or newer is needed"),
        ("echo broken >&2; exit 125", "Podman does not work: broken"),
        ("echo what", "Podman does not work: no message"),
        ('[ "$1" = version ] && echo 4.3.1', "Podman's service does not start"),
    ],
)
def test_a_podman_that_cannot_be_used_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str | None, message: str
) -> None:
    if script is not None:
        program(tmp_path, script)
    monkeypatch.setenv("PATH", str(tmp_path))
    endpoint._podman_service.cache_clear()
    with pytest.raises(MissingError, match=message):
        endpoint.connect_podman()


def test_both_reasons_are_named_where_there_is_no_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with pytest.raises(MissingError, match=r"none\.sock does not exist; Podman is not installed") as caught:
        endpoint.connect_any(endpoint.connect)
    assert caught.value.hint is not None and caught.value.hint.startswith("install Docker Engine")


def test_docker_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Endpoint(quick=Mock(), context="default", version="28.5.2", info={}, client=Mock())
    monkeypatch.setattr(endpoint, "connect", lambda: found)
    monkeypatch.setattr(endpoint, "connect_podman", lambda: pytest.fail("Podman was asked"))
    assert endpoint.connect_any(endpoint.connect) is found


def test_only_gpus_of_readable_specifications_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "_SPECIFICATIONS", (tmp_path, tmp_path / "absent"))
    (tmp_path / "a.json").write_text(
        json.dumps({"kind": "nvidia.com/gpu", "devices": [{"name": "all"}, {"name": "GPU-1"}, {}]})
    )
    (tmp_path / "b.yaml").write_text("kind: nvidia.com/gpu\ndevices:\n- name: '0'\n")
    (tmp_path / "c.yaml").write_text("kind: vendor.com/net\ndevices:\n- name: eth\n")
    (tmp_path / "d.yaml").write_text("kind: [")
    (tmp_path / "e.json").write_text("[]")
    (tmp_path / "f.txt").write_text("kind: nvidia.com/gpu")
    assert sorted(endpoint._cdi_devices()) == ["0", "GPU-1", "all"]
