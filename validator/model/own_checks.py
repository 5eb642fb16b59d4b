"""The extra checks that an image with additions must pass."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from .additions import NAME, PREFIX, CheckFile

#: The check that imports the added packages.
PACKAGES = "packages"


class OwnCheck(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A check of the user's own that was packed into the probe.

    id: `ours/our_check`. sha256: of its file, in hex. required: the matrix requires it to pass.
    """

    id: str
    sha256: str
    required: bool


def own_check(file: CheckFile) -> OwnCheck:
    """Return the check of a file, as measurements and certificates name it."""
    return OwnCheck(file.id, file.sha256, file.required)


def is_own(identifier: str) -> bool:
    """Return True for the id of a check of the user's own."""
    return identifier.startswith(PREFIX) and NAME.fullmatch(identifier[len(PREFIX) :]) is not None


def also_required(has_additions: bool, own: Iterable[OwnCheck]) -> tuple[str, ...]:
    """Return the ids of the checks that an image has to pass besides those of every image.

    has_additions: as the image spec or its identifier says, never a report: what is in the image writes that.
    """
    packages = (PACKAGES,) if has_additions else ()
    return (*packages, *(check.id for check in own if check.required))
