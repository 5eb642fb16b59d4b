"""Combinations that are known to fail or to need care, and traits of releases and GPUs, as rows of data with
conditions.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..conditions import Condition, ConditionError, Language, Value, fact_kind
from ..model.prediction import Outcome, Reason
from ..versions import (
    ComputeCapability,
    InvalidVersion,
    Version,
    leading_numbers,
    major,
    numbers_in,
    release_range,
    version_or_oldest,
)
from . import facts, hardware, kernels
from .facts import Fact
from .releases import Release, build

FAILS = "fails"
UNKNOWN = "unknown"
ADVISORY = "advisory"
#: What rows of the section `traits` mean: they say nothing for or against a combination.
TRAIT = "trait"

#: Kinds of conditions on the machine. `gpu` is the short name of a model; another model is not that one.
_CAPABILITY, _GPU = "capability", "gpu"
_OF_MACHINE = frozenset({_CAPABILITY, _GPU})
_OF_SOFTWARE = frozenset({"tensorflow", "python", "cudnn", "extra"})
#: Every kind that is not listed is a package with its version.
_LANGUAGE = Language({_CAPABILITY: "value", _GPU: "value", "extra": "value"}, default_main="version")


@dataclass(frozen=True)
class Combination:
    """One row of known_issues.yaml: it applies where its condition is true.

    by_gpu: True if the condition asks about the GPU. mode: `eager` or `xla` if the row concerns only
    operations that run this way.
    """

    when: Condition
    by_gpu: bool
    mode: str | None
    means: str
    text: str
    remedy: str
    fact: Fact

    def holds(self, known: Mapping[str, str]) -> bool | None:
        """Return whether the condition is true for values by kind; None if one that decides is missing."""

        def find(kind: str) -> Sequence[Value] | None:
            # A package has a version, and everything else a value.
            return (Value({"value": known[kind], "version": known[kind]}),) if kind in known else None

        return self.when.evaluate(find).truth

    def reason(self) -> Reason:
        text = f"{self.text}; {self.remedy}"
        if self.means == FAILS:
            return self.fact.fails(text, "known_issue", mode=self.mode)
        if self.means == UNKNOWN:
            return self.fact.unknown(text, "known_issue", mode=self.mode)
        return self.fact.advises(text, mode=self.mode)


def of_software(
    version: str | None,
    python: str | None,
    cudnn: str | None,
    extra: bool | None,
    packages: Mapping[str, str],
) -> Mapping[str, str]:
    """Return the values that conditions may ask about. packages: name without suffix -> version."""
    known = {**packages, "tensorflow": version, "python": python, "cudnn": cudnn}
    found = {kind: value for kind, value in known.items() if value}
    return found if extra is None else {**found, "extra": "yes" if extra else "no"}


@functools.cache
def combinations() -> tuple[Combination, ...]:
    return tuple(combination(row) for row in facts.rows("known_issues", "issues"))


@functools.cache
def traits() -> tuple[Combination, ...]:
    return tuple(
        combination({**row, "means": TRAIT, "remedy": ""}) for row in facts.rows("known_issues", "traits")
    )


@functools.cache
def by_kind() -> Mapping[str, Combination]:
    """Return every combination and trait by the kind that a condition on it asks for."""
    return {fact_kind(one.fact.id): one for one in (*combinations(), *traits())}


def trait_holds(identifier: str, **values: str) -> bool:
    """Return whether a trait is true for values by kind. Text after the numbers of a version is ignored."""
    trait = by_kind()[fact_kind(identifier)]
    return trait.holds({kind: numbers_in(value) or value for kind, value in values.items()}) is True


@functools.cache
def named_packages() -> frozenset[str]:
    """Return the packages, other than NVIDIA's, on whose versions a combination depends."""
    kinds = {one.kind for known in combinations() for one in known.when.comparisons()}
    return frozenset(kind for kind in kinds - _OF_SOFTWARE - _OF_MACHINE if not kind.startswith("nvidia-"))


@functools.cache
def named_gpus() -> frozenset[str]:
    """Return the short names of the GPU models that a condition names."""
    wanted = (one for known in combinations() for one in known.when.comparisons() if one.kind == _GPU)
    return frozenset(value.text for one in wanted for value in one.values.get("value", ()))


def on_image(known: Mapping[str, str]) -> tuple[Combination, ...]:
    """Return the combinations that apply to software on every GPU, and those that may apply on some."""
    found = ((one, one.holds(known)) for one in combinations())
    return tuple(one for one, truth in found if truth or (truth is None and one.by_gpu))


def on_gpu(
    possible: Iterable[Combination],
    known: Mapping[str, str],
    capability: ComputeCapability,
    model: str | None,
) -> tuple[Reason, ...]:
    """Return the reasons that apply on a GPU. model: its short name; None for one that no condition names."""
    values = {**known, **of_gpu(capability, model)}
    return tuple(one.reason() for one in possible if one.holds(values))


def on_some_gpus(known: Mapping[str, str]) -> Iterator[Reason]:
    """Yield the reasons why software fails on some GPUs, each with the names of their models."""
    for one in combinations():
        if one.means != FAILS or one.holds(known) is not None:
            continue
        models = [
            model.name
            for model in hardware.gpus()
            if one.holds({**known, **of_gpu(model.compute_capability, model.slug)})
        ]
        if models:
            reason = one.reason()
            yield replace(reason, text=f"on {', '.join(models)}: {reason.text}")


def of_gpu(capability: ComputeCapability, model: str | None) -> Mapping[str, str]:
    """Return the values of a GPU that conditions may ask about. model: as for `on_gpu`."""
    return {_CAPABILITY: str(capability), _GPU: model or ""}


def combination(row: facts.Row) -> Combination:
    """Read a row of known_issues.yaml. Raises ConditionError."""
    condition = _LANGUAGE.parse(row["when"], row["id"])
    comparisons = tuple(condition.comparisons())
    for one in comparisons:
        for wanted in one.values.get("value", ()) if one.kind == _GPU else ():
            if wanted.text not in {known.slug for known in hardware.gpus()}:
                raise ConditionError(f"{row['id']}: {wanted.text} is not the short name of a known GPU")
    return Combination(
        when=condition,
        by_gpu=any(one.kind in _OF_MACHINE for one in comparisons),
        mode=row.get("mode"),
        means=row["means"],
        text=row["text"],
        remedy=row["remedy"],
        fact=facts.fact(row),
    )


# Rules about packages next to TensorFlow: another TensorFlow, and frameworks that bring their own cuDNN.

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


def with_cudnn() -> Collection[str]:
    """Return the packages that require a cuDNN, each once."""
    return dict.fromkeys(row["package"] for row in facts.rows("frameworks", "cudnn"))


def framework_packages() -> tuple[str, ...]:
    """Return the packages that the rules of this module look for, besides cuDNN."""
    return (*_ON_CPU, *with_cudnn())


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


def requirement_unmet(version: str, packages: Mapping[str, str]) -> Iterator[Reason]:
    """Yield why pip does not install a release with packages whose versions its metadata rejects."""
    built = build(version) if version_or_oldest(version) > version_or_oldest(None) else None
    for name, wanted in built.requires.items() if built else ():
        pinned = packages.get(name, "")
        with contextlib.suppress(InvalidVersion):
            if built and not any(release_range(one).contains(pinned) for one in wanted):
                yield built.fact.fails(
                    f"tensorflow {built.version} requires {name}{' or '.join(wanted)}, not {pinned},"
                    " so pip refuses to install both at once",
                    "requirement_unmet",
                )


def invalid_version(name: str, version: str) -> Reason:
    """Return why a package that is pinned to an invalid version (`9.x`) can't be installed."""
    series = ".".join(map(str, leading_numbers(version)))
    instead = f"to allow every {series} release, write {name}=={series}.*" if series else "name a release"
    return facts.rule("frameworks", "package-versions").fails(
        f'{name}=={version} can\'t be installed, because "{version}" is not a version; {instead}',
        "invalid_version",
    )


def last_of_removed(name: str) -> str | None:
    """Return the last release of a package that was replaced, which pip takes if it may."""
    return next((row["last"] for row in facts.rows("frameworks", "removed") if row["package"] == name), None)


def required_cudnn(release: Release, packages: Mapping[str, str]) -> str | None:
    """Return the cuDNN that a framework pins and a release allows, or None. packages: by full name."""
    name = f"nvidia-cudnn-{release.suffix}"
    for row in facts.rows("frameworks", "cudnn"):
        version = packages.get(row["package"])
        if version is None or not row["cudnn"].startswith("==") or row.get("wheel") not in (None, name):
            continue
        required: str = row["cudnn"].removeprefix("==")
        if _is_about(row, version) and name in release.wheels:
            return required if release_range(release.wheels[name]).contains(required) else None
    return None


def two_cudnns(packages: Mapping[str, str]) -> Reason | None:
    """Return why wheels of cuDNN for several CUDAs don't work together, or None. packages: by full name."""
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
    """Return why a framework's cuDNN replaces the extra's, or None. packages: by full name; may be empty."""
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
    """Return why NVIDIA's wheels are all for another CUDA, or None; those without a suffix are for 13 on."""
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
        if cudnn_wheel is not None and not release_range(row["cudnn"]).contains(cudnn_wheel):
            continue
        fits = kernels.fits_build(cudnn_wheel or row["cudnn"].lstrip("=>"), built_with)
        if fits is None or fits.outcome is not Outcome.FAILS:
            continue
        # A lower bound is met by every newer release of the same major version.
        if not (row["cudnn"].startswith(">=") and fits.rule == "cudnn_older_than_built"):
            text = (
                f"{_named(row, version)} requires cuDNN {row['cudnn']}, which tensorflow {release.version},"
                f" compiled with cuDNN {built_with}, does not accept; use an environment for each"
            )
            found.append(facts.fact(row).fails(text, "mixed_frameworks"))
    return found


def _is_about(row: facts.Row, version: str) -> bool:
    """Return True if a row is about a version of its package. An empty one is in rows about any release."""
    if row["releases"] == _ANY:
        return True
    # A version such as 2.6.0+cu118 comes from the framework's own index and requires other packages.
    if version == "" or "+" in version:
        return False
    try:
        return release_range(row["releases"]).contains(version)
    except ValueError:
        return False


def _named(row: facts.Row, version: str) -> str:
    return f"{row['package']} {version}".rstrip()
