"""Find the ways of getting a release that works on a machine: images, and installations with pip.

Each says why newer releases are left out.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..compat.evidence import limit_reason
from ..compat.offers import (
    Image,
    Installation,
    Offer,
    cautions,
    filling,
    has_extra,
    image_of,
    newest_that_works,
    notes_about,
    outcome,
    rank,
)
from ..compat.policies import constraints
from ..compat.releases import Release
from ..model.prediction import (
    EAGER,
    EAGER_ONLY,
    MODES,
    Host,
    Limit,
    Outcome,
    Prediction,
    Rank,
    Reason,
    Software,
    decide,
)
from ..model.spec import ImageSpec, cell_identifier
from ..versions import Version

# The measurements of images of a release on a machine, next to the predictions.


#: The verdict that shows that an image works, and those that show that it does not. A browser can't import
#: `Verdict`.
PROVEN = "certified"
REFUTED = {"failed": "failed when it was measured", "broken": "could not be built"}


@dataclass(frozen=True)
class Tried:
    """An image and its measurement on a machine.

    prediction: what was measured, for both modes, or else what is predicted. cell: None if too little is
    known of the machine. digest: None if it can't be pulled. verdict: None if there is none, or if another
    build of it was certified (`other_build`).
    """

    image: Image
    prediction: Prediction
    cell: str | None
    digest: str | None
    verdict: str | None
    other_build: bool


@dataclass(frozen=True)
class Option:
    """A release on a machine. image: the best one that was not refuted, else the best one.

    refuted: the images that were measured to fail, or that could not be built, and were predicted to work.
    """

    release: Release
    image: Tried | None
    refuted: tuple[Tried, ...]
    pip: Installation


@dataclass(frozen=True)
class Measured:
    """The facts about images. The fields are those of the question; host: the machine's, or None."""

    registry: str | None
    digests: Mapping[str, str] | None
    verdicts: Mapping[str, Mapping[str, Any]] | None
    host: str | None

    def specs(self) -> dict[str, ImageSpec]:
        """Return the images that can be pulled, or that have a verdict on this machine."""
        end = f"@{self.host}"
        tried = [cell.removesuffix(end) for cell in self.verdicts or () if self.host and cell.endswith(end)]
        pullable = (self.digests or ()) if self.registry else ()
        found = {identifier: image_of(identifier) for identifier in (*pullable, *tried)}
        return {identifier: spec for identifier, spec in found.items() if spec is not None}

    def option(self, offer: Offer) -> Option:
        """Return an offer with the image to use: what was certified before what is predicted."""
        tried = [self._tried(image) for image in offer.images]
        refuted = [one for one in tried if one.verdict in REFUTED]
        likely = {(one.image.spec.cuda, one.image.spec.cudnn) for one in refuted if one.verdict == "failed"}

        def order(one: Tried) -> tuple[Any, ...]:
            return (
                rank(one.prediction),
                one.verdict != PROVEN,
                # With another Python, TensorFlow has the same kernels and libraries.
                (one.image.spec.cuda, one.image.spec.cudnn) in likely,
                one.digest is None,
                not one.other_build,
                len(cautions(one.prediction)),
                one.image.has_additions,
            )

        usable = [one for one in tried if self._is_usable(one)]
        unexpected = [one for one in refuted if one.image.prediction.outcome is not Outcome.FAILS]
        return Option(offer.release, min(usable, key=order, default=None), tuple(unexpected), offer.pip)

    def _is_usable(self, one: Tried) -> bool:
        """Return whether an image can be offered, or could be if it had not failed."""
        if one.image.has_additions:
            return one.verdict == PROVEN
        return one.digest is not None or one.image.usual

    def _tried(self, image: Image) -> Tried:
        digest = (self.digests or {}).get(image.identifier) if self.registry else None
        cell = cell_identifier(image.identifier, self.host) if self.host else None
        measured = (self.verdicts or {}).get(cell or "", {})
        verdict, other_build = measured.get("verdict"), False
        if verdict == PROVEN and not (digest and measured["digest"] == digest):
            # A certificate is about one build of the image, and this is another one.
            verdict, other_build = None, True
        prediction = image.prediction
        if verdict == PROVEN:
            # The checks that a certificate requires use XLA.
            works = Outcome.WORKS
            limits = [Limit(**limit) for limit in measured.get("limits", ())]
            remarks = [limit_reason(limit, "", "", Rank.CERTIFIED) for limit in limits]
            reasons = (*prediction.reasons, *remarks)
            prediction = Prediction(works, reasons, works, works, prediction.missing, Rank.CERTIFIED)
        elif verdict in REFUTED:
            text = f"its image with {contents(image.spec)} {REFUTED[verdict]}"
            reason = Reason(Outcome.FAILS, text, "", "")
            decided = decide((reason, *prediction.reasons), prediction.missing)
            prediction = replace(decided, rank=Rank.MEASURED, evidence=prediction.evidence)
        return Tried(image, prediction, cell, digest, verdict, other_build)


def contents(spec: ImageSpec) -> str:
    """Return what an image has besides its release: `CUDA 12.5, cuDNN 9.3 and Python 3.12`."""
    libraries = (("CUDA", spec.cuda), ("cuDNN", spec.cudnn))
    names = [f"{'the newest ' if one.floats else ''}{name} {one.version}" for name, one in libraries if one]
    return joined([*names, f"Python {spec.python}"])


def joined(names: Sequence[str]) -> str:
    """Return names as a list in a sentence: `A, B and C`."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


#: The value of `modes` in a way whose release works for both; the other one is `EAGER_ONLY`.
BOTH = "eager and XLA"
#: The placeholder that `filling` fills in.
_PIN = "pin_that_works"
#: The command that installs a requirement.
INSTALL = 'python -m pip install "{}"'


def install(pip: Installation) -> str:
    """Return the command that installs a release with what its metadata lacks."""
    return INSTALL.format('" "'.join((pip.requirement, *pip.besides)))


_BUILDS = (
    "There is no such image to pull. This builds it; in a checkout, `validator` is `.venv/bin/validator`."
)
#: The most reasons that are given for one release.
_REASONS = 3
#: The reason for a newer release than a certified one, if it is predicted to work.
_NOT_CERTIFIED = {
    "outcome": Outcome.WORKS.value,
    "text": "an image of it should work too, but was not certified on this kind of machine",
    "fact": "",
    "source": "",
}
#: A way of getting a release, as `_way` makes it.
Way = Mapping[str, Any]
#: Returns the prediction of one way of getting a release; None if it is not available in this way.
_Predict = Callable[[Option], Prediction | None]


def image_ways(found: Sequence[Option], known: Measured) -> Iterator[dict[str, Any]]:
    """Yield the newest images that work, after the newest certified one if that is older."""
    chosen = list(_chosen(found, of_image))
    proven = next((option for option in found if option.image and option.image.verdict == PROVEN), None)
    if proven is not None and proven not in [option for option, _ in chosen]:
        chosen.insert(0, (proven, BOTH))
    for option, modes in chosen:
        one = option.image
        if one is None:
            continue
        commands, notes = [f"docker pull {known.registry}@{one.digest}"], []
        if one.digest is None:
            identifier = one.image.identifier
            commands = [f"validator build-matrix --profile full --select image={identifier}"]
            notes = [_BUILDS] if known.digests is not None else []
        if one.image.has_additions:
            notes.append(f"This image has other packages too: {one.image.identifier.partition('_')[2]}.")
        way = _way("image", option, modes, one.prediction, commands, notes, found, of_image)
        yield way | {
            "image": one.image.identifier,
            "python": one.image.spec.python,
            "cell": one.cell,
            "verdict": one.verdict,
            "other_build_certified": one.other_build,
        }


def pip_ways(found: Sequence[Option], host: Host, python: str | None) -> Iterator[dict[str, Any]]:
    """Yield the newest release that works with pip, or, if none is certain to, the newest that may work."""
    suggested = newest_that_works(host, python)
    if suggested is not None:
        command = install(suggested)
        filled = filling("pip", {_PIN}, [command], host, Software(python=python))
        assert filled is not None
        option = next(option for option in found if option.release == suggested.release)
        modes = EAGER_ONLY if suggested.eager_only else BOTH
        commands = [*filled.before, command, *filled.after]
        against = of_pip if suggested.library_path else _alone
        way = _way("pip", option, modes, suggested.prediction, commands, filled.notes, found, against)
        yield way | {"python": suggested.python}
    for option, modes in _chosen(found, of_pip):
        if suggested is None:
            wanted = True
        else:
            known = suggested.eager_only or option.release == suggested.release
            wanted = modes == EAGER_ONLY and not known
        if wanted and not option.pip.library_path:
            yield _uncertain_pip(option, modes, found)


def refuted_images(found: Sequence[Option], ways: Sequence[Way]) -> Iterator[dict[str, Any]]:
    """Yield the images that fail although predicted to work, of the releases that are not older than the
    newest image that can be used.
    """
    images = [release_of(way) for way in ways if way["way"] == "image"]
    for option in found:
        if images and Version(option.release.version) < max(images):
            return
        for one in option.refuted:
            yield {
                "release": option.release.version,
                "name": contents(one.image.spec),
                "image": one.image.identifier,
                "cell": one.cell,
                "verdict": one.verdict,
            }


def release_row(option: Option, python: str | None) -> dict[str, Any]:
    """Return a release with its outcome in each way and mode, what it needs, and the reasons against it."""
    predictions = {"image": of_image(option), "pip": of_pip(option)}
    return {
        "release": option.release.version,
        "cuda": option.release.cuda,
        "cudnn": option.release.cudnn,
        "pythons": f"{option.release.pythons[0]} to {option.release.pythons[-1]}",
        **{
            name: {mode: outcome(prediction, mode).value for mode in MODES} if prediction else None
            for name, prediction in predictions.items()
        },
        "needs": list(_needs(option, python or option.release.pythons[-1])),
        "reasons": reasons_against(predictions["image"] or predictions["pip"], option.release),
        "pip_reasons": reasons_against(predictions["pip"], option.release),
    }


def _needs(option: Option, python: str) -> Iterator[str]:
    """Yield what pip needs besides the release, if it can be used.

    python: the machine's, or else the newest one that the release has a wheel for.
    """
    release = option.release
    if outcome(option.pip.prediction, EAGER) is Outcome.FAILS:
        return
    if option.pip.python != python:
        yield f"Python {option.pip.python}"
    if not has_extra(release):
        yield f"CUDA {release.cuda}"
        yield f"cuDNN {release.cudnn}"
    if option.pip.library_path:
        yield "LD_LIBRARY_PATH"
    yield from constraints(release.version)


def release_of(way: Way) -> Version:
    return Version(way["release"])


def _uncertain_pip(option: Option, modes: str, found: Sequence[Option]) -> dict[str, Any]:
    """Return the installation of a release that `newest_that_works` does not suggest."""
    pip = replace(option.pip, eager_only=modes == EAGER_ONLY)
    commands = [install(pip), *map(INSTALL.format, pip.afterwards)]
    notes = notes_about(pip)
    return _way("pip", option, modes, pip.prediction, commands, notes, found, _alone) | {"python": pip.python}


def of_image(option: Option) -> Prediction | None:
    return option.image.prediction if option.image else None


def of_pip(option: Option) -> Prediction | None:
    return option.pip.prediction


def _alone(option: Option) -> Prediction | None:
    return option.pip.alone


def _chosen(found: Sequence[Option], predict: _Predict) -> Iterator[tuple[Option, str]]:
    """Yield the newest release that works, and before it a newer one that works only for eager operations."""
    for wanted in (Outcome.WORKS, Outcome.UNKNOWN):
        both = _first(found, predict, wanted, MODES)
        eager = _first(found, predict, wanted, (EAGER,))
        if eager is not None and eager is not both:
            yield eager, EAGER_ONLY
        if both is not None:
            yield both, BOTH
        if eager is not None:
            return


def _first(
    found: Sequence[Option], predict: _Predict, wanted: Outcome, modes: Sequence[str]
) -> Option | None:
    for option in found:
        prediction = predict(option)
        if prediction is not None and all(outcome(prediction, mode) is wanted for mode in modes):
            return option
    return None


def _way(
    name: str,
    option: Option,
    modes: str,
    prediction: Prediction,
    commands: Sequence[str],
    notes: Sequence[str],
    found: Sequence[Option],
    against: _Predict,
) -> dict[str, Any]:
    known = reasons_against(prediction, option.release, EAGER if modes == EAGER_ONLY else None)
    doubts = [one["text"] for one in known if one["outcome"] == Outcome.UNKNOWN.value]
    uncertain = [f"It is not certain that this works: {text}." for text in doubts[:1]]
    return {
        "way": name,
        "release": option.release.version,
        "modes": modes,
        "outcome": outcome(prediction, EAGER).value if modes == EAGER_ONLY else prediction.outcome.value,
        "commands": list(commands),
        "notes": [*uncertain, *notes],
        "measured": _measured(prediction),
        "verdict": None,
        "other_build_certified": False,
        "cautions": [reason.text for reason in cautions(prediction)],
        "reasons": [_reason(reason, reason.sentence) for reason in prediction.reasons],
        "newer": list(_grouped(found[: found.index(option)], against)),
    }


def _measured(prediction: Prediction) -> str | None:
    """Return what was measured, if one of this tool's measurements decides the prediction."""
    decides = prediction.rank is Rank.MEASURED
    return next((one.text for one in prediction.evidence if decides and one.rank is Rank.MEASURED), None)


def reasons_against(
    prediction: Prediction | None, release: Release, mode: str | None = None
) -> list[dict[str, str]]:
    """Return the reasons against a release, the deciding ones first.

    mode: `eager` or `xla` leaves out the reasons that are only about the other mode. Only without it do the
    texts name the mode that they are about.
    """
    if prediction is not None and prediction.outcome is Outcome.WORKS:
        return []
    if prediction is None:
        text = f"this project makes no image of TensorFlow {release.version} for such a machine"
        return [{"outcome": Outcome.FAILS.value, "text": text, "fact": "", "source": ""}]
    against = [
        reason
        for reason in prediction.reasons
        if reason.outcome is not Outcome.WORKS and (mode is None or reason.mode in (None, mode))
    ]
    return [
        _reason(reason, reason.sentence if mode is None else reason.text) for reason in against[:_REASONS]
    ]


def _grouped(found: Sequence[Option], predict: _Predict) -> Iterator[dict[str, Any]]:
    """Yield why releases are not chosen, newest first. Neighbours with the same reasons are one group."""

    def key(option: Option) -> list[str]:
        reasons = reasons_against(predict(option), option.release)
        own = f"tensorflow {option.release.version}"
        return [reason["text"].replace(own, "tensorflow") for reason in reasons]

    for _, group in itertools.groupby(found, key):
        newest, *others = group
        span = f"{others[-1].release.version} to " if others else ""
        yield {
            "releases": f"{span}{newest.release.version}",
            "reasons": reasons_against(predict(newest), newest.release) or [_NOT_CERTIFIED],
        }


def _reason(reason: Reason, text: str) -> dict[str, str]:
    return {"outcome": reason.label, "text": text, "fact": reason.fact, "source": reason.source}
