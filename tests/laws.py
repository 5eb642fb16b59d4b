"""Check all laws about one subject in one test, and name those that it breaks; choose the subjects to try."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import pytest
from hypothesis import settings

Subject = TypeVar("Subject")
#: `scripts/test --fast` tries one subject out of this many.
_SHARE = 8


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


def subjects_to_try(subjects: Sequence[Subject], position: int = 0) -> Sequence[Subject]:
    """Return all subjects, or a share of them in `scripts/test --fast`, which tries fewer examples.

    position: the number of this test among those with the same subjects, which together try all of them.
    """
    is_fast = settings().max_examples < settings.get_profile("whole").max_examples
    return subjects[position % _SHARE :: _SHARE] if is_fast else subjects
