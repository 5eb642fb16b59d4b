"""Whatever remedy installs a TensorFlow, `predict` says that it works for the reader it is shown to."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pytest

from validator.compat import hardware, judge, offers, policies
from validator.compat.predict import software_in
from validator.compat.releases import release as release_of
from validator.compat.releases import releases
from validator.diagnosis.catalogue import CauseEntry, RemedyEntry, causes
from validator.diagnosis.combination import read_host, read_software
from validator.diagnosis.observations import Observations
from validator.diagnosis.remedies import Reader, fitting_remedies
from validator.model.diagnosis import WAYS, Remedy
from validator.model.prediction import (
    AARCH64,
    CONDA_FORGE,
    JETSON,
    LINUX,
    MACOS,
    WINDOWS,
    WSL2,
    X86_64,
    Host,
    Outcome,
    Software,
)
from validator.versions import Range, Version, release_comparer

from ..laws import subjects_to_try
from . import shell
from .facts_read import facts_read
from .filled import VALUES, observed

#: One GPU of every generation.
GPUS = (
    "Tesla K80", "GTX 980", "GTX 1080", "Tesla V100-SXM2-16GB", "RTX 2080 Ti", "A100-SXM4-80GB", "RTX 4090",
    "H100 PCIe", "RTX 5090", "B200",
)  # fmt: skip
DRIVERS = ("390.48", "470.82.01", "535.183.01", "550.54.14", "580.65.06")
PYTHONS = ("3.8", "3.12", "3.13", "3.14")
RELEASES = ("1.15.5", "2.10.1", "2.16.1", "2.18.0", "2.21.0")
SYSTEMS = {
    LINUX: "OS: Debian 12",
    WSL2: "OS: Ubuntu 22.04 under WSL2",
    WINDOWS: "OS: Windows 11",
    MACOS: "OS: macOS 14.5",
    "arm": "OS: Ubuntu 22.04 aarch64",
}


@dataclass(frozen=True)
class Case:
    """The facts that a person states in a text. Empty for a fact that is not known."""

    system: str = LINUX
    gpu: str = ""
    driver: str = ""
    python: str = ""
    tensorflow: str = ""

    @property
    def text(self) -> str:
        facts = {
            "GPU": self.gpu,
            "NVIDIA driver version": self.driver,
            "Python version": self.python,
            "TensorFlow version": self.tensorflow,
        }
        return "\n".join(
            [SYSTEMS[self.system], *(f"{name}: {value}" for name, value in facts.items() if value)]
        )


#: All pairs of what matters together, and not every combination of all, which would take minutes.
CASES = (
    Case(),
    *(Case(system) for system in SYSTEMS),
    *(Case(gpu=gpu, driver=driver) for gpu, driver in itertools.product(GPUS, DRIVERS)),
    *(Case(gpu=gpu, python=python) for gpu, python in itertools.product(GPUS, PYTHONS)),
    *(Case(python=python, tensorflow=release) for python, release in itertools.product(PYTHONS, RELEASES)),
    *(Case(gpu=gpu, tensorflow=release) for gpu, release in itertools.product(GPUS, RELEASES)),
    *(Case(system, "RTX 3060", "551.61", python) for system, python in itertools.product(SYSTEMS, PYTHONS)),
    *(Case(system, tensorflow=release) for system, release in itertools.product(SYSTEMS, RELEASES)),
)  # fmt: skip


def values(case: Case) -> dict[str, str]:
    """Return values as the diagnosis has them, without those that the case does not know."""
    found = {
        name: value for name, value in VALUES.items() if name not in ("tensorflow", "capability", "system")
    }
    found["system"] = {WSL2: LINUX, "arm": LINUX}.get(case.system, case.system)
    if case.tensorflow:
        found["tensorflow"] = case.tensorflow
        found["tensorflow_minor"] = ".".join(case.tensorflow.split(".")[:2])
    if case.gpu:
        found["capability"] = str(hardware.gpu(case.gpu).compute_capability)
    return found


def installed(remedy: Remedy, host: Host, own: str | None) -> Iterator[tuple[Software, Host]]:
    """Yield the environments that the commands of a remedy make, each with its TensorFlow."""
    base = re.search(r"Use a base image with Python (3\.\d+)", remedy.says)
    python = base[1] if base else own
    library_path = any("/nvidia/*/lib" in command for command in remedy.commands)
    for command in remedy.commands:
        machine = host
        # Windows runs Linux programs in WSL2 and in containers.
        if host.system == WINDOWS and remedy.way in ("wsl", "docker", "podman", "compose", "kubernetes"):
            machine, python = replace(host, system=WSL2), None if own == python else python
        python = _python_of(command) or python
        for call in shell.calls(command):
            words = [word for word in call.rest if not word.startswith(".")]
            if call.name in ("pip install", "uv pip install"):
                # The wheels in NVIDIA's index are not those of PyPI.
                alone = "/compute/redist/jp/" not in command
                alone = alone and not any(word.startswith("tensorflow-metal") for word in words)
                requirement = next(
                    (word for word in words if re.match(r"(tensorflow|tf-nightly)(?!-)", word)), ""
                )
                # The reader writes their own release there. `~=` asks for one that fits the cuDNN.
                if requirement and alone and not re.search("==TENSORFLOW$|~=", requirement):
                    made = _from_pypi(requirement, python, library_path)
                    yield _with_bounds(made, remedy.commands), on_x86(machine)
            # The channel `defaults` is for processors without AVX.
            if (
                call.name in ("conda install", "conda create")
                and "-c defaults" not in command
                and any(w.startswith("tensorflow") for w in words)
            ):
                yield Software("2.18.0", wheel=CONDA_FORGE), Host(system=machine.system)
        image = re.search(r"\b(?:nvcr\.io/nvidia/tensorflow|tensorflow/tensorflow):[\w.-]+", command)
        if image and not (machine.machine in (AARCH64, JETSON) and image[0].startswith("nvcr.io")):
            yield software_in(image[0]) or Software(), on_x86(machine)


def _with_bounds(made: Software, commands: Sequence[str]) -> Software:
    """Return the environment with the newest cuDNN below the bound that the commands give pip."""
    bound = re.search(r'"nvidia-cudnn-cu\d+<([\d.]+)"', " ".join(commands))
    if bound is None or made.tensorflow is None:
        return made
    allowed = policies.allowed_cudnn(release_of(made.tensorflow))
    below = [version for version in allowed if Version(version) < Version(bound[1])]
    return replace(
        made, cudnn=below[-1], packages=tuple({**made.versions, "nvidia-cudnn": below[-1]}.items())
    )


def _python_of(command: str) -> str | None:
    found = re.search(
        r"uv venv .*--python (3\.\d+)|\bpy -(3\.\d+)|\bpython=(3\.\d+)|\bpython:(3\.\d+)-slim", command
    )
    return next(filter(None, found.groups()), None) if found else None


def on_x86(host: Host) -> Host:
    return replace(host, system=host.system or LINUX, machine=host.machine or X86_64)


def _from_pypi(requirement: str, python: str | None, library_path: bool) -> Software:
    """Return the environment that pip makes of a requirement: the newest release that fits the Python."""
    match = re.fullmatch(r"(tensorflow|tf-nightly)(\[and-cuda\])?(.*)", requirement)
    assert match is not None, requirement
    assert match[1] == "tensorflow", f"a nightly version may be anything: {requirement}"
    wanted = Range.parse(match[3] or ">=0", release_comparer)
    fitting = [
        one
        for one in releases()
        if wanted.contains(one.version)
        and not one.prerelease
        and (python is None or ".".join(python.split(".")[:2]) in one.pythons)
    ]
    assert fitting, f"there is no {requirement} for Python {python}"
    release = fitting[-1]
    assert match[2] or not offers.has_extra(release), f"without CUDA's libraries: {requirement}"
    installed = offers.installed(release, library_path=library_path)
    return replace(installed, python=python or release.pythons[-1])


def why_wrong(made: Software, host: Host) -> str:
    """Return why an environment does not work, or an empty text."""
    found = judge.judge(made, host)
    failing = [reason.text for reason in found.reasons if reason.outcome is Outcome.FAILS]
    if made.wheel == CONDA_FORGE:
        return "; ".join(failing)
    if found.outcome is Outcome.WORKS or (found.outcome is Outcome.UNKNOWN and found.missing and not failing):
        return ""
    best = offers.newest_that_works(host, made.python)
    only_eager = found.eager is Outcome.WORKS or (found.eager is Outcome.UNKNOWN and found.missing)
    if only_eager and best is not None and best.eager_only:
        return ""
    return "; ".join(failing) or "it is not known whether it works"


def wrong(case: Case, found: Observations, cause: CauseEntry, who: Reader) -> Iterator[str]:
    for remedy in fitting_remedies(cause, values(case), found, who):
        try:
            environments = list(installed(remedy, read_host(found), read_software(found).python))
        except (AssertionError, ValueError, shell.ShellSyntaxError) as error:
            yield f"{cause.code} ({remedy.way}): {error}"
            continue
        for made, host in environments:
            if why := why_wrong(made, host):
                yield f"{cause.code} ({remedy.way}), {made.tensorflow} with Python {made.python}: {why}"


@pytest.mark.slow
def test_the_cases_are_read_as_they_are_meant() -> None:
    for case in CASES:
        read = facts_read(observed(case.text))
        assert (read.tensorflow or "", read.python or "", read.driver or "") == (
            case.tensorflow, case.python, case.driver,
        )  # fmt: skip
        assert (read.system, read.machine) == (
            (LINUX, AARCH64) if case.system == "arm" else (case.system, None)
        )
        assert bool(read.gpu) == bool(case.gpu)


@pytest.mark.slow
def test_every_remedy_installs_what_works() -> None:
    installing = [cause for cause in causes() if any(_installs(entry) for entry in cause.remedies)]
    assert len(installing) >= 10
    found = set()
    for case in subjects_to_try(CASES):
        seen = observed(case.text)
        for cause in installing:
            if cause.code == "platform_without_cuda_build" and case.system in (LINUX, WSL2):
                # It is never the cause there.
                continue
            # Nothing is known of this reader, who gets the remedies for every way.
            found |= {f"{case}: {one}" for one in wrong(case, seen, cause, Reader(frozenset()))}
    assert sorted(found) == []


def _installs(entry: RemedyEntry) -> bool:
    return any(re.search(r"\btensorflow|tf-nightly|\{pin_", command) for command in entry.commands)


@pytest.mark.parametrize("way", [way for way in WAYS if way not in ("any", "host")])
def test_every_reader_gets_remedies(way: str) -> None:
    for case in (Case(), Case(MACOS), Case("arm"), Case(WINDOWS), Case(gpu="Tesla K80", driver="390.48")):
        seen = observed(case.text)
        for cause in causes():
            assert fitting_remedies(cause, values(case), seen, Reader(frozenset({way}))) != ()


@pytest.mark.parametrize(
    ("commands", "read", "why"),
    [
        (["python -m pip install 'tensorflow[and-cuda]'"], Case(), "does not find"),
        (["python -m pip install 'tensorflow[and-cuda]==2.20.0'"], Case(gpu="RTX 5090"), "no kernels"),
        (["python -m pip install 'tensorflow<2.11'"], Case(python="3.13"), "there is no tensorflow<2.11"),
        (["python -m pip install tensorflow==2.18.0"], Case(), "without CUDA's libraries"),
        (["python -m pip install 'tf-nightly[and-cuda]'"], Case(), "nightly"),
        (["docker run --gpus all tensorflow/tensorflow:2.19.0-gpu nvidia-smi"], Case(), "cuDNN"),
        (
            ["docker run nvcr.io/nvidia/tensorflow:25.02-tf2-py3 nvidia-smi"],
            Case(gpu="RTX 2080 Ti", driver="470.82.01"),
            "needs driver 525",
        ),
        (["conda install -c conda-forge tensorflow"], Case(WINDOWS), "2.10 was the last release"),
        (["uv venv --python 3.11", "uv pip install 'tensorflow[and-cuda]==2.20.0'"], Case(python="3.14"), ""),
    ],
)
def test_what_does_not_work_is_found(commands: Sequence[str], read: Case, why: str) -> None:
    cause = CauseEntry(
        "cause", "Title.", "Means.", (), causes()[0].ruled_out_by, (),
        (RemedyEntry("pip", "Do it.", tuple(commands)),), ("a source",),
    )  # fmt: skip
    found = list(wrong(read, observed(read.text), cause, Reader(frozenset())))
    assert bool(found) == bool(why)
    assert all(why in one for one in found)
