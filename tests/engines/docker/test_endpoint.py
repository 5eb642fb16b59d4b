"""The search for an engine, and the errors for engines that can't be used."""

from __future__ import annotations

import contextlib
import functools
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from validator.delivery.pull import Engine
from validator.engines import endpoint
from validator.engines.containers import device_requests, offers_gpus
from validator.engines.endpoint import Endpoint, _check_server, connect, find_buildx
from validator.errors import MissingError


@contextlib.contextmanager
def answering(path: Path, answers: bytes) -> Iterator[None]:
    """Listen on a socket and answer every connection with these bytes."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection, contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.recv(65536)
                connection.sendall(answers)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join()


@pytest.fixture
def no_context(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Remove the Docker configuration of the user who runs the tests."""
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "no-configuration"))
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH"):
        monkeypatch.delenv(name, raising=False)


pytestmark = pytest.mark.usefixtures("no_context")


def test_a_missing_socket_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/absent.sock")
    with pytest.raises(MissingError, match=r"the socket .*absent\.sock does not exist"):
        connect()


@pytest.mark.parametrize("address", ["tcp://x:y", "http://[::1"])
def test_an_address_that_is_none_is_quoted(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("DOCKER_HOST", address)
    with pytest.raises(MissingError, match="the address of the Docker Engine can't be read") as caught:
        connect()
    assert address in str(caught.value) and "DOCKER_HOST" in (caught.value.hint or "")


@pytest.mark.parametrize(("content", "host"), [("[]", "tcp://127.0.0.1:1"), ('{"currentContext": 5}', "")])
def test_a_configuration_of_other_types_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: str, host: str
) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    monkeypatch.setenv("DOCKER_HOST", host)
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(MissingError, match="Docker's configuration can't be read") as caught:
        connect()
    assert "config.json" in (caught.value.hint or "")


def test_a_socket_without_a_listener_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "dead.sock"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/dead.sock")
    with pytest.raises(MissingError, match=r"no Docker Engine responds at .*dead\.sock: Connection refused"):
        connect()


def test_a_socket_without_permission_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/d.sock")
    for group, named in (("container-users", "container-users"), ("root", "docker")):
        monkeypatch.setattr(Path, "group", lambda _, group=group: group)
        for look in (connect, functools.partial(Engine, "docker")):
            with pytest.raises(
                MissingError, match=f"permission denied for .*: you are not in group {named}"
            ) as caught:
                look()
            hint = caught.value.hint or ""
            assert f"usermod -aG {named} $USER" in hint and "can become root" in hint and "rootless" in hint


def test_another_service_on_the_socket_is_not_an_engine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/other.sock")
    with (
        answering(tmp_path / "other.sock", b"220 mail ready\r\n"),
        pytest.raises(MissingError, match="no Docker"),
    ):
        connect()


def test_an_invalid_docker_host_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "carrier-pigeon://coop")
    with pytest.raises(MissingError, match="no Docker Engine responds"):
        connect()


def test_a_missing_context_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_CONTEXT", "absent")
    with pytest.raises(MissingError, match="the Docker context absent does not exist"):
        connect()


@pytest.mark.parametrize(
    ("version", "architecture", "words"),
    [
        ("20.10.24+dfsg1", "x86_64", "Docker Engine 20.10.24.dfsg1 is too old; 23 or newer"),
        ("?", "x86_64", "too old"),
        ("28.5.2", "aarch64", "linux/aarch64 containers"),
    ],
)
def test_an_unsuitable_engine_is_rejected(version: str, architecture: str, words: str) -> None:
    with pytest.raises(MissingError, match=words):
        _check_server(version, {"OSType": "linux", "Architecture": architecture})


@pytest.mark.parametrize("version", ["23.0.0", "28.5.2+dfsg4", "29.0.0-rc.1"])
def test_a_suitable_engine_is_accepted(version: str) -> None:
    _check_server(version, {"OSType": "linux", "Architecture": "x86_64"})


def docker_that(directory: Path, script: str) -> str:
    directory.mkdir()
    path = directory / "docker"
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(directory)


@pytest.mark.service
def test_a_docker_without_buildx_does_not_hide_one_with_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    old = docker_that(tmp_path / "old", "echo \"docker: 'buildx' is not a docker command.\" >&2; exit 1")
    new = docker_that(tmp_path / "new", 'echo "github.com/docker/buildx v0.13.1 788433953af"')
    monkeypatch.setenv("PATH", f"{old}:{new}:/usr/bin:/bin")
    assert find_buildx("default") == (f"{new}/docker", "buildx", "--builder", "default")


@pytest.mark.service
def test_a_missing_buildx_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", docker_that(tmp_path / "old", "exit 1"))
    with pytest.raises(MissingError, match="no buildx plugin"):
        find_buildx("default")


def test_a_missing_docker_command_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    quick, busy = Mock(), Mock()
    reached = Endpoint(quick=quick, client=busy, context="default", version="28.5.2", info={})
    monkeypatch.setattr(endpoint, "reach", lambda: reached)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    with pytest.raises(MissingError, match="docker command, which pulls images, is not installed"):
        connect()
    quick.close.assert_called_once()
    busy.close.assert_called_once()


def test_gpus_are_requested_in_the_way_that_the_engine_offers_them() -> None:
    cdi = {"DiscoveredDevices": [{"Source": "cdi", "ID": "nvidia.com/gpu=0"}, {"ID": "nvidia.com/gpu=all"}]}
    runtime: dict[str, Any] = {"Runtimes": {"runc": {}, "nvidia": {}}}
    assert device_requests(cdi)[0]["DeviceIDs"] == ["nvidia.com/gpu=all"]
    assert device_requests({**cdi, **runtime})[0]["Capabilities"] == [["gpu"]]
    assert device_requests({"Runtimes": {"runc": {}}, "DiscoveredDevices": None}) == []
    assert not offers_gpus({})
