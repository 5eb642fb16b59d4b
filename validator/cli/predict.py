"""`predict`: the prediction for any one combination, in the matrix or not."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import click

from ..compat.gpus import UnknownGpu, gpu
from ..compat.policies import choose
from ..compat.releases import release
from ..errors import EXIT_FAILED, EXIT_OK, InputError
from ..model.spec import AS_BUILT, HostClass, ImageSpec, Variant, host_identifier, slug
from ..versions import ComputeCapability, CudaVersion, DriverRelease
from .options import format_option, say, verbose_option

if TYPE_CHECKING:
    from ..model.spec import ImageSpec


@click.command("predict")
@click.option("--tensorflow", required=True, metavar="VERSION", help="Such as 2.21.0.")
@click.option("--python", metavar="VERSION", help="Such as 3.12.  [default: the newest it has wheels for]")
@click.option(
    "--policy", metavar="POLICY", help="For CUDA and cuDNN: as-built or latest.  [default: as-built]"
)
@click.option("--cuda", metavar="POLICY", help="as-built, latest, or a version such as 12.8.")
@click.option("--cudnn", metavar="POLICY", help="as-built, latest, or a version such as 9.10.")
@click.option("--variant", type=click.Choice(["gpu", "cpu"]), default="gpu", show_default=True)
@click.option("--driver", metavar="RELEASE", help="Of the machine: such as 535.183.01, or a branch: 535.")
@click.option("--gpu", metavar="MODEL", help="Of the machine: such as h100 or 'RTX 4090'.")
@click.option("--compute-capability", metavar="VERSION", help="Such as 9.0, for a model that is not known.")
@click.option("--compat", metavar="CUDA", help="The cuda-compat package on the loader's path, such as 12.9.")
@format_option("text", "json")
@verbose_option
def command(
    tensorflow: str,
    python: str | None,
    policy: str | None,
    cuda: str | None,
    cudnn: str | None,
    variant: str,
    driver: str | None,
    gpu: str | None,
    compute_capability: str | None,
    compat: str | None,
    format_: str,
) -> int:
    """Say what the facts predict for one combination, with every reason, its fact and its source.

    With --tensorflow alone: which CUDA, cuDNN and driver the release needs, and on which GPUs it can run. The
    exit code is 1 when the combination fails.
    """
    from ..compat.predict import predict
    from ..model.prediction import Outcome, PlannedCell
    from ..model.spec import Cell, Variant

    combination = Combination(
        tensorflow, python, policy, cuda, cudnn, Variant(variant), driver, gpu, compute_capability, compat
    )
    if combination.variant is Variant.GPU and not combination.names_host:
        return _alone(image_of(combination), format_)
    cell = Cell(image_of(combination), host_of(combination))
    prediction = predict(cell)
    if format_ == "json":
        click.echo(json.dumps(PlannedCell(cell, prediction).as_json(), indent=2))
    else:
        from ..reports.terminal import prediction_text, show

        click.echo(cell.identifier)
        show(prediction_text(prediction))
    return EXIT_FAILED if prediction.outcome is Outcome.FAILS else EXIT_OK


def _alone(image: ImageSpec, format_: str) -> int:
    from ..compat.release_requirements import needs

    found = needs(image)
    if format_ == "json":
        click.echo(json.dumps(found.as_json(), indent=2))
    else:
        from ..reports.terminal import needs_text, show

        click.echo(image.identifier)
        show(needs_text(found))
        say("with --driver and --gpu: what the facts predict for that machine")
    return EXIT_FAILED if found.fails else EXIT_OK


# One combination given by options, as an image spec and a host class.

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
