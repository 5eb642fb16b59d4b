"""The entry point of gpu images makes the same check as the NVIDIA container toolkit. The hosts are fake."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from validator.assemble.configuration import tables
from validator.compat import hardware
from validator.model.prediction import Outcome
from validator.resources import images_directory
from validator.versions import CudaVersion, DriverRelease

pytestmark = pytest.mark.service

START = images_directory() / "entrypoint" / "start"
CACHE = images_directory() / "entrypoint" / "cache.py"
LIBRARIES = "usr/lib/x86_64-linux-gnu"


@dataclass(frozen=True)
class Started:
    """The result of a start: `status` is 0 and `out` is "started" if the command ran."""

    status: int
    out: str
    said: str

    @property
    def started(self) -> bool:
        return self.out == "started\n"


class Host:
    """A fake root file system that contains the entry point."""

    def __init__(self, root: Path) -> None:
        self.root = root
        text = START.read_text(encoding="utf-8")
        assert text.count("\nroot=\n") == 1
        self.script = root / "start"
        self.script.write_text(text.replace("\nroot=\n", f"\nroot='{root}'\n"), encoding="utf-8")
        self.write("opt/tensorflow-gpu-matrix/tables", tables())
        self.write("opt/tensorflow-gpu-matrix/cache.py", CACHE.read_text(encoding="utf-8"))

    def write(self, path: str, content: str = "") -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content, encoding="utf-8")

    def kernel(self, release: str) -> Host:
        """Add the kernel module's version file, which every container on a host with a driver sees."""
        self.write(
            "proc/driver/nvidia/version",
            f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {release}  Sun May 12 19:39:15 UTC 2024\n"
            "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n",
        )
        return self

    def device(self, minor: int = 0, model: str | None = None) -> Host:
        self.write(f"dev/nvidia{minor}")
        self.write("dev/nvidiactl")
        if model is not None:
            self.listed(minor, model)
        return self

    def listed(self, minor: int, model: str) -> Host:
        """Add a GPU of the host, without a device file for the container."""
        self.write(
            f"proc/driver/nvidia/gpus/0000:0{minor}:00.0/information",
            f"Model: \t\t {model}\nIRQ:   \t\t 16\nGPU UUID: \t GPU-0\nDevice Minor: \t {minor}\n",
        )
        return self

    def library(self, name: str, directory: str = LIBRARIES) -> Host:
        self.write(f"{directory}/{name}")
        return self

    def start(self, shell: Iterable[str] = ("sh",), command: Iterable[str] = (), **variables: str) -> Started:
        """Start the entry point with only these variables in the environment, not even a PATH."""
        binary, *arguments = shell
        done = subprocess.run(
            [
                str(shutil.which(binary)),
                *arguments,
                str(self.script),
                *(command or ("/bin/echo", "started")),
            ],
            env=variables, capture_output=True, text=True, check=False,
        )  # fmt: skip
        return Started(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


#: A release of each branch since the last one before CUDA 11, and releases on both sides of every minimum.
RELEASES = [
    "418.226.00", "470.82.01", "510.47.03", "520.61.05", "525.60.13", "535.183.01", "545.23.08", "550.54.15",
    "555.42.06", "560.35.03", "570.86.15", "575.51.03", "580.65.06", "590.48.01", "615.10.01", "999.10.01",
]  # fmt: skip


@pytest.mark.parametrize("major", [11, 12, 13])
@pytest.mark.parametrize("release", RELEASES)
def test_the_check_agrees_with_the_rules_for_every_branch(host: Host, release: str, major: int) -> None:
    toolkit = CudaVersion(major, 0)
    predicted = hardware.runs_toolkit(toolkit, DriverRelease.parse(release), None)
    started = host.kernel(release).device().start(NVIDIA_REQUIRE_CUDA=f"cuda>={toolkit}")
    if release.startswith("418"):
        # It is older than every branch in the tables, so its CUDA version is unknown, and unknown properties
        # pass.
        assert predicted.outcome is Outcome.FAILS and started.started
    else:
        # A driver that is newer than every branch in the tables is not known to work, but it may start.
        assert started.started is (predicted.outcome is not Outcome.FAILS), started.said
        assert started.status == (0 if started.started else 3)


@pytest.mark.parametrize("shell", [["dash"], ["bash", "--posix"]], ids=["dash", "bash"])
def test_one_line_says_that_the_driver_is_too_old_and_what_to_do(host: Host, shell: list[str]) -> None:
    started = host.kernel("470.82.01").device().start(shell, NVIDIA_REQUIRE_CUDA="cuda>=12.0")
    assert started.status == 3
    assert started.out == ""
    assert started.said == (
        "tensorflow-gpu-matrix: this image needs cuda>=12.0 (NVIDIA_REQUIRE_CUDA), but this host has driver"
        " 470.82.01 with CUDA 11.4. Install driver R525 or newer, or use an image that fits this host."
        " To start anyway, set VALIDATOR_REQUIRE=warn.\n"
    )


def test_warn_prints_the_problem_and_starts(host: Host) -> None:
    started = (
        host.kernel("470.82.01").device().start(NVIDIA_REQUIRE_CUDA="cuda>=12.0", VALIDATOR_REQUIRE="warn")
    )
    assert started.started and started.status == 0
    assert "this image needs cuda>=12.0" in started.said
    assert started.said.count("\n") == 1


@pytest.mark.parametrize(
    "variables",
    [
        {"VALIDATOR_REQUIRE": "off"},
        *({"NVIDIA_DISABLE_REQUIRE": word} for word in ("1", "t", "true", "TRUE")),
    ],
)
def test_the_check_can_be_switched_off(host: Host, variables: dict[str, str]) -> None:
    started = host.kernel("470.82.01").device().start(NVIDIA_REQUIRE_CUDA="cuda>=12.0", **variables)
    assert started == Started(0, "started\n", "")


@pytest.mark.parametrize("word", ["0", "false", "yes", ""])
def test_a_value_that_go_reads_as_false_switches_nothing_off(host: Host, word: str) -> None:
    host.kernel("470.82.01").device()
    assert host.start(NVIDIA_REQUIRE_CUDA="cuda>=12.0", NVIDIA_DISABLE_REQUIRE=word).status == 3


def test_an_unknown_mode_is_rejected(host: Host) -> None:
    started = host.start(VALIDATOR_REQUIRE="maybe")
    assert (started.status, started.out) == (2, "")
    assert "VALIDATOR_REQUIRE must be enforce, warn or off, but it is 'maybe'." in started.said


@pytest.mark.parametrize(
    ("requirement", "passes"),
    [
        ("cuda>=12.2", True),
        ("cuda>=12.3", False),
        ("CUDA>=12.2", True),
        ("cuda>12.2", False),
        ("cuda>12.1", True),
        ("cuda<=12.2", True),
        ("cuda<12.2", False),
        ("cuda=12.2", True),
        ("cuda=12.2.0", True),
        ("cuda!=12.2", False),
        ("cuda!=12.10", True),
        ("cuda>=12.10", False),
        ("cuda>=9", True),
        ("cuda>=013", False),
        ("driver>=535.104.05", True),
        ("driver>=535.183.06", False),
        ("driver<536", True),
        # Spaces separate alternatives, commas separate conditions.
        ("cuda>=13.0 driver>=535,driver<536", True),
        ("cuda>=13.0 driver>=470,driver<471", False),
        ("cuda>=12.0,driver>=580", False),
        ("  cuda>=13.0   cuda>=12.0 ", True),
        ("cuda>=12.0,,", True),
        ("", True),
        # Properties that a container can't know pass, as in the toolkit.
        ("brand=tesla,cuda>=12.0", True),
        ("brand=tesla,cuda>=13.0", False),
        ("arch>=99.0", True),
    ],
)
def test_the_grammar_is_that_of_the_toolkit(host: Host, requirement: str, passes: bool) -> None:
    started = host.kernel("535.183.01").device().start(NVIDIA_REQUIRE_CUDA=requirement)
    assert started.started is passes, started.said


@pytest.mark.parametrize(
    "requirement",
    [
        "cuda",
        "cuda>=",
        ">=12.0",
        "cuda==12.0",
        "cuda~12",
        "cuda>=twelve",
        "cuda>=99999999999",
        "gpus>=1",
        "cuda>=*",
    ],
)
def test_an_invalid_requirement_is_named(host: Host, requirement: str) -> None:
    started = host.kernel("535.183.01").device().start(NVIDIA_REQUIRE_CUDA=requirement)
    assert started.status == 3
    assert f"NVIDIA_REQUIRE_CUDA is not a valid requirement: {requirement}." in started.said


def test_every_variable_of_the_family_counts_except_that_for_jetson(host: Host) -> None:
    host.kernel("535.183.01").device()
    assert host.start(NVIDIA_REQUIRE_CUDA="cuda>=12.0", NVIDIA_REQUIRE_MINE="driver>=550").status == 3
    assert host.start(NVIDIA_REQUIRE_CUDA="cuda>=12.0", NVIDIA_REQUIRE_JETPACK="jetpack>=6").started
    # A value with several lines is not read as several variables.
    assert host.start(NVIDIA_REQUIRE_CUDA="cuda>=12.0", X="a\nexport NVIDIA_REQUIRE_X='cuda>=99'\n").started


def test_a_value_is_never_executed(host: Host) -> None:
    canary = host.root / "canary"
    text = f"cuda>=12.0$(>{canary})`>{canary}`;>{canary}"
    host.kernel("535.183.01").device().start(NVIDIA_REQUIRE_CUDA=text, NVIDIA_REQUIRE_X=text)
    assert not canary.exists()


# --- finding the driver -------------------------------------------------------------------------------


def test_the_driver_is_found_with_the_open_kernel_module(host: Host) -> None:
    host.device().write(
        "proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  470.82.01  Release Build  (root@x)\n",
    )
    assert "driver 470.82.01" in host.start(NVIDIA_REQUIRE_CUDA="cuda>=12.0").said


@pytest.mark.parametrize("name", ["libcuda.so.470.82.01", "libnvidia-ml.so.470.82.01"])
@pytest.mark.parametrize("directory", [LIBRARIES, "usr/lib64", "usr/local/nvidia/lib64"])
def test_the_release_is_read_from_the_name_of_a_mounted_library(
    host: Host, name: str, directory: str
) -> None:
    started = host.library(name, directory).start(NVIDIA_REQUIRE_CUDA="cuda>=12.0")
    assert started.status == 3
    assert "driver 470.82.01 with CUDA 11.4" in started.said


def test_a_library_without_a_release_in_its_name_is_no_reason_to_refuse(host: Host) -> None:
    """WSL has libcuda.so.1.1, and only NVML could tell the driver's release."""
    host.write("dev/dxg")
    started = host.library("libcuda.so.1.1", "usr/lib/wsl/lib").start(NVIDIA_REQUIRE_CUDA="cuda>=12.0")
    assert started == Started(0, "started\n", "")


def test_a_cuda_compat_package_raises_the_cuda_version(host: Host) -> None:
    host.kernel("535.183.01").device().library("libcuda.so.580.65.06", "usr/local/cuda/compat")
    assert host.start(NVIDIA_REQUIRE_CUDA="cuda>=13.0").status == 3
    assert host.start(NVIDIA_REQUIRE_CUDA="cuda>=13.0", LD_LIBRARY_PATH="/x:/usr/local/cuda/compat").started


# --- no GPU -------------------------------------------------------------------------------------------


def test_a_container_without_a_gpu_prints_a_message_and_starts(host: Host) -> None:
    """Containers without a GPU see the kernel module's version, too."""
    started = host.kernel("470.82.01").start(NVIDIA_REQUIRE_CUDA="cuda>=12.0", NVIDIA_VISIBLE_DEVICES="all")
    assert started.started and started.status == 0
    assert "this container has no GPU" in started.said
    assert started.said.count("\n") == 1


@pytest.mark.parametrize(
    "variables",
    [
        {"NVIDIA_VISIBLE_DEVICES": "void"},
        {"NVIDIA_VISIBLE_DEVICES": "none"},
        {"NVIDIA_VISIBLE_DEVICES": ""},
        {"NVIDIA_VISIBLE_DEVICES": "all", "VALIDATOR_REQUIRE": "off"},
    ],
)
def test_nothing_is_printed_if_no_gpu_was_requested(host: Host, variables: dict[str, str]) -> None:
    assert host.start(NVIDIA_REQUIRE_CUDA="cuda>=12.0", **variables) == Started(0, "started\n", "")


# --- compute capability -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "passes"),
    [
        ("Tesla M60", False),
        ("Tesla K80", False),
        ("Tesla P100-PCIE-16GB", True),
        ("NVIDIA A100-SXM4-80GB", True),
        ("NVIDIA H100 80GB HBM3", True),
        ("GRID M60-8Q", False),
        # The tables do not contain these names, so nothing is claimed.
        ("Tesla K20Xm", True),
        ("NVIDIA GeForce GTX 980", True),
    ],
)
def test_a_gpu_without_code_in_tensorflow_is_refused(host: Host, model: str, passes: bool) -> None:
    host.kernel("535.183.01").device(0, model)
    started = host.start(NVIDIA_REQUIRE_CUDA="cuda>=12.0", VALIDATOR_COMPUTE_CAPABILITY="6.0")
    assert started.started is passes, started.said
    assert passes or "supports GPUs with compute capability 6.0 or newer" in started.said


def test_one_supported_gpu_is_enough(host: Host) -> None:
    host.kernel("535.183.01").device(0, "Tesla M60").device(1, "Tesla V100-SXM2-16GB")
    assert host.start(NVIDIA_REQUIRE_CUDA="cuda>=12.0", VALIDATOR_COMPUTE_CAPABILITY="6.0").started


def test_only_the_gpus_of_the_container_count(host: Host) -> None:
    host.kernel("535.183.01").device(0, "Tesla M60").listed(1, "Tesla V100-SXM2-16GB")
    assert host.start(NVIDIA_REQUIRE_CUDA="cuda>=12.0", VALIDATOR_COMPUTE_CAPABILITY="6.0").status == 3


def test_the_condition_arch_applies_to_every_gpu(host: Host) -> None:
    host.kernel("535.183.01").device(0, "Tesla M60").device(1, "Tesla V100-SXM2-16GB")
    assert host.start(NVIDIA_REQUIRE_CUDA="cuda>=12.0,arch>=5.2").started
    assert host.start(NVIDIA_REQUIRE_CUDA="cuda>=12.0,arch>=7.0").status == 3


# --- the command --------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["off", "no GPU", "fits", "warn"])
def test_the_command_replaces_the_script(host: Host, way: str) -> None:
    """The command's status is the container's, and signals reach the command, not a shell."""
    variables = {"NVIDIA_REQUIRE_CUDA": "cuda>=13.0" if way == "warn" else "cuda>=12.0"}
    if way in ("off", "warn"):
        variables["VALIDATOR_REQUIRE"] = way
    if way != "no GPU":
        host.kernel("535.183.01").device()
    assert host.start(command=["/bin/sh", "-c", "exit 42"], **variables).status == 42
    child = subprocess.Popen(
        ["/bin/sh", str(host.script), "/bin/sh", "-c", "echo $$; exec sleep 60"],
        stdout=subprocess.PIPE,
        env=variables,
    )
    with child:
        assert child.stdout is not None
        assert int(child.stdout.readline()) == child.pid
        child.terminate()
        assert child.wait(timeout=30) == -15


def test_arguments_are_passed_unchanged(host: Host) -> None:
    words = ["a b", "", "*", "$HOME", "-x", "new\nline"]
    started = host.start(command=["/usr/bin/printf", "[%s]", *words])
    assert started.out == "".join(f"[{word}]" for word in words)


def test_a_missing_command_gives_the_status_of_the_shell(host: Host) -> None:
    assert host.start(command=["/no/such/command"]).status == 127


def test_no_other_program_is_run(host: Host, tmp_path: Path) -> None:
    """The PATH has only traps: a program that the script ran would print a line."""
    trap = tmp_path / "bin"
    trap.mkdir()
    for name in (
        "cat",
        "grep",
        "sed",
        "awk",
        "env",
        "ls",
        "sort",
        "tr",
        "cut",
        "head",
        "uname",
        "nvidia-smi",
    ):
        (trap / name).write_text(f"#!/bin/sh\necho ran {name} >&2\n", encoding="utf-8")
        os.chmod(trap / name, 0o755)
    host.kernel("535.183.01").device(0, "Tesla V100-SXM2-16GB")
    started = host.start(NVIDIA_REQUIRE_CUDA="cuda>=12.0 driver>=1", PATH=str(trap))
    assert started == Started(0, "started\n", "")


def test_without_tables_nothing_is_refused(host: Host) -> None:
    (host.root / "opt/tensorflow-gpu-matrix/tables").unlink()
    host.kernel("470.82.01").device(0, "Tesla M60")
    assert host.start(NVIDIA_REQUIRE_CUDA="cuda>=12.0", VALIDATOR_COMPUTE_CAPABILITY="6.0").started
