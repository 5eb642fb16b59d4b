"""The judgement of sums and steps on several devices."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from validator.probe import child
from validator.probe.check import Context, Result
from validator.probe.checks import distribution
from validator.probe.child import Answer

from ..children import ended

MIB = 1 << 20


def answers(replicas: int = 2, **changes: Any) -> list[dict[str, Any]]:
    reduced = {"implementation": "NcclAllReduce", "replicas": replicas, "nccl_operations": 2, "wrong": 0}
    step = {
        "replicas": replicas,
        "losses": [2.0, 1.0],
        "largest_difference": 1e-7,
        "largest_weight_difference": 1e-7,
        "replicas_equal": True,
        "tolerance": 1e-4,
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
        return Answer(values, ended(failure, in_tensorflow=True), "last line")

    asked: list[tuple[str, int]] = []
    tf = SimpleNamespace(
        config=SimpleNamespace(
            list_physical_devices=lambda kind: [f"GPU:{number}" for number in range(gpus)],
            experimental=SimpleNamespace(set_memory_growth=lambda gpu, on: None),
        )
    )
    monkeypatch.setattr(child, "fresh", call)
    size = shared and {"bytes": shared, "free_bytes": shared, "above_docker_default": shared > 64 * MIB}
    monkeypatch.setattr(distribution, "shared_memory", lambda: size)
    result = distribution.multi_gpu.run(Context({}, tensorflow=tf))
    assert asked == [{0: ("logical CPU", 2), 1: ("logical GPU", 2)}.get(gpus, ("GPU", gpus))]
    return result


@pytest.mark.parametrize("gpus", [2, 8])
def test_gpus_that_agree(gpus: int, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(monkeypatch, gpus, answers(gpus))
    said = (
        f"NCCL's sums are right, and MirroredStrategy on {gpus} GPUs gives the same step as a single device"
    )
    assert (result.outcome, result.sentence) == ("pass", said)
    assert result.evidence["devices"] == {"count": gpus, "kind": "GPU"}


@pytest.mark.parametrize(
    ("gpus", "kind", "device_type"), [(0, "logical CPU", "CPU"), (1, "logical GPU", "GPU")]
)
def test_fewer_than_two_are_never_a_pass(
    gpus: int, kind: str, device_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = run(monkeypatch, gpus, answers(nccl_operations=0))
    assert result.outcome == "skip"
    few = {"code": "logical_devices_agree", "found": gpus, "devices": f"2 {kind}s"}
    assert result.statement == few
    assert result.evidence["devices"] == {"count": 2, "kind": kind}
    assert result.evidence["device_type"] == device_type
    assert result.evidence["step"]["replicas_equal"]


FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"wrong": 3}, "3 sums of NcclAllReduce on"),
    ({"largest_difference": 1e-2}, "the losses of MirroredStrategy on"),
    ({"largest_difference": float("nan")}, "the losses of MirroredStrategy on"),
    ({"largest_weight_difference": 1e-2}, "the weights after a MirroredStrategy step"),
    ({"replicas_equal": False}, "no longer hold the same weights"),
    ({"losses": [2.0, 2.0]}, "the loss of MirroredStrategy on"),
    ({"losses": [2.0, float("nan")]}, "the loss of MirroredStrategy on"),
    ({"replicas": 1}, "1 replica on"),
]


@pytest.mark.parametrize("gpus", [0, 1, 2])
@pytest.mark.parametrize(("changes", "said"), FAULTS)
def test_devices_that_disagree_fail_whatever_their_number(
    gpus: int, changes: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = run(monkeypatch, gpus, answers(**changes))
    assert result.outcome == "fail"
    assert said in result.sentence


def test_a_sum_without_nccl(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(monkeypatch, 2, answers(nccl_operations=0))
    assert result.outcome == "fail"
    assert "didn't use NCCL" in result.sentence


def test_a_crash_names_a_small_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(monkeypatch, 2, [], failure="SIGSEGV", shared=64 * MIB)
    assert result.outcome == "crash"
    assert result.sentence == (
        "training with tf.distribute was killed by SIGSEGV; note: /dev/shm is too small or missing:"
        " 64 MiB; NCCL may need more (docker run --shm-size=1g)"
    )
    assert result.evidence["last_lines"] == ["last line"]
    assert run(monkeypatch, 2, [], failure="SIGSEGV").problems == []


def test_a_small_shared_memory_is_reported_even_if_nccl_works(monkeypatch: pytest.MonkeyPatch) -> None:
    for shared in (64 * MIB, None):
        result = run(monkeypatch, 2, answers(), shared=shared)
        assert result.outcome == "pass"
        small = {"code": "shared_memory_small", "severity": "advisory", "bytes": shared}
        assert result.problems == [small]
    assert run(monkeypatch, 0, answers(), shared=64 * MIB).problems == []


def test_the_size_of_shared_memory(tmp_path: Path) -> None:
    found = distribution.shared_memory(str(tmp_path))
    assert found is not None and 0 < found["free_bytes"] <= found["bytes"]
    assert distribution.shared_memory(str(tmp_path / "missing")) is None
