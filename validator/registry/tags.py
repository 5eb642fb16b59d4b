"""The tags that images are published under, and the aliases that people pull.

A tag names one image for ever: `2.21.0-cuda12.5-cudnn9.3-py3.12`. An alias moves: `2.21`, `latest`,
`2.21-driver535`.
"""

from __future__ import annotations

import re

from ..model.spec import ImageSpec

_TAG = re.compile(
    r"(?P<tensorflow>\d+\.\d+\.\d+(?:rc\d+)?)-(?P<libraries>cpu|cuda[\w.]+-cudnn[\w.]+)"
    r"-py(?P<major>\d)\.(?P<minor>\d+)(?:-(?P<base>[a-z0-9.-]+))?"
)
_IDENTIFIER = re.compile(
    r"tf(?P<tensorflow>\d+\.\d+\.\d+(?:rc\d+)?)-(?P<libraries>cpu|cuda[\w.]+-cudnn[\w.]+)"
    r"-py(?P<major>\d)(?P<minor>\d+)(?:-(?P<base>[a-z0-9.-]+))?"
)

#: The alias of the newest of all.
LATEST = "latest"


def image_tag(spec: ImageSpec) -> str:
    """The tag of an image spec."""
    return tag_of(spec.identifier)


def tag_of(identifier: str) -> str:
    """The tag of an image spec's identifier. Raises ValueError for what is no identifier."""
    found = _IDENTIFIER.fullmatch(identifier)
    if found is None:
        raise ValueError(f"{identifier!r} is no identifier of an image spec")
    base = f"-{found['base']}" if found["base"] else ""
    return f"{found['tensorflow']}-{found['libraries']}-py{found['major']}.{found['minor']}{base}"


def identifier_of(tag: str) -> str | None:
    """The inverse; None for an alias or a tag that somebody else set."""
    found = _TAG.fullmatch(tag)
    if found is None:
        return None
    base = f"-{found['base']}" if found["base"] else ""
    return f"tf{found['tensorflow']}-{found['libraries']}-py{found['major']}{found['minor']}{base}"


def release_alias(tensorflow: str) -> str:
    """`2.21` of `2.21.0`."""
    return ".".join(tensorflow.split(".")[:2])


def driver_alias(tensorflow: str, branch: int) -> str:
    """`2.21-driver535`: for hosts of a driver branch."""
    return f"{release_alias(tensorflow)}-driver{branch}"
