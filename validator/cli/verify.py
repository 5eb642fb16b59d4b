"""`verify`: verify the certificates of the images in a registry."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import click

from ..certify.trust import Trust
from ..certify.verify import Verified, certificates
from ..errors import EXIT_FAILED, EXIT_OK, InputError
from ..registry.client import Registry
from ..registry.names import identifier_of, is_digest
from ..reports.printable import json_text
from .options import format_option, print_status, verbose_option
from .trust_options import certificate_options


@click.command("verify")
@click.argument("images", nargs=-1, metavar="[TAG|DIGEST]...")
@certificate_options
@format_option("table", "json")
@verbose_option
def command(
    images: Sequence[str],
    registry: Registry,
    trust: Trust,
    max_age: timedelta | None,
    accept_expired: bool,
    format_: str,
) -> int:
    """Verify the certificates of images: signature, digest, time and checks.

    The newest statement of the trusted signer for a host class decides: if it says that the image failed
    there, older certificates for that host class don't count.

    Name images by tag, alias or digest; without names, every image in the registry is verified. The exit code
    is 1 if a named image has no valid certificate, or, without names, if no image has one.
    """
    digests = {name: _digest(registry, name) for name in images} or _all(registry)
    found = {
        name: certificates(registry, digest, trust, max_age=max_age, accept_expired=accept_expired)
        for name, digest in digests.items()
    }
    if format_ == "json":
        click.echo(json_text(_document(str(registry.repository), digests, found)))
    else:
        _show(digests, found)
    good = [bool(verified.certificates) for verified in found.values()]
    return EXIT_OK if good and (all(good) if images else any(good)) else EXIT_FAILED


def _digest(registry: Registry, name: str) -> str:
    if is_digest(name):
        if registry.manifest(name) is None:
            raise InputError(f"{registry.repository.at(name)} is not in the registry")
        return name
    digest = registry.digest_of(name)
    if digest is None:
        raise InputError(
            f"{registry.repository.tagged(name)} is not in the registry",
            hint=f"`oras repo tags {registry.repository}` lists its tags",
        )
    return digest


def _all(registry: Registry) -> dict[str, str]:
    """Return the digest of every image of this project by its tag."""
    found = {tag: registry.digest_of(tag) for tag in registry.tags() if identifier_of(tag)}
    if not found:
        print_status(f"{registry.repository} has no images with a tag that `build-matrix --push` sets.")
    return {tag: digest for tag, digest in found.items() if digest is not None}


def _document(repository: str, digests: dict[str, str], found: dict[str, Verified]) -> dict[str, object]:
    from ..model.codec import encode

    return {
        "registry": repository,
        "images": digests,
        "certificates": encode(
            [certificate for verified in found.values() for certificate in verified.certificates]
        ),
        "failures": encode([failure for verified in found.values() for failure in verified.failures]),
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
            own = f" with {', '.join(certificate.own_passed)}" if certificate.own_passed else ""
            failed = f", {len(certificate.failed)} optional failed" if certificate.failed else ""
            table.add_row(
                name,
                certificate.host_class + (" (fixture)" if certificate.fixture else ""),
                certificate.driver,
                ", ".join(sorted({gpu.name for gpu in certificate.gpus})),
                certificate.measured,
                f"{len(certificate.passed)} passed{own}{failed}",
            )
        for failure in verified.failures:
            table.add_row(
                name,
                failure.host_class + (" (fixture)" if failure.fixture else ""),
                failure.driver or "",
                ", ".join(sorted({gpu.name for gpu in failure.gpus})),
                failure.measured,
                f"failed: {', '.join(failure.failed)}",
            )
        if not verified.certificates:
            table.add_row(name, "no valid certificate", "", "", "", "")
    if found:
        show(table)
    for name, verified in found.items():
        for refused in verified.refused:
            print_status(f"Rejected: {name} {refused.what}: {refused.why}")
