"""The names under which our things are found again: labels, image names, this project's own files."""

from __future__ import annotations

import hashlib
from pathlib import Path

#: The image repository and the prefix of our labels.
PROJECT = "tensorflow-gpu-matrix"

LABEL_SPEC = f"{PROJECT}.image-spec"
LABEL_LOCK = f"{PROJECT}.lock-digest"
LABEL_BASE = f"{PROJECT}.base"
LABEL_RECIPE = f"{PROJECT}.recipe"
#: On containers: the process that started them, see `containers.owner`.
LABEL_OWNER = f"{PROJECT}.probe-of"

#: Dockerfile, build scripts and the script that cleans a bootstrapped base.
IMAGES = Path(__file__).resolve().parents[3] / "images"

#: A tag has at most 128 characters (OCI distribution specification).
_LONGEST_TAG = 128


def image_reference(identifier: str) -> str:
    """The image name of an image spec. A tag that would be too long ends in a digest instead."""
    if len(identifier) > _LONGEST_TAG:
        digest = hashlib.sha256(identifier.encode()).hexdigest()[:12]
        identifier = f"{identifier[: _LONGEST_TAG - 13]}-{digest}"
    return f"{PROJECT}:{identifier}"


def recipe_digest(directory: Path = IMAGES) -> str:
    """`sha256:` over the Dockerfile and its scripts: an image made by an older recipe is not up to date."""
    digest = hashlib.sha256()
    for path in [directory / "Dockerfile", *sorted((directory / "build").iterdir())]:
        content = path.read_bytes()
        digest.update(f"{path.name} {len(content)}\n".encode() + content)
    return f"sha256:{digest.hexdigest()}"
