"""Single rules at their edges, on values made for the purpose."""

from __future__ import annotations

import datetime
from collections.abc import Mapping

import pytest

from validator.compat import facts, hardware, kernels, known_issues, releases
from validator.compat.hardware import CONSUMER, DATA_CENTER, user_driver
from validator.compat.kernels import Kernels, fit
from validator.compat.releases import Build, KernelGroup, Target
from validator.conditions import ConditionError
from validator.model.prediction import Outcome, Reason
from validator.versions import ComputeCapability, CudaVersion, DriverRelease

WORKS, FAILS, UNKNOWN = Outcome.WORKS, Outcome.FAILS, Outcome.UNKNOWN
FACT = facts.Fact("made-up", "verified-local", "a test")
CUDA = CudaVersion(12, 5)


def sm(*names: int | str) -> frozenset[Target]:
    return frozenset(Target.parse(str(name)) for name in names)


def group(
    count: int | None,
    sass: tuple[int | str, ...],
    ptx: Mapping[int | str, tuple[int, int] | None],
    library: str | None = None,
) -> KernelGroup:
    targets = {Target.parse(str(name)): isa for name, isa in ptx.items()}
    return KernelGroup(count, sm(*sass), targets, library)


def on(capability: int, branch: int, *groups: KernelGroup) -> Reason:
    return fit(Kernels(groups, FACT), CUDA, ComputeCapability.parse(str(capability)), branch)


# -- kernels ---------------------------------------------------------------------------------------------

PART_PTX = (group(3, (60, 70, 80), {90: (8, 5)}), group(1, (60, 70, 80, 90), {90: (8, 3)}))


@pytest.mark.parametrize(
    ("capability", "branch", "expected"),
    [
        (80, 525, WORKS),
        (86, 525, WORKS),  # machine code of 8.0 runs on 8.6
        (75, 525, WORKS),
        (62, 525, WORKS),
        (90, 555, WORKS),
        (90, 554, FAILS),
        (90, 545, FAILS),  # 8.3 is enough for one group but not for the other
        (100, 555, WORKS),
        (53, 580, FAILS),
        (50, 580, FAILS),
    ],
)
def test_kernels(capability: int, branch: int, expected: Outcome) -> None:
    assert on(capability, branch, *PART_PTX).outcome is expected


@pytest.mark.parametrize(
    ("target", "works", "fails"),
    [
        ("90", ["9.0", "10.0", "12.1"], ["8.9"]),
        ("90a", ["9.0"], ["8.9", "10.0", "12.0"]),
        ("100f", ["10.0", "10.3"], ["9.0", "10.1", "11.0", "12.0"]),
        ("103f", ["10.3"], ["10.0", "12.0"]),
        ("120a", ["12.0"], ["12.1", "10.0"]),
        ("120f", ["12.0", "12.1"], ["10.3"]),
    ],
)
def test_the_gpus_that_ptx_of_a_target_compiles_for(target: str, works: list[str], fails: list[str]) -> None:
    for capability in (*works, *fails):
        found = fit(
            Kernels((group(1, (), {target: (8, 5)}),), FACT), CUDA, ComputeCapability.parse(capability), 580
        )
        assert found.outcome is (WORKS if capability in works else FAILS), capability


@pytest.mark.parametrize(
    ("target", "works", "fails"),
    [
        ("80", ["8.0", "8.6", "8.9"], ["7.5", "9.0"]),
        ("90a", ["9.0"], ["10.0"]),
        ("100f", ["10.0", "10.3"], ["10.1", "12.0"]),
        ("120a", ["12.0"], ["12.1"]),
    ],
)
def test_the_gpus_that_run_machine_code_of_a_target(target: str, works: list[str], fails: list[str]) -> None:
    for capability in (*works, *fails):
        found = fit(Kernels((group(1, (target,), {}),), FACT), CUDA, ComputeCapability.parse(capability), 580)
        assert found.outcome is (WORKS if capability in works else FAILS), capability


def test_one_unit_of_tensorflow_without_code_is_enough_to_fail() -> None:
    found = on(100, 580, group(3, (80,), {"90a": (8, 5)}), group(1, (80, 90), {90: (8, 3)}))
    assert found.outcome is FAILS
    assert "3 of 4 translation units of the wheel have no kernels for compute capability 10.0" in found.text
    assert "the PTX is for 9.0a only" in found.text


def test_nccl_without_code_leaves_one_gpu_working_and_says_so() -> None:
    nccl = group(2, (80,), {}, "nccl")
    assert "several GPUs can't train together" in on(90, 555, *PART_PTX, nccl).text
    assert on(90, 555, *PART_PTX, nccl).outcome is WORKS
    assert on(90, 554, *PART_PTX, nccl).outcome is FAILS
    assert "NCCL" not in on(86, 555, *PART_PTX, nccl).text


def test_the_newest_ptx_to_be_compiled_counts() -> None:
    assert on(100, 545, *PART_PTX).outcome is FAILS
    assert on(100, 545, PART_PTX[1]).outcome is WORKS


def test_the_reason_says_how_much_must_be_compiled() -> None:
    assert "3 of 4 translation units" in on(90, 555, *PART_PTX).text
    assert "some kernels" in on(90, 555, group(None, (80,), {90: (8, 5)})).text


def test_a_reason_based_on_compiling_ptx_is_derived() -> None:
    assert on(90, 555, *PART_PTX).status == facts.DERIVED
    assert on(80, 555, *PART_PTX).status == "verified-local"


def test_ptx_of_an_unread_isa_is_bounded_by_the_toolkit() -> None:
    unread = group(None, (80,), {90: None})
    assert on(90, 555, unread).outcome is WORKS
    assert on(90, 550, unread).outcome is UNKNOWN


def test_an_isa_in_no_table_leaves_the_outcome_unknown() -> None:
    assert on(90, 580, group(1, (80,), {90: (99, 0)})).outcome is UNKNOWN


# -- drivers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("branch", "capability", "fact"),
    [
        (520, "9.0", None),
        (515, "9.0", "ptx-7.8"),
        (455, "8.6", None),
        (450, "8.6", "ptx-7.1"),
        (570, "12.0", None),
        (565, "12.0", "ptx-8.7"),
        (580, "7.0", None),
        (581, "7.0", "last-branch-volta"),
        (590, "7.5", None),
        (590, "5.0", "last-branch-volta"),
        (470, "3.7", None),
        (495, "3.7", "last-branch-kepler"),
    ],
)
def test_gpus_that_a_driver_supports(branch: int, capability: str, fact: str | None) -> None:
    reasons = hardware.knows_gpu(branch, branch, ComputeCapability.parse(capability))
    assert [reason.fact for reason in reasons if not reason.advisory] == ([fact] if fact else [])


@pytest.mark.parametrize(
    ("toolkit", "driver", "outcome", "fact"),
    [
        ("12.5", "555.42.02", WORKS, "toolkit-12.5.0"),
        ("12.5", "555.42.01", WORKS, "minor-version-12"),
        ("12.0", "525.60.13", WORKS, "toolkit-12.0.0"),
        ("12.0", "525.60.12", FAILS, "minor-version-12"),
        ("11.8", "525.60.13", WORKS, "branch-525"),
        ("13.0", "580.65.06", WORKS, "toolkit-13.0.0"),
        ("13.0", "575.57.08", FAILS, "minor-version-13"),
        ("13.4", "615.31", WORKS, "minor-version-13"),
        ("14.0", "700", UNKNOWN, "branch-620"),
    ],
)
def test_toolkits(toolkit: str, driver: str, outcome: Outcome, fact: str) -> None:
    reason = hardware.runs_toolkit(CudaVersion.parse(toolkit), DriverRelease.parse(driver), None)
    assert (reason.outcome, reason.fact) == (outcome, fact)


def test_a_package_of_an_older_major_version_runs_nothing_newer() -> None:
    old, driver = CudaVersion(12, 9), DriverRelease(570)
    assert hardware.runs_toolkit(CudaVersion(13, 0), driver, old).outcome is FAILS
    assert hardware.runs_toolkit(CudaVersion(12, 5), driver, old).outcome is WORKS


@pytest.mark.parametrize(
    ("number", "branch"),
    [
        (535, 535),
        (539, 535),
        (581, 580),
        (475, 470),
        (619, 615),
        (620, 620),
        (625, 620),
        (626, None),
        (476, None),
        (440, None),
    ],
)
def test_the_branch_of_a_number(number: int, branch: int | None) -> None:
    found = hardware.branch_of(number)
    assert (found and found.number) == branch


@pytest.mark.parametrize("driver", ["999.10", "630.10", "700", "605"])
@pytest.mark.parametrize("toolkit", ["11.8", "12.5", "13.0"])
def test_a_driver_in_no_table_is_not_judged(driver: str, toolkit: str) -> None:
    reason = hardware.runs_toolkit(CudaVersion.parse(toolkit), DriverRelease.parse(driver), None)
    assert reason.outcome is UNKNOWN
    assert f"which CUDA versions and GPUs driver {driver} supports" in reason.text


@pytest.mark.parametrize(
    ("branch", "month", "text"),
    [
        (535, "2026-06", None),
        (535, "2026-07", "R535, a long-term support branch, ended in June 2026"),
        (
            550,
            "2026-11",
            "R550 has ended and gets no more fixes; R620 is a long-term support branch until September 2029",
        ),
        (580, "2028-06", None),
        (582, "2028-07", "R580, a long-term support branch, ended in June 2028 and gets no more fixes"),
        (615, "2026-11", None),
        (999, "2026-11", None),
    ],
)
def test_the_end_of_a_branch(branch: int, month: str, text: str | None) -> None:
    remark = hardware.ended(branch, datetime.date.fromisoformat(f"{month}-15"))
    assert (remark is None) == (text is None)
    if remark is not None:
        assert text in remark.text  # type: ignore[operator]
        assert remark.advisory


def test_a_prediction_mentions_that_the_branch_has_ended() -> None:
    remarks = hardware.knows_gpu(535, 535, ComputeCapability(8, 0))
    assert [remark.fact for remark in remarks] == ["lifecycle-535"]


def test_every_branch_that_is_known_has_a_lifecycle() -> None:
    known = {branch.number for branch in hardware.branches()}
    assert {row["branch"] for row in facts.rows("drivers", "lifecycle")} == known


# -- forward compatibility -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("driver", "compat", "kind", "lifted", "branch", "outcome"),
    [
        ("535", "12.9", DATA_CENTER, "12.9", 575, WORKS),
        ("570", "12.9", DATA_CENTER, "12.9", 575, WORKS),
        ("575", "12.9", DATA_CENTER, None, 575, WORKS),
        ("580", "12.9", DATA_CENTER, None, 580, UNKNOWN),
        ("590", "12.9", CONSUMER, None, 590, UNKNOWN),
        ("535", "12.9", CONSUMER, "12.9", 575, FAILS),
        ("575", "12.9", CONSUMER, None, 575, WORKS),
        ("535", "12.9", None, "12.9", 575, UNKNOWN),
        ("525", "12.9", DATA_CENTER, "12.9", 575, UNKNOWN),
        ("535", "12.2", DATA_CENTER, None, 535, WORKS),
        ("570", "12.4", DATA_CENTER, None, 570, UNKNOWN),
        ("535", "11.8", DATA_CENTER, None, 535, UNKNOWN),
    ],
)
def test_forward_compatibility(
    driver: str, compat: str, kind: str | None, lifted: str | None, branch: int, outcome: Outcome
) -> None:
    user = user_driver(DriverRelease.parse(driver), compat, kind)
    assert user.lifted_to == (CudaVersion.parse(lifted) if lifted else None)
    assert user.branch == branch
    assert [reason.outcome for reason in user.reasons] == [outcome]


def test_without_a_package_the_driver_keeps_its_cuda() -> None:
    user = user_driver(DriverRelease.parse("535.183.01"), None, DATA_CENTER)
    assert (user.branch, user.lifted_to, user.reasons) == (535, None, ())


# -- cuDNN -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "capability", "outcome"),
    [
        ("9.10.2.21", "7.0", WORKS),
        ("9.11.0.98", "7.0", FAILS),
        ("9.11.0.98", "7.5", WORKS),
        ("9.28.0.42", "9.0", WORKS),
        ("9.28.0.42", "10.3", WORKS),  # machine code for 10.0
        ("9.28.0.42", "11.0", UNKNOWN),
        ("9.3.0.75", "8.7", WORKS),
        ("9.3.0.75", "3.7", FAILS),
        ("9.3.0.75", "12.0", WORKS),  # PTX for 9.0
        ("8.7.0.84", "3.7", WORKS),
        ("8.7.0.84", "8.9", WORKS),
        ("8.7.0.84", "9.0", WORKS),
        ("8.5.0.96", "9.0", UNKNOWN),
        ("8.9.7.29", "12.0", UNKNOWN),
        ("9.7.0.66", "12.0", WORKS),
        ("8.9.4.25", "9.0", WORKS),
        ("8.1", "8.0", WORKS),
        ("7.6.5", "7.0", UNKNOWN),
        ("10.0.0", "9.0", UNKNOWN),
    ],
)
def test_cudnn_and_gpus(version: str, capability: str, outcome: Outcome) -> None:
    assert kernels.fits_gpu(version, ComputeCapability.parse(capability)).outcome is outcome


def test_code_of_cudnn_for_another_gpu_is_a_derived_reason() -> None:
    said = [
        kernels.fits_gpu(*asked)
        for asked in (("8.7", ComputeCapability(8, 9)), ("9.3", ComputeCapability(12, 0)))
    ]
    assert [one.status for one in said] == [facts.DERIVED] * 2
    assert "machine code for compute capability 8.6" in said[0].text
    assert "PTX for 9.0" in said[1].text


@pytest.mark.parametrize(
    ("version", "cuda", "driver", "outcome"),
    [
        ("9.3.0.75", "12.5", "525.60.13", WORKS),
        ("9.3.0.75", "12.5", "525.53", FAILS),
        ("9.3.0.75", "12.5", None, WORKS),
        ("9.3.0.75", "11.8", "450.80.02", WORKS),
        ("9.3.0.75", "11.8", "450.51.06", FAILS),
        ("9.11.0.98", "11.8", "580", FAILS),
        ("9.11.0.98", "13.0", "580", FAILS),
        ("9.12.0.46", "13.0", "580", WORKS),
        ("8.7.0.84", "12.2", "580", FAILS),
        ("7.6.5", "10.2", "580", UNKNOWN),
    ],
)
def test_cudnn_and_cuda(version: str, cuda: str, driver: str | None, outcome: Outcome) -> None:
    release = DriverRelease.parse(driver) if driver else None
    assert kernels.fits_cuda(version, CudaVersion.parse(cuda), release).outcome is outcome


@pytest.mark.parametrize(
    ("runtime", "compiled", "outcome"),
    [
        ("9.3.0.75", "9.3.0", WORKS),
        ("9.28.0.42", "9.3", WORKS),
        ("9.10.2.21", "9.3.0", WORKS),  # 10 is more than 3
        ("9.1.1.17", "9.3.0", FAILS),
        ("8.9.7.29", "9.3.0", FAILS),
        ("9.3.0.75", "8.9.4", FAILS),
        ("8.9.4.25", "8.9.7", WORKS),  # the patch level is not compared
        ("8", "9.3.0", FAILS),
        ("9", "9.3.0", None),
    ],
)
def test_cudnn_against_the_one_tensorflow_was_compiled_with(
    runtime: str, compiled: str, outcome: Outcome | None
) -> None:
    reason = kernels.fits_build(runtime, compiled)
    assert (reason.outcome if reason else None) is outcome


@pytest.mark.parametrize(
    ("version", "around"),
    [
        ("2.16.0", "2.15.1 and 2.16.1"),
        ("2.16", "2.15.1 and 2.16.1"),
        ("1.99", "1.15.0 and 2.0.0"),
        ("1.15.5", None),  # the facts have only the minor versions of the old releases
        ("2.16.1", None),
        ("2.18", None),
        ("2.16.99", None),  # may have come out after the facts were read
        ("2.99", None),
        ("3.0.0", None),
        ("2.16.0rc0", None),
        ("2.15.0.post1", None),
        ("2.16.0+nv24.4", None),
        ("0.12.1", None),
        ("2.x", None),
    ],
)
def test_a_release_that_cannot_exist(version: str, around: str | None) -> None:
    reason = kernels.no_such_release(version)
    assert (reason is None) is (around is None)
    assert reason is None or (reason.outcome is FAILS and reason.text.endswith(around or ""))


# -- what was measured -----------------------------------------------------------------------------------


def test_an_uninspected_release_uses_the_facts_of_its_sibling() -> None:
    opened, sibling = releases.build("2.21.0"), releases.build("2.21.7")
    assert opened is not None and sibling is not None
    assert sibling.kernels == opened.kernels
    assert (opened.fact.status, sibling.fact.status) == ("verified-local", facts.DERIVED)
    assert releases.build("2.8.0") is None


@pytest.mark.parametrize(
    ("folders", "not_found", "remark"),
    [
        (("cudnn", "cublas"), (), False),
        (("cudnn",), ("libcublas.so.12",), True),
        ((), ("libcublas.so.12", "libcudnn.so.9"), True),
    ],
)
def test_search_paths(
    monkeypatch: pytest.MonkeyPatch,
    folders: tuple[str, ...],
    not_found: tuple[str, ...],
    remark: bool,
) -> None:
    made = Build("2.99.0", None, (), folders, not_found, {}, FACT)
    monkeypatch.setattr(kernels, "build", lambda _: made)
    reason = kernels.search_path.__wrapped__("2.99.0", True, True)
    assert reason is not None
    assert reason.outcome is WORKS
    assert reason.advisory == remark
    assert all(name in reason.text for name in not_found)


# -- known combinations ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("capability", "holds"), [("8.9", False), ("9.0", True), ("9.9", True), ("10.0", False), ("12.0", False)]
)
def test_the_bounds_of_a_combination(capability: str, holds: bool) -> None:
    known = {"tensorflow": "2.21.0", "nvidia-cuda-nvcc": "12.5.82"}
    possible = known_issues.on_image(known)
    reasons = known_issues.on_gpu(possible, known, ComputeCapability.parse(capability), None)
    assert ("KB-PTXAS-HOPPER" in {reason.fact for reason in reasons}) == holds


def test_a_combination_for_other_images_is_not_evaluated() -> None:
    known = {"tensorflow": "2.21.0", "nvidia-cuda-nvcc": "12.8.93"}
    assert "KB-PTXAS-HOPPER" not in {one.fact.id for one in known_issues.on_image(known)}


def row(when: object) -> dict[str, object]:
    return {
        "id": "KB-NEW",
        "when": when,
        "means": "fails",
        "text": "it fails",
        "remedy": "take another",
        "status": "verified",
        "sources": [],
    }


@pytest.mark.parametrize(
    ("when", "python", "from_extra", "wheels", "holds"),
    [
        ({"tensorflow": ["==2.8", "==2.14.0"]}, None, None, {}, True),
        ({"tensorflow": ">=2.15"}, None, None, {}, False),
        ({"python": ["3.9", "3.10"]}, "3.10", None, {}, True),
        ({"python": ["3.9", "3.10"]}, "3.11", None, {}, False),
        ({"python": "3.9"}, None, None, {}, False),
        ({"extra": "yes"}, None, True, {}, True),
        ({"extra": "yes"}, None, False, {}, False),
        ({"extra": "yes"}, None, None, {}, False),
        ({"numpy": ">=2"}, None, None, {"numpy": "2.0.1"}, True),
        ({"numpy": ">=2"}, None, None, {"numpy": "1.26.4"}, False),
        ({"numpy": ">=2"}, None, None, {}, False),
        ({"any": [{"numpy": ">=2"}, {"none": ["numpy"]}]}, None, None, {}, True),
        ({"any": [{"numpy": ">=2"}, {"none": ["numpy"]}]}, None, None, {"numpy": "1.26.4"}, False),
        ({"cudnn": ">=9.24"}, None, None, {}, False),
    ],
)
def test_a_known_combination_applies_only_where_its_condition_is_true(
    when: object, python: str | None, from_extra: bool | None, wheels: dict[str, str], holds: bool
) -> None:
    combination = known_issues.combination(row(when))
    known = known_issues.of_software("2.14.0", python, None, from_extra, wheels)
    assert (combination.holds(known) is True) is holds


@pytest.mark.parametrize(
    ("when", "model", "holds"),
    [
        ({"any": [{"gpu": "t4"}, {"tensorflow": "<2.14"}]}, "t4", True),
        ({"any": [{"gpu": "t4"}, {"tensorflow": "<2.14"}]}, "rtx-2080", False),
        ({"all": [{"capability": ">=7.5,<8.0"}], "none": [{"gpu": "t4"}]}, "rtx-2080", True),
        ({"all": [{"capability": ">=7.5,<8.0"}], "none": [{"gpu": "t4"}]}, "t4", False),
        ({"all": [{"capability": ">=7.5,<8.0"}], "none": [{"gpu": "t4"}]}, None, True),
        ({"gpu": "t4"}, None, False),
    ],
)
def test_a_condition_on_the_gpu(when: object, model: str | None, holds: bool) -> None:
    combination = known_issues.combination(row(when))
    known = {"tensorflow": "2.21.0"}
    assert combination.by_gpu
    assert combination.holds(known) is None, "without a GPU, it is not known"
    reasons = known_issues.on_gpu((combination,), known, ComputeCapability(7, 5), model)
    assert bool(reasons) is holds


def test_a_condition_names_only_gpus_that_there_are() -> None:
    with pytest.raises(ConditionError, match=r"^KB-NEW: t44 is not the short name of a known GPU"):
        known_issues.combination(row({"gpu": ["t4", "t44"]}))
