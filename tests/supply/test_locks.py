"""The locks of this project's own packages: complete, pinned by hash, for every supported Python, and from
nowhere.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
import tomli
from uv import find_uv_bin

from validator._vendor.packaging.markers import Marker
from validator._vendor.packaging.requirements import Requirement
from validator._vendor.packaging.utils import canonicalize_name
from validator.supply.parts import ENVIRONMENTS, LOCKS, locked_versions, refreshed_locks, requirements_of
from validator.system import processes
from validator.system.package_sources import host_sources

from ..emulation.environments import requirements_of as requirements_of_fault
from ..emulation.faults import RELEASES, faults
from ..probe.environments import AS_BUILT_2_21, PYTHON, WITH_CUDNN_8, lock_of, tensorflow_environment

ROOT = Path(__file__).resolve().parents[2]
PROJECT: dict[str, Any] = tomli.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PYTHONS = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["project"]["classifiers"]))
ENTRY = re.compile(
    r"^(?P<name>[a-z0-9-]+)==(?P<version>[^\s;]+)(?: ; (?P<marker>[^\\\n]+?))? \\\n"
    r"(?P<hashes>(?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)",
    re.MULTILINE,
)

every_lock = pytest.mark.parametrize("path", LOCKS)
every_python = pytest.mark.parametrize("python", PYTHONS)


@dataclass(frozen=True)
class Pin:
    name: str
    version: str
    marker: Marker | None


def text(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def environment(python: str) -> dict[str, str]:
    """Return the markers' variables on Linux."""
    return {
        "python_version": python, "python_full_version": f"{python}.0", "sys_platform": "linux",
        "platform_system": "Linux", "platform_machine": "x86_64", "os_name": "posix",
        "implementation_name": "cpython", "platform_python_implementation": "CPython", "extra": "",
    }  # fmt: skip


def pins(path: str) -> list[Pin]:
    found = [
        Pin(match["name"], match["version"], Marker(match["marker"]) if match["marker"] else None)
        for match in ENTRY.finditer(text(path))
    ]
    assert len(found) > 20
    return found


def installed(path: str, python: str) -> dict[str, str]:
    """Return what the lock installs with this Python on Linux."""
    found: dict[str, str] = {}
    for pin in pins(path):
        if pin.marker is None or pin.marker.evaluate(environment(python)):
            assert pin.name not in found, f"{pin.name} is pinned twice for Python {python}"
            found[pin.name] = pin.version
    return found


def required(path: str) -> Iterator[Requirement]:
    project = PROJECT["project"]
    lines = [*PROJECT["build-system"]["requires"], *project["dependencies"]]
    for extra in LOCKS[path]:
        lines += project["optional-dependencies"][extra]
    yield from map(Requirement, lines)


@every_lock
def test_a_lock_has_nothing_but_pins_with_hashes(path: str) -> None:
    rest = ENTRY.sub("", text(path))
    assert [line for line in rest.splitlines() if not line.startswith("#")] == []
    assert "://" not in text(path), "a lock names no index"


@every_lock
@every_python
def test_a_lock_has_every_dependency_for_every_supported_python(path: str, python: str) -> None:
    there = installed(path, python)
    for requirement in required(path):
        if requirement.marker is None or requirement.marker.evaluate(environment(python)):
            name = canonicalize_name(requirement.name)
            assert name in there, f"{requirement} is not in {path}: run scripts/refresh python --keep"
            assert requirement.specifier.contains(there[name], prereleases=True), (requirement, there[name])


def test_every_extra_has_a_lock() -> None:
    assert {extra for extras in LOCKS.values() for extra in extras} == set(
        PROJECT["project"]["optional-dependencies"]
    )
    there = {str(path.relative_to(ROOT)) for path in (ROOT / "requirements").iterdir()}
    assert there == {*LOCKS, ENVIRONMENTS}


@every_python
def test_the_locks_agree(python: str) -> None:
    runtime, parquet, test = (
        installed(f"requirements/{name}.txt", python) for name in ("runtime", "parquet", "test")
    )
    assert runtime.items() <= parquet.items() <= test.items()


def test_what_is_installed_here_needs_nothing_outside_of_the_lock() -> None:
    """Packages are installed without their dependencies, so the lock must have all of them."""
    version = ".".join(map(str, sys.version_info[:2]))
    there = installed("requirements/test.txt", version)
    missing = [
        f"{name} needs {requirement}"
        for name in there
        for requirement in map(Requirement, distribution(name).requires or [])
        if requirement.marker is None or requirement.marker.evaluate(environment(version))
        if canonicalize_name(requirement.name) not in there
    ]
    assert missing == []


# -- the environments of the tests -----------------------------------------------------------------------


@pytest.mark.parametrize("path", sorted((ROOT / ENVIRONMENTS).iterdir()), ids=lambda path: path.stem)
def test_the_lock_of_an_environment_has_what_it_is_made_from_and_only_pins_with_hashes(path: Path) -> None:
    content = path.read_text(encoding="utf-8")
    rest = [line for line in ENTRY.sub("", content).splitlines() if not line.startswith("# requires: ")]
    assert rest == [f"# python: {PYTHON}"]
    there = locked_versions(content)
    for requirement in map(Requirement, requirements_of(content)):
        assert requirement.specifier.contains(there[canonicalize_name(requirement.name)])


def test_every_environment_of_the_tests_has_a_lock() -> None:
    emulated = [requirements_of_fault(faults()["no_driver"], release) for release in RELEASES]
    locks = {lock_of(one, PYTHON) for one in (AS_BUILT_2_21, WITH_CUDNN_8, *emulated)}
    assert locks == set((ROOT / ENVIRONMENTS).iterdir())


def test_in_ci_no_environment_is_made_without_a_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(AssertionError, match="has no lock for"):
        tensorflow_environment(("tensorflow==2.21.0",))


@pytest.mark.engine
@every_python
def test_every_package_has_a_wheel_with_a_locked_hash(python: str, tmp_path: Path) -> None:
    result = processes.run(
        [
            find_uv_bin(), "pip", "install", "--dry-run", "--python-version", python, "--target", tmp_path,
            "--python-platform", "x86_64-manylinux_2_28", "--only-binary", ":all:", "--require-hashes",
            "--requirements", ROOT / "requirements/test.txt",
        ],
        env={**os.environ, **host_sources().uv_environment()},
        timeout_s=300,
    )  # fmt: skip
    assert result.ok, result.stderr_tail


@pytest.mark.engine
def test_the_locks_are_those_of_pyproject() -> None:
    for path, content in refreshed_locks(ROOT, host_sources(), upgrade=False).items():
        assert locked_versions(content) == locked_versions(text(path)), (
            f"{path}: run scripts/refresh python --keep"
        )
