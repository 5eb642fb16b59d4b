"""Results of child processes of a check, for tests that replace them."""

from __future__ import annotations

from validator.probe.child import EXCEPTION, SIGNAL, TIMED_OUT, Failure


def ended(how: str | None, in_tensorflow: bool = False) -> Failure | None:
    """Return the failure for `timeout`, a signal's name or an exception; None for None."""
    if how is None:
        return None
    kind = TIMED_OUT if how == "timeout" else SIGNAL if how.startswith("SIG") else EXCEPTION
    return Failure(kind, "" if kind == TIMED_OUT else how, in_tensorflow)
