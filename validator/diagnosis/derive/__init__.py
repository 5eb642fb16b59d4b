"""What follows from several things that were seen: versions that don't fit one another, hidden devices.

Each rule adds an observation of its own kind, which the list of causes may name as a sign. None of them names
a cause: that numbers don't fit is a fact, what it means here is for the causes to say.
"""

from ..observations import Observations, tensorflow
from . import devices, mismatches, running

__all__ = ["derive", "tensorflow"]


def derive(observations: Observations) -> None:
    """Add what follows; an empty list of GPUs first, which other rules build on."""
    for rule in (*devices.RULES, *mismatches.RULES, *running.RULES):
        rule(observations)
