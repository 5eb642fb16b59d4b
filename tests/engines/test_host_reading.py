"""Reading the driver and the GPUs on the host: NVML and the kernel have to agree, and no variable counts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from validator.engines import ask_nvml, this_machine
from validator.engines.this_machine import NvmlGpu, Reading, read_host, reading_of
from validator.model.record import GpuIdentity, Outside, Unread

from ..emulation.stubs import Stubs, build
from ..loop import tiers

DRIVER = "580.65.06"
VERSION = f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {DRIVER}  Release Build  (root@a)\n"
CLOSED = f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {DRIVER}  Tue Jul  1 00:00:00 UTC 2025\n"
H100 = NvmlGpu("GPU-B", "NVIDIA H100 80GB HBM3", "9.0", "00000000:3B:00.0")
T4 = NvmlGpu("GPU-A", "Tesla T4", "7.5", "00000001:AF:00.0")


def information(gpu: NvmlGpu, uuid: str | None = None) -> str:
    return f"Model: \t\t {gpu.name}\nIRQ:   \t\t 129\nGPU UUID: \t {uuid or gpu.uuid}\nGPU Excluded:\t No\n"


BOTH = Reading(
    DRIVER, (H100, T4), VERSION, {"0000:3b:00.0": information(H100), "0001:af:00.0": information(T4)}
)


def changed(**fields: Any) -> Reading:
    return msgspec.structs.replace(BOTH, **fields)


@pytest.mark.parametrize(
    "answer",
    [
        BOTH,
        changed(version=CLOSED),
        # Before the driver has woken a GPU, the kernel does not know its UUID.
        changed(
            information={
                "0000:3b:00.0": information(H100, "GPU-????????-????-????-????-????????????"),
                "0001:af:00.0": information(T4),
            }
        ),
    ],
)
def test_what_nvml_and_the_kernel_agree_on_is_the_reading(answer: Reading) -> None:
    assert reading_of(answer) == Outside(
        DRIVER,
        DRIVER,
        (GpuIdentity("GPU-A", "Tesla T4", "7.5"), GpuIdentity("GPU-B", "NVIDIA H100 80GB HBM3", "9.0")),
    )


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Reading(), Unread.NVML_SILENT),
        (changed(driver=None), Unread.NVML_SILENT),
        (changed(version=None), Unread.KERNEL_SILENT),
        (changed(version="Module of something else"), Unread.KERNEL_DIFFERS),
        (changed(driver="570.26"), Unread.KERNEL_DIFFERS),
        (changed(information={}), Unread.KERNEL_DIFFERS),
        (changed(information={"0000:3b:00.0": information(H100)}), Unread.KERNEL_DIFFERS),
        (changed(gpus=(msgspec.structs.replace(H100, uuid="GPU-C"), T4)), Unread.KERNEL_DIFFERS),
        (changed(gpus=(msgspec.structs.replace(H100, name="NVIDIA H200"), T4)), Unread.KERNEL_DIFFERS),
        (changed(gpus=(msgspec.structs.replace(H100, bus="00000000:3C:00.0"), T4)), Unread.KERNEL_DIFFERS),
        # Only WSL's kernel has no list of its own.
        (changed(wsl=True, driver="570.26"), Unread.KERNEL_DIFFERS),
    ],
)
def test_without_agreement_there_is_no_reading(answer: Reading, why: Unread) -> None:
    assert reading_of(answer) is why


def test_under_wsl_nvml_counts_alone() -> None:
    answer = Reading("576.02", (H100,), wsl=True)
    assert reading_of(answer) == Outside(
        "576.02", None, (GpuIdentity("GPU-B", "NVIDIA H100 80GB HBM3", "9.0"),)
    )


class FakeNvml:
    """As much of pynvml as the script uses."""

    NVMLError = RuntimeError

    def __init__(self, *gpus: NvmlGpu) -> None:
        self.gpus, self.open = gpus, False

    def nvmlInit(self) -> None:
        self.open = True

    def nvmlShutdown(self) -> None:
        self.open = False

    def nvmlSystemGetDriverVersion(self) -> str:
        return DRIVER

    def nvmlDeviceGetCount(self) -> int:
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> NvmlGpu:
        return self.gpus[index]

    def nvmlDeviceGetCudaComputeCapability(self, gpu: NvmlGpu) -> list[int]:
        return [int(part) for part in gpu.compute_capability.split(".")]

    def nvmlDeviceGetUUID(self, gpu: NvmlGpu) -> str:
        return gpu.uuid

    def nvmlDeviceGetName(self, gpu: NvmlGpu) -> str:
        return gpu.name

    def nvmlDeviceGetPciInfo(self, gpu: NvmlGpu) -> SimpleNamespace:
        return SimpleNamespace(busId=gpu.bus)


def test_the_script_answers_what_the_reading_needs(tmp_path: Path) -> None:
    for gpu, address in ((H100, "0000:3b:00.0"), (T4, "0001:af:00.0")):
        (tmp_path / "gpus" / address).mkdir(parents=True)
        (tmp_path / "gpus" / address / "information").write_text(information(gpu))
    (tmp_path / "version").write_text(VERSION)
    nvml = FakeNvml(H100, T4)
    found = ask_nvml.answer(nvml, tmp_path, wsl=False)
    assert not nvml.open
    assert msgspec.convert(json.loads(json.dumps(found)), Reading) == BOTH
    assert ask_nvml.answer(nvml, tmp_path / "no", wsl=True) == {
        "driver": DRIVER,
        "gpus": found["gpus"],
        "information": {},
        "wsl": True,
    }


def test_a_device_of_wsl_that_may_not_be_looked_at_is_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(path: Path) -> bool:
        raise PermissionError(path)

    monkeypatch.setattr(Path, "is_char_device", refused)
    monkeypatch.setattr(ask_nvml, "answer", lambda nvml, kernel, wsl: {"wsl": wsl})
    assert ask_nvml.main() == 0
    assert json.loads(capsys.readouterr().out) == {"wsl": False}


@pytest.mark.slow
def test_this_machine_is_read_or_there_is_a_reason() -> None:
    found = read_host()
    if Path("/proc/driver/nvidia/version").exists():
        assert isinstance(found, Outside) and found.driver == found.kernel_driver
    else:
        assert found in (Unread.NVML_SILENT, Unread.KERNEL_SILENT)


@pytest.fixture(scope="module")
@tiers.service
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Stubs:
    return build(tmp_path_factory.mktemp("stubs"))


#: A pynvml that finds a driver, and no GPU.
FALSE_PYNVML = """
NVMLError = RuntimeError
nvmlInit = nvmlShutdown = lambda: None
nvmlSystemGetDriverVersion = lambda: "580.65.06"
nvmlDeviceGetCount = lambda: 0
"""


@pytest.mark.skipif(Path("/proc/driver/nvidia/version").exists(), reason="this machine has a driver")
@pytest.mark.parametrize("variable", ["LD_LIBRARY_PATH", "PYTHONPATH"])
def test_no_variable_puts_another_library_in_front_of_the_drivers(
    variable: str, stubs: Stubs, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "pynvml.py").write_text(FALSE_PYNVML)
    places = {"LD_LIBRARY_PATH": stubs.place("driver"), "PYTHONPATH": tmp_path}
    monkeypatch.setenv(variable, str(places[variable]))
    monkeypatch.setenv("STUB_GPUS", "0")
    # With the variable, the script does find a driver; so it is the empty environment that keeps it out.
    script = [sys.executable, str(this_machine._SCRIPT)]
    found = json.loads(subprocess.run(script, capture_output=True, check=True).stdout)
    assert reading_of(msgspec.convert(found, Reading)) is Unread.KERNEL_SILENT
    assert read_host() is Unread.NVML_SILENT


@pytest.mark.slow
def test_an_answer_that_can_not_be_read_is_no_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for text in ("import os; os.abort()", "print('{')", "print('{\"driver\": 1}')"):
        script = tmp_path / "script.py"
        script.write_text(text)
        monkeypatch.setattr(this_machine, "_SCRIPT", script)
        assert read_host() is Unread.NVML_SILENT
