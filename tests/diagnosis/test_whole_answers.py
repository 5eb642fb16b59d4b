"""Whole answers to texts of many kinds: what their remedies install exists, and works for the person."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from validator.compat.releases import release_of_any_age
from validator.diagnosis import compile, diagnose_log
from validator.diagnosis.combination import read_host, read_software
from validator.model.diagnosis import Cause, Remedy
from validator.model.prediction import WINDOWS
from validator.versions import Version, minor_in

from ..laws import subjects_to_try
from . import shell
from .filled import observed
from .test_remedy_commands import exists
from .test_remedy_releases import installed, why_wrong

_MISMATCH = (
    "E tensorflow/stream_executor/cuda/cuda_dnn.cc:378] Loaded runtime CuDNN library: {} but source was"
    " compiled with: {}.  CuDNN library needs to have matching major version and equal or higher minor"
    " version."
)
_OLD_MISMATCH = (
    "E tensorflow/stream_executor/cuda/cuda_dnn.cc:352] Loaded runtime CuDNN library: {} (compatibility"
    " version 5000) but source was compiled with {} (compatibility version 5100)."
)
_MISSING = (
    "W tensorflow/stream_executor/platform/default/dso_loader.cc:64] Could not load dynamic library '{0}';"
    " dlerror: {0}: cannot open shared object file: No such file or directory"
)
#: What TensorFlow prints, for the CUDA and cuDNN of every age.
SYMPTOMS = (
    *(_OLD_MISMATCH.format(*pair) for pair in (("5005", "5110"), ("6021", "5105"), ("7005", "7103"))),
    *(
        _MISMATCH.format(*pair)
        for pair in (("7.4.2", "7.6.0"), ("8.0.5", "8.1.0"), ("8.4.1", "8.6.0"), ("8.7.0", "8.9.6"))
    ),
    _MISMATCH.format("9.0.0", "9.3.0"),
    *(
        _MISSING.format(library)
        for library in (
            "libcudart.so.8.0", "libcudart.so.9.0", "libcudart.so.10.0", "libcudart.so.10.1",
            "libcudart.so.11.0", "libcudnn.so.7", "libcudnn.so.8", "libcusolver.so.10", "cudart64_101.dll",
            "cudart64_110.dll",
        )
    ),
    "I tensorflow/tsl/cuda/cudart_stub.cc:28] Could not find cuda drivers on your machine, GPU will not be"
    " used.",
    "E tensorflow/stream_executor/cuda/cuda_driver.cc:313] failed call to cuInit: UNKNOWN ERROR (303)",
    "E tensorflow/stream_executor/cuda/cuda_dnn.cc:385] could not create cudnn handle:"
    " CUDNN_STATUS_INTERNAL_ERROR",
    "ImportError: DLL load failed: The specified module could not be found.",
    "TypeError: Descriptors cannot not be created directly.",
    "tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor with"
    " shape[64,372,32,32] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator"
    " GPU_0_bfc",
    "E tensorflow/stream_executor/cuda/cuda_blas.cc:226] failed to create cublas handle:"
    " CUBLAS_STATUS_NOT_INITIALIZED",
    "W tensorflow/compiler/xla/service/gpu/llvm_gpu_backend/gpu_backend_lib.cc:521] Can't find libdevice"
    " directory ${CUDA_DIR}/nvvm/libdevice.",
    "W tensorflow/stream_executor/platform/default/dso_loader.cc:64] Could not load dynamic library"
    " 'libcuda.so.1'; dlerror: libcuda.so.1: cannot open shared object file: No such file or directory",
    "docker: Error response from daemon: could not select device driver \"\" with capabilities: [[gpu]].",
    "The program does not use the GPU and computes on the CPU.",
    "I gpu_device.cc:1442] Ignoring visible gpu device (device: 0, name: Tesla K80, pci bus id: 0000:00:1e.0,"
    " compute capability: 3.7) with Cuda compute capability 3.7."
    " The minimum required Cuda capability is 5.2.",
)  # fmt: skip
#: What people say about themselves.
PEOPLE = (
    "",
    "Python version: 3.6.9",
    "python: 3.8.3\nUbuntu: 18.04",
    "Python version: 3.12.3",
    "TensorFlow version: 1.14.0",
    "TensorFlow version: 2.3.0",
    "TensorFlow version: 2.10.1\nPython version: 3.9",
    "TensorFlow version: 2.16.1",
    "GPU: RTX 5090",
    "GPU: GTX 1080\nNVIDIA driver version: 390.48",
    "$ conda install tensorflow-gpu",
    "I run this in Google Colab",
    "Google Colab, with SLEAP",
    "$ docker run --gpus all -it tensorflow/tensorflow:latest-gpu bash",
    "$ kubectl logs trainer",
    "$ apptainer exec --nv tensorflow-latest-gpu.sif python train.py",
    "OS: Windows 10",
    "yarn add @tensorflow/tfjs-node-gpu",
    "I use ML.NET",
    "It runs in SageMaker",
    "I use NixOS 24.05",
    "It fails under Windows",
    "with tf.Session(config=config) as sess:",
    "Ubuntu 22.04, Python 3.12",
)
#: Packages of NVIDIA that remedies ask for without a version.
_PROJECTS = {"nvidia-pyindex", "nvidia-tensorflow[horovod]", "tensorflow-cpu"}
#: Versions in conda's channels, from the recipes of conda-forge and ContinuumIO/anaconda-recipes#140.
CONDA = {
    ("conda-forge", "cudatoolkit"): ("9.2", "10.0", "10.1", "10.2", "11.0.3", "11.1.1", "11.2.2", "11.8.0"),
    ("conda-forge", "cudnn"): ("7.6.5", "8.0.5", "8.1.0", "8.2.1", "8.4.1", "8.8.0", "8.9.7", "9.10.1"),
    ("defaults", "cudatoolkit"): ("8.0", "9.0", "9.2", "10.0", "10.1"),
    ("defaults", "cudnn"): ("5.1.10", "6.0.21", "7.0.5", "7.1.2", "7.3.1", "7.6.5"),
}


def not_in_conda(command: str) -> Iterator[str]:
    """Yield what a command asks conda for that its channel does not have."""
    channel = "conda-forge" if "conda-forge" in command else "defaults"
    for name, wanted in re.findall(r"'(cudatoolkit|cudnn)([=<>][^']*)'", command):
        least = re.match(r">=([\d.]+),(\d+)\.\*", wanted)
        exact = wanted.lstrip("=")
        for version in CONDA[channel, name]:
            if least and version.startswith(f"{least[2]}.") and Version(version) >= Version(least[1]):
                break
            if not least and f"{version}.".startswith(f"{exact}."):
                break
        else:
            yield f"{name}{wanted} is not in {channel}"


def wrong(text: str, cause: Cause) -> Iterator[str]:
    """Yield what is wrong with the remedies of a cause for the person who wrote a text."""
    found = observed(text)
    host, python = read_host(found), read_software(found).python
    remedies = cause.remedies
    if not 1 <= len(remedies) <= 4 or remedies[0].says.startswith("Or "):
        yield f"{len(remedies)} remedies, of which the first is {remedies[0].says if remedies else 'missing'}"
    # A condition is said once, in the first remedy that it is about.
    stated = " ".join(line for one in remedies for line in (one.says, *one.commands))
    if any("has no extra" in one.says for one in remedies) and any(map(_uses_the_extra, remedies)):
        yield "the release has the extra and has it not"
    if re.match(r"If (?:this|that) does not help|If not,", remedies[0].says if remedies else ""):
        yield f"nothing comes before: {remedies[0].says}"
    yield from unfollowable(text, cause)
    for remedy in remedies:
        if (
            host.system == WINDOWS
            and remedy.way in ("any", "host", "pip", "conda")
            and _uses_the_extra(remedy)
        ):
            yield "NVIDIA's wheels don't exist for Windows"
        for command in remedy.commands:
            yield from not_in_conda(command)
            for call in shell.calls(command):
                if call.name in ("pip install", "uv pip install"):
                    yield from (f"no {one}" for one in call.rest if not _exists(one, python))
        # Commands that look into the person's own image install nothing.
        new = tuple(one for one in remedy.commands if "latest-gpu" not in one)
        for made, machine in installed(replace(remedy, commands=new), host, python):
            if why := why_wrong(made, machine):
                yield f"{made.tensorflow}: {why}"
            said = re.search(r"Python 3\.\d+|--python 3|python=3|py -3|FROM|RUN ", stated)
            if python is None and made.wheel == "pypi" and remedy.way in ("pip", "any") and not said:
                yield f"{made.tensorflow}: the Python that it needs is not said"


#: What a person's words rule out: a pattern of what they say, and one of the commands that it forbids.
FORBIDDEN = (
    (r"TensorFlow version: 1\.|tf\.Session\(", r"tf\.config\.|set_global_policy|cuda_malloc_async"),
    (r"GTX 1080|compute capability: [3-6]\.", r"mixed_float16"),
    (r"SageMaker", r"^(?:docker|podman|sudo nvidia-ctk|sudo apt-get install -y nvidia-container)"),
    (r"kubectl", r"^docker run"),
    (r"NixOS", r"\bpip install"),
    (
        r"(?s)^(?!.*(?:TypeError|ImportError|pip|\.py\b)).*(?:tfjs-node|ML\.NET)",
        r"\bpip\b|^conda |\bpython3?\b",
    ),
    (r"docker run --gpus all", r"^docker run --rm --gpus all \S+ nvidia-smi$"),
    (r"OS: Windows|under Windows", r"\bpython3\.|tensorflow-metal"),
    (r"(?<!e\.g\., Linux )Ubuntu", r"py -3|tensorflow-metal|install_tensorflow\("),
)
#: Words in capital letters that stand for a value in a command, and are explained in words.
_PLACEHOLDER = re.compile(r"\b(?:CUDA_MAJOR|CUDNN_MAJOR|TENSORFLOW|TENSORFLOW_MINOR|DRIVER_BRANCH|PID)\b")


def unfollowable(text: str, cause: Cause) -> Iterator[str]:
    """Yield what the person can't follow: what their words rule out, what contradicts itself, and blanks."""
    said = " ".join(one.says for one in cause.remedies)
    old = re.search(r"TensorFlow version: 1\.", text) is not None
    for remedy in cause.remedies:
        for command in remedy.commands:
            for words, forbidden in FORBIDDEN:
                if re.search(words, text) and re.search(forbidden, command):
                    yield f"{words} rules out `{command}`"
            for name in _PLACEHOLDER.findall(command):
                if name not in said:
                    yield f"{name} is not explained: `{command}`"
            if old and re.search(r"tensorflow\S*==2", command) and "for TensorFlow 2" not in remedy.says:
                yield f"a program of TensorFlow 1 gets `{command}`"
        if "does not bring" in remedy.says and re.search(r"whose CUDA libraries pip|pip bring", remedy.says):
            yield f"it contradicts itself: {remedy.says}"


def _exists(requirement: str, python: str | None) -> bool:
    """Return whether pip finds a package. `~=` asks for an old release, which `predict` does not judge."""
    old = re.fullmatch(r"tensorflow(?:-gpu)?~=(\d\.\d+)\.0", requirement)
    if old is None:
        return requirement in _PROJECTS or exists(requirement)
    release = release_of_any_age(old[1])
    return release is not None and (python is None or minor_in(python) in release.pythons)


def _uses_the_extra(remedy: Remedy) -> bool:
    return any("[and-cuda]" in command for command in remedy.commands)


@pytest.mark.slow
def test_every_answer_fits_the_person() -> None:
    found = set()
    for symptom, person in subjects_to_try(tuple(itertools.product(SYMPTOMS, PEOPLE))):
        text = f"It does not use the GPU.\n{person}\n\n{symptom}\n"
        for cause in diagnose_log(text).causes:
            found |= {f"{symptom[:150]} / {person}: {cause.code}: {why}" for why in wrong(text, cause)}
    assert sorted(found) == []


@pytest.mark.slow
def test_no_answer_to_a_known_message_has_what_the_person_cannot_follow() -> None:
    """For each message by itself, except where its line names a release, a system or a place of its own."""
    lines = [row["examples"][0] for _, row in compile.messages()]
    lines = [
        line for line in lines if not re.search(r"\b2\.\d|[Mm]ac|metal|WSL|docker|kube|pip|conda|glibc", line)
    ]
    people = ("TensorFlow version: 1.14.0", "It runs in SageMaker", "I use NixOS 24.05", "GPU: GTX 1080")
    found = set()
    for line, person in subjects_to_try(tuple(itertools.product(lines, people))):
        text = f"It does not use the GPU.\n{person}\n\n{line}\n"
        for cause in diagnose_log(text).causes:
            found |= {f"{line[:150]} / {person}: {cause.code}: {why}" for why in unfollowable(text, cause)}
    assert sorted(found) == []


@pytest.mark.parametrize(
    "command",
    [
        "conda install -c conda-forge 'cudatoolkit=10.0' 'cudnn=7.4'",
        "conda install -c conda-forge 'cudatoolkit=8.0'",
        "conda install -c defaults 'cudnn>=8.1,8.*'",
    ],
)
def test_what_conda_does_not_have_is_found(command: str) -> None:
    assert len(list(not_in_conda(command))) == 1


def test_conda_has_what_newer_releases_need() -> None:
    assert list(not_in_conda("conda install -c conda-forge 'cudatoolkit=11.2' 'cudnn>=8.6,8.*'")) == []
