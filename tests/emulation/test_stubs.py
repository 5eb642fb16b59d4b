"""The stubs build, load, and answer as configured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from docs.fields import fields
from validator.model.report import CudaDriver, CudaGpu, Gpu, Nvml

from .stubs import LIBRARIES, Stubs

# Calls both libraries in a separate process, as the probe does.
ASK = """
import ctypes, json
cuda, nvml = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libnvidia-ml.so.1")
number, count, text = ctypes.c_int(), ctypes.c_int(), ctypes.c_char_p()
answers = {"init": cuda.cuInit(0), "nvml": nvml.nvmlInit_v2()}
cuda.cuGetErrorName(answers["init"], ctypes.byref(text))
answers["error"] = text.value.decode()
cuda.cuDriverGetVersion(ctypes.byref(number)), cuda.cuDeviceGetCount(ctypes.byref(count))
answers["cuda"], answers["devices"] = number.value, count.value
name = ctypes.create_string_buffer(64)
cuda.cuDeviceGetName(name, 64, 0)
answers["name"] = name.value.decode()
major, minor = ctypes.c_int(), ctypes.c_int()
cuda.cuDeviceComputeCapability(ctypes.byref(major), ctypes.byref(minor), 0)
answers["capability"] = f"{major.value}.{minor.value}"
pointer = ctypes.c_void_p()
answers["small"] = cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(1 << 20))
answers["freed"] = cuda.cuMemFree_v2(pointer)
answers["large"] = cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(1 << 40))
release = ctypes.create_string_buffer(64)
nvml.nvmlSystemGetDriverVersion(release, 64)
answers["release"] = release.value.decode()
print(json.dumps(answers))
"""


def ask(stubs: Stubs, **variables: str) -> dict[str, Any]:
    inherited = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    done = subprocess.run(
        [sys.executable, "-c", ASK],
        env={**inherited, "LD_LIBRARY_PATH": str(stubs.place("driver")), **variables},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    answers: dict[str, Any] = json.loads(done.stdout)
    return answers


def test_a_healthy_driver(stubs: Stubs) -> None:
    assert ask(stubs) == {
        "init": 0, "nvml": 0, "error": "CUDA_SUCCESS", "cuda": 12080, "devices": 1,
        "name": "NVIDIA A100-SXM4-40GB", "capability": "8.0",
        "small": 0, "freed": 0, "large": 2, "release": "570.124.06",
    }  # fmt: skip


def test_the_variables_set_the_answers_of_the_driver(stubs: Stubs) -> None:
    answers = ask(
        stubs, STUB_GPUS="3", STUB_NAME="Tesla K80", STUB_CAPABILITY="3.7", STUB_CUDA="11040",
        STUB_RELEASE="470.57.02", STUB_FAIL="nvmlInit=18,cuMemAlloc=2",
    )  # fmt: skip
    assert answers["devices"] == 3
    assert (answers["name"], answers["capability"]) == ("Tesla K80", "3.7")
    assert (answers["cuda"], answers["release"]) == (11040, "470.57.02")
    assert (answers["nvml"], answers["small"]) == (18, 2)


def test_a_report_with_a_driver_has_the_fields_of_the_reference(stubs: Stubs) -> None:
    """The reference of the fields is made from these types."""
    inherited = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    done = subprocess.run(
        [sys.executable, "-m", "validator.probe.cli", "--host-facts"],
        env={**inherited, "LD_LIBRARY_PATH": str(stubs.place("driver"))},
        capture_output=True, check=True,
    )  # fmt: skip
    host = json.loads(done.stdout)
    libraries = host["driver_libraries"]
    assert libraries["nvml"].keys() == fields(Nvml).keys()
    assert libraries["cuda"].keys() == fields(CudaDriver).keys()
    assert libraries["cuda"]["gpus"][0].keys() == fields(CudaGpu).keys()
    assert host["gpus"][0].keys() == fields(Gpu).keys()


@pytest.mark.parametrize(
    ("code", "name"),
    [(34, "CUDA_ERROR_STUB_LIBRARY"), (100, "CUDA_ERROR_NO_DEVICE"), (802, "CUDA_ERROR_SYSTEM_NOT_READY")],
)
def test_cuinit_fails_as_configured(stubs: Stubs, code: int, name: str) -> None:
    answers = ask(stubs, STUB_FAIL=f"cuInit={code}")
    assert (answers["init"], answers["error"]) == (code, name)


@pytest.mark.parametrize(
    ("visible", "init", "devices"),
    [("", 100, 0), ("-1", 100, 0), ("7", 100, 0), ("gpu0", 100, 0), ("1", 0, 1), ("1,0", 0, 2),
     ("0,7,1", 0, 1), ("GPU-07070707", 0, 1)],
)  # fmt: skip
def test_cuda_visible_devices_is_obeyed(stubs: Stubs, visible: str, init: int, devices: int) -> None:
    """NVIDIA documents that an entry without a device hides itself and all after it."""
    answers = ask(stubs, STUB_GPUS="2", CUDA_VISIBLE_DEVICES=visible)
    assert (answers["init"], answers["devices"]) == (init, devices)


def test_files_of_the_kernel_module_can_be_put_anywhere(stubs: Stubs, tmp_path: Path) -> None:
    version = tmp_path / "proc/driver/nvidia/version"
    version.parent.mkdir(parents=True)
    version.write_text("NVRM version: 460.91.03\n")
    done = subprocess.run(
        [sys.executable, "-c", "print(open('/proc/driver/nvidia/version').read())"],
        env={**os.environ, "LD_PRELOAD": str(stubs.redirect), "STUB_ROOT": str(tmp_path)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "460.91.03" in done.stdout


def test_all_libraries_are_built(stubs: Stubs) -> None:
    assert {path.name for path in stubs.place("driver").iterdir()} == {
        "libcuda.so", "libcuda.so.1", "libcuda.so.570.124.06",
        "libnvidia-ml.so", "libnvidia-ml.so.1", "libnvidia-ml.so.570.124.06",
    }  # fmt: skip
    for place, (_, names) in LIBRARIES.items():
        assert {path.name for path in stubs.place(place).iterdir()} == set(names)
