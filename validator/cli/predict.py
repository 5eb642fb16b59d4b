"""`predict`: the prediction for any one combination, in the matrix or not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from ..errors import EXIT_FAILED, EXIT_OK
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
    from .combination import Combination, host_of, image_of

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
    from ..compat.needs import needs

    found = needs(image)
    if format_ == "json":
        click.echo(json.dumps(found.as_json(), indent=2))
    else:
        from ..reports.needs import needs_text
        from ..reports.terminal import show

        click.echo(image.identifier)
        show(needs_text(found))
        say("with --driver and --gpu: what the facts predict for that machine")
    return EXIT_FAILED if found.fails else EXIT_OK
