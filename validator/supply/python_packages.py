"""The locks of this project's own Python packages, and of its tests' environments.

One lock for each environment that `scripts/environment` makes, for all supported Pythons and platforms at
once. A lock names no index, so it is the same on every network.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shutil
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path

from uv import find_uv_bin

from ..errors import InputError, MissingError
from ..system import processes
from ..system.files import cache_directory, parse_toml, writing
from ..system.package_sources import PackageSources
from ..system.runs import temporary_directory

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


def refreshed(root: Path, sources: PackageSources, *, upgrade: bool = True) -> dict[str, str]:
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
            _run(command, root, sources)
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
            _run(command, root, sources)
            found[f"{ENVIRONMENTS}/{file.name}"] = header[0] + output.read_text(encoding="utf-8")
    return found


def versions(lock: str) -> dict[str, str]:
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


def _run(command: list[str | Path], root: Path, sources: PackageSources) -> None:
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


# Download packages from npm, and run programs of Node.js. No script of a package is run by npm.

#: npm itself tries three times, and waits up to 70 seconds between.
_NPM = ("npm", "pack", "--silent", "--ignore-scripts", "--fetch-retries", "1", "--fetch-timeout", "30000")
_NPM_TIMEOUT_S = 180.0


def npm_package(name: str, version: str, integrity: str, otherwise: str = "") -> Path:
    """Return a package: the file in the user's cache, or the one that npm downloads now.

    npm's own configuration says where from. integrity: as npm writes it, `sha512-…`. otherwise: what else to
    do if it can't be downloaded, as a clause. Raises MissingError if npm is not installed, can't download the
    package, or downloads another one.
    """
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
        done = processes.run([node, partial / "program.js", made], timeout_s=_TIMEOUT_S)
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
