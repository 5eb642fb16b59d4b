"""The names of images and of their labels."""

from __future__ import annotations

import hashlib

#: The image repository, and the prefix of labels.
PROJECT = "tensorflow-gpu-matrix"

LABEL_SPEC = f"{PROJECT}.image-spec"
LABEL_LOCK = f"{PROJECT}.lock-digest"
LABEL_BASE = f"{PROJECT}.base"
LABEL_RECIPE = f"{PROJECT}.recipe"
LABEL_TENSORFLOW = f"{PROJECT}.tensorflow"
LABEL_PYTHON = f"{PROJECT}.python"
#: Major and minor version from the image spec. This label and those below are only on gpu images.
LABEL_CUDA = f"{PROJECT}.cuda"
LABEL_CUDNN = f"{PROJECT}.cudnn"
#: The oldest driver release that runs the image's CUDA (minor-version compatibility).
LABEL_DRIVER = f"{PROJECT}.minimum-driver"
#: Compute capabilities that TensorFlow's wheel has machine code for, and PTX: `6.0 7.0 8.0`.
LABEL_SASS = f"{PROJECT}.sass"
LABEL_PTX = f"{PROJECT}.ptx"

#: A tag has at most 128 characters (OCI distribution specification).
_LONGEST_TAG = 128


def image_reference(identifier: str) -> str:
    """Return the image name of an image spec. If the tag is too long, a digest replaces its end."""
    # A tag can't have the + before the name of a wheel that no table lists.
    tag = identifier.replace("+", "-")
    if len(tag) > _LONGEST_TAG:
        tag = f"{tag[: _LONGEST_TAG - 13]}-{hashlib.sha256(tag.encode()).hexdigest()[:12]}"
    return f"{PROJECT}:{tag}"
