"""Name images and machines in full, in words for somebody who does not know this project."""

from __future__ import annotations

from collections.abc import Sequence

from ...compat.errors import UnknownGpu
from ...compat.gpus import gpu
from ...compat.policies import is_recommended, why_recommended
from ...compat.releases import release
from ...model.record import Record
from ...model.spec import AS_BUILT, LATEST, Choice, HostClass, ImageSpec, Variant

#: The two parts of the name of a machine without a GPU.
WITHOUT_GPU = ("No GPU", "only the CPU")


def image_name(image: ImageSpec) -> str:
    """Return `TensorFlow 2.21.0, CUDA 12.5, cuDNN 9.3, Python 3.12`."""
    parts = [release_name(image), f"Python {image.python}"]
    if image.base is not None:
        parts.append(f"on {image.base}")
    if extra := extra_name(image):
        parts.append(extra)
    return ", ".join(parts)


def extra_name(image: ImageSpec) -> str | None:
    """Return what an image has in addition, such as `with JupyterLab`, or None."""
    if image.variant is Variant.JUPYTER:
        return "with JupyterLab"
    return f"with the additions of {image.additions.label}" if image.additions else None


def release_name(image: ImageSpec) -> str:
    """Return `TensorFlow 2.21.0, CUDA 12.5, cuDNN 9.3`, or `TensorFlow 2.21.0 without CUDA`."""
    if image.cuda is None or image.cudnn is None:
        return f"TensorFlow {image.tensorflow} without CUDA"
    return f"TensorFlow {image.tensorflow}, {_library('CUDA', image.cuda)}, {_library('cuDNN', image.cudnn)}"


def release_lines(image: ImageSpec) -> tuple[str, ...]:
    """Return the lines below a release in the heading of its column."""
    if image.cuda is None or image.cudnn is None:
        return ("without CUDA",)
    return tuple(
        f"newest {name}" if choice.floats else f"{name} {choice.version}"
        for name, choice in (("CUDA", image.cuda), ("cuDNN", image.cudnn))
    )


def release_meaning(image: ImageSpec, pythons: Sequence[str]) -> str:
    """Explain the CUDA and cuDNN of a column. pythons: those that share it."""
    if image.cuda is None or image.cudnn is None:
        libraries = "This is TensorFlow for the CPU: it uses no GPU."
    else:
        policies = {image.cuda.policy, image.cudnn.policy}
        if policies == {AS_BUILT}:
            libraries = "CUDA and cuDNN are those that this release was built with."
        elif is_recommended(image):
            libraries = f"Recommended: {why_recommended(release(image.tensorflow))}."
        elif policies == {LATEST}:
            libraries = "CUDA and cuDNN are the newest that pip installs with this release."
        else:
            libraries = "CUDA and cuDNN were chosen for this combination."
    return f"{libraries} Python {', '.join(pythons)}."


def planned_machine(host: HostClass) -> tuple[str, str]:
    """Return the GPU and the driver of a kind of machine: `NVIDIA H100` and `driver 580`."""
    if not host.has_gpu:
        return WITHOUT_GPU
    driver = f"driver {host.driver}"
    if host.compat:
        driver += f", with the cuda-compat package {host.compat}"
    return _gpu(host.gpu) if host.gpu else f"GPU with compute capability {host.compute_capability}", driver


def measured_machine(record: Record) -> tuple[str, str]:
    """Return the GPU and the driver that a record found on its machine."""
    facts = record.facts
    found = next(iter(facts.gpu_names), None)
    if found is None:
        return WITHOUT_GPU
    return _gpu(found), f"driver {facts.driver}" if facts.driver else "no NVIDIA driver"


def _library(name: str, choice: Choice) -> str:
    # A floating choice is known by its policy; its version depends on the day.
    return f"newest {name} ({choice.version})" if choice.floats else f"{name} {choice.version}"


def _gpu(model: str) -> str:
    try:
        return f"NVIDIA {gpu(model).name}"
    except UnknownGpu:
        return model
