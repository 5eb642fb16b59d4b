"""Decide what kind of answer was found, what to do next, and which command finds out more."""

from __future__ import annotations

import re
from collections.abc import Collection

from ..model.diagnosis import CAUSE_FOUND, GPU_USED, NO_FAULT, NO_GPU_LISTED, NOT_SHOWN, UNRECOGNIZED
from ..model.prediction import Outcome, Prediction
from .causes import language
from .lookup import finder
from .observations import Observations

#: How to start the program where it is neither checked out nor installed.
ANYWHERE = "uvx --from git+https://github.com/tensorflow-gpu-matrix/tensorflow-gpu-matrix validator"
#: The named condition that holds if the GPU was seen working, and the kind that is observed if somebody says
#: that they want no GPU.
_WORKS, _CPU_WANTED = "gpu_works", "cpu_wanted"
#: The kinds that are observed if TensorFlow lists a GPU, and if it lists none.
_GPU_LISTED, _NO_GPU_LISTED = "gpu_list", "gpu_list_empty"
#: Names of images that mean nothing to a shell.
_IMAGE = re.compile(r"[\w.-]+(?:[/:@][\w.-]+)*")
#: Conditions with which the image is run in another way than with Docker, which `doctor --image` uses.
_OTHER_ENGINES = ("apptainer", "kubernetes")

_NOTHING = "nothing to fix; to measure whether training runs on the GPU, run this in that environment"
#: Kind of answer -> what to do next.
_NEXT_STEPS = {
    CAUSE_FOUND: "fix the first cause, then run `doctor` again in the environment where you train",
    UNRECOGNIZED: "no known cause fits these lines; run this in that environment, or paste everything that"
    " was printed since TensorFlow was imported",
    NO_GPU_LISTED: "paste everything that was printed since TensorFlow was imported, and the output of"
    " `nvidia-smi` and `pip list`; or run this in that environment",
    NOT_SHOWN: "run this in that environment: it shows whether the GPU is used, and if not, why",
    GPU_USED: _NOTHING,
    NO_FAULT: _NOTHING,
}
_ONLY_MACHINE = (
    "if TensorFlow does not use this GPU, paste what it printed since it was imported, and the output of"
    " `pip list`; or run this in that environment"
)


def answer(
    observations: Observations, prediction: Prediction, causes: Collection[object], faults: Collection[str]
) -> str:
    """Return which kind of answer this is. faults: the kinds that were observed and that no cause explains.

    There is no fault only if the GPU was seen working or is listed, and no facts speak against it, or if the
    CPU is used on purpose.
    """
    if causes:
        return CAUSE_FOUND
    if faults:
        return NO_GPU_LISTED if set(faults) == {_NO_GPU_LISTED} else UNRECOGNIZED
    # XLA alone may fail on a GPU that works.
    fails = (prediction.eager or prediction.outcome) is Outcome.FAILS
    if not fails and language().parse(_WORKS).holds(finder(observations, {})):
        return GPU_USED
    listed = observations.has(_GPU_LISTED) and not fails
    return NO_FAULT if listed or is_cpu_wanted(observations) else NOT_SHOWN


def is_cpu_wanted(observations: Observations) -> bool:
    """Return whether somebody says that TensorFlow is to use the CPU, so that it is no fault if it does."""
    return observations.has(_CPU_WANTED)


def next_step(answer: str, *, only_machine: bool) -> str:
    """Return what to do next, in one sentence. only_machine: the text shows a machine, but no TensorFlow."""
    return _ONLY_MACHINE if answer == NOT_SHOWN and only_machine else _NEXT_STEPS[answer]


def command(observations: Observations, probed: str = "") -> str:
    """Return the command that measures the environment which the text is about, as far as it is known.

    probed: the image that the probe ran in; empty if the text is not a probe's report about an image.
    """
    image = probed or _read_image(observations)
    return f"{ANYWHERE} doctor " + (f"--image {image}" if image else '--python "$(command -v python)"')


def _read_image(observations: Observations) -> str:
    """Return the image that the text is about; empty if `doctor --image` can't run it."""
    image = observations.value("docker_run", "image") or observations.value("image", "name") or ""
    find = finder(observations, {})
    other_engine = any(language().parse(engine).holds(find) for engine in _OTHER_ENGINES)
    return image if _IMAGE.fullmatch(image) and not other_engine else ""
