"""Select the one image that may be pulled for a host, verified and certified for it, and pull it.

The second part decides what `run` starts, which need not be certified.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..certify.trust import Terms
from ..certify.verify import ALIAS
from ..engines import endpoint
from ..engines.endpoint import answering
from ..engines.images import find_image, list_images, load_from_layout, pull
from ..errors import InputError, MissingError, ValidatorError
from ..model.prediction import Outcome
from ..model.record import Certificate
from ..model.spec import JUPYTER_PORT, LABEL_SPEC, image_reference
from ..registry.client import Registry, named_in_layout
from ..registry.names import LATEST, Wanted, is_digest, is_tag, tag_named, tag_of
from ..system import processes
from . import choose
from .choose import Candidate, Host, Standing, TaggedImage
from .start import Devices, Image, Place, Start, User, devices_of, user_of

Tell = Callable[[str], None]


class NotCertified(ValidatorError):
    """No image is certified for the host. Nothing was pulled."""


@dataclass(frozen=True)
class SelectedImage:
    """An image that may be pulled. reference: `host/path@sha256:…`. name: `host/path:tag`, for people."""

    image: TaggedImage
    digest: str
    reference: str
    name: str
    certificates: tuple[Certificate, ...]


def select_best(registry: Registry, host: Host, terms: Terms, wanted: Wanted, tell: Tell) -> SelectedImage:
    """Return the best image that is certified for the host, as `recommend` orders them.

    tell: called with the reason why each better one is rejected.

    Raises NotCertified if there is none, InputError if none has this TensorFlow and Python, MissingError if
    the registry can't be reached.
    """
    unfit = 0
    limited: Candidate | None = None
    # True also if a certificate does not count, or if nobody looked because the image can't run here.
    certified = False
    for image in choose.tagged_images(registry, wanted):
        if limited is not None and image.kind != limited.image.kind:
            break
        # No certificate makes these fit. Where CUDA or cuDNN float, only a certificate has their versions.
        if image.cuda is None or (
            not image.floats and choose.forecast(image, (), host).outcome is Outcome.FAILS
        ):
            unfit += 1
            certified = certified or image.cuda is not None
            continue
        assessed = choose.assess_candidate(choose.inspect_tag(registry, image, terms), host)
        if assessed.standing is Standing.CERTIFIED:
            if not assessed.limits:
                if limited is not None:
                    limits = choose.limits_of(choose.covering(limited, host))
                    known = "; ".join(limit.line for limit in limits)
                    tell(f"rejected: {limited.image}: {image} has no limits here; {known}")
                return _selected(registry, assessed.candidate, host)
            # Another one of its kind may have no limits.
            limited = limited or assessed.candidate
            continue
        certified = certified or bool(assessed.candidate.certificates or assessed.candidate.problems)
        covered = choose.covering(assessed.candidate, host)
        why = assessed.why if covered else choose.why_not_covered(assessed.candidate, host)
        tell(f"rejected: {image}: {why}")
    if limited is not None:
        return _selected(registry, limited, host)
    if unfit:
        others = "1 other image does" if unfit == 1 else f"{unfit} other images do"
        tell(f"{others} not run on this host; `recommend` says why")
    if not certified:
        raise NotCertified(
            f"no image in {registry.repository} is certified yet, for this host ({host}) or another; nothing"
            " was pulled",
            hint=choose.without_certificates(registry),
        )
    raise NotCertified(
        f"{registry.repository} has no certified image for this host ({host}); nothing was pulled",
        hint="`recommend` lists the images, and `run --uncertified` starts one that is not certified for this"
        " host",
    )


def select_named(registry: Registry, host: Host, terms: Terms, name: str, tell: Tell) -> SelectedImage:
    """Return the image of this image spec, alias or digest, verified like any other. tell: for warnings.

    Raises NotCertified with the reason, InputError without the image, MissingError without the registry.
    """
    tag = tag_named(name)
    digest = registry.named(tag)
    candidate = choose.inspect_digest(registry, _read_image(registry, tag, digest), digest, terms)
    if not choose.covering(candidate, host):
        raise NotCertified(f"rejected: {name}: {choose.why_not_covered(candidate, host)}; nothing was pulled")
    predicted = choose.forecast(candidate.image, candidate.certificates, host)
    if predicted.outcome is Outcome.FAILS:
        tell(f"{name} is certified for this host, but the facts predict that it fails here: {predicted.why}")
    return _selected(registry, candidate, host)


def select(registry: Registry, host: Host, terms: Terms, wanted: Wanted, tell: Tell) -> SelectedImage:
    """Return the named image, or else the best one. tell: also called with the host and the evidence."""
    tell(f"Host: {host}")
    if wanted.image is not None:
        selected = select_named(registry, host, terms, wanted.image, tell)
    else:
        selected = select_best(registry, host, terms, wanted, tell)
    for certificate in selected.certificates:
        measured = choose.measured_on(certificate)
        tell(f"{selected.image}: measured on {measured}, signed by {certificate.signer}")
    for limit in choose.limits_of(selected.certificates):
        tell(limit.line)
    return selected


def local_ids(registry: Registry, digest: str) -> frozenset[str]:
    """Return the ids of an image in an engine: its manifest's digest (containerd) or its configuration's."""
    manifest = registry.manifest(digest)
    if manifest is None:
        return frozenset({digest})
    entries = [manifest.config, *(manifest.manifests or ())]
    return frozenset({digest, *(entry.digest for entry in entries if entry)})


def in_bundle(registry: Registry, image: Image, engine: Engine | None) -> Image:
    """Return an image of a bundle as a tool finds it without a registry.

    engine: the one that has to have it; None for a tool that reads the bundle's OCI layout. Raises InputError
    if the engine does not have it.
    """
    digest = image.reference.rpartition("@")[2]
    if engine is None:
        tag = next((tag for tag in registry.tags() if registry.digest_of(tag) == digest), None)
        if tag is None:
            raise InputError(f"{registry.repository} has no tag for {digest}", hint="write the bundle again")
        named = registry.repository.tagged(tag)
        return replace(image, reference=named, place=Place.LAYOUT, digest=digest)
    found = next(filter(None, map(engine.find, sorted(local_ids(registry, digest)))), None)
    if found is None:
        raise InputError(
            f"the local {engine.name} does not have {image.name}",
            hint="`pull --from-bundle` loads it, and so does `run --exec`",
        )
    return replace(image, reference=found.id, tag=found.tag, place=Place.ENGINE)


def start_image(registry: Registry, selected: SelectedImage) -> Image:
    """Return what the start of a selected image depends on. Raises MissingError."""
    return Image(
        selected.reference, selected.name, certified_standing(selected.certificates), certified=True,
        port=port_of(registry.config(selected.digest).ports), plain_http=registry.plain_http,
        tensorflow=selected.image.tensorflow, digest=selected.digest,
    )  # fmt: skip


def certified_standing(certificates: Iterable[Certificate]) -> tuple[str, ...]:
    """Return sentences that say what certificates cover, who signed them, and which limits they name."""
    found = tuple(certificates)
    covered = (
        f"Certified for this host: measured on {choose.measured_on(one)}, signed by {one.signer}."
        f" {choose.coverage(one)}"
        for one in found
    )
    return (*covered, *(limit.line for limit in choose.limits_of(found)))


def port_of(ports: Collection[str]) -> int | None:
    """Return the port of JupyterLab if an image's own command starts it, otherwise None."""
    return JUPYTER_PORT if f"{JUPYTER_PORT}/tcp" in ports else None


def identify(tag: str, label: str) -> TaggedImage | None:
    """Return the image by its tag, or by its label, which is only information; None for a foreign one."""
    if image := TaggedImage.of_tag(tag):
        return image
    try:
        return TaggedImage.of_tag(tag_of(label))
    except ValueError:
        return None


def _read_image(registry: Registry, name: str, digest: str) -> TaggedImage:
    """Identify the image by its tag, or, for an alias or a digest, by its labels."""
    if image := TaggedImage.of_tag(name):
        return image
    image = identify("", registry.config(digest).labels.get(LABEL_SPEC, ""))
    if image is None:
        raise NotCertified(f"rejected: {name}: it is not an image of this project; nothing was pulled")
    plain, _, additions = name.partition("_")
    release = plain.partition("-")[0]
    other_release = release != LATEST and not image.is_of(release, None)
    if ALIAS.fullmatch(name) and (image.additions != (additions or None) or other_release):
        raise NotCertified(f"rejected: {name}: the alias points at {image}; nothing was pulled")
    return image


def _selected(registry: Registry, candidate: Candidate, host: Host) -> SelectedImage:
    assert candidate.digest is not None
    repository = registry.repository
    return SelectedImage(
        candidate.image,
        candidate.digest,
        repository.at(candidate.digest),
        repository.tagged(candidate.image.tag),
        choose.covering(candidate, host),
    )


@dataclass(frozen=True)
class LocalImage:
    """An image in the engine. name: for people. tag: `NAME:TAG`; empty if it has none."""

    id: str
    name: str
    tag: str
    labels: Mapping[str, str]
    ports: Collection[str]

    @classmethod
    def of(cls, image: Any, name: str) -> LocalImage:
        settings = image.attrs.get("Config") or {}
        tags = _names(image)
        tag = name if name in tags else next(iter(tags), "")
        return cls(str(image.id), name, tag, settings.get("Labels") or {}, settings.get("ExposedPorts") or {})


def _names(image: Any) -> list[str]:
    """Return an image's names as Docker writes them; Podman puts Docker's registry before local ones."""
    return [name.removeprefix("docker.io/library/") for name in image.tags]


class Engine:
    """The engine that holds and starts images here. Raises MissingError if it does not answer.

    kind: `docker`, for the engine that the docker command would use, `podman`, or `auto`, for the first of
    the two that answers.
    """

    def __init__(self, kind: str = "auto") -> None:
        docker = functools.partial(
            endpoint.reach,
            "start Docker Engine 23 or newer, or name another with DOCKER_HOST, or install Podman; without an"
            " engine, `validator build-matrix --engine venv` makes an environment, and prints how to train in"
            " it",
        )
        if kind == "podman":
            self._reached = endpoint.connect_podman()
        else:
            self._reached = docker() if kind == "docker" else endpoint.connect_any(docker)

    @property
    def is_podman(self) -> bool:
        return self._reached.is_podman

    @property
    def name(self) -> str:
        """`Docker Engine` or `Podman`."""
        return "Podman" if self.is_podman else "Docker Engine"

    @property
    def info(self) -> Mapping[str, Any]:
        """The answer of `docker info`."""
        return self._reached.info

    @property
    def is_local(self) -> bool:
        return self._reached.is_local

    def pull(self, selected: SelectedImage, ids: frozenset[str], progress: Callable[[str], None]) -> None:
        """Pull an image by digest, verify the result, and tag it with its name.

        ids: those under which the engine may store it. Raises ValidatorError if something else arrived and
        MissingError if it cannot be pulled; in both cases, the name is unchanged.
        """
        pull(self._reached, selected.reference, progress)
        with answering(selected.reference):
            image = find_image(self._reached.quick, selected.reference)
            if image is None:
                raise MissingError(f"{selected.reference} was pulled, but is no longer in the engine")
            if image.id not in ids:
                raise ValidatorError(
                    f"{selected.reference} was pulled, but the engine stores {image.id} under that name",
                    hint="do not use it; find out what else changes images in this engine",
                )
            repository, _, tag = selected.name.rpartition(":")
            image.tag(repository, tag)

    def load(self, registry: Registry, digest: str, name: str, progress: Callable[[str], None]) -> LocalImage:
        """Give the engine an image of a bundle under a name. Raises MissingError and ValidatorError."""
        progress("loading from the bundle")
        load_from_layout(self._reached, name, Path(str(registry.repository)), digest, progress)
        found = self.find(name)
        if found is None or found.id not in local_ids(registry, digest):
            raise ValidatorError(f"{name} was loaded, but the engine has another image under that name")
        return found

    def find(self, name: str) -> LocalImage | None:
        """Return the image of this name or id, or None. Raises the errors of `find_image`."""
        image = find_image(self._reached.quick, name)
        return LocalImage.of(image, name) if image else None

    def own_images(self, label: str) -> list[LocalImage]:
        """Return the images with this label, once for each of their names."""
        with answering("the list of images"):
            images = list_images(self._reached.quick, label)
        return [LocalImage.of(image, name) for image in images for name in _names(image)]

    def remove(self, name: str) -> None:
        """Remove a name of an image, if the engine has it, and the image with its last name."""
        processes.run([self._reached.program, "image", "rm", name])

    def close(self) -> None:
        self._reached.close()


# Decide what `run` starts: which image, on which host, as which user, with which devices.

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
    if wanted.image is not None:
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
