"""Loose facts: only what is known is judged, and `works` needs everything that decides."""

from __future__ import annotations

import itertools
from typing import get_args

import pytest

from validator.compat.judge import judge
from validator.compat.predict import host_of, predict, software_of
from validator.model.prediction import EAGER, RULES, XLA, Outcome, Prediction, Reason, Rule, decide

from .cells import cell
from .stated import Stated, changed, stated

WORKS, FAILS, UNKNOWN = Outcome.WORKS, Outcome.FAILS, Outcome.UNKNOWN
#: Everything that decides, of a combination that works.
WHOLE = stated(
    tensorflow="2.18.1",
    python="3.12",
    cuda="12.5",
    cudnn="9.3",
    driver="570.124.06",
    gpu="NVIDIA A100-SXM4-80GB",
    system="linux",
    machine="x86_64",
    wheel="pypi",
    extra=True,
    library_path=True,
)
DECIDING = ("tensorflow", "python", "cuda", "cudnn", "machine", "wheel", "driver", "gpu", "system")


def failing(prediction: Prediction) -> set[str | None]:
    return {reason.rule for reason in prediction.reasons if reason.outcome is FAILS}


def test_a_whole_situation_works() -> None:
    prediction = judge(*WHOLE)
    assert (prediction.outcome, prediction.eager, prediction.xla) == (WORKS, WORKS, WORKS)
    assert prediction.missing == ()


@pytest.mark.parametrize("unknown", DECIDING)
def test_nothing_works_without_a_fact_that_decides(unknown: str) -> None:
    changes: dict[str, object] = {unknown: None, "extra": None}
    prediction = judge(*changed(WHOLE, **changes))
    assert (prediction.outcome, prediction.missing) == (UNKNOWN, (unknown,))
    assert all(reason.outcome is WORKS for reason in prediction.reasons)


def test_an_extra_that_pins_its_wheels_tells_their_versions() -> None:
    assert judge(*changed(WHOLE, cuda=None, cudnn=None)).outcome is WORKS
    # The extra of 2.20 allows newer versions.
    newer = judge(*changed(WHOLE, tensorflow="2.20.0", cuda=None, cudnn=None))
    assert (newer.outcome, newer.missing) == (UNKNOWN, ("cuda", "cudnn"))


def test_no_fact_at_all() -> None:
    prediction = judge(*stated())
    assert (prediction.outcome, prediction.eager, prediction.xla) == (UNKNOWN, UNKNOWN, UNKNOWN)
    assert prediction.reasons == ()
    assert set(DECIDING) <= set(prediction.missing)


@pytest.mark.parametrize(
    ("situation", "rule"),
    [
        (stated(cuda="12.5", driver="470.57.02"), "driver_too_old"),
        (stated(gpu="h100", driver="470"), "driver_older_than_gpu"),
        (stated(gpu="Tesla V100-SXM2-16GB", driver="590.48.01"), "driver_dropped_gpu"),
        (stated(tensorflow="2.19.0", gpu="RTX 5090", driver="570"), "xla_without_gpu_target"),
        (stated(tensorflow="2.21.0", gpu="h100", driver="535"), "ptx_not_compiled_by_driver"),
        (stated(cudnn="9.11.0.98", gpu="v100"), "cudnn_without_gpu"),
        (stated(tensorflow="2.18.0", cudnn="9.1.0"), "cudnn_older_than_built"),
        (
            stated(tensorflow="2.18.0", packages={"nvidia-cudnn-cu12": "9.1.0.70"}),
            "cudnn_older_than_built",
        ),
        (stated(tensorflow="2.18.0", cudnn="8.9.7"), "cudnn_of_another_major"),
        (stated(tensorflow="2.18.0", cudnn="8"), "cudnn_of_another_major"),
        (stated(cudnn="8.6.0", cuda="12.2", driver="535"), "cudnn_without_cuda_build"),
        (stated(tensorflow="2.18.0", cuda="11.8"), "cuda_of_another_version"),
        (stated(tensorflow="2.18", python="3.13.1"), "python_without_wheel"),
        (stated(tensorflow="2.15.0", extra=True), "known_issue"),
        (stated(driver="535", gpu="rtx 4090", compat="12.9"), "compat_package_unsupported"),
        (stated(driver_cuda="11.4", cuda="12.2"), "driver_too_old"),
        (stated(capability="9.0", driver_cuda="11.4"), "driver_older_than_gpu"),
        # Releases before those that images are made of.
        (stated(tensorflow="1.15.5", python="3.8"), "python_without_wheel"),
        (stated(tensorflow="2.4.1", cuda="10.1"), "cuda_of_another_version"),
        (stated(tensorflow="1.15", cuda="10.1"), "cuda_of_another_version"),
        (stated(tensorflow="2.4", cudnn="7.6.5"), "cudnn_of_another_major"),
        (stated(tensorflow="2.6.0", cuda="11.2", driver="440.33"), "driver_too_old"),
        # The system, the architecture and the machine.
        (stated(tensorflow="2.11.0", system="windows"), "platform_without_cuda"),
        (stated(tensorflow="2.18.0", system="macos"), "platform_without_cuda"),
        (
            stated(tensorflow="2.18.0", system="linux", machine="aarch64", wheel="pypi"),
            "platform_without_cuda",
        ),
        (
            stated(tensorflow="2.18.0", system="linux", machine="jetson", wheel="pypi"),
            "platform_without_cuda",
        ),
        (stated(gpu="RTX 5090", kernel_modules="proprietary"), "open_modules_needed"),
        (stated(gpu="V100", kernel_modules="open"), "open_modules_unsupported"),
        (stated(capability="6.1", kernel_modules="open"), "open_modules_unsupported"),
        (stated(gpu="AMD Instinct MI300X"), "not_nvidia"),
        (stated(gpu="mi300"), "not_nvidia"),
        (stated(gpu="Intel Arc A770"), "not_nvidia"),
        (stated(gpu="Apple M2 Pro"), "not_nvidia"),
        (stated(system="windows", driver="516.94", cuda="12.2"), "driver_too_old"),
        (stated(system="wsl2", driver="516.94", cuda="12.2"), "driver_too_old"),
        (
            stated(system="windows", tensorflow="2.10.1", driver="456.71", gpu="rtx 4090"),
            "driver_older_than_gpu",
        ),
        # How it was installed.
        (stated(variant="cpu"), "cpu_package"),
        (stated(packages={"tensorflow-cpu": "2.18.0"}), "cpu_package"),
        (stated(tensorflow="2.18.0", extra=False), "cuda_libraries_not_installed"),
        (stated(tensorflow="2.21.0", extra=True, library_path=False), "library_path_not_set"),
        (stated(tensorflow="2.18.0", packages={"torch": "2.6.0"}), "mixed_frameworks"),
        (
            stated(tensorflow="2.18.0", packages={"torch": "2.6.0", "nvidia-cudnn-cu12": "9.1.0.70"}),
            "mixed_frameworks",
        ),
        (stated(tensorflow="2.15.1", packages={"jax-cuda12-plugin": "0.5.3"}), "mixed_frameworks"),
        (
            stated(packages={"nvidia-cudnn-cu12": "9.3.0.75", "nvidia-cudnn-cu13": "9.28.1.4"}),
            "mixed_frameworks",
        ),
        # XLA's own compiler.
        (stated(tensorflow="2.21.0", gpu="RTX 5090"), "xla_without_gpu_target"),
        (
            stated(tensorflow="2.22.0rc0", gpu="RTX 5090", packages={"nvidia-cuda-nvcc-cu12": "12.5.82"}),
            "xla_without_gpu_target",
        ),
    ],
)
def test_few_facts_are_enough_to_fail(situation: Stated, rule: Rule) -> None:
    prediction = judge(*situation)
    assert prediction.outcome is FAILS
    assert rule in failing(prediction)


@pytest.mark.parametrize(
    "situation",
    [
        stated(tensorflow="2.99.0", python="3.8", cuda="11.8"),
        stated(tensorflow="unknown", gpu="RTX 5090"),
        stated(driver="not a driver", cuda="12.5", gpu="A GPU that nobody knows"),
        stated(tensorflow="2.18.0", python="three", cuda="none", cudnn="-", capability="x", compat="?"),
    ],
)
def test_values_that_no_table_has_are_not_judged(situation: Stated) -> None:
    prediction = judge(*situation)
    assert prediction.outcome is UNKNOWN
    assert not failing(prediction)


@pytest.mark.parametrize(
    ("tensorflow", "cuda", "fits"),
    [("1.15", "10.0", True), ("2.3", "10.1.243", True), ("2.4", "11.2", True), ("2.0.0", "10.2", False)],
)
def test_before_cuda_11_the_minor_version_must_be_the_same(tensorflow: str, cuda: str, fits: bool) -> None:
    found = failing(judge(*stated(tensorflow=tensorflow, cuda=cuda)))
    assert ("cuda_of_another_version" not in found) is fits


@pytest.mark.parametrize(
    ("situation", "rule"),
    [
        (stated(tensorflow="2.10.1", system="windows"), "platform_without_cuda"),
        (stated(tensorflow="2.18.0", system="wsl2"), "platform_without_cuda"),
        (
            stated(tensorflow="2.18.0", system="linux", machine="aarch64", wheel="ngc"),
            "platform_without_cuda",
        ),
        (stated(tensorflow="2.18.0", system="linux", machine="aarch64"), "platform_without_cuda"),
        (stated(gpu="RTX 5090", kernel_modules="open"), "open_modules_needed"),
        (stated(gpu="V100", kernel_modules="proprietary"), "open_modules_unsupported"),
        (stated(gpu="T4", kernel_modules="open"), "open_modules_unsupported"),
        (stated(gpu="V100", kernel_modules="open", system="wsl2"), "open_modules_unsupported"),
        (stated(gpu="NVIDIA GeForce RTX 3060"), "not_nvidia"),
        (stated(gpu="M60"), "not_nvidia"),
        (stated(gpu="A GPU that nobody knows"), "not_nvidia"),
        (stated(system="windows", driver="527.41", cuda="12.2"), "driver_too_old"),
        (stated(system="wsl2", driver="572.16", gpu="RTX 5090"), "driver_older_than_gpu"),
        (stated(packages={"tensorflow": "2.18.0"}), "cpu_package"),
        (stated(tensorflow="2.18.0", extra=False, cuda="12.5"), "cuda_libraries_not_installed"),
        (
            stated(tensorflow="2.18.0", extra=False, packages={"nvidia-cudnn-cu12": "9.3.0.75"}),
            "cuda_libraries_not_installed",
        ),
        (stated(tensorflow="2.10.1", extra=False), "cuda_libraries_not_installed"),
        (stated(tensorflow="2.18.0", extra=False, wheel="conda-forge"), "cuda_libraries_not_installed"),
        (stated(tensorflow="2.18.0", extra=True, library_path=False), "library_path_not_set"),
        (stated(tensorflow="2.21.0", extra=True, library_path=True), "library_path_not_set"),
        (stated(tensorflow="2.18.0", packages={"torch": "2.9.1"}), "mixed_frameworks"),
        (stated(tensorflow="2.18.0", packages={"torch": "2.6.0+cu118"}), "mixed_frameworks"),
        (
            stated(tensorflow="2.18.0", packages={"torch": "2.6.0", "nvidia-cudnn-cu12": "9.3.0.75"}),
            "mixed_frameworks",
        ),
        (stated(tensorflow="2.18.0", packages={"jax-cuda12-plugin": "0.5.3"}), "mixed_frameworks"),
        (stated(tensorflow="2.21.0", gpu="H100"), "xla_without_gpu_target"),
        (
            stated(tensorflow="2.22.0rc0", gpu="RTX 5090", packages={"nvidia-cuda-nvcc-cu12": "12.9.86"}),
            "xla_without_gpu_target",
        ),
    ],
)
def test_what_a_rule_does_not_concern(situation: Stated, rule: Rule) -> None:
    assert rule not in failing(judge(*situation))


def test_two_packages_of_tensorflow_leave_it_open_which_one_is_used() -> None:
    packages = {"tensorflow": "2.18.1", "tensorflow-cpu": "2.18.1"}
    prediction = judge(*changed(WHOLE, packages=packages))
    assert (prediction.outcome, prediction.reasons[0].rule) == (UNKNOWN, "cpu_package")


def test_it_is_not_known_whether_the_loader_finds_the_libraries_of_2_21() -> None:
    whole = changed(WHOLE, tensorflow="2.21.0", cudnn="9.24")
    assert judge(*whole).outcome is WORKS
    open_ = judge(*changed(whole, library_path=None))
    assert (open_.outcome, open_.missing) == (UNKNOWN, ("library_path",))
    assert judge(*changed(WHOLE, library_path=None)).outcome is WORKS, "2.18.1 needs no LD_LIBRARY_PATH"


@pytest.mark.parametrize("wheel", ["conda-forge", "ngc", "own"])
def test_other_builds_are_not_judged_by_the_wheel_on_pypi(wheel: str) -> None:
    prediction = judge(*changed(WHOLE, wheel=wheel, gpu="RTX 5090", cuda="12.8", cudnn="9.10", python="3.8"))
    assert prediction.outcome is UNKNOWN
    assert "a different build from the wheel on PyPI" in prediction.reasons[0].text
    assert judge(*changed(WHOLE, wheel=wheel, driver="470")).outcome is FAILS, "the driver still counts"


def test_a_machine_without_a_gpu() -> None:
    assert judge(*changed(WHOLE, gpu="no-gpu")).reasons[0].fact == "no-gpu"
    on_cpu = judge(*stated(tensorflow="2.18.1", python="3.12", variant="cpu", gpu="no-gpu"))
    assert on_cpu.outcome is WORKS


def test_xla_fails_alone_where_only_its_compiler_has_no_target() -> None:
    found = [one for one in judge(*stated(tensorflow="2.21.0", gpu="B200")).reasons if one.outcome is FAILS]
    assert {one.mode for one in found if one.rule == "xla_without_gpu_target"} == {XLA}


def test_a_cell_and_its_facts_are_judged_alike() -> None:
    for tensorflow, gpu, driver in itertools.product(
        ("2.8.4", "2.15.1", "2.21.0"), ("v100", "h100", "rtx 5090"), ("470", "535", "570", "590")
    ):
        asked = cell(tensorflow, gpu, driver)
        assert predict(asked) == judge(software_of(asked.image), host_of(asked.host))


def test_every_failing_reason_names_its_rule() -> None:
    known = set(get_args(Rule))
    for tensorflow, gpu, driver, policy in itertools.product(
        ("2.8.4", "2.14.0", "2.15.1", "2.21.0"),
        ("v100", "h100", "rtx 5090"),
        ("440", "535", "590"),
        ("11.8", "12.8"),
    ):
        for reason in predict(cell(tensorflow, gpu, driver, policy)).reasons:
            assert reason.outcome is not FAILS or reason.rule in known
            assert reason.outcome is not WORKS or reason.rule is None


def test_every_rule_is_explained() -> None:
    assert list(RULES) == list(get_args(Rule))


# -- eager and XLA ---------------------------------------------------------------------------------------


def reason(outcome: Outcome, mode: str | None = None) -> Reason:
    return Reason(outcome, "text", "a-fact", "a source", rule=None, mode=mode)


@pytest.mark.parametrize(
    ("reasons", "eager", "xla", "outcome"),
    [
        ((reason(WORKS), reason(FAILS, XLA)), WORKS, FAILS, FAILS),
        ((reason(WORKS), reason(FAILS, EAGER)), FAILS, WORKS, FAILS),
        ((reason(UNKNOWN, EAGER), reason(FAILS, XLA)), UNKNOWN, FAILS, FAILS),
        ((reason(FAILS), reason(UNKNOWN, XLA)), FAILS, FAILS, FAILS),
        ((reason(WORKS), reason(UNKNOWN, XLA)), WORKS, UNKNOWN, UNKNOWN),
        ((reason(WORKS, XLA), reason(WORKS)), WORKS, WORKS, WORKS),
    ],
)
def test_the_outcome_is_the_worse_of_eager_and_xla(
    reasons: tuple[Reason, ...], eager: Outcome, xla: Outcome, outcome: Outcome
) -> None:
    for ordered in itertools.permutations(reasons):
        prediction = decide(ordered)
        assert (prediction.eager, prediction.xla, prediction.outcome) == (eager, xla, outcome)


def test_only_one_mode_is_asked_about() -> None:
    reasons = (reason(WORKS), reason(FAILS, XLA))
    eager, xla = decide(reasons, mode=EAGER), decide(reasons, mode=XLA)
    assert (eager.outcome, eager.eager, eager.xla, eager.reasons) == (WORKS, WORKS, None, reasons[:1])
    assert (xla.outcome, xla.eager, xla.xla, len(xla.reasons)) == (FAILS, None, FAILS, 2)
