"""Property tests are not timed: a slow machine is no fault of the code.

Whatever a test records, it is not for the store that a person works with. And Ctrl-C is what it is in a
terminal though the tests run in the background of a shell, which ignores it and hands that on to every child.
"""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import settings

from .loop.progress import Planner, Progress
from .loop.tiers import Guard

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

os.environ.pop("VALIDATOR_STORE", None)

signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    planner = Planner()
    config.pluginmanager.register(Guard(), "tests-guard")
    config.pluginmanager.register(planner, "tests-planner")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Progress(config, planner), "tests-progress")
