"""Let `compat` judge the facts that were read, so that a text and `predict` get the same answer.

`read_host` and `read_software` read what `compat` judges; only observed and stated facts count. Each reason
why the facts can't work becomes an observation `combination_fails`. The causes name its rule in their signs,
which is the only place that says which cause a rule stands for. A known combination or trait that holds
becomes an observation of its own, which the causes name as `{fact: ID}`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from ..compat import hardware, known_issues
from ..compat import judge as compat
from ..compat.releases import release_of_any_age
from ..conditions import FACT, fact_kind
from ..model.prediction import Host, Outcome, Prediction, Reason, Software
from ..model.spec import Variant
from ..versions import leading_numbers
from .catalogue import FAULT, UNRECOGNIZED, table
from .observations import (
    DISTRIBUTIONS,
    Observation,
    Observations,
    normalized,
    on_windows,
    package,
    release,
    tensorflow,
)

# Read the host and the software.


#: Values of the kind `machine`, in lower case, and what `Host.machine` calls them.
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
    listed = packages.pop("python", None)
    python = observations.value("python", "version") or listed
    path = observations.first("python_path")
    if python is None and path is not None:
        # A file of Python's, such as below `python3.11/` or `Python311/`.
        python = path.values.get("version") or f"{path.values['major']}.{path.values['minor']}"
    variables = (one for one in observations.of("variable") if one.values.get("name") == "LD_LIBRARY_PATH")
    names_wheels = any("nvidia/" in one.values.get("value", "") for one in variables)
    return Software(
        tensorflow=named[0] if named else None,
        python=python,
        cuda=_cuda(observations),
        cudnn=observations.value("cudnn", "version"),
        wheel=_wheel(observations),
        variant=_variant(observations, packages),
        extra=_extra(observations, packages),
        library_path=names_wheels or None,
        packages=tuple(packages.items()),
    )


def _cuda(observations: Observations) -> str | None:
    """Return the major and minor version of CUDA. A form asks for both, and some people write only cuDNN's
    version there, or only CUDA's major version, which `conclusions` judges."""
    toolkit = package(observations, "cudatoolkit")
    cuda = observations.value("cuda", "version") or (toolkit.values["version"] if toolkit else None)
    is_whole = len(leading_numbers(cuda or "")) > 1
    return cuda if is_whole and cuda != observations.value("cudnn", "version") else None


def _packages(observations: Observations) -> dict[str, str]:
    packages: dict[str, str] = {}
    for one in observations.of("package"):
        packages.setdefault(normalized(one.values["name"]), one.values["version"])
    return packages


def _gpu(observations: Observations) -> str | None:
    """Return the first name that says which model it is, or else the first name."""
    names = [one.values["name"] for one in observations.of("gpu")]
    return next((name for name in names if hardware.is_known(name)), names[0] if names else None)


def _capability(observations: Observations) -> str | None:
    for one in observations.of("compute_capability"):
        if leading_numbers(one.values.get("value", "")):
            return one.values["value"]
        if one.values.get("major"):
            return f"{one.values['major']}.{one.values['minor']}"
    return None


def _system(observations: Observations) -> str | None:
    if on_windows(observations) is not None:
        return "windows"
    if observations.has("wsl"):
        return "wsl2"
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


# Judge them.


#: The kind of the observations that are added.
FAILS = "combination_fails"


def is_judged(one: Observation) -> bool:
    """Return True for a reason why facts that were read can't work together."""
    return one.kind == FAILS or (one.kind.startswith(f"{FACT}:") and "rule" in one.values)


def judge(observations: Observations) -> Prediction:
    """Add the reasons why the facts can't work, and return the prediction for them."""
    software, host = read_software(observations), read_host(observations)
    mode = observations.value("mode", "name")
    completed = _completed(software)
    prediction = compat.judge(completed, host, mode)
    for reason in (*_of_the_request(software, observations), *prediction.reasons):
        if reason.outcome is Outcome.FAILS and reason.rule is not None:
            bases = tuple(_bases(table("rests_on")[reason.rule], observations))
            if bases and reason.rule != "known_issue":
                observations.conclude(FAILS, _values(reason), *bases)
    _add_facts(completed, host, observations)
    return prediction


def _add_facts(software: Software, host: Host, observations: Observations) -> None:
    """Add what holds of the known combinations and traits, with the values that they ask about."""
    values = compat.known_values(software, host)
    for identifier, (fact, holds) in compat.facts_of(software, host).items():
        asked = dict.fromkeys(comparison.kind for comparison in fact.when.comparisons())
        # Packages come first, because they are what is to be changed.
        kinds = sorted(asked, key=lambda kind: kind in _READ_FROM)
        if holds is False:
            continue
        if holds is None:
            observations.undecided.add(fact_kind(identifier))
            continue
        asked_values = {kind: values[kind] for kind in kinds if kind in values}
        reason = _values(fact.reason()) if fact.means == known_issues.FAILS else {}
        bases = tuple(_bases(kinds, observations))
        observations.conclude(fact_kind(identifier), {**asked_values, **reason, "holds": "yes"}, *bases)


def _completed(software: Software) -> Software:
    """Return the software with what follows from it: a wheel opens the libraries of its CUDA.

    If the wheel was installed without these libraries, they may be missing, so none are added.
    """
    built = release_of_any_age(software.tensorflow or "")
    on_gpu = software.variant != Variant.CPU.value and software.extra is not False
    if software.cuda is None and built is not None and on_gpu:
        software = replace(software, cuda=built.cuda)
    return replace(software, cudnn=software.cudnn or software.versions.get("cudnn"))


def _of_the_request(software: Software, observations: Observations) -> Iterator[Reason]:
    """Yield why the release that pip was asked for can't be installed, if it is not the one in use."""
    requested = _requested(observations)
    version = requested.values["version"] if requested else None
    if version is None or version == software.tensorflow or software.python is None:
        return
    judged = compat.judge(Software(tensorflow=version, python=software.python), Host())
    yield from (reason for reason in judged.reasons if reason.rule == "python_without_wheel")


def _values(reason: Reason) -> Mapping[str, str]:
    """Return the values of the observation. sentence: the text for a title, without its full stop."""
    values = {
        "rule": str(reason.rule),
        "fact": reason.fact,
        "text": reason.text,
        "source": reason.source,
        "sentence": reason.title,
    }
    return {**values, "mode": reason.mode} if reason.mode else values


def _bases(fields: Iterable[str], observations: Observations) -> Iterator[Observation]:
    """Yield what fields of the host and the software, or packages by name, were read from."""
    for field in fields:
        base = (_READ_FROM.get(field) or _package(field))(observations)
        if base is not None:
            yield base


# The observation that a field was read from. `read_host` and `read_software` read them in the same order.

_Find = Callable[[Observations], "Observation | None"]


def _first_of(*kinds: str) -> _Find:
    def find(observations: Observations) -> Observation | None:
        return next((found for kind in kinds if (found := observations.first(kind)) is not None), None)

    return find


def _package(*beginnings: str) -> _Find:
    """Return a function that finds the first package whose normalized name begins so."""

    def find(observations: Observations) -> Observation | None:
        packages = observations.of("package")
        return next((one for one in packages if normalized(one.values["name"]).startswith(beginnings)), None)

    return find


def _either(*finders: _Find) -> _Find:
    def find(observations: Observations) -> Observation | None:
        return next((found for finder in finders if (found := finder(observations)) is not None), None)

    return find


def _requested(observations: Observations) -> Observation | None:
    """Return the command that asks pip for a release of TensorFlow."""
    return next(
        (
            one
            for one in observations.of("pip_install")
            if one.values["name"] in DISTRIBUTIONS and "version" in one.values
        ),
        None,
    )


def _installed(observations: Observations) -> Observation | None:
    """Return the command that installs TensorFlow."""
    return next((one for one in observations.of("pip_install") if one.values["name"] in DISTRIBUTIONS), None)


_READ_FROM: Mapping[str, _Find] = {
    "tensorflow": _either(tensorflow, _requested),
    "python": _first_of("python", "python_path"),
    "cuda": _either(_package("nvidia-cuda-runtime"), _first_of("cuda"), _package("cudatoolkit")),
    "cudnn": _either(_package("nvidia-cudnn", "cudnn"), _first_of("cudnn")),
    "driver": _first_of("driver", "driver_cuda"),
    "gpu": _first_of("gpu", "compute_capability", "other_gpu"),
    "capability": _first_of("compute_capability", "gpu"),
    "system": _either(on_windows, _first_of("wsl"), _first_of("os")),
    "machine": _first_of("jetson", "machine"),
    "kernel_modules": _first_of("kernel_modules"),
    "variant": _either(_first_of("build_without_cuda"), _package("tensorflow-cpu"), _installed),
    "extra": _installed,
    "compat": _first_of("compat_library", "compat_library_on_path"),
    "packages": _package("torch", "jax"),
}
