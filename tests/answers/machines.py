"""Answers about machines, for the tests of their parts."""

from __future__ import annotations

import json
from typing import Any

from validator.answers import ask
from validator.compat import policies
from validator.compat.releases import release
from validator.model import spec

DIGEST, OTHER = f"sha256:{7:064x}", f"sha256:{8:064x}"
_CHOSEN = policies.choose(release("2.21.0"), spec.RECOMMENDED, spec.RECOMMENDED)
RECOMMENDED = spec.ImageSpec("2.21.0", "3.12", spec.Variant.GPU, *_CHOSEN).identifier
AS_BUILT = "tf2.21.0-cuda12.5-cudnn9.3-py312"
PINNED = "tf2.21.0-cuda12.8-cudnn9.24-py312"
NEWEST_LIBRARIES = "tf2.21.0-cudalatest-cudnnlatest-py312"
A100 = {"gpu": "a100", "driver": "580", "python": "3.12"}
RTX_5090 = {"gpu": "rtx 5090", "driver": "570", "python": "3.12"}


def works(**changes: Any) -> dict[str, Any]:
    """Return the answer about a Linux machine with x86_64. changes: to the question."""
    question: dict[str, Any] = {
        "kind": "works", "gpu": "", "driver": "", "python": "", "system": "linux", "machine": "x86_64",
        "registry": None, "images": {}, "verdicts": {},
    }  # fmt: skip
    found: dict[str, Any] = json.loads(ask(json.dumps(question | changes)))
    return found


def modes(answer: dict[str, Any]) -> dict[str, tuple[str | None, str]]:
    """Return the release and the outcome of each mode."""
    return {row["mode"]: (row["release"], row["outcome"]) for row in answer["modes"]}


def way(answer: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a way of getting TensorFlow: `image` or `pip`."""
    return next(row for row in answer["ways"] if row["way"] == name)


def pullable(verdicts: dict[str, str], **machine: str) -> dict[str, Any]:
    """Return the answer if images can be pulled and have these verdicts on an A100 with R580."""
    return works(
        **machine,
        registry="registry.example.org/tf",
        images=dict.fromkeys(verdicts, DIGEST),
        verdicts={
            f"{image}@r580-a100": {"verdict": verdict, "digest": DIGEST}
            for image, verdict in verdicts.items()
        },
    )
