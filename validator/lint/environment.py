"""The software that a file installs together: pins and other statements, each with its place in a file."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from .._vendor.packaging.specifiers import InvalidSpecifier, SpecifierSet
from .._vendor.packaging.utils import canonicalize_name
from .._vendor.packaging.version import InvalidVersion, Version
from ..model.finding import Place

#: The packages that are TensorFlow. The first one that is there decides.
TENSORFLOW = ("tensorflow", "tensorflow-gpu", "tensorflow-cpu", "intel-tensorflow")
#: The variable that limits which GPUs CUDA shows to a process.
VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
#: Excludes `$`, `{` and the like, because another tool may fill in a variable or a template.
_LIKE_VERSION = re.compile(r"\d[\w.+!-]*")
#: A package with more parts in its specifiers counts as one whose version is not known.
_MOST = 100


@dataclass(frozen=True)
class Stated:
    """A version that something other than a package states, or the value of a variable.

    value: a version, or for Python a specifier (`>=3.12`). image: True if a base image states it.
    """

    value: str
    place: Place
    image: bool = False


@dataclass(frozen=True)
class Pin:
    """A package that is asked for.

    name: normalized. versions: a version specifier (PEP 440); empty for any version, None if a file, an
    address or another index decides. constraint: True if it only limits the version. invalid: the text
    after `==` if it is not a version (`9.x`).
    """

    name: str
    versions: SpecifierSet | None
    place: Place
    extras: frozenset[str] = frozenset()
    from_conda: bool = False
    constraint: bool = False
    invalid: str = ""

    @property
    def exact(self) -> str | None:
        """The version, if the pin allows only one."""
        for one in self.versions or ():
            if one.operator in ("==", "===") and not one.version.endswith(".*"):
                return one.version
        return None


@dataclass(frozen=True)
class Environment:
    """The software that is installed together.

    pins: at most one for each name. python: versions that may run it. cuda, cudnn: libraries of the system or
    of conda. without_cuda: True if the system is known to have no CUDA. for_gpu: True if the file says that a
    GPU will be used. visible_devices: the value of CUDA_VISIBLE_DEVICES where it runs. complete: True if the
    pins are everything that is installed, as in a lock. name: the extra, the group or the environment of the
    project; empty for what is installed without naming one.
    """

    pins: tuple[Pin, ...]
    python: Stated | None = None
    cuda: Stated | None = None
    cudnn: Stated | None = None
    without_cuda: bool = False
    for_gpu: bool = False
    visible_devices: Stated | None = None
    complete: bool = False
    name: str = ""


@dataclass
class Collected:
    """The pins read so far, with at most one for each name."""

    pins: dict[str, Pin] = field(default_factory=dict)
    #: Names that are asked for in ways that contradict each other or are not known.
    limits: dict[str, Pin] = field(default_factory=dict)

    def add(self, pin: Pin, *, later: bool = False) -> None:
        """Add a pin.

        later: True for a command that runs after those that added the others, so that its version replaces
        theirs. Otherwise all must hold together.
        """
        pins = self.limits if pin.constraint else self.pins
        before = pins.get(pin.name)
        if before is None or (later and (pin.versions is None or len(pin.versions))):
            pins[pin.name] = pin
        elif later:
            # It keeps the version and adds what its extras require.
            pins[pin.name] = replace(before, extras=before.extras | pin.extras)
        else:
            pins[pin.name] = intersection(before, pin)

    def copy(self) -> Collected:
        """Return the same pins, to which others can be added."""
        return Collected(dict(self.pins), dict(self.limits))

    def all(self) -> tuple[Pin, ...]:
        """Return the pins, limited by the constraints."""
        return tuple(
            intersection(pin, self.limits[name]) if name in self.limits else pin
            for name, pin in self.pins.items()
        )


def intersection(one: Pin, other: Pin) -> Pin:
    """Return the pin that two pins of the same package make.

    Its place is that of the pin with an invalid version, or else of the exact version.
    """
    unknown = one.versions is None or other.versions is None
    versions = one.versions if one.versions == other.versions else None
    if one.versions is not None and other.versions is not None and len(one.versions) < _MOST:
        versions = one.versions & other.versions
    is_exact = not unknown and one.exact is None and other.exact is not None
    return replace(
        one,
        versions=versions,
        place=other.place if is_exact or (other.invalid and not one.invalid) else one.place,
        extras=one.extras | other.extras,
        constraint=one.constraint and other.constraint,
        invalid=one.invalid or other.invalid,
    )


def exact_pin(name: str, version: str, place: Place, *, from_conda: bool = False) -> Pin:
    """Return the pin of a package in one version; an empty version is not known."""
    versions = specifier(f"=={version}") if version else None
    return Pin(normalized(name), versions, place, from_conda=from_conda)


def specifier(text: str) -> SpecifierSet | None:
    """Return a version specifier, or None if the text is none."""
    try:
        return SpecifierSet(text)
    except InvalidSpecifier:
        return None


def not_a_version(text: str) -> str:
    """Return the text if it looks like a version but is not a valid one (`9.x`), else an empty string."""
    try:
        Version(text)
    except InvalidVersion:
        return text if _LIKE_VERSION.fullmatch(text) else ""
    return ""


def normalized(name: str) -> str:
    """Return the normalized name of a package."""
    return str(canonicalize_name(name))
