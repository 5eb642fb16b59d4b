"""Read facts from the files of a wheel: its build, the libraries that it opens, the GPUs it has code for.

Published tables of TensorFlow builds are incomplete and sometimes wrong, but the wheel can't be. Nothing in
the wheel is executed. `elf` and `fatbin` read the two binary formats, `runtime` reads what TensorFlow's CUDA
loader was compiled to open, `wheel` takes wheels apart, `build` puts the facts of a TensorFlow wheel
together, and `rows` keeps them in `data/builds.yaml`. `python -m validator.compat.inspect` is the command.
"""

from __future__ import annotations

import re

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


def read_requirement(text: str) -> Requirement:
    """Read a requirement of a length that people and tools write. Raises InvalidRequirement."""
    if len(text) > _LONGEST:
        raise InvalidRequirement(f"it has more than {_LONGEST:,} characters")
    try:
        return Requirement(text)
    except RecursionError:
        raise InvalidRequirement("its marker nests too deep") from None


def read_marker(text: str) -> Marker:
    """Read an environment marker in the same way. Raises InvalidMarker."""
    if len(text) > _LONGEST:
        raise InvalidMarker(f"it has more than {_LONGEST:,} characters")
    try:
        return Marker(text)
    except RecursionError:
        raise InvalidMarker("it nests too deep") from None


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
