"""Wheels that no table lists are inspected, and predicted by the rules that hold for releases."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from validator import cli
from validator.compat import facts, policies, releases
from validator.compat.kernels import targets_gpu
from validator.errors import InputError, MissingError
from validator.model.prediction import Outcome
from validator.model.spec import Choice
from validator.supply import release_facts
from validator.supply.release_facts import inspected, known_as_release, name_of, wheel_at
from validator.versions import ComputeCapability, release_range

from ..compat import wheel_files as made

NAME = "tensorflow-2.21.0-cp312-cp312-linux_x86_64.whl"
METADATA = made.METADATA.replace(b"2.99.1", b"2.21.0")
EXTRA = b"""Requires-Dist: nvidia-cuda-runtime-cu12<13.0,>=12.8.57; extra == "and-cuda"
Requires-Dist: nvidia-cuda-nvcc-cu12<13.0,>=12.8.61; extra == "and-cuda"
"""
WITHOUT_CUDA = b"build_info = dict([('is_cuda_build', False)])"
WITHOUT_VERSIONS = b"build_info = dict([('is_cuda_build', True)])"


def say(_: str) -> None:
    """Say nothing."""


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VALIDATOR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(releases, "_OWN", {})


@pytest.fixture
def wheel(tmp_path: Path) -> Callable[..., Path]:
    def make(
        kernels: bytes = made.fatbin(made.sass(120)),
        llvm: bytes = b"\0ptx85\0ptx87\0",
        info: bytes = made.BUILD_INFO,
        metadata: bytes = METADATA + EXTRA,
        name: str = NAME,
    ) -> Path:
        framework = made.elf(
            symbols={
                made.DLOPEN: b"\xc3",
                made.GETTER.format(23, "CudaRuntime"): made.CUDART_12,
                made.CUDNN_CONSTANT: bytes([9, 0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0]),
            },
            sections={".nv_fatbin": kernels, ".rodata": llvm},
        )
        members = {
            "tensorflow-2.21.0.dist-info/METADATA": metadata,
            "tensorflow/python/platform/build_info.py": info,
            "tensorflow/libtensorflow_framework.so.2": framework,
        }
        return made.wheel(tmp_path / name, members)

    return make


def predicted(path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, object]:
    cli.run(["predict", "--wheel", str(path), "--json", *options])
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


BLACKWELL = ("--gpu", "rtx-5090", "--driver", "580")


def test_a_build_with_code_for_blackwell_works_there(
    wheel: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """The release on PyPI fails there, because its XLA has no target for the GPU."""
    found = predicted(wheel(), capsys, *BLACKWELL)["prediction"]
    assert isinstance(found, dict)
    assert (found["eager"], found["xla"]) == ("works", "unknown")
    [reason] = [one for one in found["reasons"] if one["outcome"] == "unknown"]
    assert "seen to write PTX ISA 8.5, and the LLVM in its wheel can write up to 8.7" in reason["text"]
    assert reason["fact"].startswith("wheel-2.21.0+") and reason["status"] == "derived"


@pytest.mark.parametrize(
    ("kernels", "llvm", "outcome"),
    [
        # Neither machine code nor PTX that the driver could compile.
        (made.fatbin(made.sass(90)), b"\0ptx87\0", ("fails", "fails")),
        # LLVM has no target for it.
        (made.fatbin(made.sass(120)), b"\0ptx85\0", ("works", "fails")),
        # A text that only looks like a feature is none.
        (made.fatbin(made.sass(120)), b"\0ptx85\0ptxas\0ptx870 is new\0", ("works", "fails")),
    ],
)
def test_a_wheel_is_judged_by_what_is_in_it(
    wheel: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
    kernels: bytes,
    llvm: bytes,
    outcome: tuple[str, str],
) -> None:
    found = predicted(wheel(kernels, llvm), capsys, *BLACKWELL)["prediction"]
    assert isinstance(found, dict)
    assert (found["eager"], found["xla"]) == outcome


def test_two_wheels_of_one_version_have_two_names(wheel: Callable[..., Path]) -> None:
    first = known_as_release(wheel_at(wheel()), say)
    second = known_as_release(wheel_at(wheel(llvm=b"\0ptx85\0")), say)
    assert first.version != second.version
    assert all(one.version.startswith("2.21.0+") and len(one.version) == 15 for one in (first, second))
    assert releases.release(first.version) == first != releases.release("2.21.0")


def test_no_range_and_no_newest_takes_a_wheel_of_ones_own(wheel: Callable[..., Path]) -> None:
    before = releases.releases(), releases.newest(), releases.known_versions()
    own = known_as_release(wheel_at(wheel(metadata=METADATA.replace(b"2.21.0", b"2.98.0") + EXTRA)), say)
    assert own.version.startswith("2.98.0+")
    assert (releases.releases(), releases.newest(), releases.known_versions()) == before


def test_a_local_version_keeps_its_name(wheel: Callable[..., Path]) -> None:
    row = inspected(wheel_at(wheel(metadata=METADATA.replace(b"2.21.0", b"2.21.0+cu128") + EXTRA)), say)
    assert name_of(row).startswith("2.21.0+cu128.")


def test_a_wheel_is_read_once(wheel: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    path = wheel()
    first = inspected(wheel_at(path), say)
    monkeypatch.setattr(release_facts, "inspect_tensorflow", lambda *_, **__: pytest.fail("read again"))
    renamed = path.rename(path.with_name(NAME.replace("linux", "manylinux_2_27")))
    again = inspected(wheel_at(renamed), say)
    assert again["wheel"]["file"] == renamed.name
    assert again | {"wheel": None} == first | {"wheel": None}


@pytest.mark.parametrize(
    ("extra", "cuda"),
    [(EXTRA, "12.8"), (EXTRA.replace(b"<13.0,>=", b"=="), "12.8"), (b"", "12.0")],
)
def test_a_build_that_does_not_name_its_cuda(wheel: Callable[..., Path], extra: bytes, cuda: str) -> None:
    """So it is from 2.22 on: the extra says it, or else the library that is opened."""
    release = known_as_release(wheel_at(wheel(info=WITHOUT_VERSIONS, metadata=METADATA + extra)), say)
    assert (release.cuda, release.cudnn, release.pythons) == (cuda, "9.10", ("3.12",))
    assert release.extra_style == "range"


def test_a_wheel_for_cuda_13_gets_the_cudnn_of_cuda_13(
    wheel: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    info = made.BUILD_INFO.replace(b"12.5", b"13.0")
    extra = (
        b'Requires-Dist: nvidia-cudnn-cu13<10.0,>=9.12.0; extra == "and-cuda"\n'
        b'Requires-Dist: nvidia-cuda-runtime<14.0,>=13.0; extra == "and-cuda"\n'
    )
    metadata = METADATA.replace(
        b'Requires-Dist: nvidia-cudnn-cu12<10.0,>=9.3.0.75; extra == "and-cuda"\n', extra
    )
    release = known_as_release(wheel_at(wheel(info=info, metadata=metadata)), say)
    assert (release.cuda, release.suffix) == ("13.0", "cu13")
    assert release.wheels["nvidia-cudnn-cu13"] == "<10.0,>=9.12.0"
    # The same version may have other builds for another CUDA.
    known = {"cu11": ("9.3.0.71",), "cu12": ("9.3.0.75", "9.12.0.46"), "cu13": ("9.12.0.40", "9.12.0.44")}
    monkeypatch.setattr(policies, "cudnn_releases", lambda suffix: known[suffix])
    assert policies.cudnn_version(release, Choice("9.12", "9.12")) == "9.12.0.44"
    assert policies.cudnn_version(release, Choice("9.3", "9.3")) == "9.3.0.75"


def test_an_old_ptxas_is_blamed_with_the_fact_about_xla(wheel: Callable[..., Path]) -> None:
    """The wheel itself says nothing about it."""
    release = known_as_release(wheel_at(wheel()), say)
    reason = targets_gpu(release.version, ComputeCapability(9, 0), "11.7.99")
    assert reason is not None and reason.outcome is Outcome.FAILS
    assert "ptxas 11.7.99 assembles PTX up to ISA 7.7" in reason.text
    [row] = [one for one in facts.rows("xla", "ptx") if release_range(one["releases"]).contains("2.21.0")]
    assert reason.fact == row["id"]


def test_a_repacked_release_is_known_as_one(
    wheel: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is known of the release then counts, and not how far its LLVM reaches."""
    # Not the bytes of another test: what is known of a name is kept as long as the process runs.
    path = wheel(llvm=b"\0ptx86\0ptx87\0")
    row = inspected(wheel_at(path), say)
    monkeypatch.setattr(releases, "_opened", lambda: {"2.21.0": {**row, "status": "verified-local"}})
    found = predicted(path, capsys, *BLACKWELL)["prediction"]
    assert isinstance(found, dict)
    assert (found["eager"], found["xla"]) == ("works", "fails")
    cli.run(["inspect", str(path)])
    assert "device code   the same as tensorflow 2.21.0 on PyPI\n" in capsys.readouterr().out


def test_the_command_shows_what_is_in_it(
    wheel: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path = wheel(made.fatbin(made.sass(120), made.ptx(120, "8.7")))
    assert cli.run(["inspect", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("2.21.0+")
    assert "kernels       1 units: machine code 120; PTX 120 (ISA 8.7)" in lines
    assert "XLA's LLVM    writes PTX up to ISA 8.7" in lines
    assert "device code   not that of a release on PyPI" in lines
    assert any(line.startswith("9.0  ") and "no driver works" in line for line in lines)
    assert cli.run(["inspect", str(path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["name"] == lines[0]
    assert document["contents"]["llvm_ptx"] == "8.7"
    assert document["same_as"] is None


def test_a_wheel_without_cuda(wheel: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> None:
    path = wheel(b"", info=WITHOUT_CUDA)
    assert cli.run(["inspect", str(path)]) == 1
    assert "It was built without CUDA, so it never uses a GPU." in capsys.readouterr().out
    with pytest.raises(InputError, match="was built without CUDA"):
        known_as_release(wheel_at(path), say)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("notes.txt", "not the name of a wheel"),
        ("tensorflow-2.21.0-cp312-cp312-win_amd64.whl", "is not for CPython on Linux x86_64"),
        ("tensorflow-2.21.0-cp312-cp312-manylinux_2_27_aarch64.whl", "is not for CPython on Linux x86_64"),
        ("tensorflow-2.21.0-py3-none-any.whl", "is not for CPython on Linux x86_64"),
    ],
)
def test_another_file_is_named_at_once(wheel: Callable[..., Path], name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        inspected(wheel_at(wheel(name=name)), say)


def test_a_file_that_is_none(tmp_path: Path) -> None:
    for make in (None, os.mkfifo, lambda path: path.symlink_to("/dev/zero"), Path.mkdir):
        path = tmp_path / NAME
        path.unlink(missing_ok=True)
        if make is not None:
            make(path)
        with pytest.raises(MissingError, match=r"no such file"):
            inspected(wheel_at(path), say)


@pytest.mark.parametrize("option", ["--tensorflow=2.21.0", "--image=tensorflow/tensorflow:2.17.0-gpu"])
def test_the_wheel_says_which_tensorflow_it_is(wheel: Callable[..., Path], option: str) -> None:
    assert cli.run(["predict", "--wheel", str(wheel()), option]) == 2
    assert cli.run(["predict", "--wheel", "elsewhere", "--tensorflow", "2.21.0"]) == 2
