"""Which engine a run uses: the one that was named, or docker where one answers."""

from __future__ import annotations

from enum import Enum

from ..engines.base import Engine
from ..engines.docker import BasePolicy, find
from ..engines.venv import VenvEngine
from ..errors import MissingError
from ..system.sources import PackageSources


class EngineChoice(str, Enum):
    """What may be asked for."""

    AUTO = "auto"
    DOCKER = "docker"
    VENV = "venv"


def choose_engine(
    choice: EngineChoice,
    sources: PackageSources,
    base: BasePolicy = BasePolicy.AUTO,
    cache: str | None = None,
) -> tuple[Engine, str]:
    """The engine, and one line that says which it is and why. cache: see `DockerEngine`.

    Raises MissingError when docker was named and none answers.
    """
    if choice is EngineChoice.VENV:
        engine: Engine = VenvEngine(sources)
        return engine, f"venv, as asked: {engine.describe()}"
    try:
        engine = find(sources, base, cache)
    except MissingError as error:
        if choice is EngineChoice.DOCKER:
            raise
        engine = VenvEngine(sources)
        return engine, f"venv, since docker can't be used ({error}): {engine.describe()}"
    why = "as asked" if choice is EngineChoice.DOCKER else "since it answers"
    return engine, f"docker, {why}: {engine.describe()}"
