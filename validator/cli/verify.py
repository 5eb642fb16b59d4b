"""`verify`: the certificates of images in a registry."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from ..errors import EXIT_FAILED, EXIT_OK, InputError
from .options import format_option, say, verbose_option
from .trust_options import evidence_options

if TYPE_CHECKING:
    from ..certify.trust import Trust
    from ..certify.verify import Verified
    from ..registry.client import Registry


@click.command("verify")
@click.argument("images", nargs=-1, metavar="[TAG|DIGEST]...")
@evidence_options
@format_option("table", "json")
@verbose_option
def command(
    images: Sequence[str],
    registry: Registry,
    trust: Trust,
    max_age: timedelta | None,
    format_: str,
) -> int:
    """Verify the certificates of images: signature, digest, time.

    Images are named by tag, alias or digest; with none, every image of the registry is verified. Ends with 1
    when one of those that were named, or all, have no valid certificate.
    """
    from ..certify.verify import certificates

    digests = {name: _digest(registry, name) for name in images} or _all(registry)
    found = {name: certificates(registry, digest, trust, max_age=max_age) for name, digest in digests.items()}
    if format_ == "json":
        click.echo(json.dumps(_document(str(registry.repository), digests, found), indent=2))
    else:
        _show(digests, found)
    good = [bool(verified.certificates) for verified in found.values()]
    return EXIT_OK if good and (all(good) if images else any(good)) else EXIT_FAILED


def _digest(registry: Registry, name: str) -> str:
    from ..registry.names import is_digest

    if is_digest(name):
        if registry.manifest(name) is None:
            raise InputError(f"{registry.repository.at(name)} is not in the registry")
        return name
    digest = registry.digest_of(name)
    if digest is None:
        raise InputError(
            f"{registry.repository.tagged(name)} is not in the registry",
            hint=f"`oras repo tags {registry.repository}` lists what is there",
        )
    return digest


def _all(registry: Registry) -> dict[str, str]:
    """Every image of ours, by its tag."""
    from ..registry.names import identifier_of

    found = {tag: registry.digest_of(tag) for tag in registry.tags() if identifier_of(tag)}
    if not found:
        say(f"{registry.repository} has no images with a tag as build-matrix --push sets it")
    return {tag: digest for tag, digest in found.items() if digest is not None}


def _document(repository: str, digests: dict[str, str], found: dict[str, Verified]) -> dict[str, object]:
    from ..model.codec import encode

    return {
        "registry": repository,
        "images": digests,
        "certificates": encode(
            [certificate for verified in found.values() for certificate in verified.certificates]
        ),
        "refused": [
            {"image": name, "what": refused.what, "why": refused.why}
            for name, verified in found.items()
            for refused in verified.refused
        ],
    }


def _show(digests: dict[str, str], found: dict[str, Verified]) -> None:
    from rich.table import Table

    from ..reports.terminal import show

    table = Table("image", "host class", "driver", "GPU", "measured", "checks", box=None, pad_edge=False)
    for name, verified in found.items():
        for certificate in verified.certificates:
            failed = f", {len(certificate.failed)} not required failed" if certificate.failed else ""
            table.add_row(
                name,
                certificate.host_class + (" (fixture)" if certificate.fixture else ""),
                certificate.driver,
                ", ".join(sorted({gpu.name for gpu in certificate.gpus})),
                certificate.measured,
                f"{len(certificate.passed)} passed{failed}",
            )
        if not verified.certificates:
            table.add_row(name, "no valid certificate", "", "", "", "")
    if found:
        show(table)
    for name, verified in found.items():
        for refused in verified.refused:
            say(f"refused: {name} {refused.what}: {refused.why}")
