"""The modules that XLA compiled, a refusal to compile, and the kernels in profiles."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validator.probe import tensorflow_devices
from validator.probe.tensorflow_devices import events, record

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


# The kernels in TensorFlow's profiles, and that no profile is left behind.


def varint(value: int) -> bytes:
    data = b""
    while value > 0x7F:
        data += bytes([value & 0x7F | 0x80])
        value >>= 7
    return data + bytes([value])


def field(number: int, value: int | bytes | str) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def plane(name: str, lines: dict[str, list[str]]) -> bytes:
    """Return a plane whose lines hold events of these names, each of 2 microseconds."""
    names = sorted({event for events in lines.values() for event in events})
    numbers = {event: number + 300 for number, event in enumerate(names)}
    metadata = [
        field(4, field(1, number) + field(2, field(1, number) + field(2, event)))
        for event, number in numbers.items()
    ]
    encoded = [
        field(
            3,
            field(1, 7)
            + field(2, line)
            + b"".join(
                field(4, field(1, numbers[event]) + field(2, 10**12) + field(3, 2_000_000))
                for event in events
            )
            # A fixed64 and a fixed32, which are skipped.
            + varint(15 << 3 | 1)
            + bytes(8)
            + varint(15 << 3 | 5)
            + bytes(4),
        )
        for line, events in lines.items()
    ]
    return field(1, field(1, 3) + field(2, name) + b"".join(encoded) + b"".join(metadata))


STREAM = {"Stream #13(Compute)": ["sgemm", "sgemm", "MemcpyD2D", "fusion_1"]}


def test_kernels_are_distinguished_from_copies_and_derived_lines() -> None:
    space = (
        plane("/host:CPU", {"tf_XLAEigen": ["sgemm"]})
        + plane(
            "/device:GPU:0",
            {
                **STREAM,
                "Stream #14(MemcpyH2D)": ["MemcpyH2D", "Memset"],
                "XLA Ops": ["fusion.1"],
                "Steps": ["1"],
            },
        )
        + plane("/device:GPU:1", STREAM)
    )
    found = events(space)
    assert len(found) == 13
    assert {event.seconds for event in found} == {2e-6}
    kernels = [(event.plane, event.name) for event in found if event.is_kernel]
    each = ["sgemm", "sgemm", "fusion_1"]
    assert kernels == [(f"/device:GPU:{number}", name) for number in (0, 1) for name in each]


def test_nothing_ran() -> None:
    assert events(b"") == []
    assert events(plane("/device:GPU:0", {})) == []


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_rejected(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        events(data)


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_a_truncated_profile_is_rejected(cut: int) -> None:
    with pytest.raises(ValueError, match="cut short"):
        events(plane("/device:GPU:0", STREAM)[:-cut])


class Profiler:
    """`tf.profiler.experimental`, which writes into the directory that it is given."""

    ProfilerOptions = SimpleNamespace

    def start(self, directory: str, options: Any) -> None:
        self.directory = Path(directory)

    def stop(self) -> None:
        path = self.directory / "plugins" / "profile" / "2026_01_01" / "host.xplane.pb"
        path.parent.mkdir(parents=True)
        path.write_bytes(plane("/device:GPU:0", STREAM))


def test_a_recording_leaves_nothing_behind() -> None:
    profiler, worked = Profiler(), []
    tf = SimpleNamespace(profiler=SimpleNamespace(experimental=profiler))
    found = record(tf, lambda: worked.append(True))
    assert sum(event.is_kernel for event in found) == 3
    assert worked == [True]
    assert not profiler.directory.exists()


def test_an_interrupted_recording_is_stopped_and_removed() -> None:
    profiler = Profiler()
    tf = SimpleNamespace(profiler=SimpleNamespace(experimental=profiler))

    def work() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        record(tf, work)
    assert not profiler.directory.exists()
