"""What a post states reaches the remedies: by kind, what they have to say and must not."""

from __future__ import annotations

import pytest

from validator.diagnosis import diagnose_log

CASES: dict[str, tuple[str, str, tuple[str, ...], tuple[str, ...]]] = {
    "an epoch takes hours, minutes elsewhere": (
        "Slow training\nGPU memory is full, the load 70 %, on an RTX 3090. An epoch takes 11 hours; another"
        " program with the same pictures needs 5 minutes for one.",
        "input_pipeline_bound",
        ("free -g", 'dataset.cache("/path/to/a/file")'),
        (".cache().", "ImageDataGenerator"),
    ),
    "a load that jumps": (
        "GPU usage\nThe GPU utilization jumps: sometimes 95 %, then 0 %. Is it the reading of the files?",
        "input_pipeline_bound",
        ("prefetch", "overlap"),
        ("list_physical_devices", "ImageDataGenerator", ".cache()."),
    ),
    "an LSTM that is slower on the GPU": (
        "GRU\nMy recurrent network is slower on the GPU than on the CPU. Would a bigger card help?",
        "workload_too_small",
        ("CuDNNLSTM", "a bigger GPU hardly helps"),
        (),
    ),
    "a program that wants newer releases than Windows has": (
        "which environment\nThe library needs TensorFlow 2.14 to 2.16, but on native Windows it can't use the"
        " GPU. Can I go down?",
        "platform_without_cuda_build",
        ("tensorflow[and-cuda]==2.16.*", "going down to that one does not help"),
        ("2.10.1", "2.20"),
    ),
    "a GPU older than all builds": (
        "Ignoring visible gpu device (device: 0, name: Quadro 600, pci bus id: 0000:01:00) with Cuda compute"
        " capability 2.1. The minimum required Cuda capability is 3.0.",
        "compute_capability_unsupported",
        ("Nothing that you can install",),
        ("pip list", "pip install"),
    ),
    "RDNA 1": (
        'tensorflow-rocm on a Radeon RX 5500 XT\n"hipErrorNoBinaryForGpu: Unable to find code object for all'
        ' current devices!"',
        "amd_gpu_not_supported",
        ("never on ROCm's list", "HSA_OVERRIDE_GFX_VERSION=10.3.0"),
        ("Take a newer ROCm",),
    ),
    "RDNA 2": (
        'tensorflow-rocm on a Radeon RX 6900 XT\n"hipErrorNoBinaryForGpu: Unable to find code object for all'
        ' current devices!"',
        "amd_gpu_not_supported",
        ("Take a newer ROCm",),
        ("never on ROCm's list",),
    ),
    "a plugin for Metal that is too old": (
        "tensorflow 2.18.0 on macOS 15\nNotFoundError: dlopen(/Users/me/venv/lib/python3.11/site-packages/"
        "tensorflow-plugins/libmetal_plugin.dylib, 0x0006): Symbol not found: __ZN3tsl8internal10LogMess",
        "python_package_conflict",
        ('"tensorflow-metal==1.2.0"', '"tensorflow==2.17.1" "tensorflow-metal==1.1.0"'),
        ("python3.11 -m venv",),
    ),
    "a fault that newer builds don't have, and another place": (
        "CUDA_ERROR_ILLEGAL_ADDRESS\nTensorFlow 2.10 with apptainer on an A100: CUDA_ERROR_ILLEGAL_ADDRESS."
        " On Colab I cannot reproduce it. It does not occur with the newest image.",
        "gpu_kernel_failed",
        ("A newer build does not have the fault",),
        ("!", "CUDA_LAUNCH_BLOCKING"),
    ),
    "an import on the login node": (
        'File "/lustre/users/me/conda/lib/python3.6/imp.py", line 343, in load_dynamic\n'
        "ImportError: libcuda.so.1: cannot open shared object file: No such file or directory",
        "libcuda_wrong_or_not_found",
        ("srun --gres=gpu:1", "nvidia-smi"),
        ("uninstall", "sudo"),
    ),
    "it goes on without a driver": (
        "messages\nW tensorflow/stream_executor/platform/default/dso_loader.cc:59] Could not load dynamic"
        " library 'libcuda.so.1'; dlerror: libcuda.so.1: cannot open shared object file: No such file or"
        " directory\nThe program goes on.",
        "libcuda_wrong_or_not_found",
        ("nothing has to be done", "TF_CPP_MIN_LOG_LEVEL=3"),
        (),
    ),
    "Apptainer without --nv": (
        "$ singularity exec ~/img/af.simg python run.py\nW tsl/platform/default/dso_loader.cc:66] Could not"
        " load dynamic library 'libcuda.so.1'; dlerror: libcuda.so.1: cannot open shared object file",
        "container_no_gpu_access",
        ("--nv",),
        ("sudo",),
    ),
    "an image whose name says its versions": (
        "image\nWith the image acme/cudnn_tensorflow_tools:10.2_2.2.0-20200601 TensorFlow does not find the"
        " GPU.",
        "cuda_library_missing_or_wrong_version",
        ("The libraries have to be in the image", "CUDA 10.1"),
        ("sudo",),
    ),
    "half of the memory for a server": (
        "memory\nTensorFlow Serving takes the whole GPU memory. How can I limit it?",
        "gpu_memory_preallocation",
        ("tensorflow/serving:latest-gpu --per_process_gpu_memory_fraction=0.5",),
        (),
    ),
    "somebody asks for a nicer way": (
        "CUDNN_STATUS_INTERNAL_ERROR\nI added config.gpu_options.allow_growth = True, it works. Is there a"
        " cleaner way?",
        "gpu_memory_preallocation",
        ("TF_FORCE_GPU_ALLOW_GROWTH=true",),
        ("Memory growth is the right setting",),
    ),
    "memory of Windows": (
        "windows 10, tensorflow-gpu 1.13\nTraceback (most recent call last):\n    x = np.zeros([64, 9000])\n"
        "MemoryError",
        "host_memory_exhausted",
        ("page file", "per_process_gpu_memory_fraction=0.3"),
        ("docker run", "hardly matter"),
    ),
    "an executable by PyInstaller": (
        "PyInstaller\nTF 2.6 uses the GPU; but the exe that PyInstaller makes runs on the CPU. Ubuntu.",
        "cuda_library_missing_or_wrong_version",
        ("add_binaries", "LD_LIBRARY_PATH in Linux"),
        (),
    ),
}


@pytest.mark.parametrize(("text", "code", "there", "not_there"), CASES.values(), ids=list(CASES))
def test_what_the_post_states_reaches_the_remedies(
    text: str, code: str, there: tuple[str, ...], not_there: tuple[str, ...]
) -> None:
    cause = diagnose_log(text).causes[0]
    assert cause.code == code
    told = "\n".join(line for one in cause.remedies for line in (one.says, *one.commands))
    assert [words for words in there if words not in told] == []
    assert [words for words in not_there if words in told] == []


def test_a_refused_workspace_is_normal() -> None:
    found = diagnose_log(
        "Is this warning about too little GPU memory normal?\n2018-07-18 11:25:24.100871: W tensorflow/core/"
        "common_runtime/bfc_allocator.cc:217] Allocator (GPU_0_bfc) ran out of memory trying to allocate 2G."
        " The caller indicates that this is not a failure, but may mean that there could be performance gains"
        " if more memory is available.\n"
    )
    assert not found.causes
    assert [one.code for one in found.harmless] == ["allocator_retry_notice"]


def test_a_place_where_it_does_not_happen_is_not_the_readers() -> None:
    elsewhere = "CUDA_ERROR_ILLEGAL_ADDRESS\nOn Colab I can't reproduce it, nor on Kaggle.\n"
    there = "CUDA_ERROR_ILLEGAL_ADDRESS\nI train on Colab.\n"
    assert not diagnose_log(elsewhere).next_command.startswith("!")
    assert diagnose_log(there).next_command.startswith("!")
