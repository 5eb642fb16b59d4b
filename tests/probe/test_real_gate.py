"""The checks that need a GPU compute right on the CPU of real releases, and find what is broken there."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from .environments import AS_BUILT_2_21, UNOPTIMIZED, tensorflow_environment
from .unpacked import unpacked_probe

pytestmark = pytest.mark.engine

ASK = Path(__file__).parent / "ask_gate.py"
#: With Keras 2 and with Keras 3.
RELEASES = {"2.15.1": ("tensorflow[and-cuda]==2.15.1",), "2.21.0": AS_BUILT_2_21}
#: The codes of the problems when each check meets its fault.
FOUND_BROKEN = {
    "xla_convolution": {"result_differs"},
    "keras_jit": {"jit_turned_off", "jit_compiled_nothing", "uncompilable_step_trained"},
    "attention": {"result_differs"},
    "embedding": {"result_differs"},
    "cudnn_rnn": {"result_differs"},
    "data_feed": {"batches_wrong", "losses_differ"},
    "save_load": {"result_differs"},
}


def ask(release: str, directory: Path, *modes: str) -> dict[str, dict[str, Any]]:
    """Return the results of the checks by mode, from one process of a release."""
    archive = unpacked_probe(directory)
    done = subprocess.run(
        [tensorflow_environment(RELEASES[release]), ASK, archive, *modes],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "XLA_FLAGS": UNOPTIMIZED},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    assert {mode: set(entries) for mode, entries in found.items()} == {
        key: set(FOUND_BROKEN) for key in modes
    }
    return found


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the results by release and mode. TensorFlow is imported once for each release."""
    modes = {"2.15.1": ("right",), "2.21.0": ("right", "tf32", "broken")}
    return {release: ask(release, tmp_path_factory.mktemp("probe"), *modes[release]) for release in RELEASES}


@pytest.mark.parametrize("release", RELEASES)
def test_they_pass_and_say_that_it_was_the_cpu(
    release: str, answers: dict[str, dict[str, dict[str, Any]]]
) -> None:
    found = answers[release]["right"]
    assert {name: entry["outcome"] for name, entry in found.items()} == dict.fromkeys(FOUND_BROKEN, "pass")
    assert {entry["evidence"]["device_type"] for entry in found.values()} == {"CPU"}
    assert {entry["type"] for entry in found["xla_convolution"]["evidence"]["programs"]} == {
        "float32",
        "float16",
        "bfloat16",
    }
    assert all(
        entry["hlo"]["instructions"] > 10 for entry in found["xla_convolution"]["evidence"]["programs"]
    )
    # What was saved is not what a new model has: otherwise loading nothing would pass.
    assert found["save_load"]["evidence"]["untrained_difference"] > 0.1
    jit = found["keras_jit"]["evidence"]
    assert jit["off"]["uncompiled"] > jit["on"]["uncompiled"] == 0
    assert ("auto" in jit["resolved"]["classifier"]) == (release == "2.21.0")


def test_they_pass_with_tensorfloat_32_and_say_so(answers: dict[str, dict[str, dict[str, Any]]]) -> None:
    found = answers["2.21.0"]["tf32"]
    assert {name: entry["outcome"] for name, entry in found.items()} == dict.fromkeys(FOUND_BROKEN, "pass")
    assert {name: entry["codes"] for name, entry in found.items()} == {name: [] for name in FOUND_BROKEN}
    convolution = found["xla_convolution"]["evidence"]["programs"][0]
    assert convolution["precision"] == "tf32"
    assert found["xla_convolution"]["evidence"]["full_float32"]["error"] is None


def test_each_finds_its_fault(answers: dict[str, dict[str, dict[str, Any]]]) -> None:
    """With the tolerances of TensorFloat-32. The list and the faults that are made are the same (`ask`)."""
    found = answers["2.21.0"]["broken"]
    assert {name: entry["outcome"] for name, entry in found.items()} == dict.fromkeys(FOUND_BROKEN, "fail")
    assert {name: set(entry["codes"]) for name, entry in found.items()} == FOUND_BROKEN
