"""What a TensorFlow release needs, of any age: its CUDA, cuDNN, Pythons and driver.

compat's tables have the releases that images are made of; `data/older.yaml` has those before, which people
still paste text about.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Any

from ..compat import facts, releases
from ..compat.unknown import UnknownRelease
from ..versions import DriverRelease
from .messages import DATA

Number = tuple[int, ...]
_NUMBER = re.compile(r"v?\d{1,6}(?:\.\d{1,6}){0,3}")


@dataclass(frozen=True)
class Build:
    """CUDA and cuDNN (`11.2`, `8.1`) that a release was built and tested with; Pythons with a wheel."""

    cuda: str
    cudnn: str
    pythons: tuple[str, ...]


def number(text: str) -> Number:
    """`2.18.0rc1` -> `(2, 18, 0)`; empty for what does not begin with a number."""
    match = _NUMBER.match(text.strip())
    return tuple(int(part) for part in match[0].lstrip("v").split(".")) if match else ()


@functools.cache
def build(version: str) -> Build | None:
    """Of a TensorFlow release (`2.18.0`, `2.4`), or None where nothing is known."""
    asked = number(version)
    if len(asked) < 2:
        return None
    minor = f"{asked[0]}.{asked[1]}"
    for row in _older()["releases"]:
        if row["minor"] == minor:
            return Build(row["cuda"], row["cudnn"], tuple(row["pythons"]))
    try:
        known = releases.release(
            ".".join(str(part) for part in asked[:3]) if len(asked) > 2 else f"{minor}.0"
        )
    except UnknownRelease:
        return None
    return Build(known.cuda, known.cudnn, known.pythons)


def built_with(cuda: str) -> Build | None:
    """What the newest of the older releases that opened this CUDA's libraries was built with; up to CUDA 10
    their names hold major and minor version, later the major alone."""
    asked = number(cuda)
    for row in _older()["releases"]:
        if asked and number(row["cuda"])[: 2 if asked[0] < 11 else 1] == asked[: 2 if asked[0] < 11 else 1]:
            return Build(row["cuda"], row["cudnn"], tuple(row["pythons"]))
    return None


def driver_floor(cuda: str, windows: bool) -> str | None:
    """The oldest driver that runs a CUDA toolkit (minor-version compatibility from 11 on)."""
    asked = number(cuda)
    for row in _older()["drivers"]:
        if number(row["cuda"]) in (asked[:1], asked[:2]):
            return str(row["windows" if windows else "linux"])
    return None


def driver_below(driver: str, floor: str) -> bool:
    """Whether a driver release is older than another; a bare branch stands for its newest."""
    try:
        return DriverRelease.parse(driver) < DriverRelease.parse(floor)
    except ValueError:
        return False


@functools.cache
def _older() -> dict[str, Any]:
    document: dict[str, Any] = facts.read(DATA / "older.yaml")
    return document
