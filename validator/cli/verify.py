"""`verify`: verify the certificates of the images in a registry."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

import click

from ..certify.trust import Trust
from ..certify.verify import Verified, certificates
from ..errors import EXIT_FAILED, EXIT_OK
from ..model.codec import encode
from ..registry.client import Registry
from ..registry.names import identifier_of
from ..reports.printable import json_text
from .image_contents import digest_in, locked_image
from .options import format_option, matrix_option, print_status, verbose_option, working_directory
from .trust_options import certificate_options

if TYPE_CHECKING:
    from ..assemble.rebuild import Compared


@click.command("verify")
@click.argument("images", nargs=-1, metavar="[TAG|DIGEST]...")
@click.option(
    "--rebuild",
    is_flag=True,
    help="Instead, make every layer of these images again from the wheels of their locks, and say if they are"
    " exactly that. Needs no key.",
)
@certificate_options
@matrix_option
@format_option("table", "json")
@verbose_option
def command(
    images: Sequence[str],
    registry: Registry,
    trust: Trust | None,
    max_age: timedelta | None,
    accept_expired: bool,
    rebuild: bool,
    matrix_path: Path,
    format_: str,
) -> int:
    """Verify the certificates of images: signature, digest, time and checks.

    The newest statement of the trusted signer for a host class decides: if it says that the image failed
    there, older certificates for that host class don't count.

    Name images by tag, alias or digest; without names, every image in the registry is verified. The exit code
    is 1 if a named image has no valid certificate, or, without names, if no image has one.

    With --rebuild, the exit code is 1 if a layer or the configuration of an image is not what its lock gives.
    """
    if trust is None:
        if not images:
            raise click.UsageError("--rebuild needs the tags or digests of images")
        return _rebuild(images, registry, matrix_path, format_)
    digests = {name: digest_in(registry, name) for name in images} or _all(registry)
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


def _rebuild(images: Sequence[str], registry: Registry, matrix_path: Path, format_: str) -> int:
    from ..pipeline.rebuilding import rebuild_image
    from ..system.package_sources import host_sources

    sources, local = host_sources(), working_directory(matrix_path)
    found: dict[str, tuple[Compared, ...]] = {}
    for name in images:
        digest = digest_in(registry, name)
        spec, lock = locked_image(registry, name, digest, matrix_path)
        found[name] = rebuild_image(registry, digest, spec, lock, sources, print_status, local)
    if format_ == "json":
        click.echo(json_text({name: encode(list(layers)) for name, layers in found.items()}))
    else:
        from rich.table import Table

        from ..reports.terminal import show

        table = Table("image", "layer", "found", "digest", box=None, pad_edge=False)
        for name, layers in found.items():
            for layer in layers:
                digest = layer.found or layer.expected or ""
                table.add_row(name, layer.name, layer.finding.value, digest[:19])
        show(table)
    for name, layers in found.items():
        wrong = [layer.name for layer in layers if not layer.is_right]
        print_status(
            f"{name}: not what its lock gives: {', '.join(wrong)}" if wrong else f"{name}: exactly its lock"
        )
    every = [layer.is_right for layers in found.values() for layer in layers]
    return EXIT_OK if all(every) else EXIT_FAILED


def _all(registry: Registry) -> dict[str, str]:
    """Return the digest of every image of this project by its tag."""
    found = {tag: registry.digest_of(tag) for tag in registry.tags() if identifier_of(tag)}
    if not found:
        print_status(f"{registry.repository} has no images with a tag that `build-matrix --push` sets.")
    return {tag: digest for tag, digest in found.items() if digest is not None}


class RefusedDocument(TypedDict):
    """A document that does not count for an image, as JSON."""

    image: Annotated[str, "The name that was asked for."]
    what: Annotated[str, "A digest or tag."]
    why: Annotated[str, "One sentence."]


class VerificationDocument(TypedDict):
    """The output of `verify --json`."""

    registry: Annotated[str, "The registry and name."]
    images: Annotated[
        dict[str, str],
        "The digest of each image that was verified, by the name that was asked for.",
    ]
    certificates: Annotated[
        list[dict[str, object]],
        "The certificates that count; the fields of each are below.",
    ]
    failures: Annotated[
        list[dict[str, object]],
        "The images that failed in the newest measurement on a host class; the fields of each are below.",
    ]
    refused: Annotated[list[RefusedDocument], "What does not count; the fields of each are below."]


def _document(repository: str, digests: dict[str, str], found: dict[str, Verified]) -> VerificationDocument:
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
        for certificate in verified.certificates:
            for limit in certificate.limits:
                print_status(f"Limit: {name} on {certificate.host_class}: {limit.sentence}")
        for refused in verified.refused:
            print_status(f"Rejected: {name} {refused.what}: {refused.why}")
