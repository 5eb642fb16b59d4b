"""One combination given by options, as an image spec and a host class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import click

from ..compat.gpus import UnknownGpu, gpu
from ..compat.policies import choose
from ..compat.releases import release
from ..errors import InputError
from ..model.spec import AS_BUILT, HostClass, ImageSpec, Variant, host_identifier, slug
from ..model.versions import ComputeCapability, CudaVersion, DriverRelease

T = TypeVar("T")


@dataclass(frozen=True)
class Combination:
    """The options of `predict`, as given."""

    tensorflow: str
    python: str | None
    policy: str | None
    cuda: str | None
    cudnn: str | None
    variant: Variant
    driver: str | None
    gpu: str | None
    compute_capability: str | None
    compat: str | None

    @property
    def names_host(self) -> bool:
        """Whether anything was given about the machine."""
        return any((self.driver, self.gpu, self.compute_capability, self.compat))


def image_of(asked: Combination) -> ImageSpec:
    """The image spec. A version that the wheel's metadata excludes is taken all the same: what would
    happen is what is asked. Raises InputError for what is not known."""
    found = release(asked.tensorflow)
    python = asked.python or found.pythons[-1]
    if not all(part.isdigit() for part in python.split(".")) or python.count(".") != 1:
        raise InputError(f'--python: "{python}" is not a Python version', hint="write it as 3.12")
    if asked.variant is Variant.CPU:
        if asked.policy or asked.cuda or asked.cudnn:
            raise click.UsageError("--policy, --cuda and --cudnn are for the gpu variant")
        return ImageSpec(found.version, python, Variant.CPU)
    if asked.policy and asked.cuda and asked.cudnn:
        raise click.UsageError("--policy says nothing where --cuda and --cudnn are both given")
    policy = asked.policy or AS_BUILT
    cuda, cudnn = choose(found, asked.cuda or policy, asked.cudnn or policy, within_metadata=False)
    return ImageSpec(found.version, python, Variant.GPU, cuda, cudnn)


def host_of(asked: Combination) -> HostClass:
    """The host class. Raises InputError for what is not known or contradicts itself."""
    if asked.variant is Variant.CPU and not asked.names_host:
        return HostClass.without_gpu()
    if not asked.driver:
        raise click.UsageError(
            "--driver is needed beside what else is said of the machine: its release, or its branch;"
            " without all of it, what the TensorFlow release needs is told"
        )
    driver = _read(DriverRelease.parse, asked.driver, "--driver")
    given = (
        _read(ComputeCapability.parse, asked.compute_capability, "--compute-capability")
        if asked.compute_capability
        else None
    )
    if asked.compat:
        _read(CudaVersion.parse, asked.compat, "--compat")
    model: str | None = None
    if asked.gpu:
        model, given = _model(asked.gpu, given)
    if given is None:
        raise click.UsageError("--gpu or --compute-capability is needed")
    name = host_identifier(driver, model, given, asked.compat)
    return HostClass(name, driver, given, model, (), asked.compat)


def _model(name: str, given: ComputeCapability | None) -> tuple[str, ComputeCapability]:
    """A model's slug and its capability; a model that the facts do not know has the one that was given."""
    try:
        known = gpu(name)
    except UnknownGpu:
        if given is None:
            raise
        return slug(name), given
    if given is not None and given != known.compute_capability:
        raise InputError(
            f"--compute-capability {given}: {known.name} has {known.compute_capability}",
            hint="give one of the two",
        )
    return known.slug, known.compute_capability


def _read(parse: Callable[[str], T], text: str, option: str) -> T:
    try:
        return parse(text)
    except ValueError as error:
        raise InputError(f"{option}: {error}") from None
