"""The errors of an engine."""

from __future__ import annotations

from ...errors import MissingError


def engine_gone(what: str) -> MissingError:
    """Return the error for an engine that stopped responding."""
    return MissingError(
        f"{what}: the Docker Engine stopped responding",
        hint="start it again and repeat the command; finished work is kept",
    )


def disk_full(what: str) -> MissingError:
    """Return the error for an engine whose disk is full."""
    return MissingError(
        f"{what}: no space left on the engine's disk",
        hint="free some with `docker image prune`, then repeat the command",
    )
