"""The types of versions, and their comparison. No other module takes versions apart by its own rules.

A *driver release* (`535.183.01`) and a *CUDA version* (`12.2`: of a toolkit, or the newest that a driver
supports) are different types, because people confuse them. Versions of Python packages follow PEP 440, which
`packaging` reads; its `Version` is imported from here.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from ._vendor.packaging.version import InvalidVersion as InvalidVersion
from ._vendor.packaging.version import Version as _Version
from .version_numbers import OPERATOR_CHARACTERS as OPERATOR_CHARACTERS
from .version_numbers import OPERATORS as OPERATORS
from .version_numbers import Comparer as Comparer
from .version_numbers import Range as Range
from .version_numbers import is_numbers as is_numbers
from .version_numbers import is_release_of as is_release_of
from .version_numbers import leading_numbers as leading_numbers
from .version_numbers import major as major
from .version_numbers import numbers_comparer as numbers_comparer
from .version_numbers import order_by_numbers
from .version_numbers import whole_number as whole_number

if TYPE_CHECKING:
    from ._vendor.packaging.markers import Marker
    from ._vendor.packaging.requirements import Requirement
    from ._vendor.packaging.tags import Tag

#: Characters of a version. PyPI's longest ones have less than 100.
_LONGEST = 400


class Version(_Version):
    """A version of a Python package (PEP 440). Its length is checked first: long numbers take long."""

    __slots__ = ()

    def __init__(self, version: str) -> None:
        """Read a version. Raises InvalidVersion."""
        if len(version) > _LONGEST:
            raise InvalidVersion(f"a version has at most {_LONGEST} characters, not {len(version)}")
        super().__init__(version)


#: A number below 160, or one of five digits (13000 for CUDA 13.0), is no release.
_DRIVER = re.compile(r"^[Rr]?((?:1[6-9]|[2-9]\d|[1-9]\d\d)\d)(?:\.(\d{1,4}))?(?:\.(\d{1,4}))?$")
_CUDA = re.compile(r"^(\d{1,2})\.(\d{1,2})(?:\.(\d{1,4}))?$")
_CAPABILITY = re.compile(r"^(?:sm_?|compute_)?(?:(\d{1,2})\.(\d)|(\d{1,2})(\d))[af]?$")


@dataclass(frozen=True, order=True)
class DriverRelease:
    """An NVIDIA driver release, such as `535.183.01`, or a whole branch, such as `535`.

    A bare branch stands for its newest release, so it is greater than every point release of the branch:
    `point` is then infinite.
    """

    branch: int
    point: tuple[float, ...] = (math.inf,)
    text: str = field(default="", compare=False)

    @classmethod
    def parse(cls, text: str) -> DriverRelease:
        """Read `535`, `R535`, `535.183` or `535.183.01`. Raises ValueError for other text."""
        match = _DRIVER.match(text.strip())
        if not match:
            raise ValueError(f'"{text}" is not a driver release (expected something like 535.183.01 or 535)')
        branch, *point = (int(group) for group in match.groups() if group is not None)
        return cls(branch, tuple(point) or (math.inf,), text.strip().lstrip("Rr"))

    @classmethod
    def or_none(cls, text: str | None) -> DriverRelease | None:
        """Read as `parse` does; return None for other text."""
        try:
            return cls.parse(text or "")
        except ValueError:
            return None

    @property
    def is_branch(self) -> bool:
        """True when only the branch is known."""
        return self.point == (math.inf,)

    def __str__(self) -> str:
        return self.text or ".".join(map(str, (self.branch, *(() if self.is_branch else self.point))))


@dataclass(frozen=True, order=True)
class CudaVersion:
    """A CUDA version by major and minor: a toolkit's, or the newest that a driver supports."""

    major: int
    minor: int

    @classmethod
    def parse(cls, text: str) -> CudaVersion:
        """Read `12.5` or `12.5.1`. Raises ValueError for other text."""
        match = _CUDA.match(text.strip())
        if not match:
            raise ValueError(f'"{text}" is not a CUDA version (expected something like 12.5)')
        return cls(int(match[1]), int(match[2]))

    @classmethod
    def or_none(cls, text: str | None) -> CudaVersion | None:
        """Return the version that a text begins with, whatever follows; None for other text."""
        numbers = leading_numbers(text or "")
        return cls(numbers[0], numbers[1]) if len(numbers) > 1 else None

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


@dataclass(frozen=True, order=True)
class ComputeCapability:
    """A GPU's compute capability, such as 9.0."""

    major: int
    minor: int

    @classmethod
    def parse(cls, text: str) -> ComputeCapability:
        """Read `9.0`, `90`, `sm_90` or `compute_90`. Raises ValueError for other text."""
        match = _CAPABILITY.match(text.strip().lower())
        if not match:
            raise ValueError(f'"{text}" is not a compute capability (expected something like 9.0)')
        dotted_major, dotted_minor, major, minor = match.groups()
        return cls(int(dotted_major or major), int(dotted_minor or minor))

    @classmethod
    def or_none(cls, text: str | None) -> ComputeCapability | None:
        """Read as `parse` does; return None for other text."""
        try:
            return cls.parse(text or "")
        except ValueError:
            return None

    @property
    def sm(self) -> str:
        """The name that compilers use: `sm_90`."""
        return f"sm_{self.major}{self.minor}"

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


def major_minor(version: str) -> str:
    """Return the first two numbers of a version: `9.10` of `9.10.2.21`. Raises InvalidVersion."""
    major, minor = (*Version(version).release, 0)[:2]
    return f"{major}.{minor}"


def caret_range(version: str) -> str:
    """Return the specifier of Poetry's `^version`: `>=2.15.1,<3` for `2.15.1`, and `>=0.4,<0.5` for `0.4`.

    Only the numbers after the first one that is not zero may grow (https://python-poetry.org/docs/
    dependency-specification). Raises InvalidVersion.
    """
    numbers = Version(version).release
    fixed = next((at for at, number in enumerate(numbers) if number), len(numbers) - 1)
    return _up_to_next(version, numbers[: fixed + 1])


def tilde_range(version: str) -> str:
    """Return the specifier of Poetry's `~version`: `>=2.15.1,<2.16`, `>=2,<3`. Raises InvalidVersion."""
    return _up_to_next(version, Version(version).release[:2])


def _up_to_next(version: str, numbers: tuple[int, ...]) -> str:
    """Return the specifier for the version and what follows it, before the last of these numbers grows."""
    upper = ".".join(map(str, (*numbers[:-1], numbers[-1] + 1)))
    return f">={version},<{upper}"


_OLDEST = Version("0.dev0")


def version_or_oldest(text: str | None) -> Version:
    """Return the version, or, if the text is not a version, one that is older than every release."""
    try:
        return Version(text or "")
    except InvalidVersion:
        return _OLDEST


def driver_comparer(wanted: str) -> Comparer:
    """Compare drivers: `535` is every 535.x. A found branch is its newest release. Raises ValueError."""
    release = DriverRelease.parse(wanted)
    target = (release.branch, *(() if release.is_branch else release.point))

    def compare(found: str) -> int:
        release = DriverRelease.parse(found)
        return order_by_numbers((release.branch, *release.point), target, missing=math.inf)

    return compare


def release_comparer(wanted: str) -> Comparer:
    """Compare releases: `2.15` is every 2.15.x, and `2.15.0` is not `2.15.0.post1`. Raises ValueError."""
    try:
        target = Version(wanted)
    except InvalidVersion:
        raise ValueError("it is not a version (expected something like 2.21 or 2.21.0)") from None
    if is_numbers(wanted) and len(target.release) < 3:
        return lambda found: order_by_numbers(Version(found).release, target.release)

    def compare(found: str) -> int:
        version = Version(found)
        return (version > target) - (version < target)

    return compare


@functools.lru_cache(maxsize=1024)
def release_range(text: str) -> Range:
    """Read a range of releases, as rows of facts and requirements have it. Raises ValueError."""
    return Range.parse(text, release_comparer)


def minor_in(text: str | None) -> str | None:
    """Return the major and minor version that a text begins with: `3.12` for `3.12.4`."""
    numbers = leading_numbers(text or "")
    return f"{numbers[0]}.{numbers[1]}" if len(numbers) > 1 else None


def numbers_in(text: str | None) -> str | None:
    """Return the numbers that a version begins with: `9.3.0.75` for `9.3.0.75-1+cuda12.5`."""
    found = leading_numbers(text or "")
    return ".".join(map(str, found)) if len(found) > 1 else None


def without_cuda_suffix(name: str) -> str:
    """Return a wheel's name without the CUDA that it is for: `nvidia-cudnn` for `nvidia-cudnn-cu12`."""
    suffixes = ("-cu11", "-cu12", "-cu13")
    return next((name.removesuffix(suffix) for suffix in suffixes if name.endswith(suffix)), name)


# Requirements, markers and names of wheels, which few commands read: `packaging` is imported for them here.

#: The characters in the names of wheels on every index. File systems allow names of 255 bytes.
_WHEEL_NAME = re.compile(r"[A-Za-z0-9_.+!-]{1,255}")
#: The tags that one name may stand for. The names with the most have about 40.
_MOST_TAGS = 200
#: Characters of a requirement or a marker. uv writes markers of several thousand.
_LONGEST_MARKER = 20_000

_Read = TypeVar("_Read")


def read_requirement(text: str) -> Requirement:
    """Read a requirement. Raises InvalidRequirement, also if it is longer than people and tools write."""
    from ._vendor.packaging.requirements import InvalidRequirement, Requirement

    return _read(text, Requirement, InvalidRequirement, "its marker nests too deep")


def read_marker(text: str) -> Marker:
    """Read an environment marker. Raises InvalidMarker, also if it is longer than people and tools write."""
    from ._vendor.packaging.markers import InvalidMarker, Marker

    return _read(text, Marker, InvalidMarker, "it nests too deep")


def _read(text: str, parse: Callable[[str], _Read], error: type[ValueError], too_deep: str) -> _Read:
    if len(text) > _LONGEST_MARKER:
        raise error(f"it has more than {_LONGEST_MARKER:,} characters")
    try:
        return parse(text)
    except RecursionError:
        raise error(too_deep) from None


class InvalidWheelName(ValueError):
    """A file's name is not that of a wheel. The message says why, and does not quote a long name."""


def wheel_name(filename: str) -> tuple[str, Version, frozenset[Tag]]:
    """Return the normalized project, the version and the tags of a wheel's name. Raises InvalidWheelName."""
    from ._vendor.packaging.utils import parse_wheel_filename

    if not _WHEEL_NAME.fullmatch(filename):
        raise InvalidWheelName(
            "it has more than 255 characters, or some that are not letters, digits or _ . + ! -"
        )
    tags = math.prod(part.count(".") + 1 for part in filename.removesuffix(".whl").rsplit("-", 3)[1:])
    if tags > _MOST_TAGS:
        raise InvalidWheelName(f"it stands for {tags:,} tags, and {_MOST_TAGS} are allowed")
    try:
        name, version, _, found = parse_wheel_filename(filename)
    except ValueError as error:
        raise InvalidWheelName(str(error)) from None
    return name, Version(str(version)), found
