"""Explains a failed build by its cause."""

from __future__ import annotations

import re

from ...errors import BuildError, MissingError, ValidatorError
from ...locks.uv_errors import explain
from ...system.files import says_full_disk
from ...system.sources import PackageSources
from .buildlog import BuildLog

_ENGINE_GONE = re.compile(
    r"Cannot connect to the Docker daemon|error during connect|code = Unavailable"
    r"|error reading from server: EOF|closing transport|failed to receive status: rpc error: code = Canceled"
    r"|no such host.*docker\.sock|docker\.sock: connect: (?:connection refused|no such file)"
)
_NO_BASE = re.compile(r"failed to resolve source metadata for (?P<name>\S+): ")
_OFFLINE = re.compile(
    r"no such host|i/o timeout|connection refused|TLS handshake|network is unreachable|dial tcp"
)
#: Stages that install no wheels. Failures in all other stages are explained by uv's output.
_NOT_WHEELS = {None, "runtime", "venv", "cpu", "gpu", "tools"}


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
        hint="free some with `docker buildx prune` and `docker image prune`, then repeat the command",
    )


def explain_build(what: str, log: BuildLog, sources: PackageSources, *, answers: bool) -> ValidatorError:
    """Return the error for a failed build.

    what: the image, which begins the message. answers: True if the engine still responds.
    """
    text = sources.redact(log.tail)
    stage, output = log.failed_stage, sources.redact(log.failed_output)
    if not answers or _ENGINE_GONE.search(log.tail):
        return engine_gone(what)
    if says_full_disk(log.tail) or says_full_disk(log.failed_output):
        return disk_full(what)
    if (match := _NO_BASE.search(log.tail)) and stage is None:
        hint = "check the engine's network and proxy settings, or use --base bootstrap"
        if _OFFLINE.search(log.tail):
            return MissingError(
                f"{what}: the base image can't be pulled: the registry can't be reached", hint=hint
            )
        return MissingError(f"{what}: the base image {match['name']} can't be pulled", hint=hint)
    if stage not in _NOT_WHEELS and output.strip():
        error = explain(output, f"{what}: the {stage} wheels can't be installed")
        return BuildError(str(error), hint=error.hint, log=text) if isinstance(error, BuildError) else error
    last = [line for line in output.splitlines() if line.strip()][-1:] or [sources.redact(log.error)]
    where = f" in the stage {stage}" if stage else ""
    return BuildError(f"{what}: the build failed{where}: {last[0] or 'no message from buildx'}", log=text)
