"""Tolerances, and what becomes of a result that is other in full float32."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from validator.probe import stages, training
from validator.probe.check import ERROR, FAIL, PASS, Check, Context, Result
from validator.probe.checks import compute
from validator.probe.training import FLOAT32, FULL_FLOAT32, TF32, tolerance
from validator.problems import problem, statement

REFUSED = "InternalError: Autotuner could not find any supported configs for HLO"
CODE = "xla_convolution_float32"


class Device:
    """A fake TensorFlow with one device."""

    #: What this file raises, this TensorFlow raises.
    __file__ = __file__

    def __init__(self, capability: tuple[int, int] | None) -> None:
        self.tf32 = True
        gpus = ["a GPU"] if capability else []
        details = {"compute_capability": capability, "device_name": "NVIDIA H200"}
        self.config = SimpleNamespace(
            list_physical_devices=lambda kind: gpus,
            experimental=SimpleNamespace(
                set_memory_growth=lambda gpu, on: None,
                get_device_details=lambda gpu: details,
                tensor_float_32_execution_enabled=lambda: self.tf32,
                enable_tensor_float_32_execution=lambda on: setattr(self, "tf32", on),
            ),
        )


def failed() -> Result:
    fault = problem("convolution_not_compiled", program="forward", type="float32", error=REFUSED)
    return Result(FAIL, None, [fault], {"programs": 1})


def passed() -> Result:
    return Result(PASS, statement("no_gpu"), [], {"programs": 1})


def raised() -> Result:
    raise RuntimeError("Graph execution error:\n\nit does not work")


def mistaken() -> Result:
    """Raise in the standard library, which is as little TensorFlow as the probe itself."""
    random.choice([])
    raise AssertionError("not reached")


def check(device: Device, default: Result, again: Callable[[], Result]) -> tuple[Result, list[bool]]:
    """Return the result, and whether TensorFloat-32 was on in each further run."""
    seen: list[bool] = []

    def run() -> Result:
        seen.append(device.tf32)
        return again()

    return training.also_in_float32(Context({}, tensorflow=device), CODE, default, run), seen


@pytest.mark.parametrize(("again", "error"), [(failed, REFUSED), (raised, "RuntimeError: it does not work")])
def test_what_fails_only_in_full_float32_is_a_limit(again: Callable[[], Result], error: str) -> None:
    device = Device((9, 0))
    result, seen = check(device, passed(), again)
    assert result.outcome == PASS
    assert result.problems == [{"code": CODE, "severity": "limit", "gpu": "NVIDIA H200", "error": error}]
    assert result.evidence["programs"] == 1
    assert result.evidence[FULL_FLOAT32]["error"] == error
    assert (seen, device.tf32) == ([False], True)


def test_a_bug_of_the_probe_in_full_float32_is_an_error_and_no_limit() -> None:
    device = Device((9, 0))

    def run(context: Context) -> Result:
        return training.also_in_float32(context, CODE, passed(), mistaken)

    result = stages.answer(Check("a_check", "Is it?", "tensorflow", run, 1.0), Context({}, tensorflow=device))
    assert (result.outcome, result.problems, device.tf32) == (ERROR, [], True)
    assert result.statement is not None
    assert (result.statement["code"], result.statement["exception"]) == ("check_raised", "IndexError")


def test_a_further_process_that_the_probe_breaks_is_an_error_and_no_limit() -> None:
    broken = Result(ERROR, statement("trial_raised", trial="auto_clustering", error="KeyError: 'a'"), [], {})
    assert check(Device((9, 0)), passed(), lambda: broken)[0] == broken


def test_what_fails_by_default_too_is_a_fault_and_no_limit() -> None:
    result, seen = check(Device((9, 0)), failed(), failed)
    assert (result.outcome, [entry["severity"] for entry in result.problems], seen) == (FAIL, ["fault"], [])


def test_what_passes_in_both_has_no_limit() -> None:
    result, seen = check(Device((8, 0)), passed(), passed)
    assert (result.outcome, result.problems, seen) == (PASS, [], [False])
    assert result.evidence[FULL_FLOAT32]["error"] is None


@pytest.mark.parametrize("capability", [None, (7, 5), (7, 0)])
def test_without_tensorfloat_32_the_default_runs_once(capability: tuple[int, int] | None) -> None:
    device = Device(capability)
    assert training.precision(device) == FLOAT32
    assert check(device, passed(), failed) == (passed(), [])


def test_the_variable_that_turns_it_off_for_every_library(monkeypatch: pytest.MonkeyPatch) -> None:
    assert training.precision(Device((9, 0))) == TF32
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
    assert training.precision(Device((9, 0))) == FLOAT32


def test_the_result_is_told_before_full_float32_is_tried() -> None:
    told: list[dict[str, Any]] = []
    context = Context({}, tensorflow=Device((9, 0)), tell=lambda event, **fields: told.append(fields))
    training.also_in_float32(context, CODE, passed(), passed)
    assert told == [
        {
            "outcome": PASS,
            "statement": {"code": "no_gpu"},
            "problems": [],
            "evidence": {"programs": 1},
            "limit": {"code": CODE, "gpu": "NVIDIA H200"},
        }
    ]


def test_without_a_result_nothing_was_compared() -> None:
    evidence = {"tolerance": 1e-2, "results": [], "gpu_peak_bytes": 4096}
    with pytest.raises(ValueError):
        compute.judge_gpu_compute(evidence)
    with pytest.raises(ValueError):
        training.worst_of_all([])
    with pytest.raises(ValueError):
        training.worst_of_all([{"error": None, "results": []}])


#: What was measured on an H200 (the report in tests/corpus) and on a CPU, as the largest of each kind.
MEASURED = {("float16", 8): 4.2e-4, ("bfloat16", 8): 4.4e-3, ("float16", 28): 1.6e-3, ("bfloat16", 28): 9e-3}


@pytest.mark.parametrize(("kind", "seen"), MEASURED.items())
def test_right_results_are_well_below_the_tolerance(kind: tuple[str, int], seen: float) -> None:
    assert 3 * seen < tolerance(*kind, 576)


@pytest.mark.parametrize("precision", [FLOAT32, TF32, "float16", "bfloat16", FULL_FLOAT32])
def test_a_wrong_kernel_is_above_every_tolerance_of_the_checks(precision: str) -> None:
    assert tolerance(precision, 28, 8192) < 0.1


def test_tolerances_follow_from_the_mantissa() -> None:
    assert tolerance(FLOAT32, 18, 2048) == 1e-3 < tolerance(TF32, 18, 2048) < 0.02
    assert tolerance(FLOAT32, 16, 64, sums_only=True) == 1e-4
    assert tolerance("bfloat16", 8, 1) == pytest.approx(8 * tolerance("float16", 8, 1), rel=1e-3)


def truncated(value: float) -> float:
    """Return what a tensor core sees of a float32: the lower 13 bits of the mantissa are ignored."""
    bits: int = struct.unpack("<I", struct.pack("<f", value))[0]
    kept: float = struct.unpack("<f", struct.pack("<I", bits & ~0x1FFF))[0]
    return kept


def test_a_product_in_tensorfloat_32_is_right_and_one_with_a_lost_term_in_ten_is_wrong() -> None:
    numbers, length = random.Random(1), 144
    left, right = ([[numbers.gauss(0, 1) for _ in range(length)] for _ in range(40)] for _ in "lr")

    def product(see: Callable[[float], float], terms: int = length) -> list[float]:
        rows, columns = (
            [[see(value) for value in row[:terms]] for row in matrix] for matrix in (left, right)
        )
        return [sum(a * b for a, b in zip(row, column, strict=True)) for row in rows for column in columns]

    def difference(found: list[float]) -> float:
        return max(abs(a - b) for a, b in zip(found, expected, strict=True)) / max(map(abs, expected))

    expected = product(float)
    allowed = tolerance(TF32, 2, length)
    assert 2e-4 < difference(product(truncated)) < allowed / 3
    assert difference(product(truncated, terms=length * 9 // 10)) > 10 * allowed
