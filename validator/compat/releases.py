"""TensorFlow releases: their Pythons, CUDA and cuDNN, and the requirements of the `and-cuda` extra."""

from __future__ import annotations

import contextlib
import functools
import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ..versions import (
    ComputeCapability,
    CudaVersion,
    DriverRelease,
    InvalidVersion,
    Version,
    leading_numbers,
    major,
    major_minor,
)
from . import facts, hardware
from .facts import Fact, UnknownRelease, nearest_clause, nearest_versions

if TYPE_CHECKING:
    # The page with the answers has these facts without the locks.
    from ..model.spec import Wheel

# The targets that device code is compiled for, as compilers name them: `sm_90`, `sm_90a`, `sm_100f`.
#
# Without a suffix, machine code runs on the same major compute capability with the same or a higher minor
# one, and PTX can be compiled for every capability that is not lower. Code for `a` (architecture-specific)
# is for exactly that capability, and code for `f` (family-specific) for the capabilities of the same family
# that are not lower. Source: PTX ISA, directive `.target`.


SPECIFIC, FAMILY = "a", "f"

_NAME = re.compile(r"(?:sm_|compute_)?(\d{2,}|\d+\.\d)([af]?)")


@dataclass(frozen=True, order=True)
class Target:
    """A target of device code. suffix: `a`, `f` or empty."""

    capability: ComputeCapability
    suffix: str = ""

    @classmethod
    def parse(cls, text: str) -> Target:
        """Read `9.0a`, `90a`, `sm_90a` or `compute_90a`. Raises ValueError for other text."""
        match = _NAME.fullmatch(text.strip().lower())
        if not match:
            raise ValueError(f'"{text}" is not a target of device code (expected something like sm_90a)')
        return cls(ComputeCapability.parse(match[1]), match[2])

    @property
    def number(self) -> str:
        """The name without `sm_`: `90a`."""
        return self.capability.sm.removeprefix("sm_") + self.suffix

    def runs_on(self, gpu: ComputeCapability) -> bool:
        """Return True if machine code for this target runs on a GPU."""
        if self.suffix:
            return self._specific_to(gpu)
        return self.capability.major == gpu.major and self.capability.minor <= gpu.minor

    def compiles_for(self, gpu: ComputeCapability) -> bool:
        """Return True if PTX for this target can be compiled for a GPU."""
        return self._specific_to(gpu) if self.suffix else self.capability <= gpu

    def _specific_to(self, gpu: ComputeCapability) -> bool:
        if self.suffix == FAMILY and gpu in _family(self.capability):
            return self.capability <= gpu
        return self.capability == gpu

    def __str__(self) -> str:
        return f"{self.capability}{self.suffix}"


@functools.cache
def _family(capability: ComputeCapability) -> frozenset[ComputeCapability]:
    for row in facts.rows("drivers", "families"):
        members = frozenset(map(ComputeCapability.parse, row["compute_capabilities"]))
        if capability in members:
            return members
    return frozenset((capability,))


# Facts read from TensorFlow's own wheels (`data/builds.yaml`), which take precedence over published tables. A
# patch release that was not inspected has those of the nearest one, as a derived fact.

#: PTX ISA version: (8, 5).
Isa = tuple[int, int]


@dataclass(frozen=True)
class KernelGroup:
    """Translation units with the same device code.

    count: the number of units, None if the wheel was not opened. sass: targets with machine code. ptx:
    targets with PTX, each with the ISA version if that was read. library: `nccl` if they are that library's.
    """

    count: int | None
    sass: frozenset[Target]
    ptx: Mapping[Target, Isa | None] = field(hash=False)
    library: str | None = None


@dataclass(frozen=True)
class Build:
    """The facts read from one wheel.

    cudnn: the version of the cuDNN headers that it was compiled with, None if unknown.
    folders: the folders of NVIDIA's wheels in its own search path. not_found: sonames of libraries that it
    needs and that are in none of these folders. requires: the specifiers of Keras and NumPy in its
    metadata; for each Python, one of them holds. llvm_ptx: the newest PTX that its LLVM writes, where this
    is known and the build is nobody else's.
    """

    version: str
    cudnn: str | None
    kernels: tuple[KernelGroup, ...]
    folders: tuple[str, ...]
    not_found: tuple[str, ...]
    requires: Mapping[str, tuple[str, ...]]
    fact: Fact
    llvm_ptx: Isa | None = None


@functools.cache
def build(version: str) -> Build | None:
    """Return the build of a release, or of the nearest patch release that was opened, or None."""
    if version in _OWN:
        return _OWN[version][1]
    opened = _opened()
    if version in opened:
        return _build(opened[version], version)
    asked = Version(version)
    siblings = [
        other
        for other in opened
        if major_minor(other) == major_minor(version) and Version(other).is_prerelease == asked.is_prerelease
    ]
    if not siblings:
        return None
    nearest = min(siblings, key=lambda other: abs(Version(other).micro - asked.micro))
    return _build(opened[nearest], version)


def _opened() -> dict[str, facts.Row]:
    return {row["tensorflow"]: row for row in facts.rows("builds", "builds")}


def fact_of(row: facts.Row) -> Fact:
    """Return the identifier, status and source of a row of builds.yaml, which names no sources."""
    return Fact(
        f"build-{row['tensorflow']}", row["status"], f"inspection of {row['wheel']['file']} on {row['date']}"
    )


def _build(row: facts.Row, version: str) -> Build:
    libraries = row.get("pip_libraries", {})
    measured = fact_of(row)
    return Build(
        version=row["tensorflow"],
        cudnn=row["build"]["cudnn_headers"],
        kernels=tuple(
            KernelGroup(
                count=group["fatbins"],
                sass=frozenset(Target.parse(str(number)) for number in group["sass"]),
                ptx={Target.parse(str(number)): isa(text) for number, text in group["ptx"].items()},
                library=group.get("library"),
            )
            for group in row["kernels"]
        ),
        folders=tuple(libraries.get("folders", ())),
        not_found=tuple(libraries.get("missing_required", ())),
        requires={
            name: tuple(text.partition(";")[0] for text in texts)
            for name, texts in row["requires"].items()
            if name != "python"
        },
        fact=measured if row["tensorflow"] == version else measured.derived(),
    )


def isa(text: str) -> Isa:
    """Return (8, 5) for `8.5`."""
    major, minor = leading_numbers(text)
    return major, minor


_SERIES = re.compile(r"\d+\.\d+")


@dataclass(frozen=True)
class Release:
    """One TensorFlow release.

    pythons: the Python versions that have a Linux x86_64 wheel, oldest first. cuda, cudnn: major.minor of the
    tested build configuration. extra: wheel -> version specifier of the `and-cuda` extra. If `extra_style` is
    `none`, the wheels with the versions of the tested build; empty if there are none. extra_style: `exact`,
    `range`, or `none` (the release has no extra). package: the name of the package with CUDA on PyPI.
    lowest_gpu: the lowest compute capability that it is documented for, where no wheel was opened. fact: what
    the above is based on. origin: the wheel, if no table lists it.
    """

    version: str
    pythons: tuple[str, ...]
    cuda: str
    cudnn: str
    extra_style: str
    fact: Fact
    extra: Mapping[str, str] = field(default_factory=dict, hash=False)
    package: str = "tensorflow"
    lowest_gpu: str | None = None
    origin: Wheel | None = None

    @property
    def minor(self) -> str:
        return major_minor(self.version)

    @functools.cached_property
    def prerelease(self) -> bool:
        return Version(self.version).is_prerelease

    @property
    def suffix(self) -> str:
        """The suffix of the names of its NVIDIA wheels: `cu11` or `cu12`; own wheels may have `cu13`."""
        return f"cu{major(self.cuda)}"

    @property
    def needs_tensorrt(self) -> bool:
        """True if the extra requires TensorRT, whose wheels don't exist for every Python, or at all."""
        return any(name.startswith("tensorrt") for name in self.extra)

    @functools.cached_property
    def wheels(self) -> Mapping[str, str]:
        """The NVIDIA wheels of the extra, without TensorRT: wheel -> specifier."""
        return {name: pin for name, pin in self.extra.items() if name.startswith("nvidia-")}


@functools.cache
def releases() -> tuple[Release, ...]:
    """Return every listed release, oldest first."""
    extras = {version: row for row in facts.rows("tensorflow", "extras") for version in row["releases"]}
    found = []
    for row in facts.rows("tensorflow", "releases"):
        extra = extras.get(row["version"])
        found.append(
            Release(
                version=row["version"],
                pythons=tuple(row["pythons"]),
                cuda=row["cuda"],
                cudnn=row["cudnn"],
                extra_style=extra["style"] if extra else "none",
                fact=facts.fact(row),
                extra=extra["wheels"] if extra else {},
            )
        )
    return tuple(found)


@functools.cache
def release(version: str) -> Release:
    """Return a release; `2.16` is the newest stable one of the series. Raises UnknownRelease."""
    if version in _OWN:
        return _OWN[version][0]
    try:
        asked = Version(version)
    except InvalidVersion:
        raise UnknownRelease(
            f'"{version}" is not a TensorFlow release (expected something like {newest().version})',
            (newest().version,),
            hint="give a nightly's own version, such as 2.23.0.dev20261026" if "nightly" in version else None,
        ) from None
    if _SERIES.fullmatch(version) and any(one.minor == version and not one.prerelease for one in releases()):
        return newest_patch(version)
    for known in releases():
        if Version(known.version) == asked:
            return known
    same = [known.version for known in reversed(releases()) if known.minor == major_minor(version)]
    others = nearest_versions(version, (known.version for known in releases() if known.version not in same))
    nearest = (*same, *others)[:3]
    for known in releases():
        if known.prerelease and Version(known.version).release == asked.release and not asked.is_prerelease:
            raise UnknownRelease(
                f'tensorflow "{version}" is not known: only its candidate {known.version} was inspected',
                (known.version, *(one for one in nearest if one != known.version)),
                hint=f"ask for {known.version}, or for {newest().version}, the newest release",
            )
    raise UnknownRelease(f'tensorflow "{version}" is not known{nearest_clause(nearest)}', nearest)


@functools.cache
def newest() -> Release:
    return [known for known in releases() if not known.prerelease][-1]


@functools.cache
def is_candidate(version: str) -> bool:
    """Return True for the newest candidate of a release that is later than every stable one."""
    asked = Version(version)
    candidates = [
        Version(known.version)
        for known in releases()
        if known.prerelease and not Version(known.version).is_devrelease
    ]
    return asked > Version(newest().version) and asked == max(
        (one for one in candidates if one.release == asked.release), default=None
    )


@functools.cache
def newest_patch(minor: str) -> Release:
    """Return the newest stable release of a minor version (`2.19`). Raises UnknownRelease."""
    found = [known for known in releases() if known.minor == minor and not known.prerelease]
    if not found:
        minors = dict.fromkeys(known.minor for known in releases() if not known.prerelease)
        nearest = nearest_versions(minor, minors)
        raise UnknownRelease(f'tensorflow "{minor}" is not known{nearest_clause(nearest)}', nearest)
    return found[-1]


# Wheels that no table lists: a build of one's own, a nightly, a community's build. Each is inspected like a
# release, and known until the process ends by a name with its hash (`2.21.0+b3f1c2d4`).

_OWN: dict[str, tuple[Release, Build]] = {}


def origin_of(version: str) -> Wheel | None:
    """Return the wheel of a release that no table lists, or None."""
    return _OWN[version][0].origin if version in _OWN else None


def is_inspected(release: Release | None) -> bool:
    """Return True if the facts know what is in the wheel of a release, or that wheel was inspected here."""
    return release is not None and (release.version in _OWN or release in releases())


def published_twin(row: facts.Row) -> str | None:
    """Return the release on PyPI with the same build and device code as an inspected wheel, or None."""
    same = ("build", "kernels", "opens")
    twins = (one for one in _opened().values() if all(one[key] == row[key] for key in same))
    return next((one["tensorflow"] for one in twins), None)


def add_wheel(row: facts.Row, name: str, pythons: tuple[str, ...], origin: Wheel) -> Release:
    """Make an inspected wheel known as a release with this name, and return it.

    row: as in builds.yaml, of a wheel that was built with CUDA. pythons: those that it can be installed for.
    Where nothing in the wheel names the CUDA that it was built with, it is the oldest that the extra allows,
    or the first of the major version whose libraries it opens.
    """
    extra = {
        parts[1].lower(): parts[2]
        for text in row["and_cuda"]
        if (parts := re.match(r"([\w.-]+)(.*)", text)) and parts[2]
    }
    style = "exact" if all(pin.startswith("==") for pin in extra.values()) else "range"
    built = _build({**row, "status": facts.DERIVED}, row["tensorflow"])
    if published_twin(row) is None and "llvm_ptx" in row:
        built = replace(built, llvm_ptx=isa(row["llvm_ptx"]))
    cuda = row["build"]["cuda"]
    if not cuda:
        # From 2.22 on, no file in the wheel names it.
        wanted = next((pin for name, pin in extra.items() if name.startswith("nvidia-cuda-runtime")), "")
        lowest = re.search(r"(?:>=|==)([\d.]+)", wanted)
        opened = next((soname for soname in row["opens"] if soname.startswith("libcudart.so.")), "")
        cuda = lowest[1] if lowest else f"{opened.removeprefix('libcudart.so.') or '12'}.0"
    fact = replace(built.fact, id=f"wheel-{name}")
    built = replace(built, fact=fact)
    found = Release(
        version=name,
        pythons=pythons,
        cuda=major_minor(cuda),
        cudnn=major_minor(row["build"]["cudnn_headers"] or f"{row['build']['cudnn'] or 9}.0"),
        extra_style=style if extra else "none",
        fact=fact,
        extra=extra,
        package=origin.name,
        origin=origin,
    )
    _OWN[name] = found, built
    # The same wheel may have been read from another place.
    release.cache_clear()
    return found


# TensorFlow releases that are too old for images, and the drivers that their CUDA toolkits need: people still
# ask about them.


@functools.lru_cache(maxsize=1024)
def release_of_any_age(version: str) -> Release | None:
    """Return the facts of a release (`2.18.0`, `1.15`), or None if they don't have it.

    Text after the numbers does not matter (`2.17.0+nv25.2`). Two numbers stand for the newest release of the
    series. A release before those in `releases()` has the version as it was given.
    """
    if version in _OWN:
        return _OWN[version][0]
    numbers = leading_numbers(version)
    if len(numbers) < 2:
        return None
    minor = f"{numbers[0]}.{numbers[1]}"
    for row in facts.rows("older", "releases"):
        if row["minor"] == minor:
            return _older(row, ".".join(map(str, numbers[:3])))
    for text in (version.strip(), ".".join(map(str, numbers[:3]))):
        with contextlib.suppress(UnknownRelease):
            return release(text)
    return None


def nearest_inspected(version: str) -> Release | None:
    """Return the inspected release nearest to an old one, a candidate or a nightly; None for others."""
    if version in _OWN:
        return None
    try:
        asked = Version(version)
    except InvalidVersion:
        return None
    known = releases()
    # "2" is a series.
    if "." not in version or any(Version(one.version) == asked for one in known):
        return None
    if any(row["minor"] == major_minor(version) for row in facts.rows("older", "releases")):
        return known[0]
    last = Version(known[-1].version).release
    if not asked.is_prerelease or asked.release[:2] > (last[0], last[1] + 1):
        return None
    same = [one for one in known if one.minor == major_minor(version)]
    exact = [one for one in same if Version(one.version).release == asked.release]
    return exact[0] if exact else (same or known)[-1]


@functools.cache
def every_python() -> tuple[str, ...]:
    """Return every Python that a release has a wheel for, oldest first, and the one after the newest."""
    rows = (*facts.rows("older", "releases"), *facts.rows("tensorflow", "releases"))
    known = sorted({leading_numbers(python)[:2] for row in rows for python in row["pythons"]})
    known.append((known[-1][0], known[-1][1] + 1))
    return tuple(f"{major}.{minor}" for major, minor in known)


@functools.cache
def known_versions() -> tuple[str, ...]:
    """Return every stable release in the facts, oldest first; before 2.8 one for each minor version."""
    older = [f"{known.version}.0" for known in older_releases()]
    return (*older, *(known.version for known in releases() if not known.prerelease))


@functools.cache
def older_releases() -> tuple[Release, ...]:
    """Return the releases before 2.8, oldest first; one for each minor version (`2.7`)."""
    return tuple(_older(row, row["minor"]) for row in reversed(facts.rows("older", "releases")))


@functools.cache
def newest_with(
    cuda: str = "", cudnn: str = "", python: str | None = None, *, windows: bool = False
) -> Release | None:
    """Return the newest stable release that was built with a CUDA or cuDNN and has a wheel for a Python.

    cuda: as the names of its libraries hold it, which only releases before 2.12 print. windows: it has to use
    a GPU there. Return None if no release is known.
    """
    wanted = leading_numbers(cuda or cudnn)[:2]
    parts = _named_parts(cuda)
    for one in every_stable_release(python):
        built = leading_numbers(one.cuda if cuda else one.cudnn)
        names_it = not cuda or leading_numbers(one.version) < (2, 12)
        names_it = names_it and (not windows or has_cuda_on_windows(one.version))
        if wanted and built[:parts] == wanted[:parts] and names_it:
            return one
    return None


def has_cuda_on_windows(version: str) -> bool:
    """Return whether the wheels of a release for native Windows have CUDA: 2.10 was the last with it."""
    return leading_numbers(version) < (2, 11)


def _named_parts(cuda: str) -> int:
    """Return how many numbers of a CUDA's version the names of its libraries hold: two up to CUDA 10."""
    return 1 if leading_numbers(cuda) >= (11,) else 2


@functools.cache
def newest_for_cudnn(
    loaded: str, python: str | None = None, before: str = "", cuda: str = ""
) -> Release | None:
    """Return the newest stable release, older than `before`, that accepts a cuDNN of its major version.

    cuda: it has to open CUDA of the same major version.
    """
    there, refused = leading_numbers(loaded)[:2], leading_numbers(before)
    stable = (
        one for one in every_stable_release(python) if not before or leading_numbers(one.version) < refused
    )
    opened = leading_numbers(cuda)[:1]
    fit = (one for one in stable if not opened or leading_numbers(one.cuda)[:1] == opened)
    built = ((one, leading_numbers(one.cudnn)[:2]) for one in fit)
    return next((one for one, cudnn in built if cudnn[:1] == there[:1] and cudnn <= there), None)


@functools.cache
def libraries_by_release(
    python: str | None,
    windows: bool,
    *,
    among: tuple[Release, ...] = (),
    cuda: str = "",
    driver: bool = False,
) -> str:
    """Return what the releases with a wheel for a Python need, newest first, as a list in a sentence.

    `2.1 to 2.3: CUDA 10.1, cuDNN 7.6; ...`. windows: whether they have to use a GPU there. among: only these
    releases, if any. cuda: only those that open its libraries. driver: name the oldest driver in
    place of cuDNN.
    """
    usable = [
        one for one in every_stable_release(python) if not windows or leading_numbers(one.version) < (2, 11)
    ]
    usable = [one for one in usable if one in among] or usable
    if cuda:
        parts = _named_parts(cuda)
        there = leading_numbers(cuda)[:2]
        usable = [one for one in usable if leading_numbers(one.cuda)[:parts] == there[:parts]]
        # 11.1 has another libcusolver than 11.0 (the fact opens-cusolver-10).
        usable = [one for one in usable if one.cuda != "11.0" or there <= (11, 0)]

    def needs(one: Release) -> str:
        floor = oldest_driver(CudaVersion.parse(one.cuda), windows) if driver else None
        if floor is not None:
            return f"driver {floor.driver}"
        return f"CUDA {one.cuda}, cuDNN {major_minor(one.cudnn)}"

    found = []
    for needed, group in itertools.groupby(usable, needs):
        series = list(dict.fromkeys(one.minor for one in group))
        found.append(
            f"{series[-1]} to {series[0]}: {needed}" if len(series) > 1 else f"{series[0]}: {needed}"
        )
    return "; ".join(found)


def every_stable_release(python: str | None = None) -> Iterator[Release]:
    """Yield the stable releases of any age, newest first; with a Python, those that have a wheel for it."""
    known = (*older_releases(), *(one for one in releases() if not one.prerelease))
    return (one for one in reversed(known) if python is None or major_minor(python) in one.pythons)


@functools.lru_cache(maxsize=1024)
def oldest_driver(cuda: CudaVersion, windows: bool) -> hardware.Floor | None:
    """Return the oldest driver that runs a toolkit, on Linux or on Windows; None if it is not known."""
    every = hardware.minor_version(cuda.major, windows=windows)
    if every is not None:
        return every
    for row in facts.rows("older", "drivers"):
        if row["cuda"] == str(cuda):
            return hardware.Floor(
                DriverRelease.parse(row["windows" if windows else "linux"]), facts.fact(row)
            )
    return None


def newest_of_year(year: str) -> str:
    """Return the newest release, as `2.11`, at the end of a year; empty for years that are not known."""
    return next((row["tensorflow"] for row in facts.rows("older", "years") if row["year"] == year), "")


def newest_for_driver(driver: str, windows: bool) -> Release | None:
    """Return the newest release whose CUDA a driver runs; None if its version can't be read."""
    own = DriverRelease.or_none(driver)
    for one in every_stable_release() if own else ():
        floor = oldest_driver(CudaVersion.parse(one.cuda), windows)
        if own and floor and floor.driver <= own:
            return one
    return None


@functools.cache
def driver_with(cuda: CudaVersion, windows: bool = False) -> DriverRelease | None:
    """Return the oldest driver for which nvidia-smi shows a CUDA version; None if the tables don't have it.

    From CUDA 11 on, this is a whole branch, or on Windows a release that runs every toolkit of that CUDA.
    """
    branch = hardware.branch_for(cuda)
    if branch is not None:
        known, every = DriverRelease(branch.number), hardware.minor_version(cuda.major, windows=windows)
        return max(known, every.driver) if windows and every is not None else known
    floor = oldest_driver(cuda, windows)
    return floor.driver if floor is not None and hardware.minor_version(cuda.major) is None else None


def _older(row: facts.Row, version: str) -> Release:
    return Release(
        version=version,
        pythons=tuple(row["pythons"]),
        cuda=row["cuda"],
        cudnn=row["cudnn"],
        extra_style="none",
        fact=facts.fact(row),
        package=row.get("package", "tensorflow"),
        lowest_gpu=row["gpu"],
    )
