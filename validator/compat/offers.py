"""For a machine, what each TensorFlow release offers: an image of this project, and what pip installs."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from ..model.prediction import Outcome, Prediction
from ..model.situation import LINUX, WSL2, X86_64, Situation
from ..model.spec import AS_BUILT, LATEST, Cell, Choice, HostClass, ImageSpec, Variant
from . import loose, older, policies
from .errors import PolicyError
from .judge import judge
from .predict import situation_of
from .releases import Release, releases
from .suggest import installed

_BEST_FIRST = (Outcome.WORKS, Outcome.UNKNOWN, Outcome.FAILS)
#: The oldest Python for which this project makes images: its probe needs it.
_OLDEST_PYTHON = (3, 9)


@dataclass(frozen=True)
class Image:
    """An image of this project, and whether it works."""

    spec: ImageSpec
    prediction: Prediction


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
    """A release on a machine. image: None if this project makes no image of it for such a machine."""

    release: Release
    image: Image | None
    pip: Pip

    def outcome(self, mode: str) -> Outcome:
        """Return the better outcome of the two, for `eager` or `xla`."""
        found = [one.prediction for one in (self.image, self.pip) if one is not None]
        return min((outcome(each, mode) for each in found), key=_BEST_FIRST.index)


def outcome(prediction: Prediction, mode: str) -> Outcome:
    """Return the outcome for `eager` or `xla`."""
    found: Outcome | None = getattr(prediction, mode)
    return prediction.outcome if found is None else found


def offers(machine: Situation, preferred: Collection[str] = ()) -> Iterator[Offer]:
    """Yield what each stable release offers, the newest first.

    machine: its driver, GPU, system, architecture and Python; what is not known is None. preferred: the
    identifiers of images to choose where several are equally good, such as those that can be pulled.
    """
    stable = [release for release in releases() if not release.prerelease]
    for release in reversed((*older.older_releases(), *stable)):
        yield Offer(release, _image(machine, release, preferred), _pip(machine, release))


def _pip(machine: Situation, release: Release) -> Pip:
    python = loose.minor(machine.python) or release.pythons[-1]
    alone, told = (
        judge(replace(installed(machine, release, library_path=library_path), python=python))
        for library_path in (False, True)
    )
    if _rank(told) < _rank(alone):
        return Pip(python, True, told, alone)
    # If it fails in any case, the reason is not that the loader was not told.
    prediction = told if alone.outcome is Outcome.FAILS and _rank(told) == _rank(alone) else alone
    return Pip(python, False, prediction, prediction)


def _image(machine: Situation, release: Release, preferred: Collection[str]) -> Image | None:
    """Return the release's best image: the CUDA and cuDNN it was built with before the newest ones."""
    if machine.system not in (None, LINUX, WSL2) or machine.machine not in (None, X86_64):
        return None
    pythons = _pythons(machine, release)
    if not pythons or not release.wheels:
        return None
    found = []
    for python, (cuda, cudnn) in itertools.product(pythons, _choices(release)):
        spec = ImageSpec(release.version, python, Variant.GPU, cuda, cudnn)
        # The other Pythons have the same prediction. They are there to find an image that is preferred.
        if python != pythons[0] and spec.identifier not in preferred:
            continue
        situation = replace(
            situation_of(Cell(spec, HostClass.without_gpu())),
            system=machine.system or LINUX,
            driver=machine.driver,
            driver_cuda=machine.driver_cuda,
            gpu=machine.gpu,
            capability=machine.capability,
        )
        found.append(Image(spec, judge(situation)))
    return min(
        found,
        key=lambda image: (_rank(image.prediction), image.spec.identifier not in preferred),
        default=None,
    )


def _pythons(machine: Situation, release: Release) -> list[str]:
    """Return the machine's Python if the release has a wheel for it, else those of the release."""
    usable = [python for python in release.pythons if tuple(map(int, python.split("."))) >= _OLDEST_PYTHON]
    wanted = loose.minor(machine.python)
    return [wanted] if wanted in usable else usable[::-1]


def _choices(release: Release) -> Iterator[tuple[Choice, Choice]]:
    for policy in (AS_BUILT, LATEST):
        try:
            yield policies.choose(release, policy, policy)
        except PolicyError:
            continue


def _rank(prediction: Prediction) -> tuple[int, ...]:
    modes = (prediction.outcome, outcome(prediction, "eager"), outcome(prediction, "xla"))
    return tuple(map(_BEST_FIRST.index, modes))
