"""What several rules ask of the observations: the release in use, its packages, the platform."""

from __future__ import annotations

import re

from ..builds import number
from ..observations import Observation, Observations


def tensorflow(observations: Observations) -> Observation | None:
    """What tells the release in use: a version said outright, else that of the installed package."""
    said = observations.first("tensorflow")
    if said is not None and said.values.get("version"):
        return said
    names = ("tensorflow", "tensorflow-gpu", "tensorflow-cpu", "tensorflow-intel", "tf-nightly")
    installed = observations.first("package_installed")
    if installed is not None and normalized(installed.values["name"]) in names:
        return installed
    return next((found for name in names if (found := package(observations, name)) is not None), None)


def package(observations: Observations, name: str) -> Observation | None:
    """The installed package of that (normalized) name."""
    return next(
        (seen for seen in observations.of("package") if normalized(seen.values["name"]) == name), None
    )


def normalized(name: str) -> str:
    """A package's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def release(observations: Observations) -> tuple[str, Observation] | None:
    """The release in use, and what tells it; None where no number does."""
    seen = tensorflow(observations)
    return (seen.values["version"], seen) if seen is not None and number(seen.values["version"]) else None


def on_windows(observations: Observations) -> Observation | None:
    """What tells of native Windows."""
    if observations.has("wsl") or observations.has("container"):
        return None
    return next((seen for seen in observations.of("os") if seen.values.get("name") == "windows"), None)
