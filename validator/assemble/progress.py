"""Say how far a long task has come."""

from __future__ import annotations

from collections.abc import Callable

#: Called with one short line about the progress, from any thread.
Progress = Callable[[str], None]
