"""The checks. A module holds a family of them: each is a function with the decorator `check`."""

from __future__ import annotations

from ..check import END, FULL, HOST, OWN, QUICK, TENSORFLOW, Check
from . import (
    compute,
    data,
    distribution,
    environment,
    layers,
    libraries,
    memory,
    packages,
    speed,
    xla_coverage,
    xla_programs,
)

#: Families come in this order, and the checks of one in the order of its module.
_FAMILIES = (
    *(environment, packages, libraries, compute, xla_programs, xla_coverage, speed, layers, memory),
    *(distribution, data),
)
_STAGES, _DEPTHS = (HOST, TENSORFLOW, OWN, END), (QUICK, FULL)


def _place(check: Check) -> tuple[int, int, bool]:
    # `multi_worker` comes first in its stage and depth, because the other workers wait for this one.
    return _STAGES.index(check.stage), _DEPTHS.index(check.depth), check is not distribution.multi_worker


#: In the order in which they run: by stage; within it, first those that a verdict needs.
CHECKS: tuple[Check, ...] = tuple(
    sorted(
        (value for family in _FAMILIES for value in vars(family).values() if isinstance(value, Check)),
        key=_place,
    )
)
