"""The Debian mirrors and proxies of this machine, as apt is configured."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..system import processes

#: Part of apt. It downloads files with apt's proxies, certificate authorities and credentials, and
#: checks hashes.
HELPER = Path("/usr/lib/apt/apt-helper")
#: The mirrors for a machine that doesn't run Debian.
_DEFAULTS = {
    "debian": "http://deb.debian.org/debian",
    "debian-security": "http://deb.debian.org/debian-security",
}
#: Label in the index of an archive -> the archive.
_LABELS = {"Debian": "debian", "Debian-Security": "debian-security"}


@dataclass(frozen=True)
class AptSources:
    """mirrors: the address of each of Debian's archives. environment: the proxies as variables."""

    mirrors: Mapping[str, str] = field(default_factory=lambda: _DEFAULTS)
    environment: Mapping[str, str] = field(default_factory=dict)

    def lines(self, suite: str) -> tuple[str, ...]:
        """Return the `deb` lines of a suite.

        Security updates are included. Without them, a base would be as old as the last point release.
        """
        debian, security = self.mirrors["debian"], self.mirrors["debian-security"]
        return (
            f"deb {debian} {suite} main",
            f"deb {debian} {suite}-updates main",
            f"deb {security} {suite}-security main",
        )


def apt_sources() -> AptSources:
    """Return the host's Debian mirrors if the host runs Debian, otherwise the default ones."""
    if not shutil.which("apt-get"):
        return AptSources()
    result = processes.run(
        ["apt-get", "indextargets", "--format", "$(ORIGIN)|$(LABEL)|$(REPO_URI)", "Created-By: Packages"],
        timeout_s=60,
    )
    mirrors = dict(_DEFAULTS)
    for line in reversed(result.stdout.decode("utf-8", "replace").splitlines()):
        origin, label, address = line.split("|", 2)
        if origin == "Debian" and label in _LABELS:
            mirrors[_LABELS[label]] = address.rstrip("/")
    return AptSources(mirrors, _proxies())


def _proxies() -> dict[str, str]:
    """Return apt's proxy settings as variables, so that the tools don't write them into the base."""
    result = processes.run(
        ["apt-config", "shell", "http_proxy", "Acquire::http::Proxy", "https_proxy", "Acquire::https::Proxy"],
        timeout_s=60,
    )
    found = re.findall(r"^(https?_proxy)='([^']+)'$", result.stdout.decode("utf-8", "replace"), re.MULTILINE)
    return {name: value for name, value in found if value != "DIRECT"}
