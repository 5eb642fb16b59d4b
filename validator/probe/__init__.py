"""The program that runs inside an environment, finds out what works there, and writes one JSON report.

It needs Python 3.9 or newer and nothing else: it is packed into one archive
(`validator/engines/protocol.py`), together with `validator/problems.py` and the vendored `packaging`,
and run by whatever Python an image holds, next to a TensorFlow that may crash the process.

    cli          options; writes the report to standard output and progress to standard error
    stages       run the checks of each stage in workers, within their limits; their ends become outcomes
    child        the one runner of child processes: forked, fresh interpreters with TensorFlow, and workers
    check        the type of a check, of its result and of what it gets
    checks/      the checks, one module for each family: they judge; the package orders them
    own/         the user's own checks, packed into the archive
    watch        watches the GPUs from before the first check until after the last
    host, installed, loader, xla   find facts and never judge: the machine and its driver, the Python
                 environment, the CUDA libraries and device code, XLA's flags and tools
    workers      the other machines of a training on several
    training     the small model that checks train; results compared with a reference, the tolerances, and
                 what fails only in full float32
    tensorflow_devices  TensorFlow's devices and log; the kernels that a GPU ran; the programs that XLA made

Known facts are tables, as JSON in `data/`.
"""

from __future__ import annotations

import functools
import json
import pkgutil
from typing import Any

#: Raised by hand when the meaning of a check or of the report changes. The full version also has a digest of
#: the sources (see `version`).
__version__ = "2.3.0"


@functools.lru_cache(maxsize=None)
def table(name: str) -> dict[str, Any]:
    """Return the table `data/NAME.json`, which the caller must not change."""
    content = pkgutil.get_data(__name__, f"data/{name}.json")
    if content is None:
        raise FileNotFoundError(f"data/{name}.json")
    found: dict[str, Any] = json.loads(content)
    return found


def version() -> str:
    """Return `2.0.0+0123456789ab` (with a digest of the sources), or `2.0.0+source` in a source tree."""
    try:
        # Written into the archive by the host side, which computes the same text from the same sources.
        packed = pkgutil.get_data(__name__, "VERSION")
    except OSError:
        packed = None
    return packed.decode().strip() if packed else __version__ + "+source"
