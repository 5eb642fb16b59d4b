"""Say which release should work on the machine that a text shows, if the text shows no cause."""

from __future__ import annotations

from ..compat.offers import needs_another_python, newest_that_works, notes_about, why_not
from ..compat.other_driver import other_driver
from ..model.situation import Host


def suitable_release(host: Host, python: str | None) -> str:
    """Return which release should work on a GPU and driver, as sentences; empty if one of them is not known.

    host, python: what is known about the machine. An unknown system counts as Linux.
    """
    if not host.names_gpu or not host.names_driver:
        return ""
    chosen = newest_that_works(host, python)
    if chosen is None:
        # A driver that is too new for the GPU is a cause.
        other = other_driver(host, python)
        helps = f" Driver {other.driver} or newer would help." if other and not other.is_older else ""
        return (
            "No release of TensorFlow since 2.8 is expected to use this GPU with this driver:"
            f" {why_not(host, python)}.{helps}"
        )
    python = f" with Python {chosen.python}" if needs_another_python(chosen, python) else ""
    install = f'`python -m pip install "{chosen.requirement}"`'
    works = f"On this GPU and driver, TensorFlow {chosen.release.version} should work{python}: {install}."
    return " ".join([works, *notes_about(chosen)])
