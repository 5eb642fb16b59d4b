"""Kinds of texts that were once answered wrongly: the cause, and what the remedies tell this person."""

from __future__ import annotations

from itertools import chain

import pytest

from validator.diagnosis import diagnose_log
from validator.model.diagnosis import NO_FAULT, NOT_SHOWN, Diagnosis

DLOPEN = (
    "2021-05-14 14:54:43.021067: W tensorflow/stream_executor/platform/default/dso_loader.cc:64] Could not"
    "{gap}load dynamic library '{name}'; dlerror: {name}: cannot open shared object file: No such file or"
    " directory\n"
)
OLD_CUDNN = "Loaded runtime CuDNN library: {loaded} but source was compiled with: {built}.\n"


def diagnosed(text: str) -> Diagnosis:
    return diagnose_log(f"Hello\n{text}\n")


def commands(found: Diagnosis) -> str:
    remedies = chain.from_iterable(cause.remedies for cause in found.causes)
    return "\n".join(chain.from_iterable(remedy.commands for remedy in remedies))


@pytest.mark.parametrize(
    ("text", "code", "title"),
    [
        ("/lib64/libc.so.6: version 'GLIBC_2.27' not found", "no_installable_package", "GLIBC_2.27"),
        ("libm.so.6: version “GLIBC_2.29” not found", "no_installable_package", "GLIBC_2.29"),
        ("  _tflow_select:  2.1.0-gpu   --> 2.3.0-mkl ", "cpu_only_build", "exchanges"),
        (
            DLOPEN.format(gap="  ", name="libcusolver.so.11"),
            "cuda_library_missing_or_wrong_version",
            "libcusolver.so.11",
        ),
        (
            "RuntimeError: module compiled against API version 0x10 but this version of numpy is 0xe",
            "numpy_abi_break",
            "older",
        ),
        (
            r"NotFoundError: C:\env\lib\site-packages\tensorflow-plugins\tfdml_plugin.dll not found",
            "platform_without_cuda_build",
            "DirectML",
        ),
        (
            "Xavier NX with JetPack 4.6, image l4t-ml:r32.6.1\n"
            + DLOPEN.format(gap=" ", name="libcudart.so.10.2"),
            "container_no_gpu_access",
            "runtime nvidia",
        ),
        (
            "jaxlib.xla_extension.XlaRuntimeError: INTERNAL: Failed to load in-memory CUBIN:"
            " CUDA_ERROR_OUT_OF_MEMORY: out of memory",
            "gpu_memory_preallocation",
            "JAX",
        ),
        (
            "I pip installed tensorflow==2.10.0 and the GPU became invisible.\n"
            "With the preinstalled tensorflow 2.15.0 the GPU has no problems.",
            "cuda_library_missing_or_wrong_version",
            "TensorFlow 2.10.0 was built for CUDA 11.2",
        ),
    ],
)
def test_the_first_cause(text: str, code: str, title: str) -> None:
    first = diagnosed(text).causes[0]
    assert first.code == code
    assert title in first.title


@pytest.mark.parametrize(
    ("text", "told", "never"),
    [
        (
            "Windows 10, Python 3.6.13, NVIDIA Quadro K620\n"
            "Internal: no kernel image is available for execution on the device",
            "CUDA_VISIBLE_DEVICES",
            "2.16.2",
        ),
        (
            "protobuf is the problem, as cudf requires protobuf <5, >=4.21.\n"
            "TypeError: Descriptors cannot not be created directly.",
            "pip check",
            "protobuf<3.21",
        ),
        (
            "- **Docker version**: 18.03.1-ce\n$ docker run -it tensorflow/serving:1.9.0-devel-gpu\n"
            "failed call to cuInit: CUresult(-1)",
            "--runtime=nvidia",
            "--gpus",
        ),
        (OLD_CUDNN.format(loaded="9.0.0", built="9.3.0"), '"nvidia-cudnn-cu12~=9.3.0"', "cu11"),
        (
            "AttributeError: 'MessageFactory' object has no attribute 'GetPrototype'",
            '"protobuf<6"',
            "protobuf<3.21",
        ),
        (
            "RuntimeError: module compiled against API version 0xf but this version of numpy is 0xe",
            '"numpy>=1.22,<1.24"',
            "numpy<2",
        ),
        (
            "XlaRuntimeError: INTERNAL: Failed to load in-memory CUBIN: CUDA_ERROR_OUT_OF_MEMORY",
            "XLA_PYTHON_CLIENT_PREALLOCATE=false",
            "TF_FORCE_GPU_ALLOW_GROWTH",
        ),
        (
            "conda create -n rapids -c conda-forge cudf=23.12 cuda-version=11.2 tensorflow\n"
            "tensorflow does not use the GPU",
            "tensorflow=*=cuda*",
            "-c defaults",
        ),
    ],
)
def test_remedies_fit_what_the_text_says(text: str, told: str, never: str) -> None:
    shown = commands(diagnosed(text))
    assert told in shown
    assert never not in shown


def test_the_driver_is_that_of_the_cuda_that_was_opened() -> None:
    found = diagnosed(
        "pip install nvidia-tensorflow[horovod]\nTensorFlow version: 1.15.5\n"
        "2023-03-17 15:10:16.549035: I tensorflow/stream_executor/platform/default/dso_loader.cc:50]"
        " Successfully opened dynamic library libcudart.so.12\n"
        "cudaGetDevice() failed. Status: CUDA driver version is insufficient for CUDA runtime version"
    )
    assert [cause.code for cause in found.causes] == ["driver_too_old"]
    assert "Install driver 525" in found.causes[0].remedies[0].says


def test_a_cuda_that_does_not_exist_is_not_believed() -> None:
    assert "cuda" not in diagnosed("CUDA 18.0\nTensorFlow version: 2.15.1\n").facts


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("W tensorflow/compiler/tf2tensorrt/utils/py_utils.cc:38] TF-TRT Warning: Could not find", NOT_SHOWN),
        (DLOPEN.format(gap=" ", name="libcupti.so.11.2"), NOT_SHOWN),
        (
            "I use the supplied CPU docker image.\nI external/local_tsl/tsl/cuda/cudart_stub.cc:32] Could not"
            " find cuda drivers on your machine, GPU will not be used.",
            NO_FAULT,
        ),
    ],
)
def test_harmless_lines_are_no_fault(text: str, answer: str) -> None:
    found = diagnosed(text)
    assert (found.answer, found.causes) == (answer, ())
