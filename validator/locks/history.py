"""Find what a lock was before its last change, in the git history of the repository that has it."""

from __future__ import annotations

import shutil
from pathlib import Path

from ..errors import InputError
from ..model.lock import Lock
from ..system import processes
from .lock_files import parse, path_of, read

_TIMEOUT_S = 30.0
#: Commits to look at. Some changes of a lock leave its wheels as they are.
_COMMITS = 20


def previous(directory: Path, identifier: str) -> Lock | None:
    """Return the newest committed lock that has other wheels than the one that is there now.

    None without git, outside a repository, and if the wheels did not change in the last 20 commits of the
    lock that are here: a shallow clone has none.
    """
    if shutil.which("git") is None or not directory.is_dir():
        return None
    now, name = read(directory, identifier), f"./{path_of(Path(), identifier)}"
    listed = _git(directory, "log", f"--max-count={_COMMITS}", "--format=%H", "--", name)
    for commit in (listed or "").split():
        text = _git(directory, "show", f"{commit}:{name}")
        try:
            found = parse(text) if text else None
        except InputError:
            return None
        if found is not None and (now is None or found.digest != now.digest):
            return found
    return None


def _git(directory: Path, *arguments: str) -> str | None:
    result = processes.run(["git", *arguments], cwd=directory, timeout_s=_TIMEOUT_S)
    return result.stdout.decode("utf-8", "replace") if result.ok else None
