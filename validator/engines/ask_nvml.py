"""A script: ask NVML and the kernel about the driver and the GPUs, and print the answer as JSON.

`this_machine.py` runs it with an empty environment. It imports nothing of this project, so that it starts
without the project's place on Python's path.
"""

import ctypes
import json
import platform
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pynvml

#: Directories where the loader may not look by itself: WSL mounts the driver's library in one, NixOS links
#: it in the other.
_PLACES = ("/usr/lib/wsl/lib/libnvidia-ml.so.1", "/run/opengl-driver/lib/libnvidia-ml.so.1")
_KERNEL = "/proc/driver/nvidia"
_DXG = "/dev/dxg"


def answer(nvml: Any, kernel: Path, wsl: bool) -> dict[str, Any]:
    """Return what `this_machine.Reading` describes. nvml: the module. kernel: /proc/driver/nvidia."""
    found: dict[str, Any] = {"wsl": wsl}
    nvml.nvmlInit()
    try:
        found["driver"] = nvml.nvmlSystemGetDriverVersion()
        found["gpus"] = [_gpu(nvml, index) for index in range(nvml.nvmlDeviceGetCount())]
        # Read it while NVML keeps the GPUs awake: the kernel does not know the UUID of a sleeping GPU.
        with suppress(OSError):
            found["version"] = (kernel / "version").read_text()
        found["information"] = {
            path.parent.name: path.read_text() for path in kernel.glob("gpus/*/information")
        }
    finally:
        nvml.nvmlShutdown()
    return found


def _gpu(nvml: Any, index: int) -> dict[str, str]:
    device = nvml.nvmlDeviceGetHandleByIndex(index)
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(device)
    return {
        "uuid": nvml.nvmlDeviceGetUUID(device),
        "name": nvml.nvmlDeviceGetName(device),
        "compute_capability": f"{major}.{minor}",
        "bus": nvml.nvmlDeviceGetPciInfo(device).busId,
    }


def main() -> int:
    """Print the answer. The exit status is 1 if NVML does not answer."""
    for place in _PLACES:
        # pynvml opens the library by its name, which finds a library that is already loaded.
        with suppress(OSError):
            ctypes.CDLL(place)
    is_wsl = False
    with suppress(OSError):
        is_wsl = Path(_DXG).is_char_device() and "microsoft" in platform.release().lower()
    try:
        found = answer(pynvml, Path(_KERNEL), is_wsl)
    except pynvml.NVMLError as error:
        print(error, file=sys.stderr)
        return 1
    json.dump(found, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
