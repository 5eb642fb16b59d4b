"""The evidence of a compiled module, and of a refusal to compile."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from validator.probe import tensorflow_devices

MODULE = """HloModule a_inference_run_step_2369__.438, entry_computation_layout={(f32[4]{0})->f32[4]{0}}

ENTRY %main (p: f32[4]) -> f32[4] {
  %p = f32[4]{0} parameter(0), metadata={op_name="XLA_Args" source_file="/home/someone/train.py"}
  ROOT %fusion = f32[4]{0} fusion(f32[4]{0} %p), kind=kLoop, calls=%fused
}
"""


def test_only_compiled_modules_are_counted(tmp_path: Path) -> None:
    name = "module_0072.a_inference_run_step_2369__.399"
    for suffix in ("before_optimizations.txt", "cpu_after_optimizations-buffer-assignment.txt", "ir.ll"):
        (tmp_path / f"{name}.{suffix}").write_text(MODULE)
    assert tensorflow_devices.modules(str(tmp_path)) == []
    (tmp_path / f"{name}.cpu_after_optimizations.txt").write_text(MODULE)
    (tmp_path / "module_0073.other.9.sm_9.0_gpu_after_optimizations.txt").write_text(MODULE)
    seen = {"module": "a_inference_run_step_2369__.438", "instructions": 2, "fusions": 1}
    assert tensorflow_devices.modules(str(tmp_path)) == [
        {**seen, "device_type": "CPU"},
        {**seen, "device_type": "GPU"},
    ]


def test_the_path_of_the_source_is_not_part_of_the_proof() -> None:
    moved = MODULE.replace("/home/someone", "/elsewhere")
    assert tensorflow_devices.proof(MODULE) == tensorflow_devices.proof(moved)
    assert tensorflow_devices.proof(MODULE) != tensorflow_devices.proof(MODULE.replace("kLoop", "kInput"))


def test_the_directory_is_gone_afterwards() -> None:
    with tensorflow_devices.dump() as directory:
        Path(directory, "module").write_text(MODULE)
    assert not os.path.exists(directory)


def test_flags_of_the_user_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_autotune_level=0")
    assert (
        tensorflow_devices.flags("/d") == "--xla_gpu_autotune_level=0 --xla_dump_to=/d --xla_dump_hlo_as_text"
    )
    monkeypatch.delenv("XLA_FLAGS")
    assert tensorflow_devices.flags("/d") == "--xla_dump_to=/d --xla_dump_hlo_as_text"


#: The message that TensorFlow 2.15.1 raises, shortened, below Keras 2 and without it.
BELOW_KERAS = """Graph execution error:

Detected at node loss/PyFunc defined at (most recent call last):
<stack traces unavailable>
Detected unsupported operations when trying to compile graph __inference_run_step_744[] on XLA_CPU_JIT: \
PyFunc (No registered 'PyFunc' OpKernel for XLA_CPU_JIT devices compatible with node {{node loss/PyFunc}}\
){{node loss/PyFunc}}
The op is created at:
File "train.py", line 9, in loss
\ttf2xla conversion failed while converting __inference_run_step_744[].
\t [[StatefulPartitionedCall]] [Op:__inference_train_function_793]"""


def test_a_refusal_names_the_operation() -> None:
    said = "ValueError: XLA_CPU_JIT: PyFunc (No registered 'PyFunc' OpKernel for XLA_CPU_JIT devices )"
    assert tensorflow_devices.refusal(ValueError(BELOW_KERAS)) == said
    alone = BELOW_KERAS.partition("unavailable>\n")[2]
    assert tensorflow_devices.refusal(ValueError(alone)) == said


def test_a_refusal_is_the_same_in_the_next_run() -> None:
    again = BELOW_KERAS.replace("_744", "_1201").replace("_793", "_1250")
    assert tensorflow_devices.refusal(ValueError(BELOW_KERAS)) == tensorflow_devices.refusal(
        ValueError(again)
    )


@pytest.mark.parametrize("message", ["", "\n \n"])
def test_a_refusal_without_a_message(message: str) -> None:
    assert tensorflow_devices.refusal(ValueError(message)) == "ValueError: no message"
