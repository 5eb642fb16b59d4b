"""Remedies with their placeholders filled, as readers in different situations get them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from validator.diagnosis.catalogue import CauseEntry, RemedyEntry, catalogue, causes, chosen_finder
from validator.diagnosis.combination import judge
from validator.diagnosis.conclusions import conclude
from validator.diagnosis.observations import Observations
from validator.diagnosis.observe import observe
from validator.diagnosis.remedies import Reader, fitting_remedies
from validator.diagnosis.text import read_text
from validator.model.diagnosis import Remedy

#: A value for everything that a remedy may name, from a machine where TensorFlow works.
VALUES = {
    "tensorflow": "2.18.0",
    "tensorflow_minor": "2.18",
    "cuda_needed": "12.5",
    "cuda_major": "12",
    "cudnn_needed": "9.3",
    "cudnn_major": "9",
    "pin_for_cudnn": "tensorflow-gpu~=1.14.0",
    "builds": "2.18 to 2.21: CUDA 12.5, cuDNN 9.3",
    "releases_for_cuda": "2.15 to 2.21: CUDA 12.5, cuDNN 9.3",
    "drivers": "2.15 to 2.21: driver 525.60.13",
    "driver_needed": "525.60.13",
    "gpu_package": "tensorflow-gpu==1.14.0",
    "directory": "/usr/local/cuda-12.5/lib64",
    "release_for_gpu": "2.16.2",
    "driver_branch": "570",
    "capability": "8.6",
    "pid": "3141",
    "image": "tensorflow/tensorflow:2.17.0-gpu",
    "extra": "[and-cuda]",
    "path": "/home/u/tensorflow.py",
    "renamed": "/home/u/my_tensorflow.py",
    "system": "linux",
}


def observed(text: str) -> Observations:
    """Return everything that a text shows, as the diagnosis has it when it chooses remedies."""
    found = observe(read_text(text), catalogue())
    conclude(found)
    judge(found)
    return found


def one_by_one(way_of_reader: str | None = None) -> Iterator[tuple[CauseEntry, Remedy]]:
    """Yield every remedy of every cause, filled with the first values that it fits."""
    found = observed("a line")
    for cause in causes():
        for entry in cause.remedies:
            values = next((one for one in _VARIANTS if _fits(entry, one, found)), VALUES)
            alone = replace(cause, remedies=(entry,))
            ways = frozenset({way_of_reader or entry.way} - {"any", "host"})
            for remedy in fitting_remedies(alone, values, found, Reader(ways)):
                yield cause, remedy


def _fits(entry: RemedyEntry, values: Mapping[str, str], found: Observations) -> bool:
    return entry.when.may_hold(chosen_finder(found, values))


_OLD = {
    "tensorflow": "2.13.1",
    "tensorflow_minor": "2.13",
    "cuda_needed": "11.8",
    "cuda_major": "11",
    "extra": "",
}
_VARIANTS = (
    VALUES,
    {**VALUES, **_OLD},
    {**VALUES, **_OLD, "tensorflow": "2.10.1", "system": "windows"},
    {**VALUES, "capability": "6.1"},
    {**VALUES, "capability": "12.0"},
)
