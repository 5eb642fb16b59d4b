"""The places where benchmarks put images, and the space that images take there: registries, Docker, disk."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from validator.engines.endpoint import Endpoint

_POLL_S = 0.2


@contextmanager
def registry(place: Path) -> Iterator[str]:
    """Run a registry and yield its address. At the end, everything in its directory is removed."""
    program = shutil.which("docker-registry", path=f"{os.environ.get('PATH', '')}:/usr/bin")
    if program is None:
        raise SystemExit("docker-registry is not installed (Debian package docker-registry)")
    place.mkdir(parents=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    configuration = {
        "version": 0.1,
        "log": {"level": "error"},
        "storage": {"filesystem": {"rootdirectory": str(place / "storage")}},
        "http": {"addr": address},
    }
    # JSON is YAML too.
    (place / "config.yml").write_text(json.dumps(configuration), encoding="utf-8")
    process = subprocess.Popen(
        [program, "serve", str(place / "config.yml")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        host, _, port = address.partition(":")
        for _ in range(300):
            with socket.socket() as trial:
                if trial.connect_ex((host, int(port))) == 0:
                    break
            time.sleep(0.1)
        yield address
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(place)


class Disk:
    """The most bytes that a process keeps in some directories and in files without a name."""

    def __init__(self, pid: int, directories: list[Path]) -> None:
        self.most = 0
        self._pid, self._directories = pid, directories
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(_POLL_S):
            self.most = max(self.most, sum(self._sizes()))

    def _sizes(self) -> Iterator[int]:
        for directory in self._directories:
            for path in directory.rglob("*"):
                try:
                    yield path.lstat().st_blocks * 512
                except OSError:
                    continue
        try:
            for link in Path(f"/proc/{self._pid}/fd").iterdir():
                if os.readlink(link).endswith(" (deleted)"):
                    yield link.stat().st_blocks * 512
        except OSError:
            return


def check_space(gigabytes: float, what: str, *places: Path) -> None:
    """End the program if a disk has less free space than something needs."""
    for place in places:
        free = shutil.disk_usage(place).free / 1e9
        if free < gigabytes:
            raise SystemExit(f"{what} needs {gigabytes:g} GB of disk, and {place} has {free:.1f} GB free")


def pull(endpoint: Endpoint, reference: str, base: str) -> float:
    """Return the seconds of a pull, after which the image is removed. See `new_layers`.

    What earlier parts wrote is on the disk by then: otherwise, the pull waits for gigabytes of it.
    """
    with new_layers(endpoint, reference, base):
        os.sync()
        begin = time.perf_counter()
        subprocess.run(
            [endpoint.program, "pull", "--quiet", reference], check=True, stdout=subprocess.DEVNULL
        )
        return time.perf_counter() - begin


def refuse_known(endpoint: Endpoint, reference: str) -> None:
    """End the program if Docker has an image: there would be nothing to measure."""
    if _words(endpoint, "image", "ls", "--quiet", reference):
        raise SystemExit(
            f"Docker has {reference} already: remove it with docker image rm, then run this again"
        )


@contextmanager
def new_layers(endpoint: Endpoint, reference: str, base: str) -> Iterator[None]:
    """Remove an image that Docker gets in this context.

    Says which of its layers Docker had before, except those of `base`, because it doesn't unpack them again.
    Ends the program if that is most of them.
    """
    names = _words(endpoint, "image", "ls", "--all", "--quiet", "--no-trunc")
    there = {layer: name for name in names for layer in _layers(endpoint, name)}
    with removed(endpoint, reference):
        yield
        added = _layers(endpoint, reference) - _layers(endpoint, base)
        if known := added & there.keys():
            owners = ", ".join(sorted({there[layer] for layer in known}))
            text = f"Docker had {len(known)} of {len(added)} layers of {reference} before, in {owners}"
            if len(known) > len(added) / 2:
                raise SystemExit(f"{text}: remove these images")
            print(text, file=sys.stderr, flush=True)


@contextmanager
def removed(endpoint: Endpoint, reference: str) -> Iterator[None]:
    """Remove an image at the end, whatever happens."""
    try:
        yield
    finally:
        remove(endpoint, reference)


def remove(endpoint: Endpoint, reference: str) -> None:
    """Remove an image from Docker if it is there."""
    subprocess.run([endpoint.program, "image", "rm", "--force", reference], capture_output=True, check=False)


def prune(endpoint: Endpoint, words: str) -> None:
    """Remove the steps from the builder's cache whose description contains these words, and nothing else."""
    command = [*endpoint.buildx, "prune", "--all", "--force"]
    subprocess.run([*command, "--filter", f"description~={words}"], capture_output=True, check=False)


def _layers(endpoint: Endpoint, reference: str) -> set[str]:
    found = _words(endpoint, "image", "inspect", "--format", "{{json .RootFS.Layers}}", reference)
    return {layer for line in found for layer in json.loads(line) or []}


def _words(endpoint: Endpoint, *arguments: str) -> list[str]:
    done = subprocess.run([endpoint.program, *arguments], capture_output=True, text=True, check=False)
    return done.stdout.split()
