"""The facts are brought up to date: everything is written or nothing, and a run that was killed goes on."""

from __future__ import annotations

import datetime
import errno
import json
import os
import re
import shutil
from collections import namedtuple
from dataclasses import replace
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import pytest
import yaml

from validator.compat import facts, inspect, releases
from validator.errors import InputError, MissingError
from validator.supply import release_facts
from validator.supply.news import STABLE, Asked
from validator.supply.release_facts import WRITTEN, Copy
from validator.system.files import cache_directory

from ..compat import wheel_files
from ..locks.local_index import LINUX, LocalIndex

ROOT = Path(__file__).resolve().parents[2]
RUN, ANSWERS, COPIED = Copy.run, release_facts.answers, release_facts._COPIED
TODAY = datetime.date(2099, 1, 2)
DATA = "validator/compat/data"
WHEEL = f"tensorflow-2.99.0-cp311-cp311-{LINUX}.whl"
#: What the metapackage of a CUDA release requires, as far as it matters here.
COMPONENTS = [
    f"nvidia-{name}==99.1.{number}.*; sys_platform == 'linux' and extra == '{name}'"
    for number, name in enumerate(
        (
            "cublas",
            "cuda-cupti",
            "cuda-nvcc",
            "cuda-nvrtc",
            "cuda-runtime",
            "cufft",
            "curand",
            "cusolver",
            "cusparse",
        )
    )
]


@pytest.fixture(autouse=True)
def steps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[str, ...]]:
    """Use a cache of this test, and run no step in the copy; return the steps that would run.

    The copy has only the facts, which are all that is written without the steps, because copying everything
    takes longer than all the rest.
    """
    monkeypatch.setenv("VALIDATOR_CACHE", str(tmp_path / "cache"))
    asked: list[tuple[str, ...]] = []

    def run(_: Copy, *arguments: str) -> bytes:
        asked.append(arguments)
        return b""

    monkeypatch.setattr(Copy, "run", run)
    monkeypatch.setattr(release_facts, "answers", lambda _: {})
    monkeypatch.setattr(release_facts, "_COPIED", (DATA,))
    return asked


@pytest.fixture
def whole(steps: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the steps, except locking, which needs uv, and writing the documentation, which takes long."""
    monkeypatch.setattr(Copy, "run", RUN)
    monkeypatch.setattr(release_facts, "answers", ANSWERS)
    monkeypatch.setattr(release_facts, "_COPIED", COPIED)
    monkeypatch.setattr(release_facts, "LOCKED_PROFILES", ())
    monkeypatch.setattr(release_facts, "DOCUMENTATION", ())


def test_the_documentation_is_written_as_a_person_does() -> None:
    script = (ROOT / "scripts/update-docs").read_text(encoding="utf-8")
    modules = re.findall(r"^\.venv/bin/python -m ([\w.]+)$", script, re.MULTILINE)
    assert modules == [*release_facts.DOCUMENTATION, "docs.examples"]


def refreshed(
    index: LocalIndex, asked: Asked = STABLE, today: datetime.date = TODAY, root: Path = ROOT
) -> tuple[dict[str, bytes], tuple[str, ...]]:
    return release_facts.refreshed(root, index.sources, asked, today, lambda _: None)


def rows(files: dict[str, bytes], name: str, section: str) -> list[dict[str, Any]]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    found: list[dict[str, Any]] = yaml.load(files[f"{DATA}/{name}.yaml"], Loader=loader)[section]
    return found


def state() -> dict[Path, bytes]:
    return {path: path.read_bytes() for pattern in WRITTEN for path in ROOT.glob(pattern) if path.is_file()}


@pytest.mark.slow
@pytest.mark.usefixtures("whole")
def test_a_new_release_is_measured_and_written_everywhere(index: LocalIndex) -> None:
    index.add_tensorflow("2.99.0", "3.11", "3.12")
    before = state()
    files, lines = refreshed(index)
    assert state() == before, "nothing is written here"
    assert set(files) == {
        *(f"{DATA}/{name}.yaml" for name in ("builds", "sources", "tensorflow", "wheels")),
        f"{DATA}/compiled.json",
        "validator/probe/data/kernels.json",
    }
    release = rows(files, "tensorflow", "releases")[-1]
    assert release == {
        "id": "tensorflow-2.99.0", "version": "2.99.0", "pythons": ["3.11", "3.12"], "cuda": "12.5",
        "cudnn": "9.3", "status": "verified-local", "sources": ["wheel"],
    }  # fmt: skip
    extra = rows(files, "tensorflow", "extras")[-1]
    assert (extra["releases"], extra["wheels"]) == (["2.99.0"], {"nvidia-cudnn-cu12": ">=9.3.0.75,<10.0"})
    [*_, measured] = rows(files, "builds", "builds")
    assert (measured["tensorflow"], measured["date"]) == ("2.99.0", datetime.date(2099, 1, 2).isoformat())
    assert {row["read"] for row in rows(files, "wheels", "cudnn")} == {"2099-01-02"}
    compiled = json.loads(files[f"{DATA}/compiled.json"])
    assert compiled["tensorflow"]["releases"][-1] == release
    assert "2.99.0" in json.loads(files["validator/probe/data/kernels.json"])["tensorflow"]
    text = "\n".join(lines)
    assert lines[0] == "TensorFlow 2.99.0: new on the package index"
    assert "New cells: " in text and "tf2.99.0-cuda12.5-cudnn9.3-py311@" in text
    assert "  validator/compat/data/builds.yaml" in lines


def test_the_row_is_what_was_read(index: LocalIndex, tmp_path: Path) -> None:
    """Also after it was kept in the cache: a plain target is a number there, and not a text."""
    framework = wheel_files.elf(
        symbols={
            wheel_files.DLOPEN: b"\xc3",
            wheel_files.GETTER.format(23, "CudaRuntime"): wheel_files.CUDART_12,
            wheel_files.CUDNN_CONSTANT: bytes([9, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]),
        },
        sections={
            ".nv_fatbin": wheel_files.fatbin(wheel_files.ptx(90, "8.5"), wheel_files.ptx("90a", "8.5"))
        },
    )
    index.add_tensorflow("2.99.0", "3.11", **{"tensorflow/libtensorflow_framework.so.2": framework})
    path = tmp_path / WHEEL
    path.write_bytes(index.files[WHEEL])
    expected = inspect.row(inspect.inspect_tensorflow(path), TODAY)
    assert {90: "8.5", "90a": "8.5"} in [group["ptx"] for group in expected["kernels"]]
    for _ in range(2):
        files, _lines = refreshed(index)
        assert rows(files, "builds", "builds")[-1] == expected
    assert len(index.downloads()) == 1


def test_the_inspection_is_another_one_only_if_its_own_code_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    original = Path.read_bytes

    def recorded(path: Path) -> bytes:
        read.append(path.name)
        return original(path)

    monkeypatch.setattr(Path, "read_bytes", recorded)
    assert release_facts.version_of_inspection()
    assert read == ["elf.py", "inspect.py"]


def test_the_other_rows_and_the_comments_stay(index: LocalIndex) -> None:
    index.add_tensorflow("2.99.0", "3.11")
    files, _ = refreshed(index)
    for name in ("builds", "tensorflow", "sources"):
        old = (ROOT / DATA / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
        new = files[f"{DATA}/{name}.yaml"].decode().splitlines()
        changes = {change for change, *_ in SequenceMatcher(None, old, new, autojunk=False).get_opcodes()}
        assert changes == {"equal", "insert"}


def test_wheels_are_deleted_and_a_killed_run_does_not_repeat_its_work(
    index: LocalIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.add_tensorflow("2.99.0", "3.11")

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    before = state()
    with monkeypatch.context() as patch:
        patch.setattr(Copy, "run", killed)
        with pytest.raises(KeyboardInterrupt):
            refreshed(index)
    assert state() == before
    assert not list((cache_directory() / "refresh").glob("*.whl"))
    assert [name for name, _ in index.downloads()] == [WHEEL]
    files, _ = refreshed(index)
    assert rows(files, "tensorflow", "releases")[-1]["version"] == "2.99.0"
    assert [name for name, _ in index.downloads()] == [WHEEL], "it was not downloaded again"


def test_what_was_kept_for_a_release_that_is_known_by_now_is_removed(index: LocalIndex) -> None:
    directory = cache_directory() / "refresh"
    directory.mkdir(parents=True)
    for name in ("tensorflow-2.98.0-x.whl.partial", "tensorflow-2.98.0-x.whl-0.yaml", f"{WHEEL}.partial"):
        (directory / name).write_bytes(b"")
    index.add_tensorflow("2.99.0", "3.11")
    refreshed(index)
    assert not list(directory.glob("*2.98*"))


def test_a_small_disk_is_refused_before_anything_is_downloaded(
    index: LocalIndex, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10, 9, 1))
    index.add_tensorflow("2.99.0", "3.11")
    with pytest.raises(MissingError, match=r"0\.0 GB are needed to download and inspect a wheel") as caught:
        refreshed(index)
    assert str(tmp_path / "cache") in str(caught.value) and "VALIDATOR_CACHE" in str(caught.value.hint)
    assert index.downloads() == []


def test_a_disk_that_does_not_answer_is_an_error(
    index: LocalIndex, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fails(_: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    index.add_tensorflow("2.99.0", "3.11")
    path = tmp_path / WHEEL
    path.write_bytes(index.files[WHEEL])
    monkeypatch.setattr(shutil, "disk_usage", fails)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        release_facts.inspected(release_facts.wheel_at(path), lambda _: None)


def test_the_needed_space_is_said_before_the_download(index: LocalIndex) -> None:
    index.add_tensorflow("2.99.0", "3.11")
    said: list[str] = []

    def say(line: str) -> None:
        said.append(f"{line} [{len(index.downloads())} downloads]")

    release_facts.refreshed(ROOT, index.sources, STABLE, TODAY, say)
    assert said[0].startswith("1 wheel to inspect, one at a time: needs up to 0.0 GB in ")
    assert said[0].endswith("[0 downloads]")


def test_a_wheel_that_is_not_tensorflow_is_an_error_and_nothing_is_written(index: LocalIndex) -> None:
    index.add(WHEEL, content=b"PK not a wheel")
    before = state()
    with pytest.raises(InputError, match="not a wheel, or cut short"):
        refreshed(index)
    assert state() == before
    assert not list((cache_directory() / "refresh").glob("*.whl"))


def test_a_build_without_cuda_is_an_error(index: LocalIndex) -> None:
    info = b"import collections\nbuild_info = collections.OrderedDict([('is_cuda_build', False)])\n"
    index.add_tensorflow("2.99.0", "3.11", **{"tensorflow/python/platform/build_info.py": info})
    with pytest.raises(MissingError, match="says which CUDA it was built with"):
        refreshed(index)


def test_two_runs_at_once_are_refused(index: LocalIndex) -> None:
    index.add_tensorflow("2.99.0", "3.11")
    with release_facts._only_one(), pytest.raises(MissingError, match="another refresh is running"):
        refreshed(index)


def test_an_installed_package_is_not_changed(index: LocalIndex, tmp_path: Path) -> None:
    index.add_tensorflow("2.99.0", "3.11")
    with pytest.raises(InputError, match="is not a checkout") as caught:
        refreshed(index, root=tmp_path)
    assert "refresh --check" in str(caught.value.hint)


def test_without_news_nothing_changes_but_the_date_of_old_facts(index: LocalIndex) -> None:
    assert refreshed(index, today=facts.read_on() + datetime.timedelta(days=29)) == ({}, ())
    later = facts.read_on() + datetime.timedelta(days=30)
    files, lines = refreshed(index, today=later)
    assert set(files) == {f"{DATA}/wheels.yaml"}
    assert {row["read"] for row in rows(files, "wheels", "cudnn")} == {later.isoformat()}
    assert "0 of " in lines[0] and lines[0].endswith("cells change.")


def test_new_pythons_and_new_wheels_of_nvidia_are_written(
    index: LocalIndex, steps: list[tuple[str, ...]]
) -> None:
    tag = f"tensorflow-2.21.0-{{0}}-{{0}}-{LINUX}.whl"
    index.add(*(tag.format(f"cp3{minor}") for minor in (10, 11, 12, 13, 98)))
    index.add_cuda("99.1.0", COMPONENTS)
    index.add(
        f"nvidia_cudnn_cu12-9.99.0.1-py3-none-{LINUX}.whl", f"nvidia_cudnn_cu13-99.0.0.1-py3-none-{LINUX}.whl"
    )
    files, lines = refreshed(index)
    [release] = [row for row in rows(files, "tensorflow", "releases") if row["version"] == "2.21.0"]
    assert release["pythons"] == ["3.10", "3.11", "3.12", "3.13", "3.98"]
    cuda = rows(files, "wheels", "cuda")[-1]
    assert (cuda["release"], cuda["suffix"], cuda["components"]["cusparse"]) == ("99.1.0", "cu99", "99.1.8")
    cudnn = {row["suffix"]: row["releases"] for row in rows(files, "wheels", "cudnn")}
    assert (cudnn["cu12"][-1], cudnn["cu13"][-1]) == ("9.99.0.1", "99.0.0.1")
    assert (
        "  toolkits.yaml has no row for CUDA 99.1.0: add it with the driver that its release notes name"
        in lines
    )
    assert "  cudnn.yaml has no row for cuDNN 99.0.0.1: add it from NVIDIA's support matrix" in lines
    assert ("validator", "lock", "--profile", "nightly", "--select", "image=*latest*", "--upgrade") in steps


def test_a_cuda_release_without_a_component_is_an_error(index: LocalIndex) -> None:
    index.add_cuda("99.1.0", COMPONENTS[1:])
    with pytest.raises(MissingError, match=r"cuda-toolkit 99\.1\.0 does not require cublas"):
        refreshed(index)


def test_a_candidate_is_written_on_request(index: LocalIndex, steps: list[tuple[str, ...]]) -> None:
    index.add_tensorflow("2.99.0rc1", "3.11")
    assert refreshed(index, today=facts.read_on()) == ({}, ())
    files, lines = refreshed(index, Asked(candidates=True))
    assert rows(files, "tensorflow", "releases")[-1]["version"] == "2.99.0rc1"
    assert lines[0] == "TensorFlow 2.99.0rc1: new on the package index"
    locked = [step[3] for step in steps if step[:2] == ("validator", "lock")]
    assert locked == ["quick", "cpu", "nightly", "candidate"]


def test_the_copy_is_compiled_before_it_is_locked_and_documented(
    index: LocalIndex, steps: list[tuple[str, ...]]
) -> None:
    index.add_tensorflow("2.99.0", "3.11")
    refreshed(index)
    assert [step[0] for step in steps] == [
        "validator.compat.compile", "validator.diagnosis.compile", *["validator"] * 3,
        *release_facts.DOCUMENTATION,
    ]  # fmt: skip


@pytest.mark.parametrize("failed", [InputError("no such wheel"), MissingError("no network")])
def test_locks_that_cannot_be_resolved_are_left_to_a_person_but_not_for_want_of_a_network(
    index: LocalIndex, monkeypatch: pytest.MonkeyPatch, failed: Exception
) -> None:
    def run(_: Copy, *arguments: str) -> bytes:
        if arguments[:2] == ("validator", "lock"):
            raise failed
        return b""

    monkeypatch.setattr(Copy, "run", run)
    index.add_tensorflow("2.99.0", "3.11")
    if isinstance(failed, MissingError):
        with pytest.raises(MissingError, match="no network"):
            refreshed(index)
    else:
        _, lines = refreshed(index)
        assert lines.count("  no such wheel") == 3


@pytest.mark.slow
def test_a_nightly_build_takes_the_place_of_the_one_before_it(
    index: LocalIndex, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    index.add_tensorflow("2.99.0.dev20990101", "3.11")
    first, _ = refreshed(index, Asked(nightlies=True))
    assert rows(first, "tensorflow", "releases")[-1]["version"] == "2.99.0.dev20990101"
    root = tmp_path / "checkout"
    for name in ("validator", "images", "docs"):
        shutil.copytree(ROOT / name, root / name)
    (root / "tests").mkdir()
    shutil.copy(ROOT / "matrix.yaml", root)
    for path, content in first.items():
        (root / path).write_bytes(content)
    known = releases.releases()
    old = replace(known[-1], version="2.99.0.dev20990101")
    monkeypatch.setattr(releases, "releases", lambda: (*known, old))
    index.add_tensorflow("2.99.0.dev20990102", "3.11")
    second, _ = refreshed(index, Asked(nightlies=True), root=root)
    for name, section, key in (("tensorflow", "releases", "version"), ("builds", "builds", "tensorflow")):
        nightlies = [row[key] for row in rows(second, name, section) if ".dev" in row[key]]
        assert nightlies == ["2.99.0.dev20990102"]
    [extra] = [row for row in rows(second, "tensorflow", "extras") if ".dev" in str(row["releases"])]
    assert extra["releases"] == ["2.99.0.dev20990102"]
