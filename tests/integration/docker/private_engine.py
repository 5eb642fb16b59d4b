"""A Docker Engine for one test, which may be killed or filled up without harm to the machine's."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from ...support import unmount_below

_ANSWER_WITHIN_S = 60


def dockerd() -> str | None:
    """Return the daemon with which this process can start an engine, if there is one."""
    found = shutil.which("dockerd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    return found if os.geteuid() == 0 else None


@dataclass(frozen=True)
class PrivateEngine:
    """A running engine: its address, its log, its process."""

    url: str
    log: Path
    process: subprocess.Popen[bytes]

    def kill(self) -> None:
        """Kill the daemon and its containerd, as a crash or the kernel's memory killer would."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextmanager
def private_engine(
    root: Path, data: Path, *, image_store: bool = True, environment: Mapping[str, str] | None = None
) -> Iterator[PrivateEngine]:
    """Yield an engine with its state in `root` and its images in `data`, without the devices of the machine.

    root: a short path, because of the sockets in it.
    image_store: whether it keeps images with containerd, or in the older way.
    environment: of its processes (None: that of the tests).
    """
    daemon = dockerd()
    if daemon is None:
        pytest.skip("starting an engine of one's own needs root and dockerd")
    configuration = root / "daemon.json"
    settings = {"features": {"containerd-snapshotter": image_store}, "cdi-spec-dirs": [f"{root}/cdi"]}
    configuration.write_text(json.dumps(settings), encoding="utf-8")
    url, log = f"unix://{root}/docker.sock", root / "log"
    command = [
        daemon, f"--config-file={configuration}", f"--host={url}", f"--pidfile={root}/pid",
        f"--exec-root={root}/exec", f"--data-root={data}", "--iptables=false", "--ip6tables=false",
        # The machine's own bridge: an engine that is configured without one deletes it.
        f"--bridge={'docker0' if Path('/sys/class/net/docker0').exists() else 'none'}",
    ]  # fmt: skip
    with open(log, "wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=output, start_new_session=True, env=environment
        )
    engine = PrivateEngine(url, log, process)
    try:
        _wait(engine)
        yield engine
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                engine.kill()
        unmount_below(root)


def _wait(engine: PrivateEngine) -> None:
    deadline = time.monotonic() + _ANSWER_WITHIN_S
    while True:
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(engine.url.removeprefix("unix://"))
                connection.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
                if b" 200 " in connection.recv(64):
                    return
        except OSError as error:
            if engine.process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"{error}\n{engine.log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.1)
