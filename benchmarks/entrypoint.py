"""Measure what the entry point of gpu images adds to a container's start: `python benchmarks/entrypoint.py`.

The script runs over a made-up host with a driver that fits and one GPU, which is its longest way. Beside it
is the same shell that starts the same command at once.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

from validator.assemble.configuration import tables  # noqa: E402
from validator.resources import images_directory  # noqa: E402

LIMIT_MS = 20.0
RUNS = 200


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        files = {
            "opt/tensorflow-gpu-matrix/tables": tables(),
            "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01\n",
            "proc/driver/nvidia/gpus/0/information": "Model: \t NVIDIA H100 80GB HBM3\nDevice Minor: \t 0\n",
            "dev/nvidia0": "",
            "start": (images_directory() / "entrypoint" / "start")
            .read_text(encoding="utf-8")
            .replace("\nroot=\n", f"\nroot='{root}'\n"),
        }
        for path, content in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(content, encoding="utf-8")
        checked = milliseconds(["/bin/sh", str(root / "start"), "/bin/true"])
        bare = milliseconds(["/bin/sh", "-c", 'exec "$@"', "sh", "/bin/true"])
    print(
        f"the start of a command  {checked:.2f} ms with the check, {bare:.2f} ms without"
        f"  ratio {checked / bare:.2f}; the check {checked - bare:.2f} ms of {LIMIT_MS:.0f} ms"
    )
    return 0 if checked - bare <= LIMIT_MS else 1


def milliseconds(command: list[str]) -> float:
    """Return the median of several runs of a whole process."""
    environment = {"NVIDIA_REQUIRE_CUDA": "cuda>=12.0", "VALIDATOR_COMPUTE_CAPABILITY": "6.0"}
    times = []
    for _ in range(RUNS):
        begin = time.perf_counter()
        subprocess.run(command, env=environment, check=True)
        times.append(time.perf_counter() - begin)
    return statistics.median(times) * 1000


if __name__ == "__main__":
    raise SystemExit(main())
