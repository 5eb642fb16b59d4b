"""The progress of a run for people: its size, how far it is, and each failure when it happens."""

from __future__ import annotations

import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from _pytest.terminal import TerminalReporter

from .plan import Plan, remember
from .schedule import ByScope

#: The category of a test, its letter and its word.
Status = tuple[str, str, Any]

#: Seconds between two lines: in a log, and on a terminal, where each takes the place of the one before.
_LOG_EVERY_S, _TERMINAL_EVERY_S = 10.0, 0.3


class Planner:
    """Plans the run, in the process that collects: this one, or each worker."""

    plan: Plan | None = None

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Put the longest scopes first, so that the workers end at about the same time."""
        # There is no cache with -p no:cacheprovider.
        self.plan = Plan.of(items, getattr(config, "cache", None))
        scopes, tests = self.plan.scopes_s(), self.plan.tests
        items.sort(key=lambda item: -scopes[tests[item.nodeid].scope])
        worker = getattr(config, "workerinput", None)
        # All workers plan the same, so one of them tells the process that a person looks at.
        if worker is not None and worker["workerid"] == "gw0":
            self.plan.write(Path(worker["plan"]))


class Progress:
    """Shows the run, in the process that a person looks at. With -v or -q, pytest shows it in its own way."""

    def __init__(self, config: pytest.Config, planner: Planner) -> None:
        self._config = config
        self._planner = planner
        self._directory = tempfile.TemporaryDirectory(prefix="tests-")
        self._plan_file = Path(self._directory.name) / "plan.json"
        self._terminal: TerminalReporter | None = config.pluginmanager.getplugin("terminalreporter")
        self._shows = self._terminal is not None and config.get_verbosity() == 0
        self._in_report = False
        self._began = self._last_line = 0.0
        self._done: Counter[str] = Counter()
        self._done_s = 0.0
        self._took: dict[str, float] = defaultdict(float)
        if self._terminal is not None and self._shows:
            self._terminal.showfspath = False

    def plan(self) -> Plan:
        if self._planner.plan is None:
            self._planner.plan = Plan.read(self._plan_file)
        return self._planner.plan

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput["plan"] = str(self._plan_file)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> ByScope:
        return ByScope(config, log, self.begin)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self) -> None:
        self.begin()

    def begin(self) -> Plan:
        """Announce the run on the first call. Return its plan."""
        if self._began == 0.0:
            self._began = self._last_line = time.monotonic()
            if self._shows:
                self._write(self._announcement())
        return self.plan()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> Iterator[None]:
        self._in_report = True
        yield
        self._in_report = False
        self._took[report.nodeid] += report.duration
        if report.failed and self._shows:
            self._write(f"{'FAILED' if report.when == 'call' else 'ERROR'} {report.nodeid}", red=True)
        if report.when == "call" or (report.when == "setup" and not report.passed):
            test = self.plan().tests[report.nodeid]
            self._done[test.tier] += 1
            self._done_s += test.expected_s
            self._tell(test.module)

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(self) -> Generator[None, Status, Status]:
        """Print no letter for each test."""
        found = yield
        return (found[0], "", "") if self._shows and self._in_report else found

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        if self._shows and self._began:
            self._write(self._line("the end"))
        seconds: dict[str, list[float]] = defaultdict(list)
        for nodeid, took in self._took.items():
            seconds[self.plan().tests[nodeid].module].append(took)
        if seconds and getattr(self._config, "cache", None) is not None:
            remember(self._config.cache, seconds)
        self._directory.cleanup()

    def _announcement(self) -> str:
        counts = self.plan().counts()
        tiers = ", ".join(f"{count:,} {tier}" for tier, count in counts.items())
        workers = len(getattr(self._config.option, "tx", None) or ["this process"])
        takes = _minutes(self.plan().takes_s(workers))
        return (
            f"{sum(counts.values()):,} tests ({tiers}), which take about {takes} min "
            f"with {workers} worker{'s' if workers > 1 else ''}"
        )

    def _tell(self, module: str) -> None:
        if self._shows and self._terminal is not None:
            every = _TERMINAL_EVERY_S if self._terminal.isatty else _LOG_EVERY_S
            if time.monotonic() - self._last_line >= every:
                self._last_line = time.monotonic()
                if self._terminal.isatty:
                    self._terminal.rewrite(self._line(module), erase=True)
                else:
                    self._write(self._line(module))

    def _line(self, module: str) -> str:
        plan = self.plan()
        share = self._done_s / sum(test.expected_s for test in plan.tests.values())
        tiers = "  ".join(f"{tier} {self._done[tier]:,}/{count:,}" for tier, count in plan.counts().items())
        return f"{_minutes(time.monotonic() - self._began)} min  {share:4.0%}  {tiers}  {module}"

    def _write(self, line: str, **markup: bool) -> None:
        assert self._terminal is not None
        self._terminal.ensure_newline()
        self._terminal.write_line(line, **markup)


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
