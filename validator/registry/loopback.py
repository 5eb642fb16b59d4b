"""Run a registry on this machine for a short while, with the program `docker-registry`."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from ..errors import MissingError
from ..system import processes, runs

PROGRAM = "docker-registry"
_ANSWER_WITHIN_S = 30.0
_POLL_S = 0.05
#: Another program may take the free port before the registry does.
_TRIES = 3
_CONFIGURATION, _LOG = "config.json", "log"


@contextlib.contextmanager
def loopback_registry(directory: Path) -> Iterator[str]:
    """Run a registry that keeps everything in `directory`, and return its address (`127.0.0.1:41234`).

    Only this machine can reach it, and it needs no login. Raises MissingError if the program is not installed
    or does not start.
    """
    program = shutil.which(PROGRAM)
    if program is None:
        raise MissingError(
            f"the program {PROGRAM} is not installed, so no registry can be started on this machine",
            hint=f"install it (Debian: apt-get install {PROGRAM}), or use a registry that is running already",
        )
    directory.mkdir(parents=True, exist_ok=True)
    process, address = _start(program, directory)
    try:
        yield address
    finally:
        process.terminate()
        try:
            process.wait(processes.GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def serve_command(directory: Path) -> list[str]:
    """Return the command that serves what a registry left in its directory, at the same address."""
    return [PROGRAM, "serve", str(directory / _CONFIGURATION)]


def _start(program: str, directory: Path) -> tuple[subprocess.Popen[bytes], str]:
    for _ in range(_TRIES):
        address = f"127.0.0.1:{_free_port()}"
        configuration = {
            "version": 0.1,
            "log": {"level": "warn"},
            "storage": {"filesystem": {"rootdirectory": str(directory / "storage")}},
            "http": {"addr": address},
        }
        # JSON is YAML too.
        (directory / _CONFIGURATION).write_text(json.dumps(configuration), encoding="utf-8")
        with open(directory / _LOG, "wb") as log:
            process = subprocess.Popen(
                [program, "serve", str(directory / _CONFIGURATION)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**os.environ, **runs.environment_of_children()},
                # Ctrl-C reaches only this process, which ends the registry last.
                start_new_session=True,
            )  # fmt: skip
        if _answers(process, address):
            return process, address
        process.kill()
        process.wait()
    said = (directory / _LOG).read_text(encoding="utf-8", errors="replace").strip().splitlines()
    raise MissingError(f"{PROGRAM} did not start: {said[-1][:300] if said else 'it printed nothing'}")


def _answers(process: subprocess.Popen[bytes], address: str) -> bool:
    """Wait until the registry answers. Return False if it ends, as it does where its port is taken."""
    deadline = time.monotonic() + _ANSWER_WITHIN_S
    while process.poll() is None and time.monotonic() < deadline:
        processes.check_stopping()
        # Not urllib: a proxy of the environment can't reach this address.
        connection = http.client.HTTPConnection(address, timeout=1)
        with contextlib.suppress(OSError, http.client.HTTPException), contextlib.closing(connection):
            connection.request("GET", "/v2/")
            if connection.getresponse().status == http.client.OK:
                return process.poll() is None
        time.sleep(_POLL_S)
    return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
