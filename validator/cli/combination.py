"""The combination that `predict` is asked about: its options, read as an image, a host and a situation."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import click

from ..compat.drivers import parse_release
from ..compat.errors import UnknownGpu
from ..compat.freshness import read_on
from ..compat.gpus import gpu
from ..compat.judge import judge
from ..compat.loose_values import without_suffix
from ..compat.packages import required_cudnn
from ..compat.platforms import not_nvidia_text, other_vendor
from ..compat.policies import allowed_cudnn, candidates, choose
from ..compat.predict import situation_of
from ..compat.releases import Release, release
from ..compat.suggest import requirement
from ..errors import InputError, MissingError
from ..model.prediction import Outcome
from ..model.situation import LINUX, PYPI, X86_64, Situation
from ..model.spec import (
    AS_BUILT,
    LATEST,
    RECOMMENDED,
    Cell,
    HostClass,
    ImageSpec,
    Variant,
    host_identifier,
    slug,
)  # fmt: skip
from ..versions import ComputeCapability, CudaVersion, is_numbers

T = TypeVar("T")
#: Packages that require a cuDNN of their own.
_WITH_CUDNN = ("torch", "jax-cuda12-plugin")


@dataclass(frozen=True)
class Combination:
    """The options of `predict` that describe an image and a machine."""

    tensorflow: str = ""
    python: str | None = None
    policy: str | None = None
    cuda: str | None = None
    cudnn: str | None = None
    variant: Variant = Variant.GPU
    driver: str | None = None
    gpu: str | None = None
    compute_capability: str | None = None
    compat: str | None = None
    system: str | None = None
    machine: str | None = None
    kernel_modules: str | None = None
    wheel: str | None = None
    extra: bool | None = None
    packages: tuple[tuple[str, str], ...] = ()
    mode: str | None = None

    @property
    def names_host(self) -> bool:
        """True if any option describes the machine."""
        return any((self.driver, self.gpu, self.compute_capability, self.compat))

    @property
    def says_more(self) -> bool:
        """True if any option describes something that the cells of a matrix don't have."""
        more = (self.system, self.machine, self.kernel_modules, self.wheel, self.packages, self.mode)
        return any(more) or self.extra is not None


def image_of(combination: Combination) -> ImageSpec:
    """Return the image spec, even for a version that the wheel's metadata excludes.

    Raises InputError for unknown versions.
    """
    tensorflow = release(combination.tensorflow)
    python = combination.python or tensorflow.pythons[-1]
    if not is_numbers(python) or python.count(".") != 1:
        raise InputError(f'--python: "{python}" is not a Python version', hint="write it as 3.12")
    if combination.variant is Variant.CPU:
        if combination.policy or combination.cuda or combination.cudnn:
            raise click.UsageError("--policy, --cuda and --cudnn have no effect with --variant cpu")
        return ImageSpec(tensorflow.version, python, Variant.CPU)
    if combination.policy and combination.cuda and combination.cudnn:
        raise click.UsageError("--policy has no effect with both --cuda and --cudnn")
    policy = combination.policy or _default_policy(combination, tensorflow)
    cuda, cudnn = choose(
        tensorflow, combination.cuda or policy, combination.cudnn or policy, within_metadata=False
    )
    return ImageSpec(tensorflow.version, python, Variant.GPU, cuda, cudnn)


def image_for(combination: Combination, host: HostClass | None) -> ImageSpec:
    """Return the image spec for a machine. Raises InputError for unknown versions.

    If nothing was chosen and the recommended image fails on this machine, return the one with the newest CUDA
    and cuDNN that doesn't fail there, or else the newest with which eager operations don't fail.
    """
    image = image_of(combination)
    given = combination.policy or combination.cuda or combination.cudnn or combination.packages
    tensorflow = release(image.tensorflow)
    if given or image.cuda is None or not combination.names_host or _pip_chooses(combination, tensorflow):
        return image
    images = [image, *(replace(image, cuda=cuda, cudnn=cudnn) for cuda, cudnn in candidates(tensorflow))]
    eager = None
    for one in images:
        found = judge(situation_for(combination, one, host))
        if found.outcome is not Outcome.FAILS:
            return one
        if eager is None and found.eager not in (None, Outcome.FAILS):
            eager = one
    return eager or image


def _default_policy(combination: Combination, tensorflow: Release) -> str:
    """Return the policy for the versions that were not given.

    It is that of an image, unless pip installed the release. If only one of CUDA and cuDNN is given, the
    other one is that of the build, as in a matrix.
    """
    if _pip_chooses(combination, tensorflow):
        return LATEST
    return AS_BUILT if combination.cuda or combination.cudnn else RECOMMENDED


def _pip_chooses(combination: Combination, tensorflow: Release) -> bool:
    """Return whether pip chooses the versions of CUDA's libraries: the newest that the extra allows."""
    from_extra = combination.extra is True and combination.wheel in (None, PYPI)
    return from_extra and tensorflow.extra_style == "range"


def assumed_cudnn(combination: Combination, image: ImageSpec, situation: Situation) -> str:
    """Return which cuDNN pip is assumed to choose, and the command that installs exactly that one.

    If the combination fails with that cuDNN but works with older ones that the extra allows, the command
    installs the newest of those. Empty if pip has no choice.
    """
    tensorflow = release(image.tensorflow)
    given = any(without_suffix(name) == "nvidia-cudnn" for name, _ in combination.packages)
    floats = image.cudnn is not None and image.cudnn.floats
    if given or not floats or not _pip_chooses(combination, tensorflow):
        return ""
    wanted, version = requirement(tensorflow), situation.packages.get("nvidia-cudnn") or situation.cudnn
    other = _older_cudnn(tensorflow, situation)
    then = f"It works with cuDNN {other}:" if other else "To get exactly that one:"
    return (
        f"This is for cuDNN {version}, which pip chooses for {wanted} from the\nreleases that were known on"
        f" {read_on()}. {then}\n"
        f'  python -m pip install "{wanted}" nvidia-cudnn-{tensorflow.suffix}=={other or version}'
    )


def _older_cudnn(tensorflow: Release, situation: Situation) -> str | None:
    """Return the newest cuDNN that the extra allows and that makes a failing situation work, or None."""
    if judge(situation).outcome is not Outcome.FAILS:
        return None
    for version in reversed(allowed_cudnn(tensorflow)):
        packages = {**situation.packages, "nvidia-cudnn": version}
        if judge(replace(situation, cudnn=version, packages=packages)).outcome is Outcome.WORKS:
            return version
    return None


def host_of(combination: Combination) -> HostClass | None:
    """Return the host class, or None if the driver or the GPU is not given.

    Raises InputError for unknown or contradictory values.
    """
    if combination.variant is Variant.CPU and not combination.names_host:
        return HostClass.without_gpu()
    driver = _read(parse_release, combination.driver, "--driver") if combination.driver else None
    if combination.compat:
        _read(CudaVersion.parse, combination.compat, "--compat")
    model, given = gpu_of(combination)
    if given is None or driver is None:
        return None
    name = host_identifier(driver, model, given, combination.compat)
    return HostClass(name, driver, given, model, (), combination.compat)


def gpu_of(combination: Combination) -> tuple[str | None, ComputeCapability | None]:
    """Return the model's slug and the capability, if they are given. Raises InputError."""
    text = combination.compute_capability
    given = _read(ComputeCapability.parse, text, "--compute-capability") if text else None
    return _model_of(combination.gpu, given) if combination.gpu else (None, given)


def _model_of(name: str, given: ComputeCapability | None) -> tuple[str, ComputeCapability]:
    """Return a model's slug and capability; for an unknown model, the capability that was given."""
    try:
        known = gpu(name)
    except UnknownGpu:
        vendor = other_vendor(name)
        if vendor is not None:
            raise InputError(f"--gpu: {not_nvidia_text(name, vendor)}", hint=f"use {vendor.build}") from None
        if given is None:
            raise
        return slug(name), given
    if given is not None and given != known.compute_capability:
        raise InputError(
            f"--compute-capability {given}: {known.name} has {known.compute_capability}",
            hint="give only one of the two options",
        )
    return known.slug, known.compute_capability


def situation_for(combination: Combination, image: ImageSpec, host: HostClass | None) -> Situation:
    """Return the facts of the cell, changed as the other options say.

    Only images of this project are known to tell the loader about NVIDIA's folders. A package that is not
    from PyPI has different versions from the release's wheel, so only the given ones are known.
    """
    if combination.variant is Variant.CPU:
        return situation_of(Cell(image, host or HostClass.without_gpu()))
    cell = situation_of(Cell(image, host or HostClass.without_gpu()))
    installed = dict(cell.packages)
    given = dict(combination.packages)
    cuda, cudnn = cell.cuda, cell.cudnn
    if combination.extra is False or combination.wheel not in (None, PYPI):
        cuda = cuda if combination.cuda else None
        cudnn = cudnn if combination.cudnn else None
        installed = {}
    elif any(name in given for name in _WITH_CUDNN):
        # The framework decides which cuDNN is installed, unless it is given too.
        installed.pop("nvidia-cudnn", None)
        if _pip_chooses(combination, release(image.tensorflow)) and not combination.cudnn:
            cudnn = required_cudnn(release(image.tensorflow), given) or cudnn
    return replace(
        cell,
        python=combination.python if combination.wheel not in (None, PYPI) else cell.python,
        cuda=cuda,
        cudnn=cudnn,
        driver=combination.driver,
        gpu=combination.gpu,
        capability=str(host.compute_capability) if host else combination.compute_capability,
        compat=combination.compat,
        system=combination.system or LINUX,
        machine=combination.machine or X86_64,
        kernel_modules=combination.kernel_modules,
        wheel=combination.wheel or PYPI,
        extra=cell.extra if combination.extra is None else combination.extra,
        library_path=True if combination.extra is None else None,
        packages={**installed, **given},
        mode=combination.mode,
    )


def with_this_host(combination: Combination) -> Combination:
    """Return the combination with what this machine shows in place of what was not given."""
    from ..engines.host_situation import host_situation

    named = bool(combination.gpu or combination.compute_capability)
    here = host_situation(one_kind=not named)
    if not (here.driver or combination.driver):
        raise MissingError(
            "this machine shows no NVIDIA driver",
            hint="give --driver and --gpu, or run `nvidia-smi` to see why",
        )
    return replace(
        combination,
        driver=combination.driver or here.driver,
        gpu=combination.gpu if named else here.gpu,
        compute_capability=combination.compute_capability if named else here.capability,
        system=combination.system or here.system,
        machine=combination.machine or here.machine,
        kernel_modules=combination.kernel_modules or here.kernel_modules,
    )


def read_package(text: str) -> tuple[str, str]:
    """Return the normalized name and the version of `NAME==VERSION`. Raises InputError."""
    name, equals, version = text.partition("==")
    if not (name.strip() and equals and version.strip()[:1].isdigit()):
        raise InputError(f'--package: "{text}" is not a name and a version', hint="write it as torch==2.6.0")
    return re.sub(r"[-_.]+", "-", name.strip()).lower(), version.strip()


def _read(parse: Callable[[str], T], text: str, option: str) -> T:
    try:
        return parse(text)
    except ValueError as error:
        hint = error.hint if isinstance(error, InputError) else None
        raise InputError(f"{option}: {error}", hint=hint) from None
