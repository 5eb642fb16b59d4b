"""Facts and fixtures for the probe's tests."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def facts() -> dict[str, Any]:
    """Facts of a machine without a GPU, driver or TensorFlow."""
    return {
        "host": {
            "driver": None,
            "driver_cuda": None,
            "gpus": [],
            "kernel": "6.1.0",
            "wsl": False,
            "kernel_driver": None,
            "device_nodes": [],
            "driver_libraries": {
                "nvml": {"answered": False, "error": "libnvidia-ml.so.1: cannot open", "path": None},
                "cuda": {
                    "answered": False,
                    "error": "libcuda.so.1: cannot open",
                    "path": None,
                    "code": None,
                    "count": None,
                },
            },
        },
        "environment": {"python": "3.11.7", "tensorflow": None, "packages": {}, "variables": {}},
        "tensorflow": None,
    }


@pytest.fixture
def gpu_facts(facts: dict[str, Any]) -> dict[str, Any]:
    """Facts of a machine with one H100 and driver 535.183.01."""
    gpu = {
        "name": "NVIDIA H100 PCIe",
        "uuid": "GPU-1",
        "compute_capability": "9.0",
        "memory_bytes": 85_520_809_984,
    }
    paths = ("/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidiactl")
    facts["host"].update(
        driver="535.183.01",
        driver_cuda="12.2",
        gpus=[gpu],
        kernel_driver="535.183.01",
        device_nodes=[
            {"path": path, "device": True, "registered": True, "opens": True, "error": None} for path in paths
        ],
        driver_libraries={
            "nvml": {"answered": True, "error": None, "path": "/usr/lib/libnvidia-ml.so.535.183.01"},
            "cuda": {
                "answered": True,
                "error": None,
                "path": "/usr/lib/libcuda.so.535.183.01",
                "code": 0,
                "count": 1,
                "gpus": [{**gpu, "multiprocessors": 114}],
            },
        },
    )
    return facts
