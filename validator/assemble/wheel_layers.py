"""Decide which wheel is in which layer.

A large wheel has a layer of its own, so that images that have it in common share that layer, however they
differ otherwise. Layers that more images share come first.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
import threading
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import date
from enum import Enum
from functools import partial
from typing import Protocol

import msgspec

from ..errors import BuildError
from ..model.spec import ImageSpec, Lock, Variant, Wheel
from . import bytecode, configuration, host_files, install
from .base import Base
from .bytecode import CompiledWheels, Runner, SourceWheel
from .configuration import entry_point, notebooks
from .install import merged
from .layer_table import LayerTable
from .layers import Content, Entry, LayerSource
from .wheel import InstallableWheel

#: Wheels of this many bytes and more have a layer of their own.
LARGE_WHEEL = 5_000_000
#: Files of TensorFlow's wheel with this many bytes and more have a layer of their own. The wheels of several
#: Pythons contain the same large library.
LARGE_FILE = 100_000_000

# Since CUDA 13 the names have no suffix (nvidia-cublas); before, it is the CUDA major (nvidia-cublas-cu12).
# TensorRT's wheels are NVIDIA's too.
_NVIDIA = re.compile(r"nvidia-|tensorrt")
_TENSORFLOW = ("tensorflow", "tensorflow-cpu")


class Group(str, Enum):
    """The groups of wheels, in the order of their layers. TENSORFLOW: only TensorFlow's own wheel."""

    NVIDIA = "NVIDIA"
    PYTHON = "Python"
    TENSORFLOW = "TensorFlow"


@dataclass(frozen=True)
class WheelLayer:
    """The wheels of one layer, sorted by name. name: for people, such as `nvidia-cudnn-cu12 9.3.0.75`."""

    name: str
    group: Group
    wheels: tuple[Wheel, ...]


def group_of(name: str) -> Group:
    """Return the group of a distribution, given its normalized name."""
    if name in _TENSORFLOW:
        return Group.TENSORFLOW
    return Group.NVIDIA if _NVIDIA.match(name) else Group.PYTHON


def wheel_layers(lock: Lock, variant: Variant) -> tuple[WheelLayer, ...]:
    """Return the layers for the wheels of a lock, lowest first.

    A wheel whose size the lock does not say counts as small. Raises BuildError if the lock has NVIDIA's
    wheels for a cpu image (added packages may need them), or does not have exactly one wheel of TensorFlow.
    """
    groups: dict[Group, list[Wheel]] = {group: [] for group in Group}
    for wheel in lock.wheels:
        group = Group.TENSORFLOW if wheel == lock.own_tensorflow else group_of(wheel.name)
        groups[group].append(wheel)
    if variant is Variant.CPU and not lock.additions and (stray := groups[Group.NVIDIA]):
        names = ", ".join(map(str, stray))
        raise BuildError(f"{lock.identifier}: its lock is for a gpu image, because it contains {names}")
    if len(groups[Group.TENSORFLOW]) != 1:
        found = " and ".join(map(str, groups[Group.TENSORFLOW])) or "none"
        raise BuildError(f"{lock.identifier}: its lock must contain one wheel of TensorFlow, not {found}")
    layers = []
    for group, wheels in groups.items():
        wheels.sort(key=lambda wheel: wheel.name)
        small = tuple(wheel for wheel in wheels if (wheel.size or 0) < LARGE_WHEEL)
        for wheel in wheels:
            if wheel not in small:
                layers.append(WheelLayer(f"{wheel.name} {wheel.version}", group, (wheel,)))
        if group is Group.TENSORFLOW and small:
            layers.append(WheelLayer(f"{small[0].name} {small[0].version}", group, small))
        elif small:
            layers.append(WheelLayer(f"{len(small)} small wheels ({group.value})", group, small))
    return tuple(layers)


def wheels_of(layers: Iterable[WheelLayer], group: Group) -> tuple[Wheel, ...]:
    """Return the wheels of a group, in the order of their layers."""
    return tuple(wheel for layer in layers if layer.group is group for wheel in layer.wheels)


# The facts about a wheel's files that other layers need, so that it is not read again.

#: Changes when the facts are read in another way.
RECIPE = "wheel facts 2"
#: The directories of NVIDIA's libraries in the image.
_LIBRARIES = re.compile(r"(opt/venv/lib/python3/site-packages/nvidia/[^/]+/lib)/([^/]+)")
#: The names that ldconfig looks at.
_SHARED = re.compile(r"(lib|ld-).*\.so")
#: Bytes of the beginning of a library that are kept: they often contain its strings.
_HEAD = 1 << 20
_LONGEST_NAME = 256
_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_STRTAB, _DT_SONAME = 5, 14
_X86_64 = 62


class LargeFile(msgspec.Struct, frozen=True, array_like=True):
    """A file with a layer of its own. sha256: from RECORD. size: as compressed in the wheel, in bytes."""

    path: str
    mode: int
    sha256: str
    size: int


class WheelFacts(msgspec.Struct, frozen=True):
    """large: files of 100 MB and more. libraries: directory of NVIDIA's libraries -> names, as ldconfig finds
    them. Both are sorted.
    """

    large: tuple[LargeFile, ...]
    libraries: dict[str, tuple[str, ...]]


def watched(entries: Iterable[Entry], done: Callable[[WheelFacts], object]) -> list[Entry]:
    """Return a wheel's entries, which call `done` with its facts once all libraries were read."""
    large: list[LargeFile] = []
    names: dict[str, set[str]] = {}
    found: list[Entry] = []
    waiting: set[str] = set()

    def finish() -> None:
        if not waiting:
            libraries = {directory: tuple(sorted(some)) for directory, some in sorted(names.items())}
            done(WheelFacts(tuple(sorted(large, key=lambda file: file.path)), libraries))

    def library(path: str, directory: str, name: str | None) -> None:
        if path in waiting:
            waiting.remove(path)
            if name is not None:
                names[directory].add(name)
            finish()

    for entry in entries:
        match = _LIBRARIES.fullmatch(entry.path)
        # Without a hash in RECORD, nothing says that it is the same file as that of another wheel.
        if entry.content and entry.content.size >= LARGE_FILE and entry.content.sha256:
            large.append(LargeFile(entry.path, entry.mode, entry.content.sha256, entry.content.stored_size))
        if match and entry.content:
            names.setdefault(match[1], set())
            if _SHARED.match(match[2]):
                waiting.add(entry.path)
                content = Watched(entry.content, match[2], partial(library, entry.path, match[1]))
                entry = replace(entry, content=content)
        found.append(entry)
    finish()
    return found


class Watched:
    """A library's content that, while it is read, finds the name by which ldconfig lists the library.

    The name is its soname, or the file's without one. found: called each time that the content was read, with
    None if it is not a 64-bit x86 library.
    """

    def __init__(self, content: Content, name: str, found: Callable[[str | None], object]) -> None:
        self._content, self._name, self._found = content, name, found
        self.size, self.sha256, self.stored_size = content.size, content.sha256, content.stored_size

    def chunks(self) -> Iterator[bytes]:
        finding = _Finding(self._name)
        yield from finding.follow(self._content)
        # Parts in an unusual order need another pass each.
        while finding.wanted is not None:
            deque(finding.follow(self._content), maxlen=0)
        self._found(finding.result)


#: Yields the offset and size of a part of a library, and receives its bytes. Returns the name.
_Steps = Generator[tuple[int, int], bytes, "str | None"]


def _steps(name: str) -> _Steps:
    head = yield 0, 64
    if head[:6] != b"\x7fELF\x02\x01" or struct.unpack_from("<H", head, 18)[0] != _X86_64:
        return None
    (table,) = struct.unpack_from("<Q", head, 32)
    size, count = struct.unpack_from("<HH", head, 54)
    headers = yield table, size * count
    segments = [struct.unpack_from("<IIQQQQ", headers, number * size) for number in range(count)]
    values: dict[int, int] = {}
    for kind, _, offset, _, _, length in segments:
        if kind == _PT_DYNAMIC:
            dynamic = yield offset, length - length % 16
            values = dict(struct.iter_unpack("<QQ", dynamic))
    if _DT_SONAME not in values or _DT_STRTAB not in values:
        return name
    strings = values[_DT_STRTAB]
    for kind, _, offset, address, _, length in segments:
        if kind == _PT_LOAD and address <= strings < address + length:
            text = yield offset + strings - address + values[_DT_SONAME], _LONGEST_NAME
            return text.split(b"\0", 1)[0].decode("utf-8", "replace") or name
    return name


class _Finding:
    """Follows `_steps` through a content that passes by. Keeps the beginning and the part that is wanted."""

    def __init__(self, name: str) -> None:
        self._steps = _steps(name)
        self.wanted: tuple[int, int] | None = next(self._steps)
        self.result: str | None = None
        self._head = b""

    def follow(self, content: Content) -> Iterator[bytes]:
        """Return the parts of the content. Afterwards, another pass is needed if a part is still wanted."""
        start, tail = 0, b""
        for chunk in content.chunks():
            end = start + len(tail)
            if len(self._head) < _HEAD and end == len(self._head):
                self._head += chunk[: _HEAD - len(self._head)]
            if self.wanted is not None and start <= self.wanted[0] < end:
                tail = tail[self.wanted[0] - start :] + chunk
                start = self.wanted[0]
            else:
                start, tail = end, chunk
            self._look(start, tail, at_end=False)
            yield chunk
        self._look(start, tail, at_end=True)

    def _look(self, start: int, tail: bytes, *, at_end: bool) -> None:
        """Take the wanted parts that are here. At the end, one may be cut short."""
        while self.wanted is not None:
            offset, size = self.wanted
            if offset + size <= len(self._head):
                data = self._head[offset : offset + size]
            elif start <= offset and (at_end or offset + size <= start + len(tail)):
                data = tail[offset - start :][:size]
            else:
                return
            try:
                self.wanted = self._steps.send(data)
            except (StopIteration, struct.error) as end:
                self.result = end.value if isinstance(end, StopIteration) else None
                self.wanted = None


# Make the layers of an image out of wheels.

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
    """An image to assemble. layers: above the base's, lowest first. last: makes the topmost one after them.

    recipe: the digest of the rules that made the plan. created: the date of the image, or None.
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
    groups = wheel_layers(lock, spec.variant)
    layers = [entry_point()] if spec.variant.has_cuda else []
    for group in groups:
        layers += made.layers(group)
    if spec.variant is Variant.JUPYTER:
        layers.append(notebooks())
    if runner is not None:
        # The layer table knows the whole layer of TensorFlow's wheel, so its byte code is not kept.
        for name, kept in (
            (Group.PYTHON, compiled or CompiledWheels()),
            (Group.TENSORFLOW, CompiledWheels()),
        ):
            sources = [
                SourceWheel(str(wheel), wheel.sha256, partial(made.installed, wheel))
                for wheel in wheels_of(groups, name)
            ]
            if sources:
                title = f"byte code ({name.value})"
                layers.append(bytecode.byte_code(title, base.files.interpreter, sources, runner, kept))
    nvidia = wheels_of(groups, Group.NVIDIA)
    return ImagePlan(
        spec, lock, base, tuple(layers),
        lambda: host_files.host_files(base.files, made.libraries(nvidia)),
        recipe_digest(spec.variant), lock.resolved,
    )  # fmt: skip


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
    """Return the digest of the rules that make images of a variant. Images with another one are old."""
    rules = [
        _WHEELS, _LARGE, f"large wheels: {LARGE_WHEEL}", bytecode.RECIPE, host_files.RECIPE,
        configuration.RECIPE, RECIPE, *entry_point().made_from,
        *(notebooks().made_from if variant is Variant.JUPYTER else ()),
    ]  # fmt: skip
    return f"sha256:{hashlib.sha256(json.dumps(rules).encode()).hexdigest()}"


class _WheelLayers:
    """Makes layers from wheels, and finds out what other layers need to know about wheels.

    Layers that read the same wheel at the same time share the open file. The one that was used last stays
    open, because TensorFlow's wheel has 20,000 files, and is read to plan its layers and again to make them.
    """

    def __init__(self, wheels: Wheels, table: LayerTable, environment: install.Environment) -> None:
        self._wheels, self._table, self._environment = wheels, table, environment
        self._guard = threading.Lock()
        self._open: dict[str, _Shared] = {}
        weakref.finalize(self, _close, self._open)

    def layers(self, group: WheelLayer) -> Iterator[LayerSource]:
        if group.group is Group.TENSORFLOW:
            yield from self._tensorflow(group)
            return

        def keep(wheel: Wheel, facts: WheelFacts) -> None:
            self._table.facts(_facts_key(wheel), lambda: msgspec.to_builtins(facts))

        def entries() -> Iterator[Entry]:
            with ExitStack() as stack:
                # `watched` collects the facts of each wheel while its layer is made.
                yield from merged(
                    (str(wheel), watched(stack.enter_context(self.installed(wheel)), partial(keep, wheel)))
                    for wheel in group.wheels
                )

        size = sum(wheel.size or 0 for wheel in group.wheels)
        yield LayerSource(group.name, made_from(group), entries, size=size)

    @contextmanager
    def installed(self, wheel: Wheel) -> Iterator[tuple[Entry, ...]]:
        """Open a wheel, and yield what it installs."""
        with self._guard:
            shared = self._open.setdefault(wheel.sha256, _Shared())
            shared.users += 1
        try:
            with shared.turn:
                if shared.file is None:
                    file = self._wheels.open(wheel)
                    try:
                        shared.entries = install.entries(file, self._environment)
                    except BaseException:
                        file.close()
                        raise
                    shared.file = file
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

    def libraries(self, nvidia: Iterable[Wheel]) -> Mapping[str, tuple[str, ...]]:
        found: dict[str, set[str]] = {}
        for wheel in nvidia:
            for directory, names in self._facts(wheel).libraries.items():
                found.setdefault(directory, set()).update(names)
        return {directory: tuple(sorted(names)) for directory, names in sorted(found.items())}

    def _tensorflow(self, group: WheelLayer) -> Iterator[LayerSource]:
        (wheel,) = group.wheels
        large = {file.path: file for file in self._facts(wheel).large}

        def entries(wanted: Callable[[str], bool]) -> Iterator[Entry]:
            with self.installed(wheel) as installed:
                yield from merged([(str(wheel), [entry for entry in installed if wanted(entry.path)])])

        for path, file in large.items():
            name, only = path.rpartition("/")[2], partial(entries, path.__eq__)
            decided_by = (_LARGE, path, oct(file.mode), file.sha256)
            yield LayerSource(name, decided_by, only, read_from=(wheel.sha256,), size=file.size)
        size = (wheel.size or 0) - sum(file.size for file in large.values())
        rest = partial(entries, lambda path: path not in large)
        yield LayerSource(group.name, made_from(group), rest, size=max(size, 1))

    def _facts(self, wheel: Wheel) -> WheelFacts:
        """Return the facts of a wheel. If nobody knows them, that reads all of NVIDIA's libraries in it."""

        def read() -> Mapping[str, object]:
            found: list[WheelFacts] = []
            with self.installed(wheel) as installed:
                for entry in watched(installed, found.append):
                    if isinstance(entry.content, Watched):
                        deque(entry.content.chunks(), maxlen=0)
            document: dict[str, object] = msgspec.to_builtins(found[0])
            return document

        return msgspec.convert(self._table.facts(_facts_key(wheel), read), WheelFacts)


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
    return f"{RECIPE}, {wheel.sha256}"
