"""Rules about packages next to TensorFlow: another TensorFlow, and frameworks that bring their own cuDNN."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

from ..model.prediction import Outcome, Reason
from ..versions import Range, Version, leading_numbers, major, release_comparer, version_or_oldest
from . import cudnn, facts
from .releases import Release

#: Packages that contain TensorFlow without CUDA, and those that contain it with CUDA.
_ON_CPU = ("tensorflow-cpu", "tf-nightly-cpu", "intel-tensorflow")
_WITH_CUDA = ("tensorflow", "tensorflow-gpu", "tf-nightly")
#: NVIDIA's wheels of libraries that TensorFlow loads.
_LIBRARY = re.compile(
    r"nvidia-(?:cuda-runtime|cublas|cudnn|cufft|curand|cusolver|cusparse)(?:-cu(?P<cuda>\d+))?"
)
#: The releases of a row that is about every release.
_ANY = "any"
_CUDNN_WHEEL = re.compile(r"nvidia-cudnn-cu\d+")


def framework_packages() -> tuple[str, ...]:
    """Return the packages that the rules of this module look for, besides cuDNN."""
    return (*_ON_CPU, *dict.fromkeys(row["package"] for row in facts.rows("frameworks", "cudnn")))


def cpu_package(packages: Mapping[str, str], variant: str | None) -> Reason | None:
    """Return why the installed TensorFlow has no CUDA, or may have none; None if no package says so."""
    rule = facts.rule("frameworks", "tensorflow-packages")
    found = next(
        (name for name in _ON_CPU if name in packages), "tensorflow-cpu" if variant == "cpu" else None
    )
    if found is None:
        return None
    other = next((name for name in _WITH_CUDA if name in packages), None)
    if other is not None and variant != "cpu":
        return rule.unknown(
            f"{found} and {other} are both installed and overwrite each other's files: the one that was"
            " installed last is used; uninstall both, then install only one",
            "cpu_package",
        )
    return rule.fails(f"{found} has no CUDA: it never uses a GPU; install tensorflow instead", "cpu_package")


def removed_package(name: str, version: str) -> Reason | None:
    """Return why a package that was replaced can't be installed; None for its old releases and for others."""
    for row in facts.rows("frameworks", "removed"):
        if row["package"] == name and version_or_oldest(version) >= Version(row["last"]):
            return facts.fact(row).fails(
                f"{name} {version} can't be installed: {row['text']}; use {row['replacement']} instead",
                "package_removed",
            )
    return None


def invalid_version(name: str, version: str) -> Reason:
    """Return why a package that is pinned to an invalid version (`9.x`) can't be installed."""
    series = ".".join(map(str, leading_numbers(version)))
    return facts.rule("frameworks", "package-versions").fails(
        f'{name}=={version} can\'t be installed, because "{version}" is not a version; to allow every'
        f" {series} release, write {name}=={series}.*",
        "invalid_version",
    )


def last_of_removed(name: str) -> str | None:
    """Return the last release of a package that was replaced, which pip takes if it may."""
    return next((row["last"] for row in facts.rows("frameworks", "removed") if row["package"] == name), None)


def with_cudnn() -> frozenset[str]:
    """Return the packages that require a cuDNN."""
    return frozenset(row["package"] for row in facts.rows("frameworks", "cudnn"))


def required_cudnn(release: Release, packages: Mapping[str, str]) -> str | None:
    """Return the cuDNN that a framework pins, if a release of TensorFlow allows it, else None.

    packages: full names -> version.
    """
    name = f"nvidia-cudnn-{release.suffix}"
    for row in facts.rows("frameworks", "cudnn"):
        version = packages.get(row["package"])
        if version is None or not row["cudnn"].startswith("==") or row.get("wheel") not in (None, name):
            continue
        required: str = row["cudnn"].removeprefix("==")
        if _is_about(row, version) and name in release.wheels:
            return required if _range(release.wheels[name]).contains(required) else None
    return None


def two_cudnns(packages: Mapping[str, str]) -> Reason | None:
    """Return why the wheels of cuDNN for several CUDA versions don't work together, or None for at most one.

    packages: full names -> version.
    """
    found = sorted(name for name in packages if _CUDNN_WHEEL.fullmatch(name))
    if len(found) < 2:
        return None
    names = " and ".join(f"{name} {packages[name]}" for name in found)
    return facts.rule("frameworks", "cudnn-packages").fails(
        f"{names} overwrite each other's files in nvidia/cudnn, so TensorFlow may load a cuDNN for another"
        " CUDA; use an environment for each",
        "mixed_frameworks",
    )


def framework_for_another_cuda(release: Release, packages: Mapping[str, str]) -> Reason | None:
    """Return why a framework's cuDNN replaces the one that the extra and-cuda installs; None if none does.

    packages: full names -> version, empty if it is not known.
    """
    for row in facts.rows("frameworks", "cudnn"):
        version = packages.get(row["package"])
        wheel, own = row.get("wheel"), f"nvidia-cudnn-{release.suffix}"
        if version is not None and wheel not in (None, own) and _is_about(row, version):
            rule = facts.fact(row).with_(facts.rule("frameworks", "cudnn-packages"))
            return rule.fails(
                f"{_named(row, version)} requires {wheel}, whose files overwrite those of {own} that"
                f" tensorflow[and-cuda] {release.version} requires; use an environment for each",
                "mixed_frameworks",
            )
    return None


def wheels_of_another_cuda(release: Release, packages: Mapping[str, str]) -> Reason | None:
    """Return why NVIDIA's wheels are of no use to TensorFlow: all are for another CUDA than it loads.

    packages: full names -> version. Wheels without a suffix are for CUDA 13 or later.
    """
    found = {name: match["cuda"] or "13" for name in packages if (match := _LIBRARY.fullmatch(name))}
    wanted = major(release.cuda)
    if not found or wanted in found.values():
        return None
    name = min(found, key=lambda one: ("cuda-runtime" not in one, one))
    return release.fact.fails(
        f"tensorflow {release.version} was built with CUDA {release.cuda} and loads the libraries of CUDA"
        f" {wanted}, but {name} {packages[name]} is for CUDA {found[name]}",
        "cuda_of_another_version",
    )


def mixed_frameworks(
    release: Release, built_with: str, packages: Mapping[str, str], cudnn_wheel: str | None
) -> list[Reason]:
    """Return why the cuDNN of other frameworks does not fit the one that TensorFlow was built with.

    packages: names without the suffix of their CUDA -> version, empty if it is not known. cudnn_wheel: the
    version of the cuDNN wheel in the environment, None if it is not known; then it is the one that the
    framework requires.
    """
    found = []
    for row in facts.rows("frameworks", "cudnn"):
        version = packages.get(row["package"])
        if version is None or not _is_about(row, version):
            continue
        required = row["cudnn"].lstrip("=>")
        newest = row["cudnn"].startswith(">=")
        if cudnn_wheel is not None and not _range(row["cudnn"]).contains(cudnn_wheel):
            continue
        fits = cudnn.fits_build(cudnn_wheel or required, built_with)
        # A lower bound is met by every newer release of the same major version.
        if (
            fits is None
            or fits.outcome is not Outcome.FAILS
            or (newest and fits.rule == "cudnn_older_than_built")
        ):
            continue
        found.append(
            facts.fact(row).fails(
                f"{_named(row, version)} requires cuDNN {row['cudnn']}, which tensorflow"
                f" {release.version}, compiled with cuDNN {built_with}, does not accept;"
                " use an environment for each",
                "mixed_frameworks",
            )
        )
    return found


def _is_about(row: facts.Row, version: str) -> bool:
    """Return True if a row is about a version of its package. An empty one is in rows about any release."""
    if row["releases"] == _ANY:
        return True
    # A version such as 2.6.0+cu118 comes from the framework's own index and requires other packages.
    return version != "" and "+" not in version and _range(row["releases"]).contains(version)


def _named(row: facts.Row, version: str) -> str:
    return f"{row['package']} {version}".rstrip()


@functools.cache
def _range(text: str) -> Range:
    return Range.parse(text, release_comparer)
