"""The connection to an API server, as far as none is needed."""

from __future__ import annotations

import io
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from urllib3 import HTTPResponse

from validator.errors import MissingError
from validator.fleet.kubernetes import Api
from validator.fleet.protocol import FleetDown


def kubeconfig(path: Path, server: str) -> Path:
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "one",
        "contexts": [
            {"name": "one", "context": {"cluster": "c", "user": "u", "namespace": "team"}},
            {"name": "two", "context": {"cluster": "c", "user": "u"}},
        ],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
    }
    path.write_text(json.dumps(content))
    return path


@pytest.mark.parametrize("content", [None, "", "- [", "apiVersion: v1\n"])
def test_without_a_usable_kubeconfig_there_is_no_access(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    if content is not None:
        (tmp_path / "config").write_text(content)
    with pytest.raises(MissingError, match="there is no access to a Kubernetes cluster") as raised:
        Api()
    assert raised.value.hint is not None and "KUBECONFIG" in raised.value.hint


@pytest.mark.slow
def test_the_namespace_is_that_of_the_context_unless_the_settings_name_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path / "config", "http://127.0.0.1:9")))
    found = [Api(), Api("two"), Api("one", "other")]
    assert [api.namespace for api in found] == ["team", "default", "other"]
    for api in found:
        api.close()
    with pytest.raises(MissingError, match="three"):
        Api("three")


@pytest.fixture
def slow_server() -> Iterator[str]:
    """Yield the address of a server whose answer never ends: one byte every tenth of a second."""
    listener = socket.create_server(("127.0.0.1", 0))
    over = threading.Event()

    def serve() -> None:
        link, _ = listener.accept()
        with link:
            link.recv(65536)
            link.sendall(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n"
            )
            while not over.wait(0.1):
                try:
                    link.sendall(b" ")
                except OSError:
                    return

    thread = threading.Thread(target=serve)
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    over.set()
    thread.join()
    listener.close()


@pytest.mark.slow
def test_the_time_limit_also_counts_for_an_answer_that_comes_slowly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow_server: str
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path / "config", slow_server)))
    api = Api(limit_s=1.0)
    began = time.monotonic()
    with pytest.raises(FleetDown, match="not complete in time"):
        list(api.jobs("a=b"))
    assert time.monotonic() - began < 10
    api.close()


@pytest.mark.parametrize("date", ["x", "Sun, 22 Nov 2026 23:00:00 -0000", "Sun, 99 Nov 99999 99:00:00 GMT"])
def test_an_odd_date_of_the_server_breaks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, date: str
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path / "config", "http://127.0.0.1:9")))
    api = Api()
    answer = HTTPResponse(io.BytesIO(b'{"items": []}'), headers={"Date": date}, preload_content=False)
    monkeypatch.setattr(api._batch, "list_namespaced_job", lambda *_, **__: answer)
    assert list(api.jobs("a=b")) == []
    assert api.now.tzinfo is not None
    api.close()
