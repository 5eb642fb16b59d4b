"""Names of repositories, tags and aliases in a registry."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from ..errors import InputError
from ..model.spec import ImageSpec, build_of
from ..versions import major_minor

# The grammar of repository names and tags in the OCI distribution specification.
_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_PATH = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*")
_HOST = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:]+\])(?::\d{1,5})?")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_LONGEST = 255
#: An image's name in Docker and Podman. Every ID matches it too.
_IMAGE = re.compile(
    rf"(?:{_HOST.pattern}/)?{_PATH.pattern}(?::{_TAG.pattern})?(?:@{_DIGEST.pattern})?", re.ASCII
)


@dataclass(frozen=True)
class Wanted:
    """The image that a user wants: the best one with these versions and additions, or the one that is named.

    image: a tag or digest, a whole reference, or a name in the local engine. additions: None for an image
    without any. gpu: True if the user named a GPU, so that only an image that can use it will do, unless
    `image` is given.
    """

    tensorflow: str | None = None
    python: str | None = None
    additions: str | None = None
    image: str | None = None
    gpu: bool = False


@dataclass(frozen=True)
class Repository:
    """A repository of a registry: `ghcr.io/team/tensorflow`. host: with its port, if any."""

    host: str
    path: str

    @classmethod
    def parse(cls, text: str) -> Repository:
        """Parse `HOST[:PORT]/NAME`. Raises InputError for anything else.

        There is no default registry, because what is published must not depend on a machine's settings.
        """
        host, slash, path = text.strip().partition("/")
        if not slash or not is_host(host):
            raise InputError(
                f"{text!r} is not a registry with a repository",
                hint="write HOST/NAME, such as ghcr.io/team/tensorflow or localhost:5000/tensorflow",
            )
        if not _PATH.fullmatch(path) or len(text) > _LONGEST:
            raise InputError(
                f"{path!r} is not a valid repository name",
                hint="use lower-case letters, digits and single . _ - between them, in parts separated by /;"
                " give no tag or digest",
            )
        return cls(host, path)

    def tagged(self, tag: str) -> str:
        """Return `host/path:tag`. Raises InputError if the tag is not valid."""
        if not _TAG.fullmatch(tag):
            raise InputError(f"{tag!r} is not a valid tag", hint="use at most 128 letters, digits, _ . and -")
        return f"{self}:{tag}"

    def at(self, digest: str) -> str:
        """Return `host/path@sha256:…`. Raises InputError if the digest is not valid."""
        if not is_digest(digest):
            raise InputError(
                f"{digest!r} is not a valid digest", hint="write sha256: and 64 hexadecimal digits"
            )
        return f"{self}@{digest}"

    @property
    def is_loopback(self) -> bool:
        """True if the registry is on this machine, where docker and cosign accept plain HTTP."""
        name = self.host.rsplit(":", 1)[0] if re.search(r":\d+$", self.host) else self.host
        name = name.strip("[]")
        if name == "localhost":
            return True
        try:
            return ipaddress.ip_address(name).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        return f"{self.host}/{self.path}"


def is_host(text: str) -> bool:
    """Return True if the first part of an image's name names a registry, by Docker's rules."""
    return ("." in text or ":" in text or text == "localhost") and _HOST.fullmatch(text) is not None


def check_image_name(text: str) -> None:
    """Raise InputError if no image of an engine can have this name or ID."""
    if not _IMAGE.fullmatch(text):
        raise InputError(
            f'"{text}" is not the name of an image',
            hint="give an ID or [HOST/]NAME[:TAG][@sha256:DIGEST] as for `docker run`; NAME is in lower case",
        )


def split_reference(text: str) -> tuple[Repository, str] | None:
    """Split `HOST/NAME:TAG` or `HOST/NAME@DIGEST`. Returns None for anything without a registry's host."""
    name, at, digest = text.partition("@")
    first, slash, rest = name.partition("/")
    if not slash or not is_host(first):
        return None
    path, _, tag = rest.partition(":")
    if not at and not tag:
        raise InputError(
            f"{text!r} has no tag and no digest", hint="write HOST/NAME:TAG or HOST/NAME@sha256:…"
        )
    check_image_name(text)
    return Repository.parse(f"{first}/{path}"), digest or tag


def is_tag(text: str) -> bool:
    """Return True if this follows the grammar of tags."""
    return _TAG.fullmatch(text) is not None


def is_digest(text: str) -> bool:
    """Return True if this is a SHA-256 digest in OCI's notation."""
    return _DIGEST.fullmatch(text) is not None


_REST = (
    r"-(?P<libraries>cpu|cuda[\w.]+-cudnn[\w.]+)-py(?P<major>\d)MINOR(?P<minor>\d+)"
    r"(?:-(?P<base>[a-z0-9.-]+))?(?:_(?P<added>[a-z0-9.-]+))?"
)
#: A tag can't have the + before the name of a wheel that no table lists.
_BUILD = r"(?:\.dev\d+|\.post\d+)?SIGN(?P<build>(?:[a-z0-9.]+\.)?[0-9a-f]{8})"
_VERSION = rf"(?P<tensorflow>\d+\.\d+\.\d+(?:rc\d+)?(?:{_BUILD})?)"
_IMAGE_TAG = re.compile(_VERSION.replace("SIGN", "-") + _REST.replace("MINOR", r"\."))
_IDENTIFIER = re.compile("tf" + _VERSION.replace("SIGN", r"\+") + _REST.replace("MINOR", ""))

#: The alias of the newest image.
LATEST = "latest"


def image_tag(spec: ImageSpec) -> str:
    """Return the tag of an image spec."""
    return tag_of(spec.identifier)


def tag_of(identifier: str) -> str:
    """Return the tag for the identifier of an image spec. Raises ValueError if it is not an identifier."""
    found = _IDENTIFIER.fullmatch(identifier)
    if found is None:
        raise ValueError(f"{identifier!r} is not the identifier of an image spec")
    version = found["tensorflow"].replace("+", "-")
    return f"{version}-{found['libraries']}-py{found['major']}.{found['minor']}{_end(found)}"


def identifier_of(tag: str) -> str | None:
    """Return the identifier for an image's tag, or None for an alias or a foreign tag."""
    found = _IMAGE_TAG.fullmatch(tag)
    if found is None:
        return None
    version = found["tensorflow"].replace("-", "+")
    return f"tf{version}-{found['libraries']}-py{found['major']}{found['minor']}{_end(found)}"


def tag_named(name: str) -> str:
    """Return the tag that a person names: that of an image spec, an alias, or a digest as it is.

    Raises InputError for the tag of an image spec: people write the image spec itself, as everywhere.
    """
    if (identifier := identifier_of(name)) is not None:
        raise InputError(f'"{name}" is the tag of {identifier}', hint=f"write {identifier}")
    return tag_of(name) if _IDENTIFIER.fullmatch(name) else name


def additions_of(identifier: str) -> str | None:
    """Return the name of the additions (or their eight digits) in an image's identifier or tag, or None."""
    return identifier.partition("_")[2] or None


def name_of(text: str) -> str | None:
    """Return the name without which an image is left out, from its identifier or tag; None for a usual one.

    That is the name of its wheel of TensorFlow, if no table lists it, and the name of its additions.
    """
    build, additions = build_of(identifier_of(text) or text), additions_of(text)
    return "-".join(filter(None, (build, additions))) or None


def _end(found: re.Match[str]) -> str:
    """Return the base and the name of the additions, which tags and identifiers write alike."""
    base = f"-{found['base']}" if found["base"] else ""
    return base + (f"_{found['added']}" if found["added"] else "")


def release_alias(tensorflow: str) -> str:
    """Return the alias of a release: `2.21` for `2.21.0`."""
    return major_minor(tensorflow)


def driver_alias(tensorflow: str, branch: int) -> str:
    """Return the alias for hosts with a driver branch: `2.21-driver535`."""
    return f"{release_alias(tensorflow)}-driver{branch}"
