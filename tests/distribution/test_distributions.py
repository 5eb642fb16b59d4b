"""The wheel and the sdist have everything that the tool needs outside a checkout."""

from __future__ import annotations

import re
import subprocess
import tarfile
import zipfile
from email import message_from_string
from pathlib import Path

import tomli
import yaml

import validator
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


def test_every_link_that_an_index_shows_leads_to_a_file_of_this_version(distributions: Distributions) -> None:
    with zipfile.ZipFile(distributions.wheel) as wheel:
        [name] = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = message_from_string(wheel.read(name).decode())
    assert metadata["Description-Content-Type"] == "text/markdown"
    description = metadata.get_payload()
    assert isinstance(description, str)
    links = re.findall(r"\]\(([^)\s]+)\)", description)
    ours = f"https://github.com/tensorflow-gpu-matrix/tensorflow-gpu-matrix/(?:blob|raw)/v{validator.__version__}/"
    paths = [match[1] for link in links if (match := re.match(f"{ours}([^#]+)", link))]
    assert len(paths) > 15 and "docs/images/page.png" in paths
    assert [path for path in paths if not (ROOT / path).exists()] == []
    assert [link for link in links if not link.startswith(("https://", "#"))] == []
    addresses = dict(entry.split(", ", 1) for entry in metadata.get_all("Project-URL", []))
    assert (ROOT / addresses["Changelog"].rpartition("/")[2]).exists()


#: The packages with another name on conda-forge.
CONDA = {"docker": "docker-py", "isal": "python-isal"}


def test_the_conda_package_needs_what_the_wheel_needs() -> None:
    project = tomli.loads((ROOT / "pyproject.toml").read_text())
    needs = set()
    for dependency in project["project"]["dependencies"]:
        match = re.fullmatch(r"([\w-]+)(?:\[\w+\])?>=([\d.]+)(?:;.*)?", dependency)
        assert match, dependency
        name, lowest = match.groups()
        needs.add(f"{CONDA.get(name, name)} >={lowest}")
        if dependency.startswith("psycopg["):
            needs.add(f"psycopg-c >={lowest}")
    recipe = yaml.safe_load((ROOT / "packaging" / "recipe.yaml").read_text())
    assert set(recipe["requirements"]["run"]) == needs | {f"python {project['project']['requires-python']}"}
    starts = recipe["build"]["python"]["entry_points"]
    assert dict(start.split(" = ") for start in starts) == project["project"]["scripts"]
    assert recipe["about"]["summary"] == project["project"]["description"]
