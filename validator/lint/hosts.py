"""Predict whether the software that a project pins works on machines: a GPU and a driver each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..compat.judge import judge
from ..compat.older_releases import release_of_any_age
from ..compat.predict import host_of
from ..errors import InputError
from ..model.finding import Place
from ..model.prediction import Outcome, Prediction, Reason
from ..model.situation import Software
from ..model.spec import HostClass
from .blame import allowed_software
from .environment import Pin
from .readers import read

_WORST_FIRST = (Outcome.FAILS, Outcome.UNKNOWN, Outcome.WORKS)


@dataclass(frozen=True)
class OnHost:
    """The prediction for one pin of TensorFlow on one machine.

    place: where the pin is. tensorflow: the release, the newest one if the pin allows several. host: its
    identifier.
    """

    place: Place
    tensorflow: str
    host: str
    prediction: Prediction

    @property
    def reason(self) -> Reason | None:
        """The reason that decides, None if nothing speaks against it."""
        first = next(iter(self.prediction.reasons), None)
        return first if first is not None and first.outcome is not Outcome.WORKS else None


def on_hosts(paths: Iterable[Path], hosts: Sequence[HostClass]) -> list[OnHost]:
    """Return the predictions for each pin of TensorFlow in the files on each machine, sorted by place.

    A pin that is installed in several ways, such as with each extra of a project, has its worst prediction.
    If a pin allows several releases, it fails only if each of them fails. Raises InputError for a file that
    can't be read, or that pins no TensorFlow that the facts know.
    """
    found: dict[tuple[Place, str], OnHost] = {}
    for path in paths:
        asked = [
            (pin, allowed)
            for environment in read(path)[0]
            for pin, allowed in [allowed_software(replace(environment, for_gpu=True))]
            if pin is not None and allowed
        ]
        if not asked:
            raise InputError(
                f"{path} pins no TensorFlow that the facts know, so there is nothing to predict",
                hint="name a file that pins it, such as a lock or requirements.txt with tensorflow==2.21.0",
            )
        for pin, allowed in asked:
            for host in hosts:
                one = _on_host(pin, allowed, host)
                before = found.get((one.place, one.host))
                if before is None or _severity(one) < _severity(before):
                    found[one.place, one.host] = one
    return [found[key] for key in sorted(found)]


def _severity(one: OnHost) -> int:
    return _WORST_FIRST.index(one.prediction.outcome)


def _on_host(pin: Pin, allowed: Sequence[Software], host: HostClass) -> OnHost:
    predictions = [
        (software.tensorflow or "", judge(_completed(software), host_of(host))) for software in allowed
    ]
    works = [one for one in predictions if one[1].outcome is not Outcome.FAILS]
    release, prediction = (works or predictions)[-1]
    return OnHost(pin.place, release, host.identifier, prediction)


def _completed(software: Software) -> Software:
    """Return the software with the libraries that its wheel was built for and opens, if none are stated."""
    release = release_of_any_age(software.tensorflow or "")
    if software.cuda is None and software.extra is None and release is not None:
        return replace(software, cuda=release.cuda)
    return software
