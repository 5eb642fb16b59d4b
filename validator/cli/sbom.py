"""`sbom`: list what is in an image, or attach the list to it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..assemble.image_names import LABEL_BASE, LABEL_LOCK, LABEL_SPEC
from ..errors import EXIT_OK, InputError, MissingError, ValidatorError
from ..registry.names import identifier_of, is_digest
from ..system.files import read_text, write_atomically
from .options import (
    NEW_FILE,
    builder_options,
    matrix_option,
    open_registry,
    plain_http_option,
    print_status,
    reject_options,
    trust_file_option,
    trust_path_for,
    verbose_option,
)
from .program import Command

if TYPE_CHECKING:
    from ..assemble.base_finder import BaseContents
    from ..model.lock import Lock
    from ..model.spec import ImageSpec
    from ..registry.client import Registry


@dataclass(frozen=True)
class NamedImage:
    """The image or the lock that a person named, and how to read it. base: of `build-matrix --base`."""

    name: str
    matrix_path: Path
    trust_path: Path | None
    base: str
    plain_http: bool


def read_sbom(asked: NamedImage) -> dict[str, Any]:
    """Return the list of what is in an image, as CycloneDX.

    For an image in a registry, that is what its builder signed. Raises ValidatorError if no builder of the
    trust file did.
    """
    if (place := in_a_registry(asked.name)) is not None:
        from ..certify.provenance import Refusal, sbom_of
        from ..certify.trust_file import read_trust_file

        trust = read_trust_file(trust_path_for(asked.matrix_path, asked.trust_path))
        registry = open_registry(place[0], asked.plain_http)
        signed = sbom_of(registry, digest_in(registry, place[1]), trust)
        if isinstance(signed, Refusal):
            raise ValidatorError(
                f"{asked.name}: {signed.why}",
                hint="pass --trust with the trust file that lists the image's builder, or name the image's"
                " lock instead",
            )
        return signed
    from ..sbom.document import document_of_lock

    if (labels := _labels_in_engine(asked)) is not None:
        return _of_labels(asked, labels)
    spec, lock = _locked(asked)
    return document_of_lock(lock, _base(asked, spec))


def in_a_registry(name: str) -> tuple[str, str] | None:
    """Return the repository and the tag or digest, or None for the name or the file of a lock."""
    if Path(name).exists():
        return None
    repository, at, digest = name.partition("@")
    if at:
        return repository, digest
    repository, colon, tag = name.rpartition(":")
    if colon and "/" in repository and "/" not in tag:
        return repository, tag
    return None


def digest_in(registry: Registry, reference: str) -> str:
    """Return the digest of an image that is in the registry. reference: a tag or a digest."""
    if is_digest(reference):
        if registry.manifest(reference) is None:
            raise InputError(f"{registry.repository.at(reference)} is not in the registry")
        return reference
    digest = registry.digest_of(reference)
    if digest is None:
        raise InputError(
            f"{registry.repository.tagged(reference)} is not in the registry",
            hint=registry.tags_hint(),
        )
    return digest


def locked_image(registry: Registry, name: str, digest: str, matrix_path: Path) -> tuple[ImageSpec, Lock]:
    """Return the image spec and the lock that an image says it was made from. name: its tag or digest."""
    from .planning import images_of, locks_of

    identifier = identifier_of(name) or registry.config(digest).labels.get(LABEL_SPEC, "")
    specs = images_of(matrix_path)
    lock = locks_of(matrix_path).read(identifier) if identifier in specs else None
    if lock is None:
        raise InputError(
            f"{registry.repository.at(digest)} says that it is {identifier or 'no image spec'}, for which"
            f" {matrix_path} has no image or no lock",
            hint="run the command where the matrix and the locks of that image are",
        )
    return specs[identifier], lock


def _labels_in_engine(asked: NamedImage) -> Mapping[str, str] | None:
    """Return the labels of an image of the local Docker Engine, or None if the name is not one of them.

    Raises InputError for an image that was derived from one of this project.
    """
    from docker.errors import APIError

    from ..engines.docker.endpoint import reach
    from ..engines.docker.images import derivation_of

    if Path(asked.name).exists() or ":" not in asked.name:
        return None
    try:
        client = reach().quick
    except MissingError:
        return None
    with contextlib.closing(client):
        try:
            labels: Mapping[str, str] = client.images.get(asked.name).labels
        except APIError:
            return None
        derived = derivation_of(client, asked.name)
    if derived is not None:
        raise InputError(
            f"{asked.name} was derived from {derived.image}: what was added to it is not known",
            hint=f"`check --image {asked.name}` shows what differs; `sbom {derived.image}` lists the rest",
        )
    return labels


def _of_labels(asked: NamedImage, labels: Mapping[str, str]) -> dict[str, Any]:
    """Return the list of what is in an image of the local engine, from its lock and the base it names."""
    from ..assemble.base_finder import BaseContents
    from ..pipeline.contents import contents_of_origin
    from ..sbom.document import document_of_lock
    from .planning import images_of, lock_of_image

    identifier, origin = labels.get(LABEL_SPEC, ""), labels.get(LABEL_BASE, "")
    spec = images_of(asked.matrix_path).get(identifier)
    lock = lock_of_image(asked.matrix_path, identifier, labels.get(LABEL_LOCK, ""))
    if spec is None or lock is None or not origin:
        raise InputError(
            f"{asked.name} says that it is {identifier or 'no image spec'}, for which {asked.matrix_path} has"
            " no image, or no lock with the same wheels",
            hint="run the command where the matrix and the locks of that image are",
        )
    unlisted = asked.base == "unlisted"
    base = BaseContents(origin) if unlisted else contents_of_origin(spec, origin, print_status)
    return document_of_lock(lock, base)


def _locked(asked: NamedImage) -> tuple[ImageSpec, Lock]:
    """Return the image spec and the lock that a person named by the identifier or by a file."""
    from ..locks.lock_files import parse
    from .planning import images_of, locks_of

    path, lock = Path(asked.name), None
    if path.is_file():
        try:
            lock = parse(read_text(path), asked.name)
        except OSError as error:
            raise InputError(f"{path}: can't be read: {error.strerror}") from None
    identifier = lock.identifier if lock else asked.name
    specs = images_of(asked.matrix_path)
    if identifier not in specs:
        raise InputError(
            f"{asked.name} is neither a lock of {asked.matrix_path} nor an image in a registry or in the"
            " local Docker Engine",
            hint="name a lock by its file, or as `plan --format json` names its image; name an image as"
            " REGISTRY/NAME:TAG or REGISTRY/NAME@sha256:…, or as `docker images` lists it",
        )
    lock = lock or locks_of(asked.matrix_path).read(identifier)
    if lock is None:
        raise MissingError(
            f"{identifier} has no lock",
            hint=f"write it: `validator lock --select image={identifier}`",
        )
    return specs[identifier], lock


def _base(asked: NamedImage, spec: ImageSpec) -> BaseContents:
    from ..assemble.base_finder import BaseContents, BasePolicy, pinned_bases

    if asked.base == "unlisted":
        name = spec.base or pinned_bases()[spec.python]
        return BaseContents(f"registry:{name}")

    from ..pipeline.contents import UNLISTED, base_contents

    try:
        return base_contents(spec, BasePolicy(asked.base), print_status)
    except MissingError as error:
        raise MissingError(
            f"the packages of the base can't be listed: {error}",
            hint=UNLISTED,
        ) from None


@click.command("sbom", cls=Command)
@click.argument("name", metavar="IMAGE_OR_LOCK")
@click.option(
    "--base",
    type=click.Choice(("auto", "registry", "bootstrap", "unlisted")),
    default="auto",
    show_default=True,
    help="For a lock: where its base comes from, as with `build-matrix`. unlisted: name the base without its"
    " packages, which needs no network.",
)
@matrix_option
@trust_file_option
@plain_http_option
@verbose_option
@click.option("--output", type=NEW_FILE, metavar="FILE", help="Write the list to a file.  [default: stdout]")
@click.option(
    "--attach",
    is_flag=True,
    help="Make the list of an image that was pushed without it from its lock, sign it and attach it.",
)
@builder_options("--attach", "the list")
def sbom_command(
    name: str,
    base: str,
    matrix_path: Path,
    trust_path: Path | None,
    plain_http: bool,
    output: Path | None,
    attach: bool,
    builder_key: str | None,
    identity: str | None,
    issuer: str | None,
) -> int:
    """List what is in an image, as a software bill of materials (SBOM) in CycloneDX 1.6.

    Name an image in a registry (REGISTRY/NAME:TAG or REGISTRY/NAME@sha256:…) to get the list that its builder
    signed and attached; the builder must be in the trust file. Name a lock, by its image spec or its file, to
    make the list from it: the wheels with their hashes, and the packages of the base. Name an image of this
    project in the local Docker Engine to make it from the lock and the base that its labels name.

    The licences are those that the wheels in the cache declare. The same lock, base and wheels always give
    the same bytes with the same version of this tool. The date is that of the lock, or SOURCE_DATE_EPOCH.

    With --attach, the builder's provenance has to say that the image was made from the lock, and the signer
    has to be a builder in the trust file. An image that has its list already is left as it is.
    """
    asked = NamedImage(name, matrix_path, trust_path, base, plain_http)
    if (identity is None) != (issuer is None):
        raise click.UsageError("--identity and --issuer belong together")
    if attach:
        reject_options(("output",), "has no effect with --attach")
        return _attach(asked, builder_key, identity, issuer)
    reject_options(("builder_key", "identity", "issuer"), "has no effect without --attach")
    from ..sbom.document import render

    text = render(read_sbom(asked))
    if output is None:
        click.echo(text, nl=False)
        return EXIT_OK
    write_atomically(output, text.encode())
    return EXIT_OK


def _attach(asked: NamedImage, key: str | None, identity: str | None, issuer: str | None) -> int:
    place = in_a_registry(asked.name)
    if place is None:
        raise click.UsageError(
            "--attach needs an image in a registry: REGISTRY/NAME:TAG or REGISTRY/NAME@sha256:…"
        )
    if asked.base not in ("auto", "unlisted"):
        raise click.UsageError(
            f"--base {asked.base} has no effect with --attach: the base is the one that the image was made"
            " from. Use --base unlisted to leave out its packages."
        )
    from ..certify.trust_file import read_trust_file
    from ..pipeline.contents import list_published
    from .signing import trusted_builder_of

    repository, reference = place
    registry = open_registry(repository, asked.plain_http)
    digest = digest_in(registry, reference)
    spec, lock = locked_image(registry, reference, digest, asked.matrix_path)
    trust_path = trust_path_for(asked.matrix_path, asked.trust_path)
    signer = trusted_builder_of(trust_path, key, identity, issuer)
    attached = list_published(
        registry, digest, spec, lock, read_trust_file(trust_path), signer, print_status,
        with_base=asked.base != "unlisted",
    )  # fmt: skip
    name = registry.repository.at(digest)
    print_status(f"Attached its list to {name}." if attached else f"{name} has its list already.")
    return EXIT_OK
