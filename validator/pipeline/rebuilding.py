"""Compare an image in a registry with what its lock and its base give."""

from __future__ import annotations

from dataclasses import replace

from ..assemble import names
from ..assemble.bases import BasePolicy, Bases
from ..assemble.progress import Progress
from ..assemble.rebuild import Compared, published_image, rebuild
from ..assemble.sources import plan_image
from ..assemble.table import LayerTable
from ..assemble.wheels import Wheelhouse
from ..errors import InputError, MissingError
from ..model.lock import Lock
from ..model.spec import ImageSpec
from ..registry.names import Repository
from ..system.sources import PackageSources
from .compiling import NO_COMPILER, compiler

_REGISTRY = f"{BasePolicy.REGISTRY.value}:"


def rebuild_image(
    repository: Repository,
    digest: str,
    spec: ImageSpec,
    lock: Lock,
    sources: PackageSources,
    progress: Progress,
    table: LayerTable | None = None,
) -> tuple[Compared, ...]:
    """Make every layer of an image again from a lock and the base that the image names.

    Layers that are equal then count as made by this machine. Raises InputError if the image does not name its
    base, and MissingError if the base, a wheel or a compiler for byte code can't be had.
    """
    table = table or LayerTable()
    image = published_image(repository, digest)
    origin = image.labels.get(names.LABEL_BASE, "")
    if not origin:
        raise InputError(f"{repository.at(digest)} is not one of these images: it does not name its base")
    if origin.startswith(_REGISTRY):
        bases, wanted = Bases(BasePolicy.REGISTRY, table), replace(spec, base=origin.removeprefix(_REGISTRY))
    else:
        bases, wanted = Bases(BasePolicy.BOOTSTRAP, table), spec
    base = bases.base(wanted, progress)
    house = Wheelhouse(sources)
    try:
        plan = plan_image(spec, lock, base, house, table)
        if len(image.diff_ids) > len(base.layers) + len(plan.layers) + 1:
            runner = compiler(base, table)
            if runner is None:
                raise MissingError(
                    f"the byte code of {spec} can't be compiled again: {NO_COMPILER}",
                    hint="install bubblewrap, or start a Docker engine",
                )
            plan = plan_image(spec, lock, base, house, table, runner)
        house.fetch(lock.wheels, progress)
        return rebuild(image, plan, table, progress)
    finally:
        house.close()
