"""Records that may be certified, and those that may not. All are fixtures, and nothing is signed here."""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from validator.certify.acceptance import NotCertifiable, checked_report
from validator.model.record import Origin, OwnCheck, Record, Verdict, labelled

from .fixtures import MEASURED_AT, record, report
from .measuring import outside_of

DIGEST = "sha256:" + "d" * 64
NOW = MEASURED_AT + timedelta(hours=1)
OUTSIDE = outside_of(report()["host"])
VERSIONS = record(DIGEST).versions
VERSIONS_WITHOUT_CUDA = {name: VERSIONS[name] for name in ("tensorflow", "python")}

Change = Callable[[dict[str, Any]], object]


def changed(change: Change) -> Record:
    """Return a record that was made from a changed report."""
    made = copy.deepcopy(report())
    change(made)
    return record(DIGEST, found=made)


OWN = (OwnCheck("ours/our_check", "0" * 64, True), OwnCheck("ours/slow", "0" * 64, False))
ADDED = "tf2.21.0-cuda12.5-cudnn9.3-py312_ours"


def with_additions(outcomes: dict[str, str]) -> Record:
    """Return the record of an image with additions. outcomes: of the checks besides those of every image."""
    made = copy.deepcopy(report())
    entry = made["checks"][0]
    for name, outcome in outcomes.items():
        made["checks"].append({**entry, "id": name, "outcome": outcome, "required": False})
    return record(DIGEST, found=made, image=ADDED, cell=f"{ADDED}@r580-h100")


def test_labels_of_a_node_need_somebody_who_trusts_them() -> None:
    labels = labelled("580", "NVIDIA-H100-80GB-HBM3", "9.0", 1)
    assert checked_report(record(DIGEST), labels, NOW, labels_trusted=True) is not None
    with pytest.raises(NotCertifiable, match=r"its own report says unproven: .*trust\.yaml does not trust"):
        checked_report(record(DIGEST), labels, NOW)
    for trusted in (False, True):
        with pytest.raises(NotCertifiable, match="the host has driver 570"):
            checked_report(
                record(DIGEST), msgspec.structs.replace(labels, driver="570"), NOW, labels_trusted=trusted
            )


def test_an_image_with_additions_has_to_pass_what_its_runner_packed() -> None:
    passed = {"packages": "pass", "ours/our_check": "pass", "ours/slow": "fail"}
    assert checked_report(with_additions(passed), OUTSIDE, NOW, OWN) is not None


@pytest.mark.parametrize("name", ["packages", "ours/our_check"])
@pytest.mark.parametrize("outcome", ["skip", "fail", "crash", None])
def test_a_report_cant_leave_out_what_its_image_adds(name: str, outcome: str | None) -> None:
    """The image writes the report, and marks neither check as required."""
    found = {"packages": "pass", "ours/our_check": "pass", name: outcome}
    made = with_additions({check: value for check, value in found.items() if value})
    with pytest.raises(NotCertifiable, match=f"its own report says (unproven|failed): .*{name}"):
        checked_report(made, OUTSIDE, NOW, OWN)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"driver": "535.183.01"}, "the host has driver 535.183.01, not 580.65.06"),
        ({"driver": None}, "the host has driver of an unknown release"),
        ({"kernel_driver": "535.183.01"}, "kernel module 535.183.01"),
        ({"gpus": ()}, "the host has no GPU"),
        ({"gpus": outside_of(report(gpu="a100")["host"]).gpus}, "NVIDIA A100-SXM4-40GB"),
        ({"gpus": (*OUTSIDE.gpus, *OUTSIDE.gpus)}, "the host has 2 NVIDIA H100 80GB HBM3, not 1"),
    ],
)
def test_the_report_must_agree_with_what_the_host_saw(change: dict[str, Any], why: str) -> None:
    seen = msgspec.structs.replace(OUTSIDE, **change)
    with pytest.raises(NotCertifiable) as caught:
        checked_report(record(DIGEST), seen, NOW)
    assert "its own report says unproven: " in str(caught.value)
    assert why in str(caught.value)


def outcome(check: str, value: str) -> Change:
    def change(found: dict[str, Any]) -> None:
        next(entry for entry in found["checks"] if entry["id"] == check)["outcome"] = value

    return change


def test_a_certified_record_is_accepted() -> None:
    found = checked_report(record(DIGEST), OUTSIDE, NOW)
    assert found is not None
    assert found.host.driver == "580.65.06"
    assert found.fixture
    real = checked_report(changed(lambda found: found.update(fixture=False)), OUTSIDE, NOW)
    assert real is not None and not real.fixture


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"verdict": Verdict.FAILED, "reason": "it failed"}, "its own report says certified"),
        (
            {"verdict": Verdict.FAILED, "host_class": "no-gpu"},
            "it failed on a machine without a GPU",
        ),
        ({"verdict": Verdict.UNPROVEN, "reason": "no GPU"}, "its verdict is unproven: no GPU"),
        ({"verdict": Verdict.BROKEN}, "its verdict is broken"),
        (
            {"verdict": Verdict.WORKS_ON_CPU, "reason": "all passed"},
            "its verdict is works-on-cpu: all passed",
        ),
        # Whatever such a record says: an image without CUDA is not certified.
        (
            {"image": "tf2.21.0-cpu-py312", "cell": "tf2.21.0-cpu-py312@r580-h100"},
            "its own report says unproven: not passed: xla_train_step",
        ),
        ({"origin": Origin.ELSEWHERE}, "imported from elsewhere"),
        ({"origin": Origin.REHEARSAL}, "made by a REHEARSAL"),
        ({"origin": Origin.REHEARSAL, "verdict": Verdict.FAILED}, "made by a REHEARSAL"),
        ({"origin": Origin.REHEARSAL, "verdict": Verdict.WORKS_ON_CPU}, "made by a REHEARSAL"),
        ({"image_digest": None, "engine": "venv"}, "without an image (engine venv)"),
        ({"image_digest": "latest"}, "without an image"),
        ({"lock_digest": None}, "does not name a lock"),
        ({"report": None}, "it has no report"),
        ({"report": {"format": 99}}, "its report can't be read"),
        ({"checks": []}, "differ (checks)"),
        ({"host": {}}, "differ (host)"),
        ({"probe_version": "other"}, "differ (probe)"),
        ({"cell": "tf2.21.0-cpu-py312@no-gpu"}, "differ (cell)"),
        ({"versions": {"tensorflow": "2.20.0", "python": "3.12.7"}}, "differ (versions)"),
        ({"versions": VERSIONS | {"cudnn": "9.9.9"}}, "differ (versions)"),
        (
            {
                "image": "tf2.20.0-cuda12.5-cudnn9.3-py312",
                "cell": "tf2.20.0-cuda12.5-cudnn9.3-py312@r580-h100",
            },
            "TensorFlow 2.21.0 was in the image",
        ),
        ({"finished": (NOW + timedelta(days=30)).isoformat()}, "in the future"),
        ({"finished": (NOW + timedelta(days=1)).replace(tzinfo=None).isoformat()}, "in the future"),
        ({"finished": "yesterday"}, "its finish time is not a timestamp"),
    ],
)
def test_the_objection_to_a_record_is_reported(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(NotCertifiable) as caught:
        checked_report(record(DIGEST, **changes), OUTSIDE, NOW)
    assert why in str(caught.value)
    assert caught.value.exit_code == 1


def without_versions() -> dict[str, Any]:
    """Return a report in which the probe could not read what of CUDA is in the image."""
    made = copy.deepcopy(report())
    for check in made["checks"]:
        if check["id"] in ("cuda_libraries", "cudnn_load"):
            check["evidence"] = {}
    return made


def test_the_probe_must_have_read_the_versions() -> None:
    made = record(DIGEST, found=without_versions(), versions=VERSIONS_WITHOUT_CUDA)
    with pytest.raises(NotCertifiable, match="no version of cuda, cudnn"):
        checked_report(made, OUTSIDE, NOW)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (outcome("gpu_compute", "fail"), "its own report says failed: gpu_compute"),
        (outcome("silent_cpu", "skip"), "its own report says unproven: not passed: silent_cpu"),
        (lambda found: found["checks"].pop(0), "its own report says unproven: not run: driver"),
        (outcome("gpu_health", "skip"), "its own report says unproven: not passed: gpu_health"),
        (outcome("gpu_health", "fail"), "its own report says unproven: the GPU is not healthy"),
        (
            lambda found: found["checks"].append(dict(found["checks"][-3])),
            "its own report says unproven: reported more than once: gpu_health",
        ),
        (
            lambda found: found["probe"].update(version="2.0.0+0123456789ab"),
            "its own report says unproven: the probe had version 2.0.0+0123456789ab, not ",
        ),
        (lambda found: found["host"].update(gpus=[]), "its own report says unproven: no GPU"),
        (
            lambda found: [entry["evidence"].clear() for entry in found["checks"]],
            "its own report says unproven: not computed on the GPU: xla_train_step",
        ),
        (lambda found: found.update(checks="none"), "its report can't be read: checks: "),
        (lambda found: found.update(fixture=1), "its report can't be read: fixture: "),
        (
            lambda found: found["host"].update(device_nodes="x"),
            "can't be read: host.device_nodes: ",
        ),
    ],
)
def test_the_report_is_judged_again_whatever_the_record_says(change: Change, why: str) -> None:
    made = changed(change)
    assert made.verdict is Verdict.CERTIFIED
    with pytest.raises(NotCertifiable) as caught:
        checked_report(made, OUTSIDE, NOW)
    assert why in str(caught.value)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            lambda found: found["host"]["driver_libraries"]["cuda"].update(path="/tmp/stubs/libcuda.so.1"),
            "library cuda came from /tmp/stubs/libcuda.so.1",
        ),
        (
            lambda found: found["host"]["driver_libraries"].update(nvml={"answered": True, "path": None}),
            "library nvml came from an unknown directory",
        ),
        (
            lambda found: found["host"]["driver_libraries"]["nvml"].update(answered=False),
            "library nvml did not answer",
        ),
        (lambda found: found["host"].pop("driver_libraries"), "library cuda did not answer"),
        (lambda found: found["host"].update(device_nodes=[]), "no device file of a GPU opened"),
        (lambda found: found["host"].update(device_nodes=[{}]), "no device file of a GPU opened"),
        (
            lambda found: found["host"]["device_nodes"][0].update(path="/dev/nvidiactl"),
            "no device file of a GPU opened",
        ),
        (lambda found: found["host"]["device_nodes"][0].update(opens=False), "no device file"),
        (lambda found: found["host"]["device_nodes"][0].update(device=False), "no device file"),
        (lambda found: found["host"]["device_nodes"][0].update(registered=False), "no device file"),
        (lambda found: found["host"].update(kernel_driver="535.183.01"), "the kernel's driver is 535.183.01"),
        (
            lambda found: found["environment"].update(variables={"LD_PRELOAD": "/x/fake.so"}),
            "LD_PRELOAD put /x/fake.so before all libraries",
        ),
    ],
)
def test_signs_of_emulation_are_reported(change: Change, why: str) -> None:
    made = changed(change)
    with pytest.raises(NotCertifiable) as caught:
        checked_report(made, outside_of(made.host), NOW)
    assert "emulated" in str(caught.value)
    assert why in str(caught.value)


def test_a_sandbox_that_hides_the_kernel_module_is_not_emulation() -> None:
    made = changed(
        lambda found: (
            found["host"].update(kernel_driver=None),
            found["host"]["device_nodes"][0].update(registered=None),
        )
    )
    checked_report(made, OUTSIDE, NOW)


def test_a_failure_on_a_gpu_is_accepted_as_a_failure() -> None:
    """The signs of emulation and the missing versions may be how the image fails."""
    found = without_versions()
    outcome("gpu_compute", "fail")(found)
    found["host"]["driver_libraries"] = {}
    made = record(DIGEST, found=found, verdict=Verdict.FAILED, versions=VERSIONS_WITHOUT_CUDA)
    assert checked_report(made, OUTSIDE, NOW) is not None
    with pytest.raises(NotCertifiable, match="its own report says failed: gpu_compute"):
        checked_report(record(DIGEST, found=found), OUTSIDE, NOW)
