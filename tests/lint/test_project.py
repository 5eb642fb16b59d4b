"""pyproject.toml: PEP 621, extras, dependency groups, and Poetry's tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from validator.errors import InputError
from validator.lint.projects import from_poetry

from .support import found, short, write

CUDNN = "nvidia-cudnn-cu12==8.9.7.29"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            '[project]\ndependencies = [\n  "tensorflow==2.18.0",\n  "nvidia-cudnn-cu12==8.9.7.29",\n]\n',
            ["4:3 cudnn_of_another_major"],
        ),
        (
            '[project]\nrequires-python = ">=3.12"\ndependencies = ["tensorflow==2.15.1"]\n',
            ["2:1 python_without_wheel"],
        ),
        ('[project]\nrequires-python = ">=3.9"\ndependencies = ["tensorflow==2.15.1"]\n', []),
        ('[project]\nrequires-python = ">=3.12"\ndependencies = ["tensorflow>=2.15,<2.19"]\n', []),
        (
            '[project]\ndependencies = ["tensorflow==2.18.0"]\n[project.optional-dependencies]\n'
            'torch = ["torch==2.4.1"]\n',
            ["4:10 mixed_frameworks"],
        ),
        (
            '[project]\n[project.optional-dependencies]\ntf = ["tensorflow==2.18.0"]\n'
            'torch = ["torch==2.4.1"]\n',
            [],
        ),
        (
            '[dependency-groups]\na = [{include-group = "b"}, "torch==2.4.1"]\n'
            'b = ["tensorflow==2.18.0", {include-group = "a"}]\n',
            ["2:29 mixed_frameworks"],
        ),
        (
            '[project]\ndependencies = ["tensorflow==2.18.0", "torch==2.4.1"]\n'
            '[tool.uv.sources]\ntorch = {index = "pytorch-cpu"}\n',
            [],
        ),
        (
            "[project]\n"
            'dependencies = ["tensorflow==2.18.0", "torch==2.4.1"] # validator: ignore[mixed_frameworks]\n',
            [],
        ),
        (
            '[tool.poetry.dependencies]\npython = "^3.12"\ntensorflow = "2.15.1"\n',
            ["2:1 python_without_wheel"],
        ),
        (
            '[tool.poetry.dependencies]\npython = "^3.9"\n'
            'tensorflow = {version = "~2.18.0", extras = ["and-cuda"]}\n'
            '[tool.poetry.group.gpu.dependencies]\nnvidia-cudnn-cu12 = "8.9.7.29"\n',
            ["5:1 cudnn_of_another_major"],
        ),
        (
            '[tool.poetry.dependencies]\ntensorflow = "2.18.0"\n'
            'torch = {version = "2.4.1", source = "cpu"}\n',
            [],
        ),
        (
            '[tool.poetry.dependencies]\ntensorflow = "2.18.0"\n'
            'torch = {version = "2.4.1", markers = "sys_platform == \'darwin\'"}\n',
            [],
        ),
        (
            '[tool.poetry.dependencies]\ntensorflow = [{version = "2.18.0", python = ">=3.9"}]\n'
            'torch = "2.4.1"\n',
            [],
        ),
        ("[project]\ndependencies = 3\n[tool]\nuv = 1\n", []),
        # The same text in a comment or in another place does not count as the place.
        (
            '# "torch==2.4.1"\n[project]\ndescription = """\n"torch==2.4.1" """\n'
            'dependencies = ["tensorflow==2.18.0",  "torch==2.4.1"]\n',
            ["5:40 mixed_frameworks"],
        ),
    ],
)
def test_a_project(tmp_path: Path, text: str, expected: list[str]) -> None:
    assert short(write(tmp_path, "pyproject.toml", text)) == expected


@pytest.mark.parametrize(
    ("constraint", "accepts", "rejects"),
    [
        ("^2.15.1", ["2.15.1", "2.20.0"], ["2.15.0", "3.0.0"]),
        ("^0.4", ["0.4.9"], ["0.5"]),
        ("~2.15.1", ["2.15.9"], ["2.16.0"]),
        ("~2", ["2.99"], ["3.0"]),
        ("2.15.*", ["2.15.1"], ["2.16.0"]),
        ("=2.15.1", ["2.15.1"], ["2.15.2"]),
        (">=2.15,<2.16", ["2.15.1"], ["2.16.0"]),
        ("*", ["1.0"], []),
    ],
)
def test_constraints_of_poetry(constraint: str, accepts: list[str], rejects: list[str]) -> None:
    found = from_poetry(constraint)
    assert found is not None
    assert [version for version in (*accepts, *rejects) if found.contains(version)] == accepts


def test_alternatives_are_not_guessed() -> None:
    assert from_poetry("^2.15 || ^2.18") is None


@pytest.mark.parametrize("text", ["[project\n", 'a = "' + "x" * 10, "a = " + "[" * 5000])
def test_a_file_that_is_not_toml(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match="is not TOML"):
        found(write(tmp_path, "pyproject.toml", text))
