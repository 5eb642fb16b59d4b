"""Environments with a real TensorFlow, made once and kept in the cache directory for all workers and runs."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import filelock
from uv import find_uv_bin

from validator.supply.parts import ENVIRONMENTS, requirements_of
from validator.system.files import cache_directory

PYTHON = "3.11"
#: XLA_FLAGS that keep LLVM from optimizing, so that checks on the CPU take a third of the time. The checks
#: look at the result of XLA's own passes, which stay the same.
UNOPTIMIZED = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
LOCKS = Path(__file__).resolve().parents[2] / ENVIRONMENTS


def lock_of(requirements: Sequence[str], version: str) -> Path | None:
    """Return the lock of the environment with these requirements, if there is one."""
    header = "\n".join([f"# python: {version}", *(f"# requires: {one}" for one in requirements)])
    found = [
        path for path in LOCKS.glob("*.txt") if path.read_text(encoding="utf-8").startswith(f"{header}\n")
    ]
    return next((path for path in found if requirements_of(path.read_text()) == tuple(requirements)), None)


def tensorflow_environment(requirements: Sequence[str], version: str = PYTHON) -> Path:
    """Return the Python of an environment with these requirements and what they need. version: of Python.

    Packages come from a lock with hashes. Without one, they are resolved now; in CI, that is an error.
    """
    lock = lock_of(requirements, version)
    if lock is None and os.environ.get("CI"):
        raise AssertionError(f"{LOCKS} has no lock for {requirements} on Python {version}")
    recipe = lock.read_text(encoding="utf-8") if lock else "\n".join([version, *requirements])
    path = cache_directory() / "tests" / hashlib.sha256(recipe.encode()).hexdigest()[:16]
    path.parent.mkdir(parents=True, exist_ok=True)
    packages = list(requirements)
    if lock:
        packages = ["--require-hashes", "--no-deps", "--only-binary", ":all:", "--requirements", str(lock)]
    # Two workers, or two runs, may want the same one at the same time.
    with filelock.FileLock(path.with_suffix(".lock")):
        if not (path / "bin" / "python").exists():
            with tempfile.TemporaryDirectory(dir=path.parent) as name:
                partial = Path(name) / "environment"
                _uv("venv", "--relocatable", "--python", version, str(partial))
                _uv("pip", "install", "--python", str(partial / "bin" / "python"), *packages)
                os.rename(partial, path)
    return path / "bin" / "python"


def _uv(*arguments: str) -> None:
    subprocess.run([find_uv_bin(), "--quiet", *arguments], check=True)


#: What TensorFlow 2.21 was built with: the lower bounds of its and-cuda extra.
AS_BUILT_2_21 = (
    "tensorflow==2.21.0",
    "nvidia-cublas-cu12==12.5.3.2",
    "nvidia-cuda-cupti-cu12==12.5.82",
    "nvidia-cuda-nvcc-cu12==12.5.82",
    "nvidia-cuda-nvrtc-cu12==12.5.82",
    "nvidia-cuda-runtime-cu12==12.5.82",
    "nvidia-cudnn-cu12==9.3.0.75",
    "nvidia-cufft-cu12==11.2.3.61",
    "nvidia-curand-cu12==10.3.6.82",
    "nvidia-cusolver-cu12==11.6.3.83",
    "nvidia-cusparse-cu12==12.5.1.3",
    "nvidia-nccl-cu12==2.27.7",
    "nvidia-nvjitlink-cu12==12.5.82",
)
#: The fault of the official GPU images of 2.18 to 2.21 (tensorflow/tensorflow issue 81344): the cuDNN of an
#: older release next to a wheel that opens cuDNN 9.
WITH_CUDNN_8 = tuple(
    "nvidia-cudnn-cu12==8.9.7.29" if name.startswith("nvidia-cudnn") else name for name in AS_BUILT_2_21
)
