"""The facts that were read go through compat's judge, and its reasons become causes."""

from __future__ import annotations

from types import MappingProxyType
from typing import get_args

import pytest

from validator.compat.known_issues import FAILS as ISSUE_FAILS
from validator.compat.known_issues import by_kind, combinations
from validator.conditions import fact_kind
from validator.diagnosis import diagnose_log
from validator.diagnosis.catalogue import CERTAIN, LIKELY, POSSIBLE, causes
from validator.diagnosis.combination import FAILS, judge
from validator.diagnosis.conclusions import conclude
from validator.diagnosis.observations import Certainty, Observation, Observations
from validator.model.prediction import Rule

Entry = tuple[str, dict[str, str]]


def judged(*entries: Entry, certainty: Certainty = Certainty.OBSERVED) -> Observations:
    found = Observations()
    for number, (kind, values) in enumerate(entries, start=1):
        text = f"{kind} {values}"
        found.add(Observation(kind, MappingProxyType(values), text, f"line {number}", certainty=certainty))
    conclude(found)
    judge(found)
    return found


def rules(found: Observations) -> set[str]:
    return {one.values["rule"] for one in found.of(FAILS)}


def tensorflow(version: str) -> Entry:
    return "tensorflow", {"version": version}


def package(name: str, version: str) -> Entry:
    return "package", {"name": name, "version": version}


def system(name: str) -> Entry:
    return "os", {"name": name}


@pytest.mark.parametrize(
    ("entries", "rule"),
    [
        ([tensorflow("2.11.0"), system("windows")], "platform_without_cuda"),
        ([tensorflow("2.11"), system("windows")], "platform_without_cuda"),
        ([package("tensorflow", "2.15.0"), system("macos")], "platform_without_cuda"),
        ([tensorflow("2.1.0"), ("cuda", {"version": "10.2.89"})], "cuda_of_another_version"),
        ([tensorflow("2.18.0"), ("cuda", {"version": "11.8"})], "cuda_of_another_version"),
        ([tensorflow("2.18.0"), ("cudnn", {"version": "9.1.0"})], "cudnn_older_than_built"),
        ([tensorflow("2.18.0"), ("cudnn", {"version": "8.9"})], "cudnn_of_another_major"),
        ([tensorflow("2.18.0"), package("nvidia-cudnn-cu12", "9.1.0.70")], "cudnn_older_than_built"),
        ([tensorflow("2.10.0"), package("cudnn", "7.6.5")], "cudnn_of_another_major"),
        ([tensorflow("2.18.0"), ("driver", {"version": "470.57.02"})], "driver_too_old"),
        (
            [system("windows"), ("cuda", {"version": "10.0"}), ("driver", {"version": "388.73"})],
            "driver_too_old",
        ),
        ([tensorflow("2.18.0"), ("driver_cuda", {"version": "11.4"})], "driver_too_old"),
        ([tensorflow("2.18.0"), ("python", {"version": "3.13.0"})], "python_without_wheel"),
        (
            [("pip_install", {"name": "tensorflow", "version": "2.10.0"}), ("python", {"version": "3.12"})],
            "python_without_wheel",
        ),
        ([tensorflow("2.18.0"), ("gpu", {"name": "GeForce RTX 5090"})], "no_kernels_for_gpu"),
        (
            [
                tensorflow("2.18.0"),
                ("gpu", {"name": "Tesla V100-SXM2-16GB"}),
                package("nvidia-cudnn-cu12", "9.28.0.1"),
            ],
            "cudnn_without_gpu",
        ),
        (
            [("compute_capability", {"value": "6.1"}), ("driver", {"version": "590.44.01"})],
            "driver_dropped_gpu",
        ),
        ([tensorflow("2.18.0"), ("compute_capability", {"value": "3.5"})], "no_kernels_for_gpu"),
        ([package("tensorflow-cpu", "2.18.0")], "cpu_package"),
        ([("other_gpu", {"name": "AMD Radeon RX 6800"}), ("gpu", {"name": "Radeon RX 6800"})], "not_nvidia"),
    ],
)
def test_facts_that_cannot_work(entries: list[Entry], rule: Rule) -> None:
    found = judged(*entries)
    (reason,) = [one for one in found.of(FAILS) if one.values["rule"] == rule][:1]
    assert reason.values["text"] and reason.values["fact"] and reason.values["source"]
    assert reason.text and reason.where.startswith("line "), "it has the lines that it rests on"


@pytest.mark.parametrize(
    ("entries", "rule"),
    [
        ([tensorflow("2.10.1"), system("windows")], "platform_without_cuda"),
        ([tensorflow("2.15.0"), system("windows"), ("wsl", {})], "platform_without_cuda"),
        ([tensorflow("2.18.0"), ("cuda", {"version": "12.2"})], "cuda_of_another_version"),
        ([tensorflow("2.18.0"), ("cudnn", {"version": "9.28"})], "cudnn_older_than_built"),
        ([tensorflow("2.18.0"), ("driver", {"version": "535.183.01"})], "driver_too_old"),
        ([tensorflow("2.18.0"), ("python", {"version": "3.12.1"})], "python_without_wheel"),
        ([tensorflow("2.18.0"), ("gpu", {"name": "NVIDIA H100 PCIe"})], "no_kernels_for_gpu"),
        ([tensorflow("2.99.0"), ("python", {"version": "3.6"})], "python_without_wheel"),
    ],
)
def test_facts_that_fit(entries: list[Entry], rule: Rule) -> None:
    assert rule not in rules(judged(*entries))


def test_facts_that_are_only_mentioned_are_not_judged() -> None:
    entries = [tensorflow("2.18.0"), ("driver", {"version": "470.57.02"})]
    assert rules(judged(*entries, certainty=Certainty.STATED)) == {"driver_too_old"}
    assert not rules(judged(*entries, certainty=Certainty.MENTIONED))


def test_a_conclusion_is_as_certain_as_its_least_certain_base() -> None:
    found = Observations()
    for kind, version, certainty in (
        ("tensorflow", "2.18.0", Certainty.OBSERVED),
        ("driver", "470.57.02", Certainty.STATED),
    ):
        found.add(
            Observation(kind, MappingProxyType({"version": version}), kind, "line 1", certainty=certainty)
        )
    judge(found)
    assert [one.certainty for one in found.of(FAILS)] == [Certainty.STATED]


def signs_by_rule() -> dict[str, set[str]]:
    """Return the codes of the causes whose signs name a rule or the fact of a known issue."""
    found: dict[str, set[str]] = {}
    for cause in causes():
        for sign in cause.signs:
            for one in sign.when.comparisons():
                for wanted in one.values.get("rule", ()):
                    if one.kind == FAILS:
                        found.setdefault(wanted.text, set()).add(cause.code)
                if one.kind in by_kind():
                    found.setdefault(by_kind()[one.kind].fact.id, set()).add(cause.code)
    return found


# These are not part of a combination that is judged. If a text shows CUDA_VISIBLE_DEVICES, another sign
# recognizes it. Only `lint` asks whether a release exists, whether a version is one, and what pip refuses.
NOT_JUDGED = ("known_issue", "devices_hidden", "release_missing", "invalid_version", "requirement_unmet")


@pytest.mark.parametrize("rule", [rule for rule in get_args(Rule) if rule not in NOT_JUDGED])
def test_every_rule_is_the_sign_of_a_cause(rule: str) -> None:
    assert signs_by_rule().get(rule), f"no cause has a sign {{{FAILS}: {{rule: {rule}}}}}"


def test_every_known_issue_that_fails_is_the_sign_of_a_cause() -> None:
    failing = {one.fact.id for one in combinations() if one.means == ISSUE_FAILS}
    assert failing and failing <= set(signs_by_rule())


def test_a_wheel_without_its_extra_has_no_cuda_libraries() -> None:
    asked = ">>> tf.config.list_physical_devices('GPU')\n[]\n"
    plain = diagnose_log(f"No GPU\n$ pip install tensorflow==2.18.0\n{asked}").causes
    assert plain[0].code == "cuda_library_missing_or_wrong_version"
    assert "tensorflow[and-cuda]" in plain[0].title
    with_extra = diagnose_log(f"No GPU\n$ pip install tensorflow[and-cuda]==2.18.0\n{asked}").causes
    assert "cuda_library_missing_or_wrong_version" not in {cause.code for cause in with_extra}


def test_every_sign_names_a_rule_that_there_is() -> None:
    known = {*get_args(Rule), *(one.fact.id for one in by_kind().values())}
    assert set(signs_by_rule()) <= known


OLD_DRIVER = "NVIDIA-SMI 470.57.02    Driver Version: 470.57.02    CUDA Version: 11.4\n"
INSTALLED = "tensorflow                   2.18.0\n"
SYMPTOM = ">>> tf.config.list_physical_devices('GPU')\n[]\n"
REFUSED = (
    "2025-01-01 10:00:00.000001: E external/local_xla/xla/stream_executor/cuda/cuda_driver.cc:152] failed"
    " call to cuInit: CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER: API call requires newer driver\n"
)


def answer(text: str) -> list[tuple[str, str]]:
    return [(cause.code, cause.strength) for cause in diagnose_log(text).causes]


def test_facts_without_a_symptom_make_a_cause_at_most_likely() -> None:
    assert answer(OLD_DRIVER + INSTALLED) == [("driver_too_old", LIKELY)]
    stated = "I use TensorFlow 2.18.0 with NVIDIA driver version 470.57.02."
    assert answer(stated) == [("driver_too_old", LIKELY)]
    text = "tensorflow-cpu               2.18.0\n"
    assert answer(text + SYMPTOM)[0] == ("cpu_only_build", CERTAIN)


@pytest.mark.parametrize(
    ("text", "begins"),
    [
        ("tensorflow-cpu               2.18.0\n" + SYMPTOM, "tensorflow-cpu has no CUDA"),
        ("tensorflow-gpu==2.12.0\n", "tensorflow-gpu 2.12.0 can't be installed"),
        ("tensorflow 2.18.0, Python 3.13\n", "TensorFlow 2.18.0 has no wheel"),
        ("tensorflow                   2.18.0\nDriver Version: 470.57.02\n", "CUDA 12"),
    ],
)
def test_a_title_keeps_the_spelling_of_a_name(text: str, begins: str) -> None:
    assert diagnose_log(text).causes[0].title.startswith(begins)


def test_a_message_makes_facts_certain_and_both_are_evidence() -> None:
    (cause,) = diagnose_log(OLD_DRIVER + INSTALLED + REFUSED).causes
    assert (cause.code, cause.strength) == ("driver_too_old", CERTAIN)
    lines = "\n".join(one.text for one in cause.evidence)
    assert "failed call to cuInit" in lines and "Driver Version: 470.57.02" in lines


def test_a_rule_that_is_only_possible_does_not_make_a_guess_certain() -> None:
    assert all(strength == POSSIBLE for _, strength in answer("I have CUDA 11.8 and TensorFlow 2.18.0."))


@pytest.mark.parametrize(
    ("release", "name", "version", "fact", "holds"),
    [
        ("2.15.0", "numpy", "2.0.0", "KB-NUMPY2-BUILD", True),
        ("2.18.0", "numpy", "2.0.2", "KB-NUMPY2-BUILD", False),
        ("2.15.0", "keras", "3.3.3", "KB-KERAS3-UNDER-KERAS2", True),
        ("2.16.1", "keras", "3.3.3", "KB-KERAS3-UNDER-KERAS2", False),
        ("2.7.1", "protobuf", "4.21.0", "KB-PROTOBUF-BOUND", True),
        ("2.12.0", "protobuf", "4.21.0", "KB-PROTOBUF-BOUND", False),
    ],
)
def test_a_fact_that_holds_has_the_values_and_the_lines_that_it_rests_on(
    release: str, name: str, version: str, fact: str, holds: bool
) -> None:
    found = judged(tensorflow(release), package(name, version)).first(fact_kind(fact))
    assert (found is not None) is holds
    if found is not None:
        assert found.values[name] == version and found.values["tensorflow"]
        assert found.where == "line 2" and name in found.text


def test_whether_a_fact_holds_is_not_known_without_the_release_or_for_another_build() -> None:
    assert fact_kind("KB-NUMPY2-BUILD") in judged(package("numpy", "2.0.2")).undecided
    from_conda = [("conda_install", {"name": "tensorflow"}), tensorflow("2.15.0"), package("numpy", "2.0.2")]
    assert fact_kind("KB-NUMPY2-BUILD") in judged(*from_conda).undecided
