"""GPUs by name: their compute capability, and which kind of product they are."""

from __future__ import annotations

import difflib
import functools
import re
from dataclasses import dataclass, replace

from ..model.spec import slug
from ..model.versions import ComputeCapability
from . import facts
from .facts import Fact
from .unknown import UnknownGpu as UnknownGpu
from .unknown import nearest_clause

DATA_CENTER = "data-center"
PROFESSIONAL = "professional"
CONSUMER = "consumer"

#: What NVML, shops and people put around a model's name: vendor, brand, form factor, memory size. Not
#: "Quadro" and not "Server": they tell models of the same number apart.
_NOISE = re.compile(
    r"\b(nvidia|tesla|geforce|graphics|generation|(max q )?workstation|edition|laptop|gpu"
    r"|sxm\d?|pcie|nvl|hbm\d\w?|\d+ ?gb)\b"
)
_GLUED = re.compile(r"(?<=\b[rg]tx)(?=\w)|(?<=\d)(?=(ti|super)\b)")
_SPELLING = {"ti": "Ti", "super": "SUPER"}


@dataclass(frozen=True)
class Gpu:
    """One GPU model.

    slug: for identifiers (`rtx-4090`). kind: `data-center`, `professional` or `consumer`, which decides
    whether forward compatibility packages support it.
    """

    name: str
    slug: str
    compute_capability: ComputeCapability
    kind: str
    fact: Fact

    @property
    def data_center(self) -> bool:
        return self.kind == DATA_CENTER


@functools.cache
def gpu(model: str) -> Gpu:
    """The GPU of a name such as `h100`, `rtx 4090`, `Tesla V100-SXM2-16GB` or `NVIDIA A100-SXM4-80GB`.

    Raises UnknownGpu with the nearest known names.
    """
    wanted = _plain(model)
    for pattern, known in _patterns():
        if pattern is None:
            if _plain(known.name) == wanted:
                return known
        elif pattern.fullmatch(wanted):
            name = " ".join(_SPELLING.get(word, word.upper()) for word in wanted.split())
            return replace(known, name=name, slug=slug(name))
    names = {_plain(known.name): known.name for known in gpus()}
    nearest = tuple(names[name] for name in difflib.get_close_matches(wanted, names, 3, cutoff=0.5))
    raise UnknownGpu(
        f'GPU "{model}" is not known{nearest_clause(nearest)}',
        nearest,
        hint="give its compute capability instead",
    )


@functools.cache
def gpus() -> tuple[Gpu, ...]:
    """Every known model, a series counting as one, by compute capability."""
    return tuple(
        Gpu(
            name=row["name"],
            slug=slug(row["name"]),
            compute_capability=ComputeCapability.parse(row["compute_capability"]),
            kind=row["kind"],
            fact=facts.fact(row),
        )
        for row in facts.rows("gpus", "gpus")
    )


@functools.cache
def _patterns() -> tuple[tuple[re.Pattern[str] | None, Gpu], ...]:
    """Each model by its name, and again by its pattern where it has one."""
    plain: list[tuple[re.Pattern[str] | None, Gpu]] = [(None, known) for known in gpus()]
    series = [
        (re.compile(row["pattern"]), known)
        for row, known in zip(facts.rows("gpus", "gpus"), gpus(), strict=True)
        if "pattern" in row
    ]
    return (*plain, *series)


def _plain(model: str) -> str:
    """Lower case, words only, without what does not tell models apart."""
    text = _GLUED.sub(" ", re.sub(r"[^a-z0-9]+", " ", model.lower()))
    return " ".join(_NOISE.sub(" ", text).split())
