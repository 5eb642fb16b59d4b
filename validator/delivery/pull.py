"""The one image that may be taken for a host: verified, with a certificate that covers the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import requests
from docker.errors import DockerException, ImageNotFound

from ..certify.promote import ALIAS
from ..engines.docker import endpoint, transfer
from ..engines.docker.failures import engine_gone
from ..engines.docker.names import LABEL_SPEC
from ..errors import InputError, MissingError, ValidatorError
from ..model.certificate import Certificate
from ..model.prediction import Outcome
from ..registry.client import Registry
from ..registry.names import LATEST, is_digest, tag_of
from .candidates import Terms, assessed_for, look, look_at, offers
from .choose import Found, Offer, Standing, covering, expected, uncovered
from .host import Host

Tell = Callable[[str], None]


class NotTaken(ValidatorError):
    """No image may be taken. Nothing was pulled."""


@dataclass(frozen=True)
class Taken:
    """An image that may be pulled.

    reference: `host/path@sha256:…`. name: `host/path:tag`, for people. certificates: what covers the host.
    """

    offer: Offer
    digest: str
    reference: str
    name: str
    certificates: tuple[Certificate, ...]


def best(
    registry: Registry, host: Host, terms: Terms, tensorflow: str | None, python: str | None, tell: Tell
) -> Taken:
    """The best image that is certified for the host. tell: hears why each better one is refused.

    Raises NotTaken when there is none, InputError when none has that TensorFlow and Python, MissingError when
    the registry can't be reached.
    """
    unfit = 0
    for offer in offers(registry, tensorflow, python):
        if _needs_no_look(offer, host):
            unfit += 1
            continue
        assessed = assessed_for(look(registry, offer, terms), host)
        if assessed.standing is Standing.CERTIFIED:
            return _taken(registry, assessed.found, host)
        covered = covering(assessed.found.certificates, host)
        why = assessed.why if covered else uncovered(assessed.found, host)
        tell(f"refused: {offer.tag}: {why}")
    if unfit:
        tell(f"other images, which don't run on this host: {unfit}; `recommend` says why")
    raise NotTaken(
        f"{registry.repository} has no certified image for this host ({host}); nothing was pulled",
        hint="`recommend` shows what there is; without a certificate for this host an image is not pulled",
    )


def named(registry: Registry, host: Host, terms: Terms, name: str, tell: Tell) -> Taken:
    """The image of that tag, alias or digest, verified as any other. tell: hears what the facts say.

    Raises NotTaken with the reason, InputError when there is no such image, MissingError when the registry
    can't be reached.
    """
    digest = name if is_digest(name) else registry.digest_of(name)
    if digest is None or registry.manifest(digest) is None:
        where = registry.repository.at(name) if is_digest(name) else registry.repository.tagged(name)
        raise InputError(
            f"{where} is not in the registry",
            hint=f"`oras repo tags {registry.repository}` lists what is there",
        )
    found = look_at(registry, _offer(registry, name, digest), digest, terms)
    if not covering(found.certificates, host):
        raise NotTaken(f"refused: {name}: {uncovered(found, host)}; nothing was pulled")
    facts = expected(found.offer, found.certificates, host)
    if facts.outcome is Outcome.FAILS:
        tell(f"{name} is certified for this host, yet the facts say that it fails here: {facts.why}")
    return _taken(registry, found, host)


def local_ids(registry: Registry, digest: str) -> frozenset[str]:
    """By which ids an engine may hold the image of a manifest: its own digest where containerd keeps images,
    else that of the configuration."""
    manifest = registry.manifest(digest) or {}
    entries = [manifest.get("config"), *(manifest.get("manifests") or [])]
    return frozenset({digest, *(str(entry["digest"]) for entry in entries if entry)})


def _needs_no_look(offer: Offer, host: Host) -> bool:
    """Whether no certificate could make it fit. Where CUDA or cuDNN float, certificates tell which it has."""
    return offer.cuda is None or (not offer.floats and expected(offer, (), host).outcome is Outcome.FAILS)


def _offer(registry: Registry, name: str, digest: str) -> Offer:
    """What the name says the image is; for an alias or a digest, what the image itself says."""
    if offer := Offer.of_tag(name):
        return offer
    labels = (registry.config(digest).get("config") or {}).get("Labels") or {}
    try:
        offer = Offer.of_tag(tag_of(str(labels.get(LABEL_SPEC))))
    except ValueError:
        offer = None
    if offer is None:
        raise NotTaken(f"refused: {name}: it is no image of this project; nothing was pulled")
    release = name.partition("-")[0]
    if ALIAS.fullmatch(name) and release != LATEST and not offer.is_of(release, None):
        raise NotTaken(f"refused: {name}: the alias points at {offer.tag}; nothing was pulled")
    return offer


def _taken(registry: Registry, found: Found, host: Host) -> Taken:
    assert found.digest is not None
    repository = registry.repository
    return Taken(
        found.offer,
        found.digest,
        repository.at(found.digest),
        repository.tagged(found.offer.tag),
        covering(found.certificates, host),
    )


# The engine that an image is pulled into. Nothing is built, so no buildx is needed.


class Engine:
    """The Docker Engine that the docker command would use."""

    def __init__(self) -> None:
        """Raises MissingError, saying in one line why there is none."""
        try:
            self._reached = endpoint.reach()
        except MissingError as error:
            raise MissingError(
                str(error), hint="start Docker Engine 23 or newer, or name another with DOCKER_HOST"
            ) from error

    @property
    def info(self) -> Mapping[str, Any]:
        """As `docker info` has it."""
        return self._reached.info

    @property
    def is_local(self) -> bool:
        return self._reached.is_local

    def pull(self, taken: Taken, ids: frozenset[str], progress: Callable[[str], None]) -> None:
        """Take an image by its digest, look at what has come, and give it its name.

        ids: those by which the engine may hold it. Raises ValidatorError when what came is something else,
        MissingError when it can't be had; the name is then what it was before.
        """
        transfer.pull("docker", taken.reference, progress, self._answers)
        try:
            image = self._reached.quick.images.get(taken.reference)
            if image.id not in ids:
                raise ValidatorError(
                    f"{taken.reference} was pulled, but the engine holds {image.id} under that name",
                    hint="do not use it; see what else works with this engine's images",
                )
            repository, _, tag = taken.name.rpartition(":")
            image.tag(repository, tag)
        except ImageNotFound as error:
            raise MissingError(f"{taken.reference} was pulled, and is gone from the engine again") from error
        except (DockerException, requests.RequestException) as error:
            raise engine_gone(taken.reference) from error

    def close(self) -> None:
        self._reached.quick.close()

    def _answers(self) -> bool:
        try:
            return bool(self._reached.quick.ping())
        except (DockerException, requests.RequestException):
            return False
