"""Both documents about what is in an image, by the type that signed statements give them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..assemble.base_contents import BaseContents
from ..model.lock import Lock
from . import cyclonedx, spdx
from .bill import Bill, bill
from .licenses import declared_licenses

#: The predicate type of each format, by the name that people give it.
PREDICATES = {"cyclonedx": cyclonedx.PREDICATE, "spdx": spdx.PREDICATE}


def documents_of_lock(lock: Lock, base: BaseContents) -> dict[str, dict[str, Any]]:
    """Return the documents about the image of a lock on a base, with the licences of the wheels in the cache.

    Raises InputError if SOURCE_DATE_EPOCH is not a time.
    """
    return documents(bill(lock, base, licenses=declared_licenses(lock)))


def documents(listed: Bill) -> dict[str, dict[str, Any]]:
    """Return the document of each predicate type."""
    return {cyclonedx.PREDICATE: cyclonedx.cyclonedx(listed), spdx.PREDICATE: spdx.spdx(listed)}


def render(document: Mapping[str, Any]) -> str:
    """Return a document as text. Equal documents give the same text."""
    return f"{json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False)}\n"
