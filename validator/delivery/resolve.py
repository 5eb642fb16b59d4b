"""Decide what `run` starts, and how: which image, on which host, as which user, with which devices."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..certify.trust import Terms
from ..errors import InputError, MissingError
from ..model.prediction import Outcome
from ..model.spec import LABEL_SPEC, image_reference
from ..registry.client import Registry, named_in_layout
from ..registry.names import Repository, Wanted, is_digest, is_tag, tag_named
from . import choose
from .choose import Candidate, Host, Standing, TaggedImage
from .pull import (
    Engine,
    LocalImage,
    NotCertified,
    SelectedImage,
    Tell,
    certified_standing,
    identify,
    port_of,
    select,
    start_image,
)
from .start import Devices, Image, Place, Start, User, devices_of, user_of

#: Returns the host of the container, or None if it has no GPU.
FindHost = Callable[[], "Host | None"]


@dataclass(frozen=True)
class Request:
    """The image, the host and the devices to start. uncertified: an image that is not certified will do too.

    registry: None for the local engine or an OCI layout. terms: None if no certificate is looked at. devices:
    None if no Docker Engine starts the container. environment, command, terminal, xla_cache: see `Start`.
    """

    registry: Registry | None
    wanted: Wanted
    terms: Terms | None
    uncertified: bool
    devices: Devices | None
    mount: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    terminal: str = ""
    xla_cache: bool = True


def resolve(
    request: Request, engine: Engine | None, host: FindHost, tell: Tell
) -> tuple[Start, SelectedImage | None]:
    """Choose the image, and describe its container. Also return the image to pull first if it is certified.

    engine: what starts the container or has the image; None to write for another machine.
    host: called if the image can use GPUs; returns None to start it on the CPU. tell: called with what people
    should know. Raises InputError for a wrong request, NotCertified if no image will do, and MissingError if
    something can't be reached.
    """
    selected: SelectedImage | None = None
    known: Host | None
    if request.registry is not None and request.terms is not None and not request.uncertified:
        known = host()
        assert known is not None
        devices = _devices(request.devices, engine)
        selected = select(request.registry, known, request.terms, request.wanted, tell)
        image = start_image(request.registry, selected)
    else:
        image, known = _find(request, engine, host, tell)
        if not image.certified:
            tell(f"WARNING: NOT CERTIFIED: {image.name}")
        for text in image.standing:
            tell(f"{image.name}: {text}")
        devices = _devices(request.devices, engine) if known is not None else None
    user = User(os.getuid(), os.getgid())
    if engine is not None and request.devices is not None:
        user = user_of(engine.info, user.uid, user.gid)
        if request.mount and not engine.is_local:
            raise InputError(
                "--mount needs a local Docker engine: the remote host does not have this directory",
                hint="copy the data there, or run without --mount",
            )
    start = Start(
        image, known, devices, user, Path.cwd() if request.mount else None,
        request.environment, request.command, request.terminal, request.xla_cache,
    )  # fmt: skip
    return start, selected


def _devices(asked: Devices | None, engine: Engine | None) -> Devices | None:
    """Return how a Docker Engine gives GPUs: as was asked for, or else as the local one offers them."""
    return devices_of(engine.info) if asked is Devices.AUTO and engine is not None else asked


# Find an image that need not be certified: in a registry, in the local engine, or in an OCI layout.
# Only `run --uncertified` asks for one. An image that is certified for the host is still reported as such.

#: What each prediction says about an image that nobody measured.
_PREDICTED = {
    Outcome.WORKS: "The facts predict that it works on this host",
    Outcome.FAILS: "The facts predict that it FAILS on this host",
    Outcome.UNKNOWN: "The facts don't say whether it works on this host",
}
_LOCAL = "It is only in the local {}, and a certificate is about an image in a registry."
_IN_LAYOUT = "It is in an OCI layout, and a certificate is about an image in a registry."
_NO_GPU = "No GPU was found, because this machine has no NVIDIA driver: the image starts on the CPU."
_FOREIGN = "It is not an image of this project, so nothing is known about it."
#: How an image in an OCI layout is named, as skopeo and Podman do.
_LAYOUT = "oci:"


def split_reference(text: str) -> tuple[Repository, str] | None:
    """Split `HOST/NAME:TAG` or `HOST/NAME@DIGEST`. Returns None for anything without a registry's host."""
    name, at, digest = text.partition("@")
    first, slash, rest = name.partition("/")
    if not slash or not ("." in first or ":" in first or first == "localhost"):
        return None
    path, _, tag = rest.partition(":")
    if not at and not tag:
        raise InputError(
            f"{text!r} has no tag and no digest", hint="write HOST/NAME:TAG or HOST/NAME@sha256:…"
        )
    if at and not is_digest(digest):
        raise InputError(f"{digest!r} is not a valid digest", hint="write sha256: and 64 hexadecimal digits")
    return Repository.parse(f"{first}/{path}"), digest or tag


def split_layout(text: str) -> tuple[Path, str] | None:
    """Split `oci:DIRECTORY:TAG`, and make the directory absolute. Returns None for another name."""
    if not text.startswith(_LAYOUT):
        return None
    directory, _, tag = text.removeprefix(_LAYOUT).partition(":")
    if not directory or not is_tag(tag):
        raise InputError(
            f"{text!r} is not the name of an image in an OCI layout",
            hint="write oci:DIRECTORY:TAG; other programs can't read a directory with a colon in its name",
        )
    # Podman rejects a name with `..`.
    return Path(directory).resolve(), tag


def _find(request: Request, engine: Engine | None, host: FindHost, tell: Tell) -> tuple[Image, Host | None]:
    """Return an image that need not be certified, and the host if the image uses its GPUs."""
    registry, wanted, terms = request.registry, request.wanted, request.terms
    if registry is None:
        if wanted.image is None or (layout := split_layout(wanted.image)) is None:
            assert engine is not None
            return _local(engine, wanted, host, tell)
        directory, tag = layout
        in_layout, own = named_in_layout(directory, tag)
        config = in_layout.config(own)
        image = identify(tag, config.labels.get(LABEL_SPEC, ""))
        known = None if image is not None and image.cuda is None else host()
        reference = f"{directory}:{tag}"
        return Image(
            reference, f"{_LAYOUT}{reference}", (_IN_LAYOUT, *_about(image, own, known)), certified=False,
            checks_host=image is not None and image.cuda is not None, port=port_of(config.ports),
            place=Place.LAYOUT, tensorflow=image.tensorflow if image else "", digest=own,
        ), known  # fmt: skip
    if wanted.image is None:
        return _best(registry, wanted, host, terms, tell)
    tag = tag_named(wanted.image)
    digest = registry.find(tag)
    if digest is None:
        raise InputError(f"{registry.repository} has no image {wanted.image}", hint=registry.tags_hint())
    config = registry.config(digest)
    image = identify(tag, config.labels.get(LABEL_SPEC, ""))
    known = None if image is not None and image.cuda is None else host()
    name = str(registry.repository.at(digest) if is_digest(wanted.image) else registry.repository.tagged(tag))
    if image is None:
        return Image(
            registry.repository.at(digest), name, _about(None, "", known), certified=False, checks_host=False,
            port=port_of(config.ports), plain_http=registry.plain_http,
        ), known  # fmt: skip
    candidate = Candidate(image, digest)
    if terms and known:
        candidate = choose.inspect_digest(registry, image, digest, terms)
    return _described(registry, candidate, name, known, terms), known


def _best(
    registry: Registry, wanted: Wanted, find_host: FindHost, terms: Terms | None, tell: Tell
) -> tuple[Image, Host | None]:
    """Return the best image for the host: a certified one, or else one that is predicted to work."""
    images = choose.tagged_images(registry, wanted)
    without_cuda = [image for image in images if image.cuda is None]
    needs_host = wanted.gpu or len(without_cuda) < len(images)
    if not needs_host or (host := find_host()) is None:
        candidate = Candidate((without_cuda or images)[0], None)
        return _tagged(registry, candidate, None, terms)
    if terms is None:
        candidates = [Candidate(image, None) for image in images if image.cuda is not None]
    else:
        assessed = choose.recommend(registry, images, host, terms)
        if assessed and assessed[0].standing is Standing.CERTIFIED:
            return _tagged(registry, assessed[0].candidate, host, terms)
        candidates = [one.candidate for one in assessed if one.candidate.image.cuda is not None]
    return _tagged(registry, _most_promising(candidates, host, str(registry.repository), tell), host, terms)


def _tagged(
    registry: Registry, candidate: Candidate, host: Host | None, terms: Terms | None
) -> tuple[Image, Host | None]:
    """Return the image of a tag. Raises MissingError if the registry no longer has the tag."""
    digest = candidate.digest or registry.digest_of(candidate.image.tag)
    if digest is None:
        raise MissingError(f"the tag {candidate.image.tag} no longer exists", hint="run the command again")
    candidate = replace(candidate, digest=digest)
    return _described(registry, candidate, registry.repository.tagged(candidate.image.tag), host, terms), host


def _most_promising(candidates: Sequence[Candidate], host: Host, place: str, tell: Tell) -> Candidate:
    """Return the first image that is predicted to work, or else the first that may work.

    place: where they are. Raises NotCertified without images, or if all of them are predicted to fail or
    have failed.
    """
    order = [Outcome.WORKS, Outcome.UNKNOWN]
    forecasts = [(one, choose.forecast(one.image, one.certificates, host)) for one in candidates]
    fit = [pair for pair in forecasts if pair[1].outcome in order and not choose.failed_here(pair[0], host)]
    if not candidates:
        raise NotCertified(
            f"{place} has only images without CUDA, which can't use a GPU ({host})",
            hint="`build-matrix --push` publishes images with CUDA; to start an image without CUDA, name it"
            " with --image",
        )
    if not fit:
        for one, found in forecasts:
            tell(f"rejected: {one.image}: {found.why}")
        raise NotCertified(
            f"{place} has no image that may work on this host ({host})",
            hint="to start an image anyway, name it with --image",
        )
    return min(fit, key=lambda pair: order.index(pair[1].outcome))[0]


def _described(
    registry: Registry, candidate: Candidate, name: str, host: Host | None, terms: Terms | None
) -> Image:
    assert candidate.digest is not None
    certificates = choose.covering(candidate, host) if host else ()
    standing = certified_standing(certificates)
    if not certificates:
        if terms is None:
            why = "Its certificates were not checked, because no --key or --identity says whose count."
        elif host is None:
            why = "A certificate is about a GPU, and this image uses none."
        else:
            why = f"No certificate covers this host: {choose.why_not_covered(candidate, host)}."
        standing = (why, *_predicted(candidate, host))
    return Image(
        registry.repository.at(candidate.digest), name, standing, certified=bool(certificates),
        checks_host=candidate.image.cuda is not None, port=port_of(registry.config(candidate.digest).ports),
        plain_http=registry.plain_http, tensorflow=candidate.image.tensorflow, digest=candidate.digest,
    )  # fmt: skip


def _local(engine: Engine, wanted: Wanted, host: FindHost, tell: Tell) -> tuple[Image, Host | None]:
    if wanted.image:
        found = engine.find(wanted.image)
        if found is None:
            raise InputError(
                f"the local {engine.name} has no image {wanted.image}",
                hint="`docker images` or `podman images` lists them; for one in a registry, write"
                " HOST/NAME:TAG or pass --registry",
            )
        image = identify("", found.labels.get(LABEL_SPEC, ""))
        known = None if image is not None and image.cuda is None else host()
    else:
        image, found, known = _best_local(engine, wanted, host, tell)
    return Image(
        found.id, found.name, (_LOCAL.format(engine.name), *_about(image, found.id, known)), certified=False,
        checks_host=image is not None and image.cuda is not None, port=port_of(found.ports),
        place=Place.ENGINE, tag=found.tag, tensorflow=image.tensorflow if image else "", digest=found.id,
    ), known  # fmt: skip


def _best_local(
    engine: Engine, wanted: Wanted, host: FindHost, tell: Tell
) -> tuple[TaggedImage, LocalImage, Host | None]:
    """Return the best image of this project in the engine with these versions, and the host if it has CUDA.

    If the user named a GPU, that is never an image without CUDA; without a GPU it is one if there is one.
    """
    fit = {}
    for local in engine.own_images(LABEL_SPEC):
        image = identify("", local.labels[LABEL_SPEC])
        # A derived image has the label as well, but not the name.
        if (
            image is not None
            and local.name == image_reference(image.identifier)
            and image.additions == wanted.additions
            and image.is_of(wanted.tensorflow, wanted.python)
        ):
            fit[image] = local
    if not fit:
        asked = f" --profile full --select tensorflow={wanted.tensorflow}" if wanted.tensorflow else ""
        raise InputError(
            f"the local {engine.name} has no such image of this project",
            hint=f"build one with `validator build-matrix{asked}`; for images in a registry, pass --registry",
        )
    best_first = sorted(fit, key=lambda image: image.preference, reverse=True)
    with_cuda = [Candidate(image, fit[image].id) for image in best_first if image.cuda is not None]
    if with_cuda and (known := host()) is not None:
        image = _most_promising(with_cuda, known, f"the local {engine.name}", tell).image
        return image, fit[image], known
    if wanted.gpu:
        raise InputError(
            f"the local {engine.name} has only images of this project without CUDA, which can't use a GPU:"
            f" {', '.join(fit[image].name for image in best_first)}",
            hint="`build-matrix` builds images with CUDA, or use --registry to name a registry that has"
            " some; to start one of these on the CPU, name it with --image",
        )
    best = min(best_first, key=lambda image: image.cuda is not None)
    return best, fit[best], None


def _about(image: TaggedImage | None, digest: str, host: Host | None) -> tuple[str, ...]:
    """Return what is known about an image without a certificate. image: None for a foreign one."""
    if image is None:
        return (_FOREIGN,) if host is not None else (_FOREIGN, _NO_GPU)
    return _predicted(Candidate(image, digest), host)


def _predicted(candidate: Candidate, host: Host | None) -> tuple[str, ...]:
    if candidate.image.cuda is None:
        return ("It has no CUDA, so TensorFlow uses the processor in it.",)
    if host is None:
        return (_NO_GPU,)
    found = choose.forecast(candidate.image, candidate.certificates, host)
    return (f"{_PREDICTED[found.outcome]}: {found.why}.",)
