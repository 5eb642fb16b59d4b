"""The inspection of whole wheels, made here, and the measured rows that ship with the package."""

from __future__ import annotations

import datetime
import sys
from pathlib import Path

import pytest
import yaml

from validator.compat import inspect as command
from validator.compat.compile import read_yaml
from validator.compat.elf import ElfFile, InspectionError, fatbins
from validator.compat.inspect import (
    BUILDS,
    WheelFile,
    count_kernels,
    inspect_tensorflow,
    merge,
    pip_folders,
    render,
    row,
    write,
)
from validator.errors import EXIT_INPUT, InputError, MissingError
from validator.versions import Version

from . import wheel_files as made


def library(**parts: object) -> ElfFile:
    return ElfFile(made.elf(**parts), "lib.so")  # type: ignore[arg-type]


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    return made.wheel(tmp_path / "tensorflow-2.99.1-cp311-cp311-linux_x86_64.whl", made.MEMBERS)


def test_a_whole_wheel(wheel: Path) -> None:
    build = inspect_tensorflow(wheel)
    assert build["tensorflow"] == "2.99.1"
    assert build["wheel"]["size"] == wheel.stat().st_size
    assert build["requires"] == {
        "python": ">=3.10",
        "keras": [">=3.12.0"],
        "numpy": ['<2.0.0,>=1.23.5; python_version <= "3.11"'],
    }
    assert build["and_cuda"] == ["nvidia-cudnn-cu12<10.0,>=9.3.0.75"]
    assert build["build"]["cuda"] == "12.5"
    assert build["build"]["cudnn_headers"] == "9.3.0"
    assert build["opens"] == ["libcudart.so.12", "libcusolver.so.11"]
    assert build["pip_libraries"]["folders"] == ["cuda_runtime"]
    assert build["pip_libraries"]["missing_required"] == ["libcusolver.so.11"]
    assert build["kernels"] == [
        {"fatbins": 2, "sass": [80], "ptx": {"90a": "8.5"}},
        {"fatbins": 1, "sass": [90], "ptx": {}, "library": "nccl"},
    ]
    assert build["relocatable_fatbins"] == 1


def test_a_search_path_is_relative_to_the_folder_of_the_library() -> None:
    found = library(dynamic=((made.DT_RUNPATH, "$ORIGIN/../../nvidia/cusolver/lib:/usr/nvidia/cublas/lib"),))
    assert pip_folders(found, "tensorflow/libtensorflow_cc.so.2") == ()
    assert pip_folders(found, "tensorflow/python/_pywrap_tensorflow_internal.so") == ("cusolver",)


def test_kernels_are_counted_most_frequent_first() -> None:
    found = fatbins(
        library(sections={".nv_fatbin": made.fatbin(made.sass(90)) + made.fatbin(made.sass(80)) * 2})
    )
    assert [(group["sass"], group["fatbins"]) for group in count_kernels(found)] == [([80], 2), ([90], 1)]


def test_build_info_is_not_run(tmp_path: Path) -> None:
    evil = b"build_info = print(__import__('sys').exit(9))"
    path = made.wheel(tmp_path / "x.whl", made.MEMBERS | {"tensorflow/python/platform/build_info.py": evil})
    with pytest.raises(InspectionError, match=r"build_info\.py: can't be read"):
        inspect_tensorflow(path)


def test_a_wheel_without_build_info_is_not_tensorflow(tmp_path: Path) -> None:
    with pytest.raises(InspectionError, match=r"has no tensorflow/python/platform/build_info\.py"):
        inspect_tensorflow(made.wheel(tmp_path / "x.whl", {"x.dist-info/METADATA": made.METADATA}))


def test_a_wheel_without_metadata(tmp_path: Path) -> None:
    with (
        WheelFile(made.wheel(tmp_path / "x.whl", {"a": b""})) as found,
        pytest.raises(InspectionError, match="0 METADATA files"),
    ):
        found.metadata()


def test_a_truncated_download_is_rejected(wheel: Path) -> None:
    wheel.write_bytes(wheel.read_bytes()[:-100])
    with pytest.raises(InspectionError, match="not a wheel, or cut short") as caught:
        inspect_tensorflow(wheel)
    assert caught.value.hint and "download the wheel again" in caught.value.hint


def test_a_damaged_member(wheel: Path) -> None:
    content = wheel.read_bytes()
    wheel.write_bytes(content.replace(b"machine code", b"machine c0de", 1))
    with pytest.raises(InspectionError, match=r"libtensorflow_\w+\.so\.2 is damaged"):
        inspect_tensorflow(wheel)


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="no such file"):
        WheelFile(tmp_path / "absent.whl")
    with pytest.raises(InputError, match="can't be read: Is a directory"):
        WheelFile(tmp_path)


# Rows

HEAD = "# What this is.\n\nbuilds:\n"
DATE = datetime.date(2026, 11, 21)


def test_a_row_is_yaml_that_reads_back(wheel: Path) -> None:
    cells = row(inspect_tensorflow(wheel), DATE)
    assert yaml.safe_load(render(cells)) == [cells]
    assert cells["status"] == "verified-local"
    assert cells["kernels"] == [
        {"fatbins": 2, "sass": [80], "ptx": {"90a": "8.5"}},
        {"fatbins": 1, "sass": [90], "ptx": {}, "library": "nccl"},
    ]


def test_rows_are_merged_in_order_under_the_comment(tmp_path: Path) -> None:
    path = tmp_path / "builds.yaml"
    path.write_text(HEAD)
    write(path, [{"tensorflow": "2.10.0", "size": 1}, {"tensorflow": "2.9.0", "size": 2}])
    write(path, [{"tensorflow": "2.10.0", "size": 3}])
    assert path.read_text().startswith("# What this is.\n")
    assert yaml.safe_load(path.read_text())["builds"] == [
        {"tensorflow": "2.9.0", "size": 2},
        {"tensorflow": "2.10.0", "size": 3},
    ]
    assert [file.name for file in tmp_path.iterdir()] == ["builds.yaml"]


def test_the_command_prints_a_row(
    wheel: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["inspect-wheel", str(wheel)])
    assert command.main() == 0
    assert yaml.safe_load(capsys.readouterr().out)[0]["tensorflow"] == "2.99.1"


def test_the_command_explains_an_error_with_a_hint(
    wheel: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wheel.write_bytes(b"PK")
    monkeypatch.setattr(sys, "argv", ["inspect-wheel", str(wheel)])
    assert command.main() == EXIT_INPUT
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "not a wheel" in printed.err and "hint: download the wheel again" in printed.err


# The measured rows

MEASURED = read_yaml(BUILDS)["builds"]


def test_the_file_is_identical_to_the_output_of_the_tool() -> None:
    text = BUILDS.read_text("utf-8")
    assert merge(text, []) == text
    releases = [Version(cells["tensorflow"]) for cells in MEASURED]
    assert releases == sorted(set(releases))


@pytest.mark.parametrize("cells", MEASURED, ids=lambda cells: cells["tensorflow"])
def test_a_measured_row(cells: dict[str, object]) -> None:
    assert cells["status"] == "verified-local"
    assert cells["build"]["cuda_build"] is True  # type: ignore[index]
    assert cells["build"]["cudnn_headers"]  # type: ignore[index]
    opens = cells["opens"]
    assert isinstance(opens, list)
    for stem in ("cublas", "cublasLt", "cudart", "cudnn", "cufft", "cusolver", "cusparse"):
        # One soname each, with its version: a missing version means that the code was misread.
        assert sum(soname.startswith(f"lib{stem}.so.") for soname in opens) == 1, stem
        assert f"lib{stem}.so" not in opens


def test_some_releases_do_not_find_the_libraries_of_pip() -> None:
    # 2.16.1: tensorflow/tensorflow issue 63362. 2.12 and 2.13 have no and-cuda extra.
    lacking = {
        cells["tensorflow"]
        for cells in MEASURED
        if cells["and_cuda"] and cells["pip_libraries"]["missing_required"]
    }
    assert lacking == {"2.16.1", "2.21.0"}
