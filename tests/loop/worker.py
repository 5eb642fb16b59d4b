"""Collect and run tests in a worker of xdist, and send the main process only the reports that it needs."""

from __future__ import annotations

import contextlib
import importlib
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

_TESTS = Path(__file__).parents[1]


class Worker:
    """Shares byte code with the other workers, and sends one message for a test that passes, instead of five.

    Sending the other four takes as long as running a small test.
    """

    def __init__(self, given: dict[str, Any]) -> None:
        """given: what xdist says to a worker."""
        self._number, self._count = int(given["workerid"].removeprefix("gw")), given["workercount"]

    def pytest_collectstart(self, collector: pytest.Collector) -> None:
        """Import a share of the modules if all are collected. In a fresh clone, pytest compiles each of them,
        and the other workers find the byte code."""
        if collector is collector.session and collector.config.args == collector.config.getini("testpaths"):
            for path in sorted(_TESTS.rglob("test_*.py"))[self._number :: self._count]:
                if "integration" not in path.parts:
                    name = ".".join(path.relative_to(_TESTS.parent).with_suffix("").parts)
                    # Whoever collects the module reports what is wrong with it.
                    with contextlib.suppress(Exception, pytest.skip.Exception):
                        importlib.import_module(name)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        """Run the test. Report its call, and its setup and teardown only if they don't pass.

        The seconds of the reports that are left out are added to the first one, so that the sum stays right.
        """
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        reported = [report for report in reports if report.when == "call" or not report.passed]
        for report in reports:
            if report not in reported and reported:
                reported[0].duration += report.duration
        for report in reported:
            item.ihook.pytest_runtest_logreport(report=report)
        return True
