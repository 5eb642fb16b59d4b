"""How sums and steps on several devices are judged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from validator.probe import fresh
from validator.probe.check import Context, Result
from validator.probe.checks import multi_gpu
from validator.probe.isolate import Answer

MIB = 1 << 20


def answers(replicas: int = 2, **changes: Any) -> list[dict[str, Any]]:
    reduced = {"implementation": "NcclAllReduce", "replicas": replicas, "nccl_operations": 2, "wrong": 0}
    step = {
        "replicas": replicas,
        "losses": [2.0, 1.0],
        "largest_difference": 1e-7,
        "largest_weight_difference": 1e-7,
        "replicas_equal": True,
    }
    return [
        {"all_reduce": {**reduced, **{name: changes[name] for name in reduced if name in changes}}},
        {"step": {**step, **{name: changes[name] for name in step if name in changes}}},
    ]


def run(
    monkeypatch: pytest.MonkeyPatch,
    gpus: int,
    values: list[dict[str, Any]],
    failure: str | None = None,
    shared: int | None = 1024 * MIB,
) -> Result:
    def call(function: Callable[..., Any], kind: str, count: int, limit_s: float) -> Answer:
        asked.append((kind, count))
        return Answer(values, failure, "last line", failure is not None)

    asked: list[tuple[str, int]] = []
    tf = SimpleNamespace(
        config=SimpleNamespace(
            list_physical_devices=lambda kind: [f"GPU:{number}" for number in range(gpus)],
            experimental=SimpleNamespace(set_memory_growth=lambda gpu, on: None),
        )
    )
    monkeypatch.setattr(fresh, "call", call)
    size = shared and {"bytes": shared, "free_bytes": shared, "above_docker_default": shared > 64 * MIB}
    monkeypatch.setattr(multi_gpu, "shared_memory", lambda: size)
    result = multi_gpu.CHECK.run(Context({}, tensorflow=tf))
    assert asked == [{0: ("logical CPU", 2), 1: ("logical GPU", 2)}.get(gpus, ("GPU", gpus))]
    return result


@pytest.mark.parametrize("gpus", [2, 8])
def test_gpus_that_agree(gpus: int, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(monkeypatch, gpus, answers(gpus))
    said = f"NCCL reduces, a MirroredStrategy step on {gpus} GPUs equals a single one"
    assert (result.outcome, result.summary) == ("pass", said)
    assert result.evidence["unknown"] is None


@pytest.mark.parametrize(
    ("gpus", "devices", "device_type", "seen"),
    [(0, "2 logical CPUs", "CPU", "none"), (1, "2 logical GPUs", "GPU", "one")],
)
def test_fewer_than_two_are_never_a_pass(
    gpus: int, devices: str, device_type: str, seen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = run(monkeypatch, gpus, answers(nccl_operations=0))
    assert result.outcome == "skip"
    assert result.summary.startswith(f"two GPUs are needed, TensorFlow sees {seen}; ")
    assert result.evidence["devices"] == devices
    assert result.evidence["device_type"] == device_type
    assert result.evidence["unknown"].startswith("NCCL and several GPUs: ")
    assert result.evidence["step"]["replicas_equal"]


FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"wrong": 3}, "3 sums of NcclAllReduce on"),
    ({"largest_difference": 1e-2}, "losses of a MirroredStrategy step"),
    ({"largest_difference": None}, "losses of a MirroredStrategy step on"),
    ({"largest_weight_difference": 1e-2}, "weights of a MirroredStrategy step"),
    ({"replicas_equal": False}, "no longer hold the same weights"),
    ({"losses": [2.0, 2.0]}, "the loss does not fall"),
    ({"losses": [2.0, float("nan")]}, "the loss does not fall"),
    ({"replicas": 1}, "1 replicas on"),
]


@pytest.mark.parametrize("gpus", [0, 1, 2])
@pytest.mark.parametrize(("changes", "said"), FAULTS)
def test_devices_that_disagree_fail_however_many_there_are(
    gpus: int, changes: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = run(monkeypatch, gpus, answers(**changes))
    assert result.outcome == "fail"
    assert said in result.summary


def test_a_sum_that_nccl_had_no_part_in(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(monkeypatch, 2, answers(nccl_operations=0))
    assert result.outcome == "fail"
    assert "did not use NCCL" in result.summary


def test_a_crash_names_a_small_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(monkeypatch, 2, [], failure="SIGSEGV", shared=64 * MIB)
    assert result.outcome == "crash"
    assert result.summary.startswith("tf.distribute on 2 GPUs: SIGSEGV (/dev/shm is only 64 MiB;")
    assert "--shm-size" in result.summary
    assert result.evidence["last_lines"] == ["last line"]
    assert run(monkeypatch, 2, [], failure="SIGSEGV").summary == "tf.distribute on 2 GPUs: SIGSEGV"


def test_a_small_shared_memory_is_said_even_where_nccl_makes_do(monkeypatch: pytest.MonkeyPatch) -> None:
    for shared, said in ((64 * MIB, "only 64 MiB"), (None, "not there")):
        result = run(monkeypatch, 2, answers(), shared=shared)
        assert result.outcome == "pass"
        assert f"/dev/shm is {said}" in result.summary
    assert "/dev/shm" not in run(monkeypatch, 0, answers(), shared=64 * MIB).summary


def test_the_size_of_shared_memory(tmp_path: Path) -> None:
    found = multi_gpu.shared_memory(str(tmp_path))
    assert found is not None and 0 < found["free_bytes"] <= found["bytes"]
    assert multi_gpu.shared_memory(str(tmp_path / "missing")) is None
