"""`bundle`: write images and this tool for a machine without a network, and receive them there."""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import EXIT_OK, InputError, MissingError, ValidatorError
from ..model.spec import LABEL_LOCK, LABEL_SPEC, image_reference
from ..registry.client import Registry
from ..registry.layout import named_in_layout
from ..registry.names import is_digest, tag_named, tag_of
from .options import (
    DIRECTORY,
    PATH,
    flag,
    matrix_option,
    open_registry,
    plain_http_option,
    print_status,
    registry_option,
    reject_options,
    trust_file_option,
    trust_path_for,
    trusted_root_option,
    verbose_option,
)
from .program import Command

if TYPE_CHECKING:
    from ..model.spec import ImageSpec
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
@click.argument("words", nargs=-1, required=True, metavar="IMAGE... DIRECTORY | receive DIRECTORY")
@click.option(
    "--volume-size",
    metavar="SIZE",
    default="1G",
    show_default=True,
    callback=_size,
    help="The most bytes of a volume, such as 60M or 4G.",
)
@click.option(
    "--challenges",
    "challenges_path",
    type=PATH,
    metavar="FILE",
    help="The challenges that the measurements have to answer, as `certify challenges` wrote them.",
)
@flag("--wait", help="With receive: wait for volumes that are not there yet.")
@click.option(
    "--into",
    type=DIRECTORY,
    metavar="DIRECTORY",
    help="With receive: the new directory for what is in the bundle.  [default: DIRECTORY/received]",
)
@registry_option
@plain_http_option
@trusted_root_option
@matrix_option
@trust_file_option
@verbose_option
def bundle_command(
    words: Sequence[str],
    volume_size: int,
    challenges_path: Path | None,
    wait: bool,
    into: Path | None,
    repository: str | None,
    plain_http: bool,
    trusted_root: Path | None,
    matrix_path: Path,
    trust_path: Path | None,
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
        _receive(directory, into or directory / "received", wait)
        return
    reject_options(("wait", "into"), "has no effect without receive")
    from ..certify.machine import read_challenges
    from ..pipeline.bundle import Request, write_bundle
    from ..system.files import cache_directory
    from ..system.package_sources import host_sources
    from ..system.runs import temporary_directory
    from .planning import hosts_of, images_of

    trust = trust_path_for(matrix_path, trust_path)
    asked = read_challenges(challenges_path).by_value if challenges_path else {}
    request = Request(
        host_sources(),
        hosts_of(matrix_path),
        trust if trust_path is not None or trust.exists() else None,
        trusted_root,
        {one.asked: value for value, one in asked.items()},
    )
    registry = open_registry(repository, plain_http) if repository else None
    specs, cache = images_of(matrix_path), cache_directory()
    cache.mkdir(parents=True, exist_ok=True)
    # Not the directory for temporary files, which may be in memory: an image of the engine is written there.
    with temporary_directory("bundle", cache) as work:
        images = [_image(name, registry, plain_http, specs, matrix_path, work) for name in words[:-1]]
        digest = write_bundle(directory, images, volume_size, request, work, print_status)
    print_status(
        f"Wrote {directory}. The SHA-256 of its bundle.json, which `receive` prints on the other machine too:"
    )
    click.echo(digest)


def _receive(directory: Path, into: Path, wait: bool) -> None:
    from ..offline.receive import Refused, receive

    names = {parameter.name or "" for parameter in click.get_current_context().command.params}
    reject_options(names - {"words", "wait", "into", "verbose"}, "has no effect with receive")
    try:
        receive(directory, into, wait, print_status)
    except Refused as error:
        raise ValidatorError(str(error), hint=error.hint) from None
    click.echo(into)


def _image(
    name: str,
    given: Registry | None,
    plain_http: bool,
    specs: Mapping[str, ImageSpec],
    matrix_path: Path,
    work: Path,
) -> BundledImage:
    """Return an image by its name. work: where an image of the local engine is written to."""
    from ..delivery.resolve import split_layout, split_reference
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
    from ..engines.docker.endpoint import connect
    from ..engines.docker.engine import EngineImages
    from ..registry.layout import in_layout

    endpoint = connect()
    with contextlib.closing(endpoint.client), contextlib.closing(endpoint.quick):
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


def measure_received() -> int:
    """Measure one image of a received bundle with the tool that is in it, which `./measure` starts.

    The command line names the bundle's directory, the tag of the image, `docker` or `podman`, and the file to
    which the records are written as JSON Lines.
    """
    from ..engines.docker.endpoint import connect, connect_podman
    from ..engines.docker.engine import DockerEngine
    from ..engines.docker.load import load_from_layout
    from ..offline.receive import MANIFEST, read_bundle
    from ..pipeline.delivered import measure
    from ..records import record_files
    from ..system.files import read_file, write_atomically
    from .signing import runner_of

    directory, tag, choice, output = sys.argv[1:]
    received = Path(directory)
    bundle = read_bundle(read_file(received / MANIFEST))
    image = next(image for image in bundle.images if image.tag == tag)
    endpoint = connect_podman() if choice == "podman" else connect()
    engine = DockerEngine(endpoint)
    with contextlib.closing(engine):
        print_status(f"Engine: {engine.describe()}")
        reference = image_reference(image.image)
        load_from_layout(endpoint, reference, received / "images", image.digest, print_status)
        name = endpoint.client.images.get(reference).id
        if name is None:
            raise InputError(f"{reference}: the engine does not say which image it has loaded")
        runner = runner_of(engine, received / "trust" / "trust.yaml", asked=True)
        records = measure(
            received, bundle, image, engine, lambda asked: engine.probe_image(name, asked, print_status),
            runner, print_status,
        )  # fmt: skip
    text = io.StringIO()
    record_files.write(records, text)
    write_atomically(Path(output), text.getvalue().encode())
    return EXIT_OK
