"""Test hosts: as described by a user, and as reported by NVML on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from validator.errors import InputError

from ..emulation.stubs import Stubs, build
from ..loop import tiers
from .values import host

_ASK = """
import json
from validator.errors import MissingError
from validator.delivery.choose import this_host
try:
    host = this_host()
except MissingError as error:
    print(json.dumps({"error": str(error), "hint": error.hint}))
else:
    gpus = [[gpu.name, str(gpu.capability)] for gpu in host.gpus]
    print(json.dumps({"driver": str(host.driver), "gpus": gpus, "text": str(host)}))
"""


@pytest.fixture(scope="module")
@tiers.service
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Stubs:
    return build(tmp_path_factory.mktemp("stubs"))


def detect(directory: Path, **stub: str) -> dict[str, Any]:
    """Return what `this_host` finds in a process whose NVML, if any, is in a directory."""
    environment = {**os.environ, **stub, "LD_LIBRARY_PATH": str(directory)}
    done = subprocess.run([sys.executable, "-c", _ASK], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_a_host_described_by_a_user() -> None:
    described = host("R535.183", "a100", "RTX 4090", "8.0", "Tesla V100-SXM2-16GB", "a100")
    assert str(described.driver) == "535.183"
    assert [str(capability) for capability in described.capabilities] == ["7.0", "8.0", "8.9"]
    assert [one.identifier for one in described.classes] == [
        "r535.183-a100", "r535.183-rtx-4090", "r535.183-sm80", "r535.183-v100",
    ]  # fmt: skip
    assert str(described).startswith("driver 535.183 with 2 of A100 (8.0), ")
    assert "compute capability 8.0" in str(described)


@pytest.mark.parametrize(
    ("driver", "gpu", "says"),
    [
        ("twelve", "a100", "--driver"),
        ("12.4", "a100", "is not a driver release"),
        ("5355", "a100", "--driver: there is no driver branch R5355"),
        ("535", "a10000", 'GPU "a10000" is not known'),
        ("535", "80", 'GPU "80" is not known'),
    ],
)
def test_an_unknown_driver_or_gpu_is_rejected(driver: str, gpu: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        host(driver, gpu)


def test_nvml_reports_the_driver_and_gpus(stubs: Stubs) -> None:
    answer = detect(
        stubs.place("driver"),
        STUB_RELEASE="535.183.01", STUB_GPUS="2", STUB_NAME="NVIDIA H100 PCIe", STUB_CAPABILITY="9.0",
    )  # fmt: skip
    assert answer["driver"] == "535.183.01"
    assert answer["gpus"] == [["NVIDIA H100 PCIe", "9.0"]] * 2
    assert answer["text"] == "driver 535.183.01 with 2 of NVIDIA H100 PCIe (9.0)"


@pytest.mark.parametrize(
    ("stub", "says", "hint"),
    [
        (
            {"STUB_GPUS": "0"},
            "the NVIDIA driver 570.124.06 is installed, but it sees no GPU",
            "nvidia-smi -L",
        ),
        ({"STUB_FAIL": "nvmlInitWithFlags=9"}, "kernel module is not loaded", "modprobe"),
        ({"STUB_FAIL": "nvmlInitWithFlags=18"}, "the kernel still runs the older module", "restart"),
        ({"STUB_FAIL": "nvmlInitWithFlags=4"}, "does not answer: Insufficient Permissions", "--gpu"),
        (
            {"STUB_FAIL": "nvmlDeviceGetHandleByIndex=15"},
            "does not report its version or GPUs: GPU is lost",
            "--gpu",
        ),
        ({"STUB_RELEASE": "none"}, '"none" is not a driver release', "--gpu"),
    ],
)
def test_a_broken_driver_is_explained(stubs: Stubs, stub: dict[str, str], says: str, hint: str) -> None:
    answer = detect(stubs.place("driver"), **stub)
    assert says in answer["error"]
    assert hint in answer["hint"]
    assert "--driver 535.183.01 --gpu a100" in answer["hint"]


@pytest.mark.slow
def test_a_machine_without_a_driver(tmp_path: Path) -> None:
    # The loader finds this file before any real library and rejects it.
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"")
    answer = detect(tmp_path)
    assert (
        answer["error"]
        == "this machine has no NVIDIA driver: libnvidia-ml.so.1, which is part of it, was not found"
    )
