"""Collect and run tests in a worker of xdist, and send the main process only the reports that it needs."""

from __future__ import annotations

import contextlib
import importlib
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

_ROOT = Path(__file__).parents[2]


class Worker:
    """Shares byte code with the other workers, and sends one message for a test that passes, instead of five.

    Sending the other four takes as long as running a small test.
    """

    def pytest_collectstart(self, collector: pytest.Collector) -> None:
        """Import a share of the modules if all are collected. In a fresh clone, pytest compiles each of them,
        and the other workers find the byte code."""
        config: Any = collector.config
        if collector is collector.session and config.args == config.getini("testpaths"):
            number, count = int(config.workerinput["workerid"][2:]), config.workerinput["workercount"]
            for path in sorted(_ROOT.glob("tests/**/test_*.py"))[number::count]:
                # Whoever collects the module reports what is wrong with it.
                with contextlib.suppress(Exception, pytest.skip.Exception):
                    if "integration" not in path.parts:
                        importlib.import_module(".".join(path.relative_to(_ROOT).with_suffix("").parts))

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
