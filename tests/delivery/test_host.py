"""Hosts: asked about, and as NVML tells of this machine."""

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
from .values import host

_ASK = """
import json
from validator.errors import MissingError
from validator.delivery.host import this_host
try:
    host = this_host()
except MissingError as error:
    print(json.dumps({"error": str(error), "hint": error.hint}))
else:
    gpus = [[gpu.name, str(gpu.capability)] for gpu in host.gpus]
    print(json.dumps({"driver": str(host.driver), "gpus": gpus, "text": str(host)}))
"""


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Stubs:
    return build(tmp_path_factory.mktemp("stubs"))


def ask(directory: Path, **told: str) -> dict[str, Any]:
    """What a process finds whose NVML, if any, lies in a directory."""
    environment = {**os.environ, **told, "LD_LIBRARY_PATH": str(directory)}
    done = subprocess.run([sys.executable, "-c", _ASK], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_a_host_that_is_asked_about() -> None:
    asked = host("R535.183", "a100", "RTX 4090", "8.0", "Tesla V100-SXM2-16GB", "a100")
    assert str(asked.driver) == "535.183"
    assert [str(capability) for capability in asked.capabilities] == ["7.0", "8.0", "8.9"]
    assert [one.identifier for one in asked.classes] == [
        "r535.183-a100", "r535.183-rtx-4090", "r535.183-sm80", "r535.183-v100",
    ]  # fmt: skip
    assert str(asked).startswith("driver 535.183 with 2 of A100 (8.0), ")
    assert "compute capability 8.0" in str(asked)


@pytest.mark.parametrize(
    ("driver", "gpu", "says"),
    [
        ("twelve", "a100", "--driver"),
        ("12.4", "a100", "is not a driver release"),
        ("535", "a10000", 'GPU "a10000" is not known'),
        ("535", "80", 'GPU "80" is not known'),
    ],
)
def test_what_is_not_known_is_said(driver: str, gpu: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        host(driver, gpu)


def test_what_nvml_tells_of_this_machine(stubs: Stubs) -> None:
    answer = ask(
        stubs.place("driver"),
        STUB_RELEASE="535.183.01", STUB_GPUS="2", STUB_NAME="NVIDIA H100 PCIe", STUB_CAPABILITY="9.0",
    )  # fmt: skip
    assert answer["driver"] == "535.183.01"
    assert answer["gpus"] == [["NVIDIA H100 PCIe", "9.0"]] * 2
    assert answer["text"] == "driver 535.183.01 with 2 of NVIDIA H100 PCIe (9.0)"


@pytest.mark.parametrize(
    ("told", "says", "hint"),
    [
        ({"STUB_GPUS": "0"}, "the NVIDIA driver 570.124.06 is here, but it has no GPU", "nvidia-smi -L"),
        ({"STUB_FAIL": "nvmlInitWithFlags=9"}, "kernel module is not loaded", "modprobe"),
        ({"STUB_FAIL": "nvmlInitWithFlags=18"}, "its kernel module is still the older one", "restart"),
        ({"STUB_FAIL": "nvmlInitWithFlags=4"}, "does not answer: Insufficient Permissions", "--gpu"),
        ({"STUB_FAIL": "nvmlDeviceGetHandleByIndex=15"}, "does not say what it has: GPU is lost", "--gpu"),
        ({"STUB_RELEASE": "none"}, '"none" is not a driver release', "--gpu"),
    ],
)
def test_a_driver_that_does_not_answer(stubs: Stubs, told: dict[str, str], says: str, hint: str) -> None:
    answer = ask(stubs.place("driver"), **told)
    assert says in answer["error"]
    assert hint in answer["hint"]
    assert "--driver 535.183.01 --gpu a100" in answer["hint"]


def test_a_machine_without_a_driver(tmp_path: Path) -> None:
    # A file that is no library stands before any real one; the loader takes it for none and says so.
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"")
    answer = ask(tmp_path)
    assert answer["error"] == "no NVIDIA driver here: it would bring libnvidia-ml.so.1"
