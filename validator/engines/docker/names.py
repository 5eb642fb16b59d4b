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
LABEL_TENSORFLOW = f"{PROJECT}.tensorflow"
LABEL_PYTHON = f"{PROJECT}.python"
#: Major and minor, as the image spec asks for them; gpu images only, as are the labels below.
LABEL_CUDA = f"{PROJECT}.cuda"
LABEL_CUDNN = f"{PROJECT}.cudnn"
#: The oldest driver release that runs the image's CUDA (minor-version compatibility).
LABEL_DRIVER = f"{PROJECT}.minimum-driver"
#: Compute capabilities that TensorFlow's wheel has machine code for, and PTX: `6.0 7.0 8.0`.
LABEL_SASS = f"{PROJECT}.sass"
LABEL_PTX = f"{PROJECT}.ptx"
#: On containers: the process that started them, see `containers.owner`.
LABEL_OWNER = f"{PROJECT}.probe-of"

#: Dockerfile, build scripts and the script that cleans a bootstrapped base.
IMAGES = Path(__file__).resolve().parents[3] / "images"

#: A tag has at most 128 characters (OCI distribution specification).
_LONGEST_TAG = 128


def image_reference(identifier: str) -> str:
    """The image name of an image spec."""
    return f"{PROJECT}:{_tag(identifier)}"


def cache_reference(repository: str, identifier: str) -> str:
    """Where a registry keeps the layers of an image spec's builds; each has its own, so that no two builds
    write to one."""
    return f"{repository}:{_tag(f'cache-{identifier}')}"


def _tag(text: str) -> str:
    """A tag that would be too long ends in a digest instead."""
    if len(text) > _LONGEST_TAG:
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        return f"{text[: _LONGEST_TAG - 13]}-{digest}"
    return text
