"""Passes the host's package sources to a build as BuildKit secrets.

A secret is mounted while a step runs; it is not part of the layer, the cache key or the image's history. The
files are in a directory that only this user can read and that is deleted after the build.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

from ...errors import InputError
from ...system.files import home_directory
from ...system.sources import PackageSources

#: BuildKit rejects larger secrets (its MaxSecretSize).
LARGEST_SECRET = 500 * 1024

_CERTIFICATE = re.compile(
    rb"-----BEGIN (?:TRUSTED )?CERTIFICATE-----.*?-----END (?:TRUSTED )?CERTIFICATE-----", re.S
)


def write_secrets(sources: PackageSources, directory: Path) -> dict[str, Path]:
    """Write the secrets that `images/build/install-wheels` reads, with mode 0600. Return id -> file.

    Raises InputError if the CA bundle is too large even without its comments.
    """
    contents = {"sources": _assignments(sources).encode()}
    if sources.ca_bundle:
        contents["ca"] = _bundle(sources.ca_bundle)
    if netrc := _netrc():
        contents["netrc"] = netrc.read_bytes()
    written = {}
    for name, content in contents.items():
        path = directory / name
        path.touch(mode=0o600)
        path.write_bytes(content)
        written[name] = path
    return written


def _assignments(sources: PackageSources) -> str:
    variables = sources.uv_environment()
    # This is a path on the host. In the build, the script sets its own.
    variables.pop("SSL_CERT_FILE", None)
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in sorted(variables.items()))


def _bundle(path: Path) -> bytes:
    content = path.read_bytes()
    if len(content) > LARGEST_SECRET:
        content = b"\n".join(dict.fromkeys(_CERTIFICATE.findall(content))) + b"\n"
    if len(content) > LARGEST_SECRET:
        raise InputError(
            f"{path}: the CA bundle has {len(content)} bytes; the maximum for a build is {LARGEST_SECRET}",
            hint="set SSL_CERT_FILE to a bundle with only the authorities that your network needs",
        )
    return content


def _netrc() -> Path | None:
    path = Path(os.environ.get("NETRC") or home_directory() / ".netrc")
    return path if path.is_file() else None
