"""The words of people about slow, hanging or memory-hungry training lead to its cause."""

from __future__ import annotations

import pytest

from validator.diagnosis import diagnose_log


def first(*lines: str) -> str | None:
    """Return the code of the first cause that a text shows."""
    causes = diagnose_log("\n".join(("Hello", *lines, ""))).causes
    return causes[0].code if causes else None


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("XLA recompilation every time when the shape changed on GPU", "xla_recompiles_often"),
        ("it compiles again whenever the sequence length is different", "xla_recompiles_often"),
        ("Tensorflow executes slowly on GPU - retracing issue?", "xla_recompiles_often"),
        ("XLA compilation takes more than 20 minutes", "xla_compilation_too_slow"),
        ("Very slow first query / XLA compilation with our model", "xla_compilation_too_slow"),
        ("Using XLA the model is slower than without XLA", "xla_slower_than_graph"),
        ("lstsq is 50% slower when activating JIT compile", "xla_slower_than_graph"),
        ("IntegerLookup fails for XLA", "xla_cannot_compile_graph"),
        ("Conv2D with XLA jit_compile=True fails to run", "xla_cannot_compile_graph"),
        (
            "a tf.Variable is created inside call() with jit_compile=True",
            "variable_created_in_compiled_function",
        ),
        (
            "We failed to lift variable creations out of this tf.function",
            "variable_created_in_compiled_function",
        ),
        ("TensorFlow throws missing libdevice errors", "libdevice_not_found"),
        ("list_physical_devices('XLA_GPU') returns an empty list in 2.5", "xla_gpu_device_retired"),
        ("If `run_eagerly` is True, then `jit_compile` cannot also be True.", "jit_compile_conflict"),
    ],
)
def test_xla(line: str, code: str) -> None:
    assert first(line) == code


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("RAM usage goes up after every call of model.predict", "memory_leak"),
        ("model.fit in a loop slowly eats all the RAM", "memory_leak"),
        ("every epoch needs 200 MB more RAM until the OOM killer ends it", "memory_leak"),
        ("tensorflow 2.4 uses all my gpu memory even for a tiny model", "gpu_memory_preallocation"),
        ("TensorFlow paired with PyTorch gets a CUDA OOM", "gpu_memory_preallocation"),
        ("the GPU runs out of memory unless the batch size is 1", "gpu_out_of_memory"),
        ("High batch size exceeds memory", "gpu_out_of_memory"),
        ("the kernel kills my process", "host_memory_exhausted"),
        ("my RAM fills up and the machine freezes", "host_memory_exhausted"),
        ("MemoryError: Unable to allocate 12.1 GiB for an array", "host_memory_exhausted"),
        (
            "OOM when allocating tensor with shape[60000,224] and type float on"
            " /job:localhost/replica:0/task:0/device:CPU:0 by allocator cpu",
            "host_memory_exhausted",
        ),
        ("GPU memory is still occupied after I killed the process", "gpu_memory_held_by_other_process"),
    ],
)
def test_memory(line: str, code: str) -> None:
    assert first(line) == code


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("MirroredStrategy hangs causing 100% GPU", "multi_gpu_hang"),
        ("with all 4 GPUs nothing happens after the first line", "multi_gpu_hang"),
        ("training on 2 GPUs freezes, NCCL_P2P_DISABLE=1 helps", "multi_gpu_hang"),
        ("NCCL communication aborted: unhandled system error", "nccl_failure"),
        ("KeyError: 'COLAB_TPU_ADDR'", "tpu_in_the_way"),
        ("Conv2D is 20x slower with mixed_float16", "mixed_precision_without_gain"),
        ("Mixed precision does not improve the speed", "mixed_precision_without_gain"),
        ("the data loading is the bottleneck", "input_pipeline_bound"),
        ("GPU only at 15% while all CPU cores are at 100%", "input_pipeline_bound"),
        ("a dataset from a generator: datasets from generators are far slower", "input_pipeline_bound"),
        ("the computations go from the GPU to the CPU", "silent_cpu"),
        ("on GPU the net trains slower then on CPU", "workload_too_small"),
    ],
)
def test_speed(line: str, code: str) -> None:
    assert first(line) == code


def test_a_gpu_that_is_registered_and_not_used_is_left_by_the_step() -> None:
    registered = "[PhysicalDevice(name='/physical_device:GPU:0', device_type='GPU')]"
    assert first(registered, "but when training the GPU is not used") == "silent_cpu"
    assert first("[]", "when training the GPU is not used") != "silent_cpu"


def test_mixed_precision_without_tensor_cores_says_so() -> None:
    cause = diagnose_log("GPU: GTX 1080\nmixed_float16 is slower than float32\n").causes[0]
    assert cause.code == "mixed_precision_without_gain"
    assert "no tensor cores" in cause.title


@pytest.mark.parametrize(
    "line",
    [
        "I train with mixed precision, the GPU is at 98%",
        "strategy = tf.distribute.MirroredStrategy()",
        "I use jit_compile=True and it is much faster",
        "the batch size is 64 and the data set is in memory",
        "I am stuck with this exercise",
        "compiling the model takes a moment",
    ],
)
def test_a_mere_mention_is_not_a_symptom(line: str) -> None:
    assert first(line) is None
