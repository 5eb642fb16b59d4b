"""Look up GPUs by name: their compute capability and the kind of product."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, replace

from ..model.spec import slug
from ..versions import ComputeCapability
from . import facts
from .facts import Fact, UnknownGpu, nearest_clause

DATA_CENTER = "data-center"
PROFESSIONAL = "professional"
CONSUMER = "consumer"
#: Jetson: a whole system, with an aarch64 processor.
EMBEDDED = "embedded"

#: What NVML, shops and people write around the name of a model: vendor, brand, form factor, memory size, and
#: the part of a GPU that MIG or a vGPU gives (`MIG 1g.5gb`, `A100-10C`, `A100-1-5C`).
#: "Quadro" and "Server" are not in it, because they distinguish models of the same number.
NOISE = re.compile(
    r"\b(nvidia|tesla|geforce|dgx|hgx|graphics|generation|(max q )?workstation|edition|laptop|gpu"
    r"|sxm\d?|pcie|nvl|hbm\d\w?|\d+ ?gb|\d+g|grid|mig\b.*|dgxs|ls|(with )?max q( design)?|(\d )?\d+[abcq]$)\b"
)
#: The words of `NOISE` that nvidia-smi may cut short at the end of a name.
_CUT_NOISE = ("generation", "graphics", "edition", "workstation", "laptop", "nvidia")
#: How nvidia-smi ends a name that is too long for its column.
_CUT_SHORT = re.compile(r"(?:\.\.+|\u2026)\s*$")
#: The number of a GeForce or RTX A model without its family.
_BARE = r"a?\d{3,4}( ti)?( super)?( d)?"
GLUED = re.compile(r"(?<=\b[rg]tx)(?=\w)|(?<=\d)(?=(ti|super)\b)")
#: The words before the number in the names of series.
_FAMILIES = ("rtx", "gtx")
#: The words after the number, which the names to suggest don't have.
_SUFFIXES = re.compile(r"(?: (?:ti|super|d))+$")
#: The most words of a known name, with a misspelled brand before it.
_MOST_WORDS = 10
_SPELLING = {
    "ti": "Ti",
    "super": "SUPER",
    "nvgpu": "(nvgpu)",
    "series": "series",
    **{one.lower(): one for one in ("Ada", "Jetson", "Nano", "Orin", "Pascal", "Quadro", "Thor", "Xavier")},
}


@dataclass(frozen=True)
class Gpu:
    """A GPU model. slug: its name in identifiers (`rtx-4090`).

    kind: `data-center`, `professional`, `consumer`, `embedded`; it decides if cuda-compat supports the GPU.
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
    """Return the GPU of a name (`h100`, `Tesla V100-SXM2-16GB`). Raises UnknownGpu with the nearest."""
    wanted = plain_words(model)
    rows = zip(facts.rows("gpus", "gpus"), gpus(), strict=True)
    # Some systems are known by names of their own.
    systems = (known for row, known in rows if wanted in row.get("systems", ()))
    named = _known(wanted) or next(systems, None)
    if named is None and re.fullmatch(_BARE, wanted):
        # 4090 is an RTX 4090 and A6000 an RTX A6000, but 4000 may be one of several.
        meant = {known for family in _FAMILIES if (known := _known(f"{family} {wanted}"))}
        named = meant.pop() if len(meant) == 1 else None
    if named is None and _CUT_SHORT.search(model):
        named = _whole(wanted)
    if named is not None:
        return named
    nearest = _nearest(wanted)
    part = "names a part of a GPU, not its model" if not wanted and "mig" in model.lower() else "is not known"
    raise UnknownGpu(
        f'GPU "{model}" {part}{nearest_clause(nearest)}',
        nearest,
        hint="give its compute capability instead:"
        " `nvidia-smi --query-gpu=name,compute_cap --format=csv` shows it",
    )


def _known(plain: str) -> Gpu | None:
    """Return the GPU of a plain name, of one model or in a series."""
    return next((known for known in gpus() if plain_words(known.name) == plain), None) or _in_series(plain)


def _whole(beginning: str) -> Gpu | None:
    """Return a GPU whose name begins with a text, if all of them have one compute capability; else None."""
    *words, last = beginning.split() or [""]
    if words and any(noise.startswith(last) for noise in _CUT_NOISE):
        beginning = " ".join(words)
    found = [known for known in gpus() if beginning and plain_words(known.name).startswith(beginning)]
    # For a name in a series, such as RTX 4070 Ti SUP..., the words that were not cut off are enough.
    if not found:
        return _in_series(" ".join(words))
    exact = [known for known in found if plain_words(known.name) == beginning]
    same = len({known.compute_capability for known in found}) == 1
    return (exact or found)[0] if exact or same else None


def is_known(model: str) -> bool:
    """Return whether `gpu` knows a name."""
    try:
        gpu(model)
    except UnknownGpu:
        return False
    return True


def model_of(name: str) -> str:
    """Return a GPU model's slug: `a100` for `NVIDIA A100-SXM4-80GB`. An unknown model keeps its name."""
    try:
        return gpu(name).slug
    except UnknownGpu:
        return slug(name.removeprefix("NVIDIA "))


@functools.lru_cache(maxsize=1024)
def _nearest(wanted: str) -> tuple[str, ...]:
    """Return known names near an unknown one: by its words, its number or its series, and by spelling."""
    words = wanted.split()
    # The words before a known name may be a misspelled brand, and a number without a name usually belongs to
    # a series: 3060 is an RTX 3060.
    ends = [" ".join(words[start:]) for start in range(max(0, len(words) - _MOST_WORDS), len(words))]
    by_name = _by_plain_name()
    found = [known.name for end in ends for family in _FAMILIES if (known := _in_series(f"{family} {end}"))]
    found += [by_name[end] for end in ends if end in by_name]
    for known in gpus() if words else ():
        parts = plain_words(known.name).split()
        # A number may be in a word, as in A6000.
        if set(words) <= {*parts, *(part.lstrip("abcdefghijklmnopqrstuvwxyz") for part in parts)}:
            found.append(known.name)
    if not found:
        long = [end for end in ends if end == wanted or len(end) > 2]
        found = next((names for end in long if (names := _misspelled(end))), [])
    digits = re.search(r"\b(\d\d)\d\d\b", wanted)
    if digits:
        found += [known.name for known in gpus() if known.name.endswith(f" {digits[1]} series")]
    return tuple(dict.fromkeys(found))[:3]


def _misspelled(plain: str) -> list[str]:
    """Return the known names with the fewest typing errors; none if more than a quarter is wrong."""
    plain = _SUFFIXES.sub("", plain)
    most = max(1, len(plain) // 4)
    errors = {
        name: _typing_errors(plain, known)
        for known, name in _by_plain_name().items()
        if abs(len(known) - len(plain)) <= most
    }
    fewest = min(errors.values(), default=most + 1)
    nearest = [name for name, count in errors.items() if count == fewest <= most]
    # H10 is an H100 rather than an H20, and an H20 rather than an A10.
    letters = re.sub(r"\d", "", plain)
    return sorted(
        nearest,
        key=lambda name: (
            not plain_words(name).startswith(plain),
            re.sub(r"\d", "", plain_words(name)) != letters,
        ),
    )


def _typing_errors(one: str, other: str) -> int:
    """Return the optimal string alignment distance: insertions, deletions, replacements and swaps."""
    older: list[int] = []
    before: list[int] = []
    row = list(range(len(other) + 1))
    for line, character in enumerate(one, 1):
        older, before, row = before, row, [line]
        for column, wanted in enumerate(other, 1):
            count = min(before[column] + 1, row[-1] + 1, before[column - 1] + (character != wanted))
            if line > 1 and column > 1 and one[line - 2 : line] == wanted + other[column - 2]:
                count = min(count, older[column - 2] + 1)
            row.append(count)
    return row[-1]


@functools.cache
def _by_plain_name() -> dict[str, str]:
    """Return the names to suggest by how `plain_words` writes them, the newest generation first."""
    return {plain_words(name): name for name in (*gpu_names(), *(known.name for known in gpus()))}


def _in_series(plain: str) -> Gpu | None:
    """Return the GPU of a name that belongs to a series, in its usual spelling, else None."""
    name = " ".join(_SPELLING.get(word, word.upper()) for word in plain.split())
    found = (known for pattern, known in _patterns() if pattern.fullmatch(plain))
    return next((replace(known, name=name, slug=slug(name)) for known in found), None)


@functools.cache
def gpus() -> tuple[Gpu, ...]:
    """Return every known model by compute capability. A series counts as one model."""
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
def gpu_names() -> tuple[str, ...]:
    """Return names to suggest, the newest generation first; a series as its models (RTX 4070)."""
    numbers = [
        f"{family} {number}"
        for family in _FAMILIES
        for number in (*range(900, 2000, 10), *range(2000, 9999, 10))
    ]
    in_series = [known for number in numbers if (known := _in_series(number))]
    models: list[Gpu] = []
    for known in reversed(gpus()):
        members = [one for one in in_series if one.fact == known.fact]
        models += members if known.name.endswith("series") and members else [known]
    return tuple(dict.fromkeys(known.name for known in models))


@functools.cache
def _patterns() -> tuple[tuple[re.Pattern[str], Gpu], ...]:
    """Return the models that have a pattern, with it."""
    return tuple(
        (re.compile(row["pattern"]), known)
        for row, known in zip(facts.rows("gpus", "gpus"), gpus(), strict=True)
        if "pattern" in row
    )


@functools.lru_cache(maxsize=1024)
def plain_words(model: str) -> str:
    """Return the words of a name in lower case, without those that don't distinguish models."""
    text = GLUED.sub(" ", re.sub(r"[^a-z0-9]+", " ", model.lower()))
    return " ".join(NOISE.sub(" ", text).split())
