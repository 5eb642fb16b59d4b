"""The tests of the matrix name the newest release."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _known_releases(releases_up_to_2_22rc: None) -> None:
    """Let these tests name the newest release after a newer one was added."""
