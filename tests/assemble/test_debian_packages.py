"""The packages of a bootstrapped base: what a lock pins is downloaded and checked, and nothing else is
used.
"""

from __future__ import annotations

import dataclasses
import hashlib
import http.server
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from validator.assemble import bootstrap
from validator.assemble.bootstrap import DebianLock, DebianPackage, lock_path, read_lock
from validator.errors import InputError, MissingError

from ..loop import tiers

CONTENT = {"hello": b"the package", "world": b"another package"}


def package(name: str, content: bytes, archive: str = "debian") -> DebianPackage:
    path = f"{archive}/pool/main/{name[0]}/{name}/{name}_1.0+b1_amd64.deb"
    return DebianPackage(name, "1.0+b1", path, len(content), hashlib.sha256(content).hexdigest(), "1.0")


LOCK = DebianLock(
    "trixie",
    "20261122T120000Z",
    (package("hello", CONTENT["hello"]), package("world", CONTENT["world"], "debian-security")),
)


@dataclasses.dataclass(frozen=True)
class Mirror:
    """A web server on loopback. root: its files, by their path in a lock."""

    address: str
    root: Path

    @property
    def sources(self) -> bootstrap.AptSources:
        return bootstrap.AptSources(
            {archive: f"{self.address}/{archive}" for archive in ("debian", "debian-security")}
        )

    def put(self, path: str, content: bytes) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)

    def fill(self) -> None:
        for one in LOCK.packages:
            self.put(one.path, CONTENT[one.name])


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@pytest.fixture
@tiers.service
def mirror(tmp_path: Path) -> Iterator[Mirror]:
    if not bootstrap.HELPER.exists():
        pytest.skip("apt is not installed")
    root = tmp_path / "mirror"
    root.mkdir()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(root)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield Mirror(f"http://127.0.0.1:{server.server_address[1]}", root)
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def snapshot(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> str:
    """Put snapshot.debian.org in a directory of the mirror; return the path of its copy of the archives."""
    monkeypatch.setattr(bootstrap, "SNAPSHOT", f"{mirror.address}/snapshot")
    return "snapshot/{archive}/20261122T120000Z/{rest}"


def fetched(mirror: Mirror, directory: Path) -> dict[str, bytes]:
    directory.mkdir(exist_ok=True)
    bootstrap.fetch(LOCK, mirror.sources, directory)
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_the_packages_of_a_lock_are_downloaded(mirror: Mirror, tmp_path: Path) -> None:
    mirror.fill()
    found = fetched(mirror, tmp_path / "packages")
    assert found == {one.file: CONTENT[one.name] for one in LOCK.packages}


@pytest.mark.parametrize(
    "changed", [b"the Package", b"a longer package", b""], ids=["content", "size", "empty"]
)
def test_a_changed_package_is_refused_with_what_where_and_what_to_do(
    mirror: Mirror, snapshot: str, tmp_path: Path, changed: bytes
) -> None:
    """Nothing runs from a package that the lock does not pin."""
    mirror.fill()
    one = LOCK.packages[0]
    mirror.put(one.path, changed)
    with pytest.raises(MissingError) as raised:
        fetched(mirror, tmp_path / "packages")
    said = str(raised.value)
    assert said.startswith("the mirror serves a file ")
    assert one.path in said and "hello 1.0+b1" in said and one.sha256 in said
    assert str(lock_path("trixie")) in said
    if len(changed) == one.size:
        assert hashlib.sha256(changed).hexdigest() in said
    assert "use another mirror" in str(raised.value.hint)
    assert "scripts/refresh debian" in str(raised.value.hint)


def test_a_package_that_was_changed_after_apt_checked_it_is_refused(
    mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper = tmp_path / "apt-helper"
    helper.write_text(
        '#!/bin/sh\nfor last; do case $last in *.deb) printf bad >"$last" 2>/dev/null;; esac; done\n'
    )
    helper.chmod(0o755)
    monkeypatch.setattr(bootstrap, "HELPER", helper)
    with pytest.raises(MissingError, match="nothing was installed"):
        fetched(mirror, tmp_path / "packages")


def test_a_package_that_the_mirror_deleted_comes_from_the_snapshot(
    mirror: Mirror, snapshot: str, tmp_path: Path
) -> None:
    mirror.put(LOCK.packages[0].path, CONTENT["hello"])
    archive, _, rest = LOCK.packages[1].path.partition("/")
    mirror.put(snapshot.format(archive=archive, rest=rest), CONTENT["world"])
    assert fetched(mirror, tmp_path / "packages")[LOCK.packages[1].file] == CONTENT["world"]


def test_a_changed_package_in_the_snapshot_is_refused(mirror: Mirror, snapshot: str, tmp_path: Path) -> None:
    mirror.put(LOCK.packages[0].path, CONTENT["hello"])
    archive, _, rest = LOCK.packages[1].path.partition("/")
    mirror.put(snapshot.format(archive=archive, rest=rest), b"another Package")
    with pytest.raises(MissingError, match=r"^snapshot\.debian\.org serves a file"):
        fetched(mirror, tmp_path / "packages")


def test_a_package_that_is_nowhere_is_named(mirror: Mirror, snapshot: str, tmp_path: Path) -> None:
    mirror.put(LOCK.packages[0].path, CONTENT["hello"])
    with pytest.raises(MissingError, match=r"world 1\.0\+b1 can be downloaded neither") as raised:
        fetched(mirror, tmp_path / "packages")
    assert "scripts/refresh debian" in str(raised.value.hint)


def test_only_what_can_no_longer_be_downloaded_makes_a_lock_outdated(
    mirror: Mirror, snapshot: str, tmp_path: Path
) -> None:
    mirror.put(LOCK.packages[0].path, CONTENT["hello"])
    for one, there in zip(LOCK.packages, (True, False), strict=True):
        directory = tmp_path / one.name
        directory.mkdir()
        assert bootstrap.available([one], LOCK, mirror.sources, directory) is there


@pytest.mark.service
def test_the_repository_contains_only_the_packages_of_the_lock(tmp_path: Path) -> None:
    if not bootstrap.HELPER.exists():
        pytest.skip("apt is not installed")
    source = tmp_path / "source"
    (source / "DEBIAN").mkdir(parents=True)
    (source / "DEBIAN" / "control").write_text(
        "Package: hello\nVersion: 1.0+b1\nArchitecture: amd64\nMaintainer: nobody <nobody@example.org>\n"
        "Description: a package\n"
    )
    repository = tmp_path / "repository"
    repository.mkdir()
    one = package("hello", b"")
    subprocess.run(["dpkg-deb", "--build", source, repository / one.file], check=True, capture_output=True)
    content = (repository / one.file).read_bytes()
    lock = DebianLock("trixie", LOCK.snapshot, (package("hello", content),))
    bootstrap.write_repository(lock, repository)
    index = (repository / "dists/trixie/main/binary-amd64/Packages").read_text()
    assert f"Filename: {one.file}\n" in index and lock.packages[0].sha256 in index
    assert index.endswith("\n\n")
    digest = hashlib.sha256(index.encode()).hexdigest()
    assert (
        f" {digest} {len(index)} main/binary-amd64/Packages"
        in (repository / "dists/trixie/Release").read_text()
    )


# -- the locks -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suite", bootstrap.SUITES.values())
def test_a_lock_has_the_packages_of_the_base_and_names_no_host(suite: str) -> None:
    lock = read_lock(suite)
    named = {one.name for one in lock.packages}
    assert len(named) == len(lock.packages) > 50
    assert named >= {"apt", "bash", "dpkg", "libc6", *bootstrap.PACKAGES[suite]}
    assert lock.text == lock_path(suite).read_text()
    assert "://" not in lock.text


@pytest.mark.parametrize(
    "line",
    [
        "hello 1.0 debian/pool/main/h/hello/hello_1.0_amd64.deb 11",
        "hello 1.0 debian/pool/main/h/hello/hello_1.0_amd64.deb 11 sha256:0",
        "hello 1.0 debian/pool/../../hello_1.0_amd64.deb 11 sha256:" + "0" * 64,
        "hello 1.0 elsewhere/pool/main/h/hello/hello_1.0_amd64.deb 11 sha256:" + "0" * 64,
        "hello 1.0 http://mirror.invalid/hello_1.0_amd64.deb 11 sha256:" + "0" * 64,
    ],
)
def test_a_package_that_is_not_pinned_is_refused_with_its_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "trixie.txt"
    path.write_text(LOCK.text + line + "\n")
    with pytest.raises(InputError, match=r"trixie\.txt:6 does not pin a package"):
        read_lock("trixie", path)


def test_a_lock_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "trixie.txt"
    path.write_text(LOCK.text)
    assert read_lock("trixie", path) == LOCK


def test_a_missing_lock_is_an_error_that_says_how_to_write_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no lock") as raised:
        read_lock("trixie", tmp_path / "trixie.txt")
    assert raised.value.hint == "write it again with scripts/refresh debian"
