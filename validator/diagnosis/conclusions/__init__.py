"""Draw conclusions from several observations: versions that don't fit one another, hidden devices.

Each rule adds an observation of its own kind, which the list of causes can use as a sign. No rule names
a cause: that two versions don't fit is a fact, and the causes say what it means.
"""

from ..observations import Observations
from . import gpus, packages, runtime, version_conflicts


def conclude(observations: Observations) -> None:
    """Add all conclusions. An empty list of GPUs comes first, because other rules build on it."""
    for rule in (*gpus.RULES, *version_conflicts.RULES, *packages.RULES, *runtime.RULES):
        rule(observations)
