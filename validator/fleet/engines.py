"""Find a fleet engine by its name."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from .protocol import Fleet

if TYPE_CHECKING:
    from .proposal import Surveyor


def opener_of(name: str) -> Callable[[Any], Fleet]:
    """Return the `open_fleet` of an engine. Raises InputError if there is no engine of this name."""
    opener: Callable[[Any], Fleet] | None = _function(name, "open_fleet")
    if opener is None:
        raise InputError(
            f"there is no fleet engine {name!r}", hint="use --on slurm, --on kubernetes or --on local"
        )
    return opener


def surveyor_of(name: str) -> Callable[[Any], Surveyor]:
    """Return the `open_surveyor` of an engine. Raises InputError if it has none."""
    opener_of(name)
    opener: Callable[[Any], Surveyor] | None = _function(name, "open_surveyor")
    if opener is None:
        raise InputError(
            f"the fleet engine {name} can't propose a file",
            hint="write fleet.yaml by hand; its manual has an example",
        )
    return opener


def _function(module_name: str, function: str) -> Any:
    """Return a function of a module of this package, or None if there is no such module or function."""
    if not module_name.isidentifier():
        return None
    try:
        return getattr(importlib.import_module(f"{__package__}.{module_name}"), function, None)
    except ModuleNotFoundError as error:
        if error.name != f"{__package__}.{module_name}":
            raise
        return None
