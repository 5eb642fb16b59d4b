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
            "directml_limit",
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


PLACE = "2024-06-01 10:00:00.000001: E {place}] "
NO_SYMBOL = (
    "NotFoundError: /env/lib/my_ops.so: undefined symbol: cudaGetDriverEntryPoint, version libcudart.so.11.0"
)
SMALL_MEMORY = "OOM when allocating tensor with shape[{batch},64,512,512,128] and type float on GPU:0"
TOO_OLD_PTXAS = "Falling back to the CUDA driver for PTX compilation; ptxas does not support CC {cc}"
LOST_KERNEL = 'failed to get PTX kernel "fusion_3" from module: CUDA_ERROR_NOT_FOUND: named symbol not found'


@pytest.mark.parametrize(
    ("text", "code", "title", "says", "never"),
    [
        (TOO_OLD_PTXAS.format(cc="9.0"), "ptxas_missing_or_unsuitable", "CUDA 11.8", "CUDA 11.8", "cu12>="),
        (TOO_OLD_PTXAS.format(cc="12.0"), "ptxas_missing_or_unsuitable", "CUDA 12.8", "CUDA 12.8", "cu11"),
        (
            f"GPU: RTX 4080\n{LOST_KERNEL}",
            "ptxas_missing_or_unsuitable",
            "8.9",
            "FROM or ARG",
            "Docker Desktop",
        ),
        (
            "Couldn't invoke ptxas --version\n`/opt/cuda-12.2/bin/ptxas`",
            "ptxas_missing_or_unsuitable",
            "/opt/cuda-12.2/bin",
            "systemd",
            "pip install",
        ),
        (
            "calling ray.get_gpu_ids() in Ray Tune; os.environ['CUDA_VISIBLE_DEVICES'] returns \"1,1\"\n"
            "failed call to cuInit: CUDA_ERROR_INVALID_DEVICE: invalid device ordinal",
            "visible_devices_misset",
            "twice",
            "each once",
            "unset CUDA",
        ),
        (
            "The launcher passes CUDA_VISIBLE_DEVICES as an empty value\nCUDA_ERROR_NO_DEVICE",
            "visible_devices_misset",
            "",
            "CUDA_VISIBLE_DEVICES=0",
            "reboot",
        ),
        (
            "$ nix-shell\nCould not load dynamic library 'libcuda.so.1'; dlerror: libcuda.so.1: cannot open",
            "libcuda_wrong_or_not_found",
            "",
            "LD_PRELOAD",
            "sudo ldconfig",
        ),
        (
            "ImportError: /usr/lib/libcuda.so.1: file too short",
            "libcuda_wrong_or_not_found",
            "empty placeholder",
            "GPU node",
            "ldconfig",
        ),
        (
            "libcuda reported version is: 470.57.2\nkernel reported version is: 535.54.3\n"
            "kernel version 535.54.3 does not match DSO version 470.57.2",
            "driver_library_mismatch",
            "470.57.2",
            "older than the module",
            "sudo reboot",
        ),
        (SMALL_MEMORY.format(batch=1), "gpu_out_of_memory", "", "n_tiles", "halve it"),
        (SMALL_MEMORY.format(batch=16), "gpu_out_of_memory", "", "halve it", "n_tiles"),
        (
            "MemoryError: std::bad_alloc: CUDA error at: /rmm/mr/device/cuda_memory_resource.hpp:69",
            "gpu_memory_preallocation",
            "RAPIDS",
            "part_size",
            "free -g",
        ),
        (NO_SYMBOL, "cuda_library_missing_or_wrong_version", "cudaGetDriverEntryPoint", "built", "2.20.0"),
        (
            "Could not load library cudnn_ops_infer64_8.dll. Error code 193\nOS: Windows 10",
            "cuda_library_missing_or_wrong_version",
            "64-bit",
            "zlibwapi",
            "wsl --install",
        ),
        (
            "Windows 11, RStudio, with WSL2 installed\ninstall_keras() does not recognise my GPU",
            "platform_without_cuda_build",
            "R for Windows",
            "install_tensorflow",
            "pip install",
        ),
        (
            "pip install tensorflow-gpu==1.13.1\n"
            "ERROR: Could not find a version that satisfies the requirement tensorflow-gpu==1.13.1\n"
            "ERROR: No matching distribution found for tensorflow-gpu==1.13.1",
            "no_installable_package",
            "1.13.1",
            "python=3.7",
            "reboot",
        ),
        (
            "ERROR: tensorflow-2.4.1-cp37-cp37m-linux_aarch64.whl is not a supported wheel on this platform.",
            "no_installable_package",
            "Python 3.7",
            "python3.7 -m pip",
            "uv venv",
        ),
        (
            "TensorFlow version: 2.15.0\nModuleNotFoundError: No module named 'keras.ops'",
            "keras_version_conflict",
            "Keras 3",
            "older release of the package",
            "keras~=",
        ),
        (
            "Windows 10\nNo OpKernel was registered to support Op 'NcclAllReduce' used by {{node x}}",
            "nccl_failure",
            "NcclAllReduce",
            "HierarchicalCopyAllReduce",
            "NCCL_DEBUG",
        ),
        (
            "TensorFlow version: 1.5.0\nCUDA: 9.0\nDriver Version: 384.59\n"
            "cuda_dnn.cc:385] could not create cudnn handle: CUDNN_STATUS_NOT_INITIALIZED\n"
            "cuda_dnn.cc:393] possibly insufficient driver version: 384.59.0",
            "driver_too_old",
            "384.81",
            "384.81",
            "ALLOW_GROWTH",
        ),
        (
            PLACE.format(place="external/local_xla/xla/stream_executor/cuda/cuda_dnn.cc:447")
            + OLD_CUDNN.format(loaded="8.6.0", built="8.9.4"),
            "cudnn_version_mismatch",
            "8.9.4",
            "tensorflow[and-cuda]==2.15.1",
            "2.20.0",
        ),
        (
            DLOPEN.format(gap=" ", name="libcusolver.so.10").replace("tensorflow/stream", "t/stream"),
            "cuda_library_missing_or_wrong_version",
            "",
            "2.4: CUDA 11.0",
            "2.20.0",
        ),
    ],
)
def test_the_first_cause_and_its_remedies_solve_this_kind(
    text: str, code: str, title: str, says: str, never: str
) -> None:
    first = diagnosed(text).causes[0]
    assert first.code == code
    assert title in first.title
    told = "\n".join(chain.from_iterable((one.says, *one.commands) for one in first.remedies))
    assert says in told
    assert never not in told


@pytest.mark.parametrize(
    "text",
    [
        "why does the tensorflow version use more GPU memory than the PyTorch one?\n"
        "why is the memory of tensorflow larger than that of pytorch",
        "cuDNN, cuFFT and cuBLAS registration errors",
        "which CUDA version do I need for TensorFlow 2.4?",
    ],
)
def test_a_question_without_a_fault_is_answered(text: str) -> None:
    found = diagnosed(text)
    assert found.causes == ()
    assert found.harmless or found.works
