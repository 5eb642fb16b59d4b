"""Say how far the probe has come, one line at a time."""

from typing import Any, Callable, Dict, List

from .. import problems
from .check import SKIP, Check, Result


class Progress:
    """Write a line for each check that ends. The skipped ones come last, one line for each reason."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._skipped: Dict[str, List[str]] = {}

    def imported(self, duration_s: float) -> None:
        """Say how long the import of TensorFlow took."""
        self._write(f"TensorFlow imported in {duration_s:.1f} s")

    def doing(self, check: Check, stated: Dict[str, Any]) -> None:
        """Say what a check is doing that may take long."""
        self._write(f"{check.id}: {problems.sentence(stated)}")

    def ended(self, check: Check, result: Result) -> None:
        """Say how a check ended, or keep that for `finish` if it was skipped."""
        if result.outcome == SKIP:
            self._skipped.setdefault(_reason(result), []).append(check.id)
        else:
            self._write(f"{check.id}: {result.outcome}: {result.sentence}")

    def finish(self) -> None:
        """Say which checks were skipped, also if the run was cut short."""
        for reason, checks in self._skipped.items():
            which = f"{checks[0]}: skip" if len(checks) == 1 else f"{len(checks)} checks skipped"
            self._write(f"{which}: {reason}")


def _reason(result: Result) -> str:
    """Return the reason of a skipped check without the check that says more about it."""
    stated = {name: value for name, value in (result.statement or {}).items() if name != "check"}
    return problems.summary({"statement": stated, "problems": result.problems})
