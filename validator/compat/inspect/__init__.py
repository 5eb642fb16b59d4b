"""Read facts from the files of a wheel: its build, the libraries that it opens, the GPUs it has code for.

Published tables of TensorFlow builds are incomplete and sometimes wrong, but the wheel can't be. Nothing in
the wheel is executed. `elf` reads ELF files and the device code in them, `build` takes wheels apart and keeps
the facts in `data/builds.yaml`. `python -m validator.compat.inspect.build` is the command.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from ..._vendor.packaging.markers import InvalidMarker, Marker
from ..._vendor.packaging.requirements import InvalidRequirement, Requirement
from ..._vendor.packaging.tags import Tag
from ..._vendor.packaging.utils import parse_wheel_filename
from ...versions import Version

#: The characters of wheels' names on every index. File systems allow 255 of them.
_NAME = re.compile(r"[A-Za-z0-9_.+!-]{1,255}")
#: The tags that one name may stand for. The names with the most have about 40.
_MOST_TAGS = 200
#: Characters of a requirement or a marker. uv writes markers of several thousand.
_LONGEST = 20_000


_Read = TypeVar("_Read")


def read_requirement(text: str) -> Requirement:
    """Read a requirement of a length that people and tools write. Raises InvalidRequirement."""
    return _read(text, Requirement, InvalidRequirement, "its marker nests too deep")


def read_marker(text: str) -> Marker:
    """Read an environment marker in the same way. Raises InvalidMarker."""
    return _read(text, Marker, InvalidMarker, "it nests too deep")


def _read(text: str, parse: Callable[[str], _Read], error: type[ValueError], too_deep: str) -> _Read:
    if len(text) > _LONGEST:
        raise error(f"it has more than {_LONGEST:,} characters")
    try:
        return parse(text)
    except RecursionError:
        raise error(too_deep) from None


class InvalidWheelName(ValueError):
    """A file's name is not that of a wheel. The message says why, and does not quote a long name."""


def wheel_name(filename: str) -> tuple[str, Version, frozenset[Tag]]:
    """Return the normalized project, the version and the tags of a wheel's name. Raises InvalidWheelName."""
    if not _NAME.fullmatch(filename):
        raise InvalidWheelName(
            "it has more than 255 characters, or others than letters, digits and _ . + ! -"
        )
    tags = 1
    for part in filename.removesuffix(".whl").rsplit("-", 3)[1:]:
        tags *= part.count(".") + 1
    if tags > _MOST_TAGS:
        raise InvalidWheelName(f"it stands for {tags:,} tags, and {_MOST_TAGS} are allowed")
    try:
        name, version, _, found = parse_wheel_filename(filename)
    except ValueError as error:
        raise InvalidWheelName(str(error)) from None
    return name, Version(str(version)), found
