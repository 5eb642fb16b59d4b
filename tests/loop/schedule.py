"""Distribute the tests among the workers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from .plan import Plan


class ByScope(LoadScopeScheduling):
    """Give workers whole scopes in the order of the collection.

    A scope is a module, whose fixtures are then made once, or an `xdist_group`: modules that one worker has
    to run one after the other, since they share what there is only one of.

    The base class searches all tests after each test; these methods don't.
    """

    def __init__(self, config: pytest.Config, log: Producer, begin: Callable[[], Plan]) -> None:
        """begin: called once all tests are known; returns their plan."""
        super().__init__(config, log)
        config.option.loadscopereorder = False
        self._begin = begin
        self._plan = Plan({})
        self._numbers: dict[str, int] = {}

    def schedule(self) -> None:
        self._plan = self._begin()
        collected = next(iter(self.registered_collections.values()))
        self._numbers = {nodeid: number for number, nodeid in enumerate(collected)}
        super().schedule()

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        """Forget the test, so that only the tests that the worker has yet to run are counted."""
        nodeid = self.registered_collections[node][item_index]
        scopes, scope = self.assigned_work[node], self._split_scope(nodeid)
        del scopes[scope][nodeid]
        if not scopes[scope]:
            del scopes[scope]
        self._reschedule(node)

    def _assign_work_unit(self, node: WorkerController) -> None:
        scope, tests = self.workqueue.popitem(last=False)
        self.assigned_work.setdefault(node, {})[scope] = tests
        node.send_runtest_some([self._numbers[nodeid] for nodeid in tests])

    def _split_scope(self, nodeid: str) -> str:
        return self._plan.tests[nodeid].scope
