"""The judgements of the checks about the collected facts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from validator.probe import loader, tensorflow_devices
from validator.probe.check import FULL, Check, Context, Result
from validator.probe.check import check as make_check
from validator.probe.checks import compute, data, environment, layers, libraries, packages, xla_programs
from validator.probe.child import EXCEPTION, SIGNAL, Answer, Failure


def changed(facts: dict[str, Any], **host: Any) -> Context:
    """Facts with dotted paths into `host` replaced: `nvml__answered=False`."""
    for path, value in host.items():
        *parents, name = path.split("__")
        target = facts["host"]
        for parent in parents:
            target = target["driver_libraries"][parent]
        target[name] = value
    return Context(facts)


def test_a_full_check_is_not_required_and_can_not_be() -> None:
    def question(context: Context) -> Result:
        raise AssertionError("not reached")

    assert make_check("Is it?", "host", 1.0)(question).required
    assert not make_check("Is it?", "host", 1.0, depth=FULL)(question).required
    with pytest.raises(ValueError, match="can't be full: Is it"):
        make_check("Is it?", "host", 1.0, required=True, depth=FULL)


def test_a_check_can_not_require_what_does_not_exist() -> None:
    with pytest.raises(ValueError, match="can't require gpus: Is it"):
        make_check("Is it?", "host", 1.0, requires=("lock", "gpus"))


@pytest.mark.parametrize("name", [data.CHECKPOINT, data.WEIGHTS])
def test_a_new_model_that_cannot_be_made_is_a_model_that_was_not_loaded(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(tf: Any) -> None:
        raise RuntimeError("no memory")

    monkeypatch.setattr(data, "classifier", fails)
    model = SimpleNamespace(save_weights=lambda path: None)
    found = data._saved(SimpleNamespace(__version__="2.21.0"), name, model, None, None)
    assert found["offered"] and "no memory" in found["error"]


def test_driver_passes_if_all_parts_agree(gpu_facts: dict[str, Any]) -> None:
    assert environment.driver.run(Context(gpu_facts)).outcome == "pass"


def test_driver_is_skipped_without_any_trace_of_one(facts: dict[str, Any]) -> None:
    assert environment.driver.run(Context(facts)).outcome == "skip"


@pytest.mark.parametrize("code", [34, 100])
def test_a_stub_or_no_device_on_a_machine_without_a_gpu_is_not_a_fault(
    code: int, facts: dict[str, Any]
) -> None:
    context = changed(
        facts, cuda__code=code, cuda__path="/usr/lib/libcuda.so", cuda__error=f"cuInit: ({code})"
    )
    assert environment.driver.run(context).outcome == "skip"


@pytest.mark.parametrize(
    ("host", "said"),
    [
        (
            {"cuda__path": None, "cuda__answered": False, "cuda__error": "not found"},
            "its CUDA library is not found",
        ),
        ({"cuda__code": 34, "cuda__answered": False, "cuda__error": "stub"}, "stub is loaded"),
        ({"cuda__code": 100, "cuda__answered": False, "cuda__error": "NO_DEVICE (100)"}, "NO_DEVICE"),
        ({"cuda__code": None, "cuda__answered": False, "cuda__error": "SIGSEGV"}, "SIGSEGV"),
        ({"nvml__answered": False, "nvml__error": "mismatch (18)"}, "mismatch"),
        ({"kernel_driver": "550.54.14"}, "its kernel module is version 550.54.14"),
        ({"cuda__count": 0}, "CUDA offers none of them"),
        ({"device_nodes": []}, "has no device files"),
    ],
)
def test_driver_names_the_contradictions(host: dict[str, Any], said: str, gpu_facts: dict[str, Any]) -> None:
    result = environment.driver.run(changed(gpu_facts, **host))
    assert result.outcome == "fail"
    assert said in result.sentence


def test_device_nodes(gpu_facts: dict[str, Any]) -> None:
    assert environment.gpu_device_nodes.run(Context(gpu_facts)).outcome == "pass"


@pytest.mark.parametrize(
    ("node", "said"),
    [
        ({"opens": False, "error": "Permission denied"}, "Permission denied"),
        ({"device": False}, "/dev/nvidia-uvm is not a device of the NVIDIA driver"),
        ({"registered": False}, "/dev/nvidia-uvm is not a device of the NVIDIA driver"),
        ({"path": "/dev/nvidia-caps"}, "/dev/nvidia-uvm is missing"),
    ],
)
def test_wrong_device_nodes_fail(node: dict[str, Any], said: str, gpu_facts: dict[str, Any]) -> None:
    gpu_facts["host"]["device_nodes"][0].update(node)
    result = environment.gpu_device_nodes.run(Context(gpu_facts))
    assert result.outcome == "fail"
    assert said in result.sentence


def test_device_nodes_with_unknown_registration_are_accepted(gpu_facts: dict[str, Any]) -> None:
    for node in gpu_facts["host"]["device_nodes"]:
        node["registered"] = None
    assert environment.gpu_device_nodes.run(Context(gpu_facts)).outcome == "pass"


def test_wsl_has_one_device(gpu_facts: dict[str, Any]) -> None:
    context = changed(gpu_facts, wsl=True)
    assert environment.gpu_device_nodes.run(context).sentence == "/dev/dxg is missing"
    gpu_facts["host"]["device_nodes"][0]["path"] = "/dev/dxg"
    assert environment.gpu_device_nodes.run(context).outcome == "pass"


@pytest.mark.parametrize(("gpus", "reason"), [(0, {"code": "no_gpu"}), (1, None)])
def test_a_check_that_needs_a_gpu(gpus: int, reason: dict[str, Any] | None, facts: dict[str, Any]) -> None:
    facts["host"]["gpus"] = [{}] * gpus
    check = Check("x", "x", "host", lambda context: Result("pass"), 1, ("gpu",))
    assert check.unmet(Context(facts)) == reason


@pytest.mark.parametrize(
    ("lock", "cuda", "gpus", "reason"),
    [
        ({"tensorflow-cpu": "2.21.0"}, False, 0, None),
        ({"tensorflow-cpu": "2.21.0"}, False, 1, None),
        ({"tensorflow": "2.21.0"}, True, 0, {"code": "no_gpu"}),
        ({"tensorflow": "2.21.0"}, True, 1, None),
        # Without CUDA although the lock says otherwise, or does not say so.
        ({"tensorflow": "2.21.0"}, False, 1, {"code": "tensorflow_without_cuda"}),
        (None, False, 0, {"code": "tensorflow_without_cuda"}),
    ],
)
def test_checks_that_compute_use_the_cpu_only_where_the_lock_has_no_cuda(
    lock: dict[str, str] | None, cuda: bool, gpus: int, reason: dict[str, Any] | None, facts: dict[str, Any]
) -> None:
    facts["host"]["gpus"] = [{}] * gpus
    facts["tensorflow"] = {"build": {"is_cuda_build": cuda}}
    for check in (data.save_load, xla_programs.keras_jit, layers.attention):
        assert check.unmet(Context(facts, lock)) == reason


def test_a_gpu_with_only_a_device_file_counts(facts: dict[str, Any]) -> None:
    facts["host"]["device_nodes"] = [{"path": "/dev/nvidia0"}, {"path": "/dev/nvidiactl"}]
    assert environment.gpu_device_nodes.unmet(Context(facts)) is None


def test_lock_match(facts: dict[str, Any]) -> None:
    facts["environment"]["packages"] = {"numpy": "2.0.0", "pip": "24.0", "setuptools": "70"}
    assert packages.lock_match.unmet(Context(facts)) == {"code": "no_lock"}
    result = packages.lock_match.run(Context(facts, {"numpy": "2.0.0"}))
    assert result.outcome == "pass"
    assert result.evidence["tolerated"] == ["pip", "setuptools"]


@pytest.mark.parametrize(
    ("lock", "said"),
    [
        ({"numpy": "2.0.1"}, "numpy: 2.0.1 is locked, but 2.0.0 is installed"),
        ({"numpy": "2.0.0", "six": "1"}, "six: 1 is locked, but it is not installed"),
        ({}, "numpy: 2.0.0 is installed, but it is not locked"),
        ({"numpy": "2.0.0", "pip": "23.0"}, "pip: 23.0 is locked, but 24.0 is installed"),
    ],
)
def test_lock_match_names_each_difference(lock: dict[str, str], said: str, facts: dict[str, Any]) -> None:
    facts["environment"]["packages"] = {"numpy": "2.0.0", "pip": "24.0"}
    result = packages.lock_match.run(Context(facts, lock))
    assert result.outcome == "fail"
    assert result.sentence == said


def imported(version: str) -> Any:
    """Return a TensorFlow that says it is of a version."""
    return SimpleNamespace(
        version=SimpleNamespace(VERSION=version, GIT_VERSION="v", COMPILER_VERSION="clang"),
        sysconfig=SimpleNamespace(get_build_info=lambda: {"cuda_version": "12.5.1", "cudnn_version": "9"}),
    )


@pytest.mark.parametrize(
    ("installed", "version", "outcome"),
    [
        ("2.21.0", "2.21.0", "pass"),
        ("2.15.0.post1", "2.15.0", "pass"),
        ("2.22.0rc0", "2.22.0-rc0", "pass"),
        ("2.23.0.dev20261026", "2.23.0-dev20261026", "pass"),
        ("2.23.0.dev20261026", "2.23.0-dev20261027", "fail"),
        ("2.21.0+cu128", "2.21.0", "pass"),
        ("2.20.0.dev0+selfbuilt", "2.20.0-dev0+selfbuilt", "pass"),
        (None, "2.21.0", "pass"),
        ("2.21.0", "2.18.1", "fail"),
    ],
)
def test_the_imported_tensorflow_is_the_installed_one(
    installed: str | None, version: str, outcome: str, facts: dict[str, Any]
) -> None:
    facts["tensorflow"] = {"version": installed}
    assert libraries.tensorflow_build.run(Context(facts, tensorflow=imported(version))).outcome == outcome


@pytest.mark.parametrize(
    ("number", "version"),
    [
        (8100, "8.1.0"),
        (8600, "8.6.0"),
        (8700, "8.7.0"),
        (8907, "8.9.7"),
        (90000, "9.0.0"),
        (90300, "9.3.0"),
        (91002, "9.10.2"),
        (92800, "9.28.0"),
    ],
)
def test_both_encodings_of_cudnn_versions_are_decoded(number: int, version: str) -> None:
    assert loader.decoded(number) == version


@pytest.mark.parametrize(("number", "version"), [(2708, "2.7.8"), (21605, "2.16.5"), (22707, "2.27.7")])
def test_nccl_versions(number: int, version: str) -> None:
    assert loader.decoded(number) == version


LOG = """\
2026-11-21 03:57:02: I external/local_tsl/tsl/platform/default/dso_loader.cc:57] Successfully opened dynamic library libcudart.so.12
I0000 00:00:1795 1 dso_loader.cc:144] Could not load dynamic library 'libcusolver.so.11'; dlerror: libnvJitLink.so.12: cannot open shared object file; LD_LIBRARY_PATH: /a:/b
I0000 00:00:1795 1 dso_loader.cc:144] Could not load dynamic library 'libcudnn.so.9'; dlerror: libcudnn.so.9: cannot open
something else about libcuda.so.1
"""  # noqa: E501 - the lines as TensorFlow prints them


def test_the_loaders_log_is_read_in_both_its_forms() -> None:
    assert loader.parse_attempts(LOG) == {
        "libcudart.so.12": None,
        "libcusolver.so.11": "libnvJitLink.so.12: cannot open shared object file",
        "libcudnn.so.9": "libcudnn.so.9: cannot open",
    }


def judge(
    monkeypatch: pytest.MonkeyPatch,
    facts: dict[str, Any],
    attempts: Mapping[str, str | None],
    found: dict[str, str],
    failure: str | None = None,
    directory: str = "/site/tensorflow",
) -> Result:
    values = [{"phase": "gate", "attempts": attempts}]
    values += [
        {"soname": name, "path": f"/lib/{name}", "version": version} for name, version in found.items()
    ]
    monkeypatch.setattr(
        loader,
        "open_libraries",
        lambda directory: Answer(values, Failure(EXCEPTION, failure) if failure else None, "last line"),
    )
    facts["tensorflow"] = {
        "directory": directory,
        "build": {"is_cuda_build": True, "cudnn_version": "9"},
        "built_with": {"nvidia-cudnn-cu12": "9.3.0.75", "nvidia-cublas-cu12": "12.5.3.2"},
        "built_with_source": "metadata",
    }
    return libraries.cuda_libraries.run(Context(facts))


def test_libraries_that_fit(monkeypatch: pytest.MonkeyPatch, facts: dict[str, Any]) -> None:
    names = {"libcublas.so.12": "12.9.1", "libcudnn.so.9": "9.3.0"}
    result = judge(monkeypatch, facts, dict.fromkeys(names), names)
    assert result.outcome == "pass"
    assert result.evidence["libraries"][1]["built_with"] == "9.3.0.75"


def test_an_older_minor_of_cudnn_is_rejected(monkeypatch: pytest.MonkeyPatch, facts: dict[str, Any]) -> None:
    result = judge(monkeypatch, facts, {"libcudnn.so.9": None}, {"libcudnn.so.9": "9.1.0"})
    assert result.outcome == "fail"
    assert "9.1.0 (/lib/libcudnn.so.9) is older than the 9.3.0.75" in result.sentence


def test_a_newer_two_digit_minor_is_newer(monkeypatch: pytest.MonkeyPatch, facts: dict[str, Any]) -> None:
    assert judge(monkeypatch, facts, {"libcudnn.so.9": None}, {"libcudnn.so.9": "9.10.2"}).outcome == "pass"


def test_an_older_cublas_is_reported_but_not_rejected(
    monkeypatch: pytest.MonkeyPatch, facts: dict[str, Any]
) -> None:
    result = judge(monkeypatch, facts, {"libcublas.so.12": None}, {"libcublas.so.12": "12.3.4"})
    assert result.outcome == "pass"
    assert "older than what TensorFlow was built with: libcublas.so.12" in result.sentence


def test_the_error_for_a_missing_library_names_other_copies(
    monkeypatch: pytest.MonkeyPatch, facts: dict[str, Any], tmp_path: Path
) -> None:
    """The images of tensorflow/tensorflow issue 81344: cuDNN 8 next to a wheel that opens cuDNN 9."""
    library = tmp_path / "nvidia" / "cudnn" / "lib" / "libcudnn.so.8"
    library.parent.mkdir(parents=True)
    library.write_text("")
    directory = str(tmp_path / "tensorflow")
    missing = {"libcudnn.so.9": "libcudnn.so.9: cannot open shared object file"}
    result = judge(monkeypatch, facts, missing, {}, directory=directory)
    assert result.outcome == "fail"
    assert result.sentence == "libcudnn.so.9 is not found; there is libcudnn.so.8"


def test_a_library_outside_the_search_path(
    monkeypatch: pytest.MonkeyPatch, facts: dict[str, Any], tmp_path: Path
) -> None:
    library = tmp_path / "nvidia" / "cusolver" / "lib" / "libcusolver.so.11"
    library.parent.mkdir(parents=True)
    library.write_text("")
    missing = {"libcusolver.so.11": "libcusolver.so.11: cannot open shared object file"}
    result = judge(monkeypatch, facts, missing, {}, directory=str(tmp_path / "tensorflow"))
    assert result.outcome == "fail"
    assert result.sentence == f"libcusolver.so.11 is installed ({library}), but not where the loader looks"


def test_a_crash_in_the_loader_is_a_failure(monkeypatch: pytest.MonkeyPatch, facts: dict[str, Any]) -> None:
    result = judge(monkeypatch, facts, {}, {}, failure="SIGSEGV")
    assert result.outcome == "fail"
    assert "SIGSEGV" in result.sentence
    assert result.evidence["last_lines"] == ["last line"]


def test_an_unknown_loader_is_the_probes_fault(
    monkeypatch: pytest.MonkeyPatch, facts: dict[str, Any]
) -> None:
    failure = "AttributeError: libtensorflow_framework.so.2: undefined symbol: _ZN3tsl"
    assert judge(monkeypatch, facts, {}, {}, failure=failure).outcome == "error"
    assert judge(monkeypatch, facts, {}, {}).outcome == "error"


CUDNN: list[dict[str, Any]] = [
    {"soname": "libcudnn.so.9", "path": "/lib/libcudnn.so.9", "version": "9.3.0"},
    {"sub_library": "libcudnn_ops.so.9", "error": None},
    {"check": "cudnnOpsVersionCheck", "status": 0},
]


def load_cudnn(
    monkeypatch: pytest.MonkeyPatch,
    facts: dict[str, Any],
    values: list[dict[str, Any]],
    lock: dict[str, str] | None = None,
    failure: str | None = None,
) -> Result:
    monkeypatch.setattr(
        loader,
        "open_cudnn",
        lambda directory: Answer(values, Failure(SIGNAL, failure) if failure else None, ""),
    )
    facts["tensorflow"] = {
        "directory": "/site/tensorflow",
        "build": {"is_cuda_build": True, "cudnn_version": "9"},
        "built_with": {"nvidia-cudnn-cu12": "9.3.0.75"},
        "built_with_source": "metadata",
    }
    return libraries.cudnn_load.run(Context(facts, lock))


def test_cudnn_as_locked(monkeypatch: pytest.MonkeyPatch, facts: dict[str, Any]) -> None:
    assert load_cudnn(monkeypatch, facts, CUDNN, {"nvidia-cudnn-cu12": "9.3.0.75"}).outcome == "pass"
    assert load_cudnn(monkeypatch, facts, CUDNN).outcome == "pass"


@pytest.mark.parametrize(
    ("position", "change", "lock", "said"),
    [
        (
            0,
            {"version": "9.10.2"},
            {"nvidia-cudnn-cu12": "9.3.0.75"},
            "cuDNN 9.10.2 is loaded (/lib/libcudnn.so.9), but 9.3.0.75 is locked",
        ),
        (0, {"version": "8.9.7"}, None, "TensorFlow was built for cuDNN 9"),
        (0, {"version": "9.1.0"}, None, "older than the 9.3.0.75"),
        (0, {"path": None, "error": "cannot open"}, None, "cuDNN doesn't load: cannot open"),
        (1, {"error": "undefined symbol"}, None, "libcudnn_ops.so.9: undefined symbol"),
        (2, {"status": 1001}, None, "cudnnOpsVersionCheck returns 1001"),
    ],
)
def test_cudnn_that_does_not_fit(
    position: int,
    change: dict[str, Any],
    lock: dict[str, str] | None,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    facts: dict[str, Any],
) -> None:
    values = [{**value, **(change if number == position else {})} for number, value in enumerate(CUDNN)]
    result = load_cudnn(monkeypatch, facts, values, lock)
    assert result.outcome == "fail"
    assert said in result.sentence


def test_a_part_of_cudnn_that_only_lacks_the_driver_says_nothing_about_cudnn(
    monkeypatch: pytest.MonkeyPatch, facts: dict[str, Any]
) -> None:
    """From 9.28 on, libcudnn_engines_runtime_compiled.so.9 is linked against libcuda.so.1."""
    missing = "{}: cannot open shared object file: No such file or directory"
    values = [*CUDNN, {"sub_library": "libcudnn_engines.so.9", "error": missing.format("libcuda.so.1")}]
    result = load_cudnn(monkeypatch, facts, values)
    assert result.outcome == "pass" and result.statement and result.statement["parts"] == 1
    assert result.evidence["sub_libraries"][1]["error"]
    values[-1]["error"] = missing.format("libcudart.so.12")
    assert load_cudnn(monkeypatch, facts, values).outcome == "fail"


def test_cudnn_that_crashes(monkeypatch: pytest.MonkeyPatch, facts: dict[str, Any]) -> None:
    result = load_cudnn(monkeypatch, facts, CUDNN[:1], failure="SIGSEGV")
    assert (result.outcome, result.sentence) == ("fail", "loading cuDNN ended the process: SIGSEGV")


def test_cuda_checks_are_skipped_on_a_build_without_cuda(facts: dict[str, Any]) -> None:
    facts["tensorflow"] = {"build": {"is_cuda_build": False}}
    for check in (libraries.cuda_libraries, libraries.cudnn_load, libraries.tensorflow_build):
        assert check.unmet(Context(facts)) == {"code": "tensorflow_without_cuda"}


XLA: dict[str, Any] = {
    "device_type": "GPU",
    "device": "/job:localhost/replica:0/task:0/device:GPU:0",
    "hlo": {"module": "m", "instructions": 3},
    "losses": [2.0, 1.0],
    "tolerance": 1e-3,
    "largest_difference": 1e-6,
}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"hlo": {"module": None, "instructions": 0}}, "no_compiled_module"),
        ({"device": "/job:localhost/replica:0/task:0/device:CPU:0"}, "step_ran_elsewhere"),
        ({"losses": [1.0, 1.0]}, "loss_does_not_fall"),
        ({"losses": [2.0, float("nan"), 1.0]}, "loss_does_not_fall"),
        ({"largest_difference": 2e-3}, "step_gradients_differ"),
        ({"largest_difference": float("nan")}, "step_gradients_differ"),
    ],
)
def test_a_training_step_that_proves_nothing(change: dict[str, Any], code: str) -> None:
    assert compute.judge_xla_train_step(XLA).outcome == "pass"
    (problem,) = compute.judge_xla_train_step({**XLA, **change}).problems
    assert (problem["code"], problem["severity"]) == (code, "fault")


MODULE = """\
HloModule a_inference_train_1__.5, is_scheduled=true

%fused (p: f32[2]) -> f32[2] {
  %p = f32[2]{0} parameter(0), metadata={op_name="x" source_file="/a/b.py"}
  ROOT %m = f32[2]{0} multiply(%p, %p)
}

ENTRY %main (a: f32[2]) -> f32[2] {
  %a = f32[2]{0} parameter(0)
  ROOT %f = f32[2]{0} fusion(%a), kind=kLoop, calls=%fused
}
"""


def test_the_proof_counts_and_identifies_the_module() -> None:
    proof = tensorflow_devices.proof(MODULE)
    assert (proof["module"], proof["instructions"], proof["fusions"]) == ("a_inference_train_1__.5", 4, 1)
    assert proof["sha256"] == tensorflow_devices.proof(MODULE.replace("/a/b.py", "/c/d.py"))["sha256"]
    assert proof["sha256"] != tensorflow_devices.proof(MODULE.replace("multiply", "add"))["sha256"]
