"""Packages are matched against a database: each vulnerability once, and nothing is silently left out."""

from __future__ import annotations

import errno
import json
import os
import re
import zipfile
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from validator.audit import osv
from validator.audit.findings import Audit, Finding, audit
from validator.audit.listed_packages import PYPI, Audited, Listed, listed_packages
from validator.audit.severity import Rating
from validator.errors import InputError, ValidatorError
from validator.sbom.bill import bill
from validator.sbom.cyclonedx import cyclonedx

from ..sbom.images import BASE, LOCK
from .databases import (
    ABSL,
    DSA,
    ENTRIES,
    GHSA,
    OTHER,
    PYSEC,
    SCHEMA,
    TENSORFLOW,
    UTIL_LINUX,
    Entry,
    affected,
    entry,
    events,
    write,
    write_zip,
)

LISTED = listed_packages(cyclonedx(bill(LOCK, BASE, {})))
#: Of an image whose base has no packages.
WHEELS = Listed(tuple(one for one in LISTED.audited if one.ecosystem == PYPI), ())


def found(path: Path, *entries: Entry | bytes) -> Audit:
    return audit(LISTED, write(path / "database", *entries, OTHER))


def ids(result: Audit) -> list[tuple[str, tuple[str, ...]]]:
    return [(one.name, one.ids) for one in result.findings]


@pytest.mark.parametrize("one", ENTRIES, ids=lambda one: str(one["id"]))
def test_the_fixtures_are_in_the_format(one: Entry) -> None:
    jsonschema.validate(one, SCHEMA)


def test_the_packages_are_read_from_the_list_of_the_image() -> None:
    assert {(one.ecosystem, one.name, one.version, one.shown) for one in LISTED.audited} == {
        ("PyPI", "absl-py", "2.5.1", "absl-py"),
        ("PyPI", "tensorflow", "2.21.0", "tensorflow"),
        ("Debian:12", "bash", "5.2.15-2", "bash"),
        ("Debian:12", "util-linux", "2.38.1-5+deb12u3", "bsdutils"),
        ("Debian:12", "tzdata", "2026a-0+deb12u1", "tzdata"),
    }
    assert LISTED.others == ("ours", "python"), "a wheel of the user's own is not the index's of that name"
    assert LISTED.has_system_packages


def test_each_vulnerability_is_found_once_with_all_its_names(tmp_path: Path) -> None:
    result = found(tmp_path, *ENTRIES)
    assert result.findings == (
        Finding("PyPI", "absl-py", "2.5.1", ("absl-py",), ("CVE-2026-1001", "PYSEC-2026-8"), Rating.CRITICAL,
                None, "Reads files"),
        Finding("PyPI", "tensorflow", "2.21.0", ("tensorflow",),
                ("CVE-2026-1000", "GHSA-aaaa-bbbb-cccc", "PYSEC-2026-7"), Rating.HIGH, "2.21.1",
                "Crash in a [kernel]"),
        Finding("Debian:12", "util-linux", "2.38.1-5+deb12u3", ("bsdutils",),
                ("CVE-2026-2000", "DEBIAN-CVE-2026-2000", "DSA-6000-1"), Rating.LOW, "2.38.1-5+deb12u4",
                "util-linux security update"),
    )  # fmt: skip
    assert (result.read, result.unreadable, result.undecided) == (6, 0, ())


def test_aliases_join_what_has_no_name_in_common(tmp_path: Path) -> None:
    one, two = entry("A-1", TENSORFLOW, aliases=["CVE-1"]), entry("B-1", TENSORFLOW, aliases=["CVE-2"])
    both = entry("C-1", TENSORFLOW, aliases=["CVE-1", "CVE-2"])
    assert len(found(tmp_path / "apart", one, two).findings) == 2
    assert ids(found(tmp_path / "joined", one, two, both)) == [
        ("tensorflow", ("CVE-1", "CVE-2", "A-1", "B-1", "C-1"))
    ]


def test_an_advisory_about_several_is_a_finding_only_if_one_of_them_has_no_entry(tmp_path: Path) -> None:
    several = {**DSA, "upstream": ["CVE-2026-2000", "CVE-2026-2001"]}
    assert ids(found(tmp_path, UTIL_LINUX, several)) == [
        ("util-linux", ("CVE-2026-2000", "DEBIAN-CVE-2026-2000", "DSA-6000-1")),
        ("util-linux", ("DSA-6000-1",)),
    ]


@pytest.mark.parametrize(
    "other",
    [
        {**GHSA, "withdrawn": "2026-11-01T00:00:00Z"},
        entry("X-1", affected("tensorflow", events(("introduced", "0"), ("fixed", "2.21.0")))),
        entry("X-1", affected("tensorflow", events(("introduced", "0")), ecosystem="npm")),
        entry("X-1", affected("util-linux", events(("introduced", "0")), ecosystem="Debian:13")),
        entry("X-1", affected("bsdutils", events(("introduced", "0")), ecosystem="Debian:12")),
        entry("X-1", affected("ours", events(("introduced", "0")))),
        entry("X-1"),
        {"id": "X-1", "modified": "2026-01-01T00:00:00Z", "affected": None},
    ],
)
def test_what_is_about_something_else_is_not_found(tmp_path: Path, other: Entry) -> None:
    assert found(tmp_path, other).findings == ()


def test_an_ecosystem_without_a_release_is_about_every_release(tmp_path: Path) -> None:
    one = entry("X-1", affected("bash", events(("introduced", "0")), ecosystem="Debian"))
    assert ids(found(tmp_path, one)) == [("bash", ("X-1",))]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_of_two_files_about_the_same_the_newer_one_counts(tmp_path: Path, order: tuple[int, int]) -> None:
    gone = {**GHSA, "withdrawn": "2026-11-21T00:00:00Z", "modified": "2026-11-21T00:00:00Z"}
    pair = (GHSA, gone)
    assert found(tmp_path, *(pair[number] for number in order)).findings == ()


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize(
    ("older", "newer"),
    [
        # As text, each pair has the other order.
        ("2026-11-21T00:00:00Z", "2026-11-21T00:00:00.500000Z"),
        ("2026-11-21T12:00:00+12:00", "2026-11-21T08:00:00Z"),
    ],
)
def test_times_are_compared_whatever_their_notation(
    tmp_path: Path, older: str, newer: str, order: tuple[int, int]
) -> None:
    harmless = affected("tensorflow", events(("introduced", "0"), ("fixed", "1.0")))
    corrected = ({**GHSA, "modified": older}, {**GHSA, "modified": newer, "affected": [harmless]})
    assert found(tmp_path / "1", *(corrected[number] for number in order)).findings == ()
    gone = ({**GHSA, "modified": older}, {**GHSA, "modified": newer, "withdrawn": newer})
    assert found(tmp_path / "2", *(gone[number] for number in order)).findings == ()
    restored = ({**GHSA, "modified": older, "withdrawn": older}, {**GHSA, "modified": newer})
    assert len(found(tmp_path / "3", *(restored[number] for number in order)).findings) == 1


def test_a_version_that_cannot_be_compared_is_reported(tmp_path: Path) -> None:
    one = entry(
        "X-1", affected("bash", events(("introduced", "0"), ("fixed", "<end>")), ecosystem="Debian:12")
    )
    result = found(tmp_path, one)
    assert (result.findings, result.undecided) == ((), ("X-1",))


def test_a_database_is_a_file_an_archive_or_a_directory_of_both(tmp_path: Path) -> None:
    archive = write_zip(tmp_path / "all.zip", {"GHSA.json": GHSA, "README.md": b"no"})
    assert len(audit(WHEELS, archive).findings) == 1
    file = write(tmp_path / "one", PYSEC) / "000.json"
    assert len(audit(WHEELS, file).findings) == 1
    directory = tmp_path / "both"
    write(directory / "Debian", UTIL_LINUX)
    write_zip(directory / "PyPI.zip", {"1.json": ABSL, "2.json": GHSA})
    (directory / "notes.txt").write_text("not read")
    assert len(audit(LISTED, directory).findings) == 3
    assert audit(LISTED, directory).newest.isoformat() == "2026-11-20T00:00:00+00:00"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "not an entry of OSV"),
        (b"[]", "not an entry of OSV"),
        (b"\xff\xfe", "not an entry of OSV"),
        (b'{"id": "X-1"}', "not an entry of OSV"),
        (b'{"id": "X-1", "modified": "today"}', "not a timestamp"),
        (b'{"id": 1, "modified": "2026-01-01"}', "not an entry of OSV"),
        (b'{"id":"X","modified":"2026-01-01","x":' + b"[" * 200_000, "not an entry of OSV"),
        (b'{"id":"X","modified":"2026-01-01","affected":[{"ranges":[{"type":1}]}]}', "not an entry of OSV"),
    ],
)
def test_files_that_cannot_be_read_are_counted_and_the_others_used(
    tmp_path: Path, content: bytes, why: str
) -> None:
    result = audit(WHEELS, write(tmp_path, GHSA, content))
    assert (len(result.findings), result.read, result.unreadable) == (1, 1, 1)
    assert "001.json" in result.faults[0] and why in result.faults[0]
    with pytest.raises(InputError, match=r"no vulnerability in the format OSV.*000\.json"):
        audit(WHEELS, write(tmp_path / "alone", content))


def test_pipes_and_large_files_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(osv, "LARGEST", 1000)
    place = write(tmp_path / "database", GHSA, {**PYSEC, "details": "x" * 1000})
    os.mkfifo(place / "pipe.json")
    (place / "gone.json").symlink_to("nowhere")
    result = audit(WHEELS, place)
    assert (result.read, result.unreadable) == (1, 3)
    assert [fault.rpartition("/")[2].partition(":")[0] for fault in result.faults] == [
        "001.json", "gone.json", "pipe.json"
    ]  # fmt: skip
    with pytest.raises(InputError, match="neither a file nor a directory"):
        audit(WHEELS, place / "pipe.json")


def test_an_archive_does_not_expand_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = write_zip(tmp_path / "all.zip", {"bomb.json": b" " * (64 << 20), "ok.json": GHSA})
    assert bomb.stat().st_size < 100_000
    result = audit(WHEELS, bomb)
    assert (result.read, result.unreadable) == (1, 1) and "larger than 32 MiB" in result.faults[0]
    monkeypatch.setattr(osv, "LARGEST_DATABASE", 1000)
    with pytest.raises(InputError, match="the database is larger than"):
        audit(WHEELS, write_zip(tmp_path / "more.zip", {f"{n}.json": GHSA for n in range(9)}))
    monkeypatch.setattr(osv, "MOST_ENTRIES", 8)
    with pytest.raises(InputError, match="more than 8 files"):
        audit(WHEELS, tmp_path / "more.zip")


def test_a_damaged_archive_is_counted(tmp_path: Path) -> None:
    place = write(tmp_path / "database", GHSA)
    (place / "cut.zip").write_bytes(b"PK\x03\x04 and nothing")
    whole = write_zip(place / "flipped.zip", {"1.json": PYSEC, "2.json": ABSL})
    with zipfile.ZipFile(whole) as archive:
        start = archive.infolist()[0].header_offset
    data = bytearray(whole.read_bytes())
    data[start + 60] ^= 0xFF
    whole.write_bytes(data)
    result = audit(WHEELS, place)
    assert (result.read, result.unreadable) == (2, 2)
    assert "damaged" in result.faults[0] and "can't be unpacked" in result.faults[1]


def set_bytes(archive: Path, signature: bytes, offset: int, value: bytes) -> None:
    """Change an archive after the first of its records with a signature."""
    data = bytearray(archive.read_bytes())
    at = data.index(signature) + offset
    data[at : at + len(value)] = value
    archive.write_bytes(data)


CENTRAL, LOCAL = b"PK\x01\x02", b"PK\x03\x04"


def test_an_archive_in_a_newer_format_is_counted(tmp_path: Path) -> None:
    place = write(tmp_path / "database", GHSA)
    set_bytes(write_zip(place / "new.zip", {"1.json": PYSEC}), CENTRAL, 6, b"\xff\0")
    result = audit(WHEELS, place)
    assert (result.read, result.unreadable) == (1, 1) and "the archive is damaged" in result.faults[0]


@pytest.mark.parametrize("method", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2, zipfile.ZIP_DEFLATED])
def test_a_damaged_member_is_counted(tmp_path: Path, method: int) -> None:
    place = write(tmp_path / "database", GHSA)
    with zipfile.ZipFile(place / "odd.zip", "w", method) as archive:
        archive.writestr("1.json", json.dumps(PYSEC))
    set_bytes(place / "odd.zip", LOCAL, 50, b"\xff" * 40)
    result = audit(WHEELS, place)
    assert (result.read, result.unreadable) == (1, 1) and "1.json: it can't be unpacked" in result.faults[0]


def test_a_directory_that_cannot_be_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = write(tmp_path / "database", GHSA)
    closed = write(place / "Debian", UTIL_LINUX)
    scandir = os.scandir

    def refuse(path: str) -> object:
        if Path(path) == closed:
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return scandir(path)

    # The tests may run as root, who can read everything.
    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(InputError, match=f"{re.escape(str(closed))}: can't be read: Permission denied"):
        audit(WHEELS, place)


@pytest.mark.parametrize(
    ("entries", "missing"),
    [
        ((GHSA,), "Debian:12"),
        ((UTIL_LINUX,), "PyPI"),
        ((entry("X-1"),), "Debian:12 and PyPI"),
        ((GHSA, entry("X-1", affected("bash", versions=["1"], ecosystem="Debian:13"))), "Debian:12"),
        ((GHSA, {**UTIL_LINUX, "withdrawn": "2026-11-01T00:00:00Z"}), ""),
        ((GHSA, entry("X-1", affected("other", versions=["1"], ecosystem="Debian"))), ""),
    ],
)
def test_a_database_without_an_ecosystem_of_the_packages_is_an_error(
    tmp_path: Path, entries: tuple[Entry, ...], missing: str
) -> None:
    place = write(tmp_path / "database", *entries)
    if not missing:
        assert audit(LISTED, place).read == len(entries)
        return
    with pytest.raises(InputError, match=f"no entries about {missing}, so") as caught:
        audit(LISTED, place)
    assert "Debian/all.zip" in str(caught.value.hint)


def test_an_archive_that_is_damaged_is_named_when_its_ecosystem_is_missing(tmp_path: Path) -> None:
    place = write(tmp_path / "database", GHSA)
    (place / "Debian.zip").write_bytes(b"PK\x03\x04 and nothing")
    with pytest.raises(InputError, match=r"no entries about Debian:12.*Debian\.zip: the archive is damaged"):
        audit(LISTED, place)


def test_an_empty_database_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no vulnerability in the format OSV was found"):
        audit(LISTED, write(tmp_path))


@pytest.mark.parametrize(
    "document",
    [
        {}, {"bomFormat": "SPDX"}, {"bomFormat": "CycloneDX", "components": [{"name": 1}]},
        {"bomFormat": "CycloneDX", "components": [{"name": "x", "purl": "not a purl"}]},
    ],
)  # fmt: skip
def test_a_list_that_is_not_cyclonedx_is_an_error(document: dict[str, Any]) -> None:
    with pytest.raises(ValidatorError, match="list of packages can't be read"):
        listed_packages(document)


def test_packages_of_another_distribution_are_named_as_not_audited() -> None:
    purls = ["pkg:deb/ubuntu/bash@5.2?distro=ubuntu-24.04", "pkg:deb/debian/dash@0.5", "pkg:npm/x@1"]
    components = [{"name": purl.split("/")[-1].split("@")[0], "purl": purl} for purl in purls]
    result = listed_packages({"bomFormat": "CycloneDX", "components": components})
    assert (result.audited, result.others) == ((), ("bash", "dash", "x"))
    assert Audited("PyPI", "x", "1", "x", "") not in result.audited
