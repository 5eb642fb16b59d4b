"""Distribute the tests among the workers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from .plan import Plan


class ByScope(LoadScopeScheduling):
    """Give workers whole scopes in the order of the collection.

    A scope is a module, whose fixtures are then made once, or an `xdist_group`: modules that one worker has
    to run one after the other, since they share what there is only one of.
    """

    def __init__(self, config: pytest.Config, log: Producer, plan: Callable[[], Plan]) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False
        self._plan = plan

    def _split_scope(self, nodeid: str) -> str:
        return self._plan().tests[nodeid].scope
