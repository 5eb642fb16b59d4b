"""Run recommend and pull with a real registry, real signatures and a real engine."""

from __future__ import annotations

import contextlib
import json
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from docker.transport import UnixHTTPAdapter

from validator.cli.images import RecommendationDocument, connect_engine
from validator.engines.endpoint import Endpoint
from validator.errors import EXIT_FAILED, EXIT_INPUT, EXIT_MISSING, EXIT_OK, MissingError
from validator.model.record import Certificate
from validator.registry.names import identifier_of

from ..documented import misfits
from .commands import HERE, run
from .shelf import A100, H100, Shelf
from .values import NAMED, OLDER, TAG


def test_recommend_lists_the_best_first(shelf: Shelf) -> None:
    newer, older = shelf.push_certified(A100), shelf.push_certified(H100, tag=OLDER)
    shelf.push("2.21.0-cpu-py3.12")
    done = run(shelf, "recommend", "--fixtures", *HERE)
    assert done.code == EXIT_OK
    heading, first, second, third = done.out.splitlines()
    assert heading.split() == ["image", "digest", "for", "this", "host", "why"]
    assert first.startswith(f"{identifier_of(OLDER)}  {older[:19]}  certified")
    assert "certified for this host: measured on NVIDIA H100 80GB HBM3 (9.0) with driver 580.65.06" in first
    assert second.startswith(f"{NAMED}  {newer[:19]}  predicted") and "not certified for this host" in second
    assert third.startswith("tf2.21.0-cpu-py312") and "unfit" in third
    assert "Host: driver 580.95.05 with H200 (9.0)" in done.err
    assert "1 certified, 1 predicted, 1 unfit" in done.err


def test_recommend_says_that_the_driver_branch_has_ended(shelf: Shelf) -> None:
    shelf.push_certified(A100)
    assert "has ended" not in run(shelf, "recommend", "--fixtures", *HERE).err
    done = run(shelf, "recommend", "--fixtures", "--driver", "550", "--gpu", "a100")
    assert "Note: driver branch R550 has ended and gets no more fixes" in done.err


def test_recommend_writes_json(shelf: Shelf) -> None:
    digest = shelf.push_certified(H100)
    done = run(shelf, "recommend", "--fixtures", "--json", *HERE, "--gpu", "9.0")
    document: dict[str, Any] = json.loads(done.out)
    assert document["host"] == {
        "driver": "580.95.05",
        "gpus": [
            {"name": "H200", "compute_capability": "9.0"},
            {"name": None, "compute_capability": "9.0"},
        ],
    }
    (image,) = document["images"]
    assert image["reference"] == f"{document['registry']}@{digest}"
    assert (image["tag"], image["standing"], image["prediction"]["outcome"]) == (TAG, "certified", "works")
    assert image["certificates"][0]["fixture"] is True
    assert list(misfits(document, RecommendationDocument)) == []
    assert list(misfits(image["certificates"], list[Certificate])) == []


def test_recommend_says_first_that_nothing_is_certified_yet(shelf: Shelf) -> None:
    shelf.push()
    done = run(shelf, "recommend", "--fixtures", *HERE)
    assert done.code == EXIT_FAILED and "unmeasured     measured nowhere yet; the facts" in done.out
    said = [line for line in done.err.splitlines() if not line.startswith(("Host:", "Note:"))]
    assert said[0] == f"No image in {shelf.registry.repository} is certified yet, for this host or another."
    assert "run --uncertified" in said[1] and "build-matrix --push" in said[1]
    shelf.push_certified(A100, tag=OLDER)
    assert "is certified yet" not in run(shelf, "recommend", "--fixtures", *HERE).err


def test_recommend_ends_with_1_when_nothing_fits(shelf: Shelf) -> None:
    shelf.push_certified(H100)
    done = run(shelf, "recommend", *HERE)
    assert (done.code, "made by a test and proves nothing" in done.out) == (EXIT_FAILED, True)


def test_pull_pulls_the_best_image_by_its_digest(
    shelf: Shelf, engine: Endpoint, stored: Callable[[], list[str]]
) -> None:
    digest = shelf.push_certified(H100)
    shelf.push_certified(H100, tag=OLDER)
    done = run(shelf, "pull", "--fixtures", *HERE)
    repository = shelf.registry.repository
    assert (done.code, done.out) == (EXIT_OK, f"{repository}@{digest}\n"), done.err
    assert stored() == sorted([repository.tagged(TAG), repository.at(digest)])
    assert engine.quick.images.get(repository.tagged(TAG)).id in (digest, _config(shelf, digest))
    assert "measured on NVIDIA H100 80GB HBM3 (9.0) with driver 580.65.06" in done.err
    assert f"signed by {shelf.trust.signer}" in done.err
    # Pulling again changes nothing.
    assert run(shelf, "pull", "--fixtures", *HERE).out == done.out


def _config(shelf: Shelf, digest: str) -> str:
    manifest = shelf.registry.manifest(digest)
    assert manifest is not None and manifest.config is not None
    return manifest.config.digest


def test_the_name_moves_to_the_new_image(
    shelf: Shelf, engine: Endpoint, stored: Callable[[], list[str]]
) -> None:
    shelf.push_certified(H100)
    name = shelf.registry.repository.tagged(TAG)
    run(shelf, "pull", "--fixtures", *HERE)
    first = engine.quick.images.get(name).id
    digest = shelf.push(content="the next build")
    shelf.certify(digest, H100)
    done = run(shelf, "pull", "--fixtures", "--image", NAMED, *HERE)
    assert done.out.strip().endswith(digest), done.err
    assert engine.quick.images.get(name).id != first


def test_a_registry_that_is_down_is_reported(shelf: Shelf, stored: Callable[[], list[str]]) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
    for command in ("recommend", "pull", "run"):
        more = ("--devices", "gpus") if command == "run" else ()
        done = run(shelf, command, "--fixtures", "--registry", f"{address}/team/tf", *HERE, *more)
        assert (done.code, done.out) == (EXIT_MISSING, "")
        assert f"the registry {address} can't be reached" in done.err
    assert stored() == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--registry", "team/tf", *HERE), "is not a registry with a repository"),
        (("--key", "/nowhere", *HERE), "/nowhere: can't be read"),
        (("--driver", "twelve", "--gpu", "h100"), "is not a driver release"),
        (("--driver", "580", "--gpu", "voodoo2"), "is not known"),
        (("--max-age", "soon", *HERE), "is not a length of time"),
        (("--image", NAMED, "--python", "3.12", *HERE), "--image already names one image"),
        (("--image", "9.9", *HERE), "is not in the registry"),
        (("--tensorflow", "2.19", *HERE), "has no image with TensorFlow 2.19"),
    ],
)
def test_wrong_input_is_explained(
    shelf: Shelf, arguments: tuple[str, ...], says: str, engine: Endpoint
) -> None:
    shelf.push()
    done = run(shelf, "pull", "--fixtures", *arguments)
    assert (done.code, done.out) == (EXIT_INPUT, "")
    assert says in done.err


def test_without_an_engine(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> Endpoint:
        raise MissingError("Podman is not installed")

    monkeypatch.setattr("validator.engines.endpoint.connect_podman", absent)
    shelf.push_certified(H100)
    nowhere = "unix:///nowhere/docker.sock"
    assert run(shelf, "recommend", "--fixtures", *HERE, DOCKER_HOST=nowhere).code == EXIT_OK
    done = run(shelf, "pull", "--fixtures", *HERE, DOCKER_HOST=nowhere)
    assert done.code == EXIT_MISSING and "the socket /nowhere/docker.sock does not exist" in done.err
    # Printing the line for another machine needs no engine.
    done = run(shelf, "run", "--fixtures", *HERE, "--devices", "cdi", DOCKER_HOST=nowhere)
    assert done.code == EXIT_OK and "--device nvidia.com/gpu=all" in done.out


def test_a_remote_engine_has_other_gpus(
    shelf: Shelf, engine: Endpoint, stored: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf.push_certified(H100)
    adapter = engine.quick.api.get_adapter("http+docker://localhost")
    assert isinstance(adapter, UnixHTTPAdapter)
    with _forwarded(Path(adapter.socket_path)) as address:
        with monkeypatch.context() as patch:
            patch.setenv("DOCKER_HOST", address)
            for driver, gpus in ((None, ()), ("580", ()), (None, ("h100",))):
                with pytest.raises(MissingError, match="whose driver and GPUs cannot be detected from here"):
                    connect_engine(driver, gpus)
        done = run(shelf, "pull", "--fixtures", "--driver", "580", "--gpu", "h100", DOCKER_HOST=address)
        assert done.code == EXIT_OK, done.err
        done = run(shelf, "run", "--fixtures", "--mount", "--devices", "gpus", *HERE, DOCKER_HOST=address)
        assert done.code == EXIT_INPUT
        assert "--mount needs a local Docker engine" in done.err


@contextlib.contextmanager
def _forwarded(path: Path) -> Iterator[str]:
    """Forward a TCP port of the loopback address to a Unix socket."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.socket(socket.AF_UNIX) as there:
                there.connect(str(path))
                back = threading.Thread(target=_copy, args=(there, self.request))
                back.start()
                _copy(self.request, there)
                back.join()

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        # Do not wait for connections that a failed test left open.
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"tcp://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def _copy(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := one.recv(65536):
            other.sendall(data)
        other.shutdown(socket.SHUT_WR)
