"""What can be found out without TensorFlow. Collectors find out and never judge; absence is None."""

from typing import Any, Dict

from . import installed
from .host import host_facts

# All facts together.


def collect() -> Dict[str, Any]:
    """Everything the checks judge: `host` and `environment` (as in the report), and `tensorflow`."""
    packages = installed.packages()
    tensorflow = installed.tensorflow(packages)
    return {
        "host": host_facts(),
        "environment": installed.environment(packages, tensorflow),
        "tensorflow": tensorflow,
    }
