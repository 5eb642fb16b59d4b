"""Rules about the system, the architecture, the source of the package, the kernel modules and the vendor."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from ..model.prediction import Reason
from ..model.situation import PYPI
from ..versions import ComputeCapability, Range, release_comparer
from . import facts
from .facts import Fact


@dataclass(frozen=True)
class Vendor:
    """Another vendor of GPUs. build: what makes TensorFlow use its GPUs."""

    name: str
    build: str
    fact: Fact


def without_cuda(release: str, system: str | None, machine: str | None, wheel: str | None) -> Reason | None:
    """Return why the package of a release has no CUDA on a system and an architecture; None if it has."""
    known = {"system": system, "machine": machine, "wheel": wheel}
    for row in facts.rows("platforms", "without_cuda"):
        conditions = [known[name] in row[name] for name in known if name in row]
        if all(conditions) and _range(row["releases"]).contains(release):
            text = f"tensorflow {release} can't use a GPU here: {row['text']}; {row['remedy']}"
            return facts.fact(row).fails(text, "platform_without_cuda")
    return None


def other_build(wheel: str | None) -> Reason | None:
    """Return why a package can't be judged by the facts about PyPI's wheels; None if it is one of these."""
    if wheel in (None, PYPI):
        return None
    row = next(row for row in facts.rows("platforms", "builds") if row["wheel"] == wheel)
    return facts.fact(row).unknown(
        f"{row['name']} is a different build from the wheel on PyPI: it is not known which GPUs and"
        " versions it was built for"
    )


@functools.lru_cache(maxsize=256)
def kernel_modules(flavor: str | None, capability: ComputeCapability) -> Reason | None:
    """Return why a GPU can't use the open or the proprietary kernel modules; None if it can."""
    for row in facts.rows("platforms", "modules"):
        above = "below" in row and capability >= ComputeCapability.parse(row["below"])
        if row["modules"] == flavor and ComputeCapability.parse(row["from"]) <= capability and not above:
            text = f"{row['generation']} (compute capability {capability}) {row['text']}; {row['remedy']}"
            return facts.fact(row).fails(text, row["rule"])
    return None


@functools.lru_cache(maxsize=1024)
def other_vendor(gpu: str) -> Vendor | None:
    """Return the vendor of a GPU that is not NVIDIA's, by its name; None for any other name."""
    for row in facts.rows("platforms", "vendors"):
        if re.search(row["pattern"], gpu.strip().lower()):
            return Vendor(row["vendor"], row["build"], facts.fact(row))
    return None


def not_nvidia_text(gpu: str, vendor: Vendor) -> str:
    """Return the sentence about a GPU of another vendor, for an error and for a reason."""
    return f'"{gpu}" is a GPU from {vendor.name}: TensorFlow\'s CUDA builds use only NVIDIA GPUs'


def not_nvidia(gpu: str) -> Reason | None:
    """Return why a GPU of another vendor is not used; None for any other name."""
    vendor = other_vendor(gpu)
    if vendor is None:
        return None
    return vendor.fact.fails(f"{not_nvidia_text(gpu, vendor)}; use {vendor.build}", "not_nvidia")


@functools.cache
def _range(text: str) -> Range:
    return Range.parse(text, release_comparer)
