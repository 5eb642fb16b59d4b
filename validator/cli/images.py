"""`recommend`, `pull` and `run`: list the images of a registry that fit a host, pull and start the best."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import click

from ..compat import hardware
from ..errors import EXIT_FAILED, EXIT_OK, InputError, MissingError
from ..model.codec import encode
from ..model.spec import image_reference
from ..registry.client import Registry
from ..registry.names import Repository, Wanted, identifier_of, split_reference
from ..reports.printable import json_text
from . import Command, options
from .options import argument, flag, option, print_status

if TYPE_CHECKING:
    from ..certify.trust import Terms
    from ..delivery.choose import Assessment, Host
    from ..delivery.formats import Format
    from ..delivery.pull import Engine, SelectedImage
    from ..delivery.start import Place


# Options of the commands that choose an image for a host, and the functions that evaluate them.


#: `driver` and `gpus`, the arguments of `resolve_host`.
driver_option = option(
    "--driver RELEASE  The host's driver: a release such as 535.183.01 or a branch such as 535.  [default:"
    " detected]"
)
gpus_option = option(
    "--gpu MODEL...  The host's GPU: a100, 'RTX 4090', or a compute capability such as 8.0; repeatable for a"
    " host with several GPUs.  [default: detected]"
)
#: Selects images with additions.
name_option = option(
    "--name NAME  Only images with these additions, such as jupyter, or with this wheel of TensorFlow that"
    " no table lists, such as b3f1c2d4.  [default: only images without either]",
    "additions",
)
#: What restricts the images. The command receives it as `wanted`, with its option `--image` if it has one.
version_options = options.gathered(
    Wanted,
    option(
        "--tensorflow VERSION  Only images with this TensorFlow: a release such as 2.20.0, or all its patch"
        " releases: 2.20."
    ),
    option("--python VERSION  Only images with this Python, such as 3.12."),
    name_option,
)


def resolve_host(driver: str | None, gpus: Sequence[str]) -> Host:
    """Return the host with this driver and these GPUs; what is not given is detected on this machine.

    Raises InputError for an unknown driver or GPU, MissingError if this machine has no NVIDIA driver or GPU.
    """
    from ..delivery.choose import Host, parse_driver, parse_gpus, this_host

    release, models = parse_driver(driver) if driver else None, parse_gpus(gpus)
    if release is None or not models:
        here = this_host()
        return Host(release or here.driver, models or here.gpus)
    return Host(release, models)


def refuse_versions_of_named_image(wanted: Wanted) -> None:
    """Raise UsageError if an image is named, and values of `version_options` choose one, too."""
    if wanted.image and (wanted.tensorflow or wanted.python or wanted.additions):
        raise click.UsageError("--image already names one image: leave out --tensorflow, --python and --name")


def connect_engine(driver: str | None, gpus: Sequence[str], kind: str = "auto") -> Engine:
    """Connect to the engine. kind: see `Engine`.

    Raises MissingError if there is none, or if it runs on another machine that the options don't describe.
    """
    from ..delivery.pull import Engine

    engine = Engine(kind)
    if not engine.is_local and not (driver and gpus):
        engine.close()
        raise MissingError(
            "the Docker Engine runs on another machine, whose driver and GPUs cannot be detected from here",
            hint="describe that machine with --driver and --gpu, or run this command there",
        )
    return engine


def pull_selected(engine: Engine, registry: Registry, selected: SelectedImage) -> None:
    """Pull the selected image and print the progress to stderr."""
    from ..delivery.pull import local_ids

    engine.pull(selected, local_ids(registry, selected.digest), _progress(str(selected.image)))
    print_status(f"Pulled {selected.reference} and tagged it {selected.name}.")


def _load(engine: Engine, registry: Registry, reference: str, name: str) -> str:
    """Load an image of a bundle, and return its id in the engine. reference, name: as in SelectedImage."""
    digest, tag = reference.rpartition("@")[2], name.rpartition(":")[2]
    tagged = image_reference(identifier_of(tag) or tag)
    loaded = engine.load(registry, digest, tagged, _progress(tagged))
    print_status(f"Loaded {digest} from the bundle and tagged it {tagged}.")
    return loaded.id


def _progress(image: str) -> Callable[[str], None]:
    """Return a function that prints how far the work on an image is, each text once."""
    last = ""

    def progress(text: str) -> None:
        nonlocal last
        if text != last:
            print_status(f"{image}: {text}")
        last = text

    return progress


#: The length of a digest as docker shortens it, with the algorithm.
_SHORT = len("sha256:") + 12


@click.command("recommend", cls=Command)
def recommend_command(
    registry: Registry,
    driver: str | None = driver_option,
    gpus: Sequence[str] = gpus_option,
    wanted: Wanted = version_options,
    terms: Terms = options.certificates(),
    format_: str = options.formats("table", "json"),
) -> int:
    """List the images for this host, or another, best first, with the reason why each one fits or does not.

    An image is certified if it was measured on the host's driver branch and compute capability; predicted
    means that only the facts say that it works there, and unmeasured that no machine has measured it yet. If
    images differ only in CUDA and cuDNN, those without limits on this host come first. The exit code is 1 if
    no image is certified or predicted.
    """
    from ..delivery.choose import Standing, recommend, tagged_images, without_certificates

    host = resolve_host(driver, gpus)
    print_status(f"Host: {host}")
    remark = hardware.ended(host.driver.branch)
    if remark is not None:
        print_status(f"Note: {remark.text}.")
    found = recommend(registry, tagged_images(registry, wanted), host, terms)
    if not any(one.candidate.certificates or one.candidate.problems for one in found):
        print_status(f"No image in {registry.repository} is certified yet, for this host or another.")
        print_status(f"  hint: {without_certificates(registry)}")
    if format_ == "json":
        click.echo(json_text(_document(registry.repository, host, found)))
    else:
        rows = []
        for one in found:
            why = "; ".join([one.why, *(limit.line for limit in one.limits)])
            digest = (one.candidate.digest or "")[:_SHORT]
            rows.append((str(one.candidate.image), digest, one.standing.value, why))
        options.print_rows(("image", "digest", "for this host", "why"), rows, whole=True)
    counts = {standing: sum(one.standing is standing for one in found) for standing in Standing}
    print_status(", ".join(f"{count} {standing.value}" for standing, count in counts.items() if count))
    return EXIT_OK if counts[Standing.CERTIFIED] or counts[Standing.PREDICTED] else EXIT_FAILED


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
    standing: Annotated[str, "`certified`, `predicted`, `unmeasured` or `unfit`."]
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
        list[str], "Sentences: why other certificates don't count, or what is wrong with the image."
    ]


class RecommendationDocument(TypedDict):
    """The output of `recommend --json`."""

    registry: Annotated[str, "The registry and name."]
    host: Annotated[HostDocument, "The host; its fields are below."]
    images: Annotated[list[CandidateDocument], "The best first; the fields of each are below."]


def _document(repository: Repository, host: Host, found: list[Assessment]) -> RecommendationDocument:
    images: list[CandidateDocument] = []
    for one in found:
        image, digest = one.candidate.image, one.candidate.digest
        images.append({
            "tag": image.tag, "image": image.identifier,
            "digest": digest, "reference": repository.at(digest) if digest else None,
            "tensorflow": image.tensorflow, "python": image.python, "cuda": image.cuda, "cudnn": image.cudnn,
            "standing": one.standing.value, "why": one.why, "limits": encode(list(one.limits)),
            "prediction": {"outcome": one.forecast.outcome.value, "why": one.forecast.why},
            "certificates": encode(one.candidate.certificates), "against": list(one.candidate.problems),
        })  # fmt: skip
    gpus: list[dict[str, str | None]] = [
        {"name": gpu.name, "compute_capability": str(gpu.capability)} for gpu in host.gpus
    ]
    return {"registry": str(repository), "host": {"driver": str(host.driver), "gpus": gpus}, "images": images}


@click.command("pull", cls=Command)
def pull_command(
    registry: Registry,
    bundle: Path | None,
    driver: str | None = driver_option,
    gpus: Sequence[str] = gpus_option,
    wanted: Wanted = version_options,
    image: str | None = option(
        "--image IMAGE  Use this image, after verifying it: an image spec, an alias such as latest, or a"
        " digest.  [default: the best one that is certified for the host]"
    ),
    terms: Terms = options.certificates(),
) -> None:
    """Pull the best image that is certified for this host, or the image given with --image.

    First verifies the signature, digest, time and host of the certificate; an image that fails is not pulled.
    Prints the image's reference by digest, or with --from-bundle its id in the engine.
    """
    from ..delivery.pull import select

    host = resolve_host(driver, gpus)
    with contextlib.closing(connect_engine(driver, gpus)) as engine:
        refuse_versions_of_named_image(wanted)
        selected = select(registry, host, terms, wanted, print_status)
        if bundle is not None:
            pulled = _load(engine, registry, selected.reference, selected.name)
        else:
            pulled = selected.reference
            pull_selected(engine, registry, selected)
        if own := sorted({name for one in selected.certificates for name in one.own_passed}):
            print_status(f"Its certificate includes checks of its owner: {', '.join(own)}")
    click.echo(pulled)


_FORMATS = ("docker", "compose", "devcontainer", "apptainer", "slurm", "kubernetes", "podman")


@click.command("run", cls=Command, context_settings={"allow_interspersed_args": False})
def run_command(
    registry: Registry | None,
    plain_http: bool,
    bundle: Path | None,
    words: Sequence[str] = argument("[-- COMMAND [ARGUMENT]...]", nargs=-1),
    format_: str | None = option(
        "--format  The format to write: a docker or podman command line, or a file for one of the other"
        " tools.  [default: docker, or podman where only Podman answers]",
        type=click.Choice(_FORMATS),
    ),
    output: Path | None = option(
        "--output FILE  Write to this file; a dev container needs .devcontainer/devcontainer.json."
        "  [default: stdout]",
        type=options.OUTPUT,
    ),
    force: bool = flag("--force  Replace the file of --output if it exists."),
    execute: bool = flag("--exec  Start the container instead of writing (docker and podman)."),
    mount: bool = flag("--mount  Mount the current directory into the container and start there."),
    variables: Sequence[str] = option(
        "--env NAME=VALUE...  Set an environment variable in the container; repeatable."
    ),
    devices: str = option(
        "--devices auto|gpus|cdi  How Docker provides GPUs: as the local engine offers them (auto), with"
        " --gpus, or as CDI devices. With gpus or cdi, no engine is needed on this machine if the image is"
        " in a registry and neither --mount nor --exec is given.",
        default="auto",
    ),
    no_xla_cache: bool = flag(
        "--no-xla-cache  Let XLA compile everything again at each start. By default, XLA keeps what it"
        " compiles in a volume or directory of yours, if the image's TensorFlow supports this."
    ),
    uncertified: bool = flag(
        "--uncertified  Also accept an image that is not certified for this host, and say so. Without"
        " --registry, look in the local engine."
    ),
    driver: str | None = driver_option,
    gpus: Sequence[str] = gpus_option,
    wanted: Wanted = version_options,
    image: str | None = option(
        "--image TAG|DIGEST|REFERENCE  Use this image: a tag or digest in --registry, or HOST/NAME:TAG. With"
        " --uncertified also the name of one in the local engine, or oci:DIRECTORY:TAG for one in an OCI"
        " layout.  [default: the best one that is certified for the host]"
    ),
    terms: Terms | None = options.certificates(need_registry=False),
) -> None:
    """Write how to start the image that `pull` would pull on this host, or start it with --exec.

    `run` verifies the image as `pull` does, and names it by its digest. Comments give the reason for each
    line. --uncertified also accepts an image that is not certified, from a registry, the local engine or an
    OCI layout.
    """
    from ..delivery.choose import NoDriver
    from ..delivery.formats import FORMATS
    from ..delivery.pull import Request, in_bundle, resolve, split_layout
    from ..delivery.start import Devices, Place, parse_variables

    kind = format_ or ("auto" if devices == "auto" else "docker")
    format_ = format_ or "docker"
    tool = FORMATS[format_]
    if execute and tool.command is None:
        raise click.UsageError(
            f"--exec starts a container with docker or podman, not with --format {format_}:"
            " write the file, and start it with its own tool"
        )
    if execute and output is not None:
        raise click.UsageError("--exec starts the container and writes nothing: leave out --output")
    if force and output is None:
        raise click.UsageError("--force has no effect without --output")
    if devices != "auto" and not tool.uses_docker:
        raise click.UsageError(f"--devices is about a Docker Engine, which --format {format_} does not use")
    environment = parse_variables(variables)
    refuse_versions_of_named_image(wanted)
    place = Place.REGISTRY
    if bundle is not None:
        place = Place.ENGINE if tool.uses_docker else Place.LAYOUT
    elif wanted.image and split_layout(wanted.image):
        registry, place = None, Place.LAYOUT
    elif wanted.image and (reference := split_reference(wanted.image)):
        registry = Registry(reference[0], plain_http=plain_http or None)
        wanted = replace(wanted, image=identifier_of(reference[1]) or reference[1])
    elif registry is None:
        place = Place.ENGINE
    _check_place(place, uncertified or bundle is not None, format_, tool)
    # Without a command the image starts Python, which needs a terminal.
    terminal = "" if words else "-it"
    if execute:
        terminal = "-it" if sys.stdin.isatty() and sys.stdout.isatty() else "-i"
    request = Request(
        registry, replace(wanted, gpu=bool(gpus)), terms, uncertified,
        Devices(devices) if tool.uses_docker else None, mount, environment, tuple(words), terminal,
        xla_cache=not no_xla_cache,
    )  # fmt: skip

    @functools.cache
    def host() -> Host | None:
        try:
            return resolve_host(driver, gpus)
        except NoDriver:
            # Other tools write for another machine, which has to be described.
            if not uncertified or tool.command is None or driver or gpus:
                raise
            return None

    if not uncertified:
        host()
    # To write for another machine, no engine is needed.
    here = execute or place is Place.ENGINE
    needs_engine = here or (tool.uses_docker and (mount or request.devices is Devices.AUTO))
    engine = connect_engine(driver, gpus, kind) if needs_engine else None
    if kind == "auto" and engine is not None and engine.is_podman:
        tool, request = FORMATS["podman"], replace(request, devices=None)
    try:
        start, selected = resolve(request, engine, host, print_status)
        if bundle is not None and registry is not None:
            # Podman reads the bundle itself.
            holder = engine if tool.uses_docker else None
            if execute and holder is not None:
                _load(holder, registry, start.image.reference, start.image.name)
            start = replace(start, image=in_bundle(registry, start.image, holder))
        elif execute and engine is not None and registry is not None and selected is not None:
            pull_selected(engine, registry, selected)
    finally:
        if engine is not None:
            engine.close()
    if start.port is not None:
        print_status(
            f"JupyterLab answers at http://127.0.0.1:{start.port}/lab; it prints the token when it starts"
        )
    if execute and tool.command is not None:
        line = tool.command(start)
        sys.stdout.flush()
        try:
            # Replaces this process.
            os.execvp(line[0], line)
        except FileNotFoundError:
            raise MissingError(
                f"{line[0]} is not installed", hint="install it, or run without --exec to see the command"
            ) from None
    if output is not None and os.path.lexists(output) and not force and output.is_file():
        raise InputError(
            f"{output} already exists; nothing was written",
            hint="pass --force to replace it, or name another file",
        )
    options.write_or_print(tool.write(start), output)


def _check_place(place: Place, uncertified: bool, format_: str, tool: Format) -> None:
    """Refuse an image in a place where certificates don't reach, or where the tool can't find it."""
    from ..delivery.start import Place

    if place is not Place.REGISTRY and not uncertified:
        raise click.UsageError(
            "Missing option '--registry': certified images are in a registry. To start an image that is not"
            " certified, from the local engine or an OCI layout, use --uncertified; `build-matrix`"
            " builds images."
        )
    if place in tool.places:
        return
    if place is Place.ENGINE:
        hint = (
            "push it with `build-matrix --push HOST/NAME`, or any other image with `docker tag` and"
            " `docker push`, and name it with --image HOST/NAME:TAG"
        )
        if format_ != "kubernetes":
            where = "a directory that the nodes share" if format_ == "slurm" else "a directory"
            hint += (
                f"; or write it to {where} with `build-matrix --no-validate --oci DIRECTORY`, and name it"
                " with --image oci:DIRECTORY:TAG"
            )
        raise InputError(
            f"--format {format_} does not start images of the local Docker Engine, where they are looked for"
            " without --registry",
            hint=hint,
        )
    if format_ == "kubernetes":
        raise InputError(
            "--format kubernetes needs an image in a registry, because the nodes pull it",
            hint="`skopeo copy oci:DIRECTORY:TAG docker://HOST/NAME:TAG` copies it there; name it with"
            " --image HOST/NAME:TAG",
        )
    raise InputError(
        f"--format {format_} is for the Docker Engine, which can't start an image from an OCI layout",
        hint="`tar -C DIRECTORY -c . | docker load` gives it to the engine, and prints the name for --image",
    )
