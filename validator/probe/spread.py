"""Figures with their spread: a single measurement on a busy machine says little."""

import statistics
from typing import Dict, Optional, Sequence


def spread(samples: Sequence[float]) -> Optional[Dict[str, float]]:
    """Return median, quartiles, extremes and number of the samples; None where there are none."""
    if not samples:
        return None
    first, median, third = (
        statistics.quantiles(samples, n=4, method="inclusive") if len(samples) > 1 else [samples[0]] * 3
    )
    return {
        "median": median,
        "q1": first,
        "q3": third,
        "min": min(samples),
        "max": max(samples),
        "samples": len(samples),
    }


def ratios(above: Sequence[float], below: Sequence[float]) -> Optional[Dict[str, float]]:
    """Return the spread of `above / below`, pair by pair: both samples of a pair share their disturbances."""
    return spread([left / right for left, right in zip(above, below) if right > 0])
