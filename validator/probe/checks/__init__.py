"""The checks. A module holds a family of them: each is a function with the decorator `check`."""

from __future__ import annotations

from ..check import END, FULL, HOST, OWN, QUICK, TENSORFLOW, Check
from . import (
    compute,
    data,
    environment,
    layers,
    libraries,
    memory,
    multi_gpu,
    multi_worker,
    packages,
    speed,
    xla_coverage,
    xla_programs,
)

#: Families come in this order, and the checks of one in the order of its module.
_FAMILIES = (
    *(environment, packages, libraries),
    # Its check is the first measurement, because the other workers wait for this one.
    multi_worker,
    *(compute, xla_programs, xla_coverage, speed, layers, memory, multi_gpu, data),
)
_STAGES, _DEPTHS = (HOST, TENSORFLOW, OWN, END), (QUICK, FULL)

#: In the order in which they run: by stage; within it, first those that a verdict needs.
CHECKS: tuple[Check, ...] = tuple(
    sorted(
        (value for family in _FAMILIES for value in vars(family).values() if isinstance(value, Check)),
        key=lambda check: (_STAGES.index(check.stage), _DEPTHS.index(check.depth)),
    )
)
