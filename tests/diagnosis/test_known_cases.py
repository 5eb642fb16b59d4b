"""Texts that people posted in this form, with the answer that was found to be right."""

from __future__ import annotations

import pytest

from validator.diagnosis import diagnose_log
from validator.diagnosis.catalogue import CERTAIN, LIKELY
from validator.model.diagnosis import NO_FAULT, NOT_SHOWN

STAMP = "2025-03-01 10:00:00.000001: "
EMPTY = ">>> tf.config.list_physical_devices('GPU')\n[]\n"
NO_KERNELS = (
    STAMP + "W tensorflow/core/common_runtime/gpu/gpu_device.cc:2433] TensorFlow was not built with CUDA"
    " kernel binaries compatible with compute capability 12.0a. CUDA kernels will be jit-compiled from PTX,"
    " which could take 30 minutes or longer.\n"
)
PTXAS = (
    "W0000 00:00:1741000000.000001    1234 subprocess_compilation.cc:330] Couldn't get ptxas version string:"
    " INTERNAL: Couldn't invoke ptxas --version\n"
)
LAUNCH = (
    STAMP + "W tensorflow/core/framework/op_kernel.cc:1844] INTERNAL: 'cuLaunchKernel(function, gridX)'"
    " failed with 'CUDA_ERROR_INVALID_HANDLE'\n"
)
CUDART = (
    STAMP + "I external/local_xla/xla/tsl/cuda/cudart_stub.cc:32] Could not find cuda drivers on your"
    " machine, GPU will not be used.\n"
)
FORM = """\
### TensorFlow version

2.16.1

### OS platform and distribution

Windows 11

### GPU model and memory

RTX 4070

### Current behavior?

"""
FORKED = (
    "E tensorflow/compiler/xla/stream_executor/cuda/cuda_driver.cc:1278] could not retrieve CUDA device"
    " count: CUDA_ERROR_NOT_INITIALIZED: initialization error\n"
)
PIP_LIST = "pip list:\n\nPackage    Version\n---------- -------\nnumpy      2.1.3\ntensorflow {}\n"


def causes(text: str) -> list[tuple[str, str]]:
    return [(cause.code, cause.strength) for cause in diagnose_log(text).causes]


@pytest.mark.parametrize(
    ("text", "code", "strength"),
    [
        # A newer ptxas does not help where the wheel has no kernels.
        (
            "TensorFlow 2.19.0, NVIDIA GeForce RTX 5090\n" + NO_KERNELS + PTXAS + LAUNCH,
            "compute_capability_unsupported",
            CERTAIN,
        ),
        (
            "RTX 5090, TensorFlow 2.19, " + PIP_LIST.format("2.19.0"),
            "compute_capability_unsupported",
            LIKELY,
        ),
        (FORM + "It is not detected:\n" + EMPTY, "platform_without_cuda_build", CERTAIN),
        (FORM + "It trains on the CPU.\n", "platform_without_cuda_build", LIKELY),
        ("macOS 14.5, TensorFlow 2.17.0\n" + EMPTY, "platform_without_cuda_build", CERTAIN),
        (
            "Linux gh200 6.8.0-1010-nvidia-64k aarch64\n$ pip install tensorflow==2.18.0\n" + EMPTY,
            "platform_without_cuda_build",
            CERTAIN,
        ),
        (
            "Jetson Orin Nano, JetPack 6.0\n$ pip install tensorflow==2.16.1\n" + EMPTY,
            "platform_without_cuda_build",
            LIKELY,
        ),
        (
            "$ python --version\nPython 3.13.1\n$ pip install tensorflow==2.15.0\nERROR: No matching"
            " distribution found for tensorflow==2.15.0\n",
            "no_installable_package",
            CERTAIN,
        ),
        (
            "| NVIDIA-SMI 470.57.02    Driver Version: 470.57.02    CUDA Version: 11.4     |\n"
            + PIP_LIST.format("2.18.0")
            + EMPTY,
            "driver_too_old",
            LIKELY,
        ),
        # The line is about libcudart, whatever it says.
        ("$ pip install tensorflow==2.18.0\n" + CUDART, "cuda_library_missing_or_wrong_version", CERTAIN),
        (
            PIP_LIST.format("2.18.0") + "\nDriver Version: 550.54.14    CUDA Version: 12.4\n" + CUDART,
            "cuda_library_missing_or_wrong_version",
            LIKELY,
        ),
        ("As soon as training starts, my machine reboots. RTX 3090.\n", "gpu_hardware_fault", LIKELY),
        ("My PC shuts down when training under heavy load\n", "gpu_hardware_fault", LIKELY),
        # So little is refused only where somebody else holds all of it.
        (
            STAMP + "I tensorflow/stream_executor/cuda/cuda_driver.cc:831] failed to allocate 4.0KiB (4096"
            " bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory\n",
            "gpu_memory_held_by_other_process",
            CERTAIN,
        ),
    ],
)
def test_the_first_cause(text: str, code: str, strength: str) -> None:
    assert causes(text)[0] == (code, strength)


def test_the_extra_is_the_remedy_for_a_wheel_without_it() -> None:
    (cause,) = diagnose_log("$ pip install tensorflow==2.18.0\n" + CUDART).causes
    commands = [command for remedy in cause.remedies for command in remedy.commands]
    assert 'python -m pip install "tensorflow[and-cuda]==2.18.0"' in commands
    assert "driver is missing" not in cause.title


def test_a_machine_with_only_intel_graphics_gets_no_advice_about_containers() -> None:
    (cause,) = diagnose_log("My laptop has only Intel UHD graphics 620.\n" + CUDART).causes
    assert cause.code == "no_gpu_in_machine"
    assert not any("docker run" in command for remedy in cause.remedies for command in remedy.commands)
    assert "docker" not in {remedy.way for remedy in cause.remedies}


@pytest.mark.parametrize(
    "text",
    [
        "os.environ['CUDA_VISIBLE_DEVICES'] = '-1'  # force CPU\n"
        + STAMP
        + "E cuda_driver.cc:1] failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device\n",
        "We use tensorflow-cpu on purpose. pip install tensorflow-cpu==2.15\n",
        "I don't want to use a GPU, how to get rid of this message?\n" + CUDART,
    ],
)
def test_a_cpu_that_is_used_on_purpose_is_no_fault(text: str) -> None:
    found = diagnose_log(text)
    assert (found.answer, found.causes, found.unknown) == (NO_FAULT, (), ())


def test_without_the_purpose_the_same_lines_are_a_fault() -> None:
    text = "os.environ['CUDA_VISIBLE_DEVICES'] = '-1'\n" + EMPTY
    assert causes(text)[0][0] == "visible_devices_misset"
    assert causes("pip install tensorflow-cpu==2.15\n" + EMPTY)[0][0] == "cpu_only_build"


def test_a_forked_worker_without_cuda_is_harmless() -> None:
    found = diagnose_log(FORKED * 3)
    assert (found.answer, found.causes, found.unknown) == (NOT_SHOWN, (), ())
    assert [one.code for one in found.harmless] == ["forked_worker_notice"]
    assert causes("failed call to cuInit: CUDA_ERROR_NOT_INITIALIZED: initialization error\n")


@pytest.mark.parametrize("system", ["Windows 11", "macOS 14.5"])
def test_a_question_about_no_gpu_is_not_answered_with_the_platform(system: str) -> None:
    notice = STAMP + "I tensorflow/core/util/port.cc:113] oneDNN custom operations are on.\n"
    text = f"I am on {system} with TensorFlow 2.16.1. Is this a problem?\n{notice}"
    assert causes(text) == []
    assert causes(text + "And why is my GPU not used?\n") == [("platform_without_cuda_build", CERTAIN)]
