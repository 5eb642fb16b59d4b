"""What works on a machine, as the page asks for it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from validator.answers.browser import ask
from validator.compat.releases import releases
from validator.compat.suggest import newest_that_works
from validator.matrix.load import load_matrix
from validator.matrix.plan import plan
from validator.model.record import Verdict
from validator.model.situation import Situation
from validator.resources import shipped_matrix

from ..reports.page.test_site import HOSTILE

DIGEST = f"sha256:{7:064x}"


def works(**changes: Any) -> dict[str, Any]:
    question: dict[str, Any] = {
        "kind": "works", "gpu": "", "driver": "", "python": "", "system": "linux", "machine": "x86_64",
        "registry": None, "images": {}, "verdicts": {},
    }  # fmt: skip
    found: dict[str, Any] = json.loads(ask(json.dumps(question | changes)))
    return found


def modes(answer: dict[str, Any]) -> dict[str, tuple[str | None, str]]:
    return {row["mode"]: (row["release"], row["outcome"]) for row in answer["modes"]}


def way(answer: dict[str, Any], name: str) -> dict[str, Any]:
    return next(row for row in answer["ways"] if row["way"] == name)


def test_pip_gets_the_release_that_doctor_suggests() -> None:
    for gpu, driver, python in (
        ("a100", "550.54.14", "3.12"),
        ("gtx 980", "535", "3.10"),
        ("k80", "470", "3.9"),
    ):
        answer = works(gpu=gpu, driver=driver, python=python)
        suggested = newest_that_works(Situation(gpu=gpu, driver=driver, python=python, system="linux"))
        assert suggested is not None
        assert way(answer, "pip")["release"] == suggested.release.version
        assert suggested.requirement in way(answer, "pip")["commands"][0]


def test_eager_and_xla_are_told_apart() -> None:
    answer = works(gpu="rtx 5090", driver="570.124.06", python="3.12")
    newest = answer["releases"][0]["release"]
    assert modes(answer) == {"eager": (newest, "works"), "xla": (None, "fails")}
    assert way(answer, "image")["modes"] == way(answer, "pip")["modes"] == "eager only"
    assert any("jit_compile" in note for note in way(answer, "pip")["notes"])


def test_the_answer_says_works_only_of_what_was_measured() -> None:
    machine = {"gpu": "h100", "driver": "580", "python": "3.12"}
    predicted = works(**machine)
    cell, newest = way(predicted, "image")["cell"], predicted["releases"][0]["release"]
    assert predicted["headline"].startswith(f"TensorFlow {newest} should work in an image, and ")
    assert "only predicted" in predicted["basis"] and "not measured" in predicted["basis"]
    for verdict in Verdict:
        answer = works(**machine, verdicts={cell: verdict.value, "tf2.21.0@another": "failed"})
        image, headline = way(answer, "image"), answer["headline"]
        assert image["verdict"] == verdict.value
        if verdict is Verdict.CERTIFIED:
            assert headline.startswith(f"TensorFlow {newest} works in an image, and ")
            assert "should work with pip" in headline and "was certified" in answer["basis"]
        elif verdict in (Verdict.FAILED, Verdict.BROKEN):
            assert "but it failed when it was measured" in headline and answer["outcome"] == "fails"
            assert image["commands"] == []
        else:
            assert headline == predicted["headline"] and "proved nothing" in answer["basis"]


def test_a_note_says_why_pip_gets_an_older_release_than_an_image() -> None:
    for gpu, driver in (("rtx 4090", "535"), ("gtx 980", "470.82.01")):
        answer = works(gpu=gpu, driver=driver)
        image, pip = way(answer, "image"), way(answer, "pip")
        assert image["release"] != pip["release"]
        assert pip["notes"][0].startswith(f"Not {image['release']}, because ")
        assert {mode["shown"] for mode in answer["modes"]} == {
            f"TensorFlow {image['release']} in an image, {pip['release']} with pip"
        }
    same = works(gpu="rtx 5090", driver="570")
    assert not any(note.startswith("Not ") for note in way(same, "pip")["notes"])
    assert same["modes"][0]["shown"] == f"TensorFlow {same['modes'][0]['release']}"


def test_newer_releases_are_left_out_with_their_reasons() -> None:
    answer = works(gpu="gtx 980", driver="470.82.01")
    image = way(answer, "image")
    assert image["newer"]
    assert all(group["reasons"] for group in image["newer"])
    [first, *_] = image["newer"][0]["reasons"]
    assert "525.60.13" in first["text"]
    assert first["source"]


def test_every_way_says_why_there_is_no_newer_release() -> None:
    for gpu in ("a100", "gtx 1080", "rtx 3060", "v100", "h100"):
        for driver in ("470.82.01", "535.183.01", "580.65.06"):
            answer = works(gpu=gpu, driver=driver, python="3.12")
            for found in answer["ways"]:
                assert all(group["reasons"] for group in found["newer"]), (gpu, driver, found["way"])


def test_neighbours_with_the_same_reasons_are_one_group() -> None:
    groups = way(works(system="windows", gpu="rtx 3060", driver="551.23", python="3.10"), "pip")["newer"]
    assert any(" to " in group["releases"] for group in groups)


def test_an_image_that_can_be_pulled_is_pulled_by_its_digest() -> None:
    machine = {"gpu": "a100", "driver": "580", "python": "3.12"}
    image = way(works(**machine), "image")
    assert "build-matrix" in image["commands"][0]
    assert image["cell"] == f"{image['image']}@r580-a100"
    pulled = way(
        works(**machine, registry="registry.example.org/tf", images={image["image"]: DIGEST}), "image"
    )
    assert pulled["commands"] == [f"docker pull registry.example.org/tf@{DIGEST}"]


def test_an_image_for_another_python_is_pulled_if_any_will_do() -> None:
    image = way(works(gpu="a100", driver="580", python="3.11"), "image")["image"]
    assert way(works(gpu="a100", driver="580"), "image")["image"] != image
    asked = works(gpu="a100", driver="580", registry="registry.example.org/tf", images={image: DIGEST})
    assert way(asked, "image")["commands"] == [f"docker pull registry.example.org/tf@{DIGEST}"]


def test_an_image_that_is_suggested_is_in_the_matrix() -> None:
    built = {image.identifier for image in plan(load_matrix(shipped_matrix()), "full").images}
    suggested = {
        found["image"]
        for gpu in ("k80", "gtx 980", "v100", "a100", "rtx 5090")
        for driver in ("470.82.01", "535", "580")
        for found in works(gpu=gpu, driver=driver)["ways"]
        if found["way"] == "image"
    }
    assert len(suggested) > 2
    assert suggested <= built


def test_the_cuda_version_of_nvidia_smi_stands_for_its_driver() -> None:
    by_cuda = works(gpu="rtx 4090", driver="12.2", python="3.11")
    by_branch = works(gpu="rtx 4090", driver="R535", python="3.11")
    line = "| NVIDIA-SMI 535.183.01   Driver Version: 535.183.01   CUDA Version: 12.2 |"
    assert modes(by_cuda) == modes(by_branch) == modes(works(gpu="rtx 4090", driver=line, python="3.11"))
    assert by_cuda["machine"][1] == "CUDA 12.2 in nvidia-smi, so driver R535"


def test_every_release_is_judged() -> None:
    answer = works(gpu="t4", driver="535")
    stable = [release.version for release in releases() if not release.prerelease]
    assert [row["release"] for row in answer["releases"]] == stable[::-1]
    for row in answer["releases"]:
        assert row["reasons"] or set((row["image"] or row["pip"]).values()) == {"works"}


def test_nothing_is_certain_without_a_driver() -> None:
    answer = works(gpu="a100")
    assert "the NVIDIA driver is not known" in answer["headline"]
    assert answer["outcome"] == "unknown"
    assert modes(answer)["eager"][1] == "unknown"


def test_where_no_release_works_the_reasons_are_given() -> None:
    answer = works(gpu="t4", driver="390.48")
    assert modes(answer)["eager"] == (None, "fails")
    assert answer["ways"] == []
    assert answer["releases"][0]["reasons"]


@pytest.mark.parametrize("system", ["windows", "macos"])
def test_there_is_no_image_for_other_systems(system: str) -> None:
    answer = works(gpu="rtx 3060", driver="551.23", system=system)
    assert {row["way"] for row in answer["ways"]} <= {"pip"}
    assert answer["releases"][0]["image"] is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"gpu": "3060"}, 'GPU "3060" is not known'),
        ({"gpu": "RX 7900 XTX"}, "GPU of AMD"),
        ({"gpu": "x" * 300}, "longer than 200 characters"),
        ({"driver": "new"}, "neither a driver nor a CUDA version"),
        ({"driver": "12"}, "neither a driver nor a CUDA version"),
        ({"driver": "99.1"}, "no known driver branch shows CUDA 99.1"),
        ({"python": "2.7"}, "is not a Python version"),
        ({"system": "beos"}, "is not one of linux"),
        ({"gpu": HOSTILE}, "is not known"),
        ({"driver": HOSTILE}, "neither a driver nor a CUDA version"),
    ],
)
def test_what_cannot_be_understood_is_said(changes: dict[str, str], words: str) -> None:
    error = works(**changes)["error"]
    assert words in error["message"]
    assert error["hint"] or "system" in changes
    # On the page, people choose the system from a list, so no field can be wrong there.
    assert [error["field"]] == [name if name != "system" else "" for name in changes]


def test_a_wrong_name_gets_the_nearest_ones() -> None:
    assert works(gpu="3060")["error"]["nearest"][0] == "RTX 3060"
