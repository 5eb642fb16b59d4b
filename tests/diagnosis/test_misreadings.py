"""Facts that were once misread: each text has a test of its own."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from validator.compat import hardware
from validator.diagnosis import diagnose_log, text
from validator.diagnosis.catalogue import Message, catalogue
from validator.diagnosis.observations import Observations
from validator.diagnosis.observe import observe
from validator.probe.checks import CHECKS

from .facts_read import facts_read


def seen(pasted: str) -> Observations:
    return observe(text.read_text(pasted), catalogue())


def known(pasted: str) -> SimpleNamespace:
    return facts_read(seen(f"Hello\n{pasted}\n"))


@pytest.mark.parametrize(
    "line",
    [
        "tensorflow                2.18.0          cuda126py312h1234567_0    conda-forge",
        "tensorflow-base           2.18.0          cuda126py312hab12345_250    conda-forge",
        "tensorflow         conda-forge/linux-64::tensorflow-2.17.0-cuda126py312h4fd3d22_201",
        "  - tensorflow=2.17.0=cuda126py312h4fd3d22_201",
        "tensorflow 2.17.0 cuda126py312h… from conda-forge",
        "tensorflow 2.4.1 gpu_py39h8236f22_0",
    ],
)
def test_a_conda_build_with_cuda_is_not_a_cpu_build(line: str) -> None:
    assert "cpu_only_build" not in {cause.code for cause in diagnose_log(f"Hello\n{line}\n[]\n").causes}
    assert known(line).variant != "cpu"


def test_a_conda_build_without_cuda_still_is_a_cpu_build() -> None:
    line = "tensorflow                2.2.0           eigen_py37h1b16bb3_0    pkgs/main"
    assert diagnose_log(f"Hello\n{line}\n").causes[0].code == "cpu_only_build"


@pytest.mark.parametrize(
    "title", ["How to install tensorflow==1.14", "tensorflow==1.14", "# tensorflow==1.14"]
)
def test_a_title_is_not_the_installed_version(title: str) -> None:
    found = seen(f"{title}\nI have this in my environment\ntensorflow                   2.16.1\n")
    assert facts_read(found).tensorflow == "2.16.1"
    assert facts_read(found).packages == {"tensorflow": "2.16.1"}


@pytest.mark.parametrize("value", ["false", "null", "none", "no", "No", "False"])
@pytest.mark.parametrize("form", ['  "{}": {},', "{}: {}", "Running in {}: {}", "{} = {}", '{{"{}": "{}"}}'])
def test_a_field_that_denies_its_name_does_not_show_it(form: str, value: str) -> None:
    for name in ("wsl", "WSL2", "docker", "Windows", "Google Colab", "Jetson"):
        found = seen(f"Hello\nTensorFlow 2.21.0 on a GPU, and so on\n{form.format(name, value)}\n")
        assert not any(map(found.has, ("wsl", "container", "jetson", "hosted_notebook"))), name
        assert facts_read(found).system is None, name


def test_the_titles_of_checks_are_nobody_s_words() -> None:
    lines = [f'   "title": "{check.title}",' for check in CHECKS]
    assert not diagnose_log("\n".join(["Hello", *lines])).causes


@pytest.mark.parametrize("number", [*range(0, 160, 13), 159, 1301, 9020, 10020, 11080, 12050, 13000, 53510])
def test_a_number_that_no_driver_has_is_no_driver(number: int) -> None:
    for said in ("Driver Version: ", "NVIDIA driver version: ", "driver ", "CUDA driver version: "):
        for point in ("", ".35"):
            assert known(f"I use the GPU here\n{said}{number}{point}").driver is None, said


@pytest.mark.parametrize(
    ("number", "version"), [(9020, "9.2"), (11080, "11.8"), (12050, "12.5"), (13000, "13.0")]
)
def test_the_profiler_prints_versions_of_cuda(number: int, version: str) -> None:
    stamp = "I0000 00:00:1795751323.656328    2078 cuda_version_variants.cc:52]"
    assert known(f"{stamp} CUDA driver version: {number}").driver_cuda == version
    assert known(f"{stamp} CUDA runtime version: {number}").cuda == version


@pytest.mark.parametrize("line", ["win10", "OS: win10", "Win 11, native", "### OS platform\nwin10"])
def test_short_names_of_windows(line: str) -> None:
    assert known(line).system == "windows"


@pytest.mark.parametrize(
    ("line", "name", "capability"),
    [
        ("| 0  NVIDIA RTX 6000 Ada Gene...    Off | 00000000:01:00.0 Off |    Off |", "RTX 6000 Ada", "8.9"),
        ("|   0  NVIDIA RTX PRO 2000 Blac...    Off |   00000000:02:00.0 Off |   N/A |", "Blac", "12.0"),
        ("my card is an NVIDIA RTX PRO 2000 Blac…", "Blac", "12.0"),
        ("|   0  Tesla P100-SXM2...  Off  | 00000000:06:00.0 Off |                    0 |", "P100", "6.0"),
    ],
)
def test_a_name_that_nvidia_smi_cuts_short(line: str, name: str, capability: str) -> None:
    found = known(line).gpu
    assert found is not None and name in found
    assert str(hardware.gpu(found).compute_capability) == capability


def test_a_name_that_says_nothing_gives_way_to_one_that_does() -> None:
    table = "|   0  NVIDIA GeForce ...  Off  | 00000000:06:00.0 Off |                    0 |"
    assert known(table).gpu == "NVIDIA GeForce ..."
    assert known(f"{table}\nMy card is a GTX 1650.").gpu == "GTX 1650"


@pytest.mark.parametrize(
    "sentence",
    ["The A100 is in MIG mode.", "It is split with MIG into seven parts.", "We use a MIG slice of 10 GB."],
)
def test_mig_in_prose(sentence: str) -> None:
    assert seen(sentence).has("mig_enabled")


@pytest.mark.parametrize("sentence", ["MIG M. Disabled", "The MIG backup failed.", "MiG-29 fighter jets"])
def test_other_words_are_not_mig(sentence: str) -> None:
    assert not seen(sentence).has("mig_enabled")


def test_no_matching_distribution_in_a_sentence() -> None:
    found = seen("Hello, pip tells me that there is no matching distribution for tensorflow on Python 3.13")
    assert found.value("pip_no_matching_distribution", "package") == "tensorflow"
    assert facts_read(found).python == "3.13"


@pytest.mark.parametrize(
    "line",
    [
        "| NVIDIA-SMI 550.54.14   Driver Version: 550.54.14   CUDA Version: 12.4     |",
        "CUDA Version                              : 12.4",
        "CUDA Version: 12.4     |",
        "nvidia-smi reports CUDA Version: 12.4",
        "nvidia-smi says CUDA 12.4",
        "CUDA 12.4 (from nvidia-smi)",
    ],
)
def test_the_cuda_version_of_nvidia_smi_is_not_the_toolkit(line: str) -> None:
    assert (known(line).driver_cuda, known(line).cuda) == ("12.4", None)


def test_the_cuda_version_of_nvidia_smi_is_not_the_toolkit_after_a_long_line() -> None:
    found = known(
        "This is the machine that it has to run on in the end\n"
        "nvidia-smi shows driver version 470.57.02, CUDA Version: 11.4."
    )
    assert (found.driver, found.driver_cuda, found.cuda) == ("470.57.02", "11.4", None)


def test_a_log_line_says_what_is_even_if_its_words_also_compare() -> None:
    line = "W0000 00:00:17.1 24341 gpu_device.cc:2431] TensorFlow was not built with CUDA kernel binaries"
    assert known(f"{line} compatible with compute capability 12.0.").capability == "12.0"


@pytest.mark.parametrize(
    ("pasted", "fact", "value"),
    [
        ("the cuda version of my laptop is 12.1, but", "cuda", "12.1"),
        ("CUDA Version is 12.3.", "cuda", "12.3"),
        ("cuda_11.8.0_522.06_windows / cudnn-windows-x86_64-8.6.0.163_cuda11", "cuda", "11.8.0"),
        ("cuda_11.8.0_522.06_windows / cudnn-windows-x86_64-8.6.0.163_cuda11", "cudnn", "8.6.0"),
        ("cudnn version is 8.9.6.50_cuda12", "cudnn", "8.9.6"),
        ("FROM nvidia/cuda:12.3.2-runtime-ubuntu22.04", "cuda", "12.3.2"),
        (r"c:\users\user\programs\python\python313\lib\site-packages\x.py", "python", "3.13"),
        ("Linux jetson 5.10.104-tegra #1 SMP aarch64 GNU/Linux", "machine", "jetson"),
        ("- TensorFlow: 2.16.1", "tensorflow", "2.16.1"),
        ("| TensorFlow | 2.16.1 |", "tensorflow", "2.16.1"),
        ("| Python version | 3.11 |", "python", "3.11"),
        ("| **CUDA** | `12.3` |", "cuda", "12.3"),
        ("GPU | RTX 3090", "gpu", "RTX 3090"),
        (
            "    Product Name                          : NVIDIA GeForce RTX 3090",
            "gpu",
            "NVIDIA GeForce RTX 3090",
        ),
        ("GPU 0: NVIDIA GeForce RTX 3090 (UUID: GPU-0000)", "gpu", "NVIDIA GeForce RTX 3090"),
        ("GPU models and configuration: GPU 0: NVIDIA A100-SXM4-40GB", "gpu", "NVIDIA A100-SXM4-40GB"),
        ("NVIDIA GeForce RTX 3090, 550.54.14, 8.6", "gpu", "NVIDIA GeForce RTX 3090"),
        (
            "[{'device_name': 'NVIDIA A800-SXM4-80GB', 'total_memory': 81182.0}]",
            "gpu",
            "NVIDIA A800-SXM4-80GB",
        ),
        ("  - tensorflow=2.17.0=cuda126py312h4fd3d22_201", "wheel", "conda-forge"),
        ("tensorflow==2.17.0", "tensorflow", "2.17.0"),
        ("[pip3] tensorflow==2.17.0", "tensorflow", "2.17.0"),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  560.35.03  Release Build",
            "kernel_modules",
            "open",
        ),
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.54.03  Tue Jun  6 22:20:39 UTC 2023",
            "kernel_modules",
            "proprietary",
        ),
        ("RTX 4070, driver 550.", "driver", "550"),
        ("nvidia-smi\nDriver Version                            : 550.54.14", "driver", "550.54.14"),
    ],
)
def test_a_fact_is_read(pasted: str, fact: str, value: str) -> None:
    assert getattr(known(pasted), fact) == value


@pytest.mark.parametrize(
    ("commands", "extra"),
    [
        ("pip install tensorflow", False),
        ("pip install tensorflow[and-cuda]", True),
        ("pip install tensorflow nvidia-cudnn-cu12", True),
        ("conda install cudatoolkit=11.8 cudnn\npip install tensorflow", None),
        ("conda install tensorflow", None),
        ("pip install tensorflow\nERROR: Could not install packages due to an OSError: no space", None),
    ],
)
def test_where_the_cuda_libraries_come_from(commands: str, extra: bool | None) -> None:
    assert known(commands).extra is extra


@pytest.mark.parametrize(
    ("pasted", "fact", "value"),
    [
        (
            "export LD_LIBRARY_PATH=$HOME/venv/lib/python3.11/site-packages/nvidia/cudnn/lib",
            "library_path",
            True,
        ),
        ("export LD_LIBRARY_PATH=/usr/local/cuda/lib64", "library_path", None),
        ("ii  cuda-compat-12-4      550.54.15-1  amd64", "compat", "12.4"),
        ("- TensorFlow installed from (source or binary): source", "wheel", "own"),
        ("- TensorFlow installed from (source or binary): binary", "wheel", None),
        ("FROM nvcr.io/nvidia/tensorflow:25.02-tf2-py3", "wheel", "ngc"),
        ("pip install tensorflow-cpu", "variant", "cpu"),
    ],
)
def test_how_tensorflow_was_installed(pasted: str, fact: str, value: object) -> None:
    assert getattr(known(pasted), fact) == value


@pytest.mark.parametrize(
    ("line", "wheel"),
    [
        ("TensorFlow Version: 2.20.0-dev0+selfbuilt", "own"),
        ("tensorflow              2.11.0+computecanada", "own"),
        ("tensorflow              2.17.0+nv25.2", None),
        ("tensorflow==2.13.0 torch==2.0.1+cu118", None),
        ("TensorFlow 2.15.0+CUDA 12.2, Ubuntu 22.04", None),
        ("TensorFlow version: 2.15.0+cuda 12.2", None),
        ("tensorflow==2.10.0+python3.9", None),
        ("TensorFlow 2.9 + GPU", None),
    ],
)
def test_a_local_label_shows_a_build_that_is_not_from_pypi(line: str, wheel: str | None) -> None:
    assert known(line).wheel == wheel


def test_no_wheel_is_suggested_for_libdevice_on_windows() -> None:
    line = "W tensorflow/nvptx_compiler.cc:70] Can't find libdevice directory ${CUDA_DIR}/nvvm/libdevice."
    [cause] = diagnose_log(f"Windows 10, tensorflow 2.9.1\n{line}\n").causes
    assert cause.code == "libdevice_not_found"
    commands = "\n".join(command for one in cause.remedies for command in one.commands)
    assert "os.environ['CUDA_PATH']" in commands and "pip install" not in commands


@pytest.mark.parametrize(
    ("pasted", "system"),
    [
        ("### OS platform and distribution\nWindows", "windows"),
        ("OS: Windows", "windows"),
        ("I use Ubuntu 22.04. The same code works fine on\nWindows.", "linux"),
        ("Tested on:\n- Ubuntu 22.04: fails\n- Windows", None),
    ],
)
def test_a_line_that_is_only_windows_answers_a_question(pasted: str, system: str | None) -> None:
    assert known(pasted).system == system


def test_a_missing_library_of_cuda_12_shows_no_build_for_cuda_11() -> None:
    line = (
        "W dso_loader.cc:60] Could not load dynamic library 'libcusolver.so.11'; dlerror: libnvJitLink.so.12:"
        " cannot open shared object file: No such file or directory"
    )
    cause = diagnose_log(f"tensorflow 2.17.0\n{line}\n").causes[0]
    assert cause.code == "cuda_library_missing_or_wrong_version" and "CUDA 11" not in cause.title
    opened = "I dso_loader.cc:49] Successfully opened dynamic library libcudart.so.11.0"
    assert "built for CUDA 11" in diagnose_log(f"{opened}\n{line}\n").causes[0].title


NO_MODULE = (
    "I cuda_diagnostics.cc:156] kernel driver does not appear to be running on this host (3f2a9c81d0be)"
)


@pytest.mark.parametrize(
    ("pasted", "code"),
    [
        (NO_MODULE, "container_no_gpu_access"),
        (f"On Colab my model trains on the CPU.\n{NO_MODULE}", "hosted_runtime_without_gpu"),
        (
            "$ docker start tf\n$ sudo modprobe nvidia\n"
            "modprobe: FATAL: Module nvidia not found in directory /lib/modules/6.5.0-15-generic",
            "driver_not_loaded",
        ),
        (
            "Windows 11 WSL2\nroot@3f2a9c81d0be:/# nvidia-smi\n"
            "| NVIDIA-SMI 535.54.03    Driver Version: 535.54.03    CUDA Version: 12.2     |\n"
            f"failed call to cuInit: CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected\n{NO_MODULE}",
            "visible_devices_misset",
        ),
    ],
)
def test_a_driver_that_tensorflow_does_not_see_in_a_container(pasted: str, code: str) -> None:
    assert first_cause(pasted) == code


def first_cause(pasted: str) -> str | None:
    return next((cause.code for cause in diagnose_log(f"Hello\n{pasted}\n").causes), None)


def test_ptxas_in_bin_of_bin_is_a_wrong_directory_and_not_a_missing_ptxas() -> None:
    searched = "I tensorflow/stream_executor/gpu/asm_compiler.cc:169] Looking for ptxas at"
    wrong = diagnose_log(
        f"{searched} /usr/local/cuda-11.2/bin/bin/ptxas\n{searched} /usr/bin/ptxas\n"
    ).causes[0]
    assert wrong.code == "ptxas_missing_or_unsuitable"
    assert "/usr/local/cuda-11.2" in wrong.title
    assert "--xla_gpu_cuda_data_dir=" in wrong.remedies[0].commands[0]
    assert first_cause(f"{searched} /usr/local/cuda-11.2/bin/ptxas") is None


@pytest.mark.parametrize(
    ("amount", "code"),
    [
        ("4.0K (4096 bytes)", "gpu_memory_held_by_other_process"),
        ("256.0KiB (262144 bytes)", "gpu_memory_held_by_other_process"),
        ("5.52G (5927469056 bytes)", "gpu_out_of_memory"),
    ],
)
def test_a_few_bytes_are_refused_only_where_others_hold_the_memory(amount: str, code: str) -> None:
    line = (
        f"cuda_driver.cc:1] failed to allocate {amount} from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory"
    )
    assert first_cause(line) == code
    # A program that has trained before has filled the memory itself.
    assert first_cause(f"Epoch 1/10\n{line}") == "gpu_out_of_memory"


MAC = "MacBook M1, macOS 14, TensorFlow 2.15, tensorflow-metal 1.1. TensorFlow does not see the GPU."
OOM = "ResourceExhaustedError: OOM when allocating tensor with shape[512,64,512,512]"
NVCC = "nvcc fatal   : Unsupported gpu architecture"
NO_GPU = "TensorFlow doesn't see my GPU."


@pytest.mark.parametrize(
    ("pasted", "code"),
    [
        (MAC, "platform_without_cuda_build"),
        (f"{MAC} Keras 3.0.5", "keras_version_conflict"),
        (f"{OOM}\nWhen I run another script with a small model, it works.", "gpu_out_of_memory"),
        (f"{OOM}\nThe second notebook fails, the first one still runs.", "gpu_memory_held_by_other_process"),
        ("The training runs for a while, then stops with a KeyError in my callback.", None),
        ("The GPU works for a moment, then idles, then works again.", "input_pipeline_bound"),
        ("Each of my processes needs less than one GPU. How can I share one?", None),
        ("I set allow_growth = True, and training uses 7 GB of GPU memory. How do I save the weights?", None),
        (
            "I set allow_growth = True, and training still takes 7 GB of GPU memory, although it is small.",
            "gpu_memory_preallocation",
        ),
        ("On Google Colab, with TensorFlow 2.12 the code works. With 2.17 a plot looks different.", None),
    ],
)
def test_what_is_no_fault_or_another_one(pasted: str, code: str | None) -> None:
    assert first_cause(pasted) == code


@pytest.mark.parametrize(
    ("pasted", "system"),
    [
        (f"Ubuntu 22.04, TensorFlow 2.15. I have windows of 30 steps as input. {NO_GPU}", "linux"),
        (f"I have Windows and Linux in dual boot, and use Ubuntu 22.04. {NO_GPU}", "linux"),
        (f"Windows, Linux and macOS all show this. On my Ubuntu 22.04, {NO_GPU}", "linux"),
        (f"I have Windows. {NO_GPU}", "windows"),
        (f"Windows, Python 3.7, RTX 2060. {NO_GPU}", "windows"),
    ],
)
def test_windows_in_a_sentence_is_not_always_the_system(pasted: str, system: str) -> None:
    assert known(pasted).system == system


@pytest.mark.parametrize(
    ("architecture", "words"),
    [("compute_30", "no longer knows"), ("compute_70", "no longer knows"), ("compute_86", "is older than")],
)
def test_nvcc_is_too_old_or_too_new_for_an_architecture(architecture: str, words: str) -> None:
    cause = diagnose_log(f"RTX 3090\n{NVCC} '{architecture}'\n").causes[0]
    assert cause.code == "compute_capability_unsupported" and words in cause.title
    assert ("Take sm_" in cause.remedies[0].says) is (words == "no longer knows")


def test_both_packages_of_a_list_name_keras_3_with_the_plugin_of_apple() -> None:
    listed = "MacBook Pro M1, macOS 14\nkeras 3.0.5\ntensorflow 2.15.0\ntensorflow-metal 1.1.0\n"
    cause = diagnose_log(f"{listed}TensorFlow does not see the GPU\n").causes[0]
    assert cause.code == "keras_version_conflict" and "Apple's plugin" in cause.title


@pytest.mark.parametrize(
    ("pasted", "is_named"),
    [
        (f"{NO_GPU} Others commented on the GPU in #123.", False),
        (f"TensorFlow 2.17. {NO_GPU} I commented out the tensorflow-gpu line.", False),
        (f"{NO_GPU} In setup.sh, the tensorflow-gpu line is commented out.", True),
    ],
)
def test_a_package_for_the_gpu_that_is_commented_out(pasted: str, is_named: bool) -> None:
    titles = " ".join(cause.title for cause in diagnose_log(f"Hello\n{pasted}\n").causes)
    assert ("commented out" in titles) is is_named


@pytest.mark.parametrize(
    ("question", "is_asked"),
    [
        ("Is there a way to augment images on the GPU?", False),
        ("Could you add support for 16-bit images on GPU?", False),
        ("Is there a GPU image augmentation?", False),
        ("Is there an image with CUDA?", True),
    ],
)
def test_an_image_with_a_gpu_is_no_picture_on_it(question: str, is_asked: bool) -> None:
    assert (seen(f"{question}\n").value("plain_question", "of") == "gpu_image") is is_asked


def test_a_driver_that_limits_cuda_is_no_fault_by_itself() -> None:
    limit = "Driver 390.48 supports CUDA 9.1 at most."
    assert "driver_too_old" not in {cause.code for cause in diagnose_log(f"{limit}\nHello\n").causes}
    assert first_cause(f"{limit} {NO_GPU}") == "driver_too_old"


def test_ptxas_is_not_at_fault_where_no_ptxas_helps() -> None:
    pasted = (
        "TensorFlow version: 2.19.0\nGPU: NVIDIA GeForce RTX 5090\n"
        "TensorFlow was not built with CUDA kernel binaries compatible with compute capability 12.0.\n"
        "W ptx_compiler_helpers.cc:44] Couldn't get ptxas version string: INTERNAL: Couldn't invoke ptxas\n"
        "'cuLaunchKernel(...)' failed with 'CUDA_ERROR_INVALID_HANDLE'\n"
    )
    codes = [cause.code for cause in diagnose_log(pasted).causes]
    assert codes[0] == "compute_capability_unsupported"
    assert "ptxas_missing_or_unsuitable" not in codes


@pytest.mark.parametrize(
    "line",
    [
        "E external/local_xla/xla/stream_executor/cuda/cuda_driver.cc:1] INTERNAL: something failed",
        "CUDA kernels will be jit-compiled from PTX, which could take 30 minutes or longer.",
        "XLA service 0x1d8 initialized for platform CUDA (this does not guarantee that XLA will be used).",
        "XLA is disabling parallel compilation, which may slow down compilation.",
    ],
)
def test_what_programs_log_is_not_what_people_say_about_xla(line: str) -> None:
    assert not {one.kind for one in seen(f"Hello\n{line}\n")} & {
        "xla_fails_said",
        "xla_in_use",
        "xla_compile_slow_said",
        "xla_slower_said",
    }


def test_a_hang_without_an_nccl_error_is_not_an_nccl_error() -> None:
    assert first_cause("Training on 8 GPUs gets stuck, and there is no NCCL error") == "multi_gpu_hang"
    assert first_cause("Training on 8 GPUs ends with an NCCL error") == "nccl_failure"


def test_somebody_who_is_stuck_does_not_say_that_the_program_is() -> None:
    code = "strategy = tf.distribute.MirroredStrategy()"
    assert first_cause(f"{code}\nI am stuck with this exercise, how do I go on?") is None
    assert first_cause(f"{code}\nThe first epoch gets stuck.") == "multi_gpu_hang"


def test_the_advice_in_an_error_does_not_ask_for_an_allocator() -> None:
    advice = (
        "If the cause is memory fragmentation maybe the environment variable"
        " 'TF_GPU_ALLOCATOR=cuda_malloc_async' will improve the situation."
    )
    assert first_cause(f"TensorFlow version: 2.5.0\n{advice}") != "allocator_wrong"
    used = "Internal error when I use TF_GPU_ALLOCATOR=cuda_malloc_async"
    assert first_cause(f"TensorFlow version: 2.5.0\n{used}") == "allocator_wrong"
    assert first_cause(f"TensorFlow version: 2.15.0\n{used}") is None


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("tensorflow-gpu==1.14.0下默认使用cpu进行训练", "tensorflow", "1.14.0"),
        ("环境\uff1atensorflow-gpu==2.2.0\uff0c很慢", "tensorflow", "2.2.0"),
        ("I installed tensorflow-gpu==2.5.0 instead of tensorflow.", "tensorflow", "2.5.0"),
        ("Which cuDNN fits TF 2.4?", "tensorflow", "2.4"),
        ("TF2.0/2.2 on a laptop", "tensorflow", "2.0"),
        ("It says that foo needs tensorflow==2.5.0 to run.", "tensorflow", None),
        ("环境cuda10.0\uff0ccudnn7.4.1", "cuda", "10.0"),
        ("CUDA/cuDNN version: 11", "cuda", None),
        ("我的显卡是1080Ti\uff0c训练很慢", "gpu", "1080Ti"),
        ("GPU model and memory: NVIDIA Geforce 970", "gpu", "Geforce 970"),
        ("It took 1080 seconds.", "gpu", None),
    ],
)
def test_versions_and_gpus_are_read_where_people_write_them(line: str, field: str, value: str | None) -> None:
    assert getattr(known(line), field) == value


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("- **CUDA/cuDNN version**: 11", "11"),
        ("CUDA/cuDNN version: 11 / 8.0", "11"),
        ("CUDA version: 12 (nvidia-smi)", None),
        ("CUDA/cuDNN version: 10 / 7.6", None),
    ],
)
def test_a_form_may_name_only_the_major_version(line: str, version: str | None) -> None:
    """A driver's CUDA is no toolkit. Before 11, the minor version decides which libraries fit."""
    assert seen(f"Hello\n{line}\n").value("cuda", "version") == version


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("a notebook in Collaboratory", "hosted_notebook"),
        ("I run it in singularity", "apptainer"),
        ("I am running it in docker", "container"),
        ("on Ubuntu22.04", "os"),
        ("on Windows10", "os"),
        ("Python: 3.10", "python"),
        ("with python3.8", "python"),
        ("nvidia-driver-535", "driver"),
        ("V100", "gpu"),
        ("a laptop with an MX150", "gpu"),
    ],
)
def test_the_environment_is_read_from_prose(line: str, kind: str) -> None:
    assert seen(f"Hello\n{line}\nThanks\n").has(kind)


def test_the_instructions_of_a_dockerfile_are_not_joined() -> None:
    found = seen("FROM tensorflow/tensorflow:2.18.0-gpu\nRUN pip install keras==2.3.1\nCMD python train.py\n")
    assert {one.values["name"] for one in found.of("image")} == {"tensorflow/tensorflow:2.18.0-gpu"}


def test_a_program_in_node_is_not_asked_for_its_python() -> None:
    found = diagnose_log(
        "yarn add @tensorflow/tfjs-node-gpu\nlibcudnn.so.8: cannot open shared object file\n"
    )
    assert "--python" not in found.next_command
    assert found.next_command.split("   #")[0].endswith("doctor OUTPUT.txt")


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("Hello\nIs it because my driver is too old?\n", None),
        ("Hello\nThe driver is too old.\n", "driver_too_old"),
        # A title is what the text is about, also as a question.
        ("Is my driver too old?\nHello\n", "driver_too_old"),
    ],
)
def test_a_supposition_is_no_evidence(text: str, cause: str | None) -> None:
    codes = [found.code for found in diagnose_log(text).causes]
    assert codes == ([] if cause is None else [cause])


def test_without_a_gpu_nothing_has_to_be_measured() -> None:
    found = diagnose_log("failed call to cuInit: UNKNOWN ERROR (303)\nIs this bad?\n- No GPU\n")
    assert found.answer == "no_fault"
    assert found.next_command == ""
    assert "computes on the CPU" in found.next_step


@pytest.mark.parametrize(
    ("path", "is_mac"),
    [
        ("/Users/anna/env/bin/python", True),
        ("PATH=/usr/bin:/Users/anna/bin", True),
        ("C:/Users/anna/env/python.exe", False),
        ("file://C:/Users/anna/env", False),
    ],
)
def test_only_a_path_of_a_mac_shows_macos(path: str, is_mac: bool) -> None:
    assert (seen(f"Hello\n{path}\n").value("os", "name") == "macos") is is_mac


def test_a_wheel_for_macos_on_a_mac_is_not_explained_by_a_container() -> None:
    wheel = (
        "ERROR: tensorflow-2.6.0-cp38-cp38-macosx_11_0_x86_64.whl is not a supported wheel on this platform."
    )
    assert "container" in diagnose_log(f"Hello\n{wheel}\n").causes[0].title
    assert "container" not in diagnose_log(f"Hello\n/Users/anna/bin/pip\n{wheel}\n").causes[0].title


@pytest.mark.parametrize(
    ("words", "is_32bit"),
    [
        ("I had installed the 32-bit version of Python.", True),
        ("My Python is 32-bit.", True),
        ("I do not have a 32 bit Python, it is 64.", False),
        ("Is there a wheel for a 32-bit Python", False),
    ],
)
def test_a_32_bit_python_in_prose(words: str, is_32bit: bool) -> None:
    text = f"Hello\n{words}\nERROR: No matching distribution found for tensorflow\n"
    remedies = " ".join(remedy.says for remedy in diagnose_log(text).causes[0].remedies)
    assert not seen(text).has("python_32bit")
    assert ("Install a 64-bit Python" in remedies) is is_32bit


def test_each_line_is_matched_once_however_often_it_is_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    matched: list[str] = []
    matches = catalogue().matches

    def counted(line: str) -> list[Message]:
        matched.append(line)
        return matches(line)

    monkeypatch.setattr(catalogue(), "matches", counted)
    lines = [f"In our run number {number} the colours of the plot were" for number in range(30)]
    seen("\n".join(["Hello", *(f"{line}\nnicer than TensorFlow 2.15 on the GPU." for line in lines)]))
    assert len(matched) == len(set(matched))


@pytest.mark.parametrize(
    ("words", "kind", "read"),
    [
        (
            "tf.config.list_physical_devices('GPU') shows it, there is nothing wrong with it",
            "gpu_list_empty",
            False,
        ),
        ("tf.config.list_physical_devices('GPU') returns nothing", "gpu_list_empty", True),
        ("The result of my tokenizer is an empty list.", "empty_list", False),
        ("In the notebook I get an empty list.", "empty_list", True),
        ("The message that libcudnn.so.8 is missing is gone now.", "cuda_library_not_loaded", False),
        ("libcudnn.so.8 is missing and I don't know why.", "cuda_library_not_loaded", True),
        ("The second GPU is unused by the desktop.", "gpu_left_idle", False),
        ("The GPU stays unused.", "gpu_left_idle", True),
        ("There is no GPU in my notebook, it is a Thinkpad.", "gpu_not_seen", False),
        ("There is no GPU in the TensorFlow list.", "gpu_not_seen", True),
        ("The GPU memory is empty before I create the model.", "gpu_memory_tiny_said", False),
        ("The GPU memory usage stays at 0.", "gpu_memory_tiny_said", True),
        ("How do I keep the embeddings on the CPU and the rest on the GPU?", "plain_question", False),
        ("How do I keep the embeddings on the CPU?", "plain_question", True),
        ("The driver works, but I cannot change the batch size in this program.", "driver_stays_said", False),
        ("The admin says it is not the driver.", "driver_stays_said", False),
        ("The admins don't want to update the driver.", "driver_stays_said", True),
        ("The driver is 450, and I can't upgrade it.", "driver_stays_said", True),
        ("I use the Faster R-CNN by R. Girshick.", "r_used", False),
        ("The images are normalized in R, G and B.", "r_used", False),
        ("I call Keras from R, on Linux.", "r_used", True),
    ],
)
def test_a_phrase_says_only_what_it_says(words: str, kind: str, *, read: bool) -> None:
    assert seen(f"Hello\n{words}\n").has(kind) is read


@pytest.mark.parametrize(
    ("text", "says", "never"),
    [
        # The other release may fail for any reason.
        (
            "On Colab, with TensorFlow 2.12 the code works. With 2.17:\nValueError: no such layer\n",
            "",
            "goes with the CUDA",
        ),
        (
            "The pod stays Pending: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu.\nWe use GKE.\n",
            "--accelerator",
            "nvidia-ctk runtime",
        ),
        (
            "TensorFlow 1.12, RTX 3090, Linux. The process crashes with a segmentation fault.\n",
            "CUDA",
            "tensorflow-gpu 1.13",
        ),
        (
            "JupyterHub: list_physical_devices('GPU') is an empty list. I installed tensorflow-cpu.\n",
            "",
            "SystemdSpawner",
        ),
        ("pip install keras==3.3.3\nTensorFlow doesn't find my GPU.\n", "", "up to 2.3"),
        ("It works in Docker, but on the host, TensorFlow 2.15 doesn't see my GPU.\n", "", "--gpus"),
        ("Which TensorFlow version supports the RTX 5080?\n", "Blackwell", "1.13"),
        # pip takes the newest of both indexes, which is PyPI's for the CPU, unless it is told the version.
        (
            "AGX Orin, JetPack 5.1.2. I ran pip install tensorflow, and no GPU is listed.\n",
            'jp/v512 "tensorflow==2.12.0+nv23.06"',
            "v61",
        ),
        (
            "Orin NX with JetPack 6.1. I ran pip install tensorflow, and no GPU is listed.\n",
            'jp/v61 "tensorflow==2.16.1+nv24.08"',
            "v512",
        ),
        # poetry refuses a version that the extra does not ask for.
        (
            'poetry add "tensorflow[and-cuda]==2.15.0"\nUnable to find installation candidates for'
            " tensorrt-libs (8.6.1)\n",
            "tensorrt==8.6.1.post1",
            "tensorrt==8.6.1 ",
        ),
        (
            "In my pod, TensorFlow doesn't see the GPU. kubectl describe node n1:\nCapacity:\n"
            "  nvidia.com/gpu:     2\nAllocated resources:\n  nvidia.com/gpu     0           0\n",
            "No pod of the node asks",
            "The node offers Kubernetes no GPU",
        ),
        (
            "Kubernetes runs our TF 1.15 jobs, a Docker image each; the nodes run containerd.\n"
            "kubectl describe node n1:\nCapacity:\n  nvidia.com/gpu:     0\n",
            "The node offers Kubernetes no GPU",
            "--runtime=docker",
        ),
        (
            "AlphaFold in docker only uses the CPU. docker run --gpus all nvidia/cuda nvidia-smi works."
            " Docker version 24.0.7\n",
            "",
            "--allow-downgrades",
        ),
        (
            "docker-py starts our TensorFlow on the GPU. But docker run --gpus all doesn't see the GPU.\n",
            "",
            "--allow-downgrades",
        ),
        (
            "After boot, Linux loads the nvidia driver and nvidia-smi works, and no driver update helped."
            " TensorFlow 2.15 doesn't see the GPU.\n",
            "",
            "Machines come up",
        ),
        (
            "New GKE nodes are without GPU driver today, nvidia-driver-installer fails in a loop.\n",
            "Machines come up without a driver",
            "modprobe -r",
        ),
        (
            "We run the GPU operator on k8s. After systemctl daemon-reload the pod says:\n"
            "Failed to initialize NVML: Unknown Error\n",
            "custom resource definitions",
            "--reuse-values",
        ),
        (
            "docker run --gpus all tensorflow/tensorflow:2.9.1-gpu nvidia-smi\n"
            "Failed to initialize NVML: Driver/library version mismatch\nOn the host it prints that too.\n",
            "Reboot the machine",
            "apt-get purge",
        ),
        (
            "A100 with MIG instances, without NCCL or Horovod.\n"
            "CUDA_VISIBLE_DEVICES=MIG-6a5b0c1e-1111-2222-3333-444455556666,"
            "MIG-7b5b0c1e-1111-2222-3333-444455556666\n",
            "by its UUID",
            "NCCL and Horovod",
        ),
    ],
)
def test_what_is_said_fits_what_was_read(text: str, says: str, never: str) -> None:
    found = diagnose_log(text)
    causes = [f"{one.title} {[(step.says, step.commands) for step in one.remedies]}" for one in found.causes]
    told = " ".join([*causes, found.works])
    assert says in told
    assert never not in told
