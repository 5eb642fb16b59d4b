"""Settings and checks for every test.

Property tests have no deadline, because a slow machine is not a fault of the code. `scripts/test --fast`
loads the profile `fast`, with fewer examples. Whatever a test records is not for the store that a person
works with. And Ctrl-C is what it is in a terminal, even if the tests run in the background of a shell, which
ignores it and hands that on to every child.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import tempfile
from collections.abc import Iterator

import pytest
from hypothesis import settings

from validator._vendor.packaging.version import Version
from validator.compat import releases

from .loop.progress import Planner, Progress
from .loop.tiers import Guard
from .loop.worker import Worker

pytest_plugins = ["tests.services"]

# If jsonschema finds this package of Jupyter's, it compiles 38 grammars for formats that no schema here has,
# which takes more than a second in each process.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]

settings.register_profile("whole", deadline=None)
settings.register_profile("fast", deadline=None, max_examples=10)
settings.load_profile("whole")

os.environ.pop("VALIDATOR_STORE", None)
os.environ.pop("VALIDATOR_TRUST", None)
# Tests must not use this machine's own keys. Each test process removes its directory.
_STATE = tempfile.TemporaryDirectory(prefix="validator-tests-state-")
os.environ["XDG_STATE_HOME"] = _STATE.name

signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    planner = Planner()
    config.pluginmanager.register(Guard(), "tests-guard")
    config.pluginmanager.register(planner, "tests-planner")
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(Worker(), "tests-worker")
    else:
        config.pluginmanager.register(Progress(config, planner), "tests-progress")


def pytest_unconfigure() -> None:
    _STATE.cleanup()


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    gc.disable()


def pytest_collection_finish() -> None:
    """Exempt what was imported and collected from garbage collection, and collect less often than by default.

    Otherwise the garbage collector takes more than a tenth of the processor time of the unit tests.
    """
    gc.enable()
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)


@pytest.fixture
def releases_up_to_2_22rc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Hide later releases from the code, so that a test may name the newest one and outlive it."""
    known = tuple(known for known in releases.releases() if Version(known.version) <= Version("2.22.0rc0"))
    cached = (releases.release, releases.newest, releases.newest_patch)
    with monkeypatch.context() as patch:
        patch.setattr(releases, "releases", lambda: known)
        for function in cached:
            function.cache_clear()
        yield
    for function in cached:
        function.cache_clear()
