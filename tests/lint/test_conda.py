"""environment.yml and conda-lock.yml."""

from __future__ import annotations

from pathlib import Path

import pytest

from validator.errors import InputError

from .support import found, short, write


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["- python=3.12", "- pip:", "  - tensorflow==2.15.1"], ["2:3 python_without_wheel"]),
        (["- cudatoolkit=11.8", "- pip:", "  - tensorflow==2.18.0"], ["2:3 cuda_of_another_version"]),
        (
            ["- conda-forge::cudnn=8.1.0=h90431f1_0", "- pip:", "  - tensorflow==2.15.1"],
            ["2:3 cudnn_older_than_built"],
        ),
        (["- cudatoolkit=11.8", "- pip:", "  - tensorflow[and-cuda]==2.18.0"], []),
        (["- cudatoolkit=11.2.*", "- cudnn=8.1", "- pip:", "  - tensorflow==2.10.1"], []),
        (["- cudatoolkit=11.2.*", "- cudnn=8", "- pip:", "  - tensorflow==2.10.1"], []),
        (
            ["- cudatoolkit=12.5", "- cudnn=8.*", "- pip:", "  - tensorflow==2.18.0"],
            ["3:5 cudnn_of_another_major"],
        ),
        (["- cudatoolkit", "- pip:", "  - tensorflow==2.18.0"], []),
        (["- python>=3.12", "- pip:", "  - tensorflow==2.15.1"], []),
        # conda's own builds have other libraries.
        (["- cudatoolkit=11.8", "- tensorflow=2.18.0"], []),
        (
            [
                "- pip:",
                "  - --extra-index-url https://download.pytorch.org/whl/cpu",
                "  - tensorflow==2.18.0",
                "  - torch==2.4.1",
            ],
            [],
        ),
        (["- pip:", "  - tensorflow==2.18.0", "  - torch==2.4.1"], ["4:5 mixed_frameworks"]),
    ],
)
def test_an_environment_of_conda(tmp_path: Path, lines: list[str], expected: list[str]) -> None:
    text = "dependencies:\n" + "".join(f"  {line}\n" for line in lines)
    moved = [one.replace("2:3", "2:5").replace("4:5", "4:7") for one in expected]
    assert short(write(tmp_path, "environment.yml", text)) == moved


def test_the_fix_names_the_libraries_of_conda(tmp_path: Path) -> None:
    text = "dependencies:\n- cudatoolkit=11.8\n- pip:\n  - tensorflow==2.18.0\n"
    (finding,) = found(write(tmp_path, "environment.yml", text))
    assert finding.fix.startswith("Use CUDA 12.5 and cuDNN 9.3.0, or newer ones")


def test_requirements_files_that_pip_includes_are_read(tmp_path: Path) -> None:
    write(tmp_path, "deps/limits.txt", "nvidia-cudnn-cu12==8.9.7.29\n")
    write(tmp_path, "deps/pip.txt", "tensorflow==2.15.1\n")
    text = """
    dependencies:
    - python=3.12
    - pip:
      - -r pip.txt  # what pip installs
      - -c limits.txt
      - nvidia-cudnn-cu12
    """
    path = write(tmp_path, "deps/environment.yml", text)
    assert short(path) == ["2:3 python_without_wheel"]
    write(
        tmp_path, "deps/pip.txt", "--extra-index-url https://a.example/\ntensorflow==2.18.0\ntorch==2.4.1\n"
    )
    (finding,) = found(path)
    assert (Path(finding.place.file).name, finding.code) == ("limits.txt", "cudnn_of_another_major")
    (tmp_path / "deps/pip.txt").unlink()
    with pytest.raises(InputError, match=r"pip\.txt does not exist"):
        found(path)


def test_a_lock_of_conda(tmp_path: Path) -> None:
    text = """
    version: 1
    package:
    - {name: python, version: 3.12.4, manager: conda, platform: linux-64}
    - {name: python, version: 3.11.4, manager: conda, platform: osx-64}
    - {name: tensorflow, version: 2.15.1, manager: pip, platform: linux-64}
    """
    assert short(write(tmp_path, "conda-lock.yml", text)) == ["3:27 python_without_wheel"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [1\n", "not YAML"),
        ("services: {}\n", "it has no key dependencies"),
        ("- a\n", "it is not a mapping"),
        ("a: &a [x]\nb: " + "[" * 40 + "]" * 40, "deep"),
    ],
)
def test_a_file_that_is_something_else(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as error:
        found(write(tmp_path, "environment.yml", text))
    assert "matrix" not in str(error.value.hint)
