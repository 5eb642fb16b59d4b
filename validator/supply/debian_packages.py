"""The locks of the Debian packages in bootstrapped bases.

apt resolves them on the host, with a configuration of its own and an empty state, and checks Debian's
signature of the indexes. Needs no root.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from urllib.parse import unquote

from ..assemble import bootstrap
from ..assemble.bootstrap import DebianLock, DebianPackage, available, lock_path, read_lock
from ..errors import MissingError
from ..system import processes
from ..system.runs import temporary_directory

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_TIMEOUT_S = 600.0
#: snapshot.debian.org copies the archive a few times a day, and names each copy by its start time.
#: Superseded files stay in the archive for longer than this.
_SNAPSHOT_AFTER = timedelta(hours=12)
_URI = re.compile(
    r"'(?P<uri>[^']+)' (?P<file>\S+)_[a-z0-9]+\.deb (?P<size>[0-9]{1,15}) SHA256:(?P<sha256>[0-9a-f]{64})"
)
_FIELD = re.compile(r"^(Package|Version|Source): (.+)$", re.MULTILINE)
#: `util-linux (2.38.1-5)`; the version is there only if it is not the package's.
_SOURCE_VERSION = re.compile(r"\((\S+)\)$")


def refreshed(root: Path, *, only_if_gone: bool = False) -> dict[str, str]:
    """Return the new lock of each suite, by path relative to `root`.

    only_if_gone: leave a lock as it is if all its packages can still be downloaded. Raises MissingError if
    apt, Debian's keys or the mirror are missing.
    """
    if not bootstrap.HELPER.exists():
        raise MissingError(
            "the Debian packages can't be resolved without apt", hint="run this on Debian or Ubuntu"
        )
    if not KEYRING.exists():
        raise MissingError(
            f"Debian's archive keys are missing: {KEYRING}", hint="run .ci/tools debian-archive-keyring"
        )
    found: dict[str, str] = {}
    sources = bootstrap.apt_sources()
    for suite in bootstrap.SUITES.values():
        path = lock_path(suite)
        lock = resolved(suite, sources)
        if path.is_file() and _unchanged(read_lock(suite), lock, sources, only_if_gone):
            lock = read_lock(suite)
        found[str(path.relative_to(root.resolve()))] = lock.text
    return found


def versions(text: str) -> dict[str, str]:
    """Return the packages in a lock with their versions."""
    lines = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    return {line[0]: line[1] for line in lines}


def resolved(suite: str, sources: bootstrap.AptSources) -> DebianLock:
    """Return the lock of the newest packages of a suite. Raises MissingError without the mirror."""
    with temporary_directory("apt") as directory:
        configuration = _configure(directory, suite, sources)
        own = {"APT_CONFIG": str(configuration), "LC_ALL": "C.UTF-8"}
        environment = {**os.environ, **sources.environment, **own}
        _apt(["update", "-o", "APT::Update::Error-Mode=any"], environment, suite)
        printed = _apt(
            [
                "install", "--print-uris", "--no-install-recommends", "?essential", "?priority(required)",
                "apt", *bootstrap.PACKAGES[suite],
            ],
            environment, suite,
        )  # fmt: skip
        found = list(_URI.finditer(printed))
        wanted = [f"{name}={version}" for name, version in map(_name_and_version, found)]
        built_from = _source_versions(_apt(["show", *wanted], environment, suite, program="apt-cache"))
    packages = [_package(match, sources, built_from) for match in found]
    snapshot = datetime.now(timezone.utc) + _SNAPSHOT_AFTER
    packages.sort(key=lambda package: package.name)
    return DebianLock(suite, f"{snapshot:%Y%m%dT%H0000Z}", tuple(packages))


def _unchanged(old: DebianLock, new: DebianLock, sources: bootstrap.AptSources, only_if_gone: bool) -> bool:
    if old.digest == new.digest:
        return True
    superseded = set(old.packages) - set(new.packages)
    if not only_if_gone or not superseded:
        return False
    with temporary_directory("apt") as directory:
        return available(superseded, old, sources, directory)


def _configure(directory: Path, suite: str, sources: bootstrap.AptSources) -> Path:
    """Write a configuration of apt that neither reads nor changes the host's state."""
    (directory / "lists" / "partial").mkdir(parents=True)
    (directory / "cache" / "archives" / "partial").mkdir(parents=True)
    (directory / "status").touch()
    lines = [
        line.replace("deb ", f"deb [arch=amd64 signed-by={KEYRING}] ", 1) for line in sources.lines(suite)
    ]
    (directory / "sources.list").write_text("\n".join(lines) + "\n", encoding="utf-8")
    configuration = directory / "apt.conf"
    configuration.write_text(
        f'Dir::Etc::SourceList "{directory}/sources.list";\n'
        'Dir::Etc::SourceParts "/dev/null";\n'
        'Dir::Etc::PreferencesParts "/dev/null";\n'
        f'Dir::State "{directory}";\n'
        f'Dir::State::Lists "{directory}/lists";\n'
        f'Dir::State::status "{directory}/status";\n'
        f'Dir::Cache "{directory}/cache";\n'
        'APT::Architecture "amd64";\n'
        'APT::Architectures "amd64";\n'
        'APT::Sandbox::User "root";\n'
        'Acquire::Languages "none";\n'
        'Acquire::ForceHash "SHA256";\n'
        'Acquire::Retries "2";\n',
        encoding="utf-8",
    )
    return configuration


def _apt(arguments: list[str], environment: dict[str, str], suite: str, program: str = "apt-get") -> str:
    result = processes.run([program, "-qq", *arguments], env=environment, timeout_s=_TIMEOUT_S)
    if not result.ok:
        last = [line.strip() for line in result.stderr_tail.splitlines() if line.strip()]
        raise MissingError(
            f"apt can't resolve the packages of Debian {suite}: {' '.join(last[-2:])[:300] or 'no message'}",
            hint="check apt's sources and proxy on this machine",
        )
    return result.stdout.decode("utf-8")


def _source_versions(stanzas: str) -> dict[tuple[str, str], str]:
    """Return the versions of the sources that packages name, by the name and version of the package."""
    found = {}
    for stanza in stanzas.split("\n\n"):
        fields = dict(_FIELD.findall(stanza))
        named = _SOURCE_VERSION.search(fields.get("Source", ""))
        if named and {"Package", "Version"} <= fields.keys():
            found[fields["Package"], fields["Version"]] = named[1]
    return found


def _name_and_version(match: re.Match[str]) -> tuple[str, str]:
    name, _, version = unquote(match["file"]).partition("_")
    return name, version


def _package(
    match: re.Match[str], sources: bootstrap.AptSources, built_from: Mapping[tuple[str, str], str]
) -> DebianPackage:
    uri, (name, version) = match["uri"], _name_and_version(match)
    for archive, mirror in sources.mirrors.items():
        if uri.startswith(f"{mirror}/pool/"):
            path = archive + unquote(uri.removeprefix(mirror))
            source = built_from.get((name, version), bootstrap.usual_source_version(version))
            return DebianPackage(name, version, path, int(match["size"]), match["sha256"], source)
    raise MissingError(f"apt would download {name} from outside Debian's archives")
