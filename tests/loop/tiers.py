"""The four tiers of the tests, and the guard that holds every test to its own.

A test that is marked with none of `slow`, `service` and `engine` belongs to the unit tier. Fixtures that need
more say so with `carries`, and every test that uses them gets their marks. The guard fails a test that starts
a program or connects to a machine that its tier does not have, so a forgotten mark is found by the first run.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
from uv import find_uv_bin

from validator.system.files import cache_directory

from . import weekly

Function = TypeVar("Function", bound=Callable[..., Any])

#: What each tier may use, besides everything that the tiers before it may use.
TIERS = {
    "unit": "this process, for a fifth of a second",
    "slow": "Pythons that it starts, or more time",
    "service": "programs of this machine: a shell, gcc, pytest, mkdocs, a registry, PostgreSQL, Chromium",
    "engine": "Docker, TensorFlow, a package index",
}
_PYTHON = re.compile(r"python[\d.]*")
#: Programs that reach an engine or a package index, as they are called and where they are.
_ENGINE_NAMES = ("docker", "dockerd", "uv")
_ENGINE_PROGRAMS = {*_ENGINE_NAMES, *map(shutil.which, _ENGINE_NAMES), find_uv_bin()}
#: Programs of Python's that take as long to start as others.
_PYTHON_PROGRAMS = ("mkdocs", "pytest")
_LOOPBACK = re.compile(r"127\.|::1$|localhost$|0\.0\.0\.0$")


def carries(*marks: pytest.MarkDecorator) -> Callable[[Function], Function]:
    """Give these marks to every test that uses the fixture: `@pytest.fixture` stands above this decorator."""

    def remember(function: Function) -> Function:
        function._carries = marks  # type: ignore[attr-defined]
        return function

    return remember


slow = carries(pytest.mark.slow)
service = carries(pytest.mark.service)
engine = carries(pytest.mark.engine)
#: Tests with the machine's Docker engine see each other's images and devices, so one worker runs them all.
docker = carries(pytest.mark.engine, pytest.mark.xdist_group("docker"))


def tier_of(item: pytest.Item) -> str:
    """Return the most demanding tier that the test is marked with."""
    return next(tier for tier in reversed(TIERS) if tier == "unit" or item.get_closest_marker(tier))


class Guard:
    """Fails tests that use what their tier does not have. There is one per process: an audit hook stays.

    It sees what this process does. It does not see what a child does, but the PATH of the first two tiers has
    no programs except those of this environment.
    """

    def __init__(self) -> None:
        self.tier: str | None = None
        self.violations: list[str] = []
        self._process = os.getpid()
        sys.addaudithook(self._audit)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            fixtures = item._fixtureinfo.name2fixturedefs if isinstance(item, pytest.Function) else {}
            for definitions in fixtures.values():
                for mark in getattr(definitions[-1].func, "_carries", ()):
                    item.add_marker(mark)
            if tier_of(item) == "unit":
                item.add_marker("unit")
        weekly.mark(items)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.tier = tier_of(item)
        with pytest.MonkeyPatch.context() as patch:
            if self.tier in ("unit", "slow"):
                patch.setenv("PATH", str(Path(sys.executable).parent))
            try:
                return (yield)
            finally:
                self.tier = None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self) -> Iterator[None]:
        return (yield from self._reported())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Iterator[None]:
        return (yield from self._reported())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, nextitem: pytest.Item | None) -> Iterator[None]:
        if nextitem is None:
            # The last test of a process also stops the servers that other tests of the session started.
            self.tier = None
        return (yield from self._reported())

    def _reported(self) -> Iterator[None]:
        """Fail with what the guard saw, also where the code under test swallowed the error."""
        self.violations.clear()
        try:
            return (yield)
        finally:
            if self.violations:
                pytest.fail("\n".join(self.violations), pytrace=False)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.tier in (None, "engine") or event not in _NEEDS:
            return
        what, needed = _NEEDS[event](arguments)
        if list(TIERS).index(needed) <= list(TIERS).index(str(self.tier)):
            return
        violation = (
            f"this test is in the tier '{self.tier}' ({TIERS[str(self.tier)]}), but it uses {what}: "
            f"mark it with pytest.mark.{needed}, or its fixture with tests.loop.tiers.{needed}"
        )
        if os.getpid() != self._process:
            # A fork that is about to become another program. An exception would make it a second pytest.
            os.write(2, violation.encode())
            os._exit(1)
        self.violations.append(violation)
        raise PermissionError(violation)


def _of_program(program: Any, words: Sequence[Any] = ()) -> tuple[str, str]:
    path = Path(os.fsdecode(program))
    what = f"the program {path}"
    if str(path) in _ENGINE_PROGRAMS or path.is_relative_to(cache_directory() / "tests"):
        return what, "engine"
    # With --no-index, pip is a Python program that only reads files.
    if list(words[1:3]) == ["-m", "pip"] and "--no-index" not in words:
        return "pip", "engine"
    if words[1:2] == ["-m"] and words[2] in _PYTHON_PROGRAMS:
        return str(words[2]), "service"
    if path.is_absolute() and not os.access(path, os.X_OK):
        return what, "unit"  # it can't be started
    return what, "slow" if _PYTHON.fullmatch(path.name) else "service"


def _of_address(address: Any) -> tuple[str, str]:
    if isinstance(address, tuple):
        needed = "unit" if _LOOPBACK.match(str(address[0])) else "engine"
        return f"a connection to {address[0]}", needed
    return f"a connection to {address}", "engine" if str(address).endswith("/run/docker.sock") else "unit"


_NEEDS: dict[str, Callable[[tuple[Any, ...]], tuple[str, str]]] = {
    "subprocess.Popen": lambda arguments: _of_program(*arguments[:2]),
    "os.posix_spawn": lambda arguments: _of_program(*arguments[:2]),
    "os.exec": lambda arguments: _of_program(*arguments[:2]),
    "os.system": lambda arguments: _of_program("sh"),
    "socket.connect": lambda arguments: _of_address(arguments[1]),
}
