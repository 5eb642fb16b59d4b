"""Pack the probe into one file that any Python from 3.9 on can run: `python3 probe.pyz > report.json`.

The same sources give the same bytes on every machine, so that a record can name the probe by its version.
This module also asks the probe about this machine, which needs no environment.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
import re
import sys
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ..errors import ValidatorError
from ..model.codec import convert
from ..model.report import CheckDescription
from ..system import processes
from .own_checks import PackedCheck, members
from .protocol import ProbeRequest

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
_INTERPRETER = b"#!/usr/bin/env python3\n"
#: Valid even in old Pythons that somebody may start it with by mistake, so that it can say what is wrong.
_MAIN = b"""\
import sys

if sys.version_info < (3, 9):
    sys.exit("probe: needs Python 3.9 or newer, this is %d.%d" % sys.version_info[:2])
from validator.probe.cli import main

sys.exit(main())
"""
#: Starts the probe from the sources of this project. Their byte code is cached; that of an archive is not.
_FROM_SOURCES = """\
import sys

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
    buffer = io.BytesIO(_INTERPRETER)
    buffer.seek(0, io.SEEK_END)
    # Stored, not deflated: the output of deflate depends on the version of zlib.
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in sorted(_members(own).items()):
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
    limit_s = _RUN_LIMITS_S[depth] + sum(check.timeout_s for check in own)
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
        [sys.executable, "-I", "-c", _FROM_SOURCES, _ROOT.parent, question],
        timeout_s=_ANSWER_LIMIT_S,
    )
    if not done.ok:
        raise ValidatorError(
            f"the probe did not answer {question} (status {done.returncode}): {done.stderr_tail.strip()}",
            hint=f"run `python -m validator.probe {question}` to see what it does",
        )
    return json.loads(done.stdout)


def _members(own: Sequence[PackedCheck]) -> dict[str, bytes]:
    version = probe_version(own).encode() + b"\n"
    return {**_sources(), **members(own), "__main__.py": _MAIN, _VERSION_FILE: version}


@functools.cache
def _sources() -> dict[str, bytes]:
    paths = [path for pattern in _PATTERNS for path in _ROOT.glob(pattern)]
    found = {f"validator/{path.relative_to(_ROOT).as_posix()}": path.read_bytes() for path in paths}
    return {**found, "validator/__init__.py": b""}
