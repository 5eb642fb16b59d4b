"""Say on a terminal that the facts are out of date."""

from __future__ import annotations

import datetime
import sys
from typing import TextIO

from .options import print_status


def say_if_stale(today: datetime.date | None = None, stream: TextIO | None = None) -> None:
    """Print one line to stderr if the facts are old, or don't know a release that `refresh --check` saw.

    Print only to a terminal, so that the output of scripts never depends on the date. Don't use the network.

    today: None for the date of this machine. stream: None for stderr.
    """
    if not (sys.stderr if stream is None else stream).isatty():
        return
    from ..compat.freshness import remark
    from ..supply.remembered import recall

    found = remark(today or datetime.date.today(), recall())
    if found:
        print_status(found)
