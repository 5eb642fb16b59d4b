"""Find out which TensorFlow, CUDA, cuDNN and driver work together, and ship images that prove it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__version__ = "0.1.0"


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Add `%gpu_doctor` to a notebook or a terminal of IPython: `%load_ext validator`."""
    from .embedded.notebook import load

    load(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Take `%gpu_doctor` out again: `%unload_ext validator`."""
    from .embedded.notebook import unload

    unload(shell)
