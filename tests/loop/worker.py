"""Run tests in a worker of xdist, and tell the process that a person looks at only what it needs."""

from __future__ import annotations

import pytest
from _pytest.runner import runtestprotocol


class Worker:
    """Sends one message for a test that passes, instead of five.

    To write and read the others takes as long as to run a test that only compares two values.
    """

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        """Run the test. Report its call, and its setup and teardown only if they don't pass.

        The first report has the seconds of those that are left out, so their sum is that of the test.
        """
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        reported = [report for report in reports if report.when == "call" or not report.passed]
        for report in reports:
            if report not in reported and reported:
                reported[0].duration += report.duration
        for report in reported:
            item.ihook.pytest_runtest_logreport(report=report)
        return True
