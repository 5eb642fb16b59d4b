"""Figures with their spread: a number measured once on a busy machine says little."""

import statistics
from typing import Dict, Optional, Sequence


def spread(samples: Sequence[float]) -> Optional[Dict[str, float]]:
    """Median, quartiles, extremes and number of the samples; None of none."""
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
    """Spread of `above / below`, sample by sample: what was measured side by side shares its disturbances."""
    return spread([left / right for left, right in zip(above, below) if right > 0])


def said(figure: Optional[Dict[str, float]]) -> str:
    """`0.71 (0.69 to 0.74)`: median and quartiles."""
    if figure is None:
        return "unknown"
    return f"{figure['median']:.2f} ({figure['q1']:.2f} to {figure['q3']:.2f})"
