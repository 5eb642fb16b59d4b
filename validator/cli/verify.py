"""`verify`: verify certificates; `trust`: write policies that do; `promote`: move aliases to what is good."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

import click

from ..errors import EXIT_FAILED, EXIT_OK
from ..model.codec import encode
from ..registry.client import Registry
from ..registry.names import Repository, identifier_of, tag_named
from ..reports.printable import json_text, one_line
from ..system.package_sources import host_sources
from . import Command, SuggestingGroup, options
from .images import name_option
from .options import Project, argument, flag, option, print_status

if TYPE_CHECKING:
    from ..assemble.image import Compared
    from ..certify.trust import Terms
    from ..certify.verify import Move, Verified
    from ..model.record import Certificate, Failure


@click.command("verify", cls=Command)
def verify_command(
    registry: Registry,
    images: Sequence[str] = argument("[IMAGE]...", nargs=-1),
    rebuild: bool = flag(
        "--rebuild  Instead, make every layer of these images again from the wheels of their locks, and say"
        " if they are exactly that. Needs no key."
    ),
    terms: Terms | None = options.certificates(),
    project: Project = options.project(),
    format_: str = options.formats("table", "json"),
) -> int:
    """Verify the certificates of images: signature, digest, time and checks.

    The newest statement of the trusted signer for a host class decides: if it says that the image failed
    there, older certificates for that host class don't count.

    Name images by image spec, alias or digest; without names, every image in the registry is verified. The
    exit code is 1 if a named image has no valid certificate, or, without names, if no image has one.

    With --rebuild, the exit code is 1 if a layer or the configuration of an image is not what its lock gives.
    """
    if terms is None:
        if not images:
            raise click.UsageError("--rebuild needs the names or digests of images")
        return _rebuild(images, registry, project.matrix_path, format_)
    from ..certify.verify import certificates

    digests = {name: registry.named(tag_named(name)) for name in images}
    if not images:
        # Every image of this project, by its image spec.
        tags = {name: tag for tag in registry.tags() if (name := identifier_of(tag))}
        every = {name: registry.digest_of(tag) for name, tag in tags.items()}
        if not every:
            print_status(f"{registry.repository} has no images with a tag that `build-matrix --push` sets.")
        digests = {name: digest for name, digest in every.items() if digest is not None}
    found = {name: certificates(registry, digest, terms) for name, digest in digests.items()}
    if format_ == "json":
        checked = list(found.values())
        document: VerificationDocument = {
            "registry": str(registry.repository),
            "images": digests,
            "certificates": encode([one for verified in checked for one in verified.certificates]),
            "failures": encode([one for verified in checked for one in verified.failures]),
            "refused": [
                {"image": name, "what": refused.what, "why": refused.why}
                for name, verified in found.items()
                for refused in verified.refused
            ],
        }
        click.echo(json_text(document))
    else:
        _show(digests, found)
    good = [bool(verified.certificates) for verified in found.values()]
    return EXIT_OK if good and (all(good) if images else any(good)) else EXIT_FAILED


def _rebuild(images: Sequence[str], registry: Registry, matrix_path: Path, format_: str) -> int:
    from ..pipeline.makers import rebuild_image
    from .bundle import locked_image

    sources, local = host_sources(), options.working_directory(matrix_path)
    found: dict[str, tuple[Compared, ...]] = {}
    for name in images:
        tag = tag_named(name)
        digest = registry.named(tag)
        spec, lock = locked_image(registry, tag, digest, matrix_path)
        found[name] = rebuild_image(registry, digest, spec, lock, sources, print_status, local)
    if format_ == "json":
        click.echo(json_text({name: encode(list(layers)) for name, layers in found.items()}))
    else:
        rows = [
            (name, layer.name, layer.finding.value, (layer.found or layer.expected or "")[:19])
            for name, layers in found.items()
            for layer in layers
        ]
        options.print_rows(("image", "layer", "found", "digest"), rows)
    wrong = {name: [layer.name for layer in layers if not layer.is_right] for name, layers in found.items()}
    for name, names in wrong.items():
        print_status(
            f"{name}: " + (f"not what its lock gives: {', '.join(names)}" if names else "exactly its lock")
        )
    return EXIT_FAILED if any(wrong.values()) else EXIT_OK


class RefusedDocument(TypedDict):
    """A document that does not count for an image, as JSON."""

    image: Annotated[str, "The name that was asked for."]
    what: Annotated[str, "A digest or tag."]
    why: Annotated[str, "One sentence."]


class VerificationDocument(TypedDict):
    """The output of `verify --json`."""

    registry: Annotated[str, "The registry and name."]
    images: Annotated[
        dict[str, str], "The digest of each image that was verified, by the name that was asked for."
    ]
    certificates: Annotated[
        list[dict[str, object]], "The certificates that count; the fields of each are below."
    ]
    failures: Annotated[
        list[dict[str, object]],
        "The images that failed in the newest measurement on a host class; the fields of each are below.",
    ]
    refused: Annotated[list[RefusedDocument], "What does not count; the fields of each are below."]


def _show(digests: dict[str, str], found: dict[str, Verified]) -> None:
    rows = []
    for name, verified in found.items():
        statements: list[tuple[Certificate | Failure, str]] = []
        for certificate in verified.certificates:
            own = f" with {', '.join(certificate.own_passed)}" if certificate.own_passed else ""
            failed = f", {len(certificate.failed)} optional failed" if certificate.failed else ""
            statements.append((certificate, f"{len(certificate.passed)} passed{own}{failed}"))
        statements += [(each, f"failed: {', '.join(each.failed)}") for each in verified.failures]
        for each, checks in statements:
            host_class = each.host_class + (" (fixture)" if each.fixture else "")
            gpus = ", ".join(sorted({gpu.name for gpu in each.gpus}))
            rows.append((name, host_class, each.driver or "", gpus, each.measured, checks))
        if not verified.certificates:
            rows.append((name, "no valid certificate", "", "", "", ""))
    if found:
        options.print_rows(("image", "host class", "driver", "GPU", "measured", "checks"), rows)
    for name, verified in found.items():
        for certificate in verified.certificates:
            for limit in certificate.limits:
                print_status(f"Limit: {name} on {certificate.host_class}: {limit.sentence}")
        for refused in verified.refused:
            print_status(f"Rejected: {name} {refused.what}: {refused.why}")


def _check_policy_format(_: click.Context, __: click.Parameter, format_: str) -> str:
    from ..certify.policies import check_format

    check_format(format_)
    return format_


@click.group("trust", cls=SuggestingGroup)
def trust_command() -> None:
    """Write policies that enforce the trust file in other programs."""


@trust_command.command("export")
def export_command(
    format_: str = option(
        "--format cosign|jq|policy-controller|kyverno|connaisseur  cosign: Rego for `cosign"
        " verify-attestation --policy`; jq: a filter for its output; policy-controller: a"
        " ClusterImagePolicy; kyverno: a ClusterPolicy; connaisseur: only an error that says why Connaisseur"
        " can't enforce a certificate.",
        required=True,
        callback=_check_policy_format,
    ),
    drivers: tuple[str, ...] = option(
        "--driver BRANCH...  A driver of the cluster's nodes: a branch such as 580, or a release;"
        " repeatable.",
        required=True,
    ),
    gpus: tuple[str, ...] = option(
        "--gpu MODEL...  A GPU of the cluster's nodes: h100, 'RTX 4090', or a compute capability such as"
        " 9.0; repeatable.",
        required=True,
    ),
    max_age: timedelta | None = option(
        "--max-age AGE  Reject measurements older than this, such as 7d or 12h.  [default: until the"
        " certificate expires]",
        callback=options.parse_age,
    ),
    repository: str | None = options.registry,
    fixtures: bool = flag(
        "--fixtures  For tests: accept only certificates of made-up records, signed with a throw-away key."
    ),
    project: Project = options.project("trust"),
) -> None:
    """Write a policy that accepts only images with a good certificate for a cluster.

    The certificate must be signed by the key or the identity under `release` in the trust file, cover a
    driver branch and a GPU of the cluster, contain every check that is required today, have no limit that the
    trust file refuses, and not have expired.
    The policy contains only public keys.
    """
    from ..certify.policies import demands, policy

    trust = project.read_trust()
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


_TOOLS = {"policy-controller": "policy-controller", "kyverno": "Kyverno up to 1.19"}


@click.command("promote", cls=Command)
def promote_command(
    registry: Registry,
    terms: Terms = options.certificates(bundles=False),
    project: Project = options.project(),
    additions: str | None = name_option,
    dry_run: bool = flag("--dry-run  Show what would move, and move nothing."),
    format_: str = options.formats("text", "json"),
) -> int:
    """Move the aliases (latest, 2.21, 2.21-driver535) to the best certified images.

    An alias never moves to an image without a valid certificate, or without provenance by a builder in
    trust.yaml. It moves away from an image that failed or whose certificates expired, even to an older
    TensorFlow. The exit code is 1 if an alias stays on an image without a valid certificate, because no other
    fits it.
    """
    from ..certify.verify import promote

    parties = project.read_trust()
    result = promote(
        registry,
        terms,
        parties,
        additions=additions,
        dry_run=dry_run,
        on_move=lambda move: print_status(f"Set {move.alias} to {move.now}"),
    )
    if format_ == "json":
        click.echo(json_text([asdict(move) for move in result]))
    else:
        for move in result:
            click.echo(one_line(_line(move, dry_run)))
    if not result:
        print_status(f"{registry.repository} has no certified images and no aliases.")
    return EXIT_FAILED if any(move.why for move in result) else EXIT_OK


def _line(move: Move, dry_run: bool) -> str:
    if move.moves:
        verb = "would move" if dry_run else "moved"
        lost = f", because the old one is no longer good: {move.lost}" if move.lost else ""
        return f"{move.alias}: {verb} from {move.was or 'nothing'} to {move.now} ({move.image}){lost}"
    if move.why:
        return f"{move.alias}: stale, but stays at {move.was}: {move.why}"
    return f"{move.alias}: stays at {move.was} ({move.image})"
