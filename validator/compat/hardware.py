"""The facts about GPUs and drivers, and the rules that join them."""

from __future__ import annotations

import contextlib
import datetime
import functools
import re
from dataclasses import dataclass, field, replace

from ..model.prediction import JETSON, Reason
from ..model.spec import slug
from ..versions import ComputeCapability, CudaVersion, DriverRelease
from . import facts
from .facts import Fact, UnknownDriver, UnknownGpu, nearest_clause

DATA_CENTER = "data-center"
CONSUMER = "consumer"
#: Jetson: a whole system, with an aarch64 processor.
EMBEDDED = "embedded"

#: What NVML, shops and people write around the name of a model: vendor, brand, form factor, memory size, and
#: the part of a GPU that MIG or a vGPU gives (`MIG 1g.5gb`, `A100-10C`, `A100-1-5C`).
#: "Quadro" and "Server" are not in it, because they distinguish models of the same number.
NOISE = re.compile(
    r"\b(nvidia|tesla|geforce|dgx|hgx|graphics|generation|(max q )?workstation|edition|laptop|mobile|gpu"
    r"|sxm\d?|pcie|nvl|hbm\d\w?|\d+ ?gb|\d+g|grid|mig\b.*|dgxs|ls|(with )?max q( design)?|(\d )?\d+[abcq]$)\b"
)
#: The words of `NOISE` that nvidia-smi may cut short at the end of a name.
_CUT_NOISE = ("generation", "graphics", "edition", "workstation", "laptop", "nvidia")
#: How nvidia-smi ends a name that is too long for its column.
_CUT_SHORT = re.compile(r"(?:\.\.+|\u2026)\s*$")
#: The number of a GeForce or RTX A model without its family.
_BARE = r"[akmp]?\d{3,4}( ti)?( super)?( d)?"
GLUED = re.compile(
    r"(?<=\b[rg]tx)(?=\w)|(?<=\brtxpro)(?=\d)|(?<=\d)(?=(ti(super)?|super)\b)|(?<=\dti)(?=super\b)"
    r"|(?<=\b\d{4})(?=d\b)"
)
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
    """A GPU model. slug: its name in identifiers (`rtx-4090`). pattern: of the plain names in a series.

    kind: `data-center`, `professional`, `consumer`, `embedded`; it decides if cuda-compat supports the GPU.
    machine: the architecture, as in `Host`, if only systems with that one have it; None for any system.
    """

    name: str
    slug: str
    compute_capability: ComputeCapability
    kind: str
    fact: Fact
    pattern: re.Pattern[str] | None = field(default=None, repr=False)
    machine: str | None = None

    @property
    def data_center(self) -> bool:
        return self.kind == DATA_CENTER


@functools.cache
def gpu(model: str) -> Gpu:
    """Return the GPU of a name (`h100`, `Tesla V100-SXM2-16GB`). Raises UnknownGpu with the nearest."""
    wanted = plain_words(model)
    named = _known(wanted)
    if named is None:
        # Some systems are known by names of their own.
        rows = zip(facts.rows("gpus", "gpus"), gpus(), strict=True)
        named = next((known for row, known in rows if wanted in row.get("systems", ())), None)
    if named is None and re.fullmatch(_BARE, wanted):
        # 4090 is an RTX 4090, A6000 an RTX A6000 and P2200 a Quadro, but 4000 may be one of several.
        meant = {known for family in (*_FAMILIES, "quadro") if (known := _known(f"{family} {wanted}"))}
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
    with contextlib.suppress(UnknownGpu):
        return bool(gpu(model))
    return False


def model_of(name: str) -> str:
    """Return a GPU model's slug: `a100` for `NVIDIA A100-SXM4-80GB`. An unknown model keeps its name."""
    return gpu(name).slug if is_known(name) else slug(name.removeprefix("NVIDIA "))


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
        # A number may follow letters in one word, as in A6000.
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
    found = (known for known in gpus() if known.pattern and known.pattern.fullmatch(plain))
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
            pattern=re.compile(row["pattern"]) if "pattern" in row else None,
            machine=JETSON if row["kind"] == EMBEDDED else row.get("machine"),
        )
        for row in facts.rows("gpus", "gpus")
    )


@functools.cache
def gpu_names() -> tuple[str, ...]:
    """Return names to suggest, the newest generation first; a series as its models (RTX 4070)."""
    numbers = (*range(900, 2000, 10), *range(2000, 9999, 10))
    names = (f"{family} {number}" for family in _FAMILIES for number in numbers)
    in_series = list(filter(None, map(_in_series, names)))
    models: list[Gpu] = []
    for known in reversed(gpus()):
        members = [one for one in in_series if one.fact == known.fact]
        models += members if known.name.endswith("series") and members else [known]
    return tuple(dict.fromkeys(known.name for known in models))


@functools.lru_cache(maxsize=1024)
def plain_words(model: str) -> str:
    """Return the words of a name in lower case, without those that don't distinguish models."""
    text = GLUED.sub(" ", re.sub(r"[^a-z0-9]+", " ", model.lower()))
    return " ".join(NOISE.sub(" ", text).split())


#: Windows drivers, which WSL2 shows, have the number of the Linux branch or one of the next few: R535 has
#: releases from 536 to 539, and R470 has releases up to 475.
_WINDOWS_NUMBERS = 5

_KINDS = {
    "long-term": "a long-term support branch",
    "production": "a production branch",
    "new-feature": "a new feature branch",
    "developer": "a branch for developers",
}


@dataclass(frozen=True)
class Branch:
    """A driver branch and its newest CUDA version."""

    number: int
    cuda: CudaVersion
    fact: Fact


@dataclass(frozen=True)
class Floor:
    """The oldest driver for a toolkit, from CUDA 11 on for its major version. It may not compile all PTX."""

    driver: DriverRelease
    fact: Fact


def parse_release(text: str) -> DriverRelease:
    """Parse the release or the branch that a person names. A branch newer than the tables is not refused.

    Raises ValueError for other text, and UnknownDriver if the number of the branch is more than twice the
    newest one, as in 5355 for 535.
    """
    release = DriverRelease.parse(text)
    newest = branches()[:-4:-1]
    if release.branch > 2 * newest[0].number:
        names = ", ".join(f"R{known.number}" for known in newest)
        raise UnknownDriver(
            f"there is no driver branch R{release.branch}; the newest are {names}",
            hint="the first lines of `nvidia-smi` show the driver, such as 535.183.01",
        )
    return release


@functools.cache
def branches() -> tuple[Branch, ...]:
    """Return every known driver branch, oldest first."""
    return tuple(
        Branch(row["branch"], CudaVersion.parse(row["cuda"]), facts.fact(row))
        for row in facts.rows("drivers", "branches")
    )


@functools.cache
def branch_of(number: int) -> Branch | None:
    """Return the branch with that number or just below it (on Windows, 581 is R580), or None."""
    below = next((known for known in reversed(branches()) if known.number <= number), None)
    return below if below is not None and number - below.number <= _WINDOWS_NUMBERS else None


@functools.cache
def branch_for(cuda: CudaVersion) -> Branch | None:
    """Return the first branch with a CUDA version, or None if the tables don't have it."""
    return next((known for known in branches() if known.cuda == cuda), None)


@functools.cache
def minor_version(cuda_major: int, *, windows: bool = False) -> Floor | None:
    """Return the oldest driver for every toolkit of a CUDA major version; None if the tables lack it."""
    for row in facts.rows("drivers", "minor_version"):
        if row["cuda_major"] == cuda_major:
            return Floor(DriverRelease.parse(row["windows" if windows else "driver"]), facts.fact(row))
    return None


@functools.lru_cache(maxsize=8192)
def runs_toolkit(toolkit: CudaVersion, driver: DriverRelease, lifted_to: CudaVersion | None) -> Reason:
    """Decide if a driver runs a toolkit's libraries. lifted_to: the CUDA of a cuda-compat package in use."""
    if lifted_to is not None:
        row = next(row for row in facts.rows("forward", "packages") if row["compat"] == str(lifted_to))
        package = f"cuda-compat {lifted_to}"
        if lifted_to.major >= toolkit.major:
            return facts.fact(row).works(f"{package} replaces the driver's CUDA and runs CUDA {toolkit}")
        return facts.fact(row).fails(
            f"{package} is too old: CUDA {toolkit} needs one of CUDA {toolkit.major}.x",
            "compat_package_unsupported",
        )
    floor = minor_version(toolkit.major)
    if floor is None:
        return branches()[-1].fact.unknown(f"the oldest driver for CUDA {toolkit} is not known")
    if driver < floor.driver:
        return floor.fact.fails(
            f"CUDA {toolkit} needs driver {floor.driver} or newer; this is {driver}", "driver_too_old"
        )
    branch = branch_of(driver.branch)
    if branch is None:
        return branches()[-1].fact.unknown(
            f"it is not known which CUDA versions and GPUs driver {driver} supports: the tables end with"
            f" R{branches()[-1].number}"
        )
    if branch.cuda.major > toolkit.major:
        return branch.fact.works(
            f"driver {driver} is for CUDA {branch.cuda} and runs CUDA {toolkit} by backward compatibility"
        )
    # The driver that came with the first release of the toolkit.
    rows = (row for row in facts.rows("toolkits", "toolkits") if "driver" in row)
    own = next((row for row in rows if CudaVersion.parse(row["release"]) == toolkit), None)
    if own is not None and driver >= DriverRelease.parse(own["driver"]):
        text = f"driver {driver} is not older than {own['driver']}, which came with CUDA {toolkit}"
        return facts.fact(own).works(text)
    return floor.fact.works(
        f"driver {driver} runs CUDA {toolkit} by minor-version compatibility ({floor.driver} or newer)"
    )


@functools.lru_cache(maxsize=8192)
def knows_gpu(kernel_branch: int, user_branch: int, capability: ComputeCapability) -> tuple[Reason, ...]:
    """Return why a driver is too old or too new for a GPU, and a remark if its branch has ended.

    kernel_branch: the branch of the installed driver. user_branch: that of the libcuda in use, which differs
    if there is a forward compatibility package.
    """
    branch, reasons = max(kernel_branch, user_branch), []
    row = last_branch(capability)
    if row is not None and branch > row["branch"]:
        text = (
            f"R{row['branch']} is the last driver branch for {row['generation']}"
            f" (compute capability {capability}); this is R{branch}"
        )
        reasons.append(facts.fact(row).fails(text, "driver_dropped_gpu"))
    # There is no table of drivers by GPU. A branch from before the first PTX ISA with an architecture can't
    # have a compiler for it. That the driver doesn't support the GPU either is derived from this.
    for row in facts.rows("drivers", "ptx"):
        if str(capability) in row["first_targets"] and kernel_branch < row["branch"]:
            text = (
                f"PTX ISA {row['isa']}, new in R{row['branch']}, is the first with compute capability"
                f" {capability}; R{kernel_branch} is older than the GPU"
            )
            reasons.append(facts.fact(row).derived().fails(text, "driver_older_than_gpu"))
            break
    remark = ended(kernel_branch)
    return (*reasons, remark) if remark else tuple(reasons)


def last_branch(capability: ComputeCapability) -> facts.Row | None:
    """Return the row of the last driver branch for a GPU; None if the newest branch supports it."""
    for row in facts.rows("drivers", "last_branch"):
        if ComputeCapability.parse(row["from"]) <= capability < ComputeCapability.parse(row["below"]):
            return row
    return None


def no_branch_for(capability: ComputeCapability, toolkit: CudaVersion) -> Reason | None:
    """Say why no driver branch has both a GPU and a toolkit, if the last one for the GPU is too old."""
    floor, row = minor_version(toolkit.major), last_branch(capability)
    if row is None or floor is None or row["branch"] >= floor.driver.branch:
        return None
    return facts.fact(row).fails(
        f"{row['generation']} (compute capability {capability}) needs R{row['branch']} or older, and"
        f" CUDA {toolkit} needs R{floor.driver.branch} or newer",
        "driver_dropped_gpu",
    )


def first_toolkit_for(capability: str) -> str:
    """Return the first toolkit whose ptxas knows a compute capability; empty if that is not known."""
    known = False
    for row in facts.rows("drivers", "ptx"):
        known = known or capability in row["first_targets"]
        for cuda in row["cuda"] if known else ():
            # The table of toolkits begins with 11.0 and lacks 12.7, which was never released.
            released = [row["release"] for row in facts.rows("toolkits", "toolkits")]
            if CudaVersion.parse(cuda).major < 11 or any(one.startswith(f"{cuda}.") for one in released):
                return str(cuda)
    return ""


def ended(number: int, today: datetime.date | None = None) -> Reason | None:
    """Return a remark if a branch has ended, with the branch to use instead. today: for tests.

    A branch ends with the last day of the month `ends`. `by` is the month of a page that says that it has
    ended, but not when.
    """
    month = f"{today or datetime.date.today():%Y-%m}"
    rows, branch = facts.rows("drivers", "lifecycle"), branch_of(number)

    def has_ended(row: facts.Row) -> bool:
        return "by" in row or row.get("ends", month) < month

    row = next((row for row in rows if branch is not None and row["branch"] == branch.number), None)
    if row is None or not has_ended(row):
        return None
    kind = f", {_KINDS[row['kind']]}," if "kind" in row else ""
    when = f"ended in {_month(row['ends'])}" if "ends" in row else "has ended"
    text = f"driver branch R{row['branch']}{kind} {when} and gets no more fixes"
    maintained = (one for one in reversed(rows) if one.get("kind") == "long-term")
    current = next((one for one in maintained if not has_ended(one)), None)
    if current is not None:
        text += f"; R{current['branch']} is {_KINDS[current['kind']]} until {_month(current['ends'])}"
    return facts.fact(row).advises(text)


def _month(text: str) -> str:
    return f"{datetime.date.fromisoformat(f'{text}-01'):%B %Y}"


# Forward compatibility: does a cuda-compat package on the loader path give a driver a newer CUDA?


@dataclass(frozen=True)
class UserDriver:
    """The libcuda that a process gets: its branch, and the CUDA of a package that replaces the driver's."""

    branch: int
    lifted_to: CudaVersion | None
    reasons: tuple[Reason, ...]


def compat_packages(branch: int) -> list[str]:
    """Return the newest cuda-compat package of each CUDA major that supports a driver branch: `12.9`."""
    known = [
        row["compat"]
        for row in facts.rows("forward", "packages")
        if row["bases"].get(str(branch)) == "compatible"
    ]
    newest = {CudaVersion.parse(compat).major: compat for compat in sorted(known, key=CudaVersion.parse)}
    return list(newest.values())


@functools.lru_cache(maxsize=8192)
def user_driver(driver: DriverRelease, compat: str | None, kind: str | None) -> UserDriver:
    """Return the user-mode driver of a driver with a cuda-compat package.

    compat: the package's CUDA version (`12.9`), or None if there is no package. kind: that of the GPU, as in
    `gpus.Gpu.kind`, or None if it is not known.
    """
    if compat is None:
        return UserDriver(driver.branch, None, ())
    asked = CudaVersion.parse(compat)
    package, branch = f"cuda-compat {asked}", branch_for(asked)
    row = next((row for row in facts.rows("forward", "packages") if row["compat"] == str(asked)), None)
    may_use = facts.rule("forward", "compat-eligible")
    if row is None or branch is None:
        return UserDriver(driver.branch, None, (may_use.unknown(f"no known table lists {package}"),))
    known = facts.fact(row)
    if driver.branch == branch.number:
        text = f"{package} is not needed: driver {driver} itself supports CUDA {asked}"
        return UserDriver(driver.branch, None, (known.works(text),))
    if driver.branch > branch.number:
        text = (
            f"{package} is older than driver {driver} and does not support it; remove it from the"
            " loader path, because the driver itself runs older CUDA versions"
        )
        return UserDriver(driver.branch, None, (known.unknown(text),))
    if kind == CONSUMER:
        text = (
            f"{package} on a GPU that is not a data-center product: cuInit returns error 804"
            " (forward compatibility not supported on this device) and no GPU is found"
        )
        reason = facts.rule("forward", "compat-error-804").fails(text, "compat_package_unsupported")
    elif row["bases"].get(str(driver.branch)) != "compatible":
        bases = ", ".join(f"R{base}" for base, answer in row["bases"].items() if answer == "compatible")
        reason = known.unknown(
            f"{package} does not support the base driver R{driver.branch}, a branch that has ended"
            f" or is a feature branch; it supports {bases or 'no branch that is still maintained'}"
        )
    elif kind != DATA_CENTER:
        reason = may_use.unknown(
            "only some professional GPUs may use cuda-compat, and it is not known whether this one may"
        )
    else:
        reason = known.works(f"{package} supports the base driver R{driver.branch} on data-center GPUs")
    return UserDriver(branch.number, asked, (reason,))
