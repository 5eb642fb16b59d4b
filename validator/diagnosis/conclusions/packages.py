"""Python, its packages and its files against the release in use."""

from __future__ import annotations

import re

from ...compat.known_issues import trait_holds
from ...compat.releases import releases
from ...versions import leading_numbers
from ..observations import DISTRIBUTIONS, Observation, Observations, normalized

_PYTHON = re.compile(r"python ?(3\.\d{1,2})", re.IGNORECASE)
#: Conda builds without CUDA.
_CPU_BUILD = re.compile(r"(eigen|mkl|cpu)_")


def shadowing_file(observations: Observations) -> None:
    """Add a file tensorflow.py of the user. Packages have files of that name in their own directories."""
    for one in observations.of("tensorflow_py_file"):
        if not re.search(r"(?:site|dist)-packages", one.values["path"]):
            path = one.values["path"].strip()
            renamed = path.removesuffix("tensorflow.py") + "my_script.py"
            observations.conclude("shadowing_file", {"path": path, "renamed": renamed}, one)


def python_too_new(observations: Observations) -> None:
    """Add a Python that is newer than every one that the newest release has a wheel for."""
    unsupported, python = observations.first("python_not_supported"), observations.first("python")
    named = _PYTHON.search(unsupported.text) if unsupported else None
    shown = unsupported or python
    minor = leading_numbers(named[1] if named else python.values["version"] if python else "")[:2]
    newest = [one for one in releases() if not one.prerelease][-1].pythons
    if shown is not None and len(minor) == 2 and minor > leading_numbers(newest[-1]):
        values = {"python": f"{minor[0]}.{minor[1]}", "pythons": f"{newest[0]} to {newest[-1]}"}
        observations.conclude("python_newer_than_wheels", values, shown)


def model_of_another_release(observations: Observations) -> None:
    """Add a model that a newer release wrote than the one that loads it, or one from before Keras 3."""
    for one in observations.of("model_moved"):
        saved, loaded = one.values["saved"], one.values["loaded"]
        if leading_numbers(saved)[:2] > leading_numbers(loaded)[:2]:
            observations.conclude("model_newer_than_release", one.values, one)
        elif trait_holds("keras-3", tensorflow=loaded) and not trait_holds("keras-3", tensorflow=saved):
            observations.conclude("model_older_than_keras", one.values, one)


def tensorflow_packages(observations: Observations) -> None:
    """Add builds without CUDA, and several distributions that overwrite one another's files."""
    installed: dict[str, Observation] = {}
    for one in observations.of("package"):
        name = normalized(one.values["name"])
        if name in DISTRIBUTIONS:
            installed.setdefault(name, one)
        # The name of a conda build says by itself whether it has CUDA.
        alone = name == "tensorflow" and not one.values.get("build")
        if alone and trait_holds("gpu-in-own-package", tensorflow=one.values["version"]):
            observations.conclude("build_without_cuda", {"build": f"tensorflow {one.values['version']}"}, one)
        if name in ("tensorflow", "tensorflow-base") and _CPU_BUILD.match(one.values.get("build", "")):
            observations.conclude("build_without_cuda", {"build": one.values["build"]}, one)
    for name in ("tensorflow-cpu", "tf-nightly-cpu"):
        if name in installed and len(installed) == 1:
            observations.conclude("build_without_cuda", {"build": name}, installed[name])
    # tensorflow and tensorflow-gpu, and tensorflow and tensorflow-intel, belong together.
    several = [name for name in installed if name not in ("tensorflow-gpu", "tensorflow-intel")]
    if len(several) > 1:
        observations.conclude(
            "several_tensorflow_packages",
            {"packages": ", ".join(several)},
            *(installed[name] for name in several),
        )


RULES = (shadowing_file, python_too_new, model_of_another_release, tensorflow_packages)
