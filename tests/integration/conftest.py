"""None of these tests does without a program or an engine, so a run without them leaves them out."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..loop.tiers import tier_of

PLACE = Path(__file__).parent


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    """Import nothing from here that would be deselected anyway: that takes more than a second."""
    return True if config.option.markexpr in ("unit", "unit or slow") else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = (item for item in items if item.path.is_relative_to(PLACE))
    if wrong := [item.nodeid for item in here if tier_of(item) in ("unit", "slow")]:
        raise pytest.UsageError(f"unit tests belong to the room that they test: {', '.join(wrong)}")
