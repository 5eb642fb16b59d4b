"""Decide whether a machine belongs to a host class, by what was signed about its driver and its GPUs."""

from __future__ import annotations

import re

from ..compat.errors import UnknownGpu
from ..compat.gpus import gpu, model_of
from ..model.measurement import GpuIdentity, Outside
from ..versions import ComputeCapability, DriverRelease
from .trust_file import Party

#: As `host_identifier` writes them. A class with a cuda-compat package is never measured.
_HOST_CLASS = re.compile(r"r(?P<driver>\d+(?:\.\d+)*)-(?P<gpu>[a-z0-9.+-]+)")


def objection_to(host_class: str, outside: Outside, runner: Party) -> str | None:
    """Return why this machine, as the runner describes it, is not of the host class, or None."""
    found = _HOST_CLASS.fullmatch(host_class)
    if found is None:
        return f"{host_class} is not a host class with a GPU"
    if outside.driver is None or not outside.gpus:
        return "the runner saw no driver or no GPU on the machine"
    declared, driver = DriverRelease.parse(found["driver"]), DriverRelease.parse(outside.driver)
    if driver.branch != declared.branch or (not declared.is_branch and driver != declared):
        return f"driver {driver} is not of the host class {host_class}"
    for card in outside.gpus:
        if objection := _objection_to_gpu(host_class, found["gpu"], card, runner):
            return objection
    return None


def _objection_to_gpu(host_class: str, label: str, card: GpuIdentity, runner: Party) -> str | None:
    capability = ComputeCapability.parse(card.compute_capability)
    by_capability = capability.sm.replace("_", "")
    if label not in (model_of(card.name), by_capability):
        return f"{card.name} is not of the host class {host_class}"
    try:
        known = gpu(card.name).compute_capability
    except UnknownGpu:
        # People choose images by the capability, so the runner must be allowed to sign for it.
        of_capability = f"{host_class.partition('-')[0]}-{by_capability}"
        if runner.may_sign_for(of_capability):
            return None
        return (
            f"{card.name} is not known, so the runner has to be registered for its compute capability as well"
            f" (*-{by_capability})"
        )
    if known != capability:
        return f"{card.name} has compute capability {known}, not {capability}"
    return None
