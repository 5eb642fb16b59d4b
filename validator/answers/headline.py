"""Say in a few sentences which releases work on a machine, and what that rests on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..model.prediction import EAGER_ONLY, Outcome
from ..model.situation import EAGER, MODES
from ..versions import Version
from .measured import PROVEN, REFUTED, joined
from .ways import BOTH, Way, release_of

#: Each way of getting a release, as a sentence names it.
HOW = {"image": "in an image", "pip": "with pip"}
_TRIED = {
    PROVEN: "was certified on this kind of machine",
    "failed": "was measured on this kind of machine",
    "broken": "could not be built",
}
_MEASURED = "TensorFlow {} was measured with the same versions on {}."


def headline(ways: Sequence[Way], missing: Sequence[str], refuted: Sequence[Mapping[str, Any]]) -> str:
    """Return the answer in a few sentences.

    It says "works" only about what was certified, and "should work" about what is only predicted.
    """
    eager, xla = (usable_ways(ways, mode) for mode in MODES)
    return " ".join([answer(eager, xla, missing), *_newer_image(ways, eager), *_refutation(refuted)])


def basis(
    ways: Sequence[Way], verdicts: Mapping[str, Any] | None, refuted: Sequence[Mapping[str, Any]]
) -> str:
    """Return what the headline rests on, in one or more sentences."""
    proven = [way for way in ways if way["verdict"] == PROVEN]
    tried = [*proven, *refuted] if len(refuted) == 1 else proven
    says = [f"The image of TensorFlow {one['release']} {_TRIED[one['verdict']]}." for one in tried]
    measured = [way for way in ways if way["measured"] and not way["verdict"]]
    says += [_MEASURED.format(way["release"], way["measured"]) for way in measured]
    if len(refuted) > 1:
        says.append(f"{len(refuted)} images were tried on this kind of machine.")
    if says:
        rest = len(proven) + len(measured) < len(ways)
        return " ".join([*says, *(["The rest is only predicted."] if rest else [])])
    if any(way["verdict"] for way in ways):
        return "This is only predicted from published facts: the measurement of the image proved nothing."
    if any(way["other_build_certified"] for way in ways):
        return "This is only predicted from published facts: another build of the image was certified."
    if verdicts is None or any(way["way"] == "image" and way["cell"] is None for way in ways):
        return "This is only predicted, from published facts."
    return "This is only predicted from published facts, and was not measured."


def newest_in_mode(ways: Sequence[Way], mode: str) -> dict[str, Any]:
    """Return the newest release that can be used in a mode."""
    usable = usable_ways(ways, mode)
    if not usable:
        return {"mode": mode, "release": None, "outcome": Outcome.FAILS.value, "shown": "no release"}
    if _same_release(usable):
        shown = usable[0]["release"]
    else:
        shown = ", ".join(f"{way['release']} {HOW[way['way']]}" for way in usable)
    outcome = usable[0]["outcome"]
    doubt = ", not certain" if outcome == Outcome.UNKNOWN.value else ""
    return {
        "mode": mode,
        "release": _newest(usable),
        "outcome": outcome,
        "shown": f"TensorFlow {shown}{doubt}",
    }


def usable_ways(ways: Sequence[Way], mode: str) -> list[Way]:
    """Return the best image and the newest installation with pip that can be used in a mode.

    The best image is the newest one that was certified, else the newest one. If anything works, what is
    uncertain is left out, so all have the same outcome.
    """
    fitting = [way for way in ways if mode == EAGER or way["modes"] == BOTH]
    for wanted in (Outcome.WORKS.value, Outcome.UNKNOWN.value):
        same = [way for way in fitting if way["outcome"] == wanted]
        if same:
            names = dict.fromkeys(way["way"] for way in same)
            return [max((way for way in same if way["way"] == name), key=_preference) for name in names]
    return []


def _preference(way: Way) -> tuple[bool, Version]:
    return way["verdict"] == PROVEN, release_of(way)


def _newest(usable: Sequence[Way]) -> str:
    return str(max(usable, key=release_of)["release"])


def _same_release(usable: Sequence[Way]) -> bool:
    """Return whether a release can be used both in an image and with pip."""
    return len(usable) > 1 and len({way["release"] for way in usable}) == 1


def _newer_image(ways: Sequence[Way], usable: Sequence[Way]) -> Iterator[str]:
    """Yield a sentence about a newer image than the certified one, if one should work."""
    proven = next((way for way in usable if way["verdict"] == PROVEN), None)
    if proven is None:
        return
    images = [way for way in ways if way["way"] == "image" and way["outcome"] == Outcome.WORKS.value]
    newest = max(images, key=release_of)
    if release_of(newest) > release_of(proven):
        only = " for eager operations" if newest["modes"] == EAGER_ONLY else ""
        yield f"An image of TensorFlow {newest['release']} should work too{only}."


def answer(eager: Sequence[Way], xla: Sequence[Way], missing: Sequence[str]) -> str:
    if not eager:
        return "No TensorFlow release is expected to use the GPU here."
    if eager[0]["outcome"] == Outcome.UNKNOWN.value:
        unknown = "it is not certain that it works"
        if missing:
            unknown = f"{' and '.join(missing)} {'are' if len(missing) > 1 else 'is'} not known"
        return f"No known fact rules out TensorFlow {_newest(eager)}, but {unknown}."
    if eager == xla:
        return f"{_promise(eager)}."
    if not xla or xla[0]["outcome"] != Outcome.WORKS.value:
        return f"For eager operations, {_promise(eager)}. No release is known to work with XLA."
    return f"For eager operations, {_promise(eager)}. With XLA, {_promise(xla)}."


def _promise(usable: Sequence[Way]) -> str:
    """Return which release works and how to get it, as a sentence without a full stop."""
    first, *others = usable
    proven = first["verdict"] == PROVEN
    same = _same_release(usable)
    promise = f"TensorFlow {first['release']} {'works' if proven else 'should work'}"
    if same and not proven:
        return promise
    promise += f" {HOW[first['way']]}"
    for way in others:
        release = "" if same else f" {way['release']}"
        promise += f", and{release}{' should work' if proven else ''} {HOW[way['way']]}"
    return promise


def _refutation(refuted: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a sentence about the images that were tried and do not work."""
    if len(refuted) == 1:
        [one] = refuted
        yield f"The image of TensorFlow {one['release']} with {one['name']} {REFUTED[one['verdict']]}."
    elif refuted:
        releases = list(dict.fromkeys(one["release"] for one in refuted))
        yield f"{len(refuted)} images of TensorFlow {joined(releases)} were tried and do not work."
