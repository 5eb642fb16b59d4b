"""Texts from elsewhere are linted without a look at the files of this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from validator.errors import InputError
from validator.lint.findings import lint_texts

OLD = "tensorflow==2.15.0\nnvidia-cudnn-cu12==8.6.0.163\n"
COPY = "FROM nvidia/cuda:11.8.0-base-ubuntu22.04\nCOPY . /app\nRUN pip install -r /app/{}\n"


def test_a_finding_has_the_name_of_the_text() -> None:
    (one,) = lint_texts("requirements.txt", {"requirements.txt": OLD}).findings
    assert (one.place.file, one.place.line, one.code) == ("requirements.txt", 2, "cudnn_older_than_built")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("requirements.txt", "-r pins.txt\n"),
        ("Dockerfile", COPY.format("pins.txt")),
        ("environment.yml", "dependencies:\n- pip:\n  - -r pins.txt\n"),
    ],
)
def test_a_text_may_include_another_one(name: str, text: str) -> None:
    found = lint_texts(name, {name: text, "pins.txt": OLD}).findings
    assert [(one.place.file, one.place.line) for one in found] == [("pins.txt", 2)]


@pytest.mark.parametrize("include", ["{}", "../{}", "-"], ids=["absolute", "relative", "missing"])
@pytest.mark.parametrize("form", ["-r {}\n", "-c {}\n"])
def test_no_file_of_this_machine_is_included(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, include: str, form: str
) -> None:
    (tmp_path / "pins.txt").write_text(OLD)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    path = include.replace("../{}", "../../pins.txt").format(tmp_path / "pins.txt")
    with pytest.raises(InputError, match="does not exist") as caught:
        lint_texts("requirements.txt", {"requirements.txt": form.format(path)})
    assert "validator-lint" not in str(caught.value)


def test_a_dockerfile_copies_no_file_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # An assistant may start the server in a directory above that for temporary files.
    (tmp_path / "pins.txt").write_text(OLD)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    monkeypatch.chdir(tmp_path)
    assert lint_texts("Dockerfile", {"Dockerfile": COPY.format("pins.txt")}).findings == ()


@pytest.mark.parametrize(
    "name", ["../pins.txt", "/pins.txt", "a/pins.txt", "..", "", "pins.txt\0", "a" * 101]
)
def test_only_plain_names_are_accepted(name: str) -> None:
    with pytest.raises(InputError, match="is not a plain file name"):
        lint_texts("requirements.txt", {"requirements.txt": "", name: ""})


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    lint_texts("requirements.txt", {"requirements.txt": OLD})
    assert list(tmp_path.iterdir()) == []
