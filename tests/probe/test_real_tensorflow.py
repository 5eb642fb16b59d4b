"""The probe with a real TensorFlow, with its CUDA libraries and without a GPU."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from validator.model.report import CheckOutcome, CheckResult, Report, read_report

from ..emulation.stubs import built
from .environments import AS_BUILT_2_21, WITH_CUDNN_8, tensorflow_environment
from .unpacked import unpacked_probe

pytestmark = pytest.mark.engine

GPU_CHECKS = ("gpu_device_nodes", "compute_capability", "gpu_visible", "gpu_compute")
#: The checks that pass without a GPU if TensorFlow, its libraries and its packages are as they should be.
PASSING = (
    "environment",
    "python_stack",
    "lock_match",
    "cuda_libraries",
    "cudnn_load",
    "library_conflicts",
    "tensorflow_build",
    "xla_toolchain",
    "xla_train_step",
)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked_probe(tmp_path_factory.mktemp("probe"))


@pytest.fixture(scope="module")
def as_built() -> Path:
    return tensorflow_environment(AS_BUILT_2_21)


@pytest.fixture(scope="module")
def stub_driver() -> Path:
    return built().place("driver")


def nvidia_libraries(python: Path) -> str:
    site = python.parents[1] / "lib" / "python3.11" / "site-packages"
    return os.pathsep.join(str(path) for path in sorted(site.glob("nvidia/*/lib")))


def probe(python: Path, archive: Path, *arguments: str, library_path: str = "", **variables: str) -> Report:
    environment = {**os.environ, **variables, "LD_LIBRARY_PATH": library_path}
    done = subprocess.run(
        [python, archive, *arguments], env=environment, cwd="/", capture_output=True, text=True, check=True
    )
    return read_report(done.stdout)


def found(report: Report, name: str) -> CheckResult:
    check = report.check(name)
    assert check is not None
    return check


@pytest.fixture(scope="module")
def report(as_built: Path, archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Return the report of 2.21 as built, its libraries on the path, with a lock of what is installed."""
    listed = probe(as_built, archive, "--only", "lock_match").environment.packages
    lock = tmp_path_factory.mktemp("lock") / "lock.txt"
    lock.write_text("".join(f"{name}=={version}\n" for name, version in listed.items()))
    return probe(as_built, archive, "--lock", str(lock), library_path=nvidia_libraries(as_built))


def test_without_a_gpu_checks_that_need_one_are_skipped_and_the_rest_pass(report: Report) -> None:
    outcomes = {check.id: (check.outcome.value, check.sentence) for check in report.checks}
    assert outcomes["driver"][0] == "skip"
    assert {outcomes[name] for name in GPU_CHECKS} == {("skip", "there is no GPU here")}
    for name in PASSING:
        assert outcomes[name][0] == "pass", outcomes[name]


def test_every_library_that_registers_a_gpu_is_named_with_its_version(report: Report) -> None:
    libraries = {
        entry["soname"]: entry for entry in found(report, "cuda_libraries").evidence.raw["libraries"]
    }
    gate = {name: entry["version"] for name, entry in libraries.items() if entry["phase"] == "gate"}
    assert gate == {
        "libcudart.so.12": "12.5",
        "libcublas.so.12": "12.5.3",
        "libcublasLt.so.12": "12.5.3",
        "libcufft.so.11": "11.2.3",
        "libcusolver.so.11": "11.6.3",
        "libcusparse.so.12": "12.5.1",
        "libcudnn.so.9": "9.3.0",
    }
    assert libraries["libcudnn.so.9"]["built_with"] == "9.3.0.75"
    assert libraries["libnccl.so.2"]["version"] == "2.27.7"


def test_all_parts_of_cudnn_are_loaded(report: Report) -> None:
    evidence = found(report, "cudnn_load").evidence.raw
    assert evidence["library"]["version"] == "9.3.0"
    assert evidence["locked"] == "9.3.0.75"
    assert len(evidence["sub_libraries"]) == 7
    assert set(evidence["version_checks"].values()) == {0}


def test_xla_leaves_proof_of_compilation(report: Report) -> None:
    evidence = found(report, "xla_train_step").evidence.raw
    assert evidence["device_type"] == "CPU"
    assert evidence["hlo"]["module"]
    assert evidence["hlo"]["fusions"] > 0
    assert evidence["losses"][-1] < evidence["losses"][0]
    assert evidence["compile_s"] > evidence["step_s"] > 0


def test_the_log_of_tensorflow_is_kept(report: Report) -> None:
    assert "XLA service" in report.raw["logs"]["tensorflow_stderr"]
    assert report.raw["logs"]["truncated"] is False


def test_the_2_21_wheel_does_not_search_the_directory_of_cusolver(as_built: Path, archive: Path) -> None:
    """libtensorflow_framework.so.2 of 2.21.0 has no search path for cuSOLVER; 2.20.0 and 2.22.0rc0 have.
    With nothing but the wheels, TensorFlow 2.21.0 registers no GPU."""
    check = found(probe(as_built, archive, "--only", "cuda_libraries"), "cuda_libraries")
    assert check.outcome is CheckOutcome.FAIL
    assert check.sentence.startswith("libcusolver.so.11 is installed")
    assert check.sentence.endswith("but not where the loader looks")


def test_cudnn_8_with_a_wheel_that_needs_9(archive: Path) -> None:
    python = tensorflow_environment(WITH_CUDNN_8)
    report = probe(
        python,
        archive,
        *("--only", "cuda_libraries", "--only", "cudnn_load"),
        library_path=nvidia_libraries(python),
    )
    libraries, cudnn = found(report, "cuda_libraries"), found(report, "cudnn_load")
    assert libraries.outcome is cudnn.outcome is CheckOutcome.FAIL
    assert libraries.sentence == "libcudnn.so.9 is not found; there is libcudnn.so.8"
    assert "libcudnn.so.9" in cudnn.sentence


def test_a_driver_that_only_claims_a_gpu_passes_no_check_of_computing(
    as_built: Path, archive: Path, stub_driver: Path
) -> None:
    library_path = os.pathsep.join([str(stub_driver), nvidia_libraries(as_built)])
    report = probe(as_built, archive, library_path=library_path)
    # TensorFlow is fooled; otherwise this would prove nothing.
    assert report.host.gpus[0].name == "NVIDIA A100-SXM4-40GB"
    assert found(report, "gpu_visible").outcome is CheckOutcome.PASS
    for name in ("driver", "gpu_device_nodes", "gpu_compute", "xla_train_step"):
        assert found(report, name).outcome in (CheckOutcome.FAIL, CheckOutcome.CRASH), name


def test_a_flag_that_ends_the_process_is_a_crash(as_built: Path, archive: Path) -> None:
    report = probe(as_built, archive, "--only", "xla_train_step", XLA_FLAGS="--xla_no_such_flag")
    check = found(report, "xla_train_step")
    assert check.outcome is CheckOutcome.CRASH
    assert any("Unknown flag in XLA_FLAGS" in line for line in check.evidence.raw["last_lines"])
