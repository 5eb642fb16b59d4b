"""Which host class a measurement belongs to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..compat.gpus import UnknownGpu, gpu
from ..model.spec import NO_GPU, HostClass, host_identifier, slug
from ..model.versions import ComputeCapability, DriverRelease


def host_class_of(facts: Mapping[str, Any], declared: Iterable[HostClass]) -> str:
    """The identifier of the host class that a probe's host facts belong to.

    facts: `host` of a report. declared: the matrix's host classes; the first that fits is taken. A host
    that none fits is named in the same way (`r595-h200`), and one without a GPU is `no-gpu`.
    """
    gpus = facts.get("gpus") or []
    if not gpus or not facts.get("driver"):
        return NO_GPU
    driver = DriverRelease.parse(str(facts["driver"]))
    models = list(dict.fromkeys(model_of(str(entry.get("name"))) for entry in gpus))
    # A driver library that answers badly may leave one out; the models still name the host.
    known = (entry.get("compute_capability") for entry in gpus)
    capabilities = {ComputeCapability.parse(str(capability)) for capability in known if capability}
    for host in declared:
        same_gpu = models == [slug(host.gpu)] if host.gpu else capabilities == {host.compute_capability}
        if same_gpu and host.compat is None and _same_driver(driver, host.driver):
            return host.identifier
    return host_identifier(
        DriverRelease(driver.branch), "+".join(models), min(capabilities, default=ComputeCapability(0, 0))
    )


def model_of(name: str) -> str:
    """`NVIDIA A100-SXM4-80GB` is an `a100`; a model that the facts don't know keeps its name."""
    try:
        return gpu(name).slug
    except UnknownGpu:
        return slug(name.removeprefix("NVIDIA "))


def _same_driver(measured: DriverRelease, declared: DriverRelease) -> bool:
    return measured.branch == declared.branch if declared.is_branch else measured == declared
