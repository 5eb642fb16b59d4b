"""Images that the engine does not have, names that no image can have, and errors that the engine answers."""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import Mock

import pytest
import requests
from docker.errors import APIError, DockerException, ImageNotFound

from validator.delivery.pull import Engine
from validator.engines.containers import _find_image_hint
from validator.engines.docker import DockerEngine, EngineImages
from validator.engines.endpoint import Endpoint
from validator.engines.images import find_image
from validator.errors import EXIT_INPUT, InputError, MissingError, ValidatorError

NOT_NAMES = ["", "-x", "Bad Name!", "x y", "a@sha256:123", "é:1", "a:b:c", "../x", "oci:", "UPPER:1", "a\n"]
NAMES = ["python", "0" * 64, "sha256:" + "0" * 64, "[::1]:5000/a/b:1@sha256:" + "0" * 64, "Host.example/a:B"]
ASK: dict[str, Callable[[Endpoint, str], object]] = {
    "find": lambda endpoint, name: find_image(endpoint.client, name),
    "made_from": lambda endpoint, name: DockerEngine(endpoint).made_from(name),
    "derivation": lambda endpoint, name: DockerEngine(endpoint).derivation(name),
    "save": lambda endpoint, name: EngineImages(endpoint).save(name, Mock()),
    "run": lambda endpoint, name: _engine_of(endpoint).find(name),
}


def _engine_of(endpoint: Endpoint) -> Engine:
    engine = Engine.__new__(Engine)
    engine._reached = endpoint
    return engine


def endpoint_of(answer: Exception) -> tuple[Endpoint, Mock]:
    """Return an engine that answers every question about an image with an error, and its client."""
    client = Mock()
    client.images.get.side_effect = answer
    return Endpoint(quick=client, client=client, context="default", version="28.5.2", info={}), client


@pytest.mark.parametrize("ask", ASK.values(), ids=ASK)
@pytest.mark.parametrize("name", NOT_NAMES)
def test_the_engine_is_not_asked_for_what_is_not_a_name(
    name: str, ask: Callable[[Endpoint, str], object]
) -> None:
    endpoint, client = endpoint_of(ImageNotFound("no such image"))
    with pytest.raises(InputError, match="is not the name of an image") as caught:
        ask(endpoint, name)
    assert caught.value.exit_code == EXIT_INPUT and "docker run" in (caught.value.hint or "")
    client.images.get.assert_not_called()


@pytest.mark.parametrize("name", NAMES)
def test_the_engine_is_asked_for_every_name(name: str) -> None:
    endpoint, client = endpoint_of(ImageNotFound("no such image"))
    assert find_image(endpoint.client, name) is None
    client.images.get.assert_called_once_with(name)


@pytest.mark.parametrize("ask", ASK.values(), ids=ASK)
@pytest.mark.parametrize(
    ("error", "kind", "words"),
    [
        (APIError("x", explanation="storage driver failed"), ValidatorError, "storage driver failed"),
        (requests.ConnectionError("refused"), MissingError, "stopped responding"),
        (DockerException("cut off"), MissingError, "stopped responding"),
    ],
)
def test_only_an_engine_that_does_not_answer_has_stopped(
    error: Exception, kind: type[ValidatorError], words: str, ask: Callable[[Endpoint, str], object]
) -> None:
    with pytest.raises(kind, match=words) as caught:
        ask(endpoint_of(error)[0], "python:3.12")
    assert type(caught.value) is kind


@pytest.mark.parametrize(
    ("image", "hint"),
    [
        ("ghcr.io/team/tensorflow:1", "pull it with `docker pull ghcr.io/team/tensorflow:1`"),
        (
            "tf2.21.0-cpu-py312",
            "the local image of this specification is tensorflow-gpu-matrix:tf2.21",
        ),
        (
            "tensorflow-gpu-matrix:tf2.21.0-cpu-py312",
            "build it with `validator build-matrix --profile full --select image=tf2.21",
        ),
        ("ours:1", "list the local images"),
        ("sha256:" + "0" * 64, "list the local images"),
    ],
)
def test_no_pull_of_a_name_that_is_in_no_registry(image: str, hint: str) -> None:
    found = _find_image_hint(image)
    assert found.startswith(hint)
    assert ("pull it with `docker pull" in found) == ("/" in image)
