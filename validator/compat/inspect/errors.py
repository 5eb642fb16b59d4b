"""The error of this package."""

from __future__ import annotations

from validator.errors import InputError


class InspectionError(InputError):
    """The file is not what its name says, or is cut short or damaged."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(
            message, hint=hint or "download the wheel again and compare its SHA-256 with the index"
        )
