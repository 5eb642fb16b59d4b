"""`recommend`: list the images of a registry that fit a host, best first."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import click

from ..certify.trust import Trust
from ..compat import drivers
from ..errors import EXIT_FAILED, EXIT_OK
from ..model.codec import encode
from ..registry.client import Registry
from ..registry.names import Repository
from ..reports.printable import json_text
from .host_options import host_options, resolve_host, version_options
from .options import format_option, print_status, verbose_option
from .trust_options import certificate_options

if TYPE_CHECKING:
    from ..delivery.choose import Assessment
    from ..delivery.host import Host

#: The length of a digest as docker shortens it, with the algorithm.
_SHORT = len("sha256:") + 12


@click.command("recommend")
@host_options
@version_options
@certificate_options
@format_option("table", "json")
@verbose_option
def command(
    driver: str | None,
    gpus: Sequence[str],
    tensorflow: str | None,
    python: str | None,
    additions: str | None,
    registry: Registry,
    trust: Trust,
    max_age: timedelta | None,
    accept_expired: bool,
    format_: str,
) -> int:
    """List the images for this host, or another, best first, with the reason why each one fits or does not.

    An image is certified if it was measured on the host's driver branch and compute capability; predicted
    means that only the facts say that it works there. If images differ only in CUDA and cuDNN, those without
    limits on this host come first. The exit code is 1 if no image fits.
    """
    from ..delivery.candidates import Terms, recommend, tagged_images, without_certificates
    from ..delivery.choose import Standing

    host = resolve_host(driver, gpus)
    print_status(f"Host: {host}")
    remark = drivers.ended(host.driver.branch)
    if remark is not None:
        print_status(f"Note: {remark.text}.")
    wanted = tagged_images(registry, tensorflow, python, additions)
    found = recommend(registry, wanted, host, Terms(trust, max_age, accept_expired))
    if not any(one.candidate.certificates or one.candidate.problems for one in found):
        print_status(f"No image in {registry.repository} is certified yet, for this host or another.")
        print_status(f"  hint: {without_certificates(registry)}")
    if format_ == "json":
        click.echo(json_text(_document(registry.repository, host, found)))
    else:
        _show(found)
    counts = [sum(one.standing is standing for one in found) for standing in Standing]
    print_status(
        ", ".join(f"{count} {standing.value}" for count, standing in zip(counts, Standing, strict=True))
    )
    return EXIT_OK if any(one.standing is not Standing.UNFIT for one in found) else EXIT_FAILED


def _show(found: list[Assessment]) -> None:
    from rich.table import Table
    from rich.text import Text

    from ..reports.terminal import show

    table = Table("image", "digest", "for this host", "why", box=None, pad_edge=False)
    table.columns[0].no_wrap = True
    for one in found:
        why = "; ".join([one.why, *(limit.line for limit in one.limits)])
        table.add_row(
            one.candidate.image.tag, (one.candidate.digest or "")[:_SHORT], one.standing.value, Text(why)
        )
    show(table)


class HostDocument(TypedDict):
    """The host that images were chosen for, as JSON."""

    driver: Annotated[str, "The release or branch."]
    gpus: Annotated[
        list[dict[str, str | None]],
        "The `name` (null if only the capability is known) and `compute_capability` of each GPU.",
    ]


class CandidateDocument(TypedDict):
    """An image that was considered, as JSON."""

    tag: Annotated[str, "Its tag."]
    image: Annotated[str, "The identifier of the image spec."]
    digest: Annotated[str | None, "The digest of the manifest; null if there is no image to look at."]
    reference: Annotated[str | None, "`HOST/NAME@sha256:…`; null like `digest`."]
    tensorflow: Annotated[str, "As in the tag, like the next three fields."]
    python: Annotated[str, "The version."]
    cuda: Annotated[str | None, "Null for `cpu` images."]
    cudnn: Annotated[str | None, "Null for `cpu` images."]
    standing: Annotated[str, "`certified`, `predicted` or `unfit`."]
    why: Annotated[str, "One sentence."]
    limits: Annotated[
        list[dict[str, str]],
        "The limits in the certificates that cover the host: the `code`, the `gpu` and the `error` of each.",
    ]
    prediction: Annotated[dict[str, str], "The worst `outcome` among the GPUs, and `why`."]
    certificates: Annotated[
        list[dict[str, Any]],
        "Those that count, for any host, newest measurement first; their fields are those of a"
        " [certificate](#certificates-verify---json).",
    ]
    against: Annotated[
        list[str],
        "Sentences: why other certificates don't count, or what is wrong with the image.",
    ]


class RecommendationDocument(TypedDict):
    """The output of `recommend --json`."""

    registry: Annotated[str, "The registry and name."]
    host: Annotated[HostDocument, "The host; its fields are below."]
    images: Annotated[list[CandidateDocument], "The best first; the fields of each are below."]


def _document(repository: Repository, host: Host, found: list[Assessment]) -> RecommendationDocument:
    return {
        "registry": str(repository),
        "host": {
            "driver": str(host.driver),
            "gpus": [{"name": gpu.name, "compute_capability": str(gpu.capability)} for gpu in host.gpus],
        },
        "images": [_entry(repository, one) for one in found],
    }


def _entry(repository: Repository, one: Assessment) -> CandidateDocument:
    image, digest = one.candidate.image, one.candidate.digest
    return {
        "tag": image.tag,
        "image": image.identifier,
        "digest": digest,
        "reference": repository.at(digest) if digest else None,
        "tensorflow": image.tensorflow,
        "python": image.python,
        "cuda": image.cuda,
        "cudnn": image.cudnn,
        "standing": one.standing.value,
        "why": one.why,
        "limits": encode(list(one.limits)),
        "prediction": {"outcome": one.forecast.outcome.value, "why": one.forecast.why},
        "certificates": encode(one.candidate.certificates),
        "against": list(one.candidate.problems),
    }
