"""Hostile files: names that no file can have, deep nesting, and sizes that would take forever."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from validator.errors import InputError
from validator.lint import pins

from ..redaction.test_redaction import seconds
from .support import found, short, write


@pytest.mark.parametrize("name", ["a" * 5000, "a\0b", "../" * 400])
def test_names_that_no_file_can_have(tmp_path: Path, name: str) -> None:
    assert short(write(tmp_path, "Dockerfile", f"FROM a\nRUN pip install -r {name}\n")) == []
    with pytest.raises(InputError):
        found(write(tmp_path, "requirements.txt", f"-r {name}\n"))


def test_a_marker_that_nests_too_deep_is_left_out(tmp_path: Path) -> None:
    assert short(write(tmp_path, "requirements.txt", f"a; {'(' * 5000}\ntensorflow==2.18.0\n")) == []


def test_a_command_that_nests_too_deep_is_left_out(tmp_path: Path) -> None:
    assert short(write(tmp_path, "Dockerfile", f"FROM a\nRUN {'[' * 5000}\n")) == []


def test_a_package_with_countless_limits_is_not_judged(tmp_path: Path) -> None:
    limits = "".join(f"tensorflow!=0.{number}\n" for number in range(300))
    text = f"{limits}tensorflow==2.18.0\nnvidia-cudnn-cu12==8.9.7.29\n"
    assert short(write(tmp_path, "requirements.txt", text)) == []
    repeated = "tensorflow==2.18.0\n" * 300 + "nvidia-cudnn-cu12==8.9.7.29\n"
    assert short(write(tmp_path, "requirements.txt", repeated)) == ["301:1 cudnn_of_another_major"]


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("Dockerfile", "FROM a\n" * 501, "more than 500 stages"),
        ("uv.lock", '[[package]]\nname = "a"\nsource = {virtual = "."}\n' * 201, "more than 200 projects"),
    ],
)
def test_limits(tmp_path: Path, name: str, text: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        found(write(tmp_path, name, text))


def test_a_large_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pins, "MAX_BYTES", 10)
    with pytest.raises(InputError, match="is larger than 10 bytes"):
        found(write(tmp_path, "requirements.txt", "tensorflow==2.18.0\n"))


#: What a hostile file repeats: characters that expressions tell apart, and words that they begin with.
UNITS = (
    *"a0_-./ \t\u00a0:@='\\,;[({#",
    *("a.", "a:", "a/", "1.", "a ", "a=b ", "-a ", " #", "${a:-", "<<a ", "cuda-", "libcudnn1=1.", "a\\\n"),
)
#: Characters of a text, and how much longer the one is that it is compared with.
LENGTH, FACTOR = 6000, 4
#: Seconds of the processor that need no comparison: the time of a text that is read once is far below.
LITTLE = 0.04


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "head"),
    [
        ("Dockerfile", ""),
        ("Dockerfile", "ARG a="),
        *(
            ("Dockerfile", f"FROM {head}")
            for head in ("", "python:", "nvidia/cuda:12.5.1-base\nRUN apt install ")
        ),
        *(("Dockerfile", f"FROM a\n{head}") for head in ("RUN ", "ENV a ", "COPY --from=")),
        *(
            ("Dockerfile", f"FROM a\nRUN {head} ")
            for head in ("pip install", "pip install -r", "python -m", "conda install", "uv add", "poetry -C")
        ),
        *(("requirements.txt", head) for head in ("", "a", "a==", "a; python_version", "-r", "#")),
        *(("environment.yml", f"dependencies:\n  - {head}") for head in ("", "a", "a=", "a=1", "a::")),
        *(("pyproject.toml", f"[project]\ndependencies=[{head}") for head in ("", '"', '"a==')),
        ("uv.lock", '[[package]]\nname="'),
        ("Pipfile", '[packages]\na="'),
        ("pixi.toml", '[dependencies]\na="'),
        *(
            ("pixi.lock", f"environments: {{a: {{packages: {{linux-64: [{{{kind}: ")
            for kind in ("conda", "pypi")
        ),
    ],
)
def test_a_file_takes_time_in_proportion_to_its_length(tmp_path: Path, name: str, head: str) -> None:
    def read(text: str) -> None:
        with contextlib.suppress(InputError):
            path.write_text(text, encoding="utf-8")
            found(path, for_gpu=True)

    path = tmp_path / name
    for unit in UNITS:
        for tail in ("", '!"]\n'):
            short, long = (head + unit * (length // len(unit)) + tail for length in (LENGTH, LENGTH * FACTOR))
            took = seconds(read, short, LITTLE)
            bound = took * FACTOR * 2
            assert took < LITTLE or seconds(read, long, bound) < bound, (head, unit, tail)
