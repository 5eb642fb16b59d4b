"""Facts that can be found without TensorFlow. Collectors find facts and never judge them; absence is None."""

from typing import Any, Dict

from . import installed
from .host import host_facts


def collect() -> Dict[str, Any]:
    """Return the facts that the checks judge: `host` and `environment` (as in the report), `tensorflow`."""
    packages = installed.packages()
    tensorflow = installed.tensorflow(packages)
    return {
        "host": host_facts(),
        "environment": installed.environment(packages, tensorflow),
        "tensorflow": tensorflow,
    }
