"""Facts about versions and GPUs are stated once, in compat, and every command names the same fact.

These tests go through the catalogue: a condition of a cause that compares versions by itself needs a reason
here, and each known combination that is a sign of a cause is named by `predict`, by `lint` and by `doctor`.
"""

from __future__ import annotations

import ast
import inspect
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from validator.compat import hardware, known_issues
from validator.compat.judge import judge
from validator.compat.policies import cudnn_releases
from validator.compat.releases import known_versions
from validator.conditions import Comparison, Condition, ConditionError
from validator.diagnosis import conclusions, diagnose_log
from validator.diagnosis.catalogue import Sign, causes, language, language_with, section
from validator.diagnosis.compile import messages
from validator.lint.findings import lint, on_hosts
from validator.model.prediction import LINUX, PYPI, X86_64, Host, Software

from ..compat.cells import host

#: Kinds whose values are versions or name a GPU. `system` is not one: it chooses among commands.
_VERSIONS = ("tensorflow", "python", "keras", "cuda", "cudnn", "driver", "driver_cuda", "gpu", "capability")
#: What may compare versions by itself: place, kind and range, and the reason.
ALLOWED = {
    ("fused_convolution_unsupported", "gpu", "H200"): "the model that was measured, with TF32 on and off",
    ("fused_convolution_unsupported", "gpu", "NVIDIA H200"): "the same model, as the driver names it",
    ("platform_without_cuda_build", "cuda", ">=11.8"): "the reader's toolkit, where no release is known",
    ("old_cuda_without_a_release", "cuda", "<10.1"): "the reader's toolkit, where no release is known",
    ("package_with_cuda", "cuda", "<10.1"): "the reader's toolkit, where no release is known",
    ("platform_without_cuda_build", "cuda", "<10.1"): "the reader's toolkit, where no release is known",
    ("cpu_only_build", "cuda", "<10.1"): "the reader's toolkit, where no release is known",
    ("cuda_library_missing_or_wrong_version", "tensorflow", "<2.17"): "what hosted notebooks have at a time",
    ("cuda_library_missing_or_wrong_version", "tensorflow", "<2.4"): "a log that contradicts the release",
    ("newer_release_runs", "tensorflow", "<2.4"): "a log that contradicts the release",
    ("code_for_tensorflow_1", "tensorflow", "<2.0"): "which programs can't be for an older TensorFlow",
    ("cuda_library_missing_or_wrong_version", "python", "<3.9"): "which Python has releases with the extra",
    ("compute_capability_unsupported", "python", "<3.9"): "the same, by `ada_with_old_python`",
    ("ada_with_old_python", "python", "<3.9"): "which Python has releases with the extra",
    ("libdevice_not_found", "tensorflow", "<2.4"): "which wheel of nvcc a remedy names",
    ("operation_without_gpu_kernel", "tensorflow", "<2.0"): "which of two ways of setting options it names",
    ("cpu_only_build", "tensorflow", "<2.14"): "the releases of which the official images for GPUs work",
    ("runtime_of_cuda_11_there", "cuda", ">=11.1,<12"): "one name for the runtime of all of CUDA 11",
    ("library_path_not_set", "cuda", ">=11.1,<12"): "the same, by `runtime_of_cuda_11_there`",
    ("library_out_of_path", "cuda", ">=11.1,<12"): "the same, by `runtime_of_cuda_11_there`",
    ("tf1", "tensorflow", "<2.0"): "which of TensorFlow's two ways of setting options an answer names",
    ("keras_3_with_metal", "keras", ">=3"): "a Mac, where no row of compat says what the plugin needs",
    ("keras_version_conflict", "keras", ">=3"): "a Mac, where no row of compat says what the plugin needs",
    (
        "platform_without_cuda_build",
        "keras",
        ">=3",
    ): "a Mac, where no row of compat says what the plugin needs",
    ("keras_version_conflict", "keras", "<2.3"): "the Keras whose own code asks for TensorFlow 1",
    ("old_keras", "keras", "<2.3"): "the Keras whose own code asks for TensorFlow 1",
    ("keras_version_conflict", "tensorflow", "<2.4"): "the remedy that names the Keras of old releases",
    ("keras_version_conflict", "tensorflow", ">=2.4"): "the remedy for Keras of TensorFlow's own numbers",
    ("kepler_fails_in_cudnn", "capability", "==3.7"): "one cuDNN, of which there is no wheel",
    ("kepler_fails_in_cudnn", "cudnn", "==8.3"): "one cuDNN, of which there is no wheel",
    ("gpu_kernel_failed", "capability", "==3.7"): "one cuDNN, of which there is no wheel",
    ("gpu_kernel_failed", "cudnn", "==8.3"): "one cuDNN, of which there is no wheel",
    ("cusolver_of_newer_cuda", "cuda", ">=11.1"): "the reader's toolkit, whose libraries have other names",
    (
        "cuda_library_missing_or_wrong_version",
        "cuda",
        ">=11.1",
    ): "the reader's toolkit, whose libraries have other names",
    ("compute_capability_unsupported", "capability", ">=10.0"): "the remedies for Blackwell",
    ("compute_capability_unsupported", "capability", ">=3.5,<6.0"): "the remedies for old GPUs",
    ("compute_capability_unsupported", "capability", "==3.0"): "the remedies for old GPUs",
    ("compute_capability_unsupported", "cuda", "<11"): "the build of a program, whatever its release",
    (
        "compute_capability_unsupported",
        "capability",
        "<5.2",
    ): "what NVIDIA's images have, of whatever release",
    ("compute_capability_unsupported", "tensorflow", "<2.16"): "releases from before Blackwell, of any kind",
    ("compute_capability_unsupported", "tensorflow", "<2.0"): "which programs NVIDIA's build of 1.15 helps",
    ("gpu_out_of_memory", "capability", "<6.0"): "GPUs with little memory and without mixed precision",
    ("held_rather_than_needed", "capability", "<6.0"): "GPUs with little memory, by `old_gpu`",
    ("driver_too_old", "cuda", "<11"): "programs that need CUDA 11, which no release of TensorFlow says",
    ("old_cuda_with_proteins", "cuda", "<11"): "programs that need CUDA 11, of any release",
    ("driver_not_to_install", "cuda", "<11"): "programs that need CUDA 11, by `old_cuda_with_proteins`",
    ("cpu_only_build", "python", "<3.7"): "what conda-forge has for Pythons, by `old_for_conda_forge`",
    ("cpu_only_build", "tensorflow", ">=2.7"): "a Python that is not in use, by `old_for_conda_forge`",
    (
        "cuda_library_missing_or_wrong_version",
        "cudnn",
        ">=8.3,<9.0",
    ): "which cuDNN needs zlib on Windows, whatever the release",
    ("jetpack_4", "python", "<3.7"): "the Python of a JetPack, of which compat has no table",
    ("platform_without_cuda_build", "python", "<3.7"): "the Python of a JetPack, by `jetpack_4`",
    ("may_have_jetpack_5", "python", "<3.7"): "the Python of a JetPack, by `jetpack_4`",
    ("may_have_jetpack_6", "python", "<3.7"): "the Python of a JetPack, by `jetpack_4`",
    ("no_installable_package", "python", "<3.7"): "the Python of a JetPack, by `jetpack_4`",
    ("old_for_conda_forge", "python", "<3.7"): "what conda-forge has for Pythons, of whatever release",
    ("old_for_conda_forge", "tensorflow", ">=2.7"): "a Python without wheels of this release is not in use",
    ("old_gpu", "capability", "<6.0"): "GPUs with little memory and without mixed precision",
    ("ptxas_missing_or_unsuitable", "capability", ">=10.0"): "which wheel of nvcc a remedy names",
    ("compute_capability_unsupported", "tensorflow", ">=2.18"): "the remedies for Pascal and Volta",
    ("compute_capability_unsupported", "capability", ">=6.0,<7.5"): "the remedies for Pascal and Volta",
    ("compute_capability_unsupported", "capability", ">=7.0,<10.0"): "the remedies for GPUs in between",
}
#: Releases that conclusions compare with: they say how to read a text, not what works.
ALLOWED_IN_CONCLUSIONS = {(2, 13), (2, 18)}


def conditions() -> Iterator[tuple[str, Condition]]:
    """Yield every condition of the catalogue with the code of its cause, or the name of the condition."""
    for name in section("conditions"):
        yield name, language().parse(name)
    for cause in causes():
        for one in (*(sign.when for sign in cause.signs), cause.ruled_out_by):
            yield cause.code, one
        for remedy in cause.remedies:
            yield cause.code, remedy.when


def own_versions(where: str, condition: Condition) -> set[tuple[str, str, str]]:
    """Return the comparisons with versions in a condition: place, kind and range."""
    return {
        (where, one.kind, wanted.text)
        for one in condition.comparisons()
        if one.kind in _VERSIONS
        for values in one.values.values()
        for wanted in values
    }


def test_no_cause_compares_versions_by_itself_without_a_reason() -> None:
    found = {one for where, condition in conditions() for one in own_versions(where, condition)}
    assert found == set(ALLOWED), "make it a row of validator/compat/data/known_issues.yaml: {fact: ID}"


def test_a_condition_on_a_version_is_found_however_deep_it_stands() -> None:
    written = {"all": ["xla_in_use", {"none": [{"tensorflow": ">=2.21"}]}]}
    assert own_versions("new", language().parse(written)) == {("new", "tensorflow", ">=2.21")}


def test_no_conclusion_compares_other_releases() -> None:
    compared = {
        tuple(part.value for part in node.elts if isinstance(part, ast.Constant))
        for node in ast.walk(ast.parse(inspect.getsource(conclusions)))
        if isinstance(node, ast.Tuple)
        and len(node.elts) == 2
        and all(isinstance(part, ast.Constant) and type(part.value) is int for part in node.elts)
    }
    assert compared == ALLOWED_IN_CONCLUSIONS


def test_a_fact_that_compat_does_not_have_is_an_error() -> None:
    with pytest.raises(ConditionError, match=r"^here.fact: `KB-NOTHING` is not a fact"):
        language_with({}).parse({"fact": ["KB-FUSED-CONV", "KB-NOTHING"]}, "here")


def signs() -> Iterator[tuple[str, Sign, known_issues.Combination]]:
    """Yield each sign of a cause that names a known combination, with the cause's code."""
    for cause in causes():
        for sign in cause.signs:
            for one in sign.when.comparisons():
                fact = known_issues.by_kind().get(one.kind)
                if fact is not None and fact.means != known_issues.TRAIT:
                    yield cause.code, sign, fact


SIGNS = list(signs())
ISSUES = list({fact.fact.id: fact for _, _, fact in SIGNS}.values())


def example(fact: known_issues.Combination) -> dict[str, str]:
    """Return versions for which a fact holds, by kind, found by trying; the newest of each where possible."""
    kinds = list(dict.fromkeys(one.kind for one in fact.when.comparisons()))
    bounds = ("1.26.4", "2.0.2", "3.3.3", "4.25.3", "12.5.82")
    candidates = {
        "tensorflow": [*reversed(known_versions())],
        "python": ["3.12", "3.11", "3.10", "3.9"],
        "cudnn": [*reversed(cudnn_releases("cu12"))],
        "gpu": [one.slug for one in hardware.gpus()],
        "extra": ["yes", "no"],
    }
    # A condition such as {none: [numpy]} holds without the package.
    named = [kind for kind in kinds if kind not in candidates and kind != "capability"]
    without = [{}, *({name: version} for name in named for version in bounds)]
    asked = [kind for kind in kinds if kind in candidates]
    for values in itertools.product(*(candidates[kind] for kind in asked)):
        for packages in without:
            known = {**dict(zip(asked, values, strict=True)), **packages}
            if "gpu" in known:
                known["capability"] = str(hardware.gpu(known["gpu"]).compute_capability)
            if fact.holds(known):
                return known
    raise AssertionError(f"no versions are known for which {fact.fact.id} holds")


def pins(known: dict[str, str]) -> dict[str, str]:
    """Return the packages other than TensorFlow that are installed, by name."""
    others = {"tensorflow", "python", "cudnn", "gpu", "capability", "extra"}
    found = {name: version for name, version in known.items() if name not in others}
    return {**found, "nvidia-cudnn-cu12": known["cudnn"]} if "cudnn" in known else found


@pytest.mark.parametrize("fact", ISSUES, ids=lambda fact: fact.fact.id)
def test_predict_names_the_fact(fact: known_issues.Combination) -> None:
    known = example(fact)
    prediction = judge(
        Software(
            tensorflow=known["tensorflow"], python=known.get("python"), wheel=PYPI,
            extra="extra" in known or None, packages=tuple(pins(known).items()),
        ),
        Host(gpu=known.get("gpu"), system=LINUX, machine=X86_64),
    )  # fmt: skip
    assert fact.fact.id in {reason.fact for reason in prediction.reasons}


@pytest.mark.parametrize(
    "fact",
    [one for one in ISSUES if one.means == known_issues.FAILS],
    ids=lambda fact: fact.fact.id,
)
def test_lint_names_the_fact_where_a_file_pins_the_versions(
    fact: known_issues.Combination, tmp_path: Path
) -> None:
    known = example(fact)
    extra = "[and-cuda]" if known.get("extra") == "yes" else ""
    lines = [f"tensorflow{extra}=={known['tensorflow']}"]
    lines += [f"{name}=={version}" for name, version in pins(known).items()]
    if "python" in known:
        image = [f"FROM python:{known['python']}", "RUN pip install " + " ".join(f"'{one}'" for one in lines)]
        file = tmp_path / "Dockerfile"
        file.write_text("\n".join(image) + "\n")
    else:
        file = tmp_path / "requirements.txt"
        file.write_text("\n".join(lines) + "\n")
    if fact.by_gpu:
        predicted = on_hosts([file], [host(known["gpu"], "580")])
        assert fact.fact.id in {reason.fact for one in predicted for reason in one.prediction.reasons}
    [finding] = [one for one in lint([file]).findings if one.fact == fact.fact.id]
    # A file does not say which GPU it is for, so the finding names those on which it fails.
    assert not fact.by_gpu or hardware.gpu(known["gpu"]).name in finding.message


@pytest.mark.parametrize(
    ("code", "sign", "fact"), SIGNS, ids=[f"{code}-{fact.fact.id}" for code, _, fact in SIGNS]
)
def test_doctor_names_the_cause_from_the_versions_in_a_log(
    code: str, sign: Sign, fact: known_issues.Combination
) -> None:
    known = example(fact)
    versions = {"tensorflow": known["tensorflow"], **pins(known)}
    text = "".join(f"{name:<28} {version}\n" for name, version in versions.items())
    if known.get("extra") == "yes":
        text += f"$ pip install tensorflow[and-cuda]=={known['tensorflow']}\n"
    if "python" in known:
        text += f"Python {known['python']}.1\n"
    if "gpu" in known:
        text += f"GPU 0: NVIDIA {hardware.gpu(known['gpu']).name} (UUID: GPU-1234)\n"
    text += "".join(f"{line}\n" for line in lines_of(sign))
    assert code in {cause.code for cause in diagnose_log(text).causes}, text


def lines_of(sign: Sign) -> Iterator[str]:
    """Yield an example of each message that a sign asks for besides facts."""
    wanted = {one.kind for one in sign.when.comparisons() if isinstance(one, Comparison)}
    for kind in sorted(wanted):
        yield from (row["examples"][0] for _, row in messages() if row["kind"] == kind)
