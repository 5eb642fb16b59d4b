"""Say what the facts mean for a command: that they are out of date, and why they recommend versions."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from datetime import date
from typing import TextIO

from ..model.spec import ImageSpec
from .options import print_status


def say_if_stale(today: date | None = None, stream: TextIO | None = None) -> None:
    """Print one line to stderr if the facts are old, or don't know a release that `refresh --check` saw.

    Print only to a terminal, so that the output of scripts never depends on the date. Don't use the network.

    today: None for the date of this machine. stream: None for stderr.
    """
    if not (sys.stderr if stream is None else stream).isatty():
        return
    from ..compat.freshness import remark
    from ..supply.remembered import recall

    found = remark(today or date.today(), recall())
    if found:
        print_status(found)


def say_recommended(images: Iterable[ImageSpec]) -> None:
    """Print why `recommended` takes its versions, for each release of which an image has them."""
    from ..compat.policies import is_recommended, why_recommended
    from ..compat.releases import release

    for tensorflow in dict.fromkeys(spec.tensorflow for spec in images if is_recommended(spec)):
        print_status(f"Recommended for TensorFlow {tensorflow}: {why_recommended(release(tensorflow))}.")
