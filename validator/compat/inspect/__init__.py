"""Read facts from the files of a wheel: its build, the libraries that it opens, the GPUs it has code for.

Published tables of TensorFlow builds are incomplete and sometimes wrong, but the wheel can't be. Nothing in
the wheel is executed. `elf` and `fatbin` read the two binary formats, `runtime` reads what TensorFlow's CUDA
loader was compiled to open, `wheel` takes wheels apart, `build` puts the facts of a TensorFlow wheel
together, and `rows` keeps them in `data/builds.yaml`. `python -m validator.compat.inspect` is the command.
"""

from __future__ import annotations

import re

from ..._vendor.packaging.tags import Tag
from ..._vendor.packaging.utils import parse_wheel_filename
from ...versions import Version

#: The characters of wheels' names on every index. File systems allow 255 of them.
_NAME = re.compile(r"[A-Za-z0-9_.+!-]{1,255}")
#: The tags that one name may stand for. The names with the most have about 40.
_MOST_TAGS = 200


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
