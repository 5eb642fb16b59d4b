"""The remarks of an answer, which stand below its headline."""

from __future__ import annotations

import pytest

from .machines import A100, AS_BUILT, DIGEST, NEWEST_LIBRARIES, RECOMMENDED, pullable, way, works


def remarks_on(gpu: str, driver: str, **machine: str) -> str:
    """Return the sentences below the headline."""
    return " ".join(works(gpu=gpu, driver=driver, **machine)["remarks"])


def test_a_remark_says_why_pip_gets_an_older_release_than_an_image() -> None:
    for gpu, driver, python, why in (
        (
            "rtx 4090",
            "535",
            "",
            "2.21.0 finds CUDA's libraries only if LD_LIBRARY_PATH names their directories",
        ),
        ("gtx 980", "470.82.01", "3.11", "TensorFlow 2.14.1 does not work here: the extra asks for tensorrt"),
    ):
        answer = works(gpu=gpu, driver=driver, python=python)
        image, pip = way(answer, "image"), way(answer, "pip")
        assert image["release"] != pip["release"]
        assert f"With pip, {why}" in " ".join(answer["remarks"])
        assert {mode["shown"] for mode in answer["modes"]} == {
            f"TensorFlow {image['release']} in an image, {pip['release']} with pip"
        }
    same = works(gpu="rtx 5090", driver="570")
    assert not any(remark.startswith("With pip") for remark in same["remarks"])
    assert same["modes"][0]["shown"] == f"TensorFlow {same['modes'][0]['release']}"


@pytest.mark.parametrize(
    ("gpu", "driver", "why"),
    [
        ("h100", "550", "R550 returns CUDA_ERROR_UNSUPPORTED_PTX_VERSION."),
        ("gtx 1080", "418", "needs driver 525.60.13 or newer; this is 418."),
        ("gtx 980", "535", "the wheel has no kernels for compute capability 5.2"),
        ("rtx 5090", "570", "With XLA, TensorFlow 2.21.0 does not work here: tensorflow 2.21.0 writes PTX"),
    ],
)
def test_a_remark_says_why_the_newest_release_does_not_work(gpu: str, driver: str, why: str) -> None:
    first, *_ = works(gpu=gpu, driver=driver)["remarks"]
    assert "TensorFlow 2.21.0 does not work here: " in first and why in first


def test_no_other_remark_where_the_newest_release_works() -> None:
    assert works(**A100)["remarks"] == [
        "With pip, 2.21.0 finds CUDA's libraries only if LD_LIBRARY_PATH names their directories; 2.20.0"
        " needs no such setting."
    ]
    # The headline says which images were tried.
    refuted = pullable(dict.fromkeys([RECOMMENDED, AS_BUILT, NEWEST_LIBRARIES], "failed"), **A100)
    assert refuted["remarks"] == []


@pytest.mark.parametrize(
    ("machine", "says"),
    [
        (
            {"gpu": "gtx 1080", "driver": "418"},
            "With driver 525.60.13 or newer, up to R580, the last branch for this GPU:"
            " for eager operations, TensorFlow 2.21.0 should work in an image, and 2.20.0 with pip.",
        ),
        (
            {"gpu": "h100", "driver": "550"},
            "With driver R555 or newer: TensorFlow 2.21.0 should work in an image, and 2.20.0 with pip.",
        ),
        (
            {"gpu": "t4", "driver": "11.2"},
            "With driver 525.60.13 or newer: TensorFlow 2.21.0 should work in an image, and 2.20.0 with pip.",
        ),
        ({"gpu": "t4", "driver": "390.48"}, "With driver 525.60.13 or newer: TensorFlow 2.21.0 should work"),
        (
            {"gpu": "rtx 5090", "driver": "535"},
            "With driver R570 or newer: for eager operations, TensorFlow 2.21.0 should work.",
        ),
        (
            {"gpu": "rtx 3060", "driver": "450", "system": "wsl2"},
            "With driver 527.41 or newer for Windows: TensorFlow 2.21.0 should work",
        ),
        ({"driver": "418"}, "or newer: no known fact rules out TensorFlow 2.21.0, but the GPU is not known."),
        (
            {"gpu": "v100", "driver": "590"},
            "With driver R580, the last branch for this GPU: for eager operations, TensorFlow 2.21.0 should",
        ),
        (
            {"gpu": "k80", "driver": "550"},
            "With driver R470, the last branch for this GPU: TensorFlow 2.11.1 should work with pip.",
        ),
    ],
)
def test_a_remark_says_what_another_driver_allows(machine: dict[str, str], says: str) -> None:
    assert says in " ".join(works(**machine)["remarks"])


@pytest.mark.parametrize(
    ("machine", "allowed"),
    [
        ({"gpu": "h100", "driver": "535"}, "2.20.0"),
        # 2.20.0 works with the driver itself.
        ({"gpu": "a100", "driver": "535"}, None),
        # R550 has ended, a GeForce may not use the package, and only Linux has it.
        ({"gpu": "h100", "driver": "550"}, None),
        ({"gpu": "rtx 5090", "driver": "535"}, None),
        ({"gpu": "h100", "driver": "535", "system": "wsl2"}, None),
    ],
)
def test_a_remark_says_what_a_newer_libcuda_allows(machine: dict[str, str], allowed: str | None) -> None:
    said = [remark for remark in works(**machine)["remarks"] if "cuda-compat" in remark]
    assert [f"TensorFlow {allowed} should work with pip" in remark for remark in said] == [True] * bool(
        allowed
    )


def test_what_another_driver_allows_is_what_works_with_it() -> None:
    before = works(gpu="gtx 1080", driver="418.56")
    [said] = [remark for remark in before["remarks"] if remark.startswith("With driver")]
    headline = works(gpu="gtx 1080", driver="525.60.13")["headline"]
    assert said.endswith(f"for eager operations, {headline.removeprefix('For eager operations, ')}")
    assert "2.21.0" not in works(gpu="gtx 1080", driver="525.53")["headline"]


@pytest.mark.parametrize(
    ("gpu", "driver", "system"),
    [("a100", "580", "linux"), ("gtx 980", "535", "linux"), ("t4", "390.48", "macos"), ("h100", "", "linux")],
)
def test_no_driver_is_named_where_none_changes_the_answer(gpu: str, driver: str, system: str) -> None:
    assert "With driver" not in remarks_on(gpu, driver, system=system)


def test_a_release_candidate_is_named_where_no_stable_release_works() -> None:
    said = remarks_on("rtx 5090", "580")
    assert "The release candidate 2.22.0rc0" in said and "should work with XLA too" in said
    assert '`python -m pip install "tensorflow[and-cuda]==2.22.0rc0"`' in said
    assert "nobody has measured it" in said
    for gpu, driver, python in (("a100", "580", ""), ("rtx 5090", "580", "3.9"), ("t4", "390.48", "")):
        assert "candidate" not in remarks_on(gpu, driver, python=python)


def test_what_is_known_to_go_wrong_is_said_next_to_the_headline() -> None:
    assert (
        "Note for TensorFlow 2.18.1: ptxas 12.0 up to 12.6.77 is known to miscompile XLA code on Hopper"
        in remarks_on("h100", "550")
    )
    # The newest CUDA has no such fault, but the image that can be pulled does.
    image = way(works(gpu="h200", driver="580"), "image")
    assert image["image"] == RECOMMENDED.replace("py312", "py313") and image["cautions"] == []
    only = AS_BUILT.replace("py312", "py313")
    pulled = works(gpu="h200", driver="580", registry="registry.example.org/tf", images={only: DIGEST})
    assert way(pulled, "image")["image"] == only
    assert "Note for TensorFlow 2.21.0 in an image: ptxas" in " ".join(pulled["remarks"])
    assert "Note" not in remarks_on("a100", "580")
