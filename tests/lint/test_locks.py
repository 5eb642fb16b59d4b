"""Lock files: everything is pinned, and only what is installed together is judged together."""

from __future__ import annotations

from pathlib import Path

import pytest

from .support import found, short, write

UV = """
version = 1
requires-python = ">=3.10"

[[package]]
name = "nvidia-cudnn-cu12"
version = "{cudnn}"
source = {{ registry = "https://pypi.org/simple" }}

[[package]]
name = "tensorflow"
version = "2.18.0"
source = {{ registry = "https://pypi.org/simple" }}
dependencies = [{{ name = "numpy" }}]

[package.optional-dependencies]
and-cuda = [{{ name = "nvidia-cudnn-cu12", marker = "{marker}" }}]

[[package]]
name = "torch"
version = "2.4.1"
source = {{ registry = "https://pypi.org/simple" }}
dependencies = [{{ name = "nvidia-cudnn-cu12" }}]

[[package]]
name = "ours"
version = "1.0"
source = {{ virtual = "." }}
dependencies = [{tensorflow}]

[package.dev-dependencies]
dev = [{dev}]
"""
TENSORFLOW = '{ name = "tensorflow", extra = ["and-cuda"] }'
LINUX = "sys_platform == 'linux'"


@pytest.mark.parametrize(
    ("cudnn", "marker", "tensorflow", "dev", "expected"),
    [
        (
            "9.1.0.70",
            LINUX,
            TENSORFLOW,
            '{ name = "torch" }',
            ["6:1 cudnn_older_than_built", "20:1 mixed_frameworks"],
        ),
        ("9.1.0.70", "sys_platform == 'win32'", TENSORFLOW, "", []),
        ("9.3.0.75", LINUX, TENSORFLOW, '{ name = "torch" }', []),
        # Nothing installs both.
        ("9.1.0.70", LINUX, "", '{ name = "torch" }', []),
        ("9.1.0.70", LINUX, '{ name = "tensorflow" }', "", []),
    ],
)
def test_a_lock_of_uv(
    tmp_path: Path, cudnn: str, marker: str, tensorflow: str, dev: str, expected: list[str]
) -> None:
    text = UV.format(cudnn=cudnn, marker=marker, tensorflow=tensorflow, dev=dev)
    assert short(write(tmp_path, "uv.lock", text)) == expected


POETRY = """\
[[package]]
name = "tensorflow"
version = "2.18.0"
groups = ["main"]

[[package]]
name = "nvidia-cudnn-cu12"
version = "8.9.7.29"
groups = ["{group}"]
{more}

[[package]]
name = "other"
version = "1.0"
groups = ["docs"]

[metadata]
python-versions = ">=3.9,<3.13"
"""


@pytest.mark.parametrize(
    ("group", "more", "expected"),
    [
        ("main", "", ["8:1 cudnn_of_another_major"]),
        ("dev", "", ["8:1 cudnn_of_another_major"]),
        ("main", "optional = true", []),
        ("main", "markers = \"sys_platform == 'darwin'\"", []),
        ("main", "markers = \"sys_platform == 'linux'\"", ["8:1 cudnn_of_another_major"]),
    ],
)
def test_a_lock_of_poetry(tmp_path: Path, group: str, more: str, expected: list[str]) -> None:
    assert short(write(tmp_path, "poetry.lock", POETRY.format(group=group, more=more))) == expected


def test_packages_of_two_groups_are_not_judged_together(tmp_path: Path) -> None:
    text = POETRY.format(group="a", more="").replace('groups = ["main"]', 'groups = ["b"]')
    assert short(write(tmp_path, "poetry.lock", text)) == []


@pytest.mark.parametrize(
    ("name", "stated"),
    [
        ("poetry.lock", 'python-versions = ">=3.13"'),
        ("poetry.lock", 'python-versions = "^3.13"'),
        ("pdm.lock", 'requires_python = ">=3.13"'),
        ("pdm.lock", '[[metadata.targets]]\nrequires_python = ">=3.13"'),
    ],
)
def test_the_python_of_a_lock(name: str, stated: str, tmp_path: Path) -> None:
    text = POETRY.format(group="main", more="").replace("8.9.7.29", "9.3.0.75")
    path = write(tmp_path, name, text.replace('python-versions = ">=3.9,<3.13"', stated))
    (finding,) = found(path)
    assert (finding.place.line, finding.code) == (18 + stated.count("\n"), "python_without_wheel")
    assert "no wheel for any Python that the file allows (" in finding.message


def test_a_standard_lock(tmp_path: Path) -> None:
    text = """
    lock-version = "1.0"
    [[packages]]
    name = "tensorflow"
    version = "2.18.0"
    [[packages]]
    name = "nvidia-cudnn-cu12"
    version = "8.9.7.29"
    marker = "{}"
    """
    path = write(tmp_path, "pylock.gpu.toml", text.format(LINUX))
    assert short(path) == ["7:1 cudnn_of_another_major"]
    assert short(write(tmp_path, "pylock.toml", text.format("'x' in extras"))) == []


def test_a_package_in_two_versions_is_not_guessed(tmp_path: Path) -> None:
    text = POETRY.format(group="main", more="")
    again = '\n[[package]]\nname = "tensorflow"\nversion = "2.15.0"\ngroups = ["main"]\n'
    assert short(write(tmp_path, "poetry.lock", text + again)) == []


def test_a_framework_without_cudnn_brings_none(tmp_path: Path) -> None:
    package = '[[package]]\nname = "{}"\nversion = "{}"\n'
    text = package.format("tensorflow", "2.18.0") + package.format("torch", "2.4.1")
    assert short(write(tmp_path, "pdm.lock", text)) == []


@pytest.mark.parametrize(
    "text", ["package = 3\n", "[[package]]\nversion = 1\n", '[[package]]\nname = "x"\n', ""]
)
def test_a_strange_lock_is_no_error(tmp_path: Path, text: str) -> None:
    assert short(write(tmp_path, "uv.lock", text)) == []
