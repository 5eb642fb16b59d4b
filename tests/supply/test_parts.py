"""The inputs of `scripts/refresh`: versions in locks, digests from a registry, packages from apt."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from docker.errors import DockerException

from validator.assemble import bootstrap
from validator.assemble.base_finder import pinned_bases
from validator.assemble.bootstrap import DebianLock, DebianPackage, lock_path, read_lock
from validator.assemble.layer_table import SharedRow, read_rows, write_rows
from validator.errors import MissingError
from validator.supply import parts, release_facts

from ..loop import tiers

ROOT = Path(__file__).resolve().parents[2]
DIGEST = "sha256:" + "d" * 64
HASH = "a" * 64
URIS = (
    "'http://mirror.invalid/debian/pool/main/a/aa/aa_1.0%2bb1_amd64.deb' aa_1.0+b1_amd64.deb 11"
    f" SHA256:{HASH}\n"
    "'http://mirror.invalid/security/pool/updates/main/z/zz/zz_2.0%7er1_all.deb' zz_1%3a2.0~r1_all.deb 22"
    f" SHA256:{HASH}\n"
)


# -- Python packages -------------------------------------------------------------------------------------


def test_the_versions_of_a_lock_are_read_also_where_pythons_differ() -> None:
    pins = [
        "# x==0",
        "a==1 \\",
        "    --hash=sha256:0",
        "b==1 ; python_version < '3.11'",
        "b==2 ; python_version >= '3.11'",
    ]
    text = "\n".join(pins)
    assert parts.locked_versions(text) == {"a": "1", "b": "1, 2"}


# -- layers ----------------------------------------------------------------------------------------------


def test_the_rows_of_new_layers_are_shown_and_only_returned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("validator", "images", "docs", "tests"):
        (tmp_path / name).mkdir()
    (tmp_path / "matrix.yaml").touch()
    old, new = (
        SharedRow(name, "zstd 1", ("wheels 1", HASH), DIGEST, 1, DIGEST, "application/tar")
        for name in ("six 1", "numpy 2")
    )
    write_rows(tmp_path / parts.LAYERS, [old])

    def lock(root: Path, *arguments: str) -> bytes:
        assert arguments == ("validator", "lock", "--profile", "nightly", "--layers")
        write_rows(root / parts.LAYERS, [old, new])
        return b""

    monkeypatch.setattr(release_facts, "run_module", lock)
    found = parts.pinned(parts.refreshed_layers(tmp_path), parts.layer_versions, tmp_path)
    assert found.lines == (
        "images/layers.json:", f"  numpy 2 (row {new.key[:12]}) sha256:dddddddddddd added",
    )  # fmt: skip
    assert read_rows(tmp_path / parts.LAYERS) == (old,)
    (tmp_path / parts.LAYERS).write_bytes(found.files[parts.LAYERS])
    assert read_rows(tmp_path / parts.LAYERS) == (new, old)
    assert parts.pinned(parts.refreshed_layers(tmp_path), parts.layer_versions, tmp_path).lines == ()


# -- bases -----------------------------------------------------------------------------------------------


def registry(monkeypatch: pytest.MonkeyPatch, answer: str | Exception) -> None:
    def inspect(name: str) -> dict[str, Any]:
        if isinstance(answer, Exception):
            raise answer
        return {"Descriptor": {"digest": answer}}

    api = SimpleNamespace(inspect_distribution=inspect)
    monkeypatch.setattr(parts, "reach", lambda: SimpleNamespace(quick=SimpleNamespace(api=api)))


def test_the_digests_of_all_bases_are_read_from_the_registry(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    registry(monkeypatch, DIGEST)
    [(path, text)] = parts.refreshed_bases(ROOT).items()
    (tmp_path / "bases.yaml").write_text(text)
    found = pinned_bases(tmp_path / "bases.yaml")
    assert path == "images/bases.yaml"
    assert list(found) == parts.pythons(ROOT)
    assert {base.partition("@")[2] for base in found.values()} == {DIGEST}
    assert parts.base_versions(text)["python:3.12-slim-bookworm"] == "sha256:dddddddddddd"


def test_every_python_of_a_tensorflow_has_a_pinned_base() -> None:
    assert list(pinned_bases()) == parts.pythons(ROOT)


@pytest.mark.parametrize("answer", [DockerException("no such host"), "sha1:0", ""])
def test_without_a_digest_from_the_registry_nothing_is_written(
    monkeypatch: pytest.MonkeyPatch, answer: str | Exception
) -> None:
    registry(monkeypatch, answer)
    with pytest.raises(MissingError, match=r"python:3\.9-slim-bookworm"):
        parts.refreshed_bases(ROOT)


# -- Debian packages -------------------------------------------------------------------------------------


#: `aa` was built twice from a source of the same version, `zz` from one of another version.
STANZAS = """Package: aa
Source: aa (1.0)
Version: 1.0+b1

Package: zz
Source: zebra (3.0-1)
Version: 1:2.0~r1
Description: last"""


@pytest.fixture
@tiers.service
def apt_get(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in for apt-get and apt-cache; return the file with what apt-get prints for `install`."""
    printed = tmp_path / "printed"
    printed.write_text(URIS)
    program = tmp_path / "bin" / "apt-get"
    program.parent.mkdir()
    program.write_text(
        "#!/bin/sh\n"
        f'case "$*" in *update*) cp "$APT_CONFIG" {tmp_path}/apt.conf; exec test ! -e {tmp_path}/offline;;\n'
        f"*--print-uris*) cat {printed};; esac\n"
    )
    cache = program.with_name("apt-cache")
    cache.write_text(f"#!/bin/sh\necho \"$@\" >{tmp_path}/shown; cat <<'END'\n{STANZAS}\nEND\n")
    for path in (program, cache):
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setattr(parts, "KEYRING", printed)
    monkeypatch.setattr(bootstrap, "HELPER", program)
    monkeypatch.setattr(
        bootstrap,
        "apt_sources",
        lambda: bootstrap.AptSources(
            {"debian": "http://mirror.invalid/debian", "debian-security": "http://mirror.invalid/security"}
        ),
    )
    return printed


def test_apt_resolves_the_packages_of_a_suite(apt_get: Path, tmp_path: Path) -> None:
    lock = parts.debian_lock("trixie", bootstrap.apt_sources())
    assert lock.packages == (
        DebianPackage("aa", "1.0+b1", "debian/pool/main/a/aa/aa_1.0+b1_amd64.deb", 11, HASH, "1.0"),
        DebianPackage(
            "zz", "1:2.0~r1", "debian-security/pool/updates/main/z/zz/zz_2.0~r1_all.deb", 22, HASH, "3.0-1"
        ),
    )
    assert read_lock("trixie", _written(tmp_path, lock)) == lock
    assert (tmp_path / "shown").read_text() == "-qq show aa=1.0+b1 zz=1:2.0~r1\n"
    configuration = (tmp_path / "apt.conf").read_text()
    assert 'Dir::Etc::SourceParts "/dev/null"' in configuration, "the host's own sources are not used"
    assert 'Acquire::ForceHash "SHA256"' in configuration


def _written(directory: Path, lock: DebianLock) -> Path:
    path = directory / "written.txt"
    path.write_text(lock.text)
    return path


def test_a_package_from_elsewhere_is_refused(apt_get: Path) -> None:
    apt_get.write_text(URIS.replace("mirror.invalid/security", "elsewhere.invalid"))
    with pytest.raises(MissingError, match="download zz from outside Debian's archives"):
        parts.debian_lock("trixie", bootstrap.apt_sources())


def test_an_unreachable_mirror_is_an_error(apt_get: Path, tmp_path: Path) -> None:
    (tmp_path / "offline").touch()
    with pytest.raises(MissingError, match="apt can't resolve the packages of Debian bookworm"):
        parts.debian_locks(ROOT)


def test_without_debian_s_keys_nothing_is_resolved(
    apt_get: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "KEYRING", tmp_path / "missing.gpg")
    with pytest.raises(MissingError, match="Debian's archive keys are missing"):
        parts.debian_locks(ROOT)


@pytest.mark.parametrize(("there", "kept"), [(True, True), (False, False)])
def test_a_lock_whose_packages_are_still_there_is_kept_on_request(
    apt_get: Path, monkeypatch: pytest.MonkeyPatch, there: bool, kept: bool
) -> None:
    monkeypatch.setattr(parts, "available", lambda *_: there)
    for path, text in parts.debian_locks(ROOT, only_if_gone=True).items():
        assert (text == (ROOT / path).read_text()) is kept
    for path, text in parts.debian_locks(ROOT).items():
        assert text != (ROOT / path).read_text()


def test_the_same_packages_are_not_a_difference(apt_get: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    locks = {suite: read_lock(suite) for suite in ("bookworm", "trixie")}
    later = {suite: dataclasses.replace(lock, snapshot="20990101T000000Z") for suite, lock in locks.items()}
    monkeypatch.setattr(parts, "debian_lock", lambda suite, sources: later[suite])
    for path, text in parts.debian_locks(ROOT).items():
        assert text == (ROOT / path).read_text()


def test_the_versions_of_a_debian_lock_are_read() -> None:
    found = parts.debian_versions(lock_path("trixie").read_text())
    assert found["libc6"].startswith("2.41")
