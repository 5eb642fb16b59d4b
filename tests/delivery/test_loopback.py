"""A registry that is started on this machine for a short while."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from validator.delivery import rehearsal
from validator.delivery.rehearsal import loopback_registry, serve_command
from validator.errors import MissingError

from ..registry.server import answers

pytestmark = pytest.mark.service


def _address(directory: Path) -> str:
    with loopback_registry(directory) as address:
        assert answers(address)
        return address


def test_it_answers_and_is_gone_afterwards(tmp_path: Path) -> None:
    address = _address(tmp_path)
    assert address.startswith("127.0.0.1:")
    assert not answers(address)
    # What it kept can be served again.
    assert Path(serve_command(tmp_path)[-1]).is_file()


def test_it_ends_with_an_error(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), loopback_registry(tmp_path) as address:
        raise KeyboardInterrupt
    assert not answers(address)


def test_the_program_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(MissingError, match="docker-registry is not installed") as caught:
        _address(tmp_path)
    assert caught.value.hint is not None and "apt-get install docker-registry" in caught.value.hint


def test_the_program_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its port is taken, each time, by a program that accepts connections."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setattr(rehearsal, "_free_port", lambda: port)
        with pytest.raises(MissingError, match=r"did not start: .*address already in use"):
            _address(tmp_path)
