"""For a machine, what each TensorFlow release offers: images of this project, and what pip installs."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from ..model.prediction import Outcome, Prediction, Reason
from ..model.situation import LINUX, WSL2, X86_64, Situation
from ..model.spec import AS_BUILT, POLICIES, Cell, Choice, HostClass, ImageSpec, Variant
from ..versions import leading_numbers
from . import loose_values, older_releases, policies
from .errors import PolicyError, UnknownNameError
from .judge import judge
from .predict import situation_of
from .releases import Release, releases
from .releases import release as find_release
from .suggest import installed, pythons_to_try

_BEST_FIRST = (Outcome.WORKS, Outcome.UNKNOWN, Outcome.FAILS)
#: The oldest Python for which this project makes images: its probe needs it.
_OLDEST_PYTHON = (3, 9)
#: The identifier of an image with CUDA, as `ImageSpec.identifier` writes it.
_IDENTIFIER = re.compile(
    r"tf(?P<tensorflow>[^-_]+)-cuda(?P<cuda>[^-_]+)-cudnn(?P<cudnn>[^-_]+)-py(?P<major>\d)(?P<minor>\d+)"
    r"(?:-(?P<base>[^_]+))?(?P<added>_.+)?"
)


@dataclass(frozen=True)
class Image:
    """An image of this project, and whether it works.

    spec: without the image's additions, which are only in the identifier. usual: True if it has the CUDA and
    cuDNN that a policy gives.
    """

    identifier: str
    spec: ImageSpec
    usual: bool
    prediction: Prediction

    @property
    def has_additions(self) -> bool:
        return self.identifier != self.spec.identifier


@dataclass(frozen=True)
class Pip:
    """An installation with pip. python: the Python to install it with.

    library_path: True if it works only if the loader is told of NVIDIA's wheels. alone: the prediction if the
    loader is not told of them.
    """

    python: str
    library_path: bool
    prediction: Prediction
    alone: Prediction


@dataclass(frozen=True)
class Offer:
    """A release on a machine. images: none if this project makes no image of it for such a machine."""

    release: Release
    images: tuple[Image, ...]
    pip: Pip


def outcome(prediction: Prediction, mode: str) -> Outcome:
    """Return the outcome for `eager` or `xla`."""
    found: Outcome | None = getattr(prediction, mode)
    return prediction.outcome if found is None else found


def cautions(prediction: Prediction) -> list[Reason]:
    """Return the advisories about how operations run, such as one about a compiler with a known fault."""
    return [reason for reason in prediction.reasons if reason.advisory and reason.mode is not None]


def rank(prediction: Prediction) -> tuple[int, ...]:
    """Return a number for each of the outcomes. Those of the best prediction are the lowest."""
    modes = (prediction.outcome, outcome(prediction, "eager"), outcome(prediction, "xla"))
    return tuple(map(_BEST_FIRST.index, modes))


# The page asks for the same images with each question.
@functools.lru_cache(maxsize=8192)
def image_of(identifier: str) -> ImageSpec | None:
    """Return the image that an identifier names, without its additions.

    None for an image without CUDA, for versions that the facts do not have, and for other text.
    """
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


def offers(machine: Situation, known: Mapping[str, ImageSpec]) -> Iterator[Offer]:
    """Yield what each stable release offers, the newest first.

    machine: its driver, GPU, system, architecture and Python; what is not known is None. known: images to
    consider besides the usual ones, by their identifiers, such as those that can be pulled.
    """
    stable = [release for release in releases() if not release.prerelease]
    for release in reversed((*older_releases.older_releases(), *stable)):
        yield offer(machine, release, known)


def offer(machine: Situation, release: Release, known: Mapping[str, ImageSpec]) -> Offer:
    """Return what one release offers. machine, known: as in `offers`."""
    return Offer(release, tuple(_images(machine, release, known)), _pip(machine, release))


def _pip(machine: Situation, release: Release) -> Pip:
    """Return the installation with the machine's Python or, if that is not known, with the best one."""
    pythons = pythons_to_try(release, loose_values.minor(machine.python))
    return min((_pip_with(python, machine, release) for python in pythons), key=_rank_of_pip)


def _rank_of_pip(pip: Pip) -> tuple[object, ...]:
    return rank(pip.prediction), pip.library_path


def _pip_with(python: str, machine: Situation, release: Release) -> Pip:
    alone, told = (
        judge(replace(installed(machine, release, library_path=library_path), python=python))
        for library_path in (False, True)
    )
    if rank(told) < rank(alone):
        return Pip(python, True, told, alone)
    # If it fails either way, the missing library path is not the reason.
    prediction = told if alone.outcome is Outcome.FAILS and rank(told) == rank(alone) else alone
    return Pip(python, False, prediction, prediction)


def _images(machine: Situation, release: Release, known: Mapping[str, ImageSpec]) -> Iterator[Image]:
    """Yield a release's images: those of each policy, the recommended first, and the known."""
    if machine.system not in (None, LINUX, WSL2) or machine.machine not in (None, X86_64):
        return
    pythons = _pythons(machine, release)
    if not pythons or not release.wheels:
        return
    choices = list(_choices(release))
    usual = [ImageSpec(release.version, pythons[0], Variant.GPU, cuda, cudnn) for cuda, cudnn in choices]
    others = {
        identifier: spec
        for identifier, spec in known.items()
        if spec.tensorflow == release.version and spec.python in pythons
    }
    for identifier, spec in ({spec.identifier: spec for spec in usual} | others).items():
        situation = replace(
            situation_of(Cell(spec, HostClass.without_gpu())),
            system=machine.system or LINUX,
            driver=machine.driver,
            driver_cuda=machine.driver_cuda,
            gpu=machine.gpu,
            capability=machine.capability,
        )
        yield Image(identifier, spec, spec in usual, judge(situation))


def _pythons(machine: Situation, release: Release) -> list[str]:
    """Return the machine's Python if the release has a wheel for it, else those of the release."""
    usable = [python for python in release.pythons if leading_numbers(python) >= _OLDEST_PYTHON]
    wanted = loose_values.minor(machine.python)
    return [wanted] if wanted in usable else usable[::-1]


def _choices(release: Release) -> Iterator[tuple[Choice, Choice]]:
    for policy in POLICIES:
        try:
            yield policies.choose(release, policy, policy)
        except PolicyError:
            continue
