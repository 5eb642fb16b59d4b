"""The wheel and the sdist have everything that the tool needs outside a checkout."""

from __future__ import annotations

import subprocess
import tarfile
import zipfile
from pathlib import Path

from validator import resources

from ..commands import ROOT
from .conftest import Distributions, Installed, tracked

SHIPPED = ("CITATION.cff", "LICENSE", "images", "matrix.yaml", "measurements")


def originals() -> dict[str, Path]:
    """Return the files that are shipped, by their paths relative to the root."""
    return {name: ROOT / name for name in tracked(*SHIPPED)}


def test_the_wheel_has_exactly_the_shipped_files_with_their_content_and_mode(
    distributions: Distributions,
) -> None:
    expected = originals()
    assert "images/entrypoint/start" in expected
    with zipfile.ZipFile(distributions.wheel) as wheel:
        members = {
            member.filename.partition("shipped/")[2]: member
            for member in wheel.infolist()
            if member.filename.startswith("validator/shipped/")
        }
        assert members.keys() == expected.keys()
        for name, original in expected.items():
            assert wheel.read(members[name]) == original.read_bytes(), name
            executable = bool(original.stat().st_mode & 0o111)
            assert bool(members[name].external_attr >> 16 & 0o111) == executable, name


def test_the_wheel_has_no_code_but_the_package(distributions: Distributions) -> None:
    with zipfile.ZipFile(distributions.wheel) as wheel:
        tops = {name.partition("/")[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"validator"}


def test_the_sdist_has_each_shipped_file_once(distributions: Distributions) -> None:
    with tarfile.open(distributions.sdist) as archive:
        names = [member.name.partition("/")[2] for member in archive if member.isfile()]
    assert sorted(name for name in names if name.partition("/")[0] in SHIPPED) == sorted(originals())


def test_an_installed_tool_finds_the_copies_and_a_checkout_the_originals(installed: Installed) -> None:
    code = (
        "from validator import resources as r;"
        "print(r.is_installed(), r.images_directory(), r.shipped_matrix())"
    )
    done = subprocess.run(
        [installed.python, "-c", code], cwd=installed.directory, capture_output=True, text=True, check=True
    )
    answer, *paths = done.stdout.split()
    assert answer == "True"
    shipped = installed.site_packages / "validator" / "shipped"
    assert [Path(path) for path in paths] == [shipped / "images", shipped / "matrix.yaml"]
    assert all(Path(path).exists() for path in paths)
    assert not resources.is_installed()
    assert resources.images_directory() == ROOT / "images"
