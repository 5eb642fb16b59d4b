"""Bring this project up to date: its facts, from the package index, and the dependencies that are pinned by
hash (Python packages, uv, base images and Debian packages). The command is `validator refresh`.

This module tells how old the facts are, and whether the package index has releases that they do not know. The
cache directory remembers when the index was asked, and what was new there.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence

from ..compat import facts, policies, releases
from ..system.files import cache_directory, write_atomically

#: Facts that are older than this are worth a remark.
OLDEST = datetime.timedelta(days=60)
#: The kinds of `News`, as keys of what is remembered: releases, and Pythons as `2.21.0 for Python 3.14`.
TENSORFLOW, PYTHON, CUDA, CUDNN = "TensorFlow", "TensorFlow wheels of", "CUDA", "cuDNN"


def remark(today: datetime.date, seen: Mapping[str, Sequence[str]]) -> str | None:
    """Return one line if the facts are out of date. seen: what the last `refresh --check` saw as new.

    seen has versions by kind. A Python is written as `2.21.0 for Python 3.14`. Unknown kinds are left out.
    """
    known: dict[str, set[str]] = {
        TENSORFLOW: {release.version for release in releases.releases()},
        PYTHON: {
            f"{release.version} for Python {python}"
            for release in releases.releases()
            for python in release.pythons
        },
        CUDA: {release.version for release in policies.cuda_releases()},
        CUDNN: {
            f"{version} ({row['suffix']})"
            for row in facts.rows("wheels", "cudnn")
            for version in row["releases"]
        },
    }
    unknown = [(kind, one) for kind, there in known.items() for one in seen.get(kind, ()) if one not in there]
    if unknown:
        others = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        name = " ".join(unknown[0])
        return f"These facts don't know {name}{others}, which the package index has. {_UPDATE}"
    age = today - facts.read_on()
    if age > OLDEST:
        return f"These facts are {age.days} days old: they were read on {facts.read_on()}. {_UPDATE}"
    return None


_UPDATE = "Update this package; `validator refresh --check` lists what is new."


_FILE = "refresh.json"


def remember(seen: Mapping[str, Sequence[str]], now: datetime.datetime) -> None:
    """Write what was new on the index at this time. seen: versions by kind. Raises MissingError."""
    content = {
        "asked": now.isoformat(timespec="seconds"),
        "new": {kind: list(found) for kind, found in seen.items()},
    }
    write_atomically(cache_directory() / _FILE, json.dumps(content, indent=1).encode() + b"\n")


def recall() -> dict[str, list[str]]:
    """Return what was new when the index was last asked; nothing if that is not known."""
    try:
        content = json.loads((cache_directory() / _FILE).read_bytes())
        found = content["new"].items()
        return {str(kind): [str(version) for version in versions] for kind, versions in found}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        # The cache may be deleted or damaged at any time. The next `refresh --check` writes it again.
        return {}
