"""The checks that compute are right with real releases, and find everything that `FAULTS` lists."""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from validator.probe import checks

from .environments import AS_BUILT_2_21, UNOPTIMIZED, tensorflow_environment
from .simulated_gpu import FAULTS, PRECISIONS, TF32
from .unpacked import unpacked_probe

ASK = Path(__file__).parent / "ask_gate.py"
#: With Keras 2 and with Keras 3.
RELEASES = {"2.15.1": ("tensorflow[and-cuda]==2.15.1",), "2.21.0": AS_BUILT_2_21}
CHECKS = {check for fault in FAULTS.values() for check in fault.found_by}
#: Those that pass where there is only a CPU.
ON_CPU = sorted(CHECKS - {"gpu_compute", "silent_cpu", "auto_clustering"})
#: Those that compare the gradients of a training.
TRAINING = ("silent_cpu", "xla_train_step", "auto_clustering", "keras_jit")
#: Measure for long; `tests/probe/test_real_measurements.py` and `checks/test_xla_cache.py` run them.
LONG = {"xla_speedup", "xla_cache"}
#: Which checks a run asks, by fault.
Asked = Mapping[str, Sequence[str]]
ALL: Asked = {"none": sorted(CHECKS), **{name: list(fault.found_by) for name, fault in FAULTS.items()}}


def each_check_and_code_once() -> Asked:
    """Return the checks by fault so that each fault is found, each check finds one, and each code is seen."""
    seen: set[str] = set()
    asked = dict(ALL)
    # Those that fewer checks find come first, so that the others need fewer checks.
    for name, fault in sorted(FAULTS.items(), key=lambda row: len(row[1].found_by)):
        new = []
        for check, codes in fault.found_by.items():
            if not {check, *codes} <= seen:
                seen |= {check, *codes}
                new.append(check)
        asked[name] = new or ALL[name][:1]
    return asked


def ask(release: str, directory: Path, mode: str, asked: Asked) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the results of the checks by fault, from one process of a release."""
    dump = directory / "dump"
    dump.mkdir()
    done = subprocess.run(
        [
            tensorflow_environment(RELEASES[release]),
            ASK,
            unpacked_probe(directory),
            dump,
            mode,
            json.dumps(asked),
        ],
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "XLA_FLAGS": UNOPTIMIZED},
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, dict[str, dict[str, Any]]] = json.loads(done.stdout.splitlines()[-1])
    return found


def outcomes(found: dict[str, dict[str, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Return `(outcome, codes)` by fault and check, or the sentence if a check neither passed nor failed."""
    return {
        fault: {
            check: (entry["outcome"], set(entry["codes"]))
            if entry["outcome"] in ("pass", "fail")
            else entry["sentence"]
            for check, entry in entries.items()
        }
        for fault, entries in found.items()
    }


def used_by(name: str, module: str) -> str:
    """Return the source of a function, and of what it uses in its module."""
    source = inspect.getsource(sys.modules[module])
    defined = {}
    for node in ast.parse(source).body:
        names = [node] if isinstance(node, ast.FunctionDef) else getattr(node, "targets", [])
        defined.update({getattr(each, "name", None) or getattr(each, "id", None): node for each in names})
    left, seen = [name], set()
    while left:
        seen.add(name := left.pop())
        inside = (node.id for node in ast.walk(defined[name]) if isinstance(node, ast.Name))
        left += {each for each in inside if each in defined} - seen
    return "".join(ast.get_source_segment(source, defined[each]) or "" for each in seen)


@pytest.mark.slow
def test_each_fault_is_found_and_each_check_that_compares_finds_one() -> None:
    assert [name for name, fault in FAULTS.items() if not fault.found_by] == []
    comparing = {
        check.id
        for check in checks.CHECKS
        if re.search(r"training\.(tolerance|allowed)\(", used_by(check.run.__name__, check.run.__module__))
    }
    assert comparing == CHECKS | LONG
    assert {check for asked in list(each_check_and_code_once().values())[1:] for check in asked} == CHECKS


@pytest.mark.engine
@pytest.mark.parametrize("release", RELEASES)
def test_they_pass_and_say_that_it_was_the_cpu(release: str, tmp_path: Path) -> None:
    found = ask(release, tmp_path, "cpu", {"none": ON_CPU})["none"]
    assert {name: entry["outcome"] for name, entry in found.items()} == dict.fromkeys(found, "pass")
    assert {entry["evidence"]["device_type"] for entry in found.values()} == {"CPU"}
    assert list(found) == ON_CPU
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


@pytest.mark.engine
def test_right_kernels_pass_and_each_fault_is_found(tmp_path: Path) -> None:
    # 2.21.0 computes the same in three times the time.
    each_fault_is_found("2.15.1", TF32, each_check_and_code_once(), tmp_path)


@pytest.mark.engine
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("release", RELEASES)
def test_each_fault_is_found_by_all_of_its_checks(release: str, precision: str, tmp_path: Path) -> None:
    each_fault_is_found(release, precision, ALL, tmp_path)


def each_fault_is_found(release: str, precision: str, asked: Asked, directory: Path) -> None:
    found = ask(release, directory, precision, asked)
    assert outcomes(found) == {
        "none": dict.fromkeys(CHECKS, ("pass", set())),
        **{
            name: {check: ("fail", fault.found_by[check]) for check in asked[name]}
            for name, fault in FAULTS.items()
        },
    }
    # Only the tested side was rounded, and only in TensorFloat-32; with it off, nothing was.
    seen = {check: entry["evidence"] for check, entry in found["none"].items()}
    convolution = seen["xla_convolution"]["programs"][0]
    differences = {
        **{entry["name"]: entry["difference"] for entry in seen["gpu_compute"]["results"]},
        **{entry["name"]: entry["difference"] for entry in convolution["results"]},
        **{check: seen[check]["largest_difference"] for check in TRAINING},
    }
    assert len(differences) == 4 + 4 + len(TRAINING)
    if precision == TF32:
        assert min(differences.values()) > 1e-5, differences
        assert {seen[check]["full_float32"]["error"] for check in (*TRAINING, "gpu_compute")} == {None}
        again = [*seen["gpu_compute"]["full_float32"]["results"]]
        assert max(entry["difference"] for entry in again) < 1e-5
    else:
        assert max(differences.values()) < 1e-5, differences
    assert {convolution["precision"], *(seen[check]["precision"] for check in TRAINING)} == {precision}
