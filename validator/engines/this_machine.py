"""What this machine has: its driver and GPUs, read outside of what is measured, containers and Pythons.

NVML is asked in a child process (`ask_nvml.py`): a broken driver library may crash or hang the process that
loads it. The child gets none of the caller's variables, so that no variable can put another library in front
of the driver's. What NVML says has to be what the kernel lists in /proc/driver/nvidia, which no library can
change. Under WSL the kernel has no such list: Windows has the driver's kernel module, and its library is
mounted by WSL. There NVML counts only together with the device that WSL's kernel makes, /dev/dxg.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import platform
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from ..errors import InputError, ValidatorError
from ..model import codec
from ..model.codec import DocumentError
from ..model.prediction import AARCH64, JETSON, LINUX, MACOS, OPEN, PROPRIETARY, WINDOWS, WSL2, X86_64, Host
from ..model.record import GpuIdentity, Outside, Unread
from ..system import processes
from ..system.files import text_or_nothing
from ..system.runs import environment_of_children, temporary_directory

if TYPE_CHECKING:
    from ..model.report import Report

_SCRIPT = Path(__file__).with_name("ask_nvml.py")
#: Without the persistence daemon a driver takes several seconds to wake each GPU.
_LIMIT_S = 60.0
#: `NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build …`
_KERNEL_DRIVER = re.compile(r"Module(?: for \S+)?\s+(\d{3,4}(?:\.\d+)+)")


class NvmlGpu(msgspec.Struct, frozen=True):
    """One GPU, from NVML. bus: its PCI address, `00000000:3B:00.0`."""

    uuid: str
    name: str
    compute_capability: str
    bus: str


class Reading(msgspec.Struct, frozen=True):
    """The child's answer. driver: None if NVML did not answer.

    version: the content of /proc/driver/nvidia/version. information: that of `gpus/ADDRESS/information`
    there, by address (`0000:3b:00.0`). wsl: this is WSL's kernel, with its GPU device.
    """

    driver: str | None = None
    gpus: tuple[NvmlGpu, ...] = ()
    version: str | None = None
    information: dict[str, str] = {}
    wsl: bool = False


def read_host(limit_s: float = _LIMIT_S) -> Outside | Unread:
    """Return the driver and all GPUs of this machine, or why they can't be read. This may take seconds."""
    done = processes.run([sys.executable, _SCRIPT], env={}, cwd=Path("/"), timeout_s=limit_s, grace_s=0)
    if not done.ok:
        return Unread.NVML_SILENT
    try:
        return reading_of(codec.convert(codec.parse(done.stdout), Reading))
    except DocumentError:
        return Unread.NVML_SILENT


def reading_of(answer: Reading) -> Outside | Unread:
    """Return the driver and the GPUs that NVML and the kernel agree on, or why they can't be read."""
    if answer.driver is None:
        return Unread.NVML_SILENT
    by_uuid = sorted(answer.gpus, key=lambda gpu: gpu.uuid)
    gpus = tuple(GpuIdentity(gpu.uuid, gpu.name, gpu.compute_capability) for gpu in by_uuid)
    if answer.version is None:
        return Outside(answer.driver, None, gpus) if answer.wsl else Unread.KERNEL_SILENT
    module = _KERNEL_DRIVER.search(answer.version)
    if module is None or module[1] != answer.driver:
        return Unread.KERNEL_DIFFERS
    listed = {_address(bus): text for bus, text in answer.information.items()}
    for gpu in answer.gpus:
        pairs = (line.partition(":") for line in listed.get(_address(gpu.bus), "").splitlines())
        fields = {name.strip(): value.strip() for name, _, value in pairs}
        # The driver prints question marks for the UUID of a GPU that it has not woken yet.
        uuid = fields.get("GPU UUID", "")
        if fields.get("Model") != gpu.name or not (uuid == gpu.uuid or set(uuid) <= set("GPU-?")):
            return Unread.KERNEL_DIFFERS
    return Outside(answer.driver, module[1], gpus)


def _address(bus: str) -> str:
    """Return a PCI address with four digits for the domain, as the kernel writes it; NVML writes eight."""
    domain, _, rest = bus.lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def kernel_reading(root: Path = Path("/")) -> Outside | None:
    """Return the driver and the GPUs that the kernel lists, without waking any; None without a driver.

    The kernel does not list compute capabilities, which are empty here. In a container, it also lists the
    GPUs that the container was not given. root: the directory with /proc.
    """
    module = _KERNEL_DRIVER.search(text_or_nothing(root / "proc/driver/nvidia/version"))
    if module is None:
        return None
    listed = sorted((root / "proc/driver/nvidia/gpus").glob("*/information"))
    names = (re.search(r"^Model:\s*(.+?)\s*$", text_or_nothing(path), re.MULTILINE) for path in listed)
    gpus = tuple(GpuIdentity("", name[1], "") for name in names if name)
    return Outside(module[1], module[1], gpus)


_SYSTEMS = {"Linux": LINUX, "Windows": WINDOWS, "Darwin": MACOS}
_MACHINES = {"x86_64": X86_64, "AMD64": X86_64, "aarch64": AARCH64, "arm64": AARCH64}


def read_this_host(
    *, one_kind: bool = True, root: Path = Path("/"), outside: Outside | Unread | None = None
) -> Host:
    """Return the facts that this machine shows. All others are unknown.

    one_kind: True to raise InputError if the machine has GPUs of several kinds; if False, the GPU is unknown
    then. root: the directory with its /proc and /etc. outside: the driver and GPUs, if they have been read.
    """
    seen = outside or read_host()
    is_wsl = "microsoft" in text_or_nothing(root / "proc/version").lower()
    # A file of Jetson Linux (L4T), which other systems on aarch64 don't have.
    is_jetson = (root / "etc/nv_tegra_release").exists()
    version, modules = text_or_nothing(root / "proc/driver/nvidia/version"), None
    if version:
        modules = OPEN if "Open Kernel Module" in version else PROPRIETARY
    host = Host(
        system=WSL2 if is_wsl else _SYSTEMS.get(platform.system()),
        machine=JETSON if is_jetson else _MACHINES.get(platform.machine()),
        kernel_modules=modules,
    )
    if isinstance(seen, Unread):
        return host
    kinds = {(gpu.name, gpu.compute_capability) for gpu in seen.gpus}
    if len(kinds) > 1 and one_kind:
        names = ", ".join(sorted(name for name, _ in kinds))
        raise InputError(f"this machine has GPUs of several kinds: {names}", hint="choose one with --gpu")
    name, capability = next(iter(kinds)) if len(kinds) == 1 else (None, None)
    return replace(host, driver=seen.driver, gpu=name, capability=capability or None)


# Look at this machine within a second or two. Whatever may hang is asked side by side, and has a deadline:
# NVML, the engines, and the Python of the active environment. That Python runs only the checks of the probe
# that don't import TensorFlow, whose version is read from its metadata. What does not answer in time is
# reported as unknown.

#: Seconds in which all parts have to answer, and before their end in which a child process is ended.
LIMIT_S, _SPARE_S = 1.7, 0.15
#: The part of its time after which the probe writes what it found.
_PROBE_SHARE = 0.7
#: The check that opens CUDA's libraries, which may take long where nobody used them for a while.
LIBRARIES = "cuda_libraries"
#: The checks of the probe that don't import TensorFlow, except those that need a second or more.
CHECKS = ("gpu_device_nodes", "environment", "tpu_interference", LIBRARIES)
#: The minor versions of Python 3 that are looked for.
_MINORS = range(9, 16)
_ELF = b"\x7fELF"
_PACKAGE = Path(__file__).parent.parent


@dataclass(frozen=True)
class Container:
    """An engine that is installed."""

    name: Annotated[str, "`docker` or `podman`."]
    version: Annotated[str | None, "Null if it can't be used."]
    gives_gpus: Annotated[bool | None, "Whether its containers get GPUs; null if that is not known."] = None
    why: Annotated[str, "Why it can't be used; empty if it can."] = ""


@dataclass(frozen=True)
class Environment:
    """The active environment. found_by: `VIRTUAL_ENV`, `CONDA_PREFIX` or `PATH`.

    python: None if there is no Python. report: None if that Python could not be asked, for the reason `why`.
    """

    python: Path | None
    found_by: str
    report: Report | None = None
    why: str = ""


@dataclass(frozen=True)
class Seen:
    """What this machine shows.

    gpus: as NVML lists them, or without an answer from it, the names that the kernel lists. driver_silent:
    the kernel has a driver, but NVML did not answer in time. pythons: the path of each minor version.
    """

    host: Host
    gpus: tuple[GpuIdentity, ...]
    driver_silent: bool
    containers: tuple[Container, ...]
    pythons: Mapping[str, str]
    environment: Environment


def look(limit_s: float = LIMIT_S, meanwhile: Callable[[], object] = lambda: None) -> Seen:
    """Return what this machine shows within this time. Raises nothing because of what it finds.

    meanwhile: called while the parts are asked.
    """
    deadline = time.monotonic() + limit_s

    def left() -> float:
        """Return how long a child process may run that starts now."""
        # The first child waits until the notes about this run are on the disk.
        environment_of_children()
        return max(deadline - _SPARE_S - time.monotonic(), _SPARE_S)

    python, found_by = active_python(os.environ)
    # The environment takes longest.
    environment = _Part(lambda: _environment(python, found_by, left()))
    driver = _Part(lambda: read_host(left()))
    podman = _Part(lambda: _podman(left()))
    docker = _Part(_docker)
    meanwhile()
    outside = driver.answer(deadline, Unread.NVML_SILENT)
    silent = False
    kernel = kernel_reading()
    if not isinstance(outside, Outside) and kernel is not None:
        outside, silent = kernel, time.monotonic() > deadline - _SPARE_S
    host = read_this_host(one_kind=False, outside=outside)
    late = f"it did not answer within {limit_s:.1f} s"
    containers = (
        docker.answer(deadline, Container("docker", None, why=late)),
        podman.answer(deadline, Container("podman", None, why=late)),
    )
    return Seen(
        host,
        outside.gpus if isinstance(outside, Outside) else (),
        silent,
        tuple(one for one in containers if one is not None),
        pythons_on_path(),
        environment.answer(deadline, Environment(python, found_by, why=late)),
    )


class _Part:
    """Call a function in a thread that nobody waits for at exit."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._found: list[Any] = []
        self._thread = threading.Thread(target=lambda: self._found.append(function()), daemon=True)
        self._thread.start()

    def answer(self, deadline: float, otherwise: Any) -> Any:
        """Return the function's result, or `otherwise` if it has none by then."""
        self._thread.join(max(deadline - time.monotonic(), 0.01))
        return self._found[0] if self._found else otherwise


def active_python(variables: Mapping[str, str]) -> tuple[Path | None, str]:
    """Return the Python of the active environment, or None, and what names that environment."""
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if variables.get(name):
            python = Path(variables[name], "bin", "python").absolute()
            return (python if os.access(python, os.X_OK) else None), name
    found = (shutil.which(name, path=variables.get("PATH")) for name in ("python", "python3"))
    python_on_path = next(filter(None, found), None)
    return (Path(python_on_path).absolute() if python_on_path else None), "PATH"


def pythons_on_path() -> dict[str, str]:
    """Return the path of the first interpreter of each minor version, without starting any."""
    found: dict[str, str] = {}
    for directory, minor in itertools.product(os.get_exec_path(), _MINORS):
        path = Path(directory, f"python3.{minor}")
        # pyenv puts a script there for each version that any of its environments has.
        with contextlib.suppress(OSError), path.open("rb") as file:
            if file.read(len(_ELF)) == _ELF or sys.platform != "linux":
                found.setdefault(f"3.{minor}", str(path))
    return dict(sorted(found.items(), key=lambda one: int(one[0].partition(".")[2])))


def _environment(python: Path | None, found_by: str, limit_s: float) -> Environment:
    from ..model.report import ReportError, read_report
    from .protocol import FROM_SOURCES, clean_environment

    if python is None:
        return Environment(None, found_by, why="there is no Python")
    options = ["--time-limit", str(limit_s * _PROBE_SHARE), *(f"--only={name}" for name in CHECKS)]
    try:
        with temporary_directory("here") as place:
            # Nothing else next to this package may be found in the path.
            (place / "validator").symlink_to(_PACKAGE)
            done = processes.run(
                [python, "-c", FROM_SOURCES, place, *options],
                env=clean_environment(),
                cwd=place,
                timeout_s=limit_s,
                grace_s=0,
            )
        if done.timed_out:
            return Environment(python, found_by, why=f"it did not answer within {limit_s:.1f} s")
        if not done.ok:
            why = processes.last_line(done.stderr_tail, f"it exits with status {done.returncode}")
            return Environment(python, found_by, why=why)
        return Environment(python, found_by, read_report(done.stdout))
    except OSError as error:
        return Environment(python, found_by, why=error.strerror or str(error))
    except (ReportError, ValidatorError) as error:
        return Environment(python, found_by, why=str(error))


def _docker() -> Container | None:
    """Return the Docker Engine; None without the command and without an engine."""
    # The SDK takes a fifth of a second to load, in which the other parts go on.
    from .containers import offers_gpus
    from .endpoint import connect

    try:
        endpoint = connect()
    except ValidatorError as error:
        installed = shutil.which("docker") is not None
        return Container("docker", None, why=str(error)) if installed else None
    try:
        return Container("docker", endpoint.version, offers_gpus(endpoint.info))
    finally:
        endpoint.close()


def _podman(limit_s: float) -> Container | None:
    program = shutil.which("podman")
    if program is None:
        return None
    try:
        done = processes.run(
            [program, "info", "--format", "{{.Version.Version}}"], timeout_s=limit_s, grace_s=0
        )
    except OSError as error:
        return Container("podman", None, why=error.strerror or str(error))
    version = done.stdout.decode(errors="replace").strip()
    if done.ok and re.fullmatch(r"[\d.]+\S*", version):
        return Container("podman", version)
    return Container("podman", None, why=processes.last_line(done.stderr_tail, "it did not answer"))
