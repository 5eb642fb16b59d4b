"""The entry point of gpu images: the same check as the NVIDIA container toolkit's, over made-up hosts."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from validator.compat import drivers
from validator.engines.docker import names
from validator.engines.docker.host_requirements import tables
from validator.model.prediction import Outcome
from validator.versions import CudaVersion, DriverRelease

pytestmark = pytest.mark.service

START = names.IMAGES / "entrypoint" / "start"
LIBRARIES = "usr/lib/x86_64-linux-gnu"


@dataclass(frozen=True)
class Started:
    """What came of a start: `status` 0 and `out` "started" when the command ran."""

    status: int
    out: str
    said: str

    @property
    def started(self) -> bool:
        return self.out == "started\n"


class Host:
    """A made-up file system, and the entry point in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        text = START.read_text(encoding="utf-8")
        assert text.count("\nroot=\n") == 1
        self.script = root / "start"
        self.script.write_text(text.replace("\nroot=\n", f"\nroot='{root}'\n"), encoding="utf-8")
        self.write("opt/tensorflow-gpu-matrix/tables", tables())

    def write(self, path: str, content: str = "") -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content, encoding="utf-8")

    def kernel(self, release: str) -> Host:
        """The kernel module's version file, as every container of a host with a driver sees it."""
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
        """A GPU of the host, given to the container or not."""
        self.write(
            f"proc/driver/nvidia/gpus/0000:0{minor}:00.0/information",
            f"Model: \t\t {model}\nIRQ:   \t\t 16\nGPU UUID: \t GPU-0\nDevice Minor: \t {minor}\n",
        )
        return self

    def library(self, name: str, directory: str = LIBRARIES) -> Host:
        self.write(f"{directory}/{name}")
        return self

    def start(self, shell: Iterable[str] = ("sh",), command: Iterable[str] = (), **variables: str) -> Started:
        """Start it with no more of an environment than these variables: not even a PATH."""
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


#: A release of each branch from the last before CUDA 11 on, and both sides of every floor.
RELEASES = [
    "418.226.00", "470.82.01", "510.47.03", "520.61.05", "525.60.13", "535.183.01", "545.23.08", "550.54.15",
    "555.42.06", "560.35.03", "570.86.15", "575.51.03", "580.65.06", "590.48.01", "615.10.01", "999.10.01",
]  # fmt: skip


@pytest.mark.parametrize("major", [11, 12, 13])
@pytest.mark.parametrize("release", RELEASES)
def test_it_agrees_with_the_rules_about_every_branch(host: Host, release: str, major: int) -> None:
    toolkit = CudaVersion(major, 0)
    predicted = drivers.runs_toolkit(toolkit, DriverRelease.parse(release), None)
    started = host.kernel(release).device().start(NVIDIA_REQUIRE_CUDA=f"cuda>={toolkit}")
    if release.startswith("418"):
        # Older than every branch in the tables: its CUDA version is not known, and the toolkit lets pass what
        # is not known.
        assert predicted.outcome is Outcome.FAILS and started.started
    else:
        assert started.started is (predicted.outcome is Outcome.WORKS), started.said
        assert started.status == (0 if started.started else 3)


@pytest.mark.parametrize("shell", [["dash"], ["bash", "--posix"]], ids=["dash", "bash"])
def test_a_driver_that_is_too_old_is_named_with_its_remedy_in_one_line(host: Host, shell: list[str]) -> None:
    started = host.kernel("470.82.01").device().start(shell, NVIDIA_REQUIRE_CUDA="cuda>=12.0")
    assert started.status == 3
    assert started.out == ""
    assert started.said == (
        "tensorflow-gpu-matrix: this image needs cuda>=12.0 (NVIDIA_REQUIRE_CUDA), and here is driver"
        " 470.82.01 with CUDA 11.4; install driver R525 or newer, or take an image that fits this host;"
        " VALIDATOR_REQUIRE=warn starts it all the same\n"
    )


def test_warn_says_it_and_starts(host: Host) -> None:
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
def test_it_can_be_switched_off(host: Host, variables: dict[str, str]) -> None:
    started = host.kernel("470.82.01").device().start(NVIDIA_REQUIRE_CUDA="cuda>=12.0", **variables)
    assert started == Started(0, "started\n", "")


@pytest.mark.parametrize("word", ["0", "false", "yes", ""])
def test_what_go_takes_for_false_switches_nothing_off(host: Host, word: str) -> None:
    host.kernel("470.82.01").device()
    assert host.start(NVIDIA_REQUIRE_CUDA="cuda>=12.0", NVIDIA_DISABLE_REQUIRE=word).status == 3


def test_a_mode_that_is_none_is_refused(host: Host) -> None:
    started = host.start(VALIDATOR_REQUIRE="maybe")
    assert (started.status, started.out) == (2, "")
    assert "VALIDATOR_REQUIRE is 'maybe'; it can be enforce, warn or off" in started.said


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
        # Alternatives between spaces, conditions between commas.
        ("cuda>=13.0 driver>=535,driver<536", True),
        ("cuda>=13.0 driver>=470,driver<471", False),
        ("cuda>=12.0,driver>=580", False),
        ("  cuda>=13.0   cuda>=12.0 ", True),
        ("cuda>=12.0,,", True),
        ("", True),
        # What a container can't know passes, as in the toolkit.
        ("brand=tesla,cuda>=12.0", True),
        ("brand=tesla,cuda>=13.0", False),
        ("arch>=99.0", True),
    ],
)
def test_the_grammar_is_the_toolkits(host: Host, requirement: str, passes: bool) -> None:
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
def test_what_is_no_requirement_is_named(host: Host, requirement: str) -> None:
    started = host.kernel("535.183.01").device().start(NVIDIA_REQUIRE_CUDA=requirement)
    assert started.status == 3
    assert f"NVIDIA_REQUIRE_CUDA is no requirement that can be read: {requirement};" in started.said


def test_every_variable_of_the_family_counts_but_jetsons(host: Host) -> None:
    host.kernel("535.183.01").device()
    assert host.start(NVIDIA_REQUIRE_CUDA="cuda>=12.0", NVIDIA_REQUIRE_MINE="driver>=550").status == 3
    assert host.start(NVIDIA_REQUIRE_CUDA="cuda>=12.0", NVIDIA_REQUIRE_JETPACK="jetpack>=6").started
    # A value of several lines is not taken for other variables.
    assert host.start(NVIDIA_REQUIRE_CUDA="cuda>=12.0", X="a\nexport NVIDIA_REQUIRE_X='cuda>=99'\n").started


def test_a_value_is_never_run(host: Host) -> None:
    canary = host.root / "canary"
    text = f"cuda>=12.0$(>{canary})`>{canary}`;>{canary}"
    host.kernel("535.183.01").device().start(NVIDIA_REQUIRE_CUDA=text, NVIDIA_REQUIRE_X=text)
    assert not canary.exists()


# --- where the driver is found ------------------------------------------------------------------------


def test_the_open_kernel_module_has_another_first_line(host: Host) -> None:
    host.device().write(
        "proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  470.82.01  Release Build  (root@x)\n",
    )
    assert "driver 470.82.01" in host.start(NVIDIA_REQUIRE_CUDA="cuda>=12.0").said


@pytest.mark.parametrize("name", ["libcuda.so.470.82.01", "libnvidia-ml.so.470.82.01"])
@pytest.mark.parametrize("directory", [LIBRARIES, "usr/lib64", "usr/local/nvidia/lib64"])
def test_the_release_is_in_the_name_of_a_mounted_library(host: Host, name: str, directory: str) -> None:
    started = host.library(name, directory).start(NVIDIA_REQUIRE_CUDA="cuda>=12.0")
    assert started.status == 3
    assert "driver 470.82.01 with CUDA 11.4" in started.said


def test_a_library_without_a_release_in_its_name_decides_nothing(host: Host) -> None:
    """WSL has libcuda.so.1.1, and a driver that only NVML could name."""
    host.write("dev/dxg")
    started = host.library("libcuda.so.1.1", "usr/lib/wsl/lib").start(NVIDIA_REQUIRE_CUDA="cuda>=12.0")
    assert started == Started(0, "started\n", "")


def test_a_cuda_compat_package_lifts_the_driver(host: Host) -> None:
    host.kernel("535.183.01").device().library("libcuda.so.580.65.06", "usr/local/cuda/compat")
    assert host.start(NVIDIA_REQUIRE_CUDA="cuda>=13.0").status == 3
    assert host.start(NVIDIA_REQUIRE_CUDA="cuda>=13.0", LD_LIBRARY_PATH="/x:/usr/local/cuda/compat").started


# --- no GPU -------------------------------------------------------------------------------------------


def test_a_container_without_a_gpu_is_told_so_and_starts(host: Host) -> None:
    """The kernel module's version is seen by every container, those without a GPU too."""
    started = host.kernel("470.82.01").start(NVIDIA_REQUIRE_CUDA="cuda>=12.0", NVIDIA_VISIBLE_DEVICES="all")
    assert started.started and started.status == 0
    assert "no GPU was given to this container" in started.said
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
def test_whoever_asked_for_no_gpu_is_told_nothing(host: Host, variables: dict[str, str]) -> None:
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
        # No name that the tables know: nothing is claimed.
        ("Tesla K20Xm", True),
        ("NVIDIA GeForce GTX 980", True),
    ],
)
def test_a_gpu_that_tensorflow_has_no_code_for(host: Host, model: str, passes: bool) -> None:
    host.kernel("535.183.01").device(0, model)
    started = host.start(NVIDIA_REQUIRE_CUDA="cuda>=12.0", VALIDATOR_COMPUTE_CAPABILITY="6.0")
    assert started.started is passes, started.said
    assert passes or "has code for GPUs of compute capability 6.0 and newer" in started.said


def test_one_new_gpu_is_enough(host: Host) -> None:
    host.kernel("535.183.01").device(0, "Tesla M60").device(1, "Tesla V100-SXM2-16GB")
    assert host.start(NVIDIA_REQUIRE_CUDA="cuda>=12.0", VALIDATOR_COMPUTE_CAPABILITY="6.0").started


def test_only_gpus_that_the_container_was_given_count(host: Host) -> None:
    host.kernel("535.183.01").device(0, "Tesla M60").listed(1, "Tesla V100-SXM2-16GB")
    assert host.start(NVIDIA_REQUIRE_CUDA="cuda>=12.0", VALIDATOR_COMPUTE_CAPABILITY="6.0").status == 3


def test_the_toolkits_arch_is_asked_of_every_gpu(host: Host) -> None:
    host.kernel("535.183.01").device(0, "Tesla M60").device(1, "Tesla V100-SXM2-16GB")
    assert host.start(NVIDIA_REQUIRE_CUDA="cuda>=12.0,arch>=5.2").started
    assert host.start(NVIDIA_REQUIRE_CUDA="cuda>=12.0,arch>=7.0").status == 3


# --- the command --------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["off", "no GPU", "fits", "warn"])
def test_the_command_takes_the_scripts_place(host: Host, way: str) -> None:
    """Its status is the container's, and signals reach it and not a shell."""
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


def test_arguments_are_passed_as_they_are(host: Host) -> None:
    words = ["a b", "", "*", "$HOME", "-x", "new\nline"]
    started = host.start(command=["/usr/bin/printf", "[%s]", *words])
    assert started.out == "".join(f"[{word}]" for word in words)


def test_a_command_that_is_not_there_gives_the_shells_status(host: Host) -> None:
    assert host.start(command=["/no/such/command"]).status == 127


def test_nothing_but_the_command_is_run(host: Host, tmp_path: Path) -> None:
    """No PATH is needed, and no other program: an unreadable PATH entry would be tried for one."""
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


def test_missing_tables_refuse_nobody(host: Host) -> None:
    (host.root / "opt/tensorflow-gpu-matrix/tables").unlink()
    host.kernel("470.82.01").device(0, "Tesla M60")
    assert host.start(NVIDIA_REQUIRE_CUDA="cuda>=12.0", VALIDATOR_COMPUTE_CAPABILITY="6.0").started
