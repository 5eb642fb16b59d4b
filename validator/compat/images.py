"""Look up the cuDNN in NVIDIA's CUDA images."""

from __future__ import annotations

from . import facts


def cudnn_of_image(cuda: str, tag: str) -> str:
    """Return the version of cuDNN in an image of nvidia/cuda, or an empty string if it is not known.

    cuda: the release of CUDA in its tag (`12.4.1`). tag: the part that asks for cuDNN (`cudnn`, `cudnn8`).
    """
    for row in facts.rows("base_images", "images"):
        if cuda in row["cuda"] and tag == row["tag"]:
            version: str = row["cudnn"]
            return version
    return ""
