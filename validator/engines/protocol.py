"""The protocol that all engines implement, and the probe that they run.

The probe is packed into one file that any Python from 3.9 on can run: `python3 probe.pyz > report.json` runs
it anywhere. The same sources give the same bytes on every machine, so that a record can name the probe by its
version. It can also be run with a Python of this machine.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import io
import json
import os
import re
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from ..errors import InputError, MissingError, ValidatorError
from ..model.codec import convert
from ..model.record import Layer, Outside, Unread, is_own
from ..model.report import CheckDescription
from ..model.spec import CheckFile, ImageSpec, Lock
from ..resources import manual
from ..system import processes
from ..system.files import full_disk_named, read_file
from ..system.processes import Progress
from ..system.runs import temporary_directory


@dataclass(frozen=True)
class Built:
    """An environment that is ready for the probe.

    reference: an image reference, or the path of an environment.
    digest: the digest of the image's manifest (`sha256:…`), or None if this is not an image.
    base: the origin of the base image (`registry:python:3.12-slim-bookworm`, `bootstrap:bookworm@…`), or
    None. size: the size on disk in bytes, or None if unknown. layers: the layers of the image, lowest first,
    or None if unknown. engine_id: the engine's own identifier of the image, if that is not the digest.
    """

    spec: ImageSpec
    reference: str
    lock_digest: str
    digest: str | None = None
    base: str | None = None
    size: int | None = None
    layers: tuple[Layer, ...] | None = None
    engine_id: str | None = None


@dataclass(frozen=True)
class ProbeRequest:
    """A run of the probe: its zipapp, its arguments, and the files to put next to it, by name.

    gpus: the UUIDs of the GPUs that a container gets; empty for all that the engine offers.
    """

    archive: bytes
    arguments: tuple[str, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)
    timeout_s: float = 600.0
    gpus: tuple[str, ...] = ()


class Engine(Protocol):
    """Builds an environment from a lock and runs the probe in it."""

    @property
    def name(self) -> str:
        """Return `docker`, `podman`, `venv` or `layout`."""

    #: The probe runs in a container: it can't reach this machine's files or keys, and it gets only the GPUs
    #: that the request names. Only such measurements are signed.
    isolates: bool

    def describe(self) -> str:
        """Return the name and version, then details, separated by commas (`Docker 28.5.2, no GPUs`)."""

    def provides(self, python: str) -> str | None:
        """Return None if the engine can provide this Python (`3.12`), otherwise the reason why not."""

    def host_facts(self) -> dict[str, Any]:
        """Return the stable facts about the engine's host that a measurement depends on. This is fast."""

    def outside(self) -> Outside | Unread:
        """Return the driver and the GPUs that it offers to the probe, read on the host, outside the
        environment; or why they can't be read. This may take seconds.
        """

    def existing(self, spec: ImageSpec, lock: Lock) -> Built | None:
        """Return what was built earlier from exactly this lock, or None if it no longer exists."""

    def build(self, spec: ImageSpec, lock: Lock, progress: Progress) -> Built:
        """Build the environment. Raises BuildError if that fails, MissingError if something it needs is
        missing.
        """

    def probe(self, built: Built, request: ProbeRequest, progress: Progress) -> bytes:
        """Run the probe in the environment and return its standard output: the report, as JSON.

        Raises ValidatorError if there is no report.
        """

    def close(self) -> None:
        """Close connections."""


@runtime_checkable
class ImageEngine(Engine, Protocol):
    """An engine that runs images. It pulls with its own credentials.

    References are `host/path@sha256:…`.
    """

    def pull(self, spec: ImageSpec, lock: Lock, reference: str, progress: Progress) -> Built:
        """Pull an image by its digest. Raises MissingError if that fails."""


#: The package in the archive that lists the checks of an image, and imports one of them by its name.
_PACKAGE = "validator/probe/own"
#: Bytes of a check's file: much more is not a check.
_LARGEST = 1 << 20
_MANUAL = f"{manual('reference/matrix.md')} describes checks of your own"


@dataclass(frozen=True)
class PackedCheck:
    """A check with its source. title: the first line of its docstring, or its path."""

    file: CheckFile
    source: bytes
    title: str


def read_checks(directory: Path, files: Iterable[CheckFile]) -> tuple[PackedCheck, ...]:
    """Return the checks of an image. directory: of the matrix file, for their paths.

    Raises InputError if one can't be read, is not a check, or has changed since the matrix was read.
    """
    found = tuple(_read(directory / file.path, file) for file in files)
    for identifier, count in Counter(check.file.id for check in found).items():
        if count > 1:
            raise InputError(
                f"{count} checks are named {identifier}", hint="rename one of their files: the id is its name"
            )
    return found


def read_files(paths: Iterable[Path]) -> tuple[PackedCheck, ...]:
    """Return the checks in files, each of them required. Raises InputError as `read_checks` does."""
    files = (CheckFile(str(path), hashlib.sha256(_content(path)).hexdigest()) for path in paths)
    return read_checks(Path(), files)


def _read(path: Path, file: CheckFile) -> PackedCheck:
    if path.suffix != ".py" or not is_own(file.id):
        raise InputError(
            f"{path}: the name of a check's file has only lower-case letters, digits and underscores, begins"
            " with a letter and ends in .py",
            hint="rename it, such as to our_check.py",
        )
    source = _content(path)
    if hashlib.sha256(source).hexdigest() != file.sha256:
        raise InputError(f"{path} has changed while it was used", hint="run the same command again")
    try:
        module = ast.parse(source, str(path))
    except (SyntaxError, ValueError) as error:
        raise InputError(f"{path} is not valid Python: {error}", hint=_MANUAL) from error
    if not any(isinstance(node, ast.FunctionDef) and node.name == "check" for node in module.body):
        raise InputError(f"{path} has no function `check`", hint=_MANUAL)
    lines = (ast.get_docstring(module) or "").strip().splitlines()
    return PackedCheck(file, source, (lines[0] if lines else "") or file.path)


def _content(path: Path) -> bytes:
    try:
        content = read_file(path)
    except OSError as error:
        raise InputError(f"{path}: the check can't be read: {error.strerror}", hint=_MANUAL) from error
    if len(content) > _LARGEST:
        raise InputError(f"{path}: a check with more than {_LARGEST >> 20} MiB is not accepted", hint=_MANUAL)
    return content


def members(checks: Sequence[PackedCheck]) -> dict[str, bytes]:
    """Return the files to add to the archive, by name."""
    if not checks:
        return {}
    listed = [
        {
            "id": check.file.id,
            "module": Path(check.file.path).stem,
            "title": check.title,
            "required": check.file.required,
            "limit_s": check.file.timeout_s,
        }
        for check in checks
    ]
    modules = {f"{_PACKAGE}/{Path(check.file.path).name}": check.source for check in checks}
    return {f"{_PACKAGE}/checks.json": json.dumps(listed, indent=1).encode(), **modules}


_ROOT = Path(__file__).parent.parent
#: The sources in the archive. They are under `validator/` there too, so that relative imports work in both
#: places. The package itself is empty: nothing else of this project is in the archive.
_PATTERNS = (
    "probe/**/*.py",
    "probe/data/*.json",
    "problems.py",
    "problems.json",
    "version_numbers.py",
    "_vendor/**/*.py",
    "_vendor/packaging/LICENSE*",
)
_VERSION_FILE = "validator/probe/VERSION"
#: The first line of a zipapp.
INTERPRETER = b"#!/usr/bin/env python3\n"
#: Valid even in old Pythons that somebody may start it with by mistake, so that it can say what is wrong.
_MAIN = b"""\
import sys

if sys.version_info < (3, 9):
    sys.exit("probe: needs Python 3.9 or newer, this is %d.%d" % sys.version_info[:2])
from validator.probe.cli import main

sys.exit(main())
"""
#: Starts the probe from the sources of this project. Their byte code is cached; that of an archive is not.
FROM_SOURCES = """\
import sys
if sys.version_info < (3, 9):
    sys.exit("Python %d.%d is too old to be examined" % sys.version_info[:2])
sys.path.append(sys.argv.pop(1))
from validator.probe.cli import main

sys.exit(main())
"""
#: ZIP has no dates before 1980; every member has this one.
_DATE = (1980, 1, 1, 0, 0, 0)
#: The probe itself gives each of the driver's two libraries half a minute.
_ANSWER_LIMIT_S = 90.0
#: Seconds that a run may take, by depth. The probe then stops by itself, and its report says which checks
#: did not run; it is killed only if it does not stop.
_RUN_LIMITS_S = {"quick": 1800.0, "full": 3600.0}
_GRACE_S = 100.0


@functools.cache
def probe_archive(own: tuple[PackedCheck, ...] = ()) -> bytes:
    """Return the archive (a zipapp), for `put_archive`, or to write to a file and copy anywhere.

    own: checks of the user's own, to run after the others.
    """
    version = probe_version(own).encode() + b"\n"
    files = {**_sources(), **members(own), "__main__.py": _MAIN, _VERSION_FILE: version}
    return zip_archive(files, INTERPRETER)


def zip_archive(files: Mapping[str, bytes], before: bytes = b"") -> bytes:
    """Return an archive of these files, the same on every machine. before: bytes to begin with."""
    buffer = io.BytesIO(before)
    buffer.seek(0, io.SEEK_END)
    # Stored, not deflated: the output of deflate depends on the version of zlib.
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in sorted(files.items()):
            member = zipfile.ZipInfo(name, _DATE)
            member.create_system = 3
            member.external_attr = 0o100644 << 16
            archive.writestr(member, content)
    return buffer.getvalue()


def probe_version(own: Sequence[PackedCheck] = ()) -> str:
    """Return the version in this probe's reports: `__version__` and a digest of the sources.

    It looks like `1.0.0+0123456789ab`: a changed probe has a changed version, and so has one with other
    checks of the user's own.
    """
    sources = _sources()
    declared = re.search(rb'^__version__ = "([^"]+)"$', sources["validator/probe/__init__.py"], re.MULTILINE)
    if declared is None:
        raise AssertionError("validator/probe/__init__.py declares no __version__")
    digest = hashlib.sha256()
    for name, content in sorted({**sources, **members(own), "": _MAIN}.items()):
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    return f"{declared[1].decode()}+{digest.hexdigest()[:12]}"


def probe_request(
    depth: str,
    lock: bytes | None = None,
    arguments: Iterable[str] = (),
    *,
    challenge: str | None = None,
    gpus: tuple[str, ...] = (),
    own: tuple[PackedCheck, ...] = (),
) -> ProbeRequest:
    """Return a run of the probe.

    depth: `quick` or `full`. lock: pins to compare with what is installed. challenge: for the report to
    repeat.
    gpus: see `ProbeRequest`. own: checks of the user's own.
    """
    limit_s = _RUN_LIMITS_S[depth] + sum(check.file.timeout_s for check in own)
    return ProbeRequest(
        probe_archive(own),
        (
            *("--depth", depth, "--time-limit", f"{limit_s:.0f}"),
            *(() if lock is None else ("--lock", "lock.txt")),
            *(() if challenge is None else ("--challenge", challenge)),
            *arguments,
        ),
        {} if lock is None else {"lock.txt": lock},
        limit_s + _GRACE_S,
        gpus,
    )


def local_host_facts() -> dict[str, Any]:
    """Return the `host` of a report from this machine. This takes a fraction of a second.

    Raises ValidatorError when the probe does not answer.
    """
    facts: dict[str, Any] = _ask("--host-facts")
    return facts


def probe_checks() -> tuple[CheckDescription, ...]:
    """Return the probe's checks in the order of a report. Raises ValidatorError."""
    return convert(_ask("--list"), tuple[CheckDescription, ...])


def _ask(question: str) -> Any:
    """Ask the probe in a separate process: a driver's library may crash the process that loads it."""
    done = processes.run(
        # Isolated: modules in the current directory or on PYTHONPATH are not imported.
        [sys.executable, "-I", "-c", FROM_SOURCES, _ROOT.parent, question],
        timeout_s=_ANSWER_LIMIT_S,
    )
    if not done.ok:
        raise ValidatorError(
            f"the probe did not answer {question} (status {done.returncode}): {done.stderr_tail.strip()}",
            hint=f"run `python -m validator.probe.cli {question}` to see what it does",
        )
    return json.loads(done.stdout)


@functools.cache
def _sources() -> dict[str, bytes]:
    paths = [path for pattern in _PATTERNS for path in _ROOT.glob(pattern)]
    found = {f"validator/{path.relative_to(_ROOT).as_posix()}": path.read_bytes() for path in paths}
    return {**found, "validator/__init__.py": b""}


#: A script for `/bin/sh -c`, whose further arguments are a Python script and its arguments. In any image, it
#: uses the first interpreter that has TensorFlow, or else the first one, which will report that TensorFlow is
#: missing. Names without a slash are looked up on PATH.
START = """\
set -u
first=
for python in python3 python /opt/venv/bin/python /opt/conda/bin/python /usr/local/bin/python3 \\
    /usr/bin/python3
do
    command -v "$python" >/dev/null 2>&1 || continue
    first=${first:-$python}
    if "$python" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("tensorflow") is None)' \\
        >/dev/null 2>&1
    then
        exec "$python" "$0" "$@"
    fi
done
if [ -z "$first" ]; then exit 127; fi
exec "$first" "$0" "$@"
"""
#: The exit status of an image that has no Python.
NO_PYTHON = 127

# Run the probe with a Python of this machine, which may be that of any environment.

#: Python takes a while to start from a slow network drive.
_START_TIMEOUT_S = 60.0
#: The oldest Python that the probe supports.
_PROBE_PYTHON = (3, 9)
_CHOOSE_PYTHON = "give the Python of the environment to examine, such as ~/venv/bin/python"
#: Variables that would make the probed environment use parts of the calling one.
_OF_THE_CALLER = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX")


def run_probe(
    python: Path,
    request: ProbeRequest,
    progress: Progress,
    libraries: Sequence[Path] = (),
    environment: Mapping[str, str] | None = None,
) -> bytes:
    """Run the probe with any Python on this machine and return its standard output.

    libraries: directories that the loader searches before those in LD_LIBRARY_PATH.
    environment: the variables of the probe; by default those of this process, without those that would make
        the probed environment use parts of the calling one.
    Raises ValidatorError if the probe writes nothing or exceeds its time limit.
    """
    with full_disk_named(tempfile.gettempdir()), temporary_directory("probe") as directory:
        for file, content in {"probe.pyz": request.archive, **request.files}.items():
            (directory / file).write_bytes(content)
        variables = clean_environment() if environment is None else dict(environment)
        if libraries:
            path = [*map(str, libraries), variables.get("LD_LIBRARY_PATH", "")]
            variables["LD_LIBRARY_PATH"] = ":".join(part for part in path if part)
        try:
            result = processes.run(
                [python, directory / "probe.pyz", *request.arguments],
                env=variables,
                cwd=directory,
                timeout_s=request.timeout_s,
                on_line=progress,
            )
        except OSError as error:
            raise MissingError(f"{python}: can't be run: {error.strerror}", hint=_CHOOSE_PYTHON) from error
    if result.timed_out:
        raise ValidatorError(
            f"the probe exceeded its time limit of {request.timeout_s:.0f} s and was stopped"
        )
    if not result.stdout.strip():
        raise no_report("the probe", result.returncode, processes.last_line(result.stderr_tail))
    return result.stdout


def no_report(what: str, status: int, last: str) -> ValidatorError:
    """Return the error for a probe that wrote no report. last: the last line that it wrote."""
    start, refuses, reason = last.partition("probe: error: ")
    if refuses and not start:
        return InputError(f"{what} refuses its input: {reason}", hint="correct --lock, --only or --skip")
    return ValidatorError(f"{what} exited with status {status} without a report: {last}")


def refuse_other_program(python: Path) -> None:
    """Raise InputError if a program is not a Python, or is one that the probe does not support."""
    program = "import sys; sys.stdout.write('%d.%d' % sys.version_info[:2])"
    try:
        result = processes.run([python, "-c", program], env=clean_environment(), timeout_s=_START_TIMEOUT_S)
    except OSError as error:
        raise InputError(f"--python: {python} can't be run: {error.strerror}", hint=_CHOOSE_PYTHON) from error
    answer = result.stdout.decode(errors="replace").strip()
    version = re.fullmatch(r"(\d)\.(\d+)", answer)
    if version is None:
        stderr = result.stderr_tail.strip().splitlines()[:1]
        output = f"its output is {answer[:80]!r}" if answer else (stderr or ["it has no output"])[0]
        raise InputError(f"--python: {python} is not a Python: {output}", hint=_CHOOSE_PYTHON)
    if (int(version[1]), int(version[2])) < _PROBE_PYTHON:
        oldest = ".".join(map(str, _PROBE_PYTHON))
        raise InputError(
            f"--python: {python} is Python {answer}, but the probe needs {oldest} or newer",
            hint=_CHOOSE_PYTHON,
        )


def clean_environment() -> dict[str, str]:
    """Return the variables of this process without those of its own environment."""
    return {name: value for name, value in os.environ.items() if name not in _OF_THE_CALLER}
