"""Compare an image in a registry with what its lock and its base give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..assemble import image_names
from ..assemble.base_finder import BasePolicy, Bases
from ..assemble.layer_sources import plan_image
from ..assemble.layer_table import LayerTable
from ..assemble.progress import Progress
from ..assemble.rebuild import Compared, published_image, rebuild
from ..assemble.wheels import Wheelhouse
from ..engines.docker import Endpoint, connect
from ..engines.docker.base_container import EngineImages
from ..errors import InputError, MissingError
from ..model.base_origin import BaseOrigin
from ..model.lock import Lock
from ..model.spec import ImageSpec
from ..registry.client import Registry
from ..system.package_sources import PackageSources
from .compiling import compiler


def rebuild_image(
    registry: Registry,
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
    base, names another one than the matrix asks for, or has system packages that can't be installed in the
    same way again, and MissingError if the base, a wheel or a compiler for byte code is missing.
    """
    table = LayerTable()
    image, reference = published_image(registry, digest), registry.repository.at(digest)
    origin = image.labels.get(image_names.LABEL_BASE, "")
    if not origin:
        raise InputError(f"{reference} is not one of these images: it does not name its base")
    # What an image says about its base proves nothing: a stranger could have put anything into that base.
    if not Bases(BasePolicy.AUTO, table).is_current(spec, origin):
        raise InputError(
            f"{reference} was made from the base {origin}, which is not the one of {spec} here",
            hint="run the command in the commit that the image was built from",
        )
    found, engine = BaseOrigin.parse(origin), _engine()
    assert found is not None
    packages = spec.additions.system_packages if spec.additions else ()
    if found.asked:
        raise _not_comparable(reference, packages)
    images = EngineImages(engine) if engine else None
    if found.kind == BasePolicy.REGISTRY.value:
        bases, wanted = Bases(BasePolicy.REGISTRY, table, images), replace(spec, base=found.plain)
    else:
        bases, wanted = Bases(BasePolicy.BOOTSTRAP, table), spec
    base = bases.base(wanted, progress)
    if packages and image.diff_ids[: len(base.layers)] != tuple(layer.diff_id for layer in base.layers):
        raise _not_comparable(reference, packages)
    house = Wheelhouse(sources, local=local)
    try:
        plan = plan_image(spec, lock, base, house, table)
        if len(image.diff_ids) > len(base.layers) + len(plan.layers) + 1:
            runner = compiler(base, table, engine)
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


def _not_comparable(image: str, packages: Sequence[str]) -> InputError:
    """Return the error for an image whose base can't be made again."""
    return InputError(
        f"{image} can't be compared: {', '.join(packages)} were installed in its base, in the versions of"
        " that day, and that layer can't be made again byte for byte",
        hint="to have an image that can be compared, install them in a base of your own, push it, and name it"
        " with its digest under `base`, instead of `system_packages`",
    )


def _engine() -> Endpoint | None:
    try:
        return connect()
    except MissingError:
        return None
