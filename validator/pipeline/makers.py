"""Choose what makes and runs images on this machine, and find out what is in an image without making it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from pathlib import Path

from ..assemble import bootstrap
from ..assemble.base import Base
from ..assemble.base_finder import BaseContents, BasePolicy, Bases, contents, contents_of_suite
from ..assemble.bytecode import Runner, bubblewrap
from ..assemble.image import Assembler, Compared, published_image, put_base, rebuild
from ..assemble.layer_table import FILE as SHARED
from ..assemble.layer_table import LayerTable
from ..assemble.wheel_layers import plan_image
from ..assemble.wheels import Wheelhouse
from ..certify.provenance import Refusal, attach_sbom, provenance_of, sbom_of
from ..certify.signatures import Signer
from ..certify.trust import TrustFile
from ..engines.docker import BaseContainer, DockerEngine, EngineImages
from ..engines.endpoint import Endpoint, connect, connect_any, connect_podman
from ..engines.protocol import Engine
from ..engines.venv import LayoutEngine, VenvEngine
from ..errors import BuildError, InputError, MissingError, ValidatorError
from ..locks.lock_files import LockDirectory, previous
from ..model.record import BaseOrigin
from ..model.spec import LABEL_BASE, ImageSpec, Lock, Wheel
from ..registry.client import Registry
from ..resources import images_directory
from ..sbom import document_of_lock
from ..system.package_sources import PackageSources
from ..system.processes import Progress


class EngineChoice(str, Enum):
    """The engine to use. AUTO: Docker if it can be used, else Podman, otherwise virtual environments."""

    AUTO = "auto"
    DOCKER = "docker"
    PODMAN = "podman"
    VENV = "venv"


@dataclass(frozen=True)
class ImageSettings:
    """How images are made. base: the origin of default bases.

    layout: the OCI layout that images are written to, instead of an engine.
    locks: the directory of the locks, whose history a message may need.
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
        if choice is EngineChoice.AUTO:
            endpoint = connect_any(connect)
        else:
            endpoint = connect_podman() if choice is EngineChoice.PODMAN else connect()
    except MissingError as error:
        if not measures and (needs_images or settings.layout):
            maker = assembler(sources, settings)
            engine = LayoutEngine(maker, settings.layout)
            return OpenedEngine(engine, maker, f"{engine.describe()}, because Docker can't be used: {error}")
        if choice is not EngineChoice.AUTO or needs_images:
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

    def accept(spec: ImageSpec, lock: Lock, size: int, is_whole: bool) -> None:
        def before() -> Lock | None:
            return previous(settings.locks, spec.identifier) if settings.locks else None

        refuse_too_large(spec, size, lock, before, is_whole=is_whole)

    bases = Bases(settings.base, table, _images(endpoint), renew=settings.renew)
    house, runner = Wheelhouse(sources, local=settings.local), partial(compiler, table, endpoint)
    return Assembler(bases, house, table, runner, accept)


def _environments(sources: PackageSources, why: str) -> OpenedEngine:
    engine = VenvEngine(sources)
    return OpenedEngine(engine, None, engine.describe() + why)


def compiler(table: LayerTable, endpoint: Endpoint | None, base: Base) -> Runner | None:
    """Return what runs the Python of a base: a container of the engine, bubblewrap without one, or None."""
    if endpoint is None:
        return bubblewrap(base)
    return BaseContainer(endpoint, base, lambda destination: put_base(base, destination, table))


def _engine() -> Endpoint | None:
    try:
        return connect_any(connect)
    except MissingError:
        return None


def _images(engine: Endpoint | None) -> EngineImages | None:
    return EngineImages(engine) if engine else None


# The size budget of an image: refuse one that is larger, and say what makes it large.

#: A message names this many wheels, and this many changes.
_SHOWN = 5


def refuse_too_large(
    spec: ImageSpec, size: int, lock: Lock, previous: Callable[[], Lock | None], *, is_whole: bool
) -> None:
    """Raise BuildError if the image exceeds its budget, with the largest wheels and the changes of the lock.

    size: the sum of the compressed layers, with those of the base: what a pull downloads, in bytes.
    previous: returns the lock before its last change, if it is known.
    is_whole: False if the sizes of some layers are not known yet.
    """
    if spec.max_size is None or size <= spec.max_size:
        return
    largest = sorted(lock.wheels, key=lambda wheel: wheel.size or 0, reverse=True)[:_SHOWN]
    sizes = ["of unknown size" if one.size is None else f"{one.size / 1e6:,.0f} MB" for one in largest]
    wheels = ", ".join(f"{wheel.name} {size}" for wheel, size in zip(largest, sizes, strict=True))
    before = previous()
    changes = _changes(before, lock) if before else ""
    least = "" if is_whole else "at least "

    def readable(size: int) -> str:
        return f"{size / 1e9:,.2f} GB" if size >= 1e9 else f"{size / 1e6:,.1f} MB"

    raise BuildError(
        f"{spec}: the image has {least}{readable(size)}, but max_size is {readable(spec.max_size)}."
        f" The largest wheels are {wheels}.{changes}",
        hint="leave out what is not needed, or raise max_size in the matrix",
    )


def _changes(previous: Lock, lock: Lock) -> str:
    """Return the sentence about what changed, the largest changes first."""
    before = {wheel.name: wheel for wheel in previous.wheels}
    after = {wheel.name: wheel for wheel in lock.wheels}
    changed = [name for name in before.keys() | after.keys() if before.get(name) != after.get(name)]

    def growth(name: str) -> int:
        sizes = [wheels[name].size or 0 if name in wheels else 0 for wheels in (before, after)]
        return sizes[1] - sizes[0]

    ordered = sorted(changed, key=lambda name: (-abs(growth(name)), name))
    if not ordered:
        return ""
    shown = []
    for name in ordered[:_SHOWN]:
        old, new = before.get(name), after.get(name)
        if old is None:
            text = f"{new} was added"
        elif new is None:
            text = f"{old} was removed"
        else:
            text = f"{old} is another file" if str(old) == str(new) else f"{old} became {new.version}"
        shown.append(f"{text} ({growth(name) / 1e6:+,.1f} MB)")
    more = f" and {len(ordered) - _SHOWN} more" if len(ordered) > _SHOWN else ""
    return f" Since the last lock: {', '.join(shown)}{more}."


# Estimate, before anything is fetched, how much a run downloads and stores.

#: What an image takes, relative to its wheels: tf2.21.0-cuda12.5-cudnn9.3-py311 has 2.6 GB of wheels and
#: takes 8.1 GB in Docker's containerd store, which keeps layers compressed and unpacked.
_STORED = 3.1


@dataclass(frozen=True)
class Estimate:
    """How many images need nothing (`there`), have a lock (`images`) or have none yet (`unlocked`).

    In bytes: wheels: all different ones of these images. download: those that are not here. largest: what the
    largest image takes in an engine.
    """

    there: int
    images: int
    unlocked: int
    wheels: int
    download: int
    largest: int


def estimate(
    specs: Iterable[ImageSpec],
    locks: LockDirectory,
    missing: Callable[[Iterable[Wheel]], Iterable[Wheel]],
    is_here: Callable[[ImageSpec, Lock], bool],
) -> Estimate:
    """Return the estimate for these images.

    missing: returns the wheels that would have to be downloaded. is_here: tells whether an image is made.
    """
    found = [(spec, locks.read(spec.identifier)) for spec in specs]
    here = {spec for spec, lock in found if lock is not None and is_here(spec, lock)}
    locked = [lock for spec, lock in found if lock is not None and spec not in here]
    wheels = list({wheel.sha256: wheel for lock in locked for wheel in lock.wheels}.values())
    return Estimate(
        there=len(here),
        images=len(locked),
        unlocked=len(found) - len(locked) - len(here),
        wheels=_bytes_of(wheels),
        download=_bytes_of(missing(wheels)),
        largest=round(_STORED * max((lock.size for lock in locked), default=0)),
    )


def _bytes_of(wheels: Iterable[Wheel]) -> int:
    return sum(wheel.size or 0 for wheel in wheels)


UNLISTED = "use --base unlisted to list only the wheels"


def list_published(
    registry: Registry, digest: str, spec: ImageSpec, lock: Lock, trust: TrustFile, signer: Signer,
    progress: Progress, *, with_base: bool = True,
) -> bool:  # fmt: skip
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
    # Its packages are those of a lock, so a bootstrapped base need not be made to list them.
    first = BasePolicy.REGISTRY if plain and suite is not None else policy
    try:
        return contents(Bases(first, LayerTable(), _images(_engine())).base(spec, progress))
    except MissingError as error:
        if first is policy or suite is None:
            raise
        progress(f"{error}; listing the packages of Debian {suite} instead")
        return contents_of_suite(suite)


# Compare an image in a registry with what its lock and its base give.


def rebuild_image(
    registry: Registry, digest: str, spec: ImageSpec, lock: Lock, sources: PackageSources, progress: Progress,
    local: Path | None = None,
) -> tuple[Compared, ...]:  # fmt: skip
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
    if found.kind == BasePolicy.REGISTRY.value:
        bases, wanted = Bases(BasePolicy.REGISTRY, table, _images(engine)), replace(spec, base=found.plain)
    else:
        bases, wanted = Bases(BasePolicy.BOOTSTRAP, table), spec
    base = bases.base(wanted, progress)
    if packages and image.diff_ids[: len(base.layers)] != tuple(layer.diff_id for layer in base.layers):
        raise _not_comparable(reference, packages)
    house = Wheelhouse(sources, local=local)
    try:
        plan = plan_image(spec, lock, base, house, table)
        if len(image.diff_ids) > len(base.layers) + len(plan.layers) + 1:
            runner = compiler(table, engine, base)
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
    return InputError(
        f"{image} can't be compared: {', '.join(packages)} were installed in its base, in the versions of"
        " that day, and that layer can't be made again byte for byte",
        hint="to have an image that can be compared, install them in a base of your own, push it, and name it"
        " with its digest under `base`, instead of `system_packages`",
    )
