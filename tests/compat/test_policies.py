"""The choices of a policy, and the requirements for the resolver."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from validator._vendor.packaging.requirements import Requirement
from validator.compat import judge, known_issues, policies, predict
from validator.compat.facts import PolicyError
from validator.compat.releases import Release, release, releases
from validator.errors import EXIT_INPUT
from validator.model.prediction import Outcome
from validator.model.spec import (
    AS_BUILT,
    LATEST,
    RECOMMENDED,
    Additions,
    Cell,
    Choice,
    HostClass,
    ImageSpec,
    LocalWheel,
    Requirements,
    Variant,
)
from validator.versions import ComputeCapability, DriverRelease, is_release_of, major_minor

BUILDABLE = [known for known in releases() if known.wheels]


def spec(tensorflow: str, cuda: str, cudnn: str | None = None) -> ImageSpec:
    known = release(tensorflow)
    chosen = policies.choose(known, cuda, cudnn or cuda)
    return ImageSpec(known.version, known.pythons[-1], Variant.GPU, *chosen)


def pins(image: ImageSpec) -> dict[str, str]:
    """Every requirement of an image spec, as name -> specifier."""
    parsed = [Requirement(line) for line in policies.tensorflow_requirements(image)]
    return {requirement.name: str(requirement.specifier) for requirement in parsed}


@pytest.mark.parametrize(
    ("tensorflow", "cuda", "cudnn", "expected_cuda", "expected_cudnn"),
    [
        ("2.21.0", AS_BUILT, AS_BUILT, Choice(AS_BUILT, "12.5"), Choice(AS_BUILT, "9.3")),
        ("2.21.0", LATEST, LATEST, Choice(LATEST, "12.9", True), Choice(LATEST, "9.28", True)),
        ("2.21.0", LATEST, AS_BUILT, Choice(LATEST, "12.9", True), Choice(AS_BUILT, "9.3")),
        ("2.21.0", "12.8", "9.10.2", Choice("12.8", "12.8"), Choice("9.10.2", "9.10")),
        ("2.21.0", "12.8.1", "9.10.2.21", Choice("12.8.1", "12.8"), Choice("9.10.2.21", "9.10")),
        # An exact extra has the versions of the build, so that both policies are one image ...
        ("2.18.1", LATEST, LATEST, Choice(AS_BUILT, "12.5"), Choice(AS_BUILT, "9.3")),
        ("2.15.1", LATEST, LATEST, Choice(AS_BUILT, "12.2"), Choice(AS_BUILT, "8.9")),
        # ... except where it also brings TensorRT, or fails to.
        ("2.15.0", LATEST, LATEST, Choice(LATEST, "12.2", True), Choice(LATEST, "8.9", True)),
        ("2.14.1", LATEST, LATEST, Choice(LATEST, "11.8", True), Choice(LATEST, "8.7", True)),
        ("2.14.1", AS_BUILT, AS_BUILT, Choice(AS_BUILT, "11.8"), Choice(AS_BUILT, "8.7")),
        ("2.13.1", AS_BUILT, AS_BUILT, Choice(AS_BUILT, "11.8"), Choice(AS_BUILT, "8.6")),
        ("2.13.1", AS_BUILT, "8.9", Choice(AS_BUILT, "11.8"), Choice("8.9", "8.9")),
        ("2.10.1", AS_BUILT, AS_BUILT, Choice(AS_BUILT, "11.2"), Choice(AS_BUILT, "8.1")),
    ],
)
def test_choices(
    tensorflow: str, cuda: str, cudnn: str, expected_cuda: Choice, expected_cudnn: Choice
) -> None:
    assert policies.choose(release(tensorflow), cuda, cudnn) == (expected_cuda, expected_cudnn)


@pytest.mark.parametrize(
    ("tensorflow", "cuda", "cudnn", "axis", "message"),
    [
        ("2.21.0", AS_BUILT, "9.99", "cudnn", '"9.99" is not known; the nearest are 9.28, 9.27, 9.26'),
        ("2.21.0", AS_BUILT, "9.3.9", "cudnn", '"9.3.9" is not known; the nearest are 9.4, 9.3, 9.5'),
        (
            "2.21.0",
            "12.2",
            AS_BUILT,
            "cuda",
            '"12.2" is not allowed by the metadata of tensorflow 2.21.0 (>=12.5,<13); the nearest is 12.5',
        ),
        (
            "2.21.0",
            "13.0",
            AS_BUILT,
            "cuda",
            '"13.0" is not allowed by the metadata of tensorflow 2.21.0 (>=12.5,<13); the nearest is 12.9',
        ),
        # The first release of CUDA 12.5 is older than the lower bounds, which are those of 12.5.1.
        (
            "2.21.0",
            "12.5.0",
            AS_BUILT,
            "cuda",
            '"12.5.0" is not allowed by the metadata of tensorflow 2.21.0 (>=12.5,<13); the nearest is 12.5',
        ),
        (
            "2.21.0",
            AS_BUILT,
            "8.9",
            "cudnn",
            '"8.9" is not allowed by the metadata of tensorflow 2.21.0 (>=9.3,<10); the nearest is 9.3',
        ),
        (
            "2.18.0",
            "12.6",
            AS_BUILT,
            "cuda",
            '"12.6" is not allowed by the metadata of tensorflow 2.18.0 (==12.5); the nearest is 12.5',
        ),
        ("2.21.0", "12.7", AS_BUILT, "cuda", '"12.7" is not known; the nearest are 12.8, 12.6, 12.9'),
        (
            "2.21.0",
            "9" * 5000,
            AS_BUILT,
            "cuda",
            f'"{"9" * 5000}" is not known; the nearest are 12.9, 12.8, 12.6',
        ),
        ("2.21.0", "newest", AS_BUILT, "cuda", '"newest" is not known; the nearest are 12.9, 12.8, 12.6'),
        ("2.21.0", "12", AS_BUILT, "cuda", '"12" is not known; the nearest are 12.5, 12.6, 12.8'),
        (
            "2.10.1",
            "11.8",
            AS_BUILT,
            "cuda",
            '"11.8" is not allowed by the metadata of tensorflow 2.10.1 (no NVIDIA wheels)',
        ),
    ],
)
def test_an_impossible_version_is_rejected_with_the_nearest_possible_ones(
    tensorflow: str, cuda: str, cudnn: str, axis: str, message: str
) -> None:
    with pytest.raises(PolicyError) as caught:
        policies.choose(release(tensorflow), cuda, cudnn)
    assert str(caught.value) == message
    assert caught.value.axis == axis
    assert all(name in message for name in caught.value.nearest)
    assert caught.value.exit_code == EXIT_INPUT


@pytest.mark.parametrize("axis", ["cuda", "cudnn"])
def test_latest_needs_an_extra(axis: str) -> None:
    asked = {"cuda": AS_BUILT, "cudnn": AS_BUILT, axis: LATEST}
    with pytest.raises(
        PolicyError, match=f"no and-cuda extra, which would define its latest {axis}"
    ) as caught:
        policies.choose(release("2.13.1"), asked["cuda"], asked["cudnn"])
    assert (caught.value.axis, caught.value.nearest) == (axis, (AS_BUILT,))


def test_a_prediction_may_use_versions_that_the_metadata_excludes() -> None:
    chosen = policies.choose(release("2.21.0"), "13.0", "8.9", within_metadata=False)
    assert chosen == (Choice("13.0", "13.0"), Choice("8.9", "8.9"))
    with pytest.raises(PolicyError, match="not known"):
        policies.choose(release("2.21.0"), "12.7", AS_BUILT, within_metadata=False)


def test_the_nearest_versions_of_a_pin_are_allowed_ones() -> None:
    with pytest.raises(PolicyError) as caught:
        policies.choose(release("2.21.0"), AS_BUILT, "9.99")
    for version in caught.value.nearest:
        policies.choose(release("2.21.0"), AS_BUILT, version)


@pytest.mark.parametrize("known", BUILDABLE, ids=lambda known: known.version)
def test_as_built_pins_every_nvidia_wheel_and_leaves_tensorrt_out(known: Release) -> None:
    asked = pins(spec(known.version, AS_BUILT))
    assert asked.pop("tensorflow") == f"=={known.version}"
    nvidia = {name: pin for name, pin in asked.items() if name.startswith("nvidia-")}
    assert set(nvidia) == set(known.wheels)
    assert all(re.fullmatch(r"==[\d.]+", pin) for pin in nvidia.values())
    assert not any(name.startswith("tensorrt") for name in asked)
    runtime = nvidia[f"nvidia-cuda-runtime-{known.suffix}"]
    assert major_minor(runtime.removeprefix("==")) == known.cuda
    assert major_minor(nvidia[f"nvidia-cudnn-{known.suffix}"].removeprefix("==")) == known.cudnn


def test_as_built_of_the_newest_release() -> None:
    assert policies.tensorflow_requirements(spec("2.21.0", AS_BUILT)) == (
        "tensorflow==2.21.0",
        "nvidia-cublas-cu12==12.5.3.2",
        "nvidia-cuda-cupti-cu12==12.5.82",
        "nvidia-cuda-nvcc-cu12==12.5.82",
        "nvidia-cuda-nvrtc-cu12==12.5.82",
        "nvidia-cuda-runtime-cu12==12.5.82",
        "nvidia-cudnn-cu12==9.3.0.75",
        "nvidia-cufft-cu12==11.2.3.61",
        "nvidia-curand-cu12==10.3.6.82",
        "nvidia-cusolver-cu12==11.6.3.83",
        "nvidia-cusparse-cu12==12.5.1.3",
        "nvidia-nccl-cu12==2.27.7",
        "nvidia-nvjitlink-cu12==12.5.82",
    )


@pytest.mark.parametrize("tensorflow", ["2.14.1", "2.15.0", "2.20.0", "2.21.0"])
def test_latest_is_literally_the_extra(tensorflow: str) -> None:
    assert policies.tensorflow_requirements(spec(tensorflow, LATEST)) == (
        f"tensorflow[and-cuda]=={tensorflow}",
    )


def test_the_other_axis_stays_pinned_if_one_floats() -> None:
    assert policies.tensorflow_requirements(spec("2.21.0", LATEST, "9.10.2")) == (
        "tensorflow[and-cuda]==2.21.0",
        "nvidia-cudnn-cu12==9.10.2.21",
    )
    mixed = policies.tensorflow_requirements(spec("2.21.0", "12.8", LATEST))
    assert mixed[0] == "tensorflow[and-cuda]==2.21.0"
    assert "nvidia-cuda-nvcc-cu12==12.8.93" in mixed
    assert not any(line.startswith("nvidia-cudnn") for line in mixed)


def test_a_pin_means_the_newest_release_that_it_matches() -> None:
    assert pins(spec("2.21.0", "12.8", "9.10"))["nvidia-cublas-cu12"] == "==12.8.5.5"
    assert pins(spec("2.21.0", "12.8.1", "9.10"))["nvidia-cublas-cu12"] == "==12.8.4.1"
    assert pins(spec("2.21.0", "12.8", "9.10"))["nvidia-cudnn-cu12"] == "==9.10.2.21"
    assert pins(spec("2.21.0", "12.8", "9.10.1"))["nvidia-cudnn-cu12"] == "==9.10.1.4"


def test_pins_leave_nothing_floating() -> None:
    for cuda, cudnn in itertools.product(("12.5", "12.6", "12.8", "12.9"), ("9.3", "9.10.2", "9.28")):
        asked = pins(spec("2.21.0", cuda, cudnn))
        assert all(pin.startswith("==") for pin in asked.values())
        assert set(asked) == {"tensorflow", *release("2.21.0").wheels}


def test_a_pin_does_not_match_a_longer_number() -> None:
    assert not is_release_of("12.10.0", "12.1")
    assert is_release_of("12.1.0", "12.1")


def test_missing_bounds_are_added_if_nothing_floats() -> None:
    assert "numpy<2" in policies.tensorflow_requirements(spec("2.14.0", AS_BUILT))
    assert "numpy<2" not in policies.tensorflow_requirements(spec("2.14.1", AS_BUILT))
    assert policies.tensorflow_requirements(spec("2.14.0", LATEST)) == ("tensorflow[and-cuda]==2.14.0",)


def test_the_cpu_variant_does_not_require_cuda() -> None:
    assert policies.tensorflow_requirements(ImageSpec("2.21.0", "3.12", Variant.CPU)) == (
        "tensorflow-cpu==2.21.0",
    )


def test_an_image_has_pip_and_what_the_matrix_adds() -> None:
    plain = spec("2.21.0", AS_BUILT)
    assert policies.requirements(plain) == (*policies.tensorflow_requirements(plain), "pip")
    wheel = LocalWheel("wheels/ours-1.0-py3-none-any.whl", "ours", "1.0", "ab", 1)
    asked = Requirements("requirements.txt", ("attrs", "pandas>=2"))
    added = Additions(packages=("pandas>=2", "keras-hub"), wheels=(wheel,), requirements=asked)
    assert policies.requirements(replace(plain, additions=added)) == (
        *policies.requirements(plain),
        "pandas>=2",
        "keras-hub",
        "ours @ wheels/ours-1.0-py3-none-any.whl#sha256=ab",
        "attrs",
    )


def test_a_release_whose_cuda_has_no_wheels_cannot_be_built() -> None:
    with pytest.raises(PolicyError, match=r"built with CUDA 11\.2, for which there are no wheels"):
        policies.tensorflow_requirements(spec("2.10.1", AS_BUILT))


def test_a_patch_release_requires_itself() -> None:
    assert policies.tensorflow_requirements(spec("2.19.0", AS_BUILT))[0] == "tensorflow==2.19.0"


# -- the policy recommended ------------------------------------------------------------------------------

#: Makes rows of known_issues.yaml hold as well, each given by what is special about it.
Faults = Callable[..., None]


@pytest.fixture
def add_faults(monkeypatch: pytest.MonkeyPatch) -> Iterator[Faults]:
    real = known_issues.combinations()

    def forget() -> None:
        for module in (known_issues, judge, judge, predict, policies):
            for value in vars(module).values():
                if hasattr(value, "cache_clear") and value.__module__ == module.__name__:
                    value.cache_clear()

    def add(*rows: dict[str, Any]) -> None:
        usual = {"mode": "xla", "means": "fails", "text": "it breaks", "remedy": "use another"}
        added = [
            known_issues.combination({
                "id": f"KB-TEST-{number}", "status": "verified", "sources": ["idx"], **usual, **row,
            })
            for number, row in enumerate(rows)
        ]  # fmt: skip
        forget()
        monkeypatch.setattr(known_issues, "combinations", lambda: (*real, *added))

    yield add
    monkeypatch.undo()
    forget()


def recommended(tensorflow: str = "2.21.0") -> tuple[str, str]:
    """What the rules give now, with the faults that a test adds. It is compiled for all who read it."""
    cuda, cudnn = policies.newest_without_fault(release(tensorflow))
    assert not (cuda.floats or cudnn.floats)
    return cuda.version, cudnn.version


def why(tensorflow: str) -> str:
    found: str = policies.recommendation(release(tensorflow))["why"]
    return found


def test_without_a_known_fault_the_newest_allowed_versions_are_recommended() -> None:
    newest = [choice.version for choice in policies.choose(release("2.21.0"), LATEST, LATEST)]
    assert list(recommended()) == newest
    assert policies.why_recommended(release("2.21.0")).startswith(
        f"CUDA {newest[0]} and cuDNN {newest[1]} are the newest that tensorflow 2.21.0 allows,"
    )


@pytest.mark.parametrize("known", BUILDABLE, ids=lambda known: known.version)
def test_what_is_recommended_is_a_pin_that_the_metadata_allows(known: Release) -> None:
    chosen = policies.choose(known, RECOMMENDED, RECOMMENDED)
    # The same choice whoever asks for it, so that no image is built twice under one name.
    assert chosen == policies.choose(known, *(choice.policy for choice in chosen))
    asked = pins(ImageSpec(known.version, known.pythons[-1], Variant.GPU, *chosen))
    assert all(re.fullmatch(r"==[\d.]+", pin) for name, pin in asked.items() if name.startswith("nvidia-"))
    if known.extra_style != "range":
        assert chosen == policies.choose(known, AS_BUILT, AS_BUILT)
        assert "the only versions" in policies.why_recommended(known)


@pytest.mark.slow
def test_a_fault_of_the_newest_versions_is_avoided_and_named(add_faults: Faults) -> None:
    add_faults({"when": {"all": [{"nvidia-cudnn": ">=9.27"}, {"tensorflow": "==2.21"}]}})
    assert recommended() == ("12.9", "9.26")
    assert recommended("2.20.0") == ("12.9", "9.28")
    assert why("2.21.0") == (
        "CUDA 12.9 and cuDNN 9.26 are the newest that tensorflow 2.21.0 allows and that have no fault"
        " that other versions avoid. With CUDA 12.9 and cuDNN 9.28, a fault is known on T4: XLA:"
        " it breaks (KB-TEST-0)"
    )


def test_a_fault_of_what_the_release_was_built_with_is_named(add_faults: Faults) -> None:
    when = {"all": [{"nvidia-cudnn": "<9.24"}, {"tensorflow": "==2.20"}]}
    ada, others = {"capability": "==8.9"}, {"capability": ">=9.0"}
    add_faults(
        {"when": {"all": [*when["all"], ada]}}, {"when": {"all": [*when["all"], others]}, "means": "unknown"}
    )
    assert recommended("2.20.0") == ("12.9", "9.28")
    assert why("2.20.0") == (
        "CUDA 12.9 and cuDNN 9.28 are the newest that tensorflow 2.20.0 allows, and no known fault rules them"
        " out. With CUDA 12.5 and cuDNN 9.3, a fault is known on L2: XLA: it breaks (KB-TEST-0)"
    )


def test_what_is_unknown_counts_as_a_fault_and_an_advisory_does_not(add_faults: Faults) -> None:
    add_faults(
        {"when": {"nvidia-cudnn": ">=9.28"}, "means": "unknown"},
        {"when": {"nvidia-cudnn": ">=9.20"}, "means": "advisory"},
    )
    assert recommended() == ("12.9", "9.27")


@pytest.mark.slow
def test_a_fault_on_every_version_makes_no_difference(add_faults: Faults) -> None:
    add_faults({"when": {"tensorflow": "==2.21"}, "mode": "eager"})
    assert recommended() == ("12.9", "9.28")


def test_the_versions_with_the_fewest_faults_are_recommended_if_all_have_some(add_faults: Faults) -> None:
    add_faults(
        {"when": {"nvidia-cudnn": ">=9.10"}},
        {"when": {"all": [{"nvidia-cudnn": "<9.10"}, {"capability": "<8.0"}]}},
        {"when": {"nvidia-cuda-nvcc": ">=12.9"}, "mode": "eager"},
    )
    assert recommended("2.20.0") == ("12.8", "9.9")


def test_versions_with_as_many_faults_are_not_judged_on_every_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    known, judged = release("2.21.0"), list[tuple[object, str]]()
    pairs = policies.candidates(known)
    models = policies._targets(policies.cudnn_version(known, pairs[0][1]))

    def count(_: Release, pair: object, model: str) -> int:
        judged.append((pair, model))
        return int(model == models[-1])

    monkeypatch.setattr(policies, "_count", count)
    assert policies.newest_without_fault(known) == pairs[0]
    assert judged == [(pairs[0], model) for model in models] + [(pair, models[-1]) for pair in pairs[1:]]


def test_one_of_the_two_can_be_recommended_for_a_given_other() -> None:
    assert policies.choose(release("2.21.0"), RECOMMENDED, "9.10") == (
        Choice("12.9", "12.9"),
        Choice("9.10", "9.10"),
    )
    assert policies.choose(release("2.21.0"), AS_BUILT, RECOMMENDED)[0] == Choice(AS_BUILT, "12.5")


def test_what_is_recommended_is_predicted_to_work_wherever_the_versions_of_the_build_are() -> None:
    """On every data-center GPU from Turing on, for both modes, with the newest driver."""
    for tensorflow in ("2.20.0", "2.21.0"):
        for capability in ("7.5", "8.0", "8.6", "8.9", "9.0"):
            host = HostClass("r580", DriverRelease(580), ComputeCapability.parse(capability))
            found = predict.predict(Cell(spec(tensorflow, RECOMMENDED), host))
            assert (found.outcome, found.eager, found.xla) == (Outcome.WORKS,) * 3
