"""The guard of the tiers, and the plan of a run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .plan import Plan, Test
from .weekly import WEEKLY

ROOT = Path(__file__).parents[2]
ENDS = ("PASSED ", "FAILED ", "ERROR ", "SKIPPED ", "XFAIL ")
CONFTEST = """
from tests.loop.tiers import Guard

def pytest_configure(config):
    for tier in ("unit", "slow", "service", "engine"):
        config.addinivalue_line("markers", f"{tier}: a tier")
    config.pluginmanager.register(Guard())
"""
SHELL = "import subprocess; subprocess.run(['/bin/sh', '-c', 'true'])"
SWALLOWED = f"try:\n        {SHELL}\n    except OSError:\n        pass"
DOCKER = "import subprocess; subprocess.run(['docker', 'version'])"
PYTHON = "import subprocess, sys; subprocess.run([sys.executable, '-c', ''], check=True)"
PYTEST = "import subprocess, sys; subprocess.run([sys.executable, '-m', 'pytest', '--version'], check=True)"
ELSEWHERE = "import socket; socket.create_connection(('192.0.2.1', 9), timeout=0.1)"


def alone(directory: Path) -> list[str]:
    """Return the options that isolate a pytest from the one that starts it."""
    return ["-p", "no:cacheprovider", "-c", "/dev/null", f"--basetemp={directory / 'own'}"]


def run_test(directory: Path, tier: str, body: str) -> tuple[int, str]:
    """Return the exit status and output of pytest for one test of that tier."""
    (directory / "conftest.py").write_text(CONFTEST)
    mark = "" if tier == "unit" else f"@pytest.mark.{tier}\n"
    (directory / "test_one.py").write_text(f"import pytest\n\n{mark}def test_one():\n    {body}\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *alone(directory), "test_one.py"],
        cwd=directory, capture_output=True, text=True,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )  # fmt: skip
    return done.returncode, done.stdout


@pytest.mark.service
@pytest.mark.parametrize(
    ("tier", "body", "needed"),
    [
        ("unit", PYTHON, "slow"),
        ("unit", SHELL, "service"),
        ("unit", SWALLOWED, "service"),
        ("unit", PYTEST, "service"),
        ("unit", ELSEWHERE, "engine"),
        ("slow", PYTEST, "service"),
        ("service", DOCKER, "engine"),
        ("service", ELSEWHERE, "engine"),
    ],
    ids=[
        "another Python",
        "a shell",
        "a shell whose error is swallowed",
        "pytest",
        "the network",
        "pytest in a slow one",
        "Docker",
        "the network as a service",
    ],
)
def test_a_test_that_uses_more_than_its_tier_has_fails(
    tmp_path: Path, tier: str, body: str, needed: str
) -> None:
    status, output = run_test(tmp_path, tier, body)
    assert status == 1
    assert f"this test is in the tier '{tier}'" in output
    assert f"mark it with pytest.mark.{needed}" in output


@pytest.mark.service
def test_every_row_of_the_weekly_list_names_tests_and_the_parameters_that_stay() -> None:
    files = sorted({row.name.partition("::")[0] for row in WEEKLY})
    options = ["--collect-only", "-q", "-p", "no:cacheprovider", "-m", "not weekly"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *files], cwd=ROOT, capture_output=True, text=True
    )
    collected = done.stdout.splitlines()
    for row in WEEKLY:
        module, _, function = row.name.partition("::")
        assert function in (ROOT / module).read_text(encoding="utf-8"), row.name
        stay = [line for line in collected if line.startswith((f"{row.name}[", f"{row.name}::"))]
        assert {line.partition("[")[2].removesuffix("]") for line in stay} == set(row.kept), row.name


@pytest.mark.service
@pytest.mark.parametrize(("tier", "body"), [("slow", PYTHON), ("service", SHELL)])
def test_a_test_may_use_what_its_tier_has(tmp_path: Path, tier: str, body: str) -> None:
    assert run_test(tmp_path, tier, body)[0] == 0


ENDINGS = """
import pytest

@pytest.fixture
def no_setup():
    raise ValueError("no setup")

@pytest.fixture
def no_teardown():
    yield
    raise ValueError("no teardown")

def test_passes(): pass
def test_fails(): assert 0, "no call"
def test_setup(no_setup): pass
def test_teardown(no_teardown): pass
@pytest.mark.skip(reason="not now")
def test_skipped(): pass
@pytest.mark.xfail(reason="not yet")
def test_expected(): assert 0
@pytest.mark.parametrize("number", range(3))
def test_several(number): pass
"""
LOOP = """
from tests.conftest import pytest_configure

def pytest_collection_modifyitems(config, items):
    for tier in ("unit", "slow", "service", "engine"):
        config.addinivalue_line("markers", f"{tier}: a tier")
"""


@pytest.mark.service
def test_workers_report_every_ending(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(LOOP)
    for name, text in (("endings", ENDINGS), ("other", "def test_other(): pass\n")):
        (tmp_path / f"test_{name}.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-p", "xdist", "-n", "2", "--dist", "loadscope", "-rA"]
    done = subprocess.run(
        [*command, *alone(tmp_path), f"--rootdir={tmp_path}"],
        cwd=tmp_path, capture_output=True, text=True, timeout=60,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )  # fmt: skip
    assert "10 tests (10 unit), which take about 0:00 min with 2 workers" in done.stdout
    assert "100%  unit 10/10  the end" in done.stdout
    assert {line for line in done.stdout.splitlines() if line.startswith(ENDS)} == {
        "PASSED test_endings.py::test_passes",
        "PASSED test_endings.py::test_several[0]",
        "PASSED test_endings.py::test_several[1]",
        "PASSED test_endings.py::test_several[2]",
        "PASSED test_endings.py::test_teardown",
        "PASSED test_other.py::test_other",
        "FAILED test_endings.py::test_fails",
        "FAILED test_endings.py::test_fails - AssertionError: no call",
        "ERROR test_endings.py::test_setup",
        "ERROR test_endings.py::test_setup - ValueError: no setup",
        "ERROR test_endings.py::test_teardown",
        "ERROR test_endings.py::test_teardown - ValueError: no teardown",
        "SKIPPED [1] test_endings.py:17: not now",
        "XFAIL test_endings.py::test_expected - not yet",
    }
    assert "1 failed, 6 passed, 1 skipped, 1 xfailed" in done.stdout


def test_a_plan_counts_tiers_and_takes_at_least_as_long_as_its_longest_scope(tmp_path: Path) -> None:
    plan = Plan(
        {
            "a::1": Test("unit", "a", "a", 1.0),
            "a::2": Test("unit", "a", "a", 1.0),
            "b::1": Test("engine", "b", "docker", 6.0),
            "c::1": Test("engine", "c", "docker", 6.0),
        }
    )
    assert plan.counts() == {"unit": 2, "engine": 2}
    assert plan.scopes_s() == {"a": 2.0, "docker": 12.0}
    assert plan.takes_s(workers=1) == 14.0
    assert plan.takes_s(workers=2) == 12.0
    plan.write(tmp_path / "plan.json")
    assert Plan.read(tmp_path / "plan.json") == plan
