"""Say what is in official images with TensorFlow or CUDA, by their names."""

from __future__ import annotations

import re

from ..errors import InputError
from ..model.prediction import NGC, PYPI, Software
from ..versions import Range, leading_numbers, release_comparer
from . import facts
from .releases import newest, release_of_any_age

_REFERENCE = re.compile(
    r"(?:docker\.io/|index\.docker\.io/)?(?P<name>tensorflow/tensorflow|nvcr\.io/nvidia/tensorflow)"
    r"(?::(?P<tag>[\w.-]+))?(?:@[\w.+-]+:[0-9a-f]+)?"
)
_TAG = re.compile(
    r"(?P<version>[0-9]{1,4}(?:\.[0-9]{1,4}){2}(?:(?:a|b|rc)[0-9]{1,4})?(?:\.post[0-9]{1,4})?|latest)"
    r"(?P<variants>(?:-(?:gpu|jupyter|py3))*)"
)


def software_in(reference: str) -> Software | None:
    """Return the software of an official TensorFlow image; None for the name of any other image.

    Raises InputError for an official image without CUDA, and for a tag whose contents the facts don't have.
    """
    match = _REFERENCE.fullmatch(reference)
    if match is None:
        return None
    if match["name"].startswith("nvcr.io/"):
        return _of_nvidia(match["tag"] or "")
    tag = _TAG.fullmatch(match["tag"] or "latest")
    if tag is None:
        raise InputError(
            f"it is not known which TensorFlow is in {reference}",
            hint="name a tag with a release, such as 2.17.0-gpu, or give --tensorflow, --cuda and --cudnn",
        )
    if "-gpu" not in tag["variants"]:
        raise InputError(
            f"{reference} has no CUDA, so it uses no GPU",
            hint=f"its variant for GPUs is {match['name']}:{tag['version']}-gpu{tag['variants']}",
        )
    version = newest().version if tag["version"] == "latest" else tag["version"]
    for row in facts.rows("base_images", "tensorflow"):
        if Range.parse(row["releases"], release_comparer).contains(version):
            return Software(version, row["python"], row["cuda"], row["cudnn"], PYPI, library_path=True)
    # The Dockerfiles of older releases install what the release was tested with.
    built = release_of_any_age(version)
    return Software(
        version, None, built.cuda if built else None, built.cudnn if built else None, PYPI, library_path=True
    )


def _of_nvidia(tag: str) -> Software:
    rows = facts.rows("base_images", "ngc")
    row = next((row for row in rows if row["tag"] == tag), None)
    if row is None:
        raise InputError(
            f"it is not known what is in nvcr.io/nvidia/tensorflow:{tag or 'latest'}",
            hint=f"the facts have {', '.join(row['tag'] for row in rows)}; for another tag, give"
            " --tensorflow, --cuda, --cudnn and --wheel ngc, as its release notes say",
        )
    contents = (row["tensorflow"], row["python"], row["cuda"], row.get("cudnn"))
    return Software(*contents, wheel=NGC, library_path=True)


def cudnn_of_image(cuda: str, tag: str) -> str:
    """Return the version of cuDNN in an image of nvidia/cuda, or an empty string if it is not known.

    Return only the major version (`8`) if the facts don't have this image but its tag names it.
    cuda: the release of CUDA in its tag (`12.4.1`). tag: the part that asks for cuDNN (`cudnn`, `cudnn8`).
    """
    for row in facts.rows("base_images", "images"):
        if cuda in row["cuda"] and tag == row["tag"]:
            version: str = row["cudnn"]
            return version
    return tag.removeprefix("cudnn")


def image_with(cuda: str, cudnn: str) -> str:
    """Return the oldest known image of nvidia/cuda with these versions, or newer ones of the same majors.

    Return an empty string if the facts have none.
    """
    for row in facts.rows("base_images", "images"):
        last = row["cuda"][-1]
        if all(
            leading_numbers(has)[:1] == leading_numbers(needs)[:1]
            and leading_numbers(has) >= leading_numbers(needs)
            for has, needs in ((last, cuda), (row["cudnn"], cudnn))
        ):
            return f"nvidia/cuda:{last}-{row['tag']}-runtime-ubuntu22.04"
    return ""
