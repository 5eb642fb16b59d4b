"""What in a report speaks of a GPU that was emulated: libraries put in the driver's place.

The verdict's own rule holds without this: no emulation makes a kernel run and gives the right numbers. Here
the host facts are asked as well, so that a certificate never rests on one line of defence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ..model.report import Report

#: Where distributions, NVIDIA's installers and container runtimes put the driver's libraries, NixOS too.
_SYSTEM = ("/usr/", "/lib/", "/lib64/", "/run/opengl-driver/")
_GPU_NODE = re.compile(r"/dev/nvidia\d+|/dev/dxg")


def signs(report: Report) -> list[str]:
    """Sentences that say what was seen; none for a report of a real GPU."""
    return list(_signs(report))


def _signs(report: Report) -> Iterator[str]:
    host = report.host
    libraries = _mapping(host.get("driver_libraries"))
    for name in ("cuda", "nvml"):
        library = _mapping(libraries.get(name))
        path = str(library.get("path") or "")
        if not library.get("answered"):
            yield f"the driver's library {name} did not answer"
        elif not path.startswith(_SYSTEM):
            yield f"the driver's library {name} came from {path or 'an unknown place'}, no system directory"
    nodes = host.get("device_nodes")
    if not any(_is_gpu(_mapping(node)) for node in (nodes if isinstance(nodes, list) else [])):
        yield "no device file of a GPU opened"
    kernel, driver = host.get("kernel_driver"), host.get("driver")
    if kernel is not None and kernel != driver:
        yield f"the kernel's driver is {kernel}, the library's {driver}"
    if preloaded := _mapping(report.environment.get("variables")).get("LD_PRELOAD"):
        yield f"LD_PRELOAD put {preloaded} before all libraries"


def _is_gpu(node: Mapping[str, Any]) -> bool:
    """A device file of the NVIDIA driver, by the kernel's own list of drivers, that opens."""
    path = str(node.get("path") or "")
    return bool(
        _GPU_NODE.fullmatch(path)
        and node.get("device")
        and node.get("opens")
        and node.get("registered") is not False
    )


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
