"""Find a fleet engine by its name."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, cast

from ..errors import InputError
from .protocol import Fleet

#: The function that makes a module of this package an engine.
_ENTRY = "open_fleet"


def opener_of(name: str) -> Callable[[Any], Fleet]:
    """Return the `open_fleet` of an engine. Raises InputError if there is no engine of this name."""
    try:
        module = importlib.import_module(f"{__package__}.{name}") if name.isidentifier() else None
    except ModuleNotFoundError as error:
        if error.name != f"{__package__}.{name}":
            raise
        module = None
    opener = getattr(module, _ENTRY, None)
    if opener is None:
        raise InputError(
            f"there is no fleet engine {name!r}", hint="use --on slurm, --on kubernetes or --on local"
        )
    return cast("Callable[[Any], Fleet]", opener)
