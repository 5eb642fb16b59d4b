"""What each TensorFlow release offers on a machine: images of this project, and what pip installs.

`newest_that_works` searches for one release, and `offers` tells about each of them. Both judge an
installation with `_installation`, and `judge` caches what it says.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..model.prediction import (
    EAGER,
    LINUX,
    MACOS,
    PYPI,
    WINDOWS,
    WSL2,
    X86_64,
    XLA,
    Host,
    Outcome,
    Prediction,
    Reason,
    Software,
)
from ..model.spec import AS_BUILT, LATEST, ImageSpec, Variant
from ..versions import DriverRelease, Version, leading_numbers, minor_in
from . import facts, hardware, policies
from .facts import PolicyError, UnknownNameError
from .judge import judge, judge_host
from .known_issues import trait_holds
from .predict import software_of
from .releases import Release, every_stable_release, is_candidate, newest, release_of_any_age, releases
from .releases import release as find_release

_BEST_FIRST = (Outcome.WORKS, Outcome.UNKNOWN, Outcome.FAILS)
#: The oldest Python for which this project makes images: its probe needs it.
_OLDEST_PYTHON = (3, 9)
#: The identifier of an image with CUDA, as `ImageSpec.identifier` writes it.
_IDENTIFIER = re.compile(
    r"tf(?P<tensorflow>[^-_]+)-cuda(?P<cuda>[^-_]+)-cudnn(?P<cudnn>[^-_]+)-py(?P<major>\d)(?P<minor>\d+)"
    r"(?:-(?P<base>[^_]+))?(?P<added>_.+)?"
)


@dataclass(frozen=True)
class Installation:
    """A release that pip installs with CUDA's libraries, and whether it works.

    python: the Python to install it with. library_path: True if the loader has to be told where NVIDIA's
        wheels are, because the release itself does not look there. alone: the prediction if it is not told.
    eager_only: True if it was chosen although functions that XLA compiles don't work.
    cudnn_below: the cuDNN to stay below, because the newest that the extra allows has no kernels for the GPU.
    """

    release: Release
    python: str
    library_path: bool
    prediction: Prediction
    alone: Prediction
    eager_only: bool = False
    cudnn_below: str | None = None

    @property
    def requirement(self) -> str:
        """`tensorflow[and-cuda]==2.20.0`; without the extra for a release that has none."""
        return requirement(self.release)

    @property
    def besides(self) -> tuple[str, ...]:
        """What to install in the same command: packages that no metadata names, such as CUDA's libraries."""
        if self.release.wheels and not has_extra(self.release):
            built = policies.choose(self.release, AS_BUILT, AS_BUILT)
            spec = ImageSpec(self.release.version, self.python, Variant.GPU, *built)
            return policies.tensorflow_requirements(spec)[1:]
        cudnn = (f"nvidia-cudnn-{self.release.suffix}<{self.cudnn_below}",) if self.cudnn_below else ()
        return (*cudnn, *policies.constraints(self.release.version))

    @property
    def afterwards(self) -> tuple[str, ...]:
        """What a command of its own installs, in place of faulty versions that the release's extra pins."""
        named = {reason.fact for reason in self.prediction.reasons if reason.advisory}
        return tuple(
            f"{name}-{self.release.suffix}{versions}"
            for row in facts.rows("known_issues", "issues")
            if row["id"] in named
            for name, versions in row.get("installs", {}).items()
        )


@dataclass(frozen=True)
class Image:
    """An image of this project. spec: without additions. usual: it has the CUDA and cuDNN of a policy."""

    identifier: str
    spec: ImageSpec
    usual: bool
    prediction: Prediction

    @property
    def has_additions(self) -> bool:
        return self.identifier != self.spec.identifier


@dataclass(frozen=True)
class Offer:
    """A release on a machine. images: none if this project makes no image of it for such a machine."""

    release: Release
    images: tuple[Image, ...]
    pip: Installation


def outcome(prediction: Prediction, mode: str) -> Outcome:
    in_mode: Outcome | None = getattr(prediction, mode)
    return prediction.outcome if in_mode is None else in_mode


def cautions(prediction: Prediction) -> list[Reason]:
    """Return the advisories about how operations run, such as one about a compiler with a known fault."""
    return [reason for reason in prediction.reasons if reason.advisory and reason.mode is not None]


def rank(prediction: Prediction) -> tuple[int, ...]:
    """Return a number for each of the outcomes; the best prediction has the lowest numbers."""
    modes = (prediction.outcome, outcome(prediction, "eager"), outcome(prediction, "xla"))
    return tuple(map(_BEST_FIRST.index, modes))


def first_usable(
    images: Iterable[ImageSpec],
    predict: Callable[[ImageSpec], Sequence[Prediction]],
    accepted: Container[Outcome | None] = (Outcome.WORKS,),
) -> ImageSpec | None:
    """Return the first image that works on all machines, else the first whose eager operations do, or None.

    predict: returns the predictions of an image, one for each machine. accepted: the outcomes that count.
    """
    eager = None
    for image in images:
        predictions = predict(image)
        if all(prediction.outcome in accepted for prediction in predictions):
            return image
        if eager is None and all(prediction.eager in accepted for prediction in predictions):
            eager = image
    return eager


# Installations with pip.


# A diagnosis asks for it once for each remedy.
@functools.lru_cache(maxsize=1024)
def newest_that_works(host: Host, python: str | None, other_than: str | None = None) -> Installation | None:
    """Return the newest stable release that pip can install on a machine and that works there.

    other_than: a release that is not the answer. Preferred are releases that find CUDA's libraries by
    themselves, then those for the machine's Python; one that works only for eager operations comes last. If
    facts about the machine are missing, return the newest that nothing speaks against, or None.
    """
    stable = [
        release
        for release in reversed(releases())
        if not release.prerelease and release.version != other_than
    ]
    pythons = dict.fromkeys((minor_in(python), None))
    by_path = [(release, path) for path in (False, True) for release in stable]
    by_release = [(release, path) for release in stable for path in (False, True)]
    for order, eager_only in ((by_path, False), (by_release, True)):
        for wanted in pythons:
            if chosen := _first_that_works(host, order, wanted, eager_only):
                return chosen
    return None


def candidate_that_works(host: Host, python: str | None) -> Installation | None:
    """Return the newest release candidate if it works; None if a stable release is newer."""
    for release in reversed(releases()):
        if is_candidate(release.version):
            chosen = _first_that_works(host, ((release, False), (release, True)), minor_in(python))
            return chosen if chosen and chosen.prediction.outcome is Outcome.WORKS else None
    return None


def same_or_newest(host: Host, software: Software) -> Installation | None:
    """Return the release in use if it works, else the newest of its series, else of all, else None."""
    own = release_of_any_age(software.tensorflow or "")
    if own in releases() and not own.prerelease:
        series = [one for one in reversed(releases()) if one.minor == own.minor and not one.prerelease]
        candidates = itertools.product(dict.fromkeys((own, *series)), (False, True))
        if chosen := _first_that_works(host, candidates, minor_in(software.python)):
            return chosen
    return newest_that_works(host, software.python)


def why_not(host: Host, python: str | None, tensorflow: str | None = None) -> str:
    """Return why a release (None: the newest) does not work, without a full stop; empty if it does."""
    release = release_of_any_age(tensorflow) if tensorflow is not None else newest()
    if release not in releases():
        return ""
    wanted = minor_in(python) or release.pythons[-1]
    reasons = _installation(host, release, wanted, library_path=True)[0].reasons
    return next((reason.text for reason in reasons if reason.outcome is Outcome.FAILS), "")


def _first_that_works(
    host: Host, candidates: Iterable[tuple[Release, bool]], python: str | None, eager_only: bool = False
) -> Installation | None:
    """Return the first installation that nothing speaks against. python: None for the newest.

    candidates: releases, each with whether the loader is told about NVIDIA's wheels.
    """
    for release, library_path in candidates:
        for wanted in (python,) if python else release.pythons[::-1]:
            prediction, below = _installation(host, release, wanted, library_path=library_path)
            decides = prediction.eager if eager_only else prediction.outcome
            doubts = any(
                reason.outcome is Outcome.UNKNOWN and not (eager_only and reason.mode == XLA)
                for reason in prediction.reasons
            )
            if decides is Outcome.WORKS or (decides is Outcome.UNKNOWN and prediction.missing and not doubts):
                alone, _ = _installation(host, release, wanted, library_path=False)
                return Installation(release, wanted, library_path, prediction, alone, eager_only, below)
    return None


@functools.lru_cache(maxsize=2048)  # a question about any Python asks what the others ask
def _installation(
    host: Host, release: Release, python: str, *, library_path: bool
) -> tuple[Prediction, str | None]:
    """Predict for what pip installs, and return the cuDNN to stay below if only an older one has kernels."""
    host = replace(host, system=host.system or LINUX, machine=host.machine or X86_64)
    software = replace(installed(release, library_path=library_path), python=python)
    found = judge(software, host)
    if release.extra_style == "range" and any(one.rule == "cudnn_without_gpu" for one in found.reasons):
        for below, version in _older_cudnn(release):
            packages = tuple({**software.versions, "nvidia-cudnn": version}.items())
            other = judge(replace(software, cudnn=version, packages=packages), host)
            if rank(other) < rank(found):
                return other, below
    return found, None


@functools.cache
def _older_cudnn(release: Release) -> tuple[tuple[str, str], ...]:
    """Return the cuDNN releases where the GPUs with kernels change, and the newest wheel below each."""
    allowed = [Version(version) for version in policies.allowed_cudnn(release)]
    bounds = [Version(row["from"]) for row in facts.rows("cudnn", "cudnn")]
    older = ((bound, max((one for one in allowed if one < bound), default=None)) for bound in bounds[::-1])
    return tuple((str(bound), str(version)) for bound, version in older if version is not None)


@functools.lru_cache(maxsize=1024)
def installed(release: Release, *, library_path: bool) -> Software:
    """Return what pip installs for a release. library_path: the loader is told where NVIDIA's wheels are."""
    software = Software(
        tensorflow=release.version,
        cuda=release.cuda,
        cudnn=release.cudnn,
        variant=Variant.GPU.value,
        wheel=PYPI,
        extra=has_extra(release),
        library_path=library_path,
    )
    if not release.wheels:
        return software
    policy = LATEST if release.extra_style == "range" else AS_BUILT
    try:
        cuda, cudnn = policies.choose(release, policy, policy)
    except PolicyError:
        cuda, cudnn = policies.choose(release, AS_BUILT, AS_BUILT)
    packages = policies.loaded_packages(release, cudnn, cuda)
    return replace(
        software, cuda=cuda.version, cudnn=packages["nvidia-cudnn"], packages=tuple(packages.items())
    )


def requirement(release: Release) -> str:
    """Return the requirement with CUDA's libraries for pip; for a minor version, of its newest release."""
    whole = policies.requirement_of(release, "[and-cuda]" if has_extra(release) else "")
    return whole if release.version.count(".") > 1 else f"{whole}.*"


def has_extra(release: Release) -> bool:
    """Return whether a release has the extra `and-cuda`."""
    return release.extra_style != "none"


def needs_another_python(chosen: Installation, python: str | None) -> bool:
    """Return True if it needs another Python than the machine's; None stands for the release's newest."""
    return chosen.python != (minor_in(python) or chosen.release.pythons[-1])


def notes_about(chosen: Installation, *, has_cuda: bool = False) -> list[str]:
    """Return notes on an installation, as sentences. has_cuda: CUDA's libraries are installed too."""
    release = chosen.release
    notes = []
    if not release.wheels and not has_cuda:
        notes.append(
            f"TensorFlow {release.version} does not bring CUDA's libraries: install CUDA {release.cuda} and"
            f" cuDNN {release.cudnn} too."
        )
    if chosen.library_path:
        notes.append(
            f"TensorFlow {release.version} does not search all directories of NVIDIA's wheels: tell the"
            " loader about them before Python starts."
        )
    if chosen.afterwards and release.extra_style == "exact":
        notes.append(
            f"pip installs {chosen.afterwards[0]} and warns that the extra of {release.version} forbids it."
        )
    if chosen.eager_only:
        notes.append(
            f"With TensorFlow {release.version} only eager execution and graphs work on this GPU. XLA fails:"
            " set jit_compile=False (Keras 3 turns it on by itself)."
        )
    return notes


# What every release offers.


# The page asks for the same images with each question.
@functools.lru_cache(maxsize=8192)
def image_of(identifier: str) -> ImageSpec | None:
    """Return the image, without additions, that an identifier names; None without CUDA or known versions."""
    match = _IDENTIFIER.fullmatch(identifier)
    if match is None:
        return None
    try:
        release = find_release(match["tensorflow"])
        cuda, cudnn = policies.choose(
            release,
            AS_BUILT if match["cuda"] == release.cuda else match["cuda"],
            AS_BUILT if match["cudnn"] == release.cudnn else match["cudnn"],
            within_metadata=False,
        )
    except UnknownNameError:
        return None
    python = f"{match['major']}.{match['minor']}"
    spec = ImageSpec(release.version, python, Variant.GPU, cuda, cudnn, base=match["base"])
    return spec if spec.identifier + (match["added"] or "") == identifier else None


def offers(host: Host, python: str | None, images: Mapping[str, ImageSpec]) -> Iterator[Offer]:
    """Yield what each stable release offers, the newest first. python: the machine's, or None.

    images: by identifier, those to consider besides the usual ones, such as those that can be pulled.
    """
    return (offer(host, python, release, images) for release in every_stable_release())


def offer(host: Host, python: str | None, release: Release, images: Mapping[str, ImageSpec]) -> Offer:
    """Return what one release offers. The arguments are those of `offers`."""
    minor = minor_in(python)
    # If nothing works with the machine's Python, pip gets an environment with another one.
    another = minor and (found := newest_that_works(host, minor)) and found.python != minor
    pythons = (minor,) if minor and not another else release.pythons[::-1]
    pips = [_either_way(host, release, wanted) for wanted in pythons]

    def order(pip: Installation) -> tuple[object, ...]:
        faults = sum(reason.outcome is Outcome.FAILS for reason in pip.prediction.reasons)
        return rank(pip.prediction), pip.library_path, faults

    pip = min(pips, key=order)
    return Offer(release, tuple(_images(host, minor, release, images)), pip)


def _either_way(host: Host, release: Release, python: str) -> Installation:
    """Return an installation in which the loader is told about NVIDIA's wheels only if that is better."""
    (alone, below), (told, told_below) = (
        _installation(host, release, python, library_path=path) for path in (False, True)
    )
    if rank(told) < rank(alone):
        return Installation(release, python, True, told, alone, cudnn_below=told_below)
    # If it fails either way, the missing library path is not the reason.
    prediction = told if alone.outcome is Outcome.FAILS and rank(told) == rank(alone) else alone
    return Installation(release, python, False, prediction, prediction, cudnn_below=below)


def _images(
    host: Host, python: str | None, release: Release, images: Mapping[str, ImageSpec]
) -> Iterator[Image]:
    """Yield a release's images: those of each policy, the recommended first, and the given ones."""
    if host.system not in (None, LINUX, WSL2) or host.machine not in (None, X86_64):
        return
    pythons = [one for one in release.pythons if leading_numbers(one) >= _OLDEST_PYTHON][::-1]
    pythons = [python] if python in pythons else pythons
    if not pythons or not release.wheels:
        return
    chosen = policies.by_policy(release).values()
    usual = [ImageSpec(release.version, pythons[0], Variant.GPU, *pair) for pair in chosen]
    others = {
        identifier: spec
        for identifier, spec in images.items()
        if spec.tensorflow == release.version and spec.python in pythons
    }
    # An image brings its own libraries, so a cuda-compat package of the machine makes no difference.
    there = replace(host, system=host.system or LINUX, machine=X86_64, kernel_modules=None, compat=None)
    for identifier, spec in ({spec.identifier: spec for spec in usual} | others).items():
        yield Image(identifier, spec, spec in usual, judge(software_of(spec), there))


# Find the driver with which a machine could run a newer TensorFlow release than with its own.


@dataclass(frozen=True)
class OtherDriver:
    """The oldest driver that allows the newest release which the machine can use with any driver.

    last_branch: the last driver branch for the GPU, None if the newest one supports it. is_older: True if the
    machine's own driver is too new for the GPU.
    """

    driver: DriverRelease
    last_branch: int | None
    is_older: bool


def other_driver(host: Host, python: str | None) -> OtherDriver | None:
    """Return the driver that allows a newer release; None if there is none, or if the machine's is not known.

    It is not known for a CUDA version that can't be read, and None is returned for a machine without a GPU. A
    release can be used if eager operations work in an image of this project or with pip, or if nothing speaks
    against it and only facts about the machine are missing.
    """
    machine = judge_host(host)
    own, capability = machine.driver, machine.capability
    if own is None:
        return None
    row = hardware.last_branch(capability) if capability else None
    last = row["branch"] if row else None
    is_older = last is not None and own.branch > last
    drivers_for_gpu = [driver for driver in _candidates() if last is None or driver.branch <= last]
    wanted = drivers_for_gpu[-1:] if is_older else [driver for driver in drivers_for_gpu if own < driver]
    newest = _newest_release(_with(host, wanted[-1]), python) if wanted else None
    if newest is None or newest == _newest_release(host, python):
        return None
    # A single release sorts before its branch, because a branch stands for its newest release.
    fitting = (driver for driver in wanted if _is_usable(offer(_with(host, driver), python, newest, {})))
    return OtherDriver(next(fitting), last, is_older)


def _with(host: Host, driver: DriverRelease) -> Host:
    return replace(host, driver=str(driver), driver_cuda=None)


def _newest_release(host: Host, python: str | None) -> Release | None:
    return next((offer.release for offer in offers(host, python, {}) if _is_usable(offer)), None)


def _is_usable(offer: Offer) -> bool:
    predictions = (*(image.prediction for image in offer.images), offer.pip.prediction)
    eager = [(outcome(prediction, EAGER), prediction.missing) for prediction in predictions]
    return any(seen is Outcome.WORKS or (seen is Outcome.UNKNOWN and missing) for seen, missing in eager)


@functools.cache
def _candidates() -> tuple[DriverRelease, ...]:
    """Return the known branches, and the oldest driver release that runs each CUDA major version."""
    floors = facts.rows("drivers", "minor_version")
    oldest = {DriverRelease.parse(row[name]) for row in floors for name in ("driver", "windows")}
    return tuple(sorted(oldest.union(DriverRelease(one.number) for one in hardware.branches())))


# Fill the release to install into the commands of a remedy: one that is predicted to work for the reader. The
# data of remedies has the placeholders below. What else the release needs (another Python, a library path,
# NumPy 1) is added here, so that every remedy says it.

#: The directories of NVIDIA's wheels, in Python.
NVIDIA_DIRECTORIES = 'glob.glob(sysconfig.get_path("purelib") + "/nvidia/*/lib")'
#: The reader's own release with the libraries that it was built for, or the newest that works if it doesn't.
KEEP = "pin_to_keep"
#: The newest release that works and is not the reader's own, which the answer rules out.
OTHER = "pin_of_another"
#: Which other releases work with which drivers, for a reader whose driver is not known.
BY_DRIVER = "releases_by_driver"
#: The Python of a new environment, so that the reader's own does not limit the release.
PYTHON = "python_that_works"
PLACEHOLDERS = frozenset({"release_that_works", "pin_that_works", KEEP, OTHER, BY_DRIVER, PYTHON})

#: The Python of an environment that a command makes.
_NEW_PYTHON = re.compile(r"\bpy(?:thon)?[ =:]?-?(3\.\d+)")
#: Ways in which commands run in an image and not in the reader's shell.
_IN_IMAGES = frozenset({"docker", "podman", "compose", "kubernetes", "apptainer"})
#: The Python whose pip a command runs: `tf/bin/python`, `py -3.10`, `!python` in a notebook; or the directory
#: of the environment that uv installs into.
_INSTALLER = re.compile(
    r"(?P<python>(?:\S*python[\d.]*|py(?: -3[\d.]*)?)) -m pip install"
    r"|uv pip install --python (?P<directory>\S+)"
)
_CONFIGURE_LOADER = (
    f"""RUN {{}} -c 'import glob, sysconfig; print("\\n".join({NVIDIA_DIRECTORIES}))'"""
    " > /etc/ld.so.conf.d/nvidia-wheels.conf && ldconfig   # in the Dockerfile"
)


@dataclass(frozen=True)
class Filling:
    """Values for the placeholders of a remedy, and notes and commands around it that the release needs."""

    values: Mapping[str, str]
    notes: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


def filling(
    way: str, names: Collection[str], commands: Sequence[str], host: Host, software: Software
) -> Filling | None:
    """Return what a remedy is filled with, or None if no release works for the reader.

    way: that of the remedy. names: its placeholders. commands: those of the remedy. host, software: what is
    known of the reader's machine and environment.
    """
    host, software = _target(way, names, commands, host, software)
    keeps = KEEP in names
    excluded = software.tensorflow if OTHER in names else None
    newest = None if keeps else newest_that_works(host, software.python, excluded)
    chosen = same_or_newest(host, software) if keeps else newest
    if chosen is None:
        return None
    if BY_DRIVER in names:
        by_driver = releases_by_driver(host, software)
        return Filling({BY_DRIVER: by_driver}) if by_driver else None
    values = {
        "release_that_works": chosen.release.version,
        **dict.fromkeys(("pin_that_works", KEEP, OTHER), chosen.requirement),
        PYTHON: chosen.python,
    }
    other = _of_another_release(host, software, chosen) if keeps else ()
    any_python = software.python is None and PYTHON not in names and way not in _IN_IMAGES
    other_python = needs_another_python(chosen, software.python)
    other = (*other, *_conditions(chosen, host, any_python or other_python))
    installs = any("pip install" in command for command in commands)
    # conda's own packages of CUDA.
    has_cuda = any("cudatoolkit=" in command for command in commands)
    if not installs:
        return Filling(values, (*other, *notes_about(chosen, has_cuda=has_cuda)))
    in_image = way in _IN_IMAGES
    notes: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    if other_python:
        notes, before = _with_python(way, chosen.python, host, any_python)
    after = tuple(_after(chosen, commands, in_image, has_cuda))
    return Filling(values, (*other, *notes, *notes_about(chosen, has_cuda=has_cuda)), before, after)


def nothing_works(
    way: str, names: Collection[str], commands: Sequence[str], host: Host, software: Software
) -> str:
    """Return the sentence that says why no release works where a remedy installs it; empty if one does."""
    host, software = _target(way, names, commands, host, software)
    if newest_that_works(host, software.python) is not None:
        return ""
    known = (one.version for one in reversed(releases()))
    on_windows = (one for one in known if trait_holds("cuda-on-windows", tensorflow=one))
    last = next(on_windows, None) if host.system == WINDOWS else None
    reason = why_not(host, software.python, last)
    return f"No release on PyPI is predicted to use the GPU here: {reason}." if reason else ""


def _target(
    way: str, names: Collection[str], commands: Sequence[str], host: Host, software: Software
) -> tuple[Host, Software]:
    """Return the machine and the software, with its Python, for which a remedy installs a release."""
    if host.system == WINDOWS and (way == "wsl" or way in _IN_IMAGES):
        # Linux runs there, with a Python of its own.
        host, software = replace(host, system=WSL2), replace(software, python=None)
    new = next(filter(None, map(_NEW_PYTHON.search, commands)), None)
    if PYTHON in names or new is not None:
        software = replace(software, python=new[1] if new else None)
    return host, software


def releases_by_driver(host: Host, software: Software) -> str:
    """Return which release works with which driver branches: `2.16.2 with R525 to R535, …`; may be empty.

    host: a machine whose driver is not known. The branches with which the software's own release works are
    left out.
    """
    numbers = [branch.number for branch in hardware.branches()]
    own = software.tensorflow or ""
    fails = [one for one in numbers if why_not(_with(host, DriverRelease(one)), software.python, own)]
    found = []
    for number in fails if release_of_any_age(own) in releases() else numbers:
        works = newest_that_works(_with(host, DriverRelease(number)), software.python, own)
        found.append((works.release.version if works else "", number))
    parts = []
    for version, group in itertools.groupby(found, key=lambda pair: pair[0]):
        span = [number for _, number in group]
        last = " or newer" if span[-1] == numbers[-1] else f" to R{span[-1]}" if len(span) > 1 else ""
        parts += [f"{version} with R{span[0]}{last}"] if version else []
    return ", ".join(parts)


@functools.lru_cache(maxsize=256)
def _conditions(chosen: Installation, host: Host, any_python: bool) -> tuple[str, ...]:
    """Return under which conditions a release works, as far as they depend on facts that are not known.

    any_python: neither the reader's Python nor one for a new environment is known.
    """
    release, needs = chosen.release, []

    def works(machine: Host, python: str = chosen.python) -> bool:
        same = ((release, chosen.library_path),)
        found = _first_that_works(machine, same, python, chosen.eager_only)
        return found is not None and found.besides == chosen.besides

    if not host.names_driver and host.system != MACOS:
        branches = (branch.number for branch in hardware.branches())
        oldest = next((one for one in branches if works(_with(host, DriverRelease(one)))), None)
        needs += [f"driver {oldest} or newer"] if oldest else []
    if not host.names_gpu and host.system != MACOS:
        known = sorted({gpu.compute_capability for gpu in hardware.gpus()})
        usable = [one for one in known if works(replace(host, gpu=None, capability=str(one)))]
        needs += [f"a GPU of compute capability {usable[0]} to {usable[-1]}"] if usable else []
    # Packages of the extra may lack a wheel for a Python that TensorFlow itself has one for.
    pythons = [one for one in release.pythons if works(host, one)] if any_python else []
    needs += [f"Python {pythons[0]} to {pythons[-1]}"] if pythons else []
    listed = f"{', '.join(needs[:-1])} and {needs[-1]}" if needs[1:] else "".join(needs)
    return (f"TensorFlow {release.version} needs {listed}.",) if needs else ()


def _of_another_release(host: Host, software: Software, chosen: Installation) -> tuple[str, ...]:
    """Return what to say if a release that should keep the reader's own may be another one."""
    version, own = chosen.release.version, software.tensorflow
    if own is None:
        return ("Your release of TensorFlow is not known: to keep it, write its version instead.",)
    if release_of_any_age(own) == chosen.release:
        return ()
    why = why_not(host, software.python, own)
    return (
        f"This replaces TensorFlow {own} with {version}, because {own}"
        f" {f'does not work here: {why}' if why else 'is not known to work here'}.",
    )


def export_library_path(python: str) -> str:
    """Return the command for NVIDIA's directories, to run before Python. python: as the shell finds it."""
    code = f'import glob, sysconfig; print(":".join({NVIDIA_DIRECTORIES}))'
    return f"export LD_LIBRARY_PATH=$({python} -c '{code}')"


def _with_python(
    way: str, python: str, host: Host, any_python: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what to say and to run first if the reader's Python is another one, or not known."""
    if way in _IN_IMAGES:
        return (f"Use a base image with Python {python}.",), ()
    start = "If yours is another one, make" if any_python else "Make"
    notes = (f"{start} an environment with Python {python} first.",)
    if way == "conda":
        return notes, (f"conda create -y -n tf-gpu python={python} pip && conda activate tf-gpu",)
    if host.system == WINDOWS:
        # PowerShell 5 has no &&.
        return notes, (f"uv venv --seed --python {python} tf-gpu", r"tf-gpu\Scripts\activate")
    return notes, (f"uv venv --seed --python {python} tf-gpu && . tf-gpu/bin/activate",)


def _after(chosen: Installation, commands: Sequence[str], in_image: bool, has_cuda: bool) -> Iterator[str]:
    """Yield the commands that complete what the commands install, with the same Python."""
    match = next(filter(None, map(_INSTALLER.search, commands)), None)
    python, install = "python", "python -m pip install"
    if match is not None:
        python, install = match["python"] or f"{match['directory']}/bin/python", match[0]
    # They may already tell the loader about NVIDIA's wheels.
    named = any("/nvidia/*/lib" in command for command in commands)
    run = "RUN " if in_image else ""
    for group in (chosen.besides, chosen.afterwards):
        wanted = [one for one in group if not any(f'"{one}"' in command for command in commands)]
        # conda's own packages of CUDA take the place of NVIDIA's wheels.
        if quoted := " ".join(f'"{one}"' for one in wanted if not (has_cuda and one.startswith("nvidia-"))):
            yield f"{run}{install} {quoted}"
    if chosen.library_path and not named:
        yield _CONFIGURE_LOADER.format(python) if in_image else export_library_path(python.lstrip("!"))
