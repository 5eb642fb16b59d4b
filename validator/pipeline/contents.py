"""Find out what is in the image of a lock without making it, and attach the list to a published image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..assemble import bootstrap
from ..assemble.base_finder import BaseContents, BasePolicy, Bases, contents, contents_of_suite
from ..assemble.image import Compared, published_image, rebuild
from ..assemble.layer_table import LayerTable
from ..assemble.wheel_layers import plan_image
from ..assemble.wheels import Wheelhouse
from ..certify.provenance import Refusal, attach_sbom, provenance_of, sbom_of
from ..certify.signatures import Signer
from ..certify.trust import TrustFile
from ..engines.docker.endpoint import Endpoint, connect, connect_any
from ..engines.docker.engine import EngineImages
from ..errors import InputError, MissingError, ValidatorError
from ..model.record import BaseOrigin
from ..model.spec import LABEL_BASE, ImageSpec, Lock
from ..registry.client import Registry
from ..sbom import document_of_lock
from ..system.package_sources import PackageSources
from ..system.processes import Progress
from .opened_engine import compiler

UNLISTED = "use --base unlisted to list only the wheels"


def list_published(
    registry: Registry,
    digest: str,
    spec: ImageSpec,
    lock: Lock,
    trust: TrustFile,
    signer: Signer,
    progress: Progress,
    *,
    with_base: bool = True,
) -> bool:
    """Sign the list of what is in an image and attach it, if the image was pushed without it.

    with_base: also list the packages of its base. Returns False if it has its list already. Raises
    ValidatorError if no builder of the trust file says that the image was made from this lock, and
    MissingError if its base can't be read here, or the registry or cosign fails.
    """
    made = provenance_of(registry, digest, trust, image=spec.identifier, lock_digest=lock.digest)
    if isinstance(made, Refusal):
        raise ValidatorError(
            f"{registry.repository.at(digest)}: {made.why}",
            hint="run the command in the commit that the image was built from, with the trust file that lists"
            " its builder",
        )
    if not isinstance(sbom_of(registry, digest, trust), Refusal):
        return False
    origin = str(made.inputs.base)
    base = contents_of_origin(spec, origin, progress) if with_base else BaseContents(origin)
    attach_sbom(registry, digest, document_of_lock(lock, base), signer)
    return True


def contents_of_origin(spec: ImageSpec, origin: str, progress: Progress) -> BaseContents:
    """Return what the base of an image has. origin: as in `Base.origin`.

    Raises MissingError if the packages of that very base can't be listed here.
    """
    for suite in bootstrap.SUITES.values():
        if origin == bootstrap.origin(suite):
            return contents_of_suite(suite)
    named = BaseOrigin.parse(origin)
    if named and named.kind == BasePolicy.REGISTRY.value and named.digest and not named.asked:
        bases = Bases(BasePolicy.REGISTRY, LayerTable())
        found = contents(bases.base(replace(spec, base=named.plain, additions=None), progress))
        if found.origin == origin:
            return found
    raise MissingError(f"the packages of the base {origin} can't be listed here", hint=UNLISTED)


def base_contents(spec: ImageSpec, policy: BasePolicy, progress: Progress) -> BaseContents:
    """Return what the base of an image spec has, as `build-matrix --base` would choose it here.

    Raises MissingError if the base can't be read here.
    """
    suite = bootstrap.SUITES.get(spec.python)
    plain = spec.base is None and not (spec.additions and spec.additions.system_packages)
    if plain and suite is not None and policy is BasePolicy.BOOTSTRAP:
        return contents_of_suite(suite)
    try:
        local = EngineImages(connect_any(connect))
    except MissingError:
        local = None
    # Its packages are those of a lock, so a bootstrapped base need not be made to list them.
    first = BasePolicy.REGISTRY if plain and suite is not None else policy
    try:
        return contents(Bases(first, LayerTable(), local).base(spec, progress))
    except MissingError as error:
        if first is policy or suite is None:
            raise
        progress(f"{error}; listing the packages of Debian {suite} instead")
        return contents_of_suite(suite)


# Compare an image in a registry with what its lock and its base give.


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
    origin = image.labels.get(LABEL_BASE, "")
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
        return connect_any(connect)
    except MissingError:
        return None
