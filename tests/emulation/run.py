"""Runs one fault and returns what a person would see."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from uv import find_uv_bin

from . import environments
from .faults import Fault
from .redact import redact, shorten
from .stubs import RELEASE, build_cublas, built

SCRIPTS = Path(__file__).parent / "scripts"
LIMIT_S = 120
#: Traces of a kernel module that fits the stub driver, which old releases look for.
_KERNEL = {
    "/dev/nvidia0": "",
    "/proc/driver/nvidia/version": (
        f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {RELEASE}  Wed Feb 26 01:57:22 UTC 2025\n"
        "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n"
    ),
}
#: Variables that change what TensorFlow does, which no process of a fault inherits.
_FOREIGN = (
    "CUDA_",
    "TF_",
    "XLA_",
    "KERAS_",
    "LD_",
    "NVIDIA_",
    "PYTHON",
    "STUB_",
    "VIRTUAL_ENV",
    "PIP_",
    "UV_",
)
#: Variables for access to packages, for faults that install some.
_SOURCES = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_CERT", "PIP_CONFIG_FILE", "PIP_TRUSTED_HOST")


def run(fault: Fault, tensorflow: str) -> str:
    """Return the log: standard error and standard output as they came, redacted."""
    with (
        tempfile.TemporaryDirectory(prefix="emulation-") as name,
        environments.environment(fault, tensorflow) as python,
    ):
        return _run(fault, python, Path(name))


def _run(fault: Fault, python: Path, scratch: Path) -> str:
    stubs = built(fault.release or RELEASE)
    if "cublas" in fault.stubs:
        build_cublas(stubs, environments.site_packages(python) / "nvidia/cublas/lib")
    project, laid_over, root, programs = (scratch / each for each in ("project", "overlay", "root", "bin"))
    project.mkdir()
    kernel = fault.kernel or (_KERNEL if "driver" in fault.stubs else {})
    for place, files in ((project, fault.files), (root, kernel), (programs, fault.bin)):
        for path, text in files.items():
            target = place / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
            target.chmod(0o755)
    variables = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
    variables |= {name: os.environ[name] for name in _SOURCES if name in os.environ}
    variables |= {"PATH": os.pathsep.join([str(programs), str(python.parent), "/usr/bin", "/bin"])}
    if fault.overlay:
        environments.overlay(fault.overlay, python, laid_over)
        variables["PYTHONPATH"] = str(laid_over)
    path = _library_path(fault, python, [stubs.place(name) for name in fault.stubs])
    if path:
        variables["LD_LIBRARY_PATH"] = path
    if kernel or fault.no_toolkit:
        variables |= {"LD_PRELOAD": str(stubs.redirect), "STUB_ROOT": str(root)}
    variables |= {name: value.replace("{project}", str(project)) for name, value in fault.variables.items()}
    done = subprocess.run(
        _command(fault, python, project), env=variables, cwd=project,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT_S,
    )  # fmt: skip
    log = _prompt(fault) + done.stdout.decode(errors="replace") + _ended(done.returncode)
    site = str(environments.site_packages(python))
    places = {
        python.parents[1]: "/home/user/venv",
        laid_over: site.replace(str(python.parents[1]), "/home/user/venv"),
        project: "/home/user/project",
        SCRIPTS: "/home/user/project",
        stubs.place("driver"): "/usr/lib/x86_64-linux-gnu",
        stubs.place("runtime"): "/usr/local/cuda/lib64",
        stubs.place("cudnn"): "/usr/local/cuda/lib64",
        stubs.place("cublas"): "/usr/local/cuda/lib64",
        Path(os.path.realpath(python)).parents[1]: "/usr",
        Path(find_uv_bin()): "uv",
        Path(sys.prefix): "/home/user/venv",
        programs: "/usr/local/cuda/bin",
    }
    return shorten(redact(log, places))


def _command(fault: Fault, python: Path, project: Path) -> list[str]:
    if fault.command:
        return [each.format(python=python, uv=find_uv_bin()) for each in fault.command]
    shutil.copy(SCRIPTS / fault.script, project / fault.script)
    return [str(python), fault.script]


def _library_path(fault: Fault, python: Path, first: list[Path]) -> str:
    libraries = environments.nvidia_libraries(python) if fault.libraries == "path" else []
    return os.pathsep.join(map(str, [*first, *libraries]))


def _prompt(fault: Fault) -> str:
    """Return the command line as people paste it, if it is informative."""
    if not fault.shown:
        return ""
    shown = " ".join(
        f"{name}={value!r}" if " " in value or not value else f"{name}={value}"
        for name, value in fault.variables.items()
        if not name.startswith("STUB_")
    )
    line = (
        " ".join(fault.command).format(python="python", uv="uv")
        if fault.command
        else f"python {fault.script}"
    )
    return f"$ {shown} {line}\n" if shown else f"$ {line}\n"


def _ended(status: int) -> str:
    """Return what a shell prints about a process that a signal ended."""
    return {-6: "Aborted (core dumped)\n", -11: "Segmentation fault (core dumped)\n", -9: "Killed\n"}.get(
        status, ""
    )
