"""Compare an image in a registry with what its lock and its base give."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ..assemble import names
from ..assemble.bases import BasePolicy, Bases
from ..assemble.encodings import encoding
from ..assemble.layers import Layers
from ..assemble.progress import Progress
from ..assemble.rebuild import Compared, published_image, rebuild
from ..assemble.sources import plan_image
from ..assemble.table import LayerTable
from ..assemble.wheels import Wheelhouse
from ..engines.docker import Endpoint, connect
from ..errors import InputError, MissingError
from ..model.lock import Lock
from ..model.spec import ImageSpec
from ..registry.names import Repository
from ..system.sources import PackageSources
from .compiling import compiler

_REGISTRY = f"{BasePolicy.REGISTRY.value}:"


def rebuild_image(
    repository: Repository,
    digest: str,
    spec: ImageSpec,
    lock: Lock,
    sources: PackageSources,
    progress: Progress,
    local: Path | None = None,
) -> tuple[Compared, ...]:
    """Make every layer of an image again from a lock and the base that the image names.

    local: the directory that the paths of wheels in the lock are relative to.
    Layers that are equal then count as made by this machine. Raises InputError if the image does not name its
    base or names another one than the matrix asks for, and MissingError if the base, a wheel or a compiler
    for byte code is missing.
    """
    table = LayerTable()
    image = published_image(repository, digest)
    origin = image.labels.get(names.LABEL_BASE, "")
    if not origin:
        raise InputError(f"{repository.at(digest)} is not one of these images: it does not name its base")
    # What an image says about its base proves nothing: a stranger could have put anything into that base.
    if not Bases(BasePolicy.AUTO, table).is_current(spec, origin):
        raise InputError(
            f"{repository.at(digest)} was made from the base {origin}, which is not the one of {spec} here",
            hint="run the command in the commit that the image was built from",
        )
    if origin.startswith(_REGISTRY):
        bases, wanted = Bases(BasePolicy.REGISTRY, table), replace(spec, base=origin.removeprefix(_REGISTRY))
    else:
        bases, wanted = Bases(BasePolicy.BOOTSTRAP, table), spec
    base = bases.base(wanted, progress)
    house = Wheelhouse(sources, local=local)
    try:
        plan = plan_image(spec, lock, base, house, table)
        if len(image.diff_ids) > len(base.layers) + len(plan.layers) + 1:
            runner = compiler(base, table, encoding(Layers.ZSTD), _engine())
            if runner is None:
                raise MissingError(
                    f"the byte code of {spec} can't be compiled again: neither a Docker Engine nor bubblewrap"
                    " can run the base's Python here",
                    hint="install bubblewrap, or start a Docker Engine",
                )
            plan = plan_image(spec, lock, base, house, table, runner)
        house.fetch(lock.wheels, progress)
        return rebuild(image, plan, table, progress)
    finally:
        house.close()


def _engine() -> Endpoint | None:
    try:
        return connect()
    except MissingError:
        return None
