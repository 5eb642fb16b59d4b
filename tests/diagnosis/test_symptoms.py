"""The words of people about a fault lead to its cause, and other words don't."""

from __future__ import annotations

import pytest

from validator.diagnosis import diagnose_log, text
from validator.diagnosis.catalogue import catalogue
from validator.diagnosis.observe import observe

NO_CUDART = (
    "2024-05-01 10:00:00.123456: I external/local_tsl/tsl/cuda/cudart_stub.cc:31] Could not find cuda"
    " drivers on your machine, GPU will not be used."
)


def first(*lines: str) -> str | None:
    """Return the code of the first cause that a text shows."""
    causes = diagnose_log("\n".join(("Hello", *lines, ""))).causes
    return causes[0].code if causes else None


def kinds(line: str) -> set[str]:
    return {one.kind for one in observe(text.read_text(f"Hello\n{line}\n"), catalogue())}


@pytest.mark.parametrize(
    "line",
    [
        "TensorFlow doesn't see my GPU",
        "TF is not able to detect any of the GPUs",
        "Tensorflow 2.15 cannot recognize GPU",
        "My GPU is not recognized by Tensorflow.",
        "4080 RTX not detected on Windows",
        "tensorflow isn't recognizing my graphics card",
        "it only detects the CPU",
        "The check fails, because it finds no GPU.",
    ],
)
def test_a_person_says_that_no_gpu_is_seen(line: str) -> None:
    assert "gpu_not_seen" in kinds(line)


@pytest.mark.parametrize(
    "line",
    [
        "tensorflow 2.16 can't use the GPU",
        "TensorFlow is not using my GPU",
        "How do I force TF to use the GPU?",
        "the GPU is connected but it isn't used",
        "Training runs on the CPU instead of the GPU",
        "it falls back to the CPU",
    ],
)
def test_a_person_says_that_the_gpu_is_not_used(line: str) -> None:
    assert "gpu_left_idle" in kinds(line)


@pytest.mark.parametrize(
    "line",
    [
        "My GPU memory is not freed.",
        "I don't want to use the GPU.",
        "the GPU is used only 10%",
        "The code runs fine on the GPU but is slower than on the CPU.",
        "Not using XLA:GPU for cluster",
        "TensorFlow sees my GPU.",
    ],
)
def test_other_words_about_gpus_are_no_symptom(line: str) -> None:
    assert not kinds(line) & {"gpu_not_seen", "gpu_left_idle"}


@pytest.mark.parametrize(
    "facts",
    [
        ("I have an RTX 3090 and driver 535.104.05.",),
        ("nvidia-smi says CUDA 12.4",),
        ("PyTorch works fine and sees the GPU.",),
        ("$ pip install tensorflow",),
        ("torch.cuda.is_available() True",),
    ],
)
def test_no_cudart_is_not_a_missing_driver(facts: tuple[str, ...]) -> None:
    assert first(*facts, NO_CUDART) == "cuda_library_missing_or_wrong_version"


def test_a_missing_extra_is_named_with_its_remedy() -> None:
    cause = diagnose_log(
        "Hello\n$ pip install tensorflow==2.18.0\nTensorFlow does not find my RTX 3090. PyTorch sees it.\n"
    ).causes[0]
    assert cause.code == "cuda_library_missing_or_wrong_version"
    assert any("tensorflow[and-cuda]==2.18.0" in one for each in cause.remedies for one in each.commands)


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        (("TensorFlow 2.16 on win10 can't use the GPU.",), "platform_without_cuda_build"),
        (("Windows 11, CUDA 12.1: TensorFlow does not detect my GPU",), "platform_without_cuda_build"),
        (("macOS 14 on an Apple M2, TensorFlow does not see the GPU",), "platform_without_cuda_build"),
        (
            ("Jetson Orin NX: pip installed TensorFlow 2.18, it can't find the GPU",),
            "platform_without_cuda_build",
        ),
        (("GH200 node, aarch64: TensorFlow 2.20 does not see the GPU",), "platform_without_cuda_build"),
        (("Can't install TensorFlow on a Jetson Nano with pip",), "no_installable_package"),
        (("I'm unable to install tensorflow with Python 3.14",), "no_installable_package"),
        (("Please add support for Python 3.14", "pip install tensorflow"), "no_installable_package"),
        (("pip install tensorflow-cpu", "Now TensorFlow does not see the GPU"), "cpu_only_build"),
        (("conda install tensorflow", "TensorFlow only sees the CPU, Ubuntu 22.04"), "cpu_only_build"),
        (("TensorFlow 2.16.1 on Ubuntu does not recognize my GPU.",), "library_path_not_set"),
        (
            ("On Colab with TensorFlow 2.15, it cannot recognize the GPU.",),
            "cuda_library_missing_or_wrong_version",
        ),
    ],
)
def test_words_and_facts_together_show_a_cause(lines: tuple[str, ...], code: str) -> None:
    assert first(*lines) == code


def test_a_python_that_is_only_named_is_not_a_fault() -> None:
    assert first("It is the same with Python 3.14.") is None


@pytest.mark.parametrize(
    "lines",
    [
        ("In the terminal TensorFlow sees the GPU.", "In the notebook it finds no GPU."),
        ("TF sees the GPU on the terminal, but not in jupyter lab.",),
        ("It works in the terminal.", "From Jupyter it ends with an error."),
        ("I use WSL2 and started jupyter notebook.exe.",),
    ],
)
def test_a_notebook_of_another_environment(lines: tuple[str, ...]) -> None:
    assert first(*lines) == "notebook_kernel_of_another_environment"


def test_a_notebook_that_works_is_no_fault() -> None:
    assert first("It works in the terminal and in the notebook.") is None


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (
            "TypeError: Could not deserialize class 'Functional' because its parent module"
            " keras.src.models.functional cannot be imported.",
            "model_newer_than_tensorflow",
        ),
        (
            "ValueError: Unrecognized keyword arguments: ['batch_shape', 'optional']",
            "model_newer_than_tensorflow",
        ),
        (
            "ValueError: Unrecognized keyword arguments passed to Dense: {'quantization_config': None}",
            "model_newer_than_tensorflow",
        ),
        (
            "XlaCallModuleOp with version 10 is not supported by this build. Must be <= 9",
            "model_newer_than_tensorflow",
        ),
        ("A model that was saved with TF 2.18 can't be loaded with TF 2.15.", "model_newer_than_tensorflow"),
        ("A model that was saved with TF 2.13 can't be loaded with TF 2.16.", "keras_version_conflict"),
        (
            "TypeError: Could not deserialize class 'Functional' because its parent module"
            " keras.src.engine.functional cannot be imported.",
            "keras_version_conflict",
        ),
    ],
)
def test_a_model_of_another_release(line: str, code: str) -> None:
    assert first(line) == code


def test_a_model_that_moved_between_releases_of_one_keras_is_no_fault() -> None:
    assert first("A model that was saved with TF 2.17 is loaded with TF 2.18.") is None


@pytest.mark.parametrize(
    "line",
    [
        "TensorFlow and PyTorch need different versions of cuDNN.",
        "There is a conflict between the CUDA of TensorFlow and that of JAX.",
        "torch 2.5.1 requires nvidia-cudnn-cu12==9.1.0.70, but you have nvidia-cudnn-cu12 9.3.0.75 which is"
        " incompatible.",
    ],
)
def test_frameworks_that_exclude_each_other(line: str) -> None:
    assert first(line) == "mixed_frameworks"


def test_a_metal_plugin_for_another_release() -> None:
    assert (
        first(
            "ImportError: dlopen(/venv/tensorflow-plugins/libmetal_plugin.dylib, 0x0006): Symbol"
            " not found: __ZN3tsl8internal10LogMessageC1EPKcii",
            "Failed to load the native TensorFlow runtime.",
        )
        == "python_package_conflict"
    )


def test_a_package_that_pip_downloads_is_installed() -> None:
    assert (
        first(
            "Collecting protobuf>=3.6.1",
            "  Downloading protobuf-4.21.9-cp37-abi3-manylinux2014_x86_64.whl (408 kB)",
            "Requirement already satisfied: h5py in ./site-packages (from tensorflow==1.15.3) (3.7.0)",
        )
        == "protobuf_conflict"
    )


def test_a_library_that_windows_refuses_comes_before_the_missing_cuda() -> None:
    assert (
        first(
            "TensorFlow version 2.19.0, Windows 11",
            "ImportError: DLL load failed while importing _pywrap_tensorflow_internal: A dynamic link library"
            " (DLL) initialization routine failed.",
        )
        == "windows_library_missing"
    )


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        (("tensorflow 2.15 is broken with numpy 2",), "numpy_abi_break"),
        (("TensorFlow 2.8 needs protobuf<=3.20 but pip installed protobuf 4.21.",), "protobuf_conflict"),
        (("It says that it could not find libcudnn.so.8.",), "cuda_library_missing_or_wrong_version"),
        (("Mac M3, tensorflow 2.18 is not using the GPU",), "platform_without_cuda_build"),
        (
            ("I can't get TensorFlow to use my RTX 4070 GPU.", "PyTorch immediately accesses the GPU."),
            "cuda_library_missing_or_wrong_version",
        ),
        (
            (
                "python in the terminal works.",
                "In VS Code: ModuleNotFoundError: No module named 'tensorflow'",
            ),
            "notebook_kernel_of_another_environment",
        ),
        (
            ("tf-keras 2.15.1 requires tensorflow<2.16, but you have tensorflow 2.16.2 which is bad.",),
            "keras_version_conflict",
        ),
        (
            (
                "TensorFlow 2.18 doesn't use my Tesla T4 on Ubuntu 22.04.",
                "nvidia-smi shows driver version 450.51.05.",
                "pip install tensorflow[and-cuda]==2.18.0",
            ),
            "driver_too_old",
        ),
    ],
)
def test_more_words_and_facts_together_show_a_cause(lines: tuple[str, ...], code: str) -> None:
    assert first(*lines) == code


def test_a_mac_is_no_fault_where_nobody_asks_for_a_gpu() -> None:
    assert first("macOS 14.2, TensorFlow version 2.16.1, Python 3.12", "How do I save a model?") is None


def test_no_cudart_is_no_fault_where_the_cpu_is_meant() -> None:
    assert first("I only want to run inference on the CPU, is this a problem?", NO_CUDART) is None


LIBRARIES_NOT_LOADED = (
    "E0000 00:00:1730000000.000001    1234 cuda_executor.cc:1737] INTERNAL: CUDA Runtime error: Failed call"
    " to cudaGetRuntimeVersion: Error loading CUDA libraries. GPU will not be used.: Error loading CUDA"
    " libraries. GPU will not be used."
)
TF_TRT = (
    "2024-05-01 10:00:01.123456: W tensorflow/compiler/tf2tensorrt/utils/py_utils.cc:38] TF-TRT Warning:"
    " Could not find TensorRT"
)
EPOCH = "Epoch 1/5\n1875/1875 [==============================] - 3s 2ms/step - loss: 0.3 - accuracy: 0.9"


@pytest.mark.parametrize(
    "lines",
    [
        (NO_CUDART,),
        (NO_CUDART, NO_CUDART, EPOCH),
        ("tensorflow 2.17.0", NO_CUDART),
        (NO_CUDART, TF_TRT),
        (LIBRARIES_NOT_LOADED,),
    ],
)
def test_no_cudart_alone_makes_missing_libraries_a_possible_cause(lines: tuple[str, ...]) -> None:
    (cause,) = diagnose_log("\n".join((*lines, ""))).causes
    assert (cause.code, cause.strength) == ("cuda_library_missing_or_wrong_version", "possible")
    assert "does not show whether this machine has an NVIDIA GPU and a driver" in cause.title
    # The message mentions drivers, so the reader looks for one first.
    assert cause.remedies[0].commands == ("nvidia-smi",)
    assert any("tensorflow[and-cuda]" in one for each in cause.remedies for one in each.commands)


@pytest.mark.parametrize(
    ("fact", "code"),
    [
        ("This runs on a CPU-only server.", None),
        ("We use the CPU docker image.", None),
        ("Traceback (most recent call last):\nsomewhere.NewError: that nobody has seen", None),
        ("$ pip install tensorflow-cpu", "cpu_only_build"),
        ("tensorflow-cpu==2.18.0", "cpu_only_build"),
    ],
)
def test_no_cudart_is_not_the_cause_where_the_text_shows_another_reason(fact: str, code: str | None) -> None:
    assert first(fact, NO_CUDART) == code
