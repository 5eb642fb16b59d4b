"""Is what is installed exactly what the lock says?

The lock is requirements text as `uv pip compile --generate-hashes` writes it.
"""

import re
from typing import Any, Dict, List

from ...problems import problem, statement
from ..check import HOST, Check, Context, Result, judged
from ..collectors.installed import normalized

#: Packages that are accepted without being locked, because an interpreter's distribution or `python -m venv`
#: installs them. None of them is used in a training run.
BOOTSTRAP = frozenset({"pip", "setuptools", "wheel"})

_NAME = r"([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^\]]*\])?"
_PIN = re.compile(rf"^{_NAME}\s*==\s*([^\s;\\]+)\s*(?:;[^\\]*)?\s*(?:\\|--hash|#|$)")


class LockError(ValueError):
    """The text is not a lock."""


def pins(text: str) -> Dict[str, str]:
    """Return the pinned versions by normalized name. Raises LockError with the line of anything that is not a
    pin."""
    found: Dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith(("#", "--hash=")):
            continue
        match = _PIN.match(stripped)
        if not match:
            raise LockError(f'line {number}: "{stripped[:80]}" is not a pin (expected name==version)')
        name = normalized(match[1])
        if name in found:
            raise LockError(f"line {number}: {name} is pinned twice")
        found[name] = match[2]
    if not found:
        raise LockError("the lock has no pins")
    return found


#: What the project itself asks for: TensorFlow, pip, and NVIDIA's libraries.
_OURS = re.compile(
    r"tensorflow(-cpu)?|pip"
    r"|nvidia-(cublas|cuda-[a-z]+|cudnn|cufft|curand|cusolver|cusparse|nccl|nvjitlink|nvshmem)(-cu\d+)?"
)
_REQUIRES = re.compile(rf"^# requires: {_NAME}", re.MULTILINE)


def added(text: str) -> List[str]:
    """Return the normalized names of the packages that the lock was resolved with and TensorFlow does not
    need, sorted; a package whose marker did not apply is not pinned, and not returned."""
    pinned = pins(text)
    names = {normalized(match[1]) for match in _REQUIRES.finditer(text)}
    return sorted(name for name in names if name in pinned and not _OURS.fullmatch(name))


def _run(context: Context) -> Result:
    installed = context.facts["environment"]["packages"]
    lock = context.lock or {}
    evidence = {
        "locked": len(lock),
        "tolerated": sorted(BOOTSTRAP & (installed.keys() - lock.keys())),
    }
    return judged(
        _problems(lock, installed), lambda: statement("packages_as_locked", count=len(lock)), evidence
    )


def _problems(lock: Dict[str, str], installed: Dict[str, str]) -> List[Dict[str, Any]]:
    names = sorted((lock.keys() | installed.keys()) - (BOOTSTRAP - lock.keys()))
    found = []
    for name in names:
        locked, there = lock.get(name), installed.get(name)
        if there is None:
            found.append(problem("locked_package_missing", package=name, locked=locked))
        elif locked is None:
            found.append(problem("package_not_locked", package=name, installed=there))
        elif locked != there:
            found.append(problem("package_version_differs", package=name, locked=locked, installed=there))
    return found


CHECK = Check(
    id="lock_match",
    title="Is what is installed exactly what the lock says?",
    stage=HOST,
    run=_run,
    limit_s=10,
    requires=("lock",),
)
