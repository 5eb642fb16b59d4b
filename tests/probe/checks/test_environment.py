"""Variables: which values hide a GPU or break something, here or elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from validator import problems
from validator.probe import installed, table
from validator.probe.check import Context, Result
from validator.probe.checks import environment

ROWS = table("variables")["variables"]


def run(facts: dict[str, Any], **values: str) -> Result:
    facts["environment"]["variables"] = values
    return environment.environment.run(Context(facts))


def problem(facts: dict[str, Any], **values: str) -> tuple[str | None, str | None]:
    """Return the code of the only problem and its severity, after checking what follows from them."""
    result = run(facts, **values)
    (entry,) = result.evidence["variables"]
    assert values == {entry["name"]: entry["value"]}
    if not result.problems:
        assert result.outcome == "pass"
        return None, None
    (found,) = result.problems
    assert {found["variable"]: found["value"]} == values
    assert result.outcome == ("fail" if found["severity"] == "fault" else "pass")
    assert problems.sentence(found) in result.sentence
    return found["code"], found["severity"]


@pytest.fixture
def two_gpus(gpu_facts: dict[str, Any]) -> dict[str, Any]:
    gpus = gpu_facts["host"]["gpus"]
    gpus[0]["uuid"] = "GPU-aaaa-1"
    gpus.append({**gpus[0], "uuid": "GPU-bbbb-2"})
    return gpu_facts


@pytest.fixture
def tensorflow(gpu_facts: dict[str, Any], tmp_path: Path) -> Path:
    """Return the directory of a TensorFlow 2.21.0 that knows two flags."""
    directory = tmp_path / "tensorflow"
    directory.mkdir()
    held = b"\0xla_gpu_cuda_data_dir\0tf_xla_auto_jit\0tf_xla_enable_xla_devices\0"
    (directory / "libtensorflow_framework.so.2").write_bytes(held)
    gpu_facts["tensorflow"] = {
        "version": "2.21.0",
        "directory": str(directory),
        "build": {"is_cuda_build": True, "cuda_version": "12.5.1"},
        "built_with": {"nvidia-cudnn-cu12": "9.3.0.75"},
    }
    return directory


def test_the_variables_of_our_own_images_pass(gpu_facts: dict[str, Any], tensorflow: Path) -> None:
    site = tensorflow.parent
    libraries = [site / "nvidia" / name / "lib" for name in ("cudnn", "cublas")]
    for library in libraries:
        library.mkdir(parents=True)
    (libraries[0] / "libcudnn.so.9").touch()
    (site / "nvidia_cudnn_cu12-9.3.0.75.dist-info").mkdir()
    result = run(
        gpu_facts,
        NVIDIA_VISIBLE_DEVICES="all",
        NVIDIA_DRIVER_CAPABILITIES="compute,utility",
        NVIDIA_REQUIRE_CUDA="cuda>=12.0 driver>=525",
        LD_LIBRARY_PATH=":".join(map(str, libraries)),
        PATH="/opt/venv/bin:/usr/bin",
        TF_SOMETHING_ELSE="1",
    )
    assert result.outcome == "pass"
    assert result.statement == {"code": "variables_harmless", "count": 4}
    assert result.problems == []
    assert result.evidence["others"] == ["PATH", "TF_SOMETHING_ELSE"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("0,1", (None, None)),
        ("1", (None, None)),
        ("GPU-a,GPU-bbbb-2", (None, None)),
        ("MIG-0123", (None, None)),
        ("", ("visible_devices_hides_all_gpus", "fault")),
        ("-1", ("visible_devices_hides_all_gpus", "fault")),
        ("NoDevFiles", ("visible_devices_hides_all_gpus", "fault")),
        ("2,0", ("visible_devices_hides_all_gpus", "fault")),
        ("GPU-c", ("visible_devices_hides_all_gpus", "fault")),
        ("0,-1,1", ("visible_devices_hides_gpus", "fault")),
        ("0,2", ("visible_devices_hides_gpus", "advisory")),
    ],
)
def test_visible_devices(value: str, expected: tuple[str, str], two_gpus: dict[str, Any]) -> None:
    assert problem(two_gpus, CUDA_VISIBLE_DEVICES=value) == expected


def test_hiding_gpus_does_no_harm_on_a_machine_without_any(facts: dict[str, Any]) -> None:
    assert problem(facts, CUDA_VISIBLE_DEVICES="-1") == ("visible_devices_hides_all_gpus", "advisory")
    assert problem(facts, CUDA_VISIBLE_DEVICES="3") == (None, None)


@pytest.mark.parametrize("value", ["-1", ""])
def test_hidden_gpus_on_a_machine_without_any_are_reported_consistently(
    value: str, facts: dict[str, Any]
) -> None:
    result = run(facts, CUDA_VISIBLE_DEVICES=value)
    assert result.outcome == "pass"
    assert "could cause a problem" not in result.sentence
    assert result.sentence.startswith(
        "no variable breaks anything here (1 variable checked); note: CUDA_VISIBLE_DEVICES="
    )
    assert result.sentence.endswith("CUDA hides every GPU")


def test_the_summary_counts_correctly(gpu_facts: dict[str, Any]) -> None:
    assert run(gpu_facts).sentence == "none of the variables that could cause a problem is set"
    assert run(gpu_facts, NVIDIA_VISIBLE_DEVICES="all").sentence.endswith("(1 variable checked)")
    both = run(gpu_facts, NVIDIA_VISIBLE_DEVICES="all", CUDA_VISIBLE_DEVICES="0")
    assert both.sentence.endswith("(2 variables checked)")


def test_the_summary_names_what_is_hidden(two_gpus: dict[str, Any]) -> None:
    summary = run(two_gpus, CUDA_VISIBLE_DEVICES="0,5,1").sentence
    assert summary == (
        "CUDA_VISIBLE_DEVICES='0,5,1': '5' names no GPU: CUDA doesn't offer it, nor any after it (1)"
    )


@pytest.mark.parametrize("value", ["", "void", "none"])
def test_a_container_that_requests_no_gpu(value: str, facts: dict[str, Any]) -> None:
    facts["host"]["container"] = None
    assert problem(facts, NVIDIA_VISIBLE_DEVICES=value) == (None, None)
    facts["host"]["container"] = "docker"
    assert problem(facts, NVIDIA_VISIBLE_DEVICES=value) == ("container_without_gpu", "advisory")
    facts["host"]["kernel_driver"] = "550.54.14"
    assert problem(facts, NVIDIA_VISIBLE_DEVICES=value) == ("container_without_gpu", "fault")


def test_driver_capabilities(gpu_facts: dict[str, Any]) -> None:
    for value in ("all", "compute", "utility,compute"):
        assert problem(gpu_facts, NVIDIA_DRIVER_CAPABILITIES=value) == (None, None)
    name = "driver_capabilities_without_compute"
    assert problem(gpu_facts, NVIDIA_DRIVER_CAPABILITIES="utility") == (name, "advisory")
    gpu_facts["host"]["driver_libraries"]["cuda"]["path"] = None
    assert problem(gpu_facts, NVIDIA_DRIVER_CAPABILITIES="utility") == (name, "fault")


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("XLA_FLAGS", "--xla_gpu_cuda_data_dir=/", ("xla_cuda_data_dir_without_libdevice", "advisory")),
        ("XLA_FLAGS", "--xla_gpu_cuda_data_dir='/no/such'", ("xla_cuda_data_dir_missing", "advisory")),
        ("XLA_FLAGS", "xla_gpu_cuda_data_dir=/usr", ("xla_flags_file_name", "fault")),
        ("XLA_FLAGS", "--xla_gpu_cuda_data=/usr", ("xla_flags_unknown_flag", "fault")),
        ("XLA_FLAGS", "--tf_xla_auto_jit=2", ("xla_flags_unknown_flag", "fault")),
        ("XLA_FLAGS", "", (None, None)),
        ("TF_XLA_FLAGS", "--tf_xla_auto_jit=2", (None, None)),
        ("TF_XLA_FLAGS", "--tf_xla_auto_jit=fusible", (None, None)),
        ("TF_XLA_FLAGS", "--tf_xla_auto_jit=on", ("tf_xla_auto_jit_unread", "fault")),
        ("TF_XLA_FLAGS", "--tf_xla_autojit=2", ("tf_xla_flags_unknown_flag", "fault")),
        ("TF_XLA_FLAGS", "2", ("tf_xla_flags_file_name", "fault")),
        ("TF_XLA_FLAGS", "--tf_xla_enable_xla_devices", ("xla_devices_retired", "advisory")),
        ("TF_XLA_FLAGS", "--tf_xla_enable_xla_devices=false", (None, None)),
    ],
)
@pytest.mark.usefixtures("tensorflow")
def test_flags(name: str, value: str, expected: tuple[str, str], gpu_facts: dict[str, Any]) -> None:
    assert problem(gpu_facts, **{name: value}) == expected


def test_flags_in_a_file(gpu_facts: dict[str, Any], tensorflow: Path) -> None:
    file = tensorflow.parent / "flags"
    file.write_text("--xla_gpu_cuda_data_dir=/no/such\n--xla_nonsense\n")
    result = run(gpu_facts, XLA_FLAGS=str(file))
    assert [entry["code"] for entry in result.problems] == [
        "xla_flags_from_file",
        "xla_flags_unknown_flag",
        "xla_cuda_data_dir_missing",
    ]


def library(directory: Path, name: str, target: str | None = None) -> str:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / (target or name)).touch()
    if target:
        (directory / name).symlink_to(target)
    return str(directory)


def test_stubs_and_compat_on_the_library_path(gpu_facts: dict[str, Any], tmp_path: Path) -> None:
    stubs = library(tmp_path / "cuda" / "lib64" / "stubs", "libcuda.so.1")
    compat = library(tmp_path / "cuda" / "compat", "libcuda.so.1")
    assert problem(gpu_facts, LD_LIBRARY_PATH=stubs) == ("stubs_on_library_path", "fault")
    assert problem(gpu_facts, LD_LIBRARY_PATH=f"/x:{compat}") == ("compat_on_library_path", "advisory")
    gpu_facts["host"]["driver_libraries"]["cuda"]["code"] = 804
    assert problem(gpu_facts, LD_LIBRARY_PATH=compat) == ("compat_on_library_path", "fault")
    harmless = library(tmp_path / "other" / "stubs", "libcuda.so")
    assert problem(gpu_facts, LD_LIBRARY_PATH=harmless) == (None, None)


@pytest.mark.usefixtures("tensorflow")
def test_an_older_cudnn_on_the_library_path(gpu_facts: dict[str, Any], tmp_path: Path) -> None:
    old = library(tmp_path / "old", "libcudnn.so.9", "libcudnn.so.9.1.0")
    new = library(tmp_path / "new", "libcudnn.so.9", "libcudnn.so.9.10.2")
    assert problem(gpu_facts, LD_LIBRARY_PATH=f"{old}:{new}") == ("old_cudnn_on_library_path", "fault")
    assert problem(gpu_facts, LD_LIBRARY_PATH=f"{new}:{old}") == (None, None)


@pytest.mark.parametrize(
    ("capability", "forced", "disabled"),
    [("8.0", "fault", "advisory"), ("9.0", "advisory", "fault"), ("12.0", "advisory", "fault")],
)
@pytest.mark.usefixtures("tensorflow")
def test_variables_that_force_or_forbid_compiling_ptx(
    capability: str, forced: str, disabled: str, gpu_facts: dict[str, Any]
) -> None:
    gpu_facts["host"]["gpus"][0]["compute_capability"] = capability
    assert problem(gpu_facts, CUDA_FORCE_PTX_JIT="1") == ("ptx_jit_forced", forced)
    assert problem(gpu_facts, CUDA_DISABLE_PTX_JIT="1") == ("ptx_jit_disabled", disabled)
    assert problem(gpu_facts, CUDA_FORCE_PTX_JIT="0") == (None, None)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("TF_CPP_MIN_LOG_LEVEL", "1", None),
        ("TF_CPP_MIN_LOG_LEVEL", "2", "log_level_hides_warnings"),
        ("TF_CPP_MIN_LOG_LEVEL", "3", "log_level_hides_errors"),
        ("TF_CPP_MIN_LOG_LEVEL", "ERROR", None),
        ("TF_FORCE_GPU_ALLOW_GROWTH", "true", None),
        ("TF_FORCE_GPU_ALLOW_GROWTH", "1", "allow_growth_unread"),
        ("TF_GPU_ALLOCATOR", "cuda_malloc_asnyc", "gpu_allocator_unknown"),
        ("TF_USE_LEGACY_KERAS", "yes", "legacy_keras_unread"),
        ("TF_USE_LEGACY_KERAS", "1", None),
        ("CUDA_DEVICE_ORDER", "PCI_BUS_ID", None),
        ("CUDA_DEVICE_ORDER", "PCI", "device_order_unknown"),
        ("CUDA_CACHE_PATH", "/dev/null/cache", "ptx_cache_unwritable"),
        ("TF_NUM_INTRAOP_THREADS", "all", "number_unread"),
        ("TF_MIN_GPU_MULTIPROCESSOR_COUNT", "114", None),
        ("TF_MIN_GPU_MULTIPROCESSOR_COUNT", "many", "min_multiprocessors_unread"),
    ],
)
def test_other_variables(name: str, value: str, expected: str | None, gpu_facts: dict[str, Any]) -> None:
    assert problem(gpu_facts, **{name: value}) == (expected, "advisory" if expected else None)


def test_a_limit_that_leaves_the_gpu_out(gpu_facts: dict[str, Any]) -> None:
    found = problem(gpu_facts, TF_MIN_GPU_MULTIPROCESSOR_COUNT="115")
    assert found == ("min_multiprocessors_hides_gpus", "fault")


@pytest.mark.parametrize(
    ("backend", "packages", "expected"),
    [
        ("tensorflow", {"keras": "3.12.0"}, (None, None)),
        ("banana", {"keras": "3.12.0"}, ("keras_backend_unknown", "fault")),
        ("jax", {"keras": "3.12.0"}, ("keras_backend_missing", "fault")),
        ("jax", {"keras": "3.12.0", "jax": "0.5"}, ("keras_backend_other", "advisory")),
        ("banana", {"keras": "2.15.0"}, (None, None)),
    ],
)
def test_the_backend_of_keras(
    backend: str, packages: dict[str, str], expected: tuple[str, str], facts: dict[str, Any]
) -> None:
    facts["environment"]["packages"] = packages
    assert problem(facts, KERAS_BACKEND=backend) == expected


def test_the_table_is_valid() -> None:
    names = [row["name"] for row in ROWS]
    assert names == sorted(set(names))
    assert {row["rule"] for row in ROWS if "rule" in row} == set(environment.RULES)
    kinds = {"visibility", "loader", "xla", "keras", "memory", "performance", "logging", "python", "tpu"}
    assert {row["kind"] for row in ROWS} == kinds
    for name in names:
        assert installed.VARIABLES.match(name) and not installed.FOREIGN.match(name), name


def test_every_problem_of_a_variable_is_in_the_catalogue() -> None:
    rows = problems.CATALOGUE.items()
    known = {code for code, kind in rows if kind.group == "environment" and kind.severity}
    told = {row["otherwise"] for row in ROWS if "otherwise" in row}
    told |= {row["notice"]["code"] for row in ROWS if "notice" in row}
    assert told <= known
    assert len(known) > 25
