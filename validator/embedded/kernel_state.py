"""Look at the TensorFlow of this process without importing it, and without a change to it.

The first question about its GPUs makes TensorFlow initialize CUDA. From then on, a change of
`CUDA_VISIBLE_DEVICES` has no effect in this process, so it is never asked first.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

#: The module with TensorFlow's one context, whose devices are None until somebody asks for them.
_CONTEXT = "tensorflow.python.eager.context"


@dataclass(frozen=True)
class KernelState:
    """The TensorFlow of this process.

    tensorflow: its version; None if it is not imported.
    listed, used: its GPUs, and those of them that it was not told to leave alone; None if nobody has asked it
        yet.
    """

    tensorflow: str | None = None
    listed: int | None = None
    used: int | None = None

    @property
    def sentence(self) -> str:
        """Say it in a sentence."""
        if self.tensorflow is None:
            return "TensorFlow is not imported in this kernel."
        release = f"TensorFlow {self.tensorflow} is imported in this kernel"
        if self.listed is None or self.used is None:
            return f"{release}, and has not looked for GPUs yet."
        if self.used == self.listed:
            return f"{release}, and has {_gpus(self.listed)}."
        return f"{release}, and uses {self.used} of {_gpus(self.listed)}."


def kernel_state() -> KernelState:
    """Return the state of this process's TensorFlow."""
    tensorflow = sys.modules.get("tensorflow")
    if tensorflow is None:
        return KernelState()
    version = str(getattr(tensorflow, "__version__", "(of an unknown version)"))
    context = getattr(sys.modules.get(_CONTEXT), "_context", None)
    if getattr(context, "_physical_devices", None) is None:
        return KernelState(version)
    try:
        # These are only lists now.
        config = tensorflow.config
        return KernelState(
            version, len(config.list_physical_devices("GPU")), len(config.get_visible_devices("GPU"))
        )
    except Exception:
        # A TensorFlow that is half imported, or that something replaced, must not stop the diagnosis.
        return KernelState(version)


def _gpus(count: int) -> str:
    return "no GPU" if count == 0 else "1 GPU" if count == 1 else f"{count} GPUs"
