"""Say which release should work on the machine that a text shows, if the text shows no cause."""

from __future__ import annotations

from ..compat.other_driver import other_driver
from ..compat.suggest import needs_another_python, newest_that_works, suggestion_notes, why_nothing_works
from ..model.situation import Situation


def suitable_release(read: Situation) -> str:
    """Return which release should work on a GPU and driver, as sentences; empty if one of them is not known.

    read: what is known about the machine. An unknown system counts as Linux.
    """
    if not (read.gpu or read.capability) or not (read.driver or read.driver_cuda):
        return ""
    suggested = newest_that_works(read)
    if suggested is None:
        # A driver that is too new for the GPU is a cause.
        other = other_driver(read)
        helps = f" Driver {other.driver} or newer would help." if other and not other.is_older else ""
        return (
            "No release of TensorFlow since 2.8 is expected to use this GPU with this driver:"
            f" {why_nothing_works(read)}.{helps}"
        )
    python = f" with Python {suggested.python}" if needs_another_python(suggested, read.python) else ""
    install = f'`python -m pip install "{suggested.requirement}"`'
    works = f"On this GPU and driver, TensorFlow {suggested.release.version} should work{python}: {install}."
    return " ".join([works, *suggestion_notes(suggested)])
