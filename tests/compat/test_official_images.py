"""What is in official images with TensorFlow, and what is predicted of it."""

from __future__ import annotations

import pytest

from validator import cli
from validator.compat.predict import software_in
from validator.errors import InputError


@pytest.mark.parametrize(
    ("reference", "contents"),
    [
        ("tensorflow/tensorflow:2.15.0-gpu", ("2.15.0", "3.11", "11.8", "8.6.0.163", "pypi")),
        (
            "docker.io/tensorflow/tensorflow:2.17.0-gpu-jupyter",
            ("2.17.0", "3.11", "12.3", "8.9.6.50", "pypi"),
        ),
        (
            "tensorflow/tensorflow:2.13.0-gpu@sha256:" + "0" * 64,
            ("2.13.0", "3.8", "11.8", "8.6.0.163", "pypi"),
        ),
        ("tensorflow/tensorflow:2.10.0-gpu", ("2.10.0", None, "11.2", "8.1", "pypi")),
        ("nvcr.io/nvidia/tensorflow:25.02-tf2-py3", ("2.17.0", "3.12", "12.8", None, "ngc")),
    ],
)
def test_the_tag_says_what_is_inside(reference: str, contents: tuple[str | None, ...]) -> None:
    found = software_in(reference)
    assert found is not None
    assert (found.tensorflow, found.python, found.cuda, found.cudnn, found.wheel) == contents


@pytest.mark.parametrize(
    "reference",
    ["python:3.12", "tensorflow/serving:2.15.0-gpu", "evil.io/tensorflow/tensorflow:2.15.0-gpu", ""],
)
def test_another_image_is_not_an_official_one(reference: str) -> None:
    assert software_in(reference) is None


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        ("tensorflow/tensorflow:2.15.0", "has no CUDA"),
        ("tensorflow/tensorflow", "has no CUDA"),
        ("tensorflow/tensorflow:nightly-gpu", "it is not known which TensorFlow"),
        ("nvcr.io/nvidia/tensorflow:99.01-tf2-py3", "it is not known what is in"),
    ],
)
def test_a_tag_that_the_facts_do_not_have_is_an_error(reference: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        software_in(reference)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("tag", "rule", "code"),
    [
        # It loads the libraries of CUDA 12, and the image has those of CUDA 11.
        ("2.15.0-gpu", "cuda_of_another_version", 1),
        # It was compiled with cuDNN 9, and the image has cuDNN 8.
        ("2.18.0-gpu", "cudnn_of_another_major", 1),
        ("latest-gpu", "cudnn_of_another_major", 1),
        ("2.17.0-gpu", "", 0),
        ("2.12.0-gpu", "", 0),
    ],
)
def test_predict_judges_the_contents(
    tag: str, rule: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["predict", "--image", f"tensorflow/tensorflow:{tag}", "--gpu", "a100", "--driver", "535.183.01"]
    assert cli.run([*words, "--json"]) == code
    assert (f'"rule": "{rule}"' in capsys.readouterr().out) == bool(rule)


def test_what_contradicts_the_image_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    words = "--image tensorflow/tensorflow:2.17.0-gpu --tensorflow 2.17.0 --gpu a100 --driver 535"
    assert cli.run(["predict", *words.split()]) == 2
    assert "can't be combined with --image" in capsys.readouterr().err


@pytest.mark.parametrize("words", ["tensorflow/tensorflow:2.17.0-gpu", "python:3.12 --gpu a100 --driver 535"])
def test_an_image_or_a_machine_that_is_missing_is_an_error(words: str) -> None:
    with pytest.raises(InputError, match="--image"):
        cli.run(["predict", "--image", *words.split()])
