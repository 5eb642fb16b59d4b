"""Offers stubs to containers as CDI devices, which is how NVIDIA's toolkit offers a driver."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import docker

#: Where an engine looks for specifications that live as long as the machine is up.
SPECIFICATIONS = Path("/var/run/cdi")
KIND = "nvidia.com/gpu"
ALL = f"{KIND}=all"
#: The loader of Debian and Ubuntu searches this directory by default.
LIBRARIES = "/usr/lib/x86_64-linux-gnu"
SEEN_WITHIN_S = 20


@dataclass(frozen=True)
class Node:
    """Return a character device with that number."""

    path: str
    major: int
    minor: int


#: The files of NVIDIA's driver, by its own numbers. They have no driver without its kernel module.
DRIVER_NODES = (
    Node("/dev/nvidia0", 195, 0),
    Node("/dev/nvidiactl", 195, 255),
    Node("/dev/nvidia-uvm", 510, 0),
)
#: Files of the same names that do open: each is /dev/null.
FALSE_NODES = tuple(Node(node.path, 1, 3) for node in DRIVER_NODES)


@dataclass(frozen=True)
class Offer:
    """The device that a container gets if it requests all GPUs.

    mounts: path in the container → path here, read-only
    """

    mounts: Mapping[str, Path]
    variables: Mapping[str, str] = field(default_factory=dict)
    nodes: Sequence[Node] = ()

    def specification(self) -> dict[str, Any]:
        """Return the CDI specification, format 0.5, which Podman 4.3 reads too."""
        return {
            "cdiVersion": "0.5.0",
            "kind": KIND,
            "devices": [
                {
                    "name": "all",
                    "containerEdits": {
                        "env": [f"{name}={value}" for name, value in self.variables.items()],
                        "deviceNodes": [
                            {
                                "path": node.path,
                                "type": "c",
                                "major": node.major,
                                "minor": node.minor,
                                "fileMode": 0o666,
                            }
                            for node in self.nodes
                        ],
                        "mounts": [
                            {
                                "hostPath": str(here),
                                "containerPath": there,
                                "options": ["ro", "nosuid", "nodev", "bind"],
                            }
                            for there, here in self.mounts.items()
                        ],
                    },
                }
            ],
        }


def remove_leftovers() -> None:
    """Remove the devices of test runs that were killed.

    Their mounts are gone, so no container that requests them would start.
    """
    stale = [
        path
        for path in SPECIFICATIONS.glob("validator-test-*.json")
        if not Path("/proc", path.stem.rpartition("-")[2]).exists()
    ]
    for path in stale:
        path.unlink(missing_ok=True)
    if stale and not any(SPECIFICATIONS.glob("*.json")):
        with contextlib.closing(docker.from_env()) as client:
            _wait(client, there=False)


def offers_gpus(client: docker.DockerClient) -> bool:
    """Return True if the engine already has devices of that name, perhaps real ones."""
    return any(device.get("ID") == ALL for device in client.info().get("DiscoveredDevices") or [])


@contextlib.contextmanager
def offered(client: docker.DockerClient | None, offer: Offer) -> Iterator[None]:
    """Give the engine the device `nvidia.com/gpu=all` within the context.

    client: of an engine that watches the directory. Podman (None) reads it for each container.
    """
    SPECIFICATIONS.mkdir(parents=True, exist_ok=True)
    path = SPECIFICATIONS / f"validator-test-{os.getpid()}.json"
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(offer.specification()))
    partial.replace(path)
    try:
        if client is not None:
            _wait(client, there=True)
        yield
    finally:
        path.unlink()
        if client is not None:
            _wait(client, there=False)


def _wait(client: docker.DockerClient, *, there: bool) -> None:
    """Wait until the engine, which watches the directory, has noticed."""
    deadline = time.monotonic() + SEEN_WITHIN_S
    while offers_gpus(client) is not there:
        if time.monotonic() > deadline:
            raise TimeoutError(f"the engine does not look into {SPECIFICATIONS}")
        time.sleep(0.1)
