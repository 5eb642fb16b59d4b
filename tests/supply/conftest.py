from __future__ import annotations

from collections.abc import Iterator

import pytest

from . import local_index


@pytest.fixture
def index() -> Iterator[local_index.LocalIndex]:
    """An index on this machine that has nothing new."""
    with local_index.running() as running:
        yield running
