"""Compare objects with the models of Kubernetes' own client, which are generated from the API's schema.

They know each field, its type, and whether it is required. They don't know the values that a text may have.
"""

from __future__ import annotations

from typing import Any

import pytest

Json = dict[str, Any]


def faults(document: Json) -> list[str]:
    """Return the path of each field that the API does not have, or that is missing or of another type."""
    client = pytest.importorskip("kubernetes.client", reason="the extra kubernetes is not installed")
    from pydantic import ValidationError

    try:
        model = getattr(client, f"V1{document['kind']}").model_validate(document)
    except ValidationError as error:
        return sorted(".".join(map(str, one["loc"])) for one in error.errors())
    # The models also accept Python's names of fields, such as `mount_path`, which the API does not.
    known = model.model_dump(by_alias=True, exclude_unset=True, mode="json")
    return [] if known == document else ["a field has its name in Python"]
