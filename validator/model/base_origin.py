"""The origin of an image's base: where it comes from and what was added to it, in one line.

    registry:python:3.12-slim-bookworm@sha256:…
    registry:python:3.12-slim-bookworm@sha256:…+packages:git,tini@sha256:…
    bootstrap:bookworm@sha256:…

The second digest is over the packages that the distribution's installer really added, with their versions:
the same names give other packages on another day.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

#: A package that was installed, as apt names it: `git:amd64=1:2.39.5-0+deb12u2`.
INSTALLED = re.compile(r"[a-z0-9][a-z0-9+.-]+:[a-z0-9-]+=[A-Za-z0-9][A-Za-z0-9.+:~-]*")

_PACKAGES = "+packages:"
_DIGEST = r"sha256:[0-9a-f]{64}"
_PLAIN = re.compile(rf"(?P<kind>registry|bootstrap):(?P<name>[^@\s]+)(?:@(?P<digest>{_DIGEST}))?")
_ADDED = re.compile(rf"(?P<names>[a-z0-9+.,-]+)@(?P<installed>{_DIGEST})")


@dataclass(frozen=True)
class BaseOrigin:
    """A parsed origin.

    kind: `registry` or `bootstrap`. name: of the image, without its digest, or of the suite. digest: of the
    image, or of what a bootstrap made it from; None if it has none. asked: the names of the packages that
    were added to an image, sorted. installed: the digest over the packages that this installed, or None.
    """

    kind: str
    name: str
    digest: str | None
    asked: tuple[str, ...] = ()
    installed: str | None = None

    @classmethod
    def parse(cls, text: str) -> BaseOrigin | None:
        """Return the parts of an origin, or None if the text is not one."""
        plain, separator, rest = text.partition(_PACKAGES)
        found, added = _PLAIN.fullmatch(plain), _ADDED.fullmatch(rest)
        if found is None or bool(separator) is not bool(added):
            return None
        origin = cls(found["kind"], found["name"], found["digest"])
        if added is None:
            return origin
        return replace(origin, asked=tuple(added["names"].split(",")), installed=added["installed"])

    def with_packages(self, asked: Iterable[str], installed: Iterable[str]) -> BaseOrigin:
        """Return the origin of this base after packages were added to it. installed: see `INSTALLED`."""
        names = tuple(sorted(set(asked)))
        return replace(self, asked=names, installed=digest_of_packages(installed))

    @property
    def plain(self) -> str:
        """The base before packages were added to it: `NAME@sha256:…`, or NAME if it has no digest."""
        return self.name + (f"@{self.digest}" if self.digest else "")

    def __str__(self) -> str:
        added = f"{_PACKAGES}{','.join(self.asked)}@{self.installed}" if self.installed else ""
        return f"{self.kind}:{self.plain}{added}"


def digest_of_packages(installed: Iterable[str]) -> str:
    """Return the digest over packages that were installed, which does not depend on their order."""
    text = "".join(f"{one}\n" for one in sorted(installed))
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
