"""The places where XLA finds ptxas and libdevice, and their known faults."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from validator.probe import table
from validator.probe.check import Context, Result
from validator.probe.checks import libraries
from validator.probe.xla import Search
from validator.problems import CATALOGUE

pytestmark = pytest.mark.service


def ptxas(directory: Path, version: str = "12.9.86", says: str | None = None) -> Path:
    """Return a program that answers as ptxas does."""
    program = directory / "ptxas"
    directory.mkdir(parents=True, exist_ok=True)
    text = says if says is not None else f"Cuda compilation tools, release x, V{version}"
    program.write_text(f"#!/bin/sh\necho 'ptxas: NVIDIA (R) Ptx optimizing assembler'\necho '{text}'\n")
    program.chmod(0o755)
    return program


def libdevice(root: Path) -> Path:
    file = root / "nvvm" / "libdevice" / "libdevice.10.bc"
    file.parent.mkdir(parents=True)
    file.touch()
    return file


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the wheel nvidia-cuda-nvcc with ptxas 12.9.86, the last place where XLA looks."""
    monkeypatch.chdir(tmp_path)
    root = tmp_path / "nvidia" / "cuda_nvcc"
    ptxas(root / "bin")
    libdevice(root)
    return root


def judge(
    tmp_path: Path, *, new: bool = True, preferred: str = "./cuda_sdk_lib", gpus: tuple[str, ...] = ()
) -> Result:
    roots = (str(tmp_path / "toolkit"), str(tmp_path / "nvidia" / "cuda_nvcc"))
    return libraries.judge_xla_toolchain(Search(roots, new), preferred, str(tmp_path / "path"), list(gpus))


def test_the_wheel_is_found(wheel: Path, tmp_path: Path) -> None:
    result = judge(tmp_path, gpus=("9.0",))
    assert result.outcome == "pass"
    assert result.evidence["ptxas"] == {"path": str(wheel / "bin" / "ptxas"), "version": "12.9.86"}
    assert result.evidence["libdevice"] == str(wheel / "nvvm" / "libdevice" / "libdevice.10.bc")
    assert result.evidence["advisories"] == []


@pytest.mark.usefixtures("wheel")
@pytest.mark.parametrize(("new", "first"), [(True, "preferred"), (False, "path")])
def test_the_order_of_the_search_for_ptxas(new: bool, first: str, tmp_path: Path) -> None:
    places = {
        "preferred": ptxas(tmp_path / "preferred" / "bin", "12.8.1"),
        "path": ptxas(tmp_path / "path", "12.8.2"),
        "toolkit": ptxas(tmp_path / "toolkit" / "bin", "12.8.3"),
    }
    preferred = str(tmp_path / "preferred")
    result = judge(tmp_path, new=new, preferred=preferred)
    assert result.evidence["ptxas"]["path"] == str(places.pop(first))
    assert [one["version"] for one in result.evidence["ptxas_found"]][-2:] == ["12.8.3", "12.9.86"]
    assert "12.9.86, which XLA doesn't use" in result.sentence
    for path in places.values():
        if path.parent.parent != tmp_path / "toolkit":
            path.unlink()
    (tmp_path / ("preferred/bin/ptxas" if new else "path/ptxas")).unlink()
    assert judge(tmp_path, new=new, preferred=preferred).evidence["ptxas"]["path"] == str(places["toolkit"])


@pytest.mark.usefixtures("wheel")
@pytest.mark.parametrize("version", ["11.7.99", "12.3.103"])
def test_newer_releases_skip_some_versions(version: str, tmp_path: Path) -> None:
    ptxas(tmp_path / "toolkit" / "bin", version)
    assert judge(tmp_path).evidence["ptxas"]["version"] == "12.9.86"
    assert judge(tmp_path, new=False).evidence["ptxas"]["version"] == version


@pytest.mark.usefixtures("wheel")
def test_a_ptxas_that_does_not_run_is_skipped(tmp_path: Path) -> None:
    ptxas(tmp_path / "toolkit" / "bin", says="out of order")
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "ptxas").write_text("not executable")
    result = judge(tmp_path)
    assert result.evidence["ptxas"]["version"] == "12.9.86"
    assert [one["version"] for one in result.evidence["ptxas_found"]] == [None, None, "12.9.86"]


def test_nothing_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = judge(tmp_path)
    assert result.outcome == "fail"
    assert "finds no ptxas" in result.sentence
    assert "finds no libdevice.10.bc" in result.sentence


def test_a_ptxas_that_xla_rejects_is_not_enough(wheel: Path, tmp_path: Path) -> None:
    ptxas(wheel / "bin", "11.2.152")
    result = judge(tmp_path)
    assert result.outcome == "fail"
    assert f"XLA can't run any ptxas that it finds: {wheel / 'bin' / 'ptxas'} (11.2.152)" in result.sentence
    assert [problem["code"] for problem in result.problems] == ["ptxas_unusable"]


def test_only_libdevice_is_missing(wheel: Path, tmp_path: Path) -> None:
    (wheel / "nvvm" / "libdevice" / "libdevice.10.bc").unlink()
    result = judge(tmp_path)
    assert result.outcome == "fail"
    assert result.sentence.startswith("XLA finds no libdevice.10.bc")
    libdevice(tmp_path)
    assert judge(tmp_path).evidence["libdevice"] == "./nvvm/libdevice/libdevice.10.bc"


@pytest.mark.parametrize(
    ("version", "gpus", "ids", "applies"),
    [
        ("12.0.0", ("9.0",), ["ptxas_hopper_clamp"], True),
        ("12.5.82", ("9.0",), ["ptxas_hopper_clamp"], True),
        ("12.6.77", ("8.6", "12.0"), ["ptxas_hopper_clamp"], True),
        ("12.5.82", ("8.9",), ["ptxas_hopper_clamp"], False),
        ("12.5.82", (), ["ptxas_hopper_clamp"], False),
        ("12.6.85", ("9.0",), [], False),
        ("11.8.89", ("9.0",), [], False),
        ("13.0.88", ("7.0",), ["ptxas_13_before_turing"], True),
        ("13.0.88", ("7.5",), ["ptxas_13_before_turing"], False),
    ],
)
def test_reported_advisories(
    version: str, gpus: tuple[str, ...], ids: list[str], applies: bool, wheel: Path, tmp_path: Path
) -> None:
    ptxas(wheel / "bin", version)
    result = judge(tmp_path, gpus=gpus)
    assert result.outcome == "pass"
    assert [entry["code"] for entry in result.evidence["advisories"]] == ids
    assert [entry["applies"] for entry in result.evidence["advisories"]] == [applies] * len(ids)
    assert [problem["code"] for problem in result.problems] == (ids if applies else [])


def test_an_advisory_that_fails_the_check(wheel: Path, tmp_path: Path) -> None:
    ptxas(wheel / "bin", "11.0.221")
    assert judge(tmp_path, new=False).outcome == "pass"
    result = judge(tmp_path, new=False, gpus=("8.0",))
    assert result.outcome == "fail"
    assert result.sentence.startswith("ptxas 11.0.221 miscompiles XLA code")


def test_the_table_is_valid() -> None:
    rows = table("advisories")["advisories"]
    assert len({row["code"] for row in rows}) == len(rows)
    for row in rows:
        assert CATALOGUE[row["code"]].fields == {"version": "text"}
        assert row["affects"].keys() <= {"tool", "from", "below"} and row["affects"]["tool"] == "ptxas"
        assert row.get("capabilities", {"from": ""}).keys() <= {"from", "below"}
        assert row["source"]


def test_a_tensorflow_without_the_search_functions(facts: dict[str, Any], tmp_path: Path) -> None:
    class TensorFlow:
        __file__ = str(tmp_path / "tensorflow" / "__init__.py")

    assert libraries.xla_toolchain.run(Context(facts, tensorflow=TensorFlow)).outcome == "error"
