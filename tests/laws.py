"""Check all laws about one thing in one test, and name those that it breaks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import pytest

Subject = TypeVar("Subject")


def check(laws: Iterable[Callable[[Subject], object]], subject: Subject) -> None:
    """Call each law with the subject. Fail the test with the name and the error of every law that raised."""
    __tracebackhide__ = True
    broken = []
    for law in laws:
        try:
            law(subject)
        except Exception as error:  # the other laws are checked all the same
            broken.append(f"{law.__name__}: {type(error).__name__}: {error}")
    if broken:
        pytest.fail("\n\n".join(broken), pytrace=False)
