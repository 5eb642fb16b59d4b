"""Words for the parts of a diagnosis, which a terminal, an issue tracker and the page share.

This imports only the standard library, because a browser has nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..model.diagnosis import GPU_USED, NO_FAULT, NO_GPU_LISTED, NOT_SHOWN, UNRECOGNIZED, Diagnosis
from .printable import one_line

#: Names of the facts, in the order in which they are shown.
_FACTS = {
    "tensorflow": "TensorFlow",
    "python": "Python",
    "keras": "Keras",
    "cuda": "CUDA",
    "cudnn": "cuDNN",
    "driver": "driver",
    "driver_cuda": "CUDA of the driver",
    "gpu": "GPU",
    "os": "on",
    "image": "image",
}
#: Names of the facts that are missing, by the fields of `Host` and `Software`.
MISSING = {
    "tensorflow": "the TensorFlow release",
    "python": "the Python version",
    "cuda": "the CUDA libraries",
    "cudnn": "cuDNN",
    "machine": "the processor architecture",
    "wheel": "where TensorFlow was installed from",
    "library_path": "LD_LIBRARY_PATH",
    "driver": "the NVIDIA driver",
    "gpu": "the GPU",
    "system": "the operating system",
}
#: Answers without a cause.
_HEADLINES = {
    UNRECOGNIZED: "Unknown: this matches no known cause.",
    NO_GPU_LISTED: "TensorFlow lists no GPU, but this does not show why.",
    GPU_USED: "No fault found: TensorFlow uses the GPU.",
    NO_FAULT: "No fault found.",
    NOT_SHOWN: "Not enough to tell: this shows neither a fault nor that the GPU is used.",
}


def environment_facts(diagnosis: Diagnosis) -> Sequence[str]:
    """Return what is known about the environment: `TensorFlow 2.18.0`, `driver 535.183.01`."""
    return [f"{_FACTS[name]} {one_line(diagnosis.facts[name])}" for name in _FACTS if name in diagnosis.facts]


def headline(diagnosis: Diagnosis) -> str:
    """Return the answer in one sentence where no cause was found."""
    if diagnosis.answer == NOT_SHOWN and diagnosis.harmless:
        return "No fault found: the messages are harmless. This does not show whether the GPU is used."
    return _HEADLINES[diagnosis.answer]


def missing_facts(diagnosis: Diagnosis) -> Sequence[str]:
    """Return the facts that would tell more, in words."""
    return fact_names(diagnosis.missing)


def fact_names(fields: Iterable[str]) -> Sequence[str]:
    """Return what fields of `Host` and `Software` are about, in words."""
    return [MISSING.get(name, name) for name in fields]
