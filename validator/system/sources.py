"""Where this machine's pip and uv take packages from: indexes, proxies, CA bundle.

Nothing here is a constant of ours. The clients' own configuration decides; uv's settings win over pip's,
since uv does the work. The values may hold credentials, so they are never logged and never written into
an image, a lock or a record.
"""

from __future__ import annotations

import configparser
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

_PROXIES = ("http_proxy", "https_proxy", "no_proxy", "all_proxy")
_HOST = re.compile(r"//(?:[^/@]*@)?([^/:]+)")
_CA_VARIABLES = ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


@dataclass(frozen=True)
class PackageSources:
    """Where packages come from on this machine.

    index_url: None for the client's default. ca_bundle: None for the system's.
    proxies: lower-case variable names and their values.
    left_out: configured indexes that are no use to a build (local directories), for `-v`.
    """

    index_url: str | None = field(default=None, repr=False)
    extra_index_urls: tuple[str, ...] = field(default=(), repr=False)
    ca_bundle: Path | None = None
    proxies: Mapping[str, str] = field(default_factory=dict, repr=False)
    left_out: tuple[str, ...] = ()

    def uv_environment(self) -> dict[str, str]:
        """The variables that make a uv child use these sources and nothing else of the configuration."""
        environment = dict(self.proxies) | {name.upper(): value for name, value in self.proxies.items()}
        if self.index_url:
            environment["UV_DEFAULT_INDEX"] = self.index_url
        if self.extra_index_urls:
            environment["UV_INDEX"] = " ".join(self.extra_index_urls)
        if self.ca_bundle:
            environment["SSL_CERT_FILE"] = str(self.ca_bundle)
        return environment

    @property
    def secrets(self) -> tuple[str, ...]:
        """The strings that must not be shown: index and proxy addresses, which name hosts and may hold
        passwords."""
        addresses = [self.index_url, *self.extra_index_urls, *self.proxies.values()]
        hosts = [
            match[1] for text in addresses if text and (match := re.search(r"//(?:[^/@]*@)?([^/:]+)", text))
        ]
        return tuple(dict.fromkeys(text for text in [*addresses, *hosts] if text))


def host_sources(
    environment: Mapping[str, str] = os.environ, files: tuple[Path, ...] | None = None
) -> PackageSources:
    """Read the configuration of uv (environment) and pip (environment, then its files, the user's last).

    files: pip's configuration files in the order of precedence, weakest first (None: pip's own list).
    """
    pip = _pip_configuration(environment, _pip_files(environment) if files is None else files)
    index = _first(environment, "UV_DEFAULT_INDEX", "UV_INDEX_URL") or pip.get("index-url")
    extra = [
        *_words(environment.get("UV_INDEX")),
        *_words(environment.get("UV_EXTRA_INDEX_URL")),
        *_words(pip.get("extra-index-url")),
    ]
    # "name=https://…" is uv's form for a named index; the name says nothing about where it is.
    extra = list(dict.fromkeys(re.sub(r"^[A-Za-z0-9_.-]+=(?=\w+:)", "", url) for url in extra))
    usable = tuple(url for url in extra if url.startswith(("http://", "https://")))
    bundle = _first(environment, *_CA_VARIABLES) or pip.get("cert")
    return PackageSources(
        index_url=index if index and index.startswith(("http://", "https://")) else None,
        extra_index_urls=usable,
        ca_bundle=Path(bundle) if bundle and Path(bundle).is_file() else None,
        proxies={name: value for name in _PROXIES if (value := _first(environment, name, name.upper()))},
        left_out=tuple(url for url in extra if url not in usable),
    )


def _pip_files(environment: Mapping[str, str]) -> tuple[Path, ...]:
    # The order of https://pip.pypa.io/en/stable/topics/configuration/: global, user, site, PIP_CONFIG_FILE.
    home = Path(environment.get("HOME") or Path.home())
    config = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
    found = [
        Path("/etc/xdg/pip/pip.conf"),
        Path("/etc/pip.conf"),
        home / ".pip/pip.conf",
        config / "pip/pip.conf",
    ]
    if sys.prefix != sys.base_prefix:
        found.append(Path(sys.prefix) / "pip.conf")
    if own := environment.get("PIP_CONFIG_FILE"):
        # os.devnull is pip's way to say "no configuration file at all".
        return () if own == os.devnull else (*found, Path(own))
    return tuple(found)


def _pip_configuration(environment: Mapping[str, str], files: tuple[Path, ...]) -> dict[str, str]:
    values: dict[str, str] = {}
    for path in files:
        parser = configparser.RawConfigParser()
        try:
            parser.read(path, encoding="utf-8")
        except (configparser.Error, UnicodeDecodeError, OSError):
            # pip itself refuses to run with such a file and says so better than we could.
            continue
        for section in ("global", "install"):
            if parser.has_section(section):
                values.update(parser.items(section))
    for name, value in environment.items():
        if name.startswith("PIP_") and value:
            values[name[4:].lower().replace("_", "-")] = value
    return values


def _first(environment: Mapping[str, str], *names: str) -> str | None:
    return next((environment[name] for name in names if environment.get(name)), None)


def _words(text: str | None) -> list[str]:
    return text.split() if text else []
