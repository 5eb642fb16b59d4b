"""Errors that name the field of a question that somebody has to change."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from ..compat.errors import UnknownNameError
from ..errors import InputError


class RejectedField(InputError):
    """The value of a field can't be used.

    field: the name of the field. nearest: known names near the one that was written.
    """

    def __init__(self, field: str, error: InputError) -> None:
        super().__init__(str(error), hint=error.hint)
        self.field = field
        self.nearest = error.nearest if isinstance(error, UnknownNameError) else ()


@contextlib.contextmanager
def rejecting(field: str) -> Iterator[None]:
    """Name the field in the InputError that its text causes."""
    try:
        yield
    except InputError as error:
        raise RejectedField(field, error) from error
