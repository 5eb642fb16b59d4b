"""`trust export`: write a policy that accepts only images with a good certificate."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import click

from ..errors import EXIT_OK
from ..registry.names import Repository
from .groups import SuggestingGroup
from .options import matrix_option, print_status, verbose_option
from .trust_options import parse_age, registry_option, trust_file_option, trust_path_for


def _possible(_: click.Context, __: click.Parameter, format_: str) -> str:
    from ..admission.policies import check_format

    check_format(format_)
    return format_


@click.group("trust", cls=SuggestingGroup)
def command() -> None:
    """Write policies that enforce the trust file in other programs."""


@command.command("export")
@click.option(
    "--format",
    "format_",
    type=click.Choice(("cosign", "jq", "policy-controller", "kyverno", "connaisseur")),
    required=True,
    callback=_possible,
    help="cosign: Rego for `cosign verify-attestation --policy`; jq: a filter for its output;"
    " policy-controller: a ClusterImagePolicy; kyverno: a ClusterPolicy; connaisseur: only an"
    " error that says why Connaisseur can't enforce a certificate.",
)
@click.option(
    "--driver",
    "drivers",
    multiple=True,
    required=True,
    metavar="BRANCH",
    help="A driver of the cluster's nodes: a branch such as 580, or a release; repeatable.",
)
@click.option(
    "--gpu",
    "gpus",
    multiple=True,
    required=True,
    metavar="MODEL",
    help="A GPU of the cluster's nodes: h100, 'RTX 4090', or a compute capability such as 9.0; repeatable.",
)
@click.option(
    "--max-age",
    callback=parse_age,
    metavar="AGE",
    help="Reject measurements older than this, such as 7d or 12h.  [default: until the certificate expires]",
)
@registry_option
@click.option(
    "--fixtures",
    is_flag=True,
    help="For tests: accept only certificates of made-up records, signed with a throw-away key.",
)
@matrix_option
@trust_file_option
@verbose_option
def export_command(
    format_: str,
    drivers: tuple[str, ...],
    gpus: tuple[str, ...],
    max_age: timedelta | None,
    repository: str | None,
    fixtures: bool,
    matrix_path: Path,
    trust_path: Path | None,
) -> int:
    """Write a policy that accepts only images with a good certificate for a cluster.

    The certificate must be signed by the key or the identity under `release` in the trust file, cover a
    driver branch and a GPU of the cluster, contain every check that is required today, have no limit that the
    trust file refuses, and not have expired.
    The policy contains only public keys.
    """
    from ..admission.demands import demands
    from ..admission.policies import policy
    from ..certify.trust_file import read_trust_file

    trust = read_trust_file(trust_path_for(matrix_path, trust_path))
    wanted = demands(trust, drivers, gpus, max_age, fixtures=fixtures)
    place = Repository.parse(repository) if repository else None
    click.echo(policy(format_, wanted, place), nl=False)
    if format_ == "policy-controller" and wanted.refuse_limits:
        print_status(
            "Warning: policy-controller accepts an image if one of its certificates is good, so an older one,"
            f" or one of another host class, lets an image run that has {' or '.join(wanted.refuse_limits)}."
        )
    if format_ in ("policy-controller", "kyverno") and wanted.signatory.key is not None:
        print_status(
            f"Warning: {_TOOLS[format_]} may reject every statement that is signed with a key and is not in a"
            " transparency log. Test the policy with a certified image first, or sign as an identity."
        )
    return EXIT_OK


_TOOLS = {"policy-controller": "policy-controller", "kyverno": "Kyverno up to 1.19"}
