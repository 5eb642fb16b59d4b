"""Both documents about what is in an image, by the type that signed statements give them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from . import cyclonedx, spdx
from .bill import Bill

#: The predicate type of each format, by the name that people give it.
PREDICATES = {"cyclonedx": cyclonedx.PREDICATE, "spdx": spdx.PREDICATE}


def documents(bill: Bill) -> dict[str, dict[str, Any]]:
    """Return the document of each predicate type."""
    return {cyclonedx.PREDICATE: cyclonedx.cyclonedx(bill), spdx.PREDICATE: spdx.spdx(bill)}


def render(document: Mapping[str, Any]) -> str:
    """Return a document as text. Equal documents give the same text."""
    return f"{json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False)}\n"
