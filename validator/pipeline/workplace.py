"""Choose what makes images and what runs them on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from ..assemble.assembler import Assembler
from ..assemble.base import Base
from ..assemble.base_finder import BasePolicy, Bases
from ..assemble.bytecode import Runner
from ..assemble.layer_table import LayerTable
from ..assemble.shared_rows import FILE as SHARED
from ..assemble.wheels import Wheelhouse
from ..engines.docker import DockerEngine, Endpoint, connect
from ..engines.docker.base_container import EngineImages
from ..engines.layout import LayoutEngine
from ..engines.protocol import Engine
from ..engines.venv import VenvEngine
from ..errors import MissingError
from ..locks.history import previous
from ..model.lock import Lock
from ..model.spec import ImageSpec
from ..resources import images_directory
from ..system.package_sources import PackageSources
from .compiling import compiler
from .size_budget import refuse_too_large


class EngineChoice(str, Enum):
    """The engine to use. AUTO: Docker if it can be used, otherwise virtual environments."""

    AUTO = "auto"
    DOCKER = "docker"
    VENV = "venv"


@dataclass(frozen=True)
class ImageSettings:
    """How images are made.

    base: the origin of default bases. layout: the OCI layout that images are
    written to, instead of an engine. locks: the directory of the locks, whose history a message may need.
    local: the directory that the paths of wheels in locks are relative to.
    renew: install system packages in the versions of today, also if there is a base with older ones.
    """

    base: BasePolicy = BasePolicy.AUTO
    layout: Path | None = None
    locks: Path | None = None
    local: Path | None = None
    renew: bool = False


@dataclass(frozen=True)
class OpenedEngine:
    """The engine, what makes its images (None: it has environments), and a line that describes the engine."""

    engine: Engine
    maker: Assembler | None
    description: str


def open_engine(
    choice: EngineChoice,
    sources: PackageSources,
    settings: ImageSettings,
    *,
    needs_images: bool,
    measures: bool,
) -> OpenedEngine:
    """Return what this machine can use.

    needs_images: virtual environments will not do. measures: the images will be run. Raises MissingError if
    Docker is needed and can't be used.
    """
    if choice is EngineChoice.VENV:
        return _environments(sources, "")
    try:
        endpoint = connect()
    except MissingError as error:
        if not measures and (needs_images or settings.layout):
            maker = assembler(sources, settings)
            engine = LayoutEngine(maker, settings.layout)
            return OpenedEngine(engine, maker, f"{engine.describe()}, because Docker can't be used: {error}")
        if choice is EngineChoice.DOCKER or needs_images:
            raise
        return _environments(sources, f", because Docker can't be used: {error}")
    maker = assembler(sources, settings, endpoint)
    if settings.layout is not None:
        layout = LayoutEngine(maker, settings.layout)
        return OpenedEngine(layout, maker, layout.describe())
    docker = DockerEngine(endpoint, maker)
    product, *details = docker.describe().split(", ")
    detected = " (detected)" if choice is EngineChoice.AUTO else ""
    return OpenedEngine(docker, maker, ", ".join([f"{product}{detected}", *details]))


def assembler(
    sources: PackageSources, settings: ImageSettings, endpoint: Endpoint | None = None
) -> Assembler:
    """Return what makes images. endpoint: an engine, which compiles byte code and may have bases."""
    places = [images_directory()] + ([settings.locks.parent] if settings.locks else [])
    table = LayerTable(shared=[place / SHARED for place in places])

    def runner(base: Base) -> Runner | None:
        return compiler(base, table, endpoint)

    def accept(spec: ImageSpec, lock: Lock, size: int, is_whole: bool) -> None:
        def before() -> Lock | None:
            return previous(settings.locks, spec.identifier) if settings.locks else None

        refuse_too_large(spec, size, lock, before, is_whole=is_whole)

    local = EngineImages(endpoint) if endpoint else None
    bases = Bases(settings.base, table, local, renew=settings.renew)
    return Assembler(bases, Wheelhouse(sources, local=settings.local), table, runner, accept)


def _environments(sources: PackageSources, why: str) -> OpenedEngine:
    engine = VenvEngine(sources)
    return OpenedEngine(engine, None, engine.describe() + why)
