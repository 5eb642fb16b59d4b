"""Attacks by a Docker engine, or by an image whose labels and history it repeats: answers without an end."""

from __future__ import annotations

import json
from collections.abc import Iterator

import docker
import pytest

from validator.engines import endpoint
from validator.errors import MissingError

from .test_hostile_http import Server, endless, running

#: The server ends each connection, and the SDK must not use it again.
CLOSE = [("Connection", "close")]
VERSION = json.dumps({"ApiVersion": "1.47", "MinAPIVersion": "1.24", "Version": "28.0.0"}).encode()


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(endpoint, "LARGEST", 4 << 20)
    with running() as made:
        monkeypatch.setenv("DOCKER_HOST", f"tcp://{made.address}")
        yield made


@pytest.mark.parametrize("path", ["/version", "/info"])
def test_an_answer_without_an_end_is_an_error(engine: Server, path: str) -> None:
    engine.answer = lambda asked: (200, CLOSE, endless() if asked.path.endswith(path) else VERSION)
    with pytest.raises(MissingError, match="the engine's answer has more than 4 MiB"):
        endpoint.reach()


def connected(engine: Server, history: bytes | Iterator[bytes]) -> docker.DockerClient:
    engine.answer = lambda asked: (200, CLOSE, VERSION if asked.path.endswith("/version") else history)
    return endpoint._client(5)[0]


def test_an_answer_of_an_image_is_an_error_too(engine: Server) -> None:
    client = connected(engine, endless(b"[" * (1 << 20)))
    with pytest.raises(Exception, match="more than 4 MiB"):
        client.api.history("x")
    client.close()


def test_an_answer_of_usual_size_is_read(engine: Server) -> None:
    client = connected(engine, json.dumps([{"Id": "x" * (3 << 20)}]).encode())
    assert len(client.api.history("x")[0]["Id"]) == 3 << 20
    client.close()
