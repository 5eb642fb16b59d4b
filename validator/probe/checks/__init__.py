"""The checks: one module each, holding one `CHECK`."""

from typing import Tuple

from ..check import Check
from . import (
    auto_clustering,
    compute_capability,
    cuda_libraries,
    cudnn_load,
    driver,
    environment,
    gpu_compute,
    gpu_device_nodes,
    gpu_visible,
    input_pipeline,
    keras_jit,
    library_conflicts,
    lock_match,
    memory,
    mixed_precision,
    multi_gpu,
    python_stack,
    silent_cpu,
    tensorflow_build,
    tpu_interference,
    xla_coverage,
    xla_speedup,
    xla_toolchain,
    xla_train_step,
)

#: In the order in which they run within their stage.
CHECKS: Tuple[Check, ...] = (
    driver.CHECK,
    gpu_device_nodes.CHECK,
    environment.CHECK,
    python_stack.CHECK,
    tpu_interference.CHECK,
    lock_match.CHECK,
    cuda_libraries.CHECK,
    cudnn_load.CHECK,
    library_conflicts.CHECK,
    compute_capability.CHECK,
    tensorflow_build.CHECK,
    xla_toolchain.CHECK,
    gpu_visible.CHECK,
    gpu_compute.CHECK,
    xla_train_step.CHECK,
    silent_cpu.CHECK,
    keras_jit.CHECK,
    auto_clustering.CHECK,
    xla_coverage.CHECK,
    xla_speedup.CHECK,
    mixed_precision.CHECK,
    memory.CHECK,
    multi_gpu.CHECK,
    input_pipeline.CHECK,
)
