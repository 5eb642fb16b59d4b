"""A second process finds what XLA compiled in the first: what counts as that, and with a real TensorFlow."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from validator.probe import child
from validator.probe.check import Context
from validator.probe.checks import speed
from validator.probe.child import EXCEPTION, SIGNAL, Answer, Failure

from ..environments import AS_BUILT_2_21, tensorflow_environment
from ..unpacked import unpacked_probe

LOSSES = [2.5, 2.4, 2.3, 2.2, 2.1]
PROGRAMS, AUTOTUNING = (f"--{name}" for _, _, name in speed.CACHES)


def took(seconds: float, **changes: Any) -> dict[str, Any]:
    found = {"first_step_s": seconds, "compile_s": seconds, "losses": LOSSES, "tolerance": 1e-3}
    return {**found, **changes}


class Processes:
    """Two processes: each writes `written` files into the directory of the flag, and ends as it is told."""

    def __init__(self, first: Answer, second: Answer, written: tuple[int, int] = (2, 0)) -> None:
        self.answers, self.written = [first, second], list(written)
        self.environments: list[dict[str, str]] = []

    def __call__(self, *arguments: Any, environment: dict[str, str], **options: Any) -> Answer:
        number = len(self.environments)
        self.environments.append(environment)
        place = environment["TF_XLA_FLAGS"].rpartition("=")[2]
        for name in range(self.written[number]):
            Path(place, f"{number}-{name}.pb").write_bytes(b"x" * 10)
        return self.answers[number]


def run(
    processes: Processes, facts: dict[str, Any], monkeypatch: pytest.MonkeyPatch, *unknown: str
) -> tuple[str, str, dict[str, Any]]:
    """Return outcome, sentence and evidence. unknown: flags that this TensorFlow does not have."""
    monkeypatch.setattr(child, "fresh", processes)
    monkeypatch.setattr(
        speed,
        "unknown_flags",
        lambda flags, prefix, directory: [name for name, _ in flags.flags if name in unknown],
    )
    facts["tensorflow"] = {"directory": "/tensorflow"}
    growth = SimpleNamespace(set_memory_growth=lambda gpu, on: None)
    config = SimpleNamespace(list_physical_devices=lambda kind: ["a GPU"], experimental=growth)
    result = speed.xla_cache.run(Context(facts, None, SimpleNamespace(config=config)))
    return result.outcome, result.sentence, result.evidence


def answers(first: dict[str, Any], second: dict[str, Any]) -> tuple[Answer, Answer]:
    return Answer([first], None, ""), Answer([second], None, "")


def test_the_second_process_finds_the_programs(
    facts: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_XLA_FLAGS", "--tf_xla_auto_jit=0")
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    processes = Processes(*answers(took(20.0), took(5.0)))
    outcome, sentence, evidence = run(processes, facts, monkeypatch)
    assert (outcome, sentence) == (
        "pass",
        "with the 2 programs that XLA compiled in another process, the first step takes 0.25 of the time",
    )
    assert (evidence["ratio"], evidence["first"]["programs"], evidence["first"]["bytes"]) == (0.25, 2, 20)
    assert evidence["flags"] == [PROGRAMS, AUTOTUNING]
    first, second = processes.environments
    assert first == second
    place = first["TF_XLA_FLAGS"].rpartition("=")[2]
    assert first["TF_XLA_FLAGS"] == f"--tf_xla_auto_jit=0 {PROGRAMS}={place}"
    assert first["XLA_FLAGS"] == f"{AUTOTUNING}={place}"
    assert first["CUDA_CACHE_PATH"].startswith(place)
    assert not os.path.exists(place)


def test_a_slower_second_process_is_not_a_fault(
    facts: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(Processes(*answers(took(1.0), took(2.0))), facts, monkeypatch)[0] == "pass"


@pytest.mark.parametrize(
    ("written", "second", "said"),
    [
        ((0, 0), {}, "kept nothing"),
        ((2, 1), {}, "a second process compiled 1 program again"),
        ((2, 0), {"losses": [*LOSSES[:4], 2.2]}, "the losses differ by 4.8e-02"),
        ((2, 0), {"losses": [*LOSSES[:4], float("nan")]}, "the losses differ by inf"),
    ],
)
def test_what_does_not_work_fails(
    written: tuple[int, int],
    second: dict[str, Any],
    said: str,
    facts: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    processes = Processes(*answers(took(20.0), took(5.0, **second)), written)
    outcome, sentence, _ = run(processes, facts, monkeypatch)
    assert outcome == "fail"
    assert said in sentence


@pytest.mark.parametrize(
    ("failure", "outcome"),
    [
        (Failure(EXCEPTION, "DataLossError: x", in_tensorflow=True), "fail"),
        (Failure(SIGNAL, "SIGSEGV"), "crash"),
    ],
)
@pytest.mark.parametrize("turn", [0, 1])
def test_a_process_that_fails_is_named(
    failure: Failure, outcome: str, turn: int, facts: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = list(answers(took(20.0), took(5.0)))
    found[turn] = Answer([], failure, "the last line")
    seen, sentence, evidence = run(Processes(found[0], found[1]), facts, monkeypatch)
    assert seen == outcome
    assert ("training with what XLA compiled in another process" in sentence) == bool(turn)
    assert evidence["last_lines"] == ["the last line"]


def test_flags_that_tensorflow_does_not_have_are_not_set(
    facts: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    processes = Processes(*answers(took(20.0), took(5.0)))
    assert run(processes, facts, monkeypatch, AUTOTUNING)[0] == "pass"
    assert "XLA_FLAGS" not in processes.environments[0]
    processes = Processes(*answers(took(20.0), took(5.0)))
    outcome, sentence, _ = run(processes, facts, monkeypatch, PROGRAMS)
    assert (outcome, sentence) == ("skip", "this TensorFlow keeps nothing that XLA compiled")
    assert processes.environments == []


#: The check needs a GPU. What it asks of TensorFlow works on the CPU too.
ON_THE_CPU = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
import tensorflow as tf
from validator.probe.check import Context
from validator.probe.checks import speed
facts = {"tensorflow": {"directory": os.path.dirname(tf.__file__)}}
result = speed.xla_cache.run(Context(facts, tensorflow=tf))
print(json.dumps([result.outcome, result.sentence, result.evidence]))
"""


@pytest.mark.engine
def test_a_real_tensorflow_finds_its_programs(tmp_path: Path) -> None:
    done = subprocess.run(
        [tensorflow_environment(AS_BUILT_2_21), "-c", ON_THE_CPU, str(unpacked_probe(tmp_path))],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    outcome, sentence, evidence = json.loads(done.stdout.splitlines()[-1])
    assert outcome == "pass", sentence
    assert evidence["first"]["programs"] == evidence["second"]["programs"] == 1
    assert evidence["flags"] == [PROGRAMS, AUTOTUNING]
    assert evidence["largest_difference"] == 0.0
