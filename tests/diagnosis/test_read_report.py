"""From a probe's report to the cause: by its fields, by the output of its checks, and by its logs."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from validator.diagnosis import diagnose_report
from validator.diagnosis.read_report import fields
from validator.model.diagnosis import Diagnosis
from validator.model.report import report_of


@pytest.fixture
def document() -> dict[str, Any]:
    """Return a report of a machine with an H100 on which every check passed."""
    ids = ("driver", "gpu_device_nodes", "environment", "python_stack", "cuda_libraries", "cudnn_load")
    ids += ("library_conflicts", "compute_capability", "tensorflow_build", "xla_toolchain", "gpu_visible")
    ids += ("gpu_compute", "xla_train_step", "silent_cpu", "memory", "multi_gpu")
    return {
        "format": 1,
        "probe": {"version": "1.0.0+0"},
        "started": "2026-11-21T08:00:00Z",
        "finished": "2026-11-21T08:00:09Z",
        "host": {
            "driver": "570.124.06",
            "driver_cuda": "12.8",
            "kernel_driver": "570.124.06",
            "kernel": "6.1.0",
            "pci_gpus": 1,
            "gpus": [{"name": "NVIDIA H100 PCIe", "compute_capability": "9.0"}],
            "device_nodes": [{"path": "/dev/nvidia0"}],
            "container": None,
            "wsl": False,
            "driver_libraries": {"cuda": {"path": "/usr/lib/libcuda.so.1", "code": 0}},
        },
        "environment": {"python": "3.11.7", "tensorflow": "2.18.1", "packages": {}, "variables": {}},
        "checks": [
            {"id": name, "outcome": "pass", "summary": "it is so", "evidence": {}, "required": True}
            for name in ids
        ],
        "logs": {"host_stderr": "", "tensorflow_stderr": ""},
    }


def check(document: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(entry for entry in document["checks"] if entry["id"] == name)
    return found


def fail(document: dict[str, Any], name: str, summary: str, **evidence: Any) -> None:
    check(document, name).update(outcome="fail", summary=summary, evidence=evidence)


def diagnosed(document: dict[str, Any]) -> Diagnosis:
    return diagnose_report(report_of(document))


def first(document: dict[str, Any]) -> str | None:
    causes = diagnosed(document).causes
    return causes[0].code if causes else None


def test_a_report_without_a_fault_has_no_cause(document: dict[str, Any]) -> None:
    found = diagnosed(document)
    assert found.causes == () and found.unknown == ()
    assert found.next_step == "nothing to fix: every check that could run here passed"
    assert found.facts == {
        "tensorflow": "2.18.1", "python": "3.11.7", "driver": "570.124.06", "driver_cuda": "12.8",
        "gpu": "NVIDIA H100 PCIe", "os": "linux",
    }  # fmt: skip


def variable(problem: str, severity: str = "fault", name: str = "X", value: str = "y") -> dict[str, str]:
    return {"name": name, "value": value, "problem": problem, "severity": severity, "wrong": "it is wrong"}


@pytest.mark.parametrize(
    ("problem", "code"),
    [
        ("visible_devices_hides_all_gpus", "visible_devices_misset"),
        ("driver_capabilities_without_compute", "container_no_gpu_access"),
        ("stubs_on_library_path", "libcuda_wrong_or_not_found"),
        ("compat_on_library_path", "forward_compat_unsupported"),
        ("old_cudnn_on_library_path", "cudnn_version_mismatch"),
        ("xla_flags_file_name", "xla_flags_wrong"),
        ("tf_xla_flags_unknown_flag", "xla_flags_wrong"),
        ("keras_backend_missing", "keras_backend_wrong"),
        ("min_multiprocessors_hides_gpus", "gpu_below_minimum_multiprocessors"),
        ("ptx_jit_disabled", "compute_capability_unsupported"),
        ("gpu_allocator_unknown", "allocator_wrong"),
    ],
)
def test_a_harmful_variable_is_the_cause(document: dict[str, Any], problem: str, code: str) -> None:
    fail(document, "environment", "X='y': it is wrong", variables=[variable(problem)])
    cause = diagnosed(document).causes[0]
    assert cause.code == code
    assert "X" in cause.title and "it is wrong" in cause.title


def test_a_variable_that_does_no_harm_here_is_not_a_cause(document: dict[str, Any]) -> None:
    notice = variable("visible_devices_hides_all_gpus", severity="notice")
    check(document, "environment")["evidence"] = {"variables": [notice]}
    assert first(document) is None


@pytest.mark.parametrize(
    ("name", "summary", "code"),
    [
        (
            "cuda_libraries",
            "libcusolver.so.11 is installed (~/x.so), but not where the loader looks",
            "library_path_not_set",
        ),
        (
            "cuda_libraries",
            "libcudnn.so.9 is not found (there is libcudnn.so.8)",
            "cuda_library_missing_or_wrong_version",
        ),
        (
            "cuda_libraries",
            "cuDNN 9.1.0 is older than the 9.3.0.75 that TensorFlow was built with",
            "cudnn_version_mismatch",
        ),
        ("cudnn_load", "cuDNN does not load", "cudnn_version_mismatch"),
        (
            "compute_capability",
            "the wheel has no kernels for X (compute capability 3.5)",
            "compute_capability_unsupported",
        ),
        (
            "compute_capability",
            "on X the driver compiles kernels of the wheel from PTX, which takes a driver for CUDA 12.5",
            "driver_too_old",
        ),
        (
            "xla_toolchain",
            "XLA finds no ptxas, without which it compiles nothing",
            "ptxas_missing_or_unsuitable",
        ),
        ("xla_toolchain", "XLA finds no libdevice", "libdevice_not_found"),
        ("silent_cpu", "the step ran on the CPU", "silent_cpu"),
        (
            "tensorflow_build",
            "TensorFlow is not installed: No module named 'tensorflow'",
            "tensorflow_not_installed",
        ),
        ("multi_gpu", "/dev/shm has 64 MiB", "nccl_failure"),
    ],
)
def test_a_problem_of_a_check_is_the_cause(
    document: dict[str, Any], name: str, summary: str, code: str
) -> None:
    fail(document, name, summary)
    assert first(document) == code


@pytest.mark.parametrize(
    ("problem", "package", "code"),
    [
        ("numpy_2", "numpy", "numpy_abi_break"),
        ("protobuf_4", "protobuf", "protobuf_conflict"),
        ("requirement_unmet", "keras", "keras_version_conflict"),
        ("requirement_unmet", "absl-py", "python_package_conflict"),
        ("several_distributions", "tensorflow", "wrong_tensorflow_imported"),
    ],
)
def test_a_package_that_does_not_fit_is_the_cause(
    document: dict[str, Any], problem: str, package: str, code: str
) -> None:
    found = {"problem": problem, "package": package, "severity": "fault", "wrong": "it does not fit"}
    fail(document, "python_stack", "it does not fit", problems=[found])
    cause = diagnosed(document).causes[0]
    assert (cause.code, cause.title) == (code, "it does not fit.")


def test_the_error_of_the_driver_is_the_cause_not_its_consequences(document: dict[str, Any]) -> None:
    document["host"]["driver_libraries"]["cuda"].update(code=803)
    fail(document, "gpu_visible", "TensorFlow sees no GPU")
    found = diagnosed(document)
    assert [cause.code for cause in found.causes] == ["driver_library_mismatch"]


def without_driver(document: dict[str, Any]) -> None:
    document["host"].update(driver=None, driver_cuda=None, kernel_driver=None, gpus=[], device_nodes=[])
    document["host"]["driver_libraries"]["cuda"].update(path=None, code=None)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"pci_gpus": 1}, "driver_not_loaded"),
        ({"pci_gpus": 0}, "no_gpu_in_machine"),
        ({"pci_gpus": 0, "container": "docker"}, "no_gpu_in_machine"),
        ({"pci_gpus": None}, "libcuda_wrong_or_not_found"),
        ({"pci_gpus": 1, "kernel_driver": "570.124.06", "container": "docker"}, "container_no_gpu_access"),
        ({"pci_gpus": 0, "wsl": True}, "libcuda_wrong_or_not_found"),
    ],
)
def test_without_libcuda_the_machine_shows_why(
    document: dict[str, Any], changes: dict[str, Any], code: str
) -> None:
    without_driver(document)
    document["host"].update(changes)
    assert first(document) == code


def test_printed_lines_of_a_failed_check_are_read_with_their_place(document: dict[str, Any]) -> None:
    lines = [
        "Traceback (most recent call last):",
        "ImportError: DLL load failed",
        "A module that was compiled using NumPy 1.x cannot be run in",
    ]
    fail(document, "tensorflow_build", "TensorFlow can't be imported", traceback=lines)
    cause = diagnosed(document).causes[0]
    assert cause.code == "numpy_abi_break"
    assert cause.evidence[0].where == "checks.tensorflow_build, line 4"


def test_a_passed_check_is_not_searched_for_faults(document: dict[str, Any]) -> None:
    check(document, "gpu_compute")["summary"] = "no kernel image is available for execution on the device"
    assert first(document) is None


def test_the_logs_are_read_with_their_place(document: dict[str, Any]) -> None:
    document["logs"]["tensorflow_stderr"] = (
        "x\nWARNING: no kernel image is available for execution on the device\n"
    )
    cause = diagnosed(document).causes[0]
    assert cause.code == "compute_capability_unsupported"
    assert cause.evidence[0].where == "logs.tensorflow_stderr, line 2"


def test_a_failed_check_without_a_cause_is_not_recognized(document: dict[str, Any]) -> None:
    fail(document, "gpu_compute", "matrix product differs by 0.3")
    found = diagnosed(document)
    assert found.causes == ()
    assert [line.text for line in found.unknown] == ["gpu_compute: fail: matrix product differs by 0.3"]
    assert found.next_step.startswith("no known cause fits the checks that did not pass")


@pytest.mark.parametrize("value", [None, [], {}, 3, "text", [None], {"gpus": 3}])
@pytest.mark.parametrize("part", ["evidence", "logs", "host"])
def test_fields_of_a_wrong_shape_show_nothing(document: dict[str, Any], part: str, value: Any) -> None:
    changed = copy.deepcopy(document)
    if part == "evidence" and isinstance(value, dict):
        changed["checks"][2]["evidence"] = {"variables": value}
    elif part == "host" and isinstance(value, dict):
        changed["host"] = {"driver_libraries": value, "gpus": []}
    elif part == "logs":
        changed["logs"] = value
    assert diagnosed(changed) is not None


def test_every_listed_field_is_one_of_a_report() -> None:
    names = {field.path[0] for field in fields()}
    assert names <= {"host", "environment", "checks", "logs"}
