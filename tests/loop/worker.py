"""Run tests in a worker of xdist, and send the main process only the reports that it needs."""

from __future__ import annotations

import pytest
from _pytest.runner import runtestprotocol


class Worker:
    """Sends one message for a test that passes, instead of five.

    Sending the other four takes as long as running a small test.
    """

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
