"""Hands the host's package sources to a build as BuildKit secrets.

A secret is mounted while a step runs and is no part of its layer, its cache key or the image's history. The
files lie in a directory that only we may read and that is removed after the build.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

from ...errors import InputError
from ...system.sources import PackageSources

#: BuildKit refuses a larger secret (its MaxSecretSize).
LARGEST_SECRET = 500 * 1024

_CERTIFICATE = re.compile(
    rb"-----BEGIN (?:TRUSTED )?CERTIFICATE-----.*?-----END (?:TRUSTED )?CERTIFICATE-----", re.S
)


def write_secrets(sources: PackageSources, directory: Path) -> dict[str, Path]:
    """Write the secrets that `images/build/install-wheels` reads; id -> file, mode 0600.

    Raises InputError when the CA bundle is too large even without its comments.
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
    # The bundle's path is the host's; inside, the script names its own.
    variables.pop("SSL_CERT_FILE", None)
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in sorted(variables.items()))


def _bundle(path: Path) -> bytes:
    content = path.read_bytes()
    if len(content) > LARGEST_SECRET:
        content = b"\n".join(dict.fromkeys(_CERTIFICATE.findall(content))) + b"\n"
    if len(content) > LARGEST_SECRET:
        raise InputError(
            f"{path}: the CA bundle has {len(content)} bytes, a build can be given {LARGEST_SECRET}",
            hint="name a bundle with only the authorities that your network needs in SSL_CERT_FILE",
        )
    return content


def _netrc() -> Path | None:
    path = Path(os.environ.get("NETRC") or Path.home() / ".netrc")
    return path if path.is_file() else None
