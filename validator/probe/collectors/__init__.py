"""Facts that can be found without TensorFlow. Collectors find facts and never judge them; absence is None."""

from __future__ import annotations

from typing import Any


def collect(limit_s: float) -> dict[str, Any]:
    """Return the facts that the checks judge: `host` and `environment` (as in the report), `tensorflow`.

    limit_s: the time limit of the whole probe, of which a driver that does not answer takes at most half.
    """
    # Imported here: the process that watches the GPUs needs only the driver.
    from . import installed
    from .host import host_facts

    packages = installed.packages()
    tensorflow = installed.tensorflow(packages)
    return {
        "host": host_facts(limit_s / 4),
        "environment": installed.environment(packages, tensorflow),
        "tensorflow": tensorflow,
    }
