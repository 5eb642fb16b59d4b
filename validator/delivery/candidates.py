"""Look up the images of a registry, verify their certificates, and assess them for a host."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from ..certify.trust import Trust
from ..certify.verify import certificates
from ..errors import InputError, MissingError, ValidatorError
from ..model.record import REHEARSAL
from ..registry.client import Registry
from ..system.pools import map_in_threads
from .choose import Assessment, Candidate, TaggedImage, assess, best_first, forecast
from .host import Host

#: The number of lookups at a time. They mostly wait for the registry.
_AT_ONCE = 4


@dataclass(frozen=True)
class Terms:
    """The conditions that a certificate must meet.

    trust: whose certificates count. max_age: the oldest measurement to accept. accept_expired: accept
    expired certificates. now: None for the current time.
    """

    trust: Trust
    max_age: timedelta | None = None
    accept_expired: bool = False
    now: datetime | None = None


def tagged_images(
    registry: Registry, tensorflow: str | None, python: str | None, additions: str | None = None
) -> list[TaggedImage]:
    """Return the images of a registry with this TensorFlow and Python, best first.

    additions: the name of what was added to them; None for images to which nothing was added.
    Raises MissingError if the registry has no images, InputError if it only has others.
    """
    tags = registry.tags()
    found = [image for tag in tags if (image := TaggedImage.of_tag(tag))]
    if not found:
        only = any(tag.startswith(REHEARSAL) for tag in tags)
        raise MissingError(
            f"no image is published in {registry.repository} yet: it has "
            + (f"only images of a {REHEARSAL}, which prove nothing" if only else "no images of this project"),
            hint=f"`build-matrix --push {registry.repository}` publishes images, and `run --uncertified`"
            " without --registry starts one from the local Docker Engine. If there should be images, check"
            " the name, and whether you are logged in",
        )
    alike = [image for image in found if image.additions == additions]
    if not alike:
        names = sorted({image.additions for image in found if image.additions})
        which = f"with the additions {additions}" if additions else "without additions"
        raise InputError(
            f"{registry.repository} has no image {which}",
            hint=f"it has images with the additions {', '.join(names)}; name them with --name"
            if names
            else "it has only images without additions; leave out --name",
        )
    wanted = [image for image in alike if image.is_of(tensorflow, python)]
    if not wanted:
        asked = [f"TensorFlow {tensorflow}"] * bool(tensorflow) + [f"Python {python}"] * bool(python)
        there = sorted({f"{image.tensorflow} with {image.python}" for image in alike})
        raise InputError(
            f"{registry.repository} has no image with {' and '.join(asked)}",
            hint=f"it has TensorFlow and Python {', '.join(there)}",
        )
    return sorted(wanted, key=lambda image: image.preference, reverse=True)


def without_certificates(registry: Registry) -> str:
    """Return what to do if no image of a registry is certified, as a hint."""
    return (
        "`run --uncertified` starts an image that is not certified, and says what is predicted of it."
        f" `build-matrix --push {registry.repository}` on a machine with a GPU measures images, and `certify`"
        " certifies them"
    )


def inspect_tag(registry: Registry, image: TaggedImage, terms: Terms) -> Candidate:
    """Resolve a tag and verify the certificates of its image.

    Raises MissingError if the registry cannot be reached. Whatever is wrong with the image itself, or with
    what is attached to it, is listed in `Candidate.problems`.
    """
    try:
        digest = registry.digest_of(image.tag)
        if digest is None:
            return Candidate(image, None, (), ("the tag no longer exists",))
        return inspect_digest(registry, image, digest, terms)
    except MissingError:
        raise
    except ValidatorError as error:
        return Candidate(image, None, (), (str(error),))


def inspect_digest(registry: Registry, image: TaggedImage, digest: str, terms: Terms) -> Candidate:
    """Verify the certificates of an image whose digest is known. Raises like `inspect_tag`."""
    try:
        if registry.manifest(digest) is None:
            return Candidate(image, None, (), (f"the registry does not have {digest}",))
        verified = certificates(
            registry, digest, terms.trust,
            max_age=terms.max_age, accept_expired=terms.accept_expired, now=terms.now,
        )  # fmt: skip
    except MissingError:
        raise
    except ValidatorError as error:
        return Candidate(image, digest, (), (str(error),))
    problems = [f"its certificate {one.what} is rejected: {one.why}" for one in verified.refused]
    others = [one for one in verified.certificates if one.image != image.identifier]
    problems += [
        f"its certificate is for {one.image}, so the tag points at the wrong image" for one in others
    ]
    good = tuple(one for one in verified.certificates if one.image == image.identifier)
    # A certificate that a failure invalidated is rejected for the same reason.
    told = {one.taken_back_by for one in verified.refused}
    problems += [one.why for one in verified.failures if one not in told]
    return Candidate(image, digest, good, tuple(dict.fromkeys(problems)), verified.failures)


def recommend(
    registry: Registry, wanted: Iterable[TaggedImage], host: Host, terms: Terms
) -> list[Assessment]:
    """Assess every image for the host. Returns them best first."""
    found = map_in_threads(lambda image: inspect_tag(registry, image, terms), wanted, _AT_ONCE)
    return best_first(assess_candidate(one, host) for one in found)


def assess_candidate(candidate: Candidate, host: Host) -> Assessment:
    """Predict and assess an image for the host."""
    return assess(candidate, host, forecast(candidate.image, candidate.certificates, host))
