"""Bootstrap a base image from Debian's packages, for machines that can't reach an image registry.

The packages are those of a lock. They are downloaded from the host's mirror and checked against their hashes
before anything of them runs. Then mmdebstrap or debootstrap creates the root file system from only these
files, and `docker import` makes an image from it. The base contains no trace of the mirror, its proxy or its
certificate authorities.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from ..errors import BuildError, InputError, MissingError
from ..model.spec import PROJECT
from ..resources import images_directory, refresh_hint
from ..system import processes
from ..system.files import full_disk, full_disk_named, says_full_disk
from ..system.processes import Progress

logger = logging.getLogger(__name__)

# The Debian mirrors and proxies of this machine, as apt is configured.

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
        """Return the `deb` lines. Without security updates, a base is as old as the last point release."""
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
    # As variables, so that the tools don't write the proxies into the base.
    asked = ["http_proxy", "Acquire::http::Proxy", "https_proxy", "Acquire::https::Proxy"]
    result = processes.run(["apt-config", "shell", *asked], timeout_s=60)
    found = re.findall(r"^(https?_proxy)='([^']+)'$", result.stdout.decode("utf-8", "replace"), re.MULTILINE)
    return AptSources(mirrors, {name: value for name, value in found if value != "DIRECT"})


# The Debian packages of a bootstrapped base, each pinned by version and hash.

DIRECTORY = images_directory() / "debian"
#: The archives of Debian, as the first part of a package's path names them.
ARCHIVES = ("debian", "debian-security")

#: Debian built the package again from the same source.
_REBUILD = re.compile(r"\+b\d+$")
_SNAPSHOT = re.compile(r"^# snapshot: (\d{8}T\d{6}Z)$", re.MULTILINE)
_LINE = re.compile(
    r"(?P<name>[a-z0-9][a-z0-9.+-]+) (?P<version>[\w.+:~-]+)"
    r" (?P<path>(?:debian|debian-security)/pool/(?:[\w+][\w.+~-]*/)+[\w+][\w.+~-]*\.deb)"
    r" (?P<size>\d{1,10}) sha256:(?P<sha256>[0-9a-f]{64})(?: source:(?P<source>[\w.+:~-]+))?"
)


@dataclass(frozen=True)
class DebianPackage:
    """One file of a Debian archive. path: `debian/pool/…` or `debian-security/pool/…`. size: in bytes.

    source_version: of the source package, whose version may differ from the package's.
    """

    name: str
    version: str
    path: str
    size: int
    sha256: str
    source_version: str

    def __str__(self) -> str:
        return f"{self.name} {self.version}"

    @property
    def file(self) -> str:
        return self.path.rsplit("/", 1)[1]

    @property
    def source(self) -> str:
        """The name of the source package, which is that of the directory in the archive."""
        return self.path.rsplit("/", 2)[1]


@dataclass(frozen=True)
class DebianLock:
    """All packages of a base. snapshot: when snapshot.debian.org had them all: `20261122T120000Z`."""

    suite: str
    snapshot: str
    packages: tuple[DebianPackage, ...]

    @property
    def text(self) -> str:
        lines = []
        for one in self.packages:
            line = f"{one.name} {one.version} {one.path} {one.size} sha256:{one.sha256}"
            differs = one.source_version != usual_source_version(one.version)
            lines.append(f"{line} source:{one.source_version}" if differs else line)
        return (
            f"# The packages of the base that is bootstrapped from Debian {self.suite} (amd64).\n"
            "# Written by `scripts/refresh debian`, not by hand.\n"
            f"# snapshot: {self.snapshot}\n" + "\n".join(lines) + "\n"
        )

    @property
    def digest(self) -> str:
        """The SHA-256 of the packages. The same packages have the same digest, whenever they were locked."""
        lines = "\n".join(f"{one.name} {one.version} {one.sha256}" for one in self.packages)
        return hashlib.sha256(lines.encode()).hexdigest()


def usual_source_version(version: str) -> str:
    """Return the version of the source package, without the mark of a rebuild, if nothing else is said."""
    return _REBUILD.sub("", version)


def lock_path(suite: str) -> Path:
    return DIRECTORY / f"{suite}.txt"


def read_lock(suite: str, path: Path | None = None) -> DebianLock:
    """Return the lock of a suite. Raises InputError, with the line, for a package that is not pinned."""
    path = path or lock_path(suite)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"Debian {suite} has no lock {path}", hint=refresh_hint("debian")) from None
    snapshot = _SNAPSHOT.search(text)
    if snapshot is None:
        raise InputError(f"{path} does not name a snapshot", hint=refresh_hint("debian"))
    packages = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise InputError(
                f"{path}:{number} does not pin a package by version, path, size and sha256",
                hint=refresh_hint("debian"),
            )
        name, version, file, size, sha256, source = match.groups()
        source_version = source or usual_source_version(version)
        packages.append(DebianPackage(name, version, file, int(size), sha256, source_version))
    if not packages:
        raise InputError(f"{path} has no packages", hint=refresh_hint("debian"))
    return DebianLock(suite, snapshot[1], tuple(packages))


# Download the packages of a lock, check each against its hash, and make a repository of only these packages.

#: Debian's archive of everything that was ever on a mirror. Mirrors delete superseded versions.
SNAPSHOT = "https://snapshot.debian.org/archive"
_TIMEOUT_S = 1800


def fetch(lock: DebianLock, sources: AptSources, directory: Path) -> None:
    """Download all packages of a lock. Raises MissingError for one that differs, or that nobody has."""
    snapshots = {archive: f"{SNAPSHOT}/{archive}/{lock.snapshot}" for archive in ARCHIVES}
    for name, places in (("the mirror", sources.mirrors), ("snapshot.debian.org", snapshots)):
        missing = [package for package in lock.packages if not (directory / package.file).exists()]
        if not missing:
            break
        _download(missing, places, directory, sources)
        for package in missing:
            path = directory / package.file
            # apt-helper renames a file that is not what the lock pins.
            for found in (path, path.with_name(f"{path.name}.FAILED")):
                digest = hashlib.sha256(found.read_bytes()).hexdigest() if found.is_file() else package.sha256
                if digest == package.sha256:
                    continue
                # apt-helper leaves an empty file if the download has another size.
                saw = f"a file with the sha256 {digest}" if found.stat().st_size else "a file of another size"
                raise MissingError(
                    f"{name} serves {saw} as {package.path}, but for {package}, {lock_path(lock.suite)} pins"
                    f" {package.size} bytes with the sha256 {package.sha256}: nothing was installed",
                    hint="use another mirror in apt's sources; if Debian replaced the package,"
                    f" {refresh_hint('debian', ', which checks the signature of Debian')}",
                )
    if missing := [package for package in lock.packages if not (directory / package.file).exists()]:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        shown = ", ".join(map(str, missing[:3])) + more
        raise MissingError(
            f"Debian {lock.suite} can't be bootstrapped: {shown} can be downloaded neither from the mirror"
            " nor from snapshot.debian.org",
            hint="check apt's sources and proxy on this machine; if the mirror has newer versions,"
            f" {refresh_hint('debian')}",
        )


def available(
    packages: Iterable[DebianPackage], lock: DebianLock, sources: AptSources, directory: Path
) -> bool:
    """Return True if these packages of a lock can still be downloaded."""
    part = DebianLock(lock.suite, lock.snapshot, tuple(packages))
    try:
        fetch(part, sources, directory)
    except MissingError:
        return False
    return True


def write_repository(lock: DebianLock, directory: Path) -> None:
    """Write the index of the downloaded packages, so that apt and debootstrap can read the directory."""
    stanzas = []
    for package in lock.packages:
        result = processes.run(["dpkg-deb", "--field", directory / package.file], timeout_s=60)
        if not result.ok:
            raise MissingError(f"dpkg-deb can't read {package.file}: {result.stderr_tail.strip()}")
        control = result.stdout.decode("utf-8").strip()
        stanzas.append(
            f"{control}\nFilename: {package.file}\nSize: {package.size}\nSHA256: {package.sha256}\n"
        )
    # debootstrap ignores a stanza without an empty line after it.
    index = "".join(f"{stanza}\n" for stanza in stanzas).encode()
    release = directory / "dists" / lock.suite
    binary = release / "main" / "binary-amd64"
    binary.mkdir(parents=True)
    (binary / "Packages").write_bytes(index)
    digest = hashlib.sha256(index).hexdigest()
    (release / "Release").write_text(
        f"Suite: {lock.suite}\nCodename: {lock.suite}\nArchitectures: amd64\nComponents: main\n"
        f"Date: Thu, 01 Jan 1970 00:00:00 UTC\nSHA256:\n {digest} {len(index)} main/binary-amd64/Packages\n",
        encoding="utf-8",
    )


def _download(
    packages: list[DebianPackage], places: Mapping[str, str], directory: Path, sources: AptSources
) -> None:
    """Download files, without an error for those that could not be downloaded."""
    arguments = []
    for package in packages:
        archive, _, rest = package.path.partition("/")
        arguments += [
            f"{places[archive]}/{quote(rest, safe='/')}", str(directory / package.file),
            f"SHA256:{package.sha256}", f"Checksum-FileSize:{package.size}",
        ]  # fmt: skip
    processes.run(
        [
            HELPER, "-o", "Acquire::Retries=2", "-o", "Acquire::http::Timeout=30",
            "-o", "Acquire::https::Timeout=30", "-o", "APT::Sandbox::User=root", "download-file", *arguments,
        ],
        env={**os.environ, **sources.environment, "LC_ALL": "C.UTF-8"},
        on_line=logger.info,
        timeout_s=_TIMEOUT_S,
    )  # fmt: skip


#: The Debian release whose own Python is this version.
SUITES: Mapping[str, str] = {"3.11": "bookworm", "3.13": "trixie"}
#: The packages in addition to the smallest Debian, as in official Python images. Without
#: usr-is-merged, Debian 12 would get a package that moves files to /usr, and all of Perl with it.
PACKAGES: Mapping[str, tuple[str, ...]] = {
    "bookworm": ("ca-certificates", "python3", "tzdata", "usr-is-merged"),
    "trixie": ("ca-certificates", "python3", "tzdata"),
}

#: The end of a sentence that says why a base can't be bootstrapped.
NO_TOOL = "this machine lacks apt, dpkg-deb, or both mmdebstrap and debootstrap"

_MERGE_USR = images_directory() / "base" / "merge-usr"
_CLEAN = images_directory() / "base" / "clean-rootfs"
#: With more packages, apt also knows the mirror. The packages of the lock come from the lock nevertheless.
_PREFERENCE = '"$1"/etc/apt/preferences.d/locked'
_PREFER_LOCKED = (
    'mkdir -p "$1"/etc/apt/preferences.d'
    f" && printf 'Package: *\\nPin: origin \"\"\\nPin-Priority: 1001\\n' >{_PREFERENCE}"
)
_NO_PREFERENCE = f"rm {_PREFERENCE}"
#: How both tools begin to name a step: `I: extracting archives...`.
_STEP = re.compile(r"I: ([^.:]+)(?:\.\.\.)?$", re.IGNORECASE)
_EXCLUDED = ("/usr/share/doc/*", "/usr/share/info/*", "/usr/share/locale/*", "/usr/share/man/*")


def digest(suite: str, packages: Sequence[str] = ()) -> str:
    """Return the SHA-256 of all that decides a base. packages: more packages, in the versions of that day."""
    scripts = [path.read_text(encoding="utf-8") for path in (_MERGE_USR, _CLEAN)]
    recipe = [suite, read_lock(suite).digest, *_EXCLUDED, *scripts, *sorted(packages)]
    return hashlib.sha256("\n".join(recipe).encode()).hexdigest()


def tag(suite: str) -> str:
    """Return the image name of a suite's base, which depends on its packages and the recipe."""
    return f"{PROJECT}-base:{suite}-{digest(suite)[:12]}"


def origin(suite: str, packages: Sequence[str] = ()) -> str:
    """Return the origin of a suite's base, as in records and labels."""
    return f"bootstrap:{suite}@sha256:{digest(suite, packages)}"


def tool() -> str | None:
    """Return the installed tool, or None. Each needs apt and dpkg-deb. debootstrap works only for root."""
    if not HELPER.exists() or shutil.which("dpkg-deb") is None:
        return None
    if shutil.which("mmdebstrap"):
        return "mmdebstrap"
    return "debootstrap" if os.geteuid() == 0 and shutil.which("debootstrap") else None


def root_file_system(suite: str, directory: Path, progress: Progress, packages: Sequence[str] = ()) -> Path:
    """Create the root file system of a suite as a tar archive in `directory`. This takes about half a minute.

    packages: more packages, from the mirror, without a pinned version. Only mmdebstrap can add them.
    Raises MissingError if the tool, the network or disk space is missing, and BuildError for other failures.
    """
    name = tool()
    if name is None:
        raise MissingError(
            f"Debian {suite} can't be bootstrapped: {NO_TOOL}",
            hint="install apt, dpkg and mmdebstrap, or connect the engine to an image registry",
        )
    if packages and name != "mmdebstrap":
        raise MissingError(
            f"Debian {suite} can't be bootstrapped with {', '.join(packages)}: mmdebstrap is not installed",
            hint="install mmdebstrap, or use a base from a registry and Docker",
        )
    lock, sources = read_lock(suite), apt_sources()
    archive, repository = directory / "rootfs.tar", directory / "packages"
    repository.mkdir()
    with full_disk_named(directory):
        size = sum(package.size for package in lock.packages) / 1e6
        progress(f"downloading {len(lock.packages)} packages of Debian {suite}, {size:.0f} MB")
        fetch(lock, sources, repository)
        write_repository(lock, repository)
        progress(f"bootstrapping Debian {suite} with {name}")
        if name == "mmdebstrap":
            _mmdebstrap(lock, archive, repository, progress, packages, sources)
        else:
            _debootstrap(lock, archive, repository, progress)
    return archive


def _mmdebstrap(
    lock: DebianLock,
    archive: Path,
    repository: Path,
    progress: Progress,
    packages: Sequence[str],
    sources: AptSources,
) -> None:
    hooks = [f"--setup-hook={_MERGE_USR}", f"--customize-hook={_CLEAN}"]
    if packages:
        hooks = [f"--setup-hook={_PREFER_LOCKED}", f"--customize-hook={_NO_PREFERENCE}", *hooks]
    # With `copy:`, the tool needs no access to the directory from inside the new root.
    _run(
        [
            "mmdebstrap", "--variant=minbase", f"--include={','.join((_names(lock), *packages))}",
            *(f"--dpkgopt=path-exclude={pattern}" for pattern in _EXCLUDED), *hooks,
            lock.suite, archive, f"deb [trusted=yes] copy:{repository} {lock.suite} main",
            *(sources.lines(lock.suite) if packages else ()),
        ],
        lock.suite, progress, sources.environment if packages else None,
    )  # fmt: skip


def _debootstrap(lock: DebianLock, archive: Path, repository: Path, progress: Progress) -> None:
    with tempfile.TemporaryDirectory(dir=archive.parent) as name:
        root = Path(name) / "root"
        _run(
            [
                "debootstrap", "--no-check-gpg", "--variant=minbase", f"--include={_names(lock)}",
                lock.suite, root, f"file://{repository}",
            ],
            lock.suite, progress,
        )  # fmt: skip
        _run([_CLEAN, root], lock.suite, progress)
        _run(
            [
                "tar", "--create", f"--file={archive}", f"--directory={root}", "--sort=name",
                "--numeric-owner", "--mtime=@0", "--exclude=./dev/*", ".",
            ],
            lock.suite, progress,
        )  # fmt: skip


def _names(lock: DebianLock) -> str:
    return ",".join(package.name for package in lock.packages)


def _run(
    command: list[str | Path], suite: str, progress: Progress, variables: Mapping[str, str] | None = None
) -> None:
    # With SOURCE_DATE_EPOCH, mmdebstrap's output is reproducible.
    environment = {**os.environ, **(variables or {}), "SOURCE_DATE_EPOCH": "0", "LC_ALL": "C.UTF-8"}

    def on_line(line: str) -> None:
        logger.info(line)
        if step := _STEP.match(line):
            progress(f"bootstrapping Debian {suite}: {step[1]}")

    result = processes.run(command, env=environment, timeout_s=_TIMEOUT_S, on_line=on_line)
    if result.ok:
        return
    if says_full_disk(result.stderr_tail):
        raise full_disk(tempfile.gettempdir())
    last = [line for line in result.stderr_tail.splitlines() if line.strip()][-1:] or ["no message"]
    raise BuildError(
        f"Debian {suite} can't be bootstrapped: {Path(str(command[0])).name} failed: {last[0]}",
        log=result.stderr_tail,
    )
