"""The main job on real input: images of TensorFlow 2.21 built from the committed locks, probed, recorded."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from validator.engines.docker import DockerEngine
from validator.engines.endpoint import Endpoint
from validator.locks import lock_files
from validator.model.record import Record, Verdict
from validator.model.spec import image_reference
from validator.model.verdict import REQUIRED_ON_CPU

from .conftest import PYTHON, ROOT, build_matrix, measured

LOCKS = ROOT / lock_files.DIRECTORY
GPU = f"tf2.21.0-cuda12.9-cudnn9.28-py{PYTHON.replace('.', '')}"


@pytest.fixture(scope="module")
def gpu(
    docker_engine: DockerEngine,
    endpoint: Endpoint,
    real_store: Path,
    removals: list[subprocess.Popen[bytes]],
) -> Iterator[Record]:
    yield from measured(endpoint, real_store, "quick", GPU, removals)


def outcomes(record: Record) -> dict[str, str]:
    return {check["id"]: check["outcome"] for check in record.checks}


def evidence(record: Record, identifier: str) -> dict[str, Any]:
    found: dict[str, Any] = next(check["evidence"] for check in record.checks if check["id"] == identifier)
    return found


def test_the_cpu_image_trains_and_skips_what_needs_cuda(real_cpu: Record) -> None:
    assert (real_cpu.verdict, real_cpu.engine) == (Verdict.WORKS_ON_CPU, "docker")
    assert real_cpu.reason == "all required checks passed on the CPU"
    found = outcomes(real_cpu)
    passed = {*REQUIRED_ON_CPU, "tpu_interference", "packages"}
    assert {check for check, outcome in found.items() if outcome == "pass"} == passed
    assert {found[check] for check in found.keys() - passed} == {"skip"}


def test_the_gpu_image_is_as_locked_and_its_cudnn_loads(gpu: Record) -> None:
    lock = lock_files.read(LOCKS, GPU)
    assert lock is not None
    assert gpu.lock_digest == lock.digest
    assert gpu.image_digest is not None and gpu.image_digest.startswith("sha256:")
    assert (gpu.verdict, gpu.reason) == (Verdict.UNPROVEN, "no GPU")
    found = outcomes(gpu)
    passed = {"environment", "python_stack", "tpu_interference", "lock_match", "xla_train_step", "packages"}
    passed |= {"cuda_libraries", "cudnn_load", "library_conflicts", "tensorflow_build", "xla_toolchain"}
    assert {check for check, outcome in found.items() if outcome == "pass"} == passed
    assert {found[check] for check in found.keys() - passed} == {"skip"}
    cudnn = evidence(gpu, "cudnn_load")
    assert lock.version("nvidia-cudnn-cu12") == cudnn["locked"] == "9.28.0.42"
    assert cudnn["library"]["version"] == gpu.versions["cudnn"] == "9.28.0"


def test_xla_compiled_the_step_and_there_is_proof(gpu: Record) -> None:
    step = evidence(gpu, "xla_train_step")
    assert step["device_type"] == "CPU"
    assert step["hlo"]["first_lines"][0].startswith("HloModule")
    assert step["hlo"]["fusions"] > 0
    assert len(step["hlo"]["sha256"]) == 64


def test_the_report_names_neither_the_machine_nor_a_home(gpu: Record) -> None:
    assert gpu.report is not None
    text = json.dumps(gpu.report)
    assert not re.search(rf"\b{re.escape(os.uname().nodename)}\b", text)
    assert "/root" not in text
    assert "/home" not in text


def test_the_loader_finds_the_libraries_without_tensorflows_runpath(endpoint: Endpoint, gpu: Record) -> None:
    """Releases need this that don't search all of NVIDIA's directories, such as 2.16.1 and 2.21.0."""
    load = "import ctypes; [ctypes.CDLL(name) for name in ('libcudnn.so.9', 'libcusolver.so.11')]"
    endpoint.client.containers.run(
        image_reference(GPU), ["python", "-c", load], remove=True, network_mode="none"
    )


def test_a_second_run_changes_nothing(gpu: Record, real_cpu: Record, real_store: Path) -> None:
    for profile, record in (("quick", gpu), ("cpu", real_cpu)):
        result, said = build_matrix(real_store, profile)
        assert (result["status"], result["built"]) == ("unchanged", False)
        assert result["record"]["id"] == record.id
        assert "Engine: Docker" in said


def test_the_locks_are_unchanged(gpu: Record, real_cpu: Record) -> None:
    changed = subprocess.run(
        ["git", "status", "--porcelain", "--", str(lock_files.DIRECTORY)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert changed.stdout == ""
