"""`sbom`: list what is in an image, or attach the list to it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import EXIT_OK, InputError, MissingError, ValidatorError
from ..model.spec import LABEL_BASE, LABEL_LOCK, LABEL_SPEC
from ..registry.names import identifier_of
from ..system.files import read_text
from .options import (
    ANY_FILE,
    builder_options,
    flag,
    matrix_option,
    open_registry,
    plain_http_option,
    print_status,
    reject_options,
    trust_file_option,
    trust_path_for,
    verbose_option,
    write_or_print,
)
from .program import Command

if TYPE_CHECKING:
    from ..model.spec import ImageSpec, Lock
    from ..registry.client import Registry


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


def _labels_in_engine(name: str) -> Mapping[str, str] | None:
    """Return the labels of an image of the local engine, or None if the name is not one of them.

    Raises InputError for an image that was derived from one of this project.
    """
    from docker.errors import APIError

    from ..engines.docker.endpoint import connect_any, reach
    from ..engines.docker.images import derivation_of

    if Path(name).exists() or ":" not in name:
        return None
    try:
        client = connect_any(reach).quick
    except MissingError:
        return None
    with contextlib.closing(client):
        try:
            labels: Mapping[str, str] = client.images.get(name).labels
        except APIError:
            return None
        derived = derivation_of(client, name)
    if derived is not None:
        raise InputError(
            f"{name} was derived from {derived.image}: what was added to it is not known",
            hint=f"`check --image {name}` shows what differs; `sbom {derived.image}` lists the rest",
        )
    return labels


def _signed(name: str, place: tuple[str, str], plain_http: bool, trust_path: Path) -> dict[str, Any]:
    """Return the list that a builder in the trust file signed. Raises ValidatorError if none did.

    place: what `in_a_registry` returns.
    """
    from ..certify.provenance import Refusal, sbom_of
    from ..certify.trust import read_trust_file

    trust = read_trust_file(trust_path)
    registry = open_registry(place[0], plain_http)
    signed = sbom_of(registry, registry.named(place[1]), trust)
    if isinstance(signed, Refusal):
        raise ValidatorError(
            f"{name}: {signed.why}",
            hint="pass --trust with the trust file that lists the image's builder, or name the image's"
            " lock instead",
        )
    return signed


def _of_labels(name: str, labels: Mapping[str, str], matrix_path: Path, base: str) -> dict[str, Any]:
    """Return the list of what is in an image of the local engine, from its lock and the base it names."""
    from ..assemble.base_finder import BaseContents
    from ..pipeline.makers import contents_of_origin
    from ..sbom import document_of_lock
    from .planning import images_of, lock_of_image

    identifier, origin = labels.get(LABEL_SPEC, ""), labels.get(LABEL_BASE, "")
    spec = images_of(matrix_path).get(identifier)
    lock = lock_of_image(matrix_path, identifier, labels.get(LABEL_LOCK, ""))
    if spec is None or lock is None or not origin:
        raise InputError(
            f"{name} says that it is {identifier or 'no image spec'}, for which {matrix_path} has no image,"
            " or no lock with the same wheels",
            hint="run the command where the matrix and the locks of that image are",
        )
    unlisted = base == "unlisted"
    found = BaseContents(origin) if unlisted else contents_of_origin(spec, origin, print_status)
    return document_of_lock(lock, found)


def _of_lock(name: str, matrix_path: Path, base: str) -> dict[str, Any]:
    """Return the list of what is in the image of a lock, which is named by its image spec or its file."""
    from ..assemble.base_finder import BaseContents, BasePolicy, pinned_bases
    from ..locks.lock_files import parse
    from ..pipeline.makers import UNLISTED, base_contents
    from ..sbom import document_of_lock
    from .planning import images_of, locks_of

    path, lock = Path(name), None
    if path.is_file():
        try:
            lock = parse(read_text(path), name)
        except OSError as error:
            raise InputError(f"{path}: can't be read: {error.strerror}") from None
    identifier = lock.identifier if lock else name
    spec = images_of(matrix_path).get(identifier)
    if spec is None:
        raise InputError(
            f"{name} is neither a lock of {matrix_path} nor an image in a registry or in the local Docker"
            " Engine",
            hint="name a lock by its file, or as `plan --format json` names its image; name an image as"
            " REGISTRY/NAME:TAG or REGISTRY/NAME@sha256:…, or as `docker images` lists it",
        )
    lock = lock or locks_of(matrix_path).read(identifier)
    if lock is None:
        hint = f"write it: `validator lock --select image={identifier}`"
        raise MissingError(f"{identifier} has no lock", hint=hint)
    if base == "unlisted":
        return document_of_lock(lock, BaseContents(f"registry:{spec.base or pinned_bases()[spec.python]}"))
    try:
        contents = base_contents(spec, BasePolicy(base), print_status)
    except MissingError as error:
        message = f"the packages of the base can't be listed: {error}"
        raise MissingError(message, hint=UNLISTED) from None
    return document_of_lock(lock, contents)


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
@click.option("--output", type=ANY_FILE, metavar="FILE", help="Write the list to a file.  [default: stdout]")
@flag(
    "--attach",
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
    project in the local engine to make it from the lock and the base that its labels name.

    The licences are those that the wheels in the cache declare. The same lock, base and wheels always give
    the same bytes with the same version of this tool. The date is that of the lock, or SOURCE_DATE_EPOCH.

    With --attach, the builder's provenance has to say that the image was made from the lock, and the signer
    has to be a builder in the trust file. An image that has its list already is left as it is.
    """
    if (identity is None) != (issuer is None):
        raise click.UsageError("--identity and --issuer belong together")
    if attach:
        reject_options(("output",), "has no effect with --attach")
    else:
        reject_options(("builder_key", "identity", "issuer"), "has no effect without --attach")
    place = in_a_registry(name)
    if not attach:
        from ..sbom import render

        if place is not None:
            document = _signed(name, place, plain_http, trust_path_for(matrix_path, trust_path))
        elif (labels := _labels_in_engine(name)) is not None:
            document = _of_labels(name, labels, matrix_path, base)
        else:
            document = _of_lock(name, matrix_path, base)
        write_or_print(render(document), output, say=False)
        return EXIT_OK
    if place is None:
        raise click.UsageError(
            "--attach needs an image in a registry: REGISTRY/NAME:TAG or REGISTRY/NAME@sha256:…"
        )
    if base not in ("auto", "unlisted"):
        raise click.UsageError(
            f"--base {base} has no effect with --attach: the base is the one that the image was made from."
            " Use --base unlisted to leave out its packages."
        )
    from ..certify.trust import read_trust_file
    from ..pipeline.makers import list_published
    from .signing import trusted_builder_of

    registry = open_registry(place[0], plain_http)
    digest = registry.named(place[1])
    spec, lock = locked_image(registry, place[1], digest, matrix_path)
    path = trust_path_for(matrix_path, trust_path)
    signer = trusted_builder_of(path, builder_key, identity, issuer)
    attached = list_published(
        registry, digest, spec, lock, read_trust_file(path), signer, print_status,
        with_base=base != "unlisted",
    )  # fmt: skip
    reference = registry.repository.at(digest)
    print_status(f"Attached its list to {reference}." if attached else f"{reference} has its list already.")
    return EXIT_OK
