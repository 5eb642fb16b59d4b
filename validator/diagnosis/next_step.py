"""Decide what kind of answer was found, what to do next, and which command finds out more."""

from __future__ import annotations

import re
from collections.abc import Collection

from ..model.diagnosis import CAUSE_FOUND, NO_FAULT, NOT_SHOWN, UNRECOGNIZED
from ..model.prediction import Outcome, Prediction
from .causes import language
from .lookup import finder
from .observations import Observations

#: The program where there is neither a checkout nor an installation of it.
ANYWHERE = "uvx --from git+https://github.com/tensorflow-gpu-matrix/tensorflow-gpu-matrix validator"
#: The named condition that holds if the GPU was seen working, and the kind that is observed if somebody says
#: that they want no GPU.
_WORKS, _CPU_WANTED = "gpu_works", "cpu_wanted"
#: Names of images that mean nothing to a shell.
_IMAGE = re.compile(r"[\w.-]+(?:[/:@][\w.-]+)*")
#: Other ways to run an image than Docker, which `doctor --image` uses.
_OTHER_ENGINES = ("apptainer", "kubernetes")

_AFTER_CAUSE = "fix the first cause, then run `doctor` again in the environment where you train"
_NOT_RECOGNIZED = (
    "no known cause fits these lines; run this in that environment, or paste everything that was printed"
    " since TensorFlow was imported"
)
_WITHOUT_SYMPTOM = "run this in that environment: it shows whether the GPU is used, and if not, why"
_NOTHING = "nothing to fix; to measure whether training runs on the GPU, run this in that environment"


def answer(
    found: Observations, prediction: Prediction, causes: Collection[object], unknown: Collection[object]
) -> str:
    """Return which kind of answer this is.

    There is no fault only if the GPU was seen working and no facts speak against it, or if the CPU is used on
    purpose.
    """
    if causes:
        return CAUSE_FOUND
    if unknown:
        return UNRECOGNIZED
    works = language().parse(_WORKS).holds(finder(found, {})) and prediction.outcome is not Outcome.FAILS
    return NO_FAULT if works or is_cpu_wanted(found) else NOT_SHOWN


def is_cpu_wanted(found: Observations) -> bool:
    """Return whether somebody says that TensorFlow is to use the CPU, so that it is no fault if it does."""
    return found.has(_CPU_WANTED)


def next_step(answer: str) -> str:
    """Return what to do next, in one sentence."""
    if answer == CAUSE_FOUND:
        return _AFTER_CAUSE
    if answer == UNRECOGNIZED:
        return _NOT_RECOGNIZED
    return _NOTHING if answer == NO_FAULT else _WITHOUT_SYMPTOM


def command(found: Observations) -> str:
    """Return the command that measures the environment which the text is about, as far as it is known."""
    image = found.value("docker_run", "image") or found.value("image", "name")
    if image and _IMAGE.fullmatch(image) and not any(found.has(kind) for kind in _OTHER_ENGINES):
        return f"{ANYWHERE} doctor --image {image}"
    return f'{ANYWHERE} doctor --python "$(command -v python)"'
