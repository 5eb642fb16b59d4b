"""Make the layers of an image out of wheels."""

from __future__ import annotations

import hashlib
import json
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from typing import Protocol

from ..model.lock import Lock, Wheel
from ..model.spec import ImageSpec, Variant
from . import bytecode, configuration, host_files, install, wheel_facts
from .base import Base
from .bytecode import CompiledWheels, Runner, SourceWheel
from .entries import Entry
from .entry_point import entry_point
from .layer_plan import LARGE_FILE, LARGE_WHEEL, Group, WheelLayer, wheel_layers, wheels_of
from .layer_table import LayerTable
from .layers import LayerSource
from .merge import merged
from .notebooks import notebooks
from .wheel import InstallableWheel
from .wheel_facts import LargeFile, WheelFacts

_WHEELS = f"wheels 1, {install.RECIPE}, files of {LARGE_FILE} apart"
_LARGE = "large file 1"
#: Newer than every base's.
_NEWEST_GLIBC = (2, 1000)


class Wheels(Protocol):
    """The wheels of a lock."""

    def open(self, wheel: Wheel) -> InstallableWheel:
        """Return an opened wheel. Raises MissingError if it is not here and can't be downloaded."""


@dataclass(frozen=True)
class ImagePlan:
    """An image to assemble.

    layers: above the base's, lowest first. last: makes the topmost layer, once the others are in place.
    recipe: the digest of the rules that made the plan, for the image's label.
    created: the date of the image, or None if its lock has none.
    """

    spec: ImageSpec
    lock: Lock
    base: Base
    layers: tuple[LayerSource, ...]
    last: Callable[[], LayerSource]
    recipe: str
    created: date | None = None


def plan_image(
    spec: ImageSpec,
    lock: Lock,
    base: Base,
    wheels: Wheels,
    table: LayerTable,
    runner: Runner | None = None,
    compiled: CompiledWheels | None = None,
) -> ImagePlan:
    """Return the plan of an image. Reads only the wheel of TensorFlow, and only if no plan did so before.

    runner: compiles the byte code (None: the image has none). compiled: wheels that were compiled for other
    images. Raises InputError for a wheel that does not fit the base or contains what no image may have, and
    BuildError for a lock without TensorFlow.
    """
    environment = install.Environment(spec.python, base.files.glibc_version)
    for wheel in lock.wheels:
        install.check_compatible(wheel, environment)
    made = _WheelLayers(wheels, table, environment)
    return _Planner(spec, lock, base, runner, compiled or CompiledWheels(), made).plan()


def layers_of_wheels(spec: ImageSpec, lock: Lock, wheels: Wheels, table: LayerTable) -> Iterator[LayerSource]:
    """Yield the layers that the wheels of a lock give on every base, lowest first.

    That is all but the entry point, the byte code and the host files. TensorFlow's layers come last, and its
    wheel is read for them if no plan did so before. Raises BuildError for a lock without TensorFlow.
    """
    made = _WheelLayers(wheels, table, install.Environment(spec.python, _NEWEST_GLIBC))
    for group in wheel_layers(lock, spec.variant):
        yield from made.layers(group)


def made_from(group: WheelLayer) -> tuple[str, ...]:
    """Return what decides the bytes of the layer of a group of wheels, as in `LayerSource`.

    For TensorFlow's wheel, that is the layer without its large files: each of these has a layer of its own.
    """
    return (_WHEELS, *(wheel.sha256 for wheel in group.wheels))


def recipe_digest(variant: Variant) -> str:
    """Return the SHA-256 digest of the rules that turn a base and a lock into the content of a variant.

    An image with another recipe digest is not up to date.
    """
    rules = [
        _WHEELS, _LARGE, f"large wheels: {LARGE_WHEEL}", bytecode.RECIPE, host_files.RECIPE,
        configuration.RECIPE, wheel_facts.RECIPE, *entry_point().made_from,
        *(notebooks().made_from if variant is Variant.JUPYTER else ()),
    ]  # fmt: skip
    return f"sha256:{hashlib.sha256(json.dumps(rules).encode()).hexdigest()}"


@dataclass(frozen=True)
class _Planner:
    spec: ImageSpec
    lock: Lock
    base: Base
    runner: Runner | None
    compiled: CompiledWheels
    made: _WheelLayers

    def plan(self) -> ImagePlan:
        groups = wheel_layers(self.lock, self.spec.variant)
        layers = [entry_point()] if self.spec.variant.has_cuda else []
        for group in groups:
            layers += self.made.layers(group)
        if self.spec.variant is Variant.JUPYTER:
            layers.append(notebooks())
        if self.runner is not None:
            for name in (Group.PYTHON, Group.TENSORFLOW):
                if wheels := wheels_of(groups, name):
                    layers.append(self._byte_code(name, wheels))
        nvidia = wheels_of(groups, Group.NVIDIA)
        return ImagePlan(
            self.spec,
            self.lock,
            self.base,
            tuple(layers),
            lambda: host_files.host_files(self.base.files, self.made.libraries(nvidia)),
            recipe_digest(self.spec.variant),
            self.lock.resolved,
        )

    def _byte_code(self, group: Group, wheels: tuple[Wheel, ...]) -> LayerSource:
        assert self.runner is not None
        sources = [
            SourceWheel(str(wheel), wheel.sha256, partial(self.made.installed, wheel)) for wheel in wheels
        ]
        # The layer table knows the whole layer of TensorFlow's wheel.
        compiled = CompiledWheels() if group is Group.TENSORFLOW else self.compiled
        name = f"byte code ({group.value})"
        return bytecode.byte_code(name, self.base.files.interpreter, sources, self.runner, compiled)


@dataclass(frozen=True)
class _WheelLayers:
    """Makes layers from wheels, and finds out what other layers need to know about wheels."""

    wheels: Wheels
    table: LayerTable
    environment: install.Environment
    opened: _OpenWheels = field(default_factory=lambda: _OpenWheels())

    def layers(self, group: WheelLayer) -> Iterator[LayerSource]:
        """Yield the layers of a group: one, or those of TensorFlow's wheel."""
        if group.group is Group.TENSORFLOW:
            yield from self._tensorflow(group)
        else:
            yield self._layer(group)

    def installed(self, wheel: Wheel, stack: ExitStack) -> tuple[Entry, ...]:
        """Return what a wheel installs. Its file stays open as long as the stack."""

        def read() -> tuple[InstallableWheel, tuple[Entry, ...]]:
            file = self.wheels.open(wheel)
            try:
                # As with `uv pip install` of a lock, every package counts as one that was asked for. So the
                # layer of a wheel does not depend on what else an image asks for.
                return file, install.entries(file, self.environment, requested=True)
            except BaseException:
                file.close()
                raise

        return stack.enter_context(self.opened.installed(wheel, read))

    def libraries(self, nvidia: Iterable[Wheel]) -> Mapping[str, tuple[str, ...]]:
        """Return the names of NVIDIA's libraries by their directory in the image."""
        found: dict[str, set[str]] = {}
        for wheel in nvidia:
            for directory, names in self._facts(wheel).libraries.items():
                found.setdefault(directory, set()).update(names)
        return {directory: tuple(sorted(names)) for directory, names in sorted(found.items())}

    def _layer(self, group: WheelLayer) -> LayerSource:
        def entries() -> Iterator[Entry]:
            with ExitStack() as stack:
                # The facts of each wheel are found out while its layer is made.
                yield from merged(
                    (
                        str(wheel),
                        wheel_facts.watched(self.installed(wheel, stack), partial(self._keep, wheel)),
                    )
                    for wheel in group.wheels
                )

        return LayerSource(
            group.name, made_from(group), entries, size=sum(wheel.size or 0 for wheel in group.wheels)
        )

    def _tensorflow(self, group: WheelLayer) -> Iterator[LayerSource]:
        (wheel,) = group.wheels
        large = {file.path: file for file in self._facts(wheel).large}
        for file in large.values():
            yield self._large_file(wheel, file)

        def entries() -> Iterator[Entry]:
            with ExitStack() as stack:
                rest = [entry for entry in self.installed(wheel, stack) if entry.path not in large]
                yield from merged([(str(wheel), rest)])

        size = (wheel.size or 0) - sum(file.size for file in large.values())
        yield LayerSource(group.name, made_from(group), entries, size=max(size, 1))

    def _large_file(self, wheel: Wheel, file: LargeFile) -> LayerSource:
        def entries() -> Iterator[Entry]:
            with ExitStack() as stack:
                only = [entry for entry in self.installed(wheel, stack) if entry.path == file.path]
                yield from merged([(str(wheel), only)])

        name = file.path.rpartition("/")[2]
        decided_by = (_LARGE, file.path, oct(file.mode), file.sha256)
        return LayerSource(name, decided_by, entries, read_from=(wheel.sha256,), size=file.size)

    def _facts(self, wheel: Wheel) -> WheelFacts:
        def read() -> Mapping[str, object]:
            with ExitStack() as stack:
                return wheel_facts.read_facts(self.installed(wheel, stack)).document()

        return WheelFacts.parse(self.table.facts(_facts_key(wheel), read))

    def _keep(self, wheel: Wheel, facts: WheelFacts) -> None:
        self.table.facts(_facts_key(wheel), facts.document)


class _OpenWheels:
    """The wheels that are open now. Layers that read the same wheel at the same time share it.

    The one that was used last stays open, because TensorFlow's wheel has 20,000 files, and is read to plan
    its layers and again to make them.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._open: dict[str, _Shared] = {}
        weakref.finalize(self, _close, self._open)

    @contextmanager
    def installed(
        self, wheel: Wheel, read: Callable[[], tuple[InstallableWheel, tuple[Entry, ...]]]
    ) -> Iterator[tuple[Entry, ...]]:
        """Yield what the wheel installs. read: opens it, if it is not open."""
        with self._guard:
            shared = self._open.setdefault(wheel.sha256, _Shared())
            shared.users += 1
        try:
            with shared.turn:
                if shared.file is None:
                    shared.file, shared.entries = read()
            yield shared.entries
        finally:
            with self._guard:
                shared.users -= 1
                if not shared.users:
                    unused = {key: one for key, one in self._open.items() if not one.users}
                    if shared.file is not None:
                        # It is no longer there if everything was closed meanwhile.
                        unused.pop(wheel.sha256, None)
                    for key in unused:
                        del self._open[key]
                    _close(unused)


@dataclass
class _Shared:
    """turn: held while the wheel is opened. users: the layers that read it now."""

    turn: threading.Lock = field(default_factory=threading.Lock)
    users: int = 0
    file: InstallableWheel | None = None
    entries: tuple[Entry, ...] = ()


def _close(wheels: dict[str, _Shared]) -> None:
    while wheels:
        file = wheels.popitem()[1].file
        if file is not None:
            file.close()


def _facts_key(wheel: Wheel) -> str:
    return f"{wheel_facts.RECIPE}, {wheel.sha256}"
