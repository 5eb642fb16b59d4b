"""`bundle`: take images and this tool to a machine without a network; `sbom`: list what is in an image."""

from __future__ import annotations

import contextlib
import json
import re
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import InputError, MissingError, ValidatorError
from ..model.spec import LABEL_BASE, LABEL_LOCK, LABEL_SPEC, image_reference
from ..offline.receive import MANIFEST, Refused, receive
from ..registry.client import Registry, in_layout, named_in_layout
from ..registry.names import identifier_of, is_digest, split_reference, tag_named, tag_of
from ..system.files import cache_directory, read_text
from ..system.package_sources import host_sources
from ..system.runs import temporary_directory
from . import Command, options
from .options import Builder, Project, argument, flag, option, print_status

if TYPE_CHECKING:
    from ..model.spec import ImageSpec, Lock
    from ..pipeline.bundle import BundledImage

_RECEIVE = "receive"
_UNITS = {"K": 10**3, "M": 10**6, "G": 10**9}
_IN_ARCHIVE = re.compile(r"index\.json|oci-layout|blobs/sha256/[0-9a-f]{64}")


def _size(_: click.Context, __: click.Parameter, value: str) -> int:
    match = re.fullmatch(r"([1-9]\d{0,5})([KMG])B?", value)
    if match is None:
        raise click.BadParameter(f'"{value}" is not a size; write it like 60M or 4G')
    return int(match[1]) * _UNITS[match[2]]


@click.command("bundle", cls=Command)
def bundle_command(
    words: Sequence[str] = argument("IMAGE... DIRECTORY | receive DIRECTORY", nargs=-1, required=True),
    volume_size: int = option(
        "--volume-size SIZE  The most bytes of a volume, such as 60M or 4G.", default="1G", callback=_size
    ),
    challenges_path: Path | None = option(
        "--challenges FILE  The challenges that the measurements have to answer, as `certify challenges`"
        " wrote them."
    ),
    wait: bool = flag("--wait  With receive: wait for volumes that are not there yet."),
    into: Path | None = option(
        "--into DIRECTORY  With receive: the new directory for what is in the bundle.  [default:"
        " DIRECTORY/received]"
    ),
    repository: str | None = options.registry,
    plain_http: bool = options.plain_http,
    trusted_root: Path | None = options.trusted_root,
    project: Project = options.project("trust"),
) -> None:
    """Write what a machine without a network needs to measure images, or to use certified ones.

    Name images as HOST/NAME:TAG, HOST/NAME@sha256:… or oci:DIRECTORY:TAG, with --registry by image spec,
    alias or digest, and otherwise as the local engine does. The bundle has them, each layer once, with their
    locks and certificates, the probe, this tool with all that it needs, and the trust file, in volumes.
    Start `./measure` in a copy of the directory to measure. `bundle receive` verifies and unpacks it for
    `pull`, `run` and `verify` with --from-bundle.

    If it was interrupted, start the same command again.
    """
    if len(words) < 2:
        raise click.UsageError("name at least one image, and then the directory to write to")
    directory = Path(words[-1])
    if words[0] == _RECEIVE:
        if len(words) != 2:
            raise click.UsageError("receive needs one directory")
        options.reject_all_but(("words", "wait", "into", "verbose"), "has no effect with receive")
        into = into or directory / "received"
        if not wait and not (directory / MANIFEST).exists():
            hint = "name a copy of the directory that `validator bundle` wrote"
            raise InputError(f"{directory} is not a bundle: it has no {MANIFEST}", hint=hint)
        try:
            receive(directory, into, wait, print_status)
        except Refused as error:
            raise ValidatorError(str(error), hint=error.hint) from None
        click.echo(into)
        return
    options.reject(("wait", "into"), "has no effect without receive")
    from ..certify.trust import read_challenges
    from ..pipeline.bundle import Request, write_bundle
    from .planning import hosts_of, images_of

    trust = project.trust_file
    asked = read_challenges(challenges_path).by_value if challenges_path else {}
    request = Request(
        host_sources(),
        hosts_of(project.matrix_path),
        trust if project.trust_path is not None or trust.exists() else None,
        trusted_root,
        {one.asked: value for value, one in asked.items()},
    )
    registry = options.open_registry(repository, plain_http) if repository else None
    specs, cache = images_of(project.matrix_path), cache_directory()
    cache.mkdir(parents=True, exist_ok=True)
    # Not the directory for temporary files, which may be in memory: an image of the engine is written there.
    with temporary_directory("bundle", cache) as work:
        images = [_image(name, registry, plain_http, specs, project.matrix_path, work) for name in words[:-1]]
        digest = write_bundle(directory, images, volume_size, request, work, print_status)
    print_status(
        f"Wrote {directory}. The SHA-256 of its bundle.json, which `receive` prints on the other machine too:"
    )
    click.echo(digest)


def _image(
    name: str,
    given: Registry | None,
    plain_http: bool,
    specs: Mapping[str, ImageSpec],
    matrix_path: Path,
    work: Path,
) -> BundledImage:
    """Return an image by its name. work: where an image of the local engine is written to."""
    from ..delivery.pull import split_layout
    from ..pipeline.bundle import BundledImage
    from .planning import lock_of_image

    tag = name
    if layout := split_layout(name):
        (registry, digest), tag = named_in_layout(*layout), layout[1]
    elif reference := split_reference(name):
        registry, tag = Registry(reference[0], plain_http=plain_http or None), reference[1]
        digest = registry.named(tag)
    elif given is not None:
        registry, tag = given, tag_named(name)
        digest = registry.named(tag)
    else:
        registry, digest = _in_engine(name, work)
        tag = name.rpartition(":")[2]
    manifest = registry.manifest(digest)
    if manifest is not None and (entry := manifest.for_platform()):
        digest = entry.digest
    labels = registry.config(digest).labels
    identifier = labels.get(LABEL_SPEC, "")
    spec, lock = specs.get(identifier), None
    if spec is not None:
        lock = lock_of_image(matrix_path, identifier, labels.get(LABEL_LOCK, ""))
        tag = tag_of(identifier)
    if lock is None:
        print_status(f"{name}: {matrix_path} has no lock of it, so nothing that it measures can be certified")
    if is_digest(tag):
        tag = digest.replace(":", "-")[:19]
    return BundledImage(registry, digest, tag, name, spec, lock)


def _in_engine(name: str, work: Path) -> tuple[Registry, str]:
    """Write an image of the local engine to an OCI layout, and return it with its digest."""
    from ..engines.docker import EngineImages
    from ..engines.endpoint import connect

    with contextlib.closing(connect()) as endpoint:
        images = EngineImages(endpoint)
        saved = images.save(image_reference(name) if ":" not in name else name, work)
    if saved is None:
        hint = "for one in a registry, pass --registry"
        raise InputError(f"the local engine has no image {name}", hint=hint)
    place = work / saved[0].stem
    place.mkdir(exist_ok=True)
    with tarfile.open(saved[0]) as archive:
        archive.extractall(place, [one for one in archive if one.isreg() and _IN_ARCHIVE.fullmatch(one.name)])
    saved[0].unlink()
    index = place / "index.json"
    if not index.exists():
        raise MissingError(f"the engine can't write {name} as an OCI layout", hint="use Docker 25 or newer")
    return in_layout(place), str(json.loads(index.read_bytes())["manifests"][0]["digest"])


def locked_image(registry: Registry, name: str, digest: str, matrix_path: Path) -> tuple[ImageSpec, Lock]:
    """Return the image spec and the lock that an image says it was made from. name: its tag or digest."""
    from .planning import images_of, locks_of

    identifier = identifier_of(name) or registry.config(digest).labels.get(LABEL_SPEC, "")
    specs = images_of(matrix_path)
    lock = locks_of(matrix_path).read(identifier) if identifier in specs else None
    if lock is None:
        raise InputError(
            f"{registry.repository.at(digest)} has the image spec {identifier or '(none)'}, for which"
            f" {matrix_path} has no image or no lock",
            hint="run the command where the matrix and the locks of that image are",
        )
    return specs[identifier], lock


def _labels_in_engine(name: str) -> Mapping[str, str] | None:
    """Return the labels of an image of the local engine, or None if it has none of this name."""
    from ..engines.endpoint import answering, connect_any, reach
    from ..engines.images import derivation_of, find_image

    if Path(name).exists() or ":" not in name:
        return None
    try:
        endpoint = connect_any(reach)
    except MissingError:
        return None
    with contextlib.closing(endpoint), answering(name):
        image = find_image(endpoint.quick, name)
        derived = derivation_of(endpoint.quick, name)
    if derived is not None:
        raise InputError(
            f"{name} was derived from {derived.image}: what was added to it is not known",
            hint=f"`check --image {name}` shows what differs; `sbom {derived.image}` lists the rest",
        )
    return image.labels if image else None


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
            f"{name} has the image spec {identifier or '(none)'}, for which {matrix_path} has no image,"
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
def sbom_command(
    name: str = argument("IMAGE_OR_LOCK"),
    base: str = option(
        "--base auto|registry|bootstrap|unlisted  For a lock: where its base comes from, as with"
        " `build-matrix`. unlisted: name the base without its packages, which needs no network.",
        default="auto",
    ),
    project: Project = options.project("trust"),
    plain_http: bool = options.plain_http,
    output: Path | None = option(
        "--output FILE  Write the list to a file.  [default: stdout]", type=options.OUTPUT
    ),
    attach: bool = flag(
        "--attach  Make the list of an image that was pushed without it from its lock, sign it and attach it."
    ),
    builder: Builder = options.builder("--attach", "the list"),
) -> None:
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
    if attach:
        options.reject(("output",), "has no effect with --attach")
    builder.check(None if attach else "--attach")
    place = None if Path(name).exists() else split_reference(name)
    if not attach:
        from ..sbom import render

        if place is not None:
            from ..certify.provenance import Refusal, sbom_of

            trust, registry = project.read_trust(), Registry(place[0], plain_http=plain_http or None)
            document = sbom_of(registry, registry.named(place[1]), trust)
            if isinstance(document, Refusal):
                raise ValidatorError(
                    f"{name}: {document.why}",
                    hint="pass --trust with the trust file that lists the image's builder, or name the"
                    " image's lock instead",
                )
        elif (labels := _labels_in_engine(name)) is not None:
            document = _of_labels(name, labels, project.matrix_path, base)
        else:
            document = _of_lock(name, project.matrix_path, base)
        options.write_or_print(render(document), output, say=False)
        return
    if place is None:
        raise click.UsageError(
            "--attach needs an image in a registry: REGISTRY/NAME:TAG or REGISTRY/NAME@sha256:…"
        )
    if base not in ("auto", "unlisted"):
        raise click.UsageError(
            f"--base {base} has no effect with --attach: the base is the one that the image was made from."
            " Use --base unlisted to leave out its packages."
        )
    from ..pipeline.makers import list_published
    from .building import builder_of

    registry = Registry(place[0], plain_http=plain_http or None)
    digest = registry.named(place[1])
    spec, lock = locked_image(registry, place[1], digest, project.matrix_path)
    signer = builder_of(project.trust_file, builder, needed=True)
    assert signer is not None
    attached = list_published(
        registry, digest, spec, lock, project.read_trust(), signer, print_status,
        with_base=base != "unlisted",
    )  # fmt: skip
    reference = registry.repository.at(digest)
    print_status(f"Attached its list to {reference}." if attached else f"{reference} has its list already.")
