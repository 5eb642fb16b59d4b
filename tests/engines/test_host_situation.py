"""The facts that predictions take from this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from validator.engines.this_machine import read_this_host
from validator.errors import InputError
from validator.model.prediction import Host
from validator.model.record import GpuIdentity, Outside, Unread

A100 = GpuIdentity("GPU-1", "NVIDIA A100-SXM4-80GB", "8.0")
T4 = GpuIdentity("GPU-2", "Tesla T4", "7.5")
PROPRIETARY = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.124.06  Release Build\n"
OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build\n"


@pytest.fixture(autouse=True)
def linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.system", lambda: "Linux")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


@pytest.mark.parametrize(("version", "modules"), [(OPEN, "open"), (PROPRIETARY, "proprietary")])
def test_a_machine_with_a_gpu(tmp_path: Path, version: str, modules: str) -> None:
    write(tmp_path, "proc/driver/nvidia/version", version)
    write(tmp_path, "proc/version", "Linux version 6.8.0-45-generic (buildd@lcy02-amd64-075)")
    assert read_this_host(root=tmp_path, outside=Outside("570.124.06", "570.124.06", (A100, A100))) == Host(
        driver="570.124.06",
        gpu="NVIDIA A100-SXM4-80GB",
        capability="8.0",
        system="linux",
        machine="x86_64",
        kernel_modules=modules,
    )


def test_wsl(tmp_path: Path) -> None:
    write(tmp_path, "proc/version", "Linux version 5.15.153.1-microsoft-standard-WSL2 (root@941d701f84f1)")
    found = read_this_host(root=tmp_path, outside=Outside("572.16", None, (T4,)))
    assert (found.system, found.driver, found.kernel_modules) == ("wsl2", "572.16", None)


def test_jetson(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    assert read_this_host(root=tmp_path, outside=Unread.NVML_SILENT).machine == "aarch64"
    write(tmp_path, "etc/nv_tegra_release", "# R36 (release), REVISION: 4.0")
    assert read_this_host(root=tmp_path, outside=Unread.NVML_SILENT).machine == "jetson"


def test_a_machine_without_a_driver_still_has_a_system(tmp_path: Path) -> None:
    found = read_this_host(root=tmp_path, outside=Unread.NVML_SILENT)
    assert found == Host(system="linux", machine="x86_64")


def test_gpus_of_several_kinds_are_not_chosen_from(tmp_path: Path) -> None:
    several = Outside("570.124.06", "570.124.06", (A100, T4))
    with pytest.raises(InputError, match="several kinds: NVIDIA A100-SXM4-80GB, Tesla T4"):
        read_this_host(root=tmp_path, outside=several)
    found = read_this_host(root=tmp_path, outside=several, one_kind=False)
    assert (found.driver, found.gpu, found.capability) == ("570.124.06", None, None)
