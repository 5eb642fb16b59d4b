"""Measured images in the answer about a machine."""

from __future__ import annotations

import json
from typing import Any

import pytest

from validator.model.record import Verdict

from .machines import (
    A100,
    AS_BUILT,
    DIGEST,
    NEWEST_LIBRARIES,
    OTHER,
    PINNED,
    RECOMMENDED,
    RTX_5090,
    modes,
    pullable,
    way,
    works,
)


def tried(verdict: str, digest: str | None = DIGEST, **machine: str) -> dict[str, Any]:
    """Return the answer if the newest image of a machine can be pulled, and a build of it has a verdict."""
    image = way(works(**machine), "image")
    return works(
        **machine,
        registry="registry.example.org/tf",
        images={image["image"]: DIGEST},
        verdicts={image["cell"]: {"verdict": verdict, "digest": digest}},
    )


REST = "The rest is only predicted."


def test_a_certified_image_works() -> None:
    answer = tried("certified", **A100)
    assert answer["headline"] == "TensorFlow 2.21.0 works in an image, and 2.20.0 should work with pip."
    assert answer["basis"] == f"The image of TensorFlow 2.21.0 was certified on this kind of machine. {REST}"


def test_a_certified_image_names_its_limits() -> None:
    limit = {
        "code": "xla_convolution_float32",
        "gpu": "NVIDIA A100",
        "error": "no configuration",
    }
    verdict = {"verdict": "certified", "digest": DIGEST, "limits": [limit]}
    answer = works(
        **A100,
        registry="r.example/tf",
        images={AS_BUILT: DIGEST},
        verdicts={f"{AS_BUILT}@r580-a100": verdict},
    )
    image = way(answer, "image")
    assert (image["verdict"], image["modes"]) == ("certified", "eager and XLA")
    [caution] = [one for one in image["cautions"] if "xla_convolution_float32" in one]
    assert "NVIDIA A100" in caution and "no configuration" in caution


@pytest.mark.parametrize("digest", [OTHER, None])
def test_a_certificate_of_another_build_proves_nothing(digest: str | None) -> None:
    answer = tried("certified", digest, **A100)
    assert answer["headline"] == works(**A100)["headline"]
    assert "only predicted" in answer["basis"] and "another build of the image" in answer["basis"]
    assert way(answer, "image")["commands"] == [f"docker pull registry.example.org/tf@{DIGEST}"]
    assert way(answer, "image")["verdict"] is None


def test_a_certificate_proves_nothing_of_an_image_that_has_to_be_built() -> None:
    image = way(works(**A100), "image")
    for digest in (DIGEST, None):
        answer = works(**A100, verdicts={image["cell"]: {"verdict": "certified", "digest": digest}})
        assert answer["headline"] == works(**A100)["headline"]
        assert "another build of the image" in answer["basis"]


@pytest.mark.parametrize("verdict", ["failed", "broken"])
def test_after_an_image_that_does_not_work_comes_another(verdict: str) -> None:
    answer = tried(verdict, None if verdict == "broken" else DIGEST, **A100)
    says = "failed when it was measured" if verdict == "failed" else "could not be built"
    cuda, cudnn = RECOMMENDED.removeprefix("tf2.21.0-cuda").removesuffix("-py312").split("-cudnn")
    assert answer["headline"] == (
        "TensorFlow 2.21.0 should work in an image, and 2.20.0 with pip."
        f" The image of TensorFlow 2.21.0 with CUDA {cuda}, cuDNN {cudnn} and Python 3.12 {says}."
    )
    assert ("measured" in answer["basis"]) == (verdict == "failed") and answer["basis"].endswith(REST)
    image = way(answer, "image")
    assert image["image"] == NEWEST_LIBRARIES and image["verdict"] is None
    assert image["commands"][0].endswith(f"--select image={image['image']}")
    [refuted] = answer["refuted"]
    assert (refuted["image"], refuted["verdict"]) == (RECOMMENDED, verdict)
    assert refuted["cell"] == f"{RECOMMENDED}@r580-a100"


def test_after_the_images_of_a_release_that_do_not_work_comes_an_older_release() -> None:
    newest = [RECOMMENDED, AS_BUILT, NEWEST_LIBRARIES]
    answer = pullable(dict.fromkeys(newest, "failed"), **A100)
    assert answer["headline"] == (
        "TensorFlow 2.20.0 should work. 3 images of TensorFlow 2.21.0 were tried and do not work."
    )
    assert answer["basis"] == f"3 images were tried on this kind of machine. {REST}"
    image = way(answer, "image")
    assert image["release"] == "2.20.0" and [one["image"] for one in answer["refuted"]] == newest
    [group] = image["newer"]
    assert group["releases"] == "2.21.0" and "failed when it was measured" in group["reasons"][0]["text"]
    row = answer["releases"][0]
    assert row["image"] == {"eager": "fails", "xla": "fails"} and row["reasons"][0]["fact"] == ""


def test_where_every_image_failed_pip_is_left() -> None:
    failed: dict[str, str] = {}
    answer = works(**A100)
    while images := [one["image"] for one in answer["ways"] if one["way"] == "image"]:
        assert not failed.keys() & set(images), "an image that failed is not offered again"
        failed |= dict.fromkeys(images, "failed")
        answer = pullable(failed, **A100)
    assert {one["way"] for one in answer["ways"]} == {"pip"}
    assert answer["headline"].startswith("TensorFlow 2.20.0 should work with pip. ")
    assert len(answer["refuted"]) > 5 and "docker pull" not in json.dumps(answer)


def test_a_certified_image_of_other_libraries_is_pulled() -> None:
    answer = pullable({PINNED: "certified"}, **A100)
    image = way(answer, "image")
    assert image["image"] == PINNED and image["verdict"] == "certified"
    assert image["commands"] == [f"docker pull registry.example.org/tf@{DIGEST}"]
    assert answer["headline"] == "TensorFlow 2.21.0 works in an image, and 2.20.0 should work with pip."
    # Another machine measured it, or nobody did: it can be pulled, which is better than to build one.
    other = pullable({PINNED: "certified"}, gpu="t4", driver="580", python="3.12")
    assert way(other, "image")["image"] == PINNED and way(other, "image")["verdict"] is None
    # It can't be pulled, and nothing says that the matrix has it.
    gone = works(**A100, verdicts={f"{PINNED}@r580-a100": {"verdict": "certified", "digest": DIGEST}})
    assert way(gone, "image")["image"] == RECOMMENDED


def test_a_certified_image_of_an_older_release_is_first() -> None:
    older = "tf2.19.0-cuda12.5-cudnn9.3-py312"
    answer = pullable({older: "certified"}, **A100)
    assert answer["headline"] == (
        "TensorFlow 2.19.0 works in an image, and 2.20.0 should work with pip."
        " An image of TensorFlow 2.21.0 should work too."
    )
    assert modes(answer)["eager"] == ("2.20.0", "works")
    first, second, _ = answer["ways"]
    assert first["commands"] == [f"docker pull registry.example.org/tf@{DIGEST}"]
    assert first["newer"][0]["reasons"][0]["text"].endswith("not certified on this kind of machine")
    assert second["image"] == RECOMMENDED and second["verdict"] is None


def test_an_image_whose_twin_failed_is_not_chosen_before_others() -> None:
    twin = RECOMMENDED.replace("py312", "py311")
    machine = {"gpu": "a100", "driver": "580"}
    assert way(pullable({twin: "unproven"}, **machine), "image")["image"] == twin
    newest = RECOMMENDED.replace("py312", "py313")
    answer = pullable({twin: "unproven", newest: "failed"}, **machine)
    assert way(answer, "image")["image"] == NEWEST_LIBRARIES.replace("py312", "py313")


def test_an_image_with_other_packages_is_chosen_only_if_it_is_certified() -> None:
    ours = f"{PINNED}_ours"
    image = way(pullable({ours: "certified"}, **A100), "image")
    assert image["image"] == ours and image["notes"] == ["This image has other packages too: ours."]
    assert way(pullable({ours: "unproven"}, **A100), "image")["image"] == RECOMMENDED


@pytest.mark.parametrize("verdict", ["unproven", "works-on-cpu"])
def test_a_measurement_that_proves_nothing_changes_nothing(verdict: str) -> None:
    answer = tried(verdict, **A100)
    assert answer["headline"] == works(**A100)["headline"] and "proved nothing" in answer["basis"]
    assert way(answer, "image")["verdict"] == verdict


def test_every_verdict_has_a_test_here() -> None:
    assert {each.value for each in Verdict} == {"certified", "failed", "broken", "unproven", "works-on-cpu"}


def test_a_certificate_counts_for_xla_too() -> None:
    predicted = works(**RTX_5090)["headline"]
    assert predicted == (
        "For eager operations, TensorFlow 2.21.0 should work. No release is known to work with XLA."
    )
    answer = tried("certified", **RTX_5090)
    assert answer["headline"] == (
        "For eager operations, TensorFlow 2.21.0 works in an image, and should work with pip."
        " With XLA, TensorFlow 2.21.0 works in an image."
    )
    assert modes(answer)["xla"] == ("2.21.0", "works")


def test_a_measurement_of_this_tool_is_named() -> None:
    answer = works(
        gpu="h200", driver="580", python="3.12", registry="r.example/tf", images={AS_BUILT: DIGEST}
    )
    image = way(answer, "image")
    assert image["image"] == AS_BUILT
    assert image["measured"] == "NVIDIA H200 with driver 580.159.04 and Python 3.12"
    assert image["reasons"][0]["text"].startswith("measured on 2026-11-27: it works on NVIDIA H200")
    assert any("xla_convolution_float32" in caution for caution in image["cautions"])
    assert "TensorFlow 2.21.0 was measured with the same versions on NVIDIA H200" in answer["basis"]
    assert way(answer, "pip")["measured"] is None
    elsewhere = works(
        gpu="a100", driver="580", python="3.12", registry="r.example/tf", images={AS_BUILT: DIGEST}
    )
    assert way(elsewhere, "image")["measured"] is None
    assert "measured with" not in elsewhere["basis"]
