"""Device code for a GPU: the probe's judgement and table, compared with the facts of the host side."""

from __future__ import annotations

from typing import Any

import pytest

from validator.compat import facts, hardware
from validator.compat.compile import PROBE_TABLE, probe_table
from validator.compat.predict import predict, software_of
from validator.compat.releases import release as find_release
from validator.model.prediction import Outcome
from validator.model.spec import AS_BUILT, LATEST
from validator.probe import loader
from validator.probe.check import Context, Result
from validator.probe.checks import libraries
from validator.probe.child import Answer

from ...compat.cells import cell
from ...laws import subjects_to_try

RELEASES = [row["tensorflow"] for row in facts.rows("builds", "builds")]
CAPABILITIES = sorted(
    {str(gpu.compute_capability) for gpu in hardware.gpus()} | {"8.7", "8.8", "10.1", "11.0"}
)
BUILD = {
    "is_cuda_build": True,
    "cuda_version": "12.5.1",
    "cuda_compute_capabilities": ["sm_60", "sm_70", "sm_80", "sm_89", "compute_90"],
}


@pytest.fixture
def run(gpu_facts: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the result of the check on one GPU of a capability, under a driver for a CUDA version."""

    def _run(
        capability: str | None, driver_cuda: str | None, version: str = "2.21.0", cudnn: str = "9.3.0"
    ) -> Result:
        values = [{"soname": "libcudnn.so.9", "path": "/lib/libcudnn.so.9", "version": cudnn}]
        monkeypatch.setattr(loader, "open_libraries", lambda directory: Answer(values, None, ""))
        gpu_facts["host"]["driver_cuda"] = driver_cuda
        gpu_facts["host"]["gpus"][0]["compute_capability"] = capability
        gpu_facts["tensorflow"] = {"version": version, "directory": "/site/tensorflow", "build": BUILD}
        return libraries.compute_capability.run(Context(gpu_facts))

    return _run


def test_the_table_agrees_with_the_facts() -> None:
    assert PROBE_TABLE.read_text(encoding="utf-8") == probe_table(), "run scripts/compile-data"


#: The rules that answer the question of the check.
RULES = {"no_kernels_for_gpu", "ptx_not_compiled_by_driver", "cudnn_without_gpu"}


@pytest.mark.parametrize(
    ("release", "policy"),
    [
        *((release, AS_BUILT) for release in RELEASES),
        *((release, LATEST) for release in RELEASES if find_release(release).extra_style != "none"),
    ],
)
def test_the_probe_judges_as_the_predictions_do(release: str, policy: str, run: Any) -> None:
    for capability in subjects_to_try(CAPABILITIES, RELEASES.index(release)):
        for driver in hardware.branches():
            asked = cell(release, capability, str(driver.number), policy)
            rules = {one.rule for one in predict(asked).reasons if one.outcome is Outcome.FAILS}
            installed = software_of(asked.image)
            result = run(capability, str(driver.cuda), version=release, cudnn=installed.cudnn)
            where = (capability, driver.number, installed.cudnn, result.sentence)
            assert (result.outcome == "fail") == bool(rules & RULES), where


@pytest.mark.parametrize(
    ("capability", "expected", "isa", "compiled"),
    [
        ("5.2", "none", None, 0),
        ("6.1", "native", None, 0),
        ("7.5", "native", None, 0),
        ("8.6", "native", None, 0),
        ("8.9", "native", None, 0),
        ("9.0", "jit", "8.5", 1149),
        ("12.0", "jit", "8.5", 1479),
    ],
)
def test_kernels_of_the_2_21_wheel(capability: str, expected: str, isa: str | None, compiled: int) -> None:
    found = loader.coverage("2.21.0", BUILD, capability)
    assert found is not None
    assert (found.kernels, found.isa, found.compiled, found.source) == (expected, isa, compiled, "measured")


@pytest.mark.parametrize(("capability", "expected"), [("5.2", "none"), ("8.6", "native"), ("9.0", "jit")])
def test_a_wheel_that_was_not_measured(capability: str, expected: str) -> None:
    found = loader.coverage("2.23.0.dev1", BUILD, capability)
    assert found is not None
    assert (found.kernels, found.units, found.source) == (expected, None, "build_information")
    assert found.cuda == ("12.5.1" if expected == "jit" else None)


def test_kernels_run_on_later_minors_but_no_other_major() -> None:
    def of(capability: str, *names: str) -> str:
        found = loader.coverage(None, {"cuda_compute_capabilities": names}, capability)
        assert found is not None
        return found.kernels

    assert of("8.0", "sm_70", "sm_75") == "none"
    assert (of("8.0", "sm_86"), of("8.6", "sm_86"), of("8.9", "sm_86")) == ("none", "native", "native")
    assert of("10.0", "sm_90a", "compute_100a") == "jit"
    assert (of("10.3", "compute_100a"), of("10.3", "compute_100f")) == ("none", "jit")
    assert (of("9.0", "sm_90a"), of("12.0", "sm_90a", "compute_90")) == ("native", "jit")
    assert loader.coverage(None, {}, "8.0") is None
    assert loader.coverage(None, None, "8.0") is None


def test_machine_code(run: Any) -> None:
    result = run("8.6", "12.2")
    assert result.outcome == "pass"
    assert result.sentence == "NVIDIA H100 PCIe (compute capability 8.6) runs machine code from the wheel"


def test_ptx_under_a_driver_that_compiles_it(run: Any) -> None:
    result = run("9.0", "12.5")
    assert result.outcome == "pass"
    assert "the driver compiles 1149 of 1479 units of the wheel from PTX (ISA 8.5)" in result.sentence
    assert "isn't known" not in result.sentence


def test_ptx_under_a_driver_that_is_too_old(run: Any) -> None:
    result = run("9.0", "12.4")
    assert result.outcome == "fail"
    assert "needs a driver for CUDA 12.5 or newer; this one is for CUDA 12.4" in result.sentence


def test_unknown_facts_are_stated(run: Any) -> None:
    assert "it isn't known whether this driver can" in run("9.0", None).sentence
    assert "it isn't known whether this driver can" in run("9.0", "12.4", version="2.23.0").sentence
    assert "isn't known" not in run("9.0", "12.5", version="2.23.0").sentence


def test_nccl_without_code_is_only_mentioned(run: Any) -> None:
    result = run("9.0", "12.4", version="2.15.1")
    assert result.outcome == "pass"
    assert "1 of 1397 units have no code for it" in result.sentence


@pytest.mark.parametrize("version", ["2.17.1", "2.20.0"])
def test_ptx_for_exactly_one_capability_is_no_code_for_a_later_one(version: str, run: Any) -> None:
    result = run("12.0", "13.0", version=version)
    assert result.outcome == "fail"
    assert [problem["code"] for problem in result.problems][:1] == ["some_kernels_not_for_gpu"]
    assert (
        "units of the wheel have no code for NVIDIA H100 PCIe with compute capability 12.0" in result.sentence
    )


def test_no_kernels(run: Any) -> None:
    result = run("5.2", "12.5")
    assert result.outcome == "fail"
    assert result.sentence.startswith(
        "the wheel has no kernels for NVIDIA H100 PCIe with compute capability 5.2"
    )


@pytest.mark.parametrize(
    ("cudnn", "capability", "outcome"),
    [
        ("9.10.2", "7.0", "pass"),
        ("9.11.0", "7.0", "fail"),
        ("9.28.0", "6.1", "fail"),
        ("9.28.0", "7.5", "pass"),
        ("10.1.0", "7.0", "pass"),
    ],
)
def test_the_oldest_capability_of_cudnn(cudnn: str, capability: str, outcome: str, run: Any) -> None:
    result = run(capability, "12.5", cudnn=cudnn)
    assert result.outcome == outcome
    codes = [problem["code"] for problem in result.problems]
    assert codes == (["cudnn_has_no_kernels"] if outcome == "fail" else [])


def test_a_gpu_of_unknown_capability_proves_nothing(run: Any) -> None:
    assert run(None, "12.5").outcome == "skip"


def test_the_check_needs_a_gpu(facts: dict[str, Any]) -> None:
    facts["tensorflow"] = {"build": BUILD}
    assert libraries.compute_capability.unmet(Context(facts)) == {"code": "no_gpu"}
