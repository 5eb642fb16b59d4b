"""Find out which commit of this project is running."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from . import processes

_PACKAGE = Path(__file__).resolve().parents[1]
_TIMEOUT_S = 20.0


def source_commit() -> str | None:
    """Return the commit that this project's files are checked out from.

    None for an installed package, without git, and if a file of the checkout differs from the commit.
    """
    # The package may be installed inside another project's repository, which does not track its files.
    if _git("ls-files", "--error-unmatch", "__init__.py") is None:
        return None
    commit, changed = _git("rev-parse", "HEAD"), _git("status", "--porcelain", "--untracked-files=no")
    if commit is None or changed != "":
        return None
    return commit if re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", commit) else None


def _git(*arguments: str) -> str | None:
    """Return the output of git, or None if it fails."""
    if shutil.which("git") is None:
        return None
    done = processes.run(["git", "-C", str(_PACKAGE), *arguments], timeout_s=_TIMEOUT_S)
    return done.stdout.decode("utf-8", "replace").strip() if done.ok else None
