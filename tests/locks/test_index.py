"""The package index: both forms of its pages, faults, and downloads that are continued."""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from validator.errors import MissingError
from validator.locks.index import IndexFile, PackageIndex
from validator.model.spec import Wheel
from validator.system.package_sources import PackageSources

from .local_index import LINUX, LocalIndex

WHEEL = f"demo-1.0-cp312-cp312-{LINUX}.whl"
CONTENT = bytes(range(256)) * (3 << 12)


def one(index: LocalIndex) -> IndexFile:
    [file] = PackageIndex(index.sources).wheels("demo")
    return file


@pytest.mark.parametrize("html", [False, True])
def test_the_wheels_of_a_project_are_listed_oldest_first(index: LocalIndex, html: bool) -> None:
    index.html = html
    yanked = "demo-1.5-py3-none-any.whl"
    index.add(WHEEL.replace("1.0", "1.10"), WHEEL, "demo-1.9-py3-none-win_amd64.whl", yanked, "demo-1.0.zip")
    index.add("demo-not_a_version-py3-none-any.whl")
    index.yanked = {yanked}
    found = PackageIndex(index.sources).wheels("demo")
    assert [(str(file.version), file.on_linux) for file in found] == [
        ("1.0", True), ("1.9", False), ("1.10", True),
    ]  # fmt: skip
    assert {file.sha256 for file in found} == {index.sha256(WHEEL)}
    assert all(file.url.startswith(f"http://127.0.0.1:{index.port}/files/") for file in found)
    assert PackageIndex(index.sources).size(found[0]) == len(b"a wheel")


def test_the_wheels_of_extra_indexes_are_listed_as_well(index: LocalIndex) -> None:
    index.add(WHEEL)
    main = f"http://127.0.0.1:{index.port}/simple"
    sources = PackageSources(index_url=f"http://127.0.0.1:{index.port}/files", extra_index_urls=(main,))
    index.files["demo"] = b""
    index.answers["absent"] = (404, "text/plain", b"")
    assert [file.filename for file in PackageIndex(PackageSources(main, (main,))).wheels("demo")] == [WHEEL]
    with pytest.raises(MissingError, match="does not have absent"):
        PackageIndex(PackageSources(main, (main,))).wheels("absent")
    assert sources.extra_index_urls == (main,)


@pytest.mark.parametrize(
    ("kind", "body", "said"),
    [
        ("text/html", b"<html><h1>Sign in to the network</h1></html>", "lists no wheel of demo"),
        ("application/json", b'{"files": [', "answer with a list of files"),
        ("application/json", b'{"files": {"a": 1}}', "answer with a list of files"),
        (
            "application/json",
            b'{"files": [{"filename": 7, "url": "x"}]}',
            "answer with a list of files",
        ),
        ("application/json", b'{"files": []}', "lists no wheel of demo"),
        ("image/png", b"\x89PNG", "content of the type image/png"),
    ],
)
def test_an_index_that_answers_nonsense_is_an_error(
    index: LocalIndex, kind: str, body: bytes, said: str
) -> None:
    index.answers["demo"] = (200, kind, body)
    with pytest.raises(MissingError, match=said) as caught:
        PackageIndex(index.sources).wheels("demo")
    assert "proxy" in str(caught.value.hint)


def test_an_index_that_fails_is_asked_again_and_then_an_error(index: LocalIndex) -> None:
    index.answers["demo"] = (503, "text/plain", b"")
    with pytest.raises(MissingError, match="the package index can't be reached"):
        PackageIndex(index.sources).wheels("demo")
    assert len(index.asked) == 4


@pytest.mark.usefixtures("index")
def test_an_index_that_is_not_there_is_an_error_that_hides_its_address() -> None:
    sources = PackageSources(index_url="http://somebody:secret@127.0.0.1:9/simple")
    with pytest.raises(MissingError, match="the package index can't be reached") as caught:
        PackageIndex(sources).wheels("demo")
    assert "secret" not in str(caught.value) and "127.0.0.1" not in str(caught.value)


# -- downloads -------------------------------------------------------------------------------------------


def test_a_download_goes_on_where_it_was_cut(index: LocalIndex, tmp_path: Path) -> None:
    index.add(WHEEL, content=CONTENT)
    index.cuts = [2_500_000]
    received: list[int] = []
    path = tmp_path / WHEEL
    PackageIndex(index.sources).download(one(index), path, received.append)
    assert path.read_bytes() == CONTENT
    assert index.downloads() == [(WHEEL, None), (WHEEL, "bytes=2500000-")]
    assert sum(received) == len(CONTENT)
    assert list(tmp_path.iterdir()) == [path]


def test_a_download_that_keeps_being_cut_goes_on_in_the_next_call(index: LocalIndex, tmp_path: Path) -> None:
    index.add(WHEEL, content=CONTENT)
    index.cuts = [2_500_000, 10, 10, 10]
    file, path = one(index), tmp_path / WHEEL
    with pytest.raises(MissingError, match="can't be reached"):
        PackageIndex(index.sources).download(file, path)
    assert not path.exists() and index.cuts == []
    PackageIndex(index.sources).download(file, path)
    assert path.read_bytes() == CONTENT
    assert index.downloads() == [
        (WHEEL, None), *((WHEEL, f"bytes={2_500_000 + 10 * done}-") for done in range(4)),
    ]  # fmt: skip
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_is_listed_but_gone_is_an_error(index: LocalIndex, tmp_path: Path) -> None:
    index.add(WHEEL)
    file = one(index)
    index.files.pop(WHEEL)
    with pytest.raises(MissingError, match=f"{WHEEL}: .* does not have this file"):
        PackageIndex(index.sources).download(file, tmp_path / WHEEL)
    assert list(tmp_path.iterdir()) == []


def locked(name: str = WHEEL, sha256: str = hashlib.sha256(b"a wheel").hexdigest()) -> Wheel:
    return Wheel("demo", "1.0", sha256, name, 7)


def test_the_file_of_a_locked_wheel_is_found_also_if_it_was_yanked(index: LocalIndex) -> None:
    index.add(WHEEL)
    index.yanked = {WHEEL}
    file = PackageIndex(index.sources).locked(locked())
    assert (file.filename, file.sha256, file.size) == (WHEEL, locked().sha256, 7)
    assert PackageIndex(index.sources).wheels("demo") == ()


@pytest.mark.parametrize("name", [WHEEL, "other-1.0-py3-none-any.whl"])
def test_a_locked_wheel_that_is_gone_from_the_index_is_an_error(index: LocalIndex, name: str) -> None:
    index.add(name.replace("1.0", "1.1"))
    with pytest.raises(MissingError, match=f"demo==1.0: the package index does not have {WHEEL}") as caught:
        PackageIndex(index.sources).locked(locked())
    assert "lock --upgrade" in str(caught.value.hint)


def test_a_locked_wheel_that_was_replaced_on_the_index_is_an_error(index: LocalIndex) -> None:
    index.add(WHEEL, content=b"another wheel")
    with pytest.raises(MissingError, match=f"another file under the name {WHEEL}") as caught:
        PackageIndex(index.sources).locked(locked())
    assert locked().sha256[:12] in str(caught.value)


def test_a_server_that_cannot_continue_sends_everything_again(index: LocalIndex, tmp_path: Path) -> None:
    index.add(WHEEL, content=CONTENT)
    index.ranges = False
    (tmp_path / f"{WHEEL}.partial").write_bytes(CONTENT[:500])
    PackageIndex(index.sources).download(one(index), tmp_path / WHEEL)
    assert (tmp_path / WHEEL).read_bytes() == CONTENT


def test_a_download_that_was_complete_is_not_repeated(index: LocalIndex, tmp_path: Path) -> None:
    index.add(WHEEL, content=CONTENT)
    (tmp_path / f"{WHEEL}.partial").write_bytes(CONTENT)
    PackageIndex(index.sources).download(one(index), tmp_path / WHEEL)
    assert (tmp_path / WHEEL).read_bytes() == CONTENT


def test_a_download_with_another_hash_is_removed(index: LocalIndex, tmp_path: Path) -> None:
    index.add(WHEEL, content=CONTENT)
    index.hashes[WHEEL] = "f" * 64
    with pytest.raises(MissingError, match=r"its SHA-256 is .+, but it must be ffffffffffff"):
        PackageIndex(index.sources).download(one(index), tmp_path / WHEEL)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_named(index: LocalIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> Iterator[bytes]:
        yield CONTENT[:100]
        raise OSError(errno.ENOSPC, "No space left on device")

    index.add(WHEEL, content=CONTENT)
    file = one(index)
    monkeypatch.setattr("validator.system.http.body", full)
    with pytest.raises(MissingError, match=f"no space left on the disk that holds {tmp_path}"):
        PackageIndex(index.sources).download(file, tmp_path / WHEEL)
    assert not (tmp_path / WHEEL).exists()
