"""A GPU that visibly works rules out every cause that says it can't be used."""

from __future__ import annotations

import pytest

from validator.conditions import Named
from validator.diagnosis import diagnose_log
from validator.diagnosis.catalogue import catalogue, causes, finder, language
from validator.diagnosis.observe import observe
from validator.diagnosis.text import read_text

STAMP = "2025-03-01 10:00:00.000001: "
CREATED = (
    STAMP + "I tensorflow/core/common_runtime/gpu/gpu_device.cc:2019] Created device"
    " /job:localhost/replica:0/task:0/device:GPU:0 with 30000 MB memory:  -> device: 0, name: {}, pci bus id:"
    " 0000:01:00.0, compute capability: {}\n"
)
T4, RTX_5090 = CREATED.format("Tesla T4", "7.5"), CREATED.format("NVIDIA GeForce RTX 5090", "12.0a")
STARTED = "Epoch 1/10\n"
STEP = "1875/1875 [==============================] - 4s 2ms/step - loss: 0.2161\n"
FAILED = STAMP + "E cuda_driver.cc:1] failed to launch: CUDA_ERROR_INVALID_HANDLE: invalid resource handle\n"
#: Versions that can't work with one another.
OLD_DRIVER = "I use TensorFlow 2.18.0 with NVIDIA driver version 470.57.02.\n"
BLACKWELL = "I use TensorFlow 2.19.0.\n"

#: Causes that say that the GPU can't be used at all.
CAN_NOT_BE_USED = {
    "compute_capability_unsupported",
    "container_no_gpu_access",
    "cpu_only_build",
    "cuda_library_missing_or_wrong_version",
    "cudnn_version_mismatch",
    "driver_library_mismatch",
    "driver_not_loaded",
    "driver_state_needs_reload",
    "driver_too_old",
    "fabric_manager_not_ready",
    "forward_compat_unsupported",
    "gpu_device_denied",
    "hosted_runtime_without_gpu",
    "libcuda_wrong_or_not_found",
    "library_path_not_set",
    "no_gpu_in_machine",
    "platform_without_cuda_build",
    "visible_devices_misset",
}


def works(text: str) -> bool:
    return language().parse("gpu_works").holds(finder(observe(read_text(text), catalogue()), {}))


@pytest.mark.parametrize(
    "text",
    [
        T4,
        T4 + STARTED + STEP,
        RTX_5090 + STARTED + STEP,
        "Num GPUs Available:  1\n" + STARTED + STEP,
        "Num GPUs Available:  1\n" + STARTED + "Epoch 2/10\n",
    ],
)
def test_a_gpu_works(text: str) -> None:
    assert works(text)


@pytest.mark.parametrize(
    "text",
    [
        STARTED + STEP,
        "Num GPUs Available:  1\n",
        "Num GPUs Available:  1\n" + STARTED,
        T4 + FAILED,
        T4 + STEP + FAILED,
        T4 + "TensorFlow was not built with CUDA kernel binaries compatible with compute capability 7.5.\n",
    ],
)
def test_it_is_not_known_whether_a_gpu_works(text: str) -> None:
    assert not works(text)


def test_a_gpu_that_works_is_stronger_than_the_versions() -> None:
    assert [cause.code for cause in diagnose_log(OLD_DRIVER).causes] == ["driver_too_old"]
    assert diagnose_log(OLD_DRIVER + T4 + STARTED + STEP).causes == ()


def test_a_device_that_was_created_does_not_prove_that_there_are_kernels() -> None:
    (cause,) = diagnose_log(BLACKWELL + RTX_5090).causes
    assert cause.code == "compute_capability_unsupported"
    (cause,) = diagnose_log(BLACKWELL + RTX_5090 + STARTED + FAILED).causes
    assert cause.code == "compute_capability_unsupported"
    assert diagnose_log(BLACKWELL + RTX_5090 + STARTED + STEP).causes == ()


def test_causes_that_say_that_the_gpu_cannot_be_used_are_ruled_out_by_name() -> None:
    by_name = {
        cause.code
        for cause in causes()
        for one in getattr(cause.ruled_out_by, "conditions", ())
        if isinstance(one, Named) and one.name == "gpu_works"
    }
    assert by_name >= CAN_NOT_BE_USED
