"""The parts that `refresh` brings up to date: facts, Python packages, bases, Debian packages and layers.

apt resolves the Debian packages in bootstrapped bases on the host, with a configuration of its own and an
empty state, and checks Debian's signature of the indexes. It needs no root.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from urllib.parse import unquote

import msgspec
from docker.errors import DockerException
from requests import RequestException
from uv import find_uv_bin

from ..assemble import bootstrap
from ..assemble.base_finder import PINNED, TAG, text_of
from ..assemble.bootstrap import DebianLock, DebianPackage, available, lock_path, read_lock
from ..assemble.layer_table import SharedRow
from ..compat.compile import read_yaml
from ..engines.endpoint import reach
from ..errors import EXIT_FAILED, EXIT_MISSING, EXIT_OK, InputError, MissingError
from ..resources import root_directory
from ..system import processes
from ..system.files import parse_toml, write_atomically
from ..system.package_sources import PackageSources, host_sources
from ..system.runs import temporary_directory
from ..versions import Version
from . import release_facts
from .news import STABLE, Asked
from .release_facts import copied, refuse_installed

ROOT = root_directory()
BASES, LAYERS = "images/bases.yaml", "images/layers.json"
#: The probe needs Python 3.9 or newer.
_OLDEST = Version("3.9")
#: The locks, and the extras of pyproject.toml that each contains. The largest comes first, and the others get
#: the same versions.
LOCKS: Mapping[str, tuple[str, ...]] = {
    "requirements/test.txt": ("kubernetes", "mcp", "parquet", "test"),
    "requirements/mcp.txt": ("mcp",),
    "requirements/parquet.txt": ("parquet",),
    "requirements/runtime.txt": (),
}
#: The environments with a real TensorFlow in which tests run the probe: one lock each, which begins with the
#: lines that it is resolved from. To add one, write a file with only these lines.
ENVIRONMENTS = "requirements/environments"
#: A release that turns out to be bad or malicious is usually withdrawn within days.
COOLDOWN = timedelta(days=7)

_TIMEOUT_S = 600.0
_PLATFORM = "x86_64-manylinux_2_28"
_REQUIRES = re.compile(r"# python: (?P<python>3\.\d+)\n(?:# requires: .+\n)+")
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)


@dataclass(frozen=True)
class Options:
    """Options of all parts.

    check: only say what is new, without finding out what changes because of it. today: the date for rows that
    are written. asked (only for facts): the kinds of TensorFlow releases to ask for. keep (only for python):
    keep versions that are still allowed. if_gone (only for debian): change only what can no longer be
    downloaded. say: called with each line of progress.
    """

    check: bool
    today: date
    say: Callable[[str], None]
    asked: Asked = STABLE
    keep: bool = False
    if_gone: bool = False


@dataclass(frozen=True)
class Changes:
    """The changes of a part: new content by path relative to the root, and what a reviewer reads."""

    files: Mapping[str, bytes]
    lines: tuple[str, ...]


Part = Callable[[Options], Changes]


def pinned(refreshed: Mapping[str, str], versions: Callable[[str], dict[str, str]], root: Path) -> Changes:
    """Return the changes of files. refreshed: new content by path. versions: reads names and versions."""
    files: dict[str, bytes] = {}
    lines: list[str] = []
    for path, text in refreshed.items():
        file = root / path
        old = file.read_text(encoding="utf-8") if file.exists() else ""
        if old != text:
            files[path] = text.encode()
            what = difference(versions(old), versions(text))
            what = what or ["the same versions, but other hashes or markers"]
            lines += [f"{path}:", *(f"  {line}" for line in what)]
    return Changes(files, tuple(lines))


def _facts(options: Options) -> Changes:
    sources = host_sources()
    if options.check:
        return Changes({}, release_facts.new_on_index(sources, options.asked, options.today))
    return Changes(*release_facts.refreshed(ROOT, sources, options.asked, options.today, options.say))


def refreshed_locks(root: Path, sources: PackageSources, *, upgrade: bool = True) -> dict[str, str]:
    """Return the new content of each lock, by path relative to `root`.

    upgrade: False to keep the locked versions that pyproject.toml still allows. Raises InputError if the
    requirements can't be met together, MissingError if the index can't be reached.
    """
    found: dict[str, str] = {}
    project = parse_toml((root / "pyproject.toml").read_text(encoding="utf-8"))
    oldest = project["project"]["requires-python"].removeprefix(">=")
    with temporary_directory("refresh") as directory:
        # Include this package's build system, so that building it downloads nothing else.
        (directory / "build.in").write_text("\n".join(project["build-system"]["requires"]), encoding="utf-8")
        constraints: list[str | Path] = []
        for path, extras in LOCKS.items():
            output = directory / Path(path).name
            if not upgrade and (root / path).is_file():
                output.write_bytes((root / path).read_bytes())
            command = [
                *_compile(oldest, "--universal"), "pyproject.toml", directory / "build.in",
                *(f"--extra={extra}" for extra in extras), *constraints, "--output-file", output,
                *(["--upgrade"] if upgrade else []),
            ]  # fmt: skip
            _run_uv(command, root, sources)
            what = "".join(f' and of its extra "{extra}"' for extra in extras)
            comment = (
                "# The packages that scripts/environment installs: the dependencies of this project"
                f"{what},\n# for every supported Python. Written by `scripts/refresh python`, not by hand.\n"
            )
            found[path] = comment + output.read_text(encoding="utf-8")
            constraints = ["--constraint", output]
        for file in sorted((root / ENVIRONMENTS).glob("*.txt")):
            old = file.read_text(encoding="utf-8")
            output = directory / file.name
            if not upgrade:
                output.write_text(old, encoding="utf-8")
            header = _REQUIRES.match(old)
            if header is None:
                raise InputError(f"{file} does not begin with `# python: 3.x` and lines `# requires: …`")
            (directory / "requires.in").write_text("\n".join(requirements_of(old)), encoding="utf-8")
            command = [
                *_compile(header["python"], "--python-platform", _PLATFORM), directory / "requires.in",
                "--output-file", output, *(["--upgrade"] if upgrade else []),
            ]  # fmt: skip
            _run_uv(command, root, sources)
            found[f"{ENVIRONMENTS}/{file.name}"] = header[0] + output.read_text(encoding="utf-8")
    return found


def locked_versions(lock: str) -> dict[str, str]:
    """Return the packages in a lock with their versions; `1.0, 1.2` if Pythons differ."""
    found: dict[str, set[str]] = {}
    for name, version in _PIN.findall(lock):
        found.setdefault(name, set()).add(version)
    return {name: ", ".join(sorted(several)) for name, several in found.items()}


def requirements_of(lock: str) -> tuple[str, ...]:
    """Return the requirements that the lock of an environment is resolved from."""
    return tuple(re.findall(r"^# requires: (.+)$", lock, re.MULTILINE))


def _compile(python: str, *target: str) -> list[str | Path]:
    newest = datetime.now(timezone.utc) - COOLDOWN
    return [
        find_uv_bin(), "pip", "compile", "--quiet", *target, "--generate-hashes", "--only-binary", ":all:",
        "--python-version", python,
        "--exclude-newer", f"{newest:%Y-%m-%dT00:00:00Z}", "--no-header", "--no-annotate",
        "--no-emit-index-url", "--no-python-downloads",
    ]  # fmt: skip


def _run_uv(command: list[str | Path], root: Path, sources: PackageSources) -> None:
    environment = {**os.environ, **sources.uv_environment()}
    result = processes.run(command, cwd=root, env=environment, timeout_s=_TIMEOUT_S)
    if result.ok:
        return
    text = sources.redact(result.stderr_tail)
    if result.timed_out or "error sending request" in text or "Failed to fetch" in text:
        raise MissingError(
            f"the package index can't be reached: {text.strip().splitlines()[-1:]}",
            hint="check the index, the proxy and the CA bundle in uv's or pip's configuration",
        )
    raise InputError(f"the dependencies in pyproject.toml can't be resolved:\n{text.strip()}")


def pythons(root: Path) -> list[str]:
    """Return the Pythons that images may have: those with a wheel of some TensorFlow, oldest first."""
    # From the facts as they are edited: the same run may just have added a release.
    rows = read_yaml(root / "validator/compat/data/tensorflow.yaml")["releases"]
    found = {python for row in rows for python in row["pythons"]}
    return sorted((python for python in found if Version(python) >= _OLDEST), key=Version)


def refreshed_bases(root: Path) -> dict[str, str]:
    """Return the new images/bases.yaml. Raises MissingError without the Docker Engine or the registry."""
    api = reach().quick.api
    bases: dict[str, str] = {}
    for python in pythons(root):
        name = TAG.format(python)
        try:
            digest = str(api.inspect_distribution(name)["Descriptor"]["digest"])
        except (DockerException, RequestException) as error:
            raise MissingError(
                f"the digest of {name} can't be read from its registry: {' '.join(str(error).split())[:200]}",
                hint="check the engine's network and proxy settings",
            ) from error
        bases[python] = f"{name}@{digest}"
        if not PINNED.fullmatch(bases[python]):
            raise MissingError(f"the registry returned an invalid digest for {name}: {digest[:100]}")
    return {BASES: text_of(bases)}


def base_versions(text: str) -> dict[str, str]:
    """Return the bases in the file with their digests, shortened to 12 digits."""
    return {found["name"]: found["digest"][:19] for found in PINNED.finditer(text)}


def refreshed_layers(root: Path) -> dict[str, str]:
    """Return images/layers.json with new layers. Raises MissingError if a wheel can't be downloaded."""
    refuse_installed(root)
    with copied(root) as copy:
        copy.run("validator", "lock", "--profile", "nightly", "--layers")
        return {LAYERS: (copy.path / LAYERS).read_text(encoding="utf-8")}


def layer_versions(text: str) -> dict[str, str]:
    """Return the digests of the layers in the table, shortened to 12 digits, by their names and keys."""
    rows = msgspec.json.decode(text or "[]", type=tuple[SharedRow, ...])
    return {f"{row.name} (row {row.key[:12]})": row.digest[:19] for row in rows}


FACTS = "facts"
#: All parts. The facts come first: they say for which Pythons there must be bases, and bring new locks.
PARTS: Mapping[str, Part] = {
    FACTS: _facts,
    "python": lambda options: pinned(
        refreshed_locks(ROOT, host_sources(), upgrade=not options.keep), locked_versions, ROOT
    ),
    "bases": lambda _: pinned(refreshed_bases(ROOT), base_versions, ROOT),
    "debian": lambda options: pinned(
        debian_locks(ROOT, only_if_gone=options.if_gone), debian_versions, ROOT
    ),
    "layers": lambda _: pinned(refreshed_layers(ROOT), layer_versions, ROOT),
}  # fmt: skip


def difference(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return a line for each name whose version differs: `uv 0.13.8 -> 0.13.9`, `added`, `removed`."""
    lines = []
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old is None:
            lines.append(f"{name} {new} added")
        elif new is None:
            lines.append(f"{name} {old} removed")
        elif old != new:
            lines.append(f"{name} {old} -> {new}")
    return lines


def refresh(
    parts: Mapping[str, Part],
    options: Options,
    *,
    root: Path,
    write: bool,
    show: Callable[[str], None],
    complain: Callable[[str], None],
) -> int:
    """Refresh the parts, show what a reviewer reads, and return the exit code.

    A part that needs something that is missing does not stop the others; `complain` is called with the error.
    """
    changed = missing = False
    for name, part in parts.items():
        try:
            changes = part(options)
            if write:
                for path, content in changes.files.items():
                    write_atomically(root / path, content)
        except MissingError as error:
            complain(f"{name}: {error}" + (f"\n  {error.hint}" if error.hint else ""))
            missing = True
            continue
        changed = changed or bool(changes.lines)
        for line in changes.lines:
            show(line)
    if not changed and not missing:
        show(f"up to date: {', '.join(parts)}")
        if FACTS in parts:
            show("not asked: what NVIDIA publishes about drivers, GPUs and cuDNN, which people read")
    if missing:
        return EXIT_MISSING
    return EXIT_FAILED if changed and options.check else EXIT_OK


KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
#: snapshot.debian.org copies the archive a few times a day, and names each copy by its start time.
#: Superseded files stay in the archive for longer than this.
_SNAPSHOT_AFTER = timedelta(hours=12)
_URI = re.compile(
    r"'(?P<uri>[^']+)' (?P<file>\S+)_[a-z0-9]+\.deb (?P<size>[0-9]{1,15}) SHA256:(?P<sha256>[0-9a-f]{64})"
)
_FIELD = re.compile(r"^(Package|Version|Source): (.+)$", re.MULTILINE)
#: `util-linux (2.38.1-5)`; the version is there only if it is not the package's.
_SOURCE_VERSION = re.compile(r"\((\S+)\)$")


def debian_locks(root: Path, *, only_if_gone: bool = False) -> dict[str, str]:
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
        lock = debian_lock(suite, sources)
        if path.is_file():
            old = read_lock(suite)
            superseded = set(old.packages) - set(lock.packages)
            keep = old.digest == lock.digest
            if not keep and only_if_gone and superseded:
                with temporary_directory("apt") as directory:
                    keep = available(superseded, old, sources, directory)
            lock = old if keep else lock
        found[str(path.relative_to(root.resolve()))] = lock.text
    return found


def debian_versions(text: str) -> dict[str, str]:
    """Return the packages in a lock with their versions."""
    lines = [line.split() for line in text.splitlines() if line and not line.startswith("#")]
    return {line[0]: line[1] for line in lines}


def debian_lock(suite: str, sources: bootstrap.AptSources) -> DebianLock:
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
        found = [(unquote(match["file"]).split("_", 1), match) for match in _URI.finditer(printed)]
        wanted = [f"{name}={version}" for (name, version), _ in found]
        built_from = _source_versions(_apt(["show", *wanted], environment, suite, program="apt-cache"))
    packages = []
    for (name, version), match in found:
        source = built_from.get((name, version), bootstrap.usual_source_version(version))
        for archive, mirror in sources.mirrors.items():
            if match["uri"].startswith(f"{mirror}/pool/"):
                path = archive + unquote(match["uri"].removeprefix(mirror))
                size, sha256 = int(match["size"]), match["sha256"]
                packages.append(DebianPackage(name, version, path, size, sha256, source))
                break
        else:
            raise MissingError(f"apt would download {name} from outside Debian's archives")
    snapshot = datetime.now(timezone.utc) + _SNAPSHOT_AFTER
    packages.sort(key=lambda package: package.name)
    return DebianLock(suite, f"{snapshot:%Y%m%dT%H0000Z}", tuple(packages))


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
