"""Facts that can be found without TensorFlow. Collectors find facts and never judge them; absence is None."""

from __future__ import annotations

from typing import Any


def collect() -> dict[str, Any]:
    """Return the facts that the checks judge: `host` and `environment` (as in the report), `tensorflow`."""
    # Imported here: the process that watches the GPUs needs only the driver.
    from . import installed
    from .host import host_facts

    packages = installed.packages()
    tensorflow = installed.tensorflow(packages)
    return {
        "host": host_facts(),
        "environment": installed.environment(packages, tensorflow),
        "tensorflow": tensorflow,
    }
