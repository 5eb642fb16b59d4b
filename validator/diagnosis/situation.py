"""Read the host and the software that `compat` judges. Only observed and stated facts count."""

from __future__ import annotations

import re

from ..compat import gpus
from ..model.prediction import Host, Software
from ..versions import leading_numbers
from .messages import FAULT, UNRECOGNIZED
from .observations import Observations, normalized, on_windows, release

#: Values of the kind `machine`, in lower case, that `Host.machine` knows by another name or the same.
_MACHINES = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}
#: Distributions that are TensorFlow without CUDA.
_CPU_PACKAGES = frozenset({"tensorflow-cpu", "tf-nightly-cpu", "intel-tensorflow"})
#: Distributions that only the extra `and-cuda` installs next to TensorFlow.
_OF_THE_EXTRA = ("nvidia-cudnn-cu", "nvidia-cuda-runtime")
#: Kinds of lines in which pip says that it installed nothing.
_PIP_FAILED = ("pip_no_matching_distribution", "pip_no_version", UNRECOGNIZED, FAULT)


def read_host(observations: Observations) -> Host:
    """Return what is known of the machine."""
    return Host(
        driver=observations.value("driver", "version"),
        driver_cuda=observations.value("driver_cuda", "version"),
        gpu=_gpu(observations),
        capability=_capability(observations),
        system=_system(observations),
        machine=_machine(observations),
        kernel_modules=observations.value("kernel_modules", "name"),
        compat=_compat(observations),
    )


def read_software(observations: Observations) -> Software:
    """Return what is known of the software in the failing state."""
    named = release(observations)
    packages = _packages(observations)
    python = packages.pop("python", None)
    return Software(
        tensorflow=named[0] if named else None,
        python=observations.value("python", "version") or python or _python_of_path(observations),
        cuda=_cuda(observations),
        cudnn=observations.value("cudnn", "version"),
        wheel=_wheel(observations),
        variant=_variant(observations, packages),
        extra=_extra(observations, packages),
        library_path=_library_path(observations),
        packages=tuple(packages.items()),
    )


def _cuda(observations: Observations) -> str | None:
    """Return the major and minor version of CUDA. A form asks for both, and some people write only cuDNN's
    version there, or only CUDA's major version, which `conclusions` judges."""
    cuda = observations.value("cuda", "version")
    is_whole = len(leading_numbers(cuda or "")) > 1
    return cuda if is_whole and cuda != observations.value("cudnn", "version") else None


def _packages(observations: Observations) -> dict[str, str]:
    packages: dict[str, str] = {}
    for one in observations.of("package"):
        packages.setdefault(normalized(one.values["name"]), one.values["version"])
    return packages


def _python_of_path(observations: Observations) -> str | None:
    """Return the version in the path of a file of Python's, such as `python3.11/` or `Python311/`."""
    for one in observations.of("python_path"):
        return one.values.get("version") or f"{one.values['major']}.{one.values['minor']}"
    return None


def _gpu(observations: Observations) -> str | None:
    """Return the first name that says which model it is, or else the first name."""
    names = [one.values["name"] for one in observations.of("gpu")]
    return next((name for name in names if gpus.is_known(name)), names[0] if names else None)


def _capability(observations: Observations) -> str | None:
    for one in observations.of("compute_capability"):
        if leading_numbers(one.values.get("value", "")):
            return one.values["value"]
        if one.values.get("major"):
            return f"{one.values['major']}.{one.values['minor']}"
    return None


def _system(observations: Observations) -> str | None:
    if observations.has("wsl"):
        return "wsl2"
    if on_windows(observations) is not None:
        return "windows"
    systems = {one.values["name"] for one in observations.of("os")}
    if observations.has("container") or "linux" in systems:
        return "linux"
    return "macos" if "macos" in systems else None


def _machine(observations: Observations) -> str | None:
    if observations.has("jetson"):
        return "jetson"
    name = observations.value("machine", "name") or ""
    return _MACHINES.get(name.lower())


def _wheel(observations: Observations) -> str | None:
    """Return where TensorFlow comes from: the list of packages says it, or else the image or command."""
    for one in observations.of("package"):
        if normalized(one.values["name"]) in ("tensorflow", "tensorflow-base", "tensorflow-gpu"):
            if one.values.get("channel") == "pypi":
                return "pypi"
            if one.values.get("channel") or one.values.get("build"):
                return "conda-forge"
    if any(one.values["name"].startswith("nvcr.io/nvidia/tensorflow") for one in observations.of("image")):
        return "ngc"
    if observations.has("own_build"):
        return "own"
    if observations.has("pip_install") or observations.has("package_installed"):
        return "pypi"
    return "conda-forge" if observations.has("conda_install") else None


def _variant(observations: Observations, packages: dict[str, str]) -> str | None:
    if observations.has("build_without_cuda"):
        return "cpu"
    installed = set(packages) | {one.values["name"] for one in observations.of("pip_install")}
    if "tensorflow" in installed or "tensorflow-gpu" in installed:
        return "gpu"
    return "cpu" if installed & _CPU_PACKAGES else None


def _extra(observations: Observations, packages: dict[str, str]) -> bool | None:
    """Return whether CUDA's libraries were installed with TensorFlow; None if nothing tells."""
    commands = {one.values["name"]: one for one in observations.of("pip_install")}
    if any(name.startswith(_OF_THE_EXTRA) for name in (*packages, *commands)):
        return True
    if any(one.values.get("extra") == "and-cuda" for one in observations.of("pip_install")):
        return True
    from_conda = (one.values["name"] for one in observations.of("conda_install"))
    if "tensorflow" not in commands or any(name.startswith(("cuda", "cudnn")) for name in from_conda):
        return None
    errors = (one.text for kind in _PIP_FAILED for one in observations.of(kind))
    return None if any(text.startswith("ERROR: ") for text in errors) else False


def _compat(observations: Observations) -> str | None:
    """Return the CUDA version of a cuda-compat package that is installed or on the loader's path."""
    package = observations.first("compat_library")
    if package is not None:
        return f"{package.values['major']}.{package.values['minor']}"
    paths = (one.values["path"] for one in observations.of("compat_library_on_path"))
    versions = (match[1] for path in paths if (match := re.search(r"cuda-(\d+\.\d+)/compat", path)))
    return next(versions, None)


def _library_path(observations: Observations) -> bool | None:
    """Return True if the loader is told of the directories of NVIDIA's wheels; None if nothing tells."""
    variables = (one for one in observations.of("variable") if one.values.get("name") == "LD_LIBRARY_PATH")
    wheels = any("nvidia/" in one.values.get("value", "") for one in variables)
    return True if wheels else None
