"""The measurements of images of a release on a machine, next to the predictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..compat.evidence import limit_reason
from ..compat.offers import Image, Installation, Offer, cautions, image_of, rank
from ..compat.releases import Release
from ..model.prediction import Limit, Outcome, Prediction, Rank, Reason, decide
from ..model.spec import ImageSpec, cell_identifier

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
