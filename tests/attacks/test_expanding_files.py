"""Small files of a project that expand without an end: doubled variables, diamonds, chains, many entries.

`lint` runs on pull requests of strangers, so each ends with an answer or with an error that names the limit.
Without a limit, most of these need more steps or bytes than any machine has, so the tests need no clock.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from validator.errors import InputError
from validator.lint.findings import lint, read

from ..commands import run

PROJECT = '[project]\nname="x"\nversion="1"\ndependencies=["tensorflow==2.21.0"]\n'
STEPS = range(60)


def doubled(line: str) -> str:
    """Return lines in which each of 60 variables contains the one before twice."""
    return "".join(line.format(new=f"a{step + 1}", old=f"${{a{step}}}${{a{step}}}") for step in STEPS)


def groups(edges: str, count: int) -> str:
    """Return a table of groups; each includes the next one as often as `edges` has its place `{}`."""
    rows = [
        f"g{number} = [{edges}]\n".replace("{}", f'{{include-group = "g{number + 1}"}}')
        for number in range(count)
    ]
    return f'{PROJECT}[dependency-groups]\n{"".join(rows)}g{count} = ["numpy==1.26.4"]\n'


@pytest.mark.parametrize(
    "text",
    [
        "FROM python:3.12\nARG a0=pip\n" + doubled("ARG {new}={old}\n") + "RUN pip install six $a60\n",
        "FROM python:3.12\nENV a0=x\n" + doubled("ENV {new}={old}\n") + "RUN pip install six $a60\n",
        "FROM python:3.12\nENV a0=x " + doubled("{new}={old} ") + "\nRUN pip install six\n",
        "ARG a0=python\n" + doubled("ARG {new}={old}\n") + "FROM $a60\nRUN pip install six\n",
        "FROM python:3.12\nENV a0=x\n" + doubled('ENV {new}="{old}"\nWORKDIR ${{{new}}}\n'),
        "FROM python:3.12\nENV a0=x\n" + doubled("ENV {new}={old}\nCOPY ${{{new}}} /x/\n"),
        "FROM python:3.12\nENV a0=xx\n" + doubled("ENV {new}=${{a0:-y}}{old}\n"),
        "FROM python:3.12\nENV a=x\n" + "ENV a=$a$a\n" * 60,
        "FROM python:3.12\nENV a=x\n" + "ENV a=${a:-y}${a-z}\n" * 60,
    ],
)
def test_variables_that_double_are_not_known(tmp_path: Path, text: str) -> None:
    path = tmp_path / "Dockerfile"
    path.write_text(f"{text}FROM python:3.9 AS last\nRUN pip install tensorflow==2.21.0\n")
    # The rest of the file is still judged.
    assert [finding.code for finding in lint([path], frozenset()).findings] == ["python_without_wheel"]


@pytest.mark.parametrize("edges", ["{}, {}", "{}, 'keras==3.9.0', {}, {}"], ids=["two", "three"])
def test_a_diamond_of_groups_is_read_once(tmp_path: Path, edges: str) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text(groups(edges, 60))
    environment = next(one for one in read(path)[0] if one.name == "g0")
    assert {pin.name for pin in environment.pins} >= {"tensorflow", "numpy"}


def test_groups_in_a_circle_end(tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    circle = 'g1 = ["six==1.17.0", {include-group = "g2"}]\ng2 = [{include-group = "g1"}]\n'
    path.write_text(f"{PROJECT}[dependency-groups]\n{circle}")
    assert all("six" in {pin.name for pin in one.pins} for one in read(path)[0] if one.name[:1] == "g")


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        groups("{}", 5000),
        groups("{}, {}", 5000),
        PROJECT + "[dependency-groups]\n" + "".join(f"g{n} = ['six']\n" for n in range(3000)),
        PROJECT
        + "[dependency-groups]\nbig = ["
        + "'six', " * 3000
        + "]\n"
        + "".join(f"g{n} = [{{include-group = 'big'}}]\n" for n in range(400)),
        PROJECT + "[project.optional-dependencies]\n" + "".join(f"e{n} = ['six']\n" for n in range(3000)),
    ],
    ids=["chain", "chain of pairs", "many groups", "a large group in many", "many extras"],
)
def test_what_a_project_expands_to_is_counted(tmp_path: Path, text: str) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text(text)
    with pytest.raises(InputError, match="more extras and groups than are checked"):
        lint([path], frozenset())


def test_a_usual_project_is_below_the_limits(tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text(groups("{}", 50))
    assert {f"g{number}" for number in range(51)} <= {one.name for one in read(path)[0]}


@pytest.mark.parametrize(
    "marker",
    [
        " or ".join(["python_version > '3'"] * 20_000),
        "(" * 3000 + "python_version > '3'" + ")" * 3000,
        "python_version > '" + "1." * 20_000 + "1'",
    ],
    ids=["long", "deep", "long version"],
)
def test_a_marker_without_an_end_is_not_read(tmp_path: Path, marker: str) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text(f"numpy==1.26.4\ntensorflow==2.21.0; {marker}\n")
    assert {pin.name for one in read(path)[0] for pin in one.pins} == {"numpy"}
    path.with_name("matrix.yaml").write_text(
        "images:\n  - {tensorflow: '2.21.0', python: '3.11', requirements: requirements.txt, name: x}\n"
        "hosts:\n  - {driver: '580', gpu: h100}\nprofiles:\n  quick: {}\n"
    )
    done = run("plan", "--matrix", path.with_name("matrix.yaml"))
    assert done.returncode == 2 and "is not a requirement" in done.stderr, done.stderr


@pytest.mark.parametrize(
    "key",
    [
        ".".join("a" * 50_000) + " = 1",
        "[" + " . ".join(['"a"'] * 5000) + "]",
        "x = {" + ".".join("a" * 5000) + " = 1}",
    ],
    ids=["key", "table", "inline"],
)
def test_a_key_with_many_parts_is_not_read(tmp_path: Path, key: str) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text(f"{PROJECT}{key}\n")
    with pytest.raises(InputError, match="a key with too many parts"):
        lint([path], frozenset())


@pytest.mark.parametrize("version", ["^1." + "9" * 5000, "~1." + "9" * 5000, "^" + "1." * 5000 + "1"])
def test_a_version_of_poetry_without_an_end_is_not_known(tmp_path: Path, version: str) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text(f'[tool.poetry.dependencies]\npython = "{version}"\nsix = "{version}"\n')
    assert all(pin.versions is None for one in read(path)[0] for pin in one.pins)
