"""`predict`: predict whether one combination works, in the matrix or not."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import click

from ..compat.errors import UnknownGpu
from ..compat.gpus import gpu
from ..compat.image_support import image_support
from ..compat.policies import choose
from ..compat.predict import predict
from ..compat.releases import release
from ..errors import EXIT_FAILED, EXIT_OK, InputError
from ..model.prediction import Outcome, PlannedCell
from ..model.spec import AS_BUILT, Cell, HostClass, ImageSpec, Variant, host_identifier, slug
from ..versions import ComputeCapability, CudaVersion, DriverRelease
from .options import format_option, print_status, verbose_option
from .staleness import say_if_stale

T = TypeVar("T")


@dataclass(frozen=True)
class Combination:
    """The options of `predict` that describe an image and a machine."""

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
        """True if any option describes the machine."""
        return any((self.driver, self.gpu, self.compute_capability, self.compat))


@click.command("predict")
@click.option(
    "--tensorflow", required=True, metavar="VERSION", help="The TensorFlow release, such as 2.21.0."
)
@click.option(
    "--python",
    metavar="VERSION",
    help="The Python version, such as 3.12.  [default: the newest one that it has wheels for]",
)
@click.option(
    "--policy",
    metavar="POLICY",
    help="The default of --cuda and --cudnn: as-built or latest.  [default: as-built]",
)
@click.option(
    "--cuda", metavar="POLICY", help="The CUDA version: as-built, latest, or a version such as 12.8."
)
@click.option(
    "--cudnn", metavar="POLICY", help="The cuDNN version: as-built, latest, or a version such as 9.10."
)
@click.option("--variant", type=click.Choice(["gpu", "cpu"]), default="gpu", show_default=True)
@click.option(
    "--driver",
    metavar="RELEASE",
    help="The machine's driver: a release such as 535.183.01 or a branch such as 535.",
)
@click.option("--gpu", metavar="MODEL", help="The machine's GPU, such as h100 or 'RTX 4090'.")
@click.option(
    "--compute-capability",
    metavar="VERSION",
    help="The GPU's compute capability, such as 9.0, if the model is unknown.",
)
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
    """Predict whether one combination works, and show every reason with its fact and its source.

    Without --driver and --gpu: show which CUDA, cuDNN and driver the release needs, and which GPUs it can run
    on. The exit code is 1 if the combination fails.
    """
    combination = Combination(
        tensorflow, python, policy, cuda, cudnn, Variant(variant), driver, gpu, compute_capability, compat
    )
    say_if_stale()
    if combination.variant is Variant.GPU and not combination.names_host:
        return _show_support(image_of(combination), format_)
    cell = Cell(image_of(combination), host_of(combination))
    prediction = predict(cell)
    if format_ == "json":
        click.echo(json.dumps(PlannedCell(cell, prediction).as_json(), indent=2))
    else:
        from ..reports.terminal import prediction_text, show

        click.echo(cell.identifier)
        show(prediction_text(prediction))
    return EXIT_FAILED if prediction.outcome is Outcome.FAILS else EXIT_OK


def _show_support(image: ImageSpec, format_: str) -> int:
    support = image_support(image)
    if format_ == "json":
        click.echo(json.dumps(support.as_json(), indent=2))
    else:
        from ..reports.terminal import image_support_text, show

        click.echo(image.identifier)
        show(image_support_text(support))
        print_status("Add --driver and --gpu for the prediction for one machine.")
    return EXIT_FAILED if support.fails else EXIT_OK


def image_of(combination: Combination) -> ImageSpec:
    """Return the image spec, even for a version that the wheel's metadata excludes.

    Raises InputError for unknown versions.
    """
    tensorflow = release(combination.tensorflow)
    python = combination.python or tensorflow.pythons[-1]
    if not all(part.isdigit() for part in python.split(".")) or python.count(".") != 1:
        raise InputError(f'--python: "{python}" is not a Python version', hint="write it as 3.12")
    if combination.variant is Variant.CPU:
        if combination.policy or combination.cuda or combination.cudnn:
            raise click.UsageError("--policy, --cuda and --cudnn have no effect with --variant cpu")
        return ImageSpec(tensorflow.version, python, Variant.CPU)
    if combination.policy and combination.cuda and combination.cudnn:
        raise click.UsageError("--policy has no effect with both --cuda and --cudnn")
    policy = combination.policy or AS_BUILT
    cuda, cudnn = choose(
        tensorflow, combination.cuda or policy, combination.cudnn or policy, within_metadata=False
    )
    return ImageSpec(tensorflow.version, python, Variant.GPU, cuda, cudnn)


def host_of(combination: Combination) -> HostClass:
    """Return the host class. Raises InputError for unknown or contradictory values."""
    if combination.variant is Variant.CPU and not combination.names_host:
        return HostClass.without_gpu()
    if not combination.driver:
        raise click.UsageError(
            "--driver is needed to predict for a machine. Give its driver release or branch, or leave out"
            " all options about the machine to see what the TensorFlow release needs."
        )
    driver = _read(DriverRelease.parse, combination.driver, "--driver")
    given = (
        _read(ComputeCapability.parse, combination.compute_capability, "--compute-capability")
        if combination.compute_capability
        else None
    )
    if combination.compat:
        _read(CudaVersion.parse, combination.compat, "--compat")
    model: str | None = None
    if combination.gpu:
        model, given = _model(combination.gpu, given)
    if given is None:
        raise click.UsageError("--gpu or --compute-capability is needed to predict for a machine")
    name = host_identifier(driver, model, given, combination.compat)
    return HostClass(name, driver, given, model, (), combination.compat)


def _model(name: str, given: ComputeCapability | None) -> tuple[str, ComputeCapability]:
    """Return a model's slug and capability; for an unknown model, the capability that was given."""
    try:
        known = gpu(name)
    except UnknownGpu:
        if given is None:
            raise
        return slug(name), given
    if given is not None and given != known.compute_capability:
        raise InputError(
            f"--compute-capability {given}: {known.name} has {known.compute_capability}",
            hint="give only one of the two options",
        )
    return known.slug, known.compute_capability


def _read(parse: Callable[[str], T], text: str, option: str) -> T:
    try:
        return parse(text)
    except ValueError as error:
        raise InputError(f"{option}: {error}") from None
