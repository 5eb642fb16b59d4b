"""Tell how old the facts are, and whether the package index has releases that they do not know."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence

from . import facts, policies, releases

#: Facts that are older than this are worth a remark.
OLDEST = datetime.timedelta(days=60)
#: The kinds of `News`, as keys of what is remembered: releases, and Pythons as `2.21.0 for Python 3.14`.
TENSORFLOW, PYTHON, CUDA, CUDNN = "TensorFlow", "TensorFlow wheels of", "CUDA", "cuDNN"


def read_on() -> datetime.date:
    """Return the day on which the facts were last compared with the whole package index."""
    return min(datetime.date.fromisoformat(row["read"]) for row in facts.rows("wheels", "cudnn"))


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
    age = today - read_on()
    if age > OLDEST:
        return f"These facts are {age.days} days old: they were read on {read_on()}. {_UPDATE}"
    return None


_UPDATE = "Update this package; `validator refresh --check` lists what is new."
