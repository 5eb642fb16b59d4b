"""The packages of a base are those that dpkg lists in it, or those of its lock."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from validator.assemble import bootstrap
from validator.assemble.base import Base
from validator.assemble.base_finder import SystemPackage, contents, contents_of_suite
from validator.assemble.bootstrap import read_lock
from validator.assemble.layer_table import LayerTable
from validator.errors import InputError

from .bases import FILES, base_of, layer

OS_RELEASE = b'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nID=debian\nVERSION_ID="12"\n'
STATUS = b"""\
Package: libc6
Status: install ok installed
Architecture: amd64
Source: glibc
Version: 2.36-9+deb12u10
Description: GNU C Library
 Version: 9.9 is not a field here

Package: bsdutils
Status: install ok installed
Architecture: amd64
Source: util-linux (2.38.1-5)
Version: 1:2.38.1-5+b1

Package: attr
Status: deinstall ok config-files
Architecture: amd64
Version: 1:2.5.1-4

Package: bash
Status: install ok installed
Architecture: amd64
Version: 5.2.15-2+b13
"""
INSTALLED = (
    SystemPackage("bash", "5.2.15-2+b13", "amd64", "bash", "5.2.15-2"),
    SystemPackage("bsdutils", "1:2.38.1-5+b1", "amd64", "util-linux", "2.38.1-5"),
    SystemPackage("libc6", "2.36-9+deb12u10", "amd64", "glibc", "2.36-9+deb12u10"),
)


def base(tmp_path: Path, **files: bytes | str) -> Base:
    """Return a small base with these files, in whose paths `__` stands for a slash."""
    more = {path.replace("__", "/"): content for path, content in files.items()}
    found = base_of(LayerTable(tmp_path), layer({**FILES, **more}))
    return replace(found, origin=f"registry:python:3.11-slim@sha256:{'7' * 64}")


def test_what_dpkg_lists_is_read(tmp_path: Path) -> None:
    files: dict[str, bytes | str] = {
        "usr__lib__os-release": OS_RELEASE,
        "etc__os-release": "../usr/lib/os-release",
    }
    found = contents(base(tmp_path, var__lib__dpkg__status=STATUS, **files))
    assert (found.distribution, found.release) == ("debian", "12")
    assert found.packages == INSTALLED
    assert found.python == "3.11.2", "the Python is not one of the packages"


def test_the_python_of_the_distribution_is_one_of_its_packages(tmp_path: Path) -> None:
    status = STATUS + b"\nPackage: python3.11-minimal\nStatus: install ok installed\nVersion: 3.11.2-6\n"
    assert contents(base(tmp_path, var__lib__dpkg__status=status)).python is None


@pytest.mark.parametrize(
    ("status", "is_there"),
    [
        ("hold ok installed", True),
        ("install ok unpacked", True),
        ("install ok half-configured", True),
        ("install reinstreq half-installed", True),
        ("install ok triggers-pending", True),
        ("deinstall ok installed", True),
        ("deinstall ok config-files", False),
        ("unknown ok not-installed", False),
    ],
)
def test_a_package_counts_if_dpkg_has_its_files(tmp_path: Path, status: str, is_there: bool) -> None:
    entry = f"Package: openssl\nStatus: {status}\nArchitecture: amd64\nVersion: 3.0.15-1\n".encode()
    found = contents(base(tmp_path, var__lib__dpkg__status=STATUS + b"\n" + entry))
    assert ("openssl" in {one.name for one in found.packages or ()}) is is_there


def test_an_image_without_a_package_manager_has_a_file_for_each_package(tmp_path: Path) -> None:
    files = {
        "var__lib__dpkg__status.d__base": b"Package: base-files\nVersion: 12.4\nArchitecture: all\n",
        "var__lib__dpkg__status.d__base.md5sums": b"d41d8cd98f00b204e9800998ecf8427e  etc/x\n",
    }
    assert contents(base(tmp_path, **files)).packages == (
        SystemPackage("base-files", "12.4", "all", "base-files", "12.4"),
    )


@pytest.mark.parametrize("status", [b"", b"\n\n\n"])
def test_an_empty_database_lists_nothing(tmp_path: Path, status: bytes) -> None:
    assert contents(base(tmp_path, var__lib__dpkg__status=status)).packages == ()


def test_a_version_may_begin_with_a_letter(tmp_path: Path) -> None:
    status = b"Package: driver\nStatus: install ok installed\nArchitecture: amd64\nVersion: v1.2\n"
    assert contents(base(tmp_path, var__lib__dpkg__status=status)).packages == (
        SystemPackage("driver", "v1.2", "amd64", "driver", "v1.2"),
    )


def test_without_dpkg_nobody_can_list_the_packages(tmp_path: Path) -> None:
    found = contents(base(tmp_path))
    assert found.packages is None and found.distribution == ""


@pytest.mark.parametrize(
    "entry",
    [
        b"Package: ../x\nVersion: 1\n",
        b"Package: zz\nVersion: 1 or 2\n",
        b"Package: zz\n",
        b"Package: zz\nVersion: 1\nSource: a b\n",
        b"\xff\xfe\0",
    ],
)
def test_a_damaged_list_is_an_error(tmp_path: Path, entry: bytes) -> None:
    status = STATUS + b"\n" + entry
    with pytest.raises(
        InputError, match=r"list of packages in the base image debian:test is damaged.*entry 5"
    ):
        contents(base(tmp_path, var__lib__dpkg__status=status))


@pytest.mark.parametrize("suite", sorted(bootstrap.SUITES.values()))
def test_a_bootstrapped_base_has_the_packages_of_its_lock(tmp_path: Path, suite: str) -> None:
    lock = read_lock(suite)
    found = contents_of_suite(suite)
    assert found.packages is not None
    assert {(one.name, one.version, one.sha256) for one in found.packages} == {
        (one.name, one.version, one.sha256) for one in lock.packages
    }
    made = replace(base(tmp_path), origin=bootstrap.origin(suite))
    assert contents(made) == found
    sources = {one.name: (one.source, one.architecture) for one in found.packages}
    assert sources["bsdutils"] == ("util-linux", "amd64") and sources["tzdata"] == ("tzdata", "all")


def test_with_more_packages_a_bootstrapped_base_has_what_dpkg_lists(tmp_path: Path) -> None:
    origin = bootstrap.origin("bookworm", ["git"])
    locked = next(one for one in read_lock("bookworm").packages if one.name == "bash")
    found = contents(replace(base(tmp_path, var__lib__dpkg__status=STATUS), origin=origin))
    assert found.packages is not None
    assert [one.name for one in found.packages] == ["bash", "bsdutils", "libc6"]
    assert found.packages[0].sha256 == locked.sha256, "the same version as in the lock has its hash"
    assert found.packages[2].sha256 is None, "another version has none"
