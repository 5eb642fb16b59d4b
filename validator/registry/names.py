"""Names of what lies in a registry."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from ..errors import InputError
from ..model.spec import ImageSpec

# The distribution specification's grammar of a repository's name, and of a tag.
_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_PATH = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*")
_HOST = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:]+\])(?::\d{1,5})?")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_LONGEST = 255


@dataclass(frozen=True)
class Repository:
    """A repository of a registry: `ghcr.io/team/tensorflow`.

    host: with its port, if any. path: the name within the registry.
    """

    host: str
    path: str

    @classmethod
    def parse(cls, text: str) -> Repository:
        """Of `HOST[:PORT]/NAME`. Raises InputError for anything else: there is no default registry, since
        what is published must not depend on a machine's settings."""
        host, slash, path = text.strip().partition("/")
        is_host = "." in host or ":" in host or host == "localhost"
        if not slash or not is_host or not _HOST.fullmatch(host):
            raise InputError(
                f"{text!r} names no registry and repository",
                hint="write HOST/NAME, as ghcr.io/team/tensorflow or localhost:5000/tensorflow",
            )
        if not _PATH.fullmatch(path) or len(text) > _LONGEST:
            raise InputError(
                f"{path!r} is no name of a repository",
                hint="lower-case letters, digits and single . _ - between them, in parts divided by /, and"
                " no tag or digest",
            )
        return cls(host, path)

    def tagged(self, tag: str) -> str:
        """`host/path:tag`. Raises InputError for what can't be a tag."""
        if not _TAG.fullmatch(tag):
            raise InputError(
                f"{tag!r} can't be a tag", hint="letters, digits, _ . and -, at most 128 of them"
            )
        return f"{self}:{tag}"

    def at(self, digest: str) -> str:
        """`host/path@sha256:…`. Raises InputError for what is no SHA-256 digest."""
        if not is_digest(digest):
            raise InputError(f"{digest!r} is no digest", hint="write sha256: and 64 hexadecimal digits")
        return f"{self}@{digest}"

    @property
    def is_loopback(self) -> bool:
        """Whether the registry is on this machine, where docker, oras and cosign take plain HTTP."""
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


def is_digest(text: str) -> bool:
    """Whether this is a SHA-256 digest in OCI's form."""
    return _DIGEST.fullmatch(text) is not None


# The tags that images are published under, and the aliases that people pull.

_IMAGE_TAG = re.compile(
    r"(?P<tensorflow>\d+\.\d+\.\d+(?:rc\d+)?)-(?P<libraries>cpu|cuda[\w.]+-cudnn[\w.]+)"
    r"-py(?P<major>\d)\.(?P<minor>\d+)(?:-(?P<base>[a-z0-9.-]+))?"
)
_IDENTIFIER = re.compile(
    r"tf(?P<tensorflow>\d+\.\d+\.\d+(?:rc\d+)?)-(?P<libraries>cpu|cuda[\w.]+-cudnn[\w.]+)"
    r"-py(?P<major>\d)(?P<minor>\d+)(?:-(?P<base>[a-z0-9.-]+))?"
)

#: The alias of the newest of all.
LATEST = "latest"


def image_tag(spec: ImageSpec) -> str:
    """The tag of an image spec."""
    return tag_of(spec.identifier)


def tag_of(identifier: str) -> str:
    """The tag of an image spec's identifier. Raises ValueError for what is no identifier."""
    found = _IDENTIFIER.fullmatch(identifier)
    if found is None:
        raise ValueError(f"{identifier!r} is no identifier of an image spec")
    base = f"-{found['base']}" if found["base"] else ""
    return f"{found['tensorflow']}-{found['libraries']}-py{found['major']}.{found['minor']}{base}"


def identifier_of(tag: str) -> str | None:
    """The inverse; None for an alias or a tag that somebody else set."""
    found = _IMAGE_TAG.fullmatch(tag)
    if found is None:
        return None
    base = f"-{found['base']}" if found["base"] else ""
    return f"tf{found['tensorflow']}-{found['libraries']}-py{found['major']}{found['minor']}{base}"


def release_alias(tensorflow: str) -> str:
    """`2.21` of `2.21.0`."""
    return ".".join(tensorflow.split(".")[:2])


def driver_alias(tensorflow: str, branch: int) -> str:
    """`2.21-driver535`: for hosts of a driver branch."""
    return f"{release_alias(tensorflow)}-driver{branch}"
