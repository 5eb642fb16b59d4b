"""The page's question: what works on a machine?"""

from __future__ import annotations

import itertools
import re

import pytest

from validator.compat import facts
from validator.compat.offers import image_of, newest_that_works
from validator.compat.releases import releases
from validator.matrix.load import load_matrix
from validator.matrix.plan import plan
from validator.model.prediction import Host, Outcome
from validator.resources import shipped_matrix

from ..laws import subjects_to_try
from ..reports.page.test_site import HOSTILE
from .machines import A100, AS_BUILT, DIGEST, PINNED, modes, way, works

WORKS, FAILS = Outcome.WORKS, Outcome.FAILS


def test_pip_gets_the_release_that_doctor_suggests() -> None:
    for gpu, driver, python in (
        ("a100", "550.54.14", "3.12"),
        ("gtx 980", "535", "3.10"),
        ("k80", "470", "3.9"),
    ):
        answer = works(gpu=gpu, driver=driver, python=python)
        suggested = newest_that_works(Host(gpu=gpu, driver=driver, system="linux"), python)
        assert suggested is not None
        assert way(answer, "pip")["release"] == suggested.release.version
        assert suggested.requirement in way(answer, "pip")["commands"][0]


def test_eager_and_xla_are_told_apart() -> None:
    answer = works(gpu="rtx 5090", driver="570.124.06", python="3.12")
    newest = answer["releases"][0]["release"]
    assert modes(answer) == {"eager": (newest, "works"), "xla": (None, "fails")}
    assert way(answer, "image")["modes"] == way(answer, "pip")["modes"] == "eager-only"
    assert any("jit_compile" in note for note in way(answer, "pip")["notes"])


def test_a_prediction_says_should_work() -> None:
    answer = works(**A100)
    assert answer["headline"] == "TensorFlow 2.21.0 should work in an image, and 2.20.0 with pip."
    assert answer["basis"] == "This is only predicted from published facts, and was not measured."
    assert works(**A100, verdicts=None)["basis"] == "This answer is only predicted, from published facts."
    assert works(gpu="l4")["basis"] == "This answer is only predicted, from published facts."


@pytest.mark.parametrize(
    ("identifier", "same"),
    [
        (AS_BUILT, True),
        ("tf2.21.0-cudalatest-cudnnlatest-py313", True),
        ("tf2.21.0-cuda12.8-cudnn9.10-py312-ubuntu24.04", True),
        (f"{PINNED}_ours", False),
        ("tf2.15.0-cudalatest-cudnnlatest-py311", True),
        ("tf2.21.0-cpu-py312", None),
        ("tf9.9.9-cuda12.8-cudnn9.10-py312", None),
        ("tf2.21.0-cuda99.0-cudnn9.10-py312", None),
        ("tf2.21.0-cuda12.8-cudnn9.10", None),
        (HOSTILE, None),
    ],
)
def test_an_image_is_read_from_its_identifier(identifier: str, same: bool | None) -> None:
    spec = image_of(identifier)
    assert (spec.identifier == identifier if spec else None) == same


@pytest.mark.slow
def test_uncertain_is_what_no_fact_rules_out() -> None:
    machine = {"gpu": "h100", "driver": "525", "system": "windows"}
    answer = works(**machine)
    assert answer["headline"] == (
        "No known fact rules out TensorFlow 2.10.1, but it is not certain that it works."
    )
    assert answer["outcome"] == way(answer, "pip")["outcome"] == "unknown"


@pytest.mark.parametrize("system", ["linux", "windows"])
@pytest.mark.parametrize("python", ["", "3.10", "3.12"])
def test_every_release_that_is_named_can_be_had(system: str, python: str) -> None:
    machines = itertools.product(
        ("", "k80", "gtx 980", "h100", "rtx 5090"), ("", "390.48", "470.82.01", "525", "580")
    )
    for gpu, driver in subjects_to_try(list(machines), len(system + python)):
        answer = works(gpu=gpu, driver=driver, python=python, system=system)
        had = {row["release"] for row in answer["ways"]}
        named = f"{answer['headline']} {' '.join(mode['shown'] for mode in answer['modes'])}"
        assert set(re.findall(r"2\.\d+\.\d+", named)) <= had, (gpu, driver)
        assert bool(had) == (answer["outcome"] != "fails"), (gpu, driver)


def test_newer_releases_are_left_out_with_their_reasons() -> None:
    answer = works(gpu="gtx 980", driver="470.82.01")
    image = way(answer, "image")
    assert image["newer"]
    assert all(group["reasons"] for group in image["newer"])
    [first, *_] = image["newer"][0]["reasons"]
    assert "525.60.13" in first["text"]
    assert first["source"]


@pytest.mark.slow
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


@pytest.mark.slow
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
    older = [row["minor"] for row in facts.rows("older", "releases")]
    stable = [release.version for release in releases() if not release.prerelease]
    assert [row["release"] for row in answer["releases"]] == stable[::-1] + older
    assert older[0] == "2.7" and older[-1] == "1.0"
    for row in answer["releases"]:
        assert row["reasons"] or set((row["image"] or row["pip"]).values()) == {"works"}


@pytest.mark.parametrize(
    "machine",
    [
        {"gpu": gpu, "driver": driver, "python": python, "system": system}
        for gpu in ("gtx 980", "h100", "rtx 5090")
        for driver in ("418", "470.82.01", "580")
        for python in ("", "3.9")
        for system in ("linux", "windows")
    ],
)
def test_the_table_agrees_with_the_headline(machine: dict[str, str]) -> None:
    answer = works(**machine)
    rows = {row["release"]: row for row in answer["releases"]}
    for row in rows.values():
        for name, reasons in (("image", row["reasons"]), ("pip", row["pip_reasons"])):
            if row[name] is not None:
                assert bool(reasons) == (set(row[name].values()) != {"works"}), (row["release"], name)
    for found in answer["ways"]:
        row = rows[found["release"]]
        modes_ = ("eager", "xla") if found["modes"] == "eager and XLA" else ("eager",)
        assert {row[found["way"]][mode] for mode in modes_} == {found["outcome"]}
        if found["way"] == "pip":
            said = "\n".join((*found["commands"], *found["notes"]))
            assert all(need in said for need in row["needs"])
            assert ("LD_LIBRARY_PATH" in said) == ("LD_LIBRARY_PATH" in row["needs"])
            assert ("does not bring CUDA's libraries" in said) == any(
                "cuDNN" in need for need in row["needs"]
            )


def test_the_table_names_what_pip_needs() -> None:
    rows = {row["release"]: row for row in works(gpu="rtx 4090", driver="535")["releases"]}
    assert rows["2.21.0"]["needs"] == ["LD_LIBRARY_PATH"] and rows["2.20.0"]["needs"] == []
    assert rows["2.10.1"]["needs"][:2] == ["CUDA 11.2", "cuDNN 8.1"] and "numpy<2" in rows["2.10.1"]["needs"]
    assert rows["2.14.1"]["needs"] == ["Python 3.10"] and rows["2.14.1"]["pip_reasons"] == []
    # Needs are listed only for what can be used.
    rows = {row["release"]: row for row in works(gpu="rtx 4090", driver="535", python="3.11")["releases"]}
    assert rows["2.14.1"]["pip_reasons"] and rows["2.14.1"]["needs"] == []
    assert rows["2.14.1"]["reasons"] == [], "its image works"


def test_pip_gets_the_newest_release_that_works_with_any_python() -> None:
    answer, named = works(gpu="t4", driver="470"), works(gpu="t4", driver="470", python="3.10")
    assert answer["headline"] == named["headline"] == "TensorFlow 2.14.1 should work."
    free, given = way(answer, "pip"), way(named, "pip")
    assert free["release"] == given["release"] == "2.14.1"
    # TensorFlow 2.14.1 has a wheel for Python 3.11, but TensorRT, which its extra needs, has none.
    assert free["python"] == "3.10" and "TensorFlow 2.14.1 needs Python 3.9 to 3.10." in free["notes"]
    assert any("--python 3.10" in command for command in free["commands"])
    assert not any("Python" in note for note in given["notes"])


def test_nothing_is_certain_without_a_driver() -> None:
    answer = works(gpu="a100")
    assert "the NVIDIA driver is not known" in answer["headline"]
    assert answer["outcome"] == "unknown"
    assert modes(answer)["eager"][1] == "unknown"


def test_where_no_release_works_the_reasons_are_given() -> None:
    answer = works(gpu="t4", driver="390.48")
    assert modes(answer)["eager"] == (None, "fails")
    assert answer["headline"] == "No TensorFlow release is expected to use the GPU here."
    assert answer["ways"] == []
    assert answer["releases"][0]["reasons"]
    assert {row["pip"]["eager"] for row in answer["releases"]} == {"fails"}


@pytest.mark.parametrize(
    ("gpu", "driver", "release", "package", "libraries"),
    [
        ("GTX 1080", "418.56", "2.3", "tensorflow==2.3.*", "CUDA 10.1 and cuDNN 7.6"),
        ("RTX 2080", "440.33", "2.3", "tensorflow==2.3.*", "CUDA 10.1 and cuDNN 7.6"),
        ("K40", "390.48", "1.12", "tensorflow-gpu==1.12.*", "CUDA 9.0 and cuDNN 7.0"),
        ("T4", "410.48", "2.0", "tensorflow-gpu==2.0.*", "CUDA 10.0 and cuDNN 7.4"),
        ("K10", "384.81", "1.5", "tensorflow-gpu==1.5.*", "CUDA 9.0 and cuDNN 7.0"),
    ],
)
def test_an_old_driver_leaves_an_old_release(
    gpu: str, driver: str, release: str, package: str, libraries: str
) -> None:
    answer = works(gpu=gpu, driver=driver)
    assert answer["headline"] == (
        f"No known fact rules out TensorFlow {release}, but it is not certain that it works."
    )
    [pip] = answer["ways"]
    assert pip["commands"] == [f'python -m pip install "{package}" "protobuf<3.21"']
    uncertain, needs = pip["notes"]
    assert uncertain.startswith("It is not certain that this works: it is not known which compute")
    assert needs == f"TensorFlow {release} does not bring CUDA's libraries: install {libraries} too."
    assert any("has kernels for" in reason["text"] for reason in pip["reasons"])
    assert all("LD_LIBRARY_PATH" not in group["reasons"][0]["text"] for group in pip["newer"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cuda", "release"),
    [("8.0", "1.4"), ("9.0", "1.12"), ("9.1", "1.12"), ("9.2", "1.12"), ("10.0", "2.0"), ("10.1", "2.3")],
)
def test_an_old_cuda_version_stands_for_its_driver(cuda: str, release: str) -> None:
    for system in ("linux", "windows", "wsl2"):
        answer = works(gpu="gtx 1080", driver=cuda, system=system)
        assert modes(answer)["eager"] == (release, "unknown"), system
    assert modes(works(gpu="gtx 1080", driver="10.2"))["eager"] == ("2.3", "unknown")


def test_the_cuda_version_of_nvidia_smi_is_enough_for_its_toolkits_on_windows() -> None:
    # The first Linux branch with CUDA 12.0 is R525, and on Windows CUDA 12 needs 527.41.
    linux, wsl2 = (works(gpu="rtx 3060", driver="12.0", system=system) for system in ("linux", "wsl2"))
    assert modes(linux) == modes(wsl2) and linux["outcome"] == "works"


def test_python_2_7_has_a_release() -> None:
    answer = works(gpu="gtx 1080", driver="418.56", python="2.7")
    assert modes(answer)["eager"] == ("2.1", "unknown")
    assert way(answer, "pip")["python"] == "2.7"


@pytest.mark.parametrize("system", ["windows", "macos"])
def test_there_is_no_image_for_other_systems(system: str) -> None:
    answer = works(gpu="rtx 3060", driver="551.23", system=system)
    assert {row["way"] for row in answer["ways"]} <= {"pip"}
    assert answer["releases"][0]["image"] is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"gpu": "rtx 3065"}, 'GPU "rtx 3065" is not known'),
        ({"gpu": "RX 7900 XTX"}, "GPU from AMD"),
        ({"gpu": "x" * 300}, "longer than 200 characters"),
        ({"driver": "new"}, "neither a driver nor a CUDA version"),
        ({"driver": "12"}, "neither a driver nor a CUDA version"),
        ({"driver": "99.1"}, "no known driver branch shows CUDA 99.1"),
        ({"driver": "7.5"}, "no known driver branch shows CUDA 7.5"),
        ({"python": "1.5"}, "is not a Python version"),
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


@pytest.mark.parametrize(
    ("written", "understood"),
    [
        ("compute capability 8.6", "compute capability 8.6"),
        ("Compute Capability: 8.6", "compute capability 8.6"),
        ("compute_cap 8.6", "compute capability 8.6"),
        ("DGX Spark", "GB10, compute capability 12.1"),
        ("NVIDIA GB10 (DGX Spark)", "GB10, compute capability 12.1"),
        ("DGX A100", "A100, compute capability 8.0"),
        ("HGX H200", "H200, compute capability 9.0"),
    ],
)
def test_names_that_people_write(written: str, understood: str) -> None:
    assert works(gpu=written, driver="580")["machine"][0] == understood


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "machine", "shown"),
    [
        ("Jetson Orin Nano", "jetson", "Linux on NVIDIA Jetson"),
        *((model, "aarch64", "Linux aarch64") for model in ("DGX Spark", "GH200", "GB200", "GB300")),
    ],
)
def test_a_gpu_of_systems_with_an_arm_processor_is_judged_as_one_whatever_was_chosen(
    model: str, machine: str, shown: str
) -> None:
    chosen, left = (works(gpu=model, driver="580", machine=each) for each in (machine, "x86_64"))
    assert chosen == left and left["machine"][-1] == shown and not left["ways"]
    [first, *_] = left["releases"][0]["reasons"]
    assert first["fact"] == "aarch64-without-cuda" and "NGC" in first["text"]


@pytest.mark.parametrize(
    ("changed", "named"),
    [({}, True), ({"machine": "aarch64"}, False), ({"system": "wsl2"}, False), ({"gpu": "gh200"}, False)],
)
def test_measurements_are_named_only_for_the_kind_of_system_that_was_measured(
    changed: dict[str, str], named: bool
) -> None:
    basis = works(**{"gpu": "h100", "driver": "580", **changed})["basis"]
    assert ("Measured on" in basis) is named


def test_a_wrong_name_gets_the_nearest_ones() -> None:
    assert works(gpu="RTX 4909")["error"]["nearest"][0] == "RTX 4090"


@pytest.mark.parametrize("driver", ["5355", "R5801", "5355.183.01", "Driver Version: 5355.10"])
def test_a_driver_with_a_digit_too_many_is_refused(driver: str) -> None:
    error = works(driver=driver, gpu="t4")["error"]
    assert error["field"] == "driver"
    assert error["message"].startswith("there is no driver branch R5"), error
    # The page offers the nearest names for the GPU.
    assert error["nearest"] == []


def test_a_driver_newer_than_the_tables_is_not_refused() -> None:
    assert "error" not in works(driver="999.10", gpu="t4")
