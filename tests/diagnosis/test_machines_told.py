"""Faults of machines, drivers, GPUs and containers, told as people tell them, lead to their cause."""

from __future__ import annotations

import pytest

from validator.diagnosis import diagnose_log
from validator.model.diagnosis import Diagnosis

CUINIT_500 = (
    "2024-06-01 10:00:00.1: E external/local_xla/xla/stream_executor/cuda/cuda_driver.cc:282] failed call to"
    " cuInit: CUDA_ERROR_NOT_FOUND: named symbol not found"
)
NOT_INITIALIZED = (
    "2024-06-01 10:00:00.1: E tensorflow/compiler/xla/stream_executor/cuda/cuda_driver.cc:1278] could not"
    " retrieve CUDA device count: CUDA_ERROR_NOT_INITIALIZED: initialization error"
)
NO_CUDART = (
    "2024-05-01 10:00:00.123456: I external/local_tsl/tsl/cuda/cudart_stub.cc:31] Could not find cuda"
    " drivers on your machine, GPU will not be used."
)
NO_MODULE = (
    "2022-09-20 14:11:47.7: I tensorflow/stream_executor/cuda/cuda_diagnostics.cc:156] kernel driver does not"
    " appear to be running on this host ({}): /proc/driver/nvidia/version does not exist"
)
BLACKWELL = (
    "2025-09-01 10:00:00.1: W tensorflow/core/common_runtime/gpu/gpu_device.cc:2433] TensorFlow was not built"
    " with CUDA kernel binaries compatible with compute capability 12.0. CUDA kernels will be jit-compiled"
    " from PTX, which could take 30 minutes or longer.\n"
    "2025-09-01 10:00:01.1: W tensorflow/compiler/mlir/tools/kernel_gen/tf_gpu_runtime_wrappers.cc:40]"
    " 'cuModuleLoadData(&module, data)' failed with 'CUDA_ERROR_INVALID_PTX'\n"
    "2025-09-01 10:00:01: W tensorflow/core/framework/op_kernel.cc:1844] INTERNAL: 'cuLaunchKernel(function,"
    " gridX, gridY, gridZ, blockX, blockY, blockZ, 0, reinterpret_cast<CUstream>(stream), params, nullptr)'"
    " failed with 'CUDA_ERROR_INVALID_HANDLE'"
)


def found(text: str) -> Diagnosis:
    return diagnose_log(f"Hello, I need help\n{text}\n")


def codes(text: str) -> list[str]:
    return [cause.code for cause in found(text).causes]


@pytest.mark.parametrize(
    ("cause", "text"),
    [
        (
            "wsl2_container_support_too_old",
            f"docker run --gpus all -it tensorflow/tensorflow:latest-gpu\n{CUINIT_500}",
        ),
        ("wsl2_container_support_too_old", f"Windows 11, Docker Desktop 4.29\n{CUINIT_500}"),
        (
            "wsl2_container_support_too_old",
            "I use WSL2. In the container: CUDA initialization failed with error 500, nvidia-smi works.",
        ),
        ("wsl2_container_support_too_old", "cuda driver library init failure: 500. It runs in Docker."),
        (
            "container_runtime_class_missing",
            'Warning  FailedCreatePodSandBox  kubelet  no runtime for "nvidia" is configured',
        ),
        (
            "container_runtime_class_missing",
            'Error creating: pods "tf" is forbidden: pod rejected: RuntimeClass "nvidia" not found',
        ),
        (
            "container_runtime_class_missing",
            "On k3s my pod can't find the GPU, but nvidia-smi works on the node.",
        ),
        (
            "container_runtime_class_missing",
            "We run microk8s. The daemonset nvidia-device-plugin logs\nlibnvidia-ml.so.1 not found",
        ),
        (
            "container_lost_gpu",
            "It runs in a Docker container for some hours, then\nFailed to initialize NVML: Unknown Error",
        ),
        (
            "container_lost_gpu",
            "After systemctl daemon-reload on the host, in all of our containers:\n"
            "Failed to initialize NVML: Unknown Error",
        ),
        ("gpu_hardware_fault", "My PC reboots as soon as I start training on the GPU. No log is written."),
        ("gpu_hardware_fault", "The whole computer just shuts down during training with a big batch."),
        (
            "gpu_hardware_fault",
            "When training starts on two GPUs, the machine powers off after some seconds.",
        ),
        ("driver_not_loaded", "The driver isn't loaded after the install. mokutil says: SecureBoot enabled"),
        ("driver_not_loaded", "Ubuntu 22.04, RTX 3060. It only fails with secure boot enabled."),
        (
            "driver_library_mismatch",
            "After the nightly upgrade nvtop says: Driver/library version mismatch. What should I do?",
        ),
        ("fabric_manager_not_ready", "On our H100 nodes PyTorch says: Error 802: system not yet initialized"),
        ("forward_compat_unsupported", "In Docker on my RTX 3060 I get error 804, what does it mean?"),
        ("driver_state_needs_reload", "After suspend: CUDA unknown error - CUDA error code 999"),
        ("gpu_device_denied", "TensorFlow finds the GPU only with sudo"),
        ("gpu_device_denied", "PermissionError: [Errno 13] Permission denied: '/dev/nvidia0'"),
        (
            "mig_limitation",
            "The A100 is in MIG mode with three instances, and training only uses one of them.",
        ),
        ("mig_limitation", "I want to train on several MIG slices, but does not see more than one instance"),
        ("hosted_runtime_without_gpu", "Colab: Failed to assign a backend. No backend with GPU available."),
        ("hosted_runtime_without_gpu", "On Google Colab I can't connect to a GPU runtime since Monday."),
        ("container_no_gpu_access", "In my Docker container: Found no NVIDIA driver on your system."),
        # The host's name in the log is a container's id, a pod's name, or that of an ordinary machine.
        ("container_no_gpu_access", NO_MODULE.format("3f2a9c81d0be")),
        ("container_no_gpu_access", NO_MODULE.format("serving-5f7d446b77-kmsxn")),
        ("driver_not_loaded", NO_MODULE.format("gpu-node-12")),
        (
            "no_gpu_in_machine",
            f"On my laptop (Intel Iris Xe) in a Docker container\n{NO_CUDART}\n"
            "tf.config.list_physical_devices('GPU') returns []",
        ),
        ("compute_capability_unsupported", f"RTX 5090, tensorflow 2.19.0\n{BLACKWELL}"),
        (
            "compute_capability_unsupported",
            f"RTX 5090, tensorflow 2.19.0\n{BLACKWELL}\n"
            "W xla/stream_executor/gpu/asm_compiler.cc:234] Falling back to the CUDA driver"
            " for PTX compilation; ptxas does not support CC 12.0",
        ),
    ],
)
def test_what_people_tell_leads_to_the_cause(cause: str, text: str) -> None:
    assert codes(text)[:1] == [cause]


@pytest.mark.parametrize(
    ("cause", "text"),
    [
        ("gpu_hardware_fault", "The kernel restarts when training starts."),
        ("gpu_hardware_fault", "Restart the runtime after the installation and run training again."),
        ("gpu_hardware_fault", "I restarted the computer and then trained the model."),
        ("driver_not_loaded", "Secure Boot is disabled on this machine."),
        (
            "container_runtime_class_missing",
            "We deploy the trained model to Kubernetes, where pods use CPUs.",
        ),
        ("mig_limitation", "We use only one GPU of several GPUs for training."),
        ("gpu_device_denied", "I installed the driver with sudo and the GPU is there."),
        ("hosted_runtime_without_gpu", "It works in Colab with a T4 and takes 5 minutes there."),
        ("container_lost_gpu", "The GPU is no longer idle after I raised the batch size."),
        ("forward_compat_unsupported", "The loss after epoch 804 is 0.3."),
        ("fabric_manager_not_ready", "The mean error of 802 samples is small."),
        ("wsl2_container_support_too_old", "The web server answers with error 500 in the container."),
    ],
)
def test_other_words_do_not_show_it(cause: str, text: str) -> None:
    assert cause not in codes(text)


def test_a_forked_worker_that_counts_no_gpus_is_harmless() -> None:
    diagnosis = found("\n".join([NOT_INITIALIZED] * 3))
    assert not diagnosis.causes
    assert not diagnosis.unknown
    assert [one.code for one in diagnosis.harmless] == ["forked_worker_notice"]


def test_a_machine_without_an_nvidia_gpu_gets_no_advice_on_containers() -> None:
    diagnosis = found(
        f"GPU: Intel Iris Xe, docker run -it tensorflow/tensorflow:2.15.0\n{NO_CUDART}\nGPUs: []"
    )
    assert [cause.code for cause in diagnosis.causes] == ["no_gpu_in_machine"]
    commands = [command for one in diagnosis.causes[0].remedies for command in one.commands]
    assert not [command for command in commands if "--gpus" in command or "nvidia-ctk" in command]


def test_a_cpu_that_is_wanted_is_no_fault() -> None:
    assert not codes(f"I run this on the CPU on purpose, in a container.\n{NO_CUDART}")
