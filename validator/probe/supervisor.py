"""Runs the stages side by side: one loop over the pipes of all workers, within one limit of its own."""

import selectors
import time
from typing import Any, Callable, Dict, Sequence

from .stage import Stage


def run(stages: Sequence[Stage], collect: Callable[[], Dict[str, Any]], limit_s: float) -> None:
    """Run the stages side by side. `collect` gives the message for the workers; it runs while the first of
    them start, so that nothing waits for it that need not. After `limit_s` seconds whatever has no result
    is recorded as `timeout`.
    """
    end = time.monotonic() + limit_s
    stages = [stage for stage in stages if stage.checks]
    try:
        for stage in stages:
            stage.start()
        message = collect()
        for stage in stages:
            stage.message = message
            stage.tell()
        while any(stage.running for stage in stages):
            _turn(stages, end, limit_s)
    finally:
        for stage in stages:
            stage.kill()


def _turn(stages: Sequence[Stage], end: float, limit_s: float) -> None:
    with selectors.DefaultSelector() as selector:
        for stage in (stage for stage in stages if stage.running):
            stage.register(selector)
        soonest = min([end, *(stage.deadline for stage in stages if stage.running)])
        for key, _ in selector.select(max(0.0, soonest - time.monotonic())):
            # A stage's other pipe may have ended it in this same turn.
            if key.data.running:
                key.data.read(key.fd)
    now = time.monotonic()
    for stage in (stage for stage in stages if stage.running):
        if now >= end:
            stage.overdue(f"the probe's own limit of {limit_s:g} s ran out")
            stage.drop_waiting("not begun when the probe's own limit ran out")
        elif now >= stage.deadline:
            stage.overdue()
    for stage in (stage for stage in stages if not stage.running and stage.remaining):
        stage.start()
