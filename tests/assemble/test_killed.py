"""An assembly that is killed publishes nothing by half, and is continued without sending a blob twice."""

from __future__ import annotations

import random
import signal
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from tests.registry.proxy import Proxy
from tests.registry.server import RunningRegistry
from validator.model.spec import Lock
from validator.registry import blobs
from validator.registry.names import Repository

from ..support import FORKED
from .pushes import CHUNK, TAG, completed, locked, publish, published

pytestmark = pytest.mark.service

TIMES = 20


def test_it_is_killed_at_random_moments(
    server: RunningRegistry, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blobs, "_CHUNK", CHUNK)

    def begun(number: int) -> tuple[BaseProcess, tuple[Path, Lock, Repository]]:
        place = tmp_path / str(number)
        place.mkdir()
        repository = Repository(proxy.address, f"killed/{number + 2}")
        what = (place, locked(place, 1000 * number), repository)
        proxy.asked.clear()
        child = FORKED.Process(target=publish, args=what)
        child.start()
        return child, what

    # How many requests a whole push sends. The first one also starts the server of processes.
    for number in (-2, -1):
        begin = time.monotonic()
        whole, _ = begun(number)
        whole.join()
        duration = time.monotonic() - begin
        assert whole.exitcode == 0
        requests = len(proxy.asked)
    chance, killed, unfinished = random.Random(14), 0, 0
    for number in range(1, TIMES + 1):
        child, what = begun(number)
        place, lock, repository = what
        # The moments are spread over the whole push, however slow this one is.
        while child.is_alive() and len(proxy.asked) < requests * (number - 1) // TIMES:
            time.sleep(0.001)
        time.sleep(duration * chance.random() / TIMES)
        child.kill()
        child.join()
        killed += child.exitcode == -signal.SIGKILL
        # What the registry had received completely, it may still be storing.
        time.sleep(0.1)
        before = server.tags(repository.path)
        unfinished += bool(completed(server, repository.path)) and not before
        image = published(place, lock, repository)
        digests = {placed.encoded.digest for placed in image.layers}
        # Nothing has the name until everything is there.
        assert before in ({}, {TAG: image.digest})
        assert server.tags(repository.path) == {TAG: image.digest}
        assert digests <= set(server.blobs())
        counts = completed(server, repository.path)
        assert digests <= set(counts) and len(counts) == len(digests) + 1
        assert set(counts.values()) == {1}, repository.path
    # Otherwise the moments were not in the middle.
    assert killed >= TIMES * 3 // 4 and unfinished >= TIMES // 4
