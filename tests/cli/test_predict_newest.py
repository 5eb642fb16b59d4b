"""`predict` without `--tensorflow`: the newest release that works on a machine."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from validator import cli
from validator.answers.what_works import what_works, what_works_on
from validator.errors import InputError
from validator.model.prediction import Host
from validator.resources import shipped_matrix


def answered(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = cli.run(["predict", *arguments, "--json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return code, found


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    cli.run(["predict", *arguments])
    return " ".join(capsys.readouterr().out.split())


def newest(answer: dict[str, Any]) -> dict[str, str | None]:
    return {mode["mode"]: mode["release"] for mode in answer["modes"]}


def test_the_answer_is_that_of_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    asked: dict[str, Any] = {
        "gpu": "K80",
        "driver": "470",
        "python": "3.10",
        "system": "wsl2",
        "machine": "x86_64",
    }
    options = [word for name, value in asked.items() for word in (f"--{name}", value)]
    unasked = {"registry": None, "images": None, "verdicts": None}
    assert answered(capsys, *options) == (0, what_works({**asked, **unasked}))


def test_the_newest_release_and_why_no_newer_one(capsys: pytest.CaptureFixture[str]) -> None:
    machine = ("--gpu", "GTX 980", "--driver", "470.82.01", "--python", "3.11")
    code, answer = answered(capsys, *machine)
    text = shown(capsys, *machine)
    assert code == 0
    assert text.startswith(
        f"TensorFlow {newest(answer)['eager']} should work in an image, and 2.13.1 with pip."
    )
    assert "with pip. TensorFlow 2.21.0 does not work here: CUDA 12.9 needs driver 525.60.13 or newer" in text
    assert "This answer is only predicted, from published facts." in text
    assert f"functions that XLA compiles: TensorFlow {newest(answer)['xla']} in an image, 2.13.1 with" in text
    assert f"With pip, TensorFlow {newest(answer)['xla']} does not work here: the extra asks for" in text
    assert "Why no newer release: - 2.20.0 to 2.21.0: CUDA 12.9 needs driver 525.60.13 or newer" in text
    assert 'pip install "tensorflow' in text and "build-matrix --profile full --select image=tf2." in text
    assert "no such image to pull" not in text, "nobody has looked"


def test_eager_and_xla_are_apart(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "--gpu", "RTX 5090", "--driver", "580")
    assert "For eager operations, TensorFlow" in text and "No release is known to work with XLA." in text
    assert "functions that XLA compiles: no release" in text
    assert "only for eager operations" in text


def test_releases_with_the_same_reason_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "--gpu", "a100", "--driver", "551.23", "--system", "windows")
    below = text.partition("Why no newer release:")[2]
    assert below.count("2.10 was the last release with CUDA on native Windows") == 1
    assert "2.11.0 to 2.21.0: tensorflow 2.21.0 can't use a GPU here" in text


def test_nothing_works(capsys: pytest.CaptureFixture[str]) -> None:
    code, answer = answered(capsys, "--compute-capability", "2.0", "--driver", "390")
    assert (code, answer["outcome"], newest(answer)) == (1, "fails", {"eager": None, "xla": None})
    text = shown(capsys, "--compute-capability", "2.0", "--driver", "390")
    assert text.startswith("No TensorFlow release is expected to use the GPU here.")
    assert "Why TensorFlow 2.21.0 does not work: - CUDA 12.9 needs driver 525.60.13 or newer" in text


def test_a_fact_that_is_not_given_makes_it_uncertain(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "--gpu", "h100")
    assert "but the NVIDIA driver is not known." in text and ", not certain" in text


def test_an_old_driver_and_what_nvidia_smi_shows_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    for driver, shown_as in (
        ("418.56", "driver 418.56"),
        ("10.1", "CUDA 10.1 in nvidia-smi, so driver R418"),
    ):
        text = shown(capsys, "--gpu", "GTX 1080", "--driver", driver)
        assert text.startswith("No known fact rules out TensorFlow 2.3, but it is not certain")
        assert shown_as in text and 'pip install "tensorflow==2.3.*"' in text
        assert "1.1 to 2.3" not in text and "2.4: CUDA 11.0 needs driver 450.80.02 or newer" in text


def test_a_jetson_is_recognized(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "--gpu", "Jetson Orin Nano", "--driver", "540")
    assert "For Jetson Orin Nano, compute capability 8.7, driver 540, Linux on NVIDIA Jetson." in text
    assert "use NVIDIA's own build (NGC)" in text


def test_a_gpu_that_has_no_known_name_counts_by_its_capability() -> None:
    host = Host("570.124.06", None, "NVIDIA Thing 9000", "8.0")
    answer = what_works_on(host, None)
    assert answer["machine"] == ["compute capability 8.0", "driver 570.124.06", "Linux x86_64"]
    assert what_works_on(replace(host, gpu="t4"), None)["machine"][0] == "T4, compute capability 7.5"


def test_this_machine_is_asked_about_without_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["predict", "--from-host"]) == 2
    assert "`validator` without a command asks about this host" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gpu", "mi300"], "GPU from AMD"),
        (["--gpu", "rtx 9999"], '"rtx 9999" is not known'),
        (["--gpu", "h100", "--compute-capability", "8.0"], "H100 has 9.0"),
        (["--gpu", "h100", "--driver", "new"], '--driver: "new" is neither a driver nor a CUDA version'),
        (["--gpu", "h100", "--driver", "7.5"], "--driver: no known driver branch shows CUDA 7.5"),
        (["--gpu", "h100", "--python", "three"], '--python: "three" is not a Python version'),
        (["--compute-capability", "new", "--driver", "535"], '--compute-capability: "new"'),
    ],
)
def test_wrong_values(arguments: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        cli.run(["predict", *arguments])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "--tensorflow is missing. To see which release works, describe a machine"),
        (["--python", "3.12"], "--tensorflow is missing"),
        (["--gpu", "h100", "--cuda", "12.8"], "--cuda has no effect without --tensorflow"),
        (["--gpu", "h100", "--mode", "xla"], "--mode has no effect without --tensorflow"),
        (["--gpu", "h100", "--format", "markdown"], "--format markdown is only for --requirements"),
    ],
)
def test_options_that_are_not_enough(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["predict", *arguments]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("python", ["2.7", "3.13", "3.15"])
def test_why_no_newer_release_is_about_the_python_of_the_commands(
    python: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing works with the machine's Python, so pip gets an environment with another one."""
    _, answer = answered(capsys, "--gpu", "h100", "--driver", "535", "--python", python)
    [pip] = [way for way in answer["ways"] if way["way"] == "pip"]
    assert pip["python"] == "3.12" and "Make an environment with Python 3.12 first." in pip["notes"]
    reasons = [reason["text"] for newer in pip["newer"] for reason in newer["reasons"]]
    assert reasons and not [text for text in reasons if f"no wheel for Python {python}" in text]


@pytest.mark.parametrize(
    ("gpu", "driver", "python"),
    [("a100", "450.80.02", ""), ("h100", "535", "3.8"), ("k80", "470", ""), ("t4", "580", "3.12")],
)
def test_the_loader_is_told_only_about_wheels_that_the_commands_install(
    gpu: str, driver: str, python: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _, answer = answered(capsys, "--gpu", gpu, "--driver", driver, *(["--python", python] if python else []))
    [pip] = [way for way in answer["ways"] if way["way"] == "pip"]
    installs = any("[and-cuda]" in command or "nvidia-cudnn-cu" in command for command in pip["commands"])
    lacks = any("does not bring CUDA's libraries" in note for note in pip["notes"])
    assert installs is not lacks
    if not installs:
        assert not any("nvidia/" in text for text in (*pip["commands"], *answer["remarks"]))


def test_a_way_that_is_not_certain_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "--gpu", "k80", "--driver", "470")
    image = text.partition("In an image: ")[2].partition("With pip: ")[0]
    assert "It is not certain that this works: NVIDIA's support matrix of this cuDNN does not list" in image


def test_an_unknown_compute_capability_is_not_promised_anything(capsys: pytest.CaptureFixture[str]) -> None:
    for option in ("--gpu", "--compute-capability"):
        _, answer = answered(capsys, option, "13.0", "--driver", "580")
        assert answer["outcome"] == "unknown" and "should work" not in answer["headline"]


@pytest.mark.parametrize("written", ["75", "7.5", "sm_75", "sm75"])
def test_a_compute_capability_is_read_the_same_with_and_without_a_release(
    written: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for option in ("--compute-capability", *(["--gpu"] if written != "75" else [])):
        machine = (option, written, "--driver", "580")
        assert answered(capsys, *machine)[1]["machine"][0] == "compute capability 7.5"
        assert answered(capsys, "--tensorflow", "2.20.0", *machine)[1]["compute_capability"] == "7.5"


def test_the_command_for_an_image_names_the_matrix_that_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = ("--gpu", "h100", "--driver", "550")
    assert "build-matrix --profile full --select image=" in shown(capsys, *asked)
    Path("matrix.yaml").write_text("version: 1\n")
    assert f"build-matrix --matrix {shipped_matrix()} --profile full --select image=" in shown(capsys, *asked)
