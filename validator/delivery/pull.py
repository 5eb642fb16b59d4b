"""Select the one image that may be pulled for a host, verified and certified for it, and pull it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import requests
from docker.errors import DockerException, ImageNotFound

from ..certify.trust import Terms
from ..certify.verify import ALIAS
from ..engines import endpoint
from ..engines.endpoint import engine_gone
from ..engines.images import list_images, load_from_layout, pull
from ..errors import InputError, MissingError, ValidatorError
from ..model.prediction import Outcome
from ..model.record import Certificate
from ..model.spec import JUPYTER_PORT, LABEL_SPEC
from ..registry.client import Registry
from ..registry.names import LATEST, Wanted, tag_named, tag_of
from ..system import processes
from . import choose
from .choose import Candidate, Host, Standing, TaggedImage
from .start import Image, Place

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
    if wanted.image:
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
        try:
            image = self._reached.quick.images.get(selected.reference)
            if image.id not in ids:
                raise ValidatorError(
                    f"{selected.reference} was pulled, but the engine stores {image.id} under that name",
                    hint="do not use it; find out what else changes images in this engine",
                )
            repository, _, tag = selected.name.rpartition(":")
            image.tag(repository, tag)
        except ImageNotFound as error:
            raise MissingError(f"{selected.reference} was pulled, but is no longer in the engine") from error
        except (DockerException, requests.RequestException) as error:
            raise engine_gone(selected.reference) from error

    def load(self, registry: Registry, digest: str, name: str, progress: Callable[[str], None]) -> LocalImage:
        """Give the engine an image of a bundle under a name. Raises MissingError and ValidatorError."""
        progress("loading from the bundle")
        load_from_layout(self._reached, name, Path(str(registry.repository)), digest, progress)
        found = self.find(name)
        if found is None or found.id not in local_ids(registry, digest):
            raise ValidatorError(f"{name} was loaded, but the engine has another image under that name")
        return found

    def find(self, name: str) -> LocalImage | None:
        """Return the image of this name or id, or None. Raises MissingError if the engine is gone."""
        try:
            return LocalImage.of(self._reached.quick.images.get(name), name)
        except ImageNotFound:
            return None
        except (DockerException, requests.RequestException) as error:
            raise engine_gone(name) from error

    def own_images(self, label: str) -> list[LocalImage]:
        """Return the images with this label, once for each of their names."""
        try:
            images = list_images(self._reached.quick, label)
        except (DockerException, requests.RequestException) as error:
            raise engine_gone("the list of images") from error
        return [LocalImage.of(image, name) for image in images for name in _names(image)]

    def remove(self, name: str) -> None:
        """Remove a name of an image, if the engine has it, and the image with its last name."""
        processes.run([self._reached.program, "image", "rm", name])

    def close(self) -> None:
        self._reached.close()
