"""The package sources of this machine: indexes, proxies and CA bundle, as configured for pip and uv.

uv's settings take precedence over pip's, because uv does the work. The values may contain credentials, so
they are never logged and never written to an image, a lock or a record.
"""

from __future__ import annotations

import base64
import configparser
import contextlib
import hashlib
import os
import re
import shutil
import ssl
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from ..errors import MissingError
from .files import cache_directory, home_directory, parse_toml, read_text, writing

_PROXIES = ("http_proxy", "https_proxy", "no_proxy", "all_proxy")
_ADDRESS = re.compile(r"(https?://)[^\s/`'\")]+")
_CA_VARIABLES = ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
#: npm itself tries three times, and waits up to 70 seconds between.
_NPM = ("npm", "pack", "--silent", "--ignore-scripts", "--fetch-retries", "1", "--fetch-timeout", "30000")
_NPM_TIMEOUT_S = 180.0
_NODE_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class PackageSources:
    """The sources of packages.

    index_url: None for the client's default. ca_bundle: None for the system's.
    proxies: lower-case variable names and their values.
    """

    index_url: str | None = field(default=None, repr=False)
    extra_index_urls: tuple[str, ...] = field(default=(), repr=False)
    ca_bundle: Path | None = None
    proxies: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)

    def uv_environment(self) -> dict[str, str]:
        """Return the environment variables that make uv use exactly these sources."""
        environment = dict(self.proxies) | {name.upper(): value for name, value in self.proxies.items()}
        if self.index_url:
            environment["UV_DEFAULT_INDEX"] = self.index_url
        if self.extra_index_urls:
            environment["UV_INDEX"] = " ".join(self.extra_index_urls)
        if self.ca_bundle:
            environment["SSL_CERT_FILE"] = str(self.ca_bundle)
        # The configuration was read here. If uv read it again, it would add the sources that were left out.
        environment["UV_NO_CONFIG"] = "1"
        return environment

    @property
    def secrets(self) -> tuple[str, ...]:
        """The strings that must not be shown: index and proxy addresses with their hosts, and the path of the
        CA bundle."""
        addresses = [self.index_url, *self.extra_index_urls]
        addresses += [value for name, value in self.proxies.items() if name != "no_proxy"]
        known = [address for address in addresses if address]
        hosts = []
        for address in known:
            # A proxy's address may lack the scheme.
            with contextlib.suppress(ValueError):
                hosts.append(urlsplit(address if "://" in address else f"//{address}").hostname or "")
        bundle = [str(self.ca_bundle)] if self.ca_bundle else []
        # Longest first: if the shorter of two with the same beginning were hidden first, the rest of the
        # longer one would stay visible.
        found = {*known, *hosts, *bundle} - {""}
        return tuple(sorted(found, key=lambda secret: (-len(secret), secret)))

    def redact(self, text: str) -> str:
        """Return the text with all addresses hidden, configured or not."""
        for secret in self.secrets:
            text = text.replace(secret, "<hidden>")
        return _ADDRESS.sub(r"\1<hidden>", text)


def host_sources(
    environment: Mapping[str, str] = os.environ,
    pip_files: tuple[Path, ...] | None = None,
    uv_files: tuple[Path, ...] | None = None,
) -> PackageSources:
    """Read the configuration of uv and pip: environment variables first, then files.

    pip_files, uv_files: the configuration files, in ascending precedence (None: the clients' own lists).
    """
    uv_index, uv_extra = _uv_configuration(_uv_files(environment) if uv_files is None else uv_files)
    pip = _pip_configuration(environment, _pip_files(environment) if pip_files is None else pip_files)
    index = _first(environment, "UV_DEFAULT_INDEX", "UV_INDEX_URL") or uv_index or pip.get("index-url")
    extra = [
        *environment.get("UV_INDEX", "").split(),
        *environment.get("UV_EXTRA_INDEX_URL", "").split(),
        *uv_extra,
        *pip.get("extra-index-url", "").split(),
    ]
    # uv writes a named index as "name=https://…". The name is not needed.
    extra = list(dict.fromkeys(re.sub(r"^[A-Za-z0-9_.-]+=(?=\w+:)", "", url) for url in extra))
    usable = tuple(url for url in extra if url.startswith(("http://", "https://")))
    # In a network that inspects TLS, the system's store contains the network's own authority, so builds get
    # the system's store if nothing else is configured.
    bundle = _first(environment, *_CA_VARIABLES) or pip.get("cert") or ssl.get_default_verify_paths().cafile
    return PackageSources(
        index_url=index if index and index.startswith(("http://", "https://")) else None,
        extra_index_urls=usable,
        ca_bundle=Path(bundle) if bundle and Path(bundle).is_file() else None,
        proxies={name: value for name in _PROXIES if (value := _first(environment, name, name.upper()))},
    )


class _UvIndex(msgspec.Struct):
    url: str = ""
    default: bool = False
    explicit: bool = False


class _UvPip(msgspec.Struct, rename="kebab"):
    index_url: str | None = None
    extra_index_url: list[str] = []


class _UvFile(_UvPip, rename="kebab"):
    """The part of uv.toml that names package indexes."""

    index: list[_UvIndex] = []
    pip: _UvPip = msgspec.field(default_factory=_UvPip)


def _uv_files(environment: Mapping[str, str]) -> tuple[Path, ...]:
    # https://docs.astral.sh/uv/concepts/configuration-files/: the system's file, then the user's.
    # UV_CONFIG_FILE replaces both.
    if environment.get("UV_NO_CONFIG"):
        return ()
    if own := environment.get("UV_CONFIG_FILE"):
        return (Path(own),)
    home = Path(environment.get("HOME") or home_directory())
    config = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
    return (Path("/etc/uv/uv.toml"), config / "uv/uv.toml")


def _uv_configuration(files: tuple[Path, ...]) -> tuple[str | None, list[str]]:
    """Return the default index and the other ones."""
    default: str | None = None
    extra: list[str] = []
    for path in files:
        try:
            found = msgspec.convert(parse_toml(read_text(path)), _UvFile)
        except (OSError, ValueError):
            # uv itself rejects such a file, with a better message than ours would be.
            continue
        for table in (found, found.pip):
            default = table.index_url or default
            extra += table.extra_index_url
        for entry in found.index:
            if entry.default:
                default = entry.url or default
            elif not entry.explicit:
                extra.append(entry.url)
    return default, [url for url in extra if url]


def _pip_files(environment: Mapping[str, str]) -> tuple[Path, ...]:
    # In the order of https://pip.pypa.io/en/stable/topics/configuration/: global, user, site,
    # PIP_CONFIG_FILE.
    home = Path(environment.get("HOME") or home_directory())
    config = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
    found = [Path("/etc/xdg/pip/pip.conf"), Path("/etc/pip.conf")]
    found += [home / ".pip/pip.conf", config / "pip/pip.conf"]
    if sys.prefix != sys.base_prefix:
        found.append(Path(sys.prefix) / "pip.conf")
    if own := environment.get("PIP_CONFIG_FILE"):
        # For pip, os.devnull means "no configuration file at all".
        return () if own == os.devnull else (*found, Path(own))
    return tuple(found)


def _pip_configuration(environment: Mapping[str, str], files: tuple[Path, ...]) -> dict[str, str]:
    values: dict[str, str] = {}
    for path in files:
        parser = configparser.RawConfigParser()
        try:
            parser.read_string(read_text(path), str(path))
        except (configparser.Error, OSError):
            # pip itself rejects such a file, with a better message than ours would be.
            continue
        for section in ("global", "install"):
            if parser.has_section(section):
                # pip treats index_url as index-url.
                values.update((name.replace("_", "-"), value) for name, value in parser.items(section))
    for name, value in environment.items():
        if name.startswith("PIP_") and value:
            values[name[4:].lower().replace("_", "-")] = value
    return values


def _first(environment: Mapping[str, str], *names: str) -> str | None:
    return next((environment[name] for name in names if environment.get(name)), None)


def npm_package(name: str, version: str, integrity: str, otherwise: str = "") -> Path:
    """Return a package: the file in the user's cache, or the one that npm downloads now.

    npm's own configuration says where from. integrity: as npm writes it, `sha512-…`. otherwise: what else to
    do if it can't be downloaded, as a clause. Raises MissingError if npm is not installed, can't download the
    package, or downloads another one.
    """
    from . import processes
    from .runs import temporary_directory

    wanted = f"{name}@{version}"
    file = cache_directory() / f"{name.removeprefix('@').replace('/', '-')}-{version}.tgz"
    if _is(file, integrity):
        return file
    if shutil.which("npm") is None:
        raise MissingError(
            f"npm, which downloads {wanted}, is not installed",
            hint=f"install Node.js{otherwise and f', or run `npm pack {wanted}` elsewhere and {otherwise}'}",
        )
    with writing(file.parent):
        file.parent.mkdir(parents=True, exist_ok=True)
    # Into a directory of its own, so that a file that is being written is never read.
    with temporary_directory("npm", file.parent) as partial:
        command: list[str | Path] = [*_NPM, "--pack-destination", partial, wanted]
        done = processes.run(command, timeout_s=_NPM_TIMEOUT_S)
        made = partial / file.name
        if not done.ok or not made.is_file():
            last = next(reversed(done.stderr_tail.strip().splitlines()), "it printed no reason")
            raise MissingError(
                f"npm can't download {wanted}: {last}",
                hint=f"check the network and npm's configuration{otherwise and f', or {otherwise}'}",
            )
        if not _is(made, integrity):
            raise MissingError(
                f"npm downloaded another {wanted} than the pinned one: its SHA-512 differs",
                hint="check which registry npm uses: npm config get registry",
            )
        with writing(file):
            made.replace(file)
    return file


def pyodide_package(version: str, integrity: str) -> Path:
    """Return the npm package `pyodide`. Raises what `npm_package` raises."""
    return npm_package("pyodide", version, integrity, "name the file with --answers")


def run_by_node(program: bytes) -> bytes:
    """Return what a program writes to the file that its argument names, and keep it in the cache.

    Raises MissingError if Node.js is not installed or can't run the program.
    """
    from . import processes
    from .runs import temporary_directory

    file = cache_directory() / f"node-{hashlib.sha256(program).hexdigest()[:20]}"
    if file.is_file():
        return file.read_bytes()
    hint = "install Node.js 20 or newer"
    node = shutil.which("node")
    if node is None:
        raise MissingError("Node.js, which starts the Python of the page once, is not installed", hint=hint)
    with writing(file.parent):
        file.parent.mkdir(parents=True, exist_ok=True)
    with temporary_directory("program", file.parent) as partial:
        (partial / "program.js").write_bytes(program)
        made = partial / file.name
        done = processes.run([node, partial / "program.js", made], timeout_s=_NODE_TIMEOUT_S)
        if not done.ok or not made.is_file():
            last = next(reversed(done.stderr_tail.strip().splitlines()), "it printed no reason")
            raise MissingError(f"Node.js can't start the Python of the page: {last}", hint=hint)
        with writing(file):
            for old in file.parent.glob("node-*"):
                old.unlink(missing_ok=True)
            made.replace(file)
    return file.read_bytes()


def _is(file: Path, integrity: str) -> bool:
    algorithm, _, wanted = integrity.partition("-")
    try:
        found = hashlib.new(algorithm, file.read_bytes())
    except OSError:
        return False
    return base64.b64encode(found.digest()).decode() == wanted
