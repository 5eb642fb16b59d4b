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


def test_the_index_of_a_package_may_be_anything(tmp_path: Path) -> None:
    text = '{"default": {"tensorflow": {"version": "==2.18.0", "index": [[]]}}}'
    assert short(write(tmp_path, "Pipfile.lock", text)) == []


@pytest.mark.parametrize("value", ["9" * 5000, "-" + "9" * 5000, "[" * 5000 + "]" * 5000])
@pytest.mark.parametrize(
    "name", ["uv.lock", "pdm.lock", "poetry.lock", "pylock.toml", "pyproject.toml", "Pipfile"]
)
def test_toml_with_a_value_without_an_end(tmp_path: Path, name: str, value: str) -> None:
    with pytest.raises(InputError, match="is not TOML"):
        found(write(tmp_path, name, f"x = {value}\n"))


def chain(count: int, width: int = 1) -> str:
    """Return groups of which each includes the next one, `width` times."""
    included = ", ".join(['{include-group = "g{0}"}'] * width)
    groups = [f"g{number} = [{included.replace('{0}', str(number + 1))}]" for number in range(count)]
    return "\n".join(
        ['[project]', 'name = "x"', 'dependencies = ["tensorflow==2.18.0"]', "[dependency-groups]", *groups,
         f'g{count} = ["nvidia-cudnn-cu12==8.9.7.29"]', ""]
    )  # fmt: skip


@pytest.mark.parametrize("width", [1, 2, 50])
def test_groups_that_include_each_other_are_read_once(tmp_path: Path, width: int) -> None:
    assert short(write(tmp_path, "pyproject.toml", chain(30, width))) == ["35:8 cudnn_of_another_major"]


@pytest.mark.parametrize("count", [600, 5000])
def test_countless_groups_are_not_checked(tmp_path: Path, count: int) -> None:
    with pytest.raises(InputError, match="more extras and groups than are checked"):
        found(write(tmp_path, "pyproject.toml", chain(count)))


@pytest.mark.parametrize("keyword", ["ARG", "ENV"])
@pytest.mark.parametrize(
    "form", ["${{a{0}}}${{a{0}}}", "$a{0}$a{0}", "${{a{0}:-x}}${{a{0}}}", "${{a{0}}}" * 9]
)
def test_variables_that_double_are_not_known(tmp_path: Path, keyword: str, form: str) -> None:
    lines = [f"{keyword} a{number + 1}={form.format(number)}" for number in range(40)]
    install = "RUN pip install tensorflow==2.18.0 nvidia-cudnn-cu12==8.9.7.29"
    text = "\n".join(["FROM a", f"{keyword} a0=x", *lines, "RUN pip install $a40", install, ""])
    assert short(write(tmp_path, "Dockerfile", text)) == ["44:36 cudnn_of_another_major"]


@pytest.mark.parametrize(
    ("line", "says"),
    [("RUN true\n", "more than 5,000 instructions"), ("ENV {}=b\n", "more than 1,000 variables")],
)
def test_a_dockerfile_without_an_end(tmp_path: Path, line: str, says: str) -> None:
    text = "FROM a\n" + "".join(line.format(f"a{number}") for number in range(6000))
    with pytest.raises(InputError, match=says):
        found(write(tmp_path, "Dockerfile", text))


@pytest.mark.parametrize("version", ["9" * 5000, "2." + "9" * 5000, "1." * 300 + "1", "1!" * 400, "²", "[["])
def test_versions_of_any_length_and_form(tmp_path: Path, version: str) -> None:
    for name in ("tensorflow", "nvidia-cudnn-cu12"):
        codes = {one.split()[1] for one in short(write(tmp_path, "requirements.txt", f"{name}=={version}\n"))}
        assert codes <= {"invalid_version"}


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
