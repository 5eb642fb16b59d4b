"""From a probe's report to the cause: by its fields, by the output of its checks, and by its logs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from validator.diagnosis import causes, diagnose_report
from validator.diagnosis.observe import field_rows, problem_rows, without_provoked
from validator.model.diagnosis import Diagnosis
from validator.model.report import report_of
from validator.probe.checks import CHECKS
from validator.problems import CATALOGUE, clause, problem, sentence, statement


@pytest.fixture
def document() -> dict[str, Any]:
    """Return a report of a machine with an H100 on which every check passed."""
    ids = (
        "driver", "gpu_device_nodes", "environment", "python_stack", "cuda_libraries", "cudnn_load",
        "library_conflicts", "compute_capability", "tensorflow_build", "xla_toolchain", "gpu_visible",
        "gpu_compute", "xla_train_step", "silent_cpu", "memory", "multi_gpu", "multi_worker",
    )  # fmt: skip
    return {
        "format": 2,
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
            {"id": name, "outcome": "pass", "problems": [], "evidence": {}, "required": True} for name in ids
        ],
        "logs": {"host_stderr": "", "tensorflow_stderr": ""},
    }


def check(document: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(entry for entry in document["checks"] if entry["id"] == name)
    return found


def fail(document: dict[str, Any], name: str, *found: dict[str, Any], **evidence: Any) -> None:
    check(document, name).update(outcome="fail", problems=list(found), evidence=evidence)


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


def variable(code: str, severity: str = "fault") -> dict[str, Any]:
    fields = {"entry": "9", "gpus": [], "file": "y", "flags": ["y"], "level": "9", "package": "jax"}
    fields |= {"directory": "/y", "path": "/y/libcudnn.so.9", "version": "8.9", "built_with": "9.3"}
    return {"code": code, "severity": severity, "variable": "X", "value": "y", **fields}


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
    fail(document, "environment", variable(problem))
    cause = diagnosed(document).causes[0]
    assert cause.code == code
    assert "X" in cause.title and clause(variable(problem)) in cause.title
    assert cause.evidence[0].text == sentence(variable(problem))
    assert cause.evidence[0].where == "checks.environment.problems[0]"


def test_a_variable_that_does_no_harm_here_is_not_a_cause(document: dict[str, Any]) -> None:
    advisory = variable("visible_devices_hides_all_gpus", severity="advisory")
    check(document, "environment")["problems"] = [advisory]
    assert first(document) is None


@pytest.mark.parametrize(
    ("name", "found", "code"),
    [
        (
            "cuda_libraries",
            problem("library_installed_not_found", soname="libcusolver.so.11", path="~/x.so"),
            "library_path_not_set",
        ),
        (
            "cuda_libraries",
            problem("library_not_found", soname="libcudnn.so.9", others=["libcudnn.so.8"]),
            "cuda_library_missing_or_wrong_version",
        ),
        (
            "cuda_libraries",
            problem("library_not_opened", soname="libcudnn.so.9", error="wrong ELF class"),
            "cuda_library_missing_or_wrong_version",
        ),
        (
            "cuda_libraries",
            problem("cudnn_too_old", version="9.1.0", path="/x", built_with="9.3.0.75"),
            "cudnn_version_mismatch",
        ),
        ("cudnn_load", problem("cudnn_not_loaded", error="no such file"), "cudnn_version_mismatch"),
        (
            "compute_capability",
            problem("no_kernels_for_gpu", gpu="X", compute_capability="3.5"),
            "compute_capability_unsupported",
        ),
        (
            "compute_capability",
            problem(
                "driver_lacks_ptx", gpu="X", compute_capability="9.0", compiled=3, units=9, isa="8.5",
                cuda="12.5", driver_cuda="12.2",
            ),
            "driver_too_old",
        ),
        ("xla_toolchain", problem("ptxas_missing"), "ptxas_missing_or_unsuitable"),
        ("xla_toolchain", problem("ptxas_before_11_1", version="11.0"), "ptxas_missing_or_unsuitable"),
        ("xla_toolchain", problem("libdevice_missing"), "libdevice_not_found"),
        ("silent_cpu", problem("loss_not_on_gpu", device="CPU:0"), "silent_cpu"),
        ("tensorflow_build", problem("tensorflow_missing", error="x"), "tensorflow_not_installed"),
        (
            "tensorflow_build",
            problem("tensorflow_shadowed", imported="2.18.1", installed="2.17.0"),
            "wrong_tensorflow_imported",
        ),
        ("multi_gpu", problem("shared_memory_small", bytes=64 << 20), "nccl_failure"),
        (
            "multi_worker",
            problem("worker_port_closed", rank=1, address="node2:29500", error="Connection refused"),
            "worker_unreachable",
        ),
        ("multi_worker", problem("worker_port_taken", address="node1:1", error="x"), "worker_unreachable"),
        (
            "multi_worker",
            problem("worker_lost", rank=1, address="node2:29500", stage="train", how="silent", error=""),
            "worker_lost",
        ),
        (
            "multi_worker",
            problem("worker_hangs", rank=1, address="node2:29500", stage="connect", seconds=240.0),
            "worker_lost",
        ),
        (
            "multi_worker",
            problem("workers_with_different_tensorflow", found=[{"rank": 0, "value": "2.21.0"}]),
            "workers_differ",
        ),
        (
            "multi_worker",
            problem(
                "nccl_wrong_interface", rank=1, interface="docker0", address="172.17.0.1", wanted="eth0",
                wanted_address="10.0.0.5",
            ),
            "nccl_wrong_network",
        ),
        (
            "gpu_device_nodes",
            problem("device_file_missing", path="/dev/nvidia-uvm"),
            "driver_state_needs_reload",
        ),
        ("memory", problem("memory_grows_over_steps", mode="fit", growth_bytes=9, steps=9), "memory_leak"),
        ("python_stack", problem("numpy_2", package="numpy", installed="2.1"), "numpy_abi_break"),
        ("python_stack", problem("protobuf_4", package="protobuf", installed="5"), "protobuf_conflict"),
        (
            "python_stack",
            problem("requirement_unmet", package="keras", required=">=3", installed="2"),
            "keras_version_conflict",
        ),
        (
            "python_stack",
            problem("requirement_unmet", package="absl-py", required=">=1", installed="0.1"),
            "python_package_conflict",
        ),
        (
            "python_stack",
            problem("several_versions", package="tensorflow", versions=["2.18.1", "2.17.0"]),
            "wrong_tensorflow_imported",
        ),
    ],
    ids=lambda value: value["code"] if isinstance(value, dict) else value,
)  # fmt: skip
def test_a_problem_of_a_check_is_the_cause(
    document: dict[str, Any], name: str, found: dict[str, Any], code: str
) -> None:
    fail(document, name, found)
    cause = diagnosed(document).causes[0]
    assert cause.code == code
    evidence = {(one.where, one.text) for one in cause.evidence}
    assert (f"checks.{name}.problems[0]", sentence(found)) in evidence


def test_wrong_gradients_of_several_workers_are_not_a_matter_of_their_connection(
    document: dict[str, Any],
) -> None:
    fail(document, "multi_worker", problem("gradients_differ", workers=2, difference=0.1, tolerance=1e-4))
    assert not {"worker_unreachable", "worker_lost", "workers_differ", "nccl_wrong_network"} & {
        cause.code for cause in diagnosed(document).causes
    }


def test_a_build_without_cuda_is_a_statement(document: dict[str, Any]) -> None:
    build = check(document, "tensorflow_build")
    build.update(outcome="skip", statement=statement("tensorflow_without_cuda"))
    assert first(document) == "cpu_only_build"


def test_the_error_of_the_driver_is_the_cause_not_its_consequences(document: dict[str, Any]) -> None:
    document["host"]["driver_libraries"]["cuda"].update(code=803)
    fail(document, "gpu_visible", problem("tensorflow_sees_no_gpu", offered=None, variables=[]))
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
    found = problem("tensorflow_import_failed", error="ImportError: DLL load failed")
    fail(document, "tensorflow_build", found, traceback=lines)
    cause = diagnosed(document).causes[0]
    assert cause.code == "numpy_abi_break"
    assert cause.evidence[0].where == "checks.tensorflow_build, line 4"


def test_a_passed_check_is_not_searched_for_faults(document: dict[str, Any]) -> None:
    error = "no kernel image is available for execution on the device"
    stated = statement("trial_raised", trial="growth", error=error)
    check(document, "gpu_compute")["statement"] = stated
    assert first(document) is None


def test_the_logs_are_read_with_their_place(document: dict[str, Any]) -> None:
    document["logs"]["tensorflow_stderr"] = (
        "x\nWARNING: no kernel image is available for execution on the device\n"
    )
    cause = diagnosed(document).causes[0]
    assert cause.code == "compute_capability_unsupported"
    assert cause.evidence[0].where == "logs.tensorflow_stderr, line 2"


NO_KERNEL = "no kernel image is available for execution on the device"


def around(kind: str, name: str, *lines: str) -> list[str]:
    return [f"[probe begin: {kind} {name}]", *lines, f"[probe end: {kind} {name}]"]


def provoking(name: str, *lines: str) -> list[str]:
    return around("check", name, "before", *around("provoked by", name, *lines), "after")


def kept(*lines: str) -> list[str]:
    """Return what is left, without empty lines."""
    text = without_provoked("\n".join(lines))
    assert text.count("\n") == len(lines) - 1, "the lines keep their numbers"
    return text.split()


def test_a_provoked_line_is_left_out_and_the_same_line_outside_is_found(document: dict[str, Any]) -> None:
    logs = document["logs"]
    logs["tensorflow_stderr"] = "\n".join(provoking("keras_jit", NO_KERNEL))
    assert diagnosed(document).causes == ()
    for lines in (around("check", "keras_jit", NO_KERNEL), [*provoking("keras_jit", NO_KERNEL), NO_KERNEL]):
        logs["tensorflow_stderr"] = "\n".join(lines)
        cause = diagnosed(document).causes[0]
        assert cause.code == "compute_capability_unsupported"
        assert cause.evidence[0].where == f"logs.tensorflow_stderr, line {lines.index(NO_KERNEL, -2) + 1}"


@pytest.mark.parametrize(
    ("lost", "left"),
    [
        (range(2), ["after", "before", "after"]),
        (range(3), ["here", "after", "before", "after"]),
        ([2], ["before", "here", "after", "before", "after"]),
        ([4], ["before", "here", "after", "before", "after"]),
        (range(4, 7), ["before", "here", "before", "after"]),
    ],
    ids=["the start", "the start with the first mark", "the first mark", "the last mark", "all of the end"],
)
def test_a_log_that_lost_a_mark_hides_nothing_else(lost: Sequence[int], left: list[str]) -> None:
    lines = [*provoking("keras_jit", "here"), *provoking("attention", "there")]
    assert kept(*(line for number, line in enumerate(lines) if number not in lost)) == left


def test_a_process_that_dies_in_a_section_hides_neither_its_last_words_nor_the_next_process() -> None:
    died = provoking("keras_jit", "last", "words")[:5]
    assert kept(*died) == ["before", "last", "words"]
    assert kept(*died, *around("check", "attention", "there")) == ["before", "last", "words", "there"]
    # The next process takes up the check again.
    assert kept(*died, *provoking("keras_jit", "here")) == ["before", "last", "words", "before", "after"]


@pytest.mark.parametrize(
    "fake", ["[probe begin: provoked by keras_jit]", "[probe begin: provoked by hostile]"]
)
def test_a_check_that_prints_a_mark_itself_hides_no_line_of_another(fake: str) -> None:
    hostile = around("check", "hostile", fake)
    between = around("check", "other", "other")
    after = provoking("keras_jit", "provoked")
    assert kept(*hostile, *between, *after) == ["other", "before", "after"]
    # Nor does it hide its own lines in the name of another check.
    if "hostile" not in fake:
        own = around("check", "hostile", fake, "own", fake.replace("begin", "end"))
        assert "own" in kept(*own)


def test_a_mark_after_text_without_a_line_break_counts() -> None:
    lines = provoking("keras_jit", "provoked")
    lines[1:3] = ["before[probe begin: provoked by keras_jit]"]
    assert kept(*lines) == ["before", "after"]


def test_a_failed_check_without_a_cause_is_not_recognized(document: dict[str, Any]) -> None:
    fail(document, "gpu_compute", problem("result_differs_from_cpu", operation="MatMul", difference=0.3))
    found = diagnosed(document)
    assert found.causes == ()
    assert [line.text for line in found.unknown] == [
        "gpu_compute: fail: MatMul differs from the CPU's result by 3.0e-01 of its magnitude"
    ]
    assert found.next_step.startswith("no known cause explains the checks that did not pass")


def test_the_rows_fit_the_report_and_the_catalogue_of_problems() -> None:
    assert {row.path[0] for row in field_rows()} <= {"host", "environment"}
    checks = {one.id for one in CHECKS}
    for row in problem_rows():
        assert row.when.kind in checks
        asked = dict(row.when.values)
        kinds = [CATALOGUE[code.text] for code in asked.pop("code", ())] or [
            kind for kind in CATALOGUE.values() if kind.group == row.when.kind and kind.severity
        ]
        assert {outcome.text for outcome in asked.pop("outcome", ())} <= {"fail"}
        for kind in kinds:
            assert {*asked, *row.fields.values()} <= set(kind.fields), row


def test_the_problems_of_causes_are_codes() -> None:
    codes = {
        wanted.text
        for entry in causes()
        for sign in entry.signs
        for one in sign.when.comparisons()
        if one.kind.endswith("_problem")
        for wanted in one.values.get("problem", ())
    }
    assert codes <= set(CATALOGUE)
    assert len(codes) > 20


@pytest.mark.parametrize(
    ("flags", "title", "remedy"),
    [
        ("", "in full float32", "Leave TF32 on"),
        ("--xla_gpu_autotune_level=0", "turns XLA's autotuner off", "Take --xla_gpu_autotune_level=0 out"),
    ],
)
def test_a_convolution_that_only_full_float32_fails_is_not_the_image_s_fault(
    flags: str, title: str, remedy: str
) -> None:
    """A real report of an H200, on which the same models train in TensorFlow's defaults."""
    path = Path(__file__).parent.parent / "corpus/reports/h200-tf2.21.0-cuda12.5-cudnn9.3-py312.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    check = next(one for one in document["checks"] if one["id"] == "xla_convolution")
    if flags:
        document["environment"]["variables"]["XLA_FLAGS"] = flags
        error = "UnknownError: CUDNN_STATUS_NOT_SUPPORTED"
        fields = {"severity": "fault", "program": "forward", "type": "float16", "error": error}
        check["problems"] = [{"code": "convolution_not_compiled", **fields}]
        check["evidence"] = {}
        document["checks"] = [check]
        document["logs"]["tensorflow_stderr"] = ""
    [cause] = diagnose_report(report_of(document)).causes
    assert title in cause.title
    assert remedy in cause.remedies[0].says


def test_a_check_that_reached_its_limit_is_named(document: dict[str, Any]) -> None:
    document["checks"][-1] |= {"outcome": "timeout"}
    assert "(multi_worker reached the time limit)" in diagnose_report(report_of(document)).read
