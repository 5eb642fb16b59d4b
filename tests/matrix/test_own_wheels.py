"""`tensorflow:` with a wheel, a nightly or an index of one's own."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from validator.cli import planning
from validator.compat import releases
from validator.compat.policies import requirements
from validator.compat.releases import Release
from validator.errors import InputError, MissingError
from validator.matrix.document import MatrixError
from validator.matrix.load import load_matrix, parse_matrix
from validator.model.spec import ImageSpec, OnIndex, Wheel
from validator.supply import release_facts
from validator.system import package_sources

from ..compat import wheel_files
from ..locks.local_index import LocalIndex, running
from ..supply import own_wheel_files as made

NAME = made.file_name()
HOSTS = 'hosts: [{driver: "580", gpu: rtx-5090}, {gpu: none}]\nprofiles: {quick: {}}\n'


@pytest.fixture
def index() -> Iterator[LocalIndex]:
    with running() as index:
        yield index


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index: LocalIndex) -> None:
    monkeypatch.setenv("VALIDATOR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(releases, "_OWN", {})
    monkeypatch.setattr(package_sources, "host_sources", lambda: index.sources)
    release_facts._index.cache_clear()


def loaded(directory: Path, tensorflow: str, rest: str = "") -> list[ImageSpec]:
    """Return the images of a matrix with this TensorFlow."""
    python = "" if "python:" in rest else '    python: "3.12"\n'
    entry = f"images:\n  - tensorflow: {tensorflow}\n{python}{rest}"
    (directory / "matrix.yaml").write_text(entry + HOSTS)
    return list(planning.images_of(directory / "matrix.yaml").values())


def failure(directory: Path, tensorflow: str, rest: str = "") -> str:
    with pytest.raises(MatrixError) as caught:
        loaded(directory, tensorflow, rest)
    return str(caught.value)


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_a_path_is_relative_to_the_matrix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index: LocalIndex
) -> None:
    path = made.wheel(tmp_path / "wheels")
    monkeypatch.chdir("/")
    [spec] = loaded(tmp_path, f"./wheels/{NAME}")
    sha256 = digest(path.read_bytes())
    assert spec.identifier == f"tf2.21.0+{sha256[:8]}-cuda12.5-cudnn9.3-py312"
    assert requirements(spec)[0] == f"tensorflow @ wheels/{NAME}#sha256={sha256}"
    assert index.asked == []


def test_a_wheel_is_inspected_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made.wheel(tmp_path)
    [first] = loaded(tmp_path, f"./{NAME}")
    monkeypatch.setattr(release_facts, "inspect_tensorflow", lambda *_, **__: pytest.fail("read again"))
    assert loaded(tmp_path, f"./{NAME}") == [first]
    assert requirements(first)[0].startswith(f"tensorflow @ {NAME}#")
    # The same file elsewhere is the same image, with another place in its lock.
    made.wheel(tmp_path / "other")
    [moved] = loaded(tmp_path, f"./other/{NAME}")
    assert moved == first
    assert requirements(moved)[0].startswith(f"tensorflow @ other/{NAME}#")


def test_an_address_needs_no_file_once_it_was_inspected(tmp_path: Path, index: LocalIndex) -> None:
    index.add(NAME, content=made.content())
    address = f"http://ours:hunter2@127.0.0.1:{index.port}/files/{NAME}?token=s3cret"
    where = f"{address}#sha256={index.sha256(NAME)}"
    [spec] = loaded(tmp_path, where)
    place = f"http://127.0.0.1:{index.port}/files/{NAME}#sha256={index.sha256(NAME)}"
    assert requirements(spec)[0] == f"tensorflow @ {place}"
    assert "hunter2" not in repr(releases.release(spec.tensorflow)) and "s3cret" not in repr(spec)
    # The server wants the token, so it is sent.
    assert [path for path, _ in index.asked] == [f"/files/{NAME}?token=s3cret"]
    index.files.clear()
    (tmp_path / "cache" / "wheels" / f"{digest(made.content())}.whl").unlink()
    assert loaded(tmp_path, where) == [spec]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("https://ours:hunter2@host.test/NAME?token=s3cret", "has no SHA-256; write #sha256="),
        ("https://ours:hunter2@host.test/NAME#sha256=abc", "has no SHA-256; write #sha256="),
        ("https://ours:hunter2@host.test/it.zip#sha256=" + "0" * 64, "is not the name of a wheel"),
        ("ftp://ours:hunter2@host.test/NAME#sha256=" + "0" * 64, "is not an address that begins with https://"),
        ("file:///etc/NAME#sha256=" + "0" * 64, "is not an address that begins with https://"),
        ("http://[ours:hunter2@/NAME", "is not an address that begins with https://"),
        ("https://host.test/tensorflow-2.21.0-cp312-cp312-win_amd64.whl", "is for win_amd64, but images are"),
        ("./absent/NAME", "can't be read: No such file or directory"),
        ("/etc/NAME", "must be a path relative to this file"),
        ("~/NAME", "must be a path relative to this file"),
        ("../outside/NAME", "can't be read"),
        ("./link/NAME", "can't be read"),
        ("./tensorflow-2.21.0.tar.gz", "is a source distribution"),
        ("./tensorflow-2.21.0-cp312-cp312-macosx_12_0_arm64.whl", "is for macosx_12_0_arm64"),
    ],
)  # fmt: skip
def test_a_wrong_place_is_named_with_its_line_and_without_secrets(
    value: str, message: str, tmp_path: Path
) -> None:
    made.wheel(tmp_path / "outside")
    project = tmp_path / "project"
    project.mkdir()
    (project / "link").symlink_to(tmp_path / "outside")
    said = failure(project, f'"{value.replace("NAME", NAME)}"')
    assert said.startswith(f"{project / 'matrix.yaml'}:2:17: images[0].tensorflow: ") and message in said
    assert "hunter2" not in said and "s3cret" not in said


def test_an_address_that_is_there_twice_is_named_without_secrets(tmp_path: Path, index: LocalIndex) -> None:
    index.add(NAME, content=made.content())
    place = f"127.0.0.1:{index.port}/files/{NAME}"
    address = f"http://u:hunter2@{place}#sha256={index.sha256(NAME)}"
    said = failure(tmp_path, f'["{address}", "{address}"]')
    assert "is already in this list" in said and "hunter2" not in said
    said = failure(tmp_path, f'["{address}", "{address.replace("u:hunter2@", "")}"]')
    assert "which is already in this list" in said and "hunter2" not in said


def test_what_is_in_a_wheel_decides(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"no archive")
    assert "not a wheel, or cut short" in failure(tmp_path, f"./{NAME}")
    (tmp_path / NAME).write_bytes(
        wheel_files.packed({"numpy-2.0.dist-info/METADATA": b"Name: numpy\nVersion: 2.0\n"})
    )
    assert "matrix.yaml:2:17: images[0].tensorflow: " in failure(tmp_path, f"./{NAME}")
    made.wheel(tmp_path, extra=False)
    assert "has no extra and-cuda in its metadata" in failure(tmp_path, f"./{NAME}")
    newer = NAME.replace("2_27", "2_39")
    (tmp_path / newer).write_bytes(made.content())
    said = failure(tmp_path, f"./{newer}")
    assert f"{newer} is not for Python 3.12 on x86_64-manylinux_2_28" in said and "glibc" in said
    made.wheel(tmp_path)
    said = failure(tmp_path, f"./{NAME}", "    variant: [gpu, cpu]\n")
    assert "an image of a wheel or of a nightly always has CUDA" in said


def test_a_damaged_download_is_not_inspected(tmp_path: Path, index: LocalIndex) -> None:
    index.add(NAME, content=made.content())
    address = f"http://ours:hunter2@127.0.0.1:{index.port}/files/{NAME}#sha256={'0' * 64}"
    with pytest.raises(MissingError, match=r"its SHA-256 is .*, but it must be 000000000000") as caught:
        loaded(tmp_path, address)
    assert str(caught.value).startswith(f"{tmp_path / 'matrix.yaml'}:2: {NAME}")
    assert "hunter2" not in str(caught.value)
    assert not list((tmp_path / "cache" / "wheels").iterdir())


def test_every_wheel_is_for_its_python(tmp_path: Path) -> None:
    for python in ("311", "312"):
        made.wheel(tmp_path, python)
    both = f"[./{made.file_name(python='311')}, ./{NAME}]"
    found = loaded(tmp_path, both, '    python: ["3.11", "3.12"]\n')
    assert sorted(spec.python for spec in found) == ["3.11", "3.12"]
    assert len({spec.tensorflow for spec in found}) == 2
    assert [spec.python for spec in loaded(tmp_path, both, "    python: all\n")] == [
        spec.python for spec in found
    ]
    said = failure(tmp_path, both, '    python: ["3.11"]\n')
    assert f"{NAME} is for Python 3.12, which is not in this list" in said
    said = failure(tmp_path, f"./{NAME}", '    python: ["3.12", "3.13"]\n')
    assert "has no wheel for Python 3.13; it has 3.12" in said and "matrix.yaml:3:" in said


def nightlies(index: LocalIndex, *pythons: str) -> None:
    for version in ("2.23.0.dev20261126", "2.23.0.dev20261127"):
        for python in pythons:
            name = made.file_name(version, python, "tf_nightly")
            index.add(name, content=made.content(version, "tf_nightly", python=python))


def test_a_nightly_is_the_newest_of_the_index(tmp_path: Path, index: LocalIndex) -> None:
    nightlies(index, "311", "312")
    [spec] = loaded(tmp_path, "nightly")
    name = made.file_name("2.23.0.dev20261127", "312", "tf_nightly")
    assert spec.tensorflow == f"2.23.0.dev20261127+{index.sha256(name)[:8]}"
    # It is on the index that every machine has, so the lock names no place.
    assert requirements(spec)[0] == "tf-nightly==2.23.0.dev20261127"
    assert [path for path, _ in index.downloads()] == [name]
    older, other = loaded(tmp_path, '"2.23.0.dev20261126"', "    python: all\n")
    assert older.tensorflow.startswith("2.23.0.dev20261126+") and {older.python, other.python} == {
        "3.11",
        "3.12",
    }
    said = failure(tmp_path, "nightly", '    python: "3.9"\n')
    assert "the package index has no wheel of tf-nightly 2.23.0.dev20261127 for Python 3.9" in said


def test_without_the_index_the_last_answer_counts(
    tmp_path: Path, index: LocalIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    nightlies(index, "312")
    found = loaded(tmp_path, "nightly")
    nowhere = package_sources.PackageSources(index_url="http://ours:hunter2@127.0.0.1:9/simple")
    monkeypatch.setattr(package_sources, "host_sources", lambda: nowhere)
    monkeypatch.setattr("validator.locks.index._PAUSES", ())
    assert loaded(tmp_path, "nightly") == found
    with pytest.raises(MissingError, match="the package index can't be reached") as caught:
        loaded(tmp_path, '"2.23.0.dev20261127"')
    assert str(caught.value).startswith(f"{tmp_path / 'matrix.yaml'}:2: ") and "hunter2" not in str(
        caught.value
    )


def test_an_index_of_ones_own(tmp_path: Path, index: LocalIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    name = made.file_name("2.21.0+ours")
    index.add(name, content=made.content("2.21.0+ours"))
    monkeypatch.setattr(package_sources, "host_sources", package_sources.PackageSources)
    place = f"127.0.0.1:{index.port}"
    [spec] = loaded(tmp_path, '"2.21.0+ours"', f"    index: http://ours:hunter2@{place}/simple\n")
    sha256 = index.sha256(name)
    assert spec.identifier.startswith(f"tf2.21.0+ours.{sha256[:8]}-cuda12.5-")
    assert requirements(spec)[0] == f"tensorflow @ http://{place}/files/{name}#sha256={sha256}"
    assert "hunter2" not in "".join(path.read_text() for path in (tmp_path / "cache" / "inspected").iterdir())
    said = failure(tmp_path, '"2.22.0"', f"    index: http://ours:hunter2@{place}/simple\n")
    assert "the package index has no wheel of tensorflow 2.22.0 for Linux x86_64" in said
    said = failure(tmp_path, '">=2.20"', f"    index: http://ours:hunter2@{place}/simple\n")
    assert "is not the version of a TensorFlow on this index" in said
    said = failure(tmp_path, '"2.21.0"', "    index: /etc/passwd\n")
    assert "is asked of an index, but `index` is not an address that begins with https://" in said


def test_nobody_is_asked_for_a_file_that_is_wrong(tmp_path: Path) -> None:
    def own(asked: Wheel | OnIndex, pythons: Sequence[str]) -> Sequence[Release]:
        raise AssertionError("asked")

    text = 'images:\n  - tensorflow: [nightly]\n    python: ["3.12"]\n    index: https://host.test/simple\n'
    with pytest.raises(MatrixError, match="the key profiles is missing"):
        parse_matrix(text.encode(), own=own)


def test_a_part_of_the_tool_without_an_inspection_says_so(tmp_path: Path) -> None:
    made.wheel(tmp_path)
    loaded(tmp_path, f"./{NAME}")
    with pytest.raises(InputError, match="a wheel or a nightly can't be used here"):
        load_matrix(tmp_path / "matrix.yaml")
