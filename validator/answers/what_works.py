"""Answer "What works on my GPU and driver?" for every release that the facts know, on the page and in
`predict`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..compat import gpus, loose
from ..compat.drivers import branch_for
from ..compat.hardware import Driver, Gpu, parse_driver, parse_gpu
from ..compat.instructions import filling
from ..compat.offers import Offer, offers, outcome
from ..compat.releases import Release
from ..compat.suggest import Suggestion, newest_that_works, requirement
from ..errors import InputError
from ..model.prediction import Outcome, Prediction, Reason
from ..model.situation import EAGER, LINUX, MACHINES, MACOS, MODES, SYSTEMS, WINDOWS, WSL2, XLA, Situation
from ..model.spec import cell_identifier, host_identifier
from ..reports.diagnosis_words import fact_names
from ..versions import CudaVersion, DriverRelease
from .errors import rejecting

_PYTHON = re.compile(r"3\.\d{1,2}")
#: Values of `modes` in a way.
_BOTH, _EAGER_ONLY = "eager and XLA", "eager only"
#: The placeholder that `filling` fills in.
_PIN = "pin_that_works"
_INSTALL = "python -m pip install '{}'"
_BUILDS = "There is no such image to pull. This builds it; in a checkout, `python` is `.venv/bin/python`."
_NO_XLA = "Functions that XLA compiles fail with it: leave jit_compile=True out."
_SYSTEMS = {LINUX: "Linux", WSL2: "WSL2", WINDOWS: "Windows", MACOS: "macOS"}
#: The verdict that shows that an image works, and those that show that it does not. A browser can't import
#: `Verdict`.
_PROVEN, _REFUTED = "certified", frozenset({"failed", "broken"})
#: The most reasons that are given for one release.
_REASONS = 3

#: Returns the prediction of one way of getting a release; None if it is not available in this way.
_Predict = Callable[[Offer], Prediction | None]


def what_works(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the newest releases that work on a machine, how to get them, and why newer ones don't.

    asked: `gpu`, `driver` and `python` as a person wrote them, each of which may be empty; `system` and
    `machine` as in `Situation`; `registry`: the repository of the images, or None; `images`: the digest of
    each image that can be pulled from there, by its identifier, or None if nobody has looked; `verdicts`: the
    newest verdict of each cell that was measured, by its identifier.

    Raises RejectedField for what can't be understood, and InputError for a system that does not exist.
    """
    with rejecting("gpu"):
        gpu = parse_gpu(asked["gpu"]) if asked["gpu"].strip() else None
    with rejecting("driver"):
        driver = parse_driver(asked["driver"]) if asked["driver"].strip() else Driver()
    machine = Situation(
        gpu=gpu.name if gpu else None,
        capability=str(gpu.capability) if gpu else None,
        driver=driver.release,
        driver_cuda=driver.cuda,
        python=_python(asked["python"]),
        system=_one_of(asked["system"], SYSTEMS),
        machine=_one_of(asked["machine"], MACHINES),
    )
    found = list(offers(machine, asked["images"] or ()))
    missing = fact_names(name for name in found[0].pip.prediction.missing if name in ("driver", "gpu"))
    ways = [
        *_images(found, machine, gpu, asked["registry"], asked["images"], asked["verdicts"]),
        *_pips(found, machine),
    ]
    modes = [_mode(found, ways, mode) for mode in MODES]
    headline, best = _headline(modes, ways, missing)
    return {
        "machine": list(_words(machine, gpu, driver)),
        "headline": headline,
        "basis": _basis(ways),
        "outcome": best.value,
        "modes": modes,
        "ways": ways,
        "releases": [_release(offer) for offer in found],
    }


def _python(text: str) -> str | None:
    if not text.strip():
        return None
    if not _PYTHON.fullmatch(loose.minor(text) or ""):
        with rejecting("python"):
            raise InputError(f'"{text[:20]}" is not a Python version', hint="write it as 3.12")
    return loose.minor(text)


def _one_of(value: str, known: Sequence[str]) -> str:
    if value not in known:
        raise InputError(f'"{value[:20]}" is not one of {", ".join(known)}')
    return value


def _words(machine: Situation, gpu: Gpu | None, driver: Driver) -> Iterator[str]:
    """Yield how the question was understood."""
    if gpu is not None:
        name = f"{gpu.name}, " if gpu.name else ""
        yield f"{name}compute capability {gpu.capability}"
    if driver.release:
        yield f"driver {driver.release}"
    elif driver.cuda:
        branch = branch_for(CudaVersion.parse(driver.cuda))
        yield f"CUDA {driver.cuda} in nvidia-smi, so driver R{branch.number}" if branch else driver.cuda
    yield " ".join(filter(None, (_SYSTEMS[machine.system or LINUX], machine.machine)))
    if machine.python:
        yield f"Python {machine.python}"


def _mode(found: Sequence[Offer], ways: Sequence[Mapping[str, Any]], mode: str) -> dict[str, Any]:
    """Return the newest release that works in a mode, else the newest that is not known to fail."""
    for wanted in (Outcome.WORKS, Outcome.UNKNOWN):
        for offer in found:
            if offer.outcome(mode) is wanted:
                release = offer.release.version
                shown = f"TensorFlow {release}"
                image, pip = _way_for(ways, "image", mode), _way_for(ways, "pip", mode)
                if image and pip and image["release"] != pip["release"]:
                    shown = f"TensorFlow {image['release']} in an image, {pip['release']} with pip"
                if wanted is Outcome.UNKNOWN:
                    shown += ", not certain"
                return {"mode": mode, "release": release, "outcome": wanted.value, "shown": shown}
    return {"mode": mode, "release": None, "outcome": Outcome.FAILS.value, "shown": "no release"}


def _way_for(ways: Sequence[Mapping[str, Any]], name: str, mode: str) -> Mapping[str, Any] | None:
    """Return the way of this name that has the newest release for a mode."""
    fitting = [way for way in ways if way["way"] == name and (mode == EAGER or way["modes"] == _BOTH)]
    return min(fitting, key=lambda way: len(way["newer"]), default=None)


def _headline(
    modes: Sequence[Mapping[str, Any]], ways: Sequence[Mapping[str, Any]], missing: Sequence[str]
) -> tuple[str, Outcome]:
    """Return the answer in one or two sentences, and the best outcome that it promises.

    It says "works" only of what was measured, and "should work" of what is only predicted.
    """
    eager, xla = modes
    newest = f"TensorFlow {eager['release']}"
    if eager["release"] is None:
        return "No TensorFlow release is expected to use the GPU here.", Outcome.FAILS
    refuted = next((way for way in ways if way["verdict"] in _REFUTED), None)
    if refuted is not None:
        return (
            f"TensorFlow {refuted['release']} should work, but it failed when it was measured: see below.",
            Outcome.FAILS,
        )
    if eager["outcome"] == Outcome.UNKNOWN.value:
        unknown = "it is not certain that it works"
        if missing:
            unknown = f"{' and '.join(missing)} {'are' if len(missing) > 1 else 'is'} not known"
        return f"No known fact rules out {newest}, but {unknown}.", Outcome.UNKNOWN
    if xla["outcome"] != Outcome.WORKS.value:
        return (
            f"{newest} should work for eager operations. No release is known to work with XLA.",
            Outcome.WORKS,
        )
    if eager["release"] != xla["release"]:
        return (
            f"{newest} should work for eager operations, and {xla['release']} also with XLA.",
            Outcome.WORKS,
        )
    return _both(newest, _way_for(ways, "image", XLA), _way_for(ways, "pip", XLA)), Outcome.WORKS


def _both(newest: str, image: Mapping[str, Any] | None, pip: Mapping[str, Any] | None) -> str:
    """Return the headline for a machine on which a release works in both modes."""
    if image is None:
        return f"{newest} should work{' with pip' if pip else ''}."
    proven = image["verdict"] == _PROVEN
    in_image = f"TensorFlow {image['release']} {'works' if proven else 'should work'}"
    if pip is None:
        return f"{in_image} in an image."
    if image["release"] != pip["release"]:
        verb = " should work" if proven else ""
        return f"{in_image} in an image, and {pip['release']}{verb} with pip."
    return f"{in_image} in an image, and should work with pip." if proven else f"{in_image}."


def _basis(ways: Sequence[Mapping[str, Any]]) -> str:
    """Return what the headline rests on, in one or two sentences."""
    verdicts = {way["verdict"] for way in ways}
    if verdicts & _REFUTED:
        return "The image was measured on this kind of machine. The answer for pip is only predicted."
    if _PROVEN in verdicts:
        return "The image was certified on this kind of machine. The answer for pip is only predicted."
    if verdicts - {None}:
        return "This is only predicted from published facts: the measurement of the image proved nothing."
    return "This is only predicted from published facts, and was not measured."


# The ways of getting a release


def _images(
    found: Sequence[Offer],
    machine: Situation,
    gpu: Gpu | None,
    registry: str | None,
    digests: Mapping[str, str] | None,
    verdicts: Mapping[str, str],
) -> Iterator[dict[str, Any]]:
    host = _host(machine, gpu)
    for offer, modes in _chosen(found, _of_image):
        if offer.image is None:
            continue
        spec = offer.image.spec
        digest = (digests or {}).get(spec.identifier)
        cell = cell_identifier(spec.identifier, host) if host else None
        verdict = verdicts.get(cell) if cell else None
        commands, notes = [f"docker pull {registry}@{digest}"], []
        if verdict in _REFUTED:
            commands = []
        elif not (registry and digest):
            commands = [f"python -m validator build-matrix --profile full --select image={spec.identifier}"]
            notes = [_BUILDS] if digests is not None else []
        yield _way("image", offer, modes, offer.image.prediction, commands, notes, found, _of_image) | {
            "image": spec.identifier,
            "python": spec.python,
            "cell": cell,
            "verdict": verdict,
        }


def _pips(found: Sequence[Offer], machine: Situation) -> Iterator[dict[str, Any]]:
    suggested = newest_that_works(machine)
    if suggested is not None:
        install = _INSTALL.format(suggested.requirement)
        filled = filling("pip", {_PIN}, [install], machine)
        assert filled is not None
        offer = next(offer for offer in found if offer.release == suggested.release)
        modes = _EAGER_ONLY if suggested.eager_only else _BOTH
        commands = [*filled.before, install, *filled.after]
        against = _of_pip if suggested.library_path else _alone
        notes = [*_why_older(found, suggested), *filled.notes]
        way = _way("pip", offer, modes, suggested.prediction, commands, notes, found, against)
        yield way | {"python": suggested.python}
    for offer, modes in _chosen(found, _of_pip):
        known = suggested is None or suggested.eager_only or offer.release == suggested.release
        if modes == _EAGER_ONLY and not offer.pip.library_path and not known:
            commands = [_INSTALL.format(requirement(offer.release))]
            way = _way("pip", offer, modes, offer.pip.prediction, commands, [_NO_XLA], found, _alone)
            yield way | {"python": offer.pip.python}


def _why_older(found: Sequence[Offer], suggested: Suggestion) -> Iterator[str]:
    """Yield a sentence that says why pip gets an older release than an image does, if it does."""
    newest = next((offer for offer, _ in _chosen(found, _of_image)), None)
    if newest is None or found.index(newest) >= next(
        place for place, offer in enumerate(found) if offer.release == suggested.release
    ):
        return
    name, own = newest.release.version, suggested.release.version
    if newest.pip.library_path and not suggested.library_path:
        yield (
            f"Not {name}, because with pip it finds CUDA's libraries only if LD_LIBRARY_PATH names their"
            f" directories. {own} needs no such setting."
        )
    elif reasons := _against(newest.pip.alone, newest.release):
        yield f"Not {name}, because {reasons[0]['text']}."


def _of_image(offer: Offer) -> Prediction | None:
    return offer.image.prediction if offer.image else None


def _of_pip(offer: Offer) -> Prediction | None:
    return offer.pip.prediction


def _alone(offer: Offer) -> Prediction | None:
    return offer.pip.alone


def _chosen(found: Sequence[Offer], predict: _Predict) -> Iterator[tuple[Offer, str]]:
    """Yield the newest release that works, and before it a newer one that works only for eager operations."""
    for wanted in (Outcome.WORKS, Outcome.UNKNOWN):
        both = _first(found, predict, wanted, MODES)
        eager = _first(found, predict, wanted, (EAGER,))
        if eager is not None and eager is not both:
            yield eager, _EAGER_ONLY
        if both is not None:
            yield both, _BOTH
        if eager is not None:
            return


def _first(found: Sequence[Offer], predict: _Predict, wanted: Outcome, modes: Sequence[str]) -> Offer | None:
    for offer in found:
        prediction = predict(offer)
        if prediction is not None and all(outcome(prediction, mode) is wanted for mode in modes):
            return offer
    return None


def _way(
    name: str,
    offer: Offer,
    modes: str,
    prediction: Prediction,
    commands: Sequence[str],
    notes: Sequence[str],
    found: Sequence[Offer],
    against: _Predict,
) -> dict[str, Any]:
    return {
        "way": name,
        "release": offer.release.version,
        "modes": modes,
        "outcome": outcome(prediction, EAGER).value if modes == _EAGER_ONLY else prediction.outcome.value,
        "commands": list(commands),
        "notes": list(notes),
        "verdict": None,
        "reasons": [_reason(reason) for reason in prediction.reasons],
        "newer": list(_grouped(found[: found.index(offer)], against)),
    }


def _host(machine: Situation, gpu: Gpu | None) -> str | None:
    """Return the name of the machine's host class in the matrix; None if that needs more facts."""
    driver = loose.driver(machine.driver)
    if driver is None and machine.driver_cuda:
        branch = branch_for(CudaVersion.parse(machine.driver_cuda))
        driver = DriverRelease(branch.number) if branch else None
    if gpu is None or driver is None:
        return None
    slug = gpus.model_of(gpu.name) if gpu.name else None
    return host_identifier(DriverRelease(driver.branch), slug, gpu.capability)


# Releases and reasons


def _release(offer: Offer) -> dict[str, Any]:
    ways = {"image": _of_image(offer), "pip": _of_pip(offer)}
    return {
        "release": offer.release.version,
        "cuda": offer.release.cuda,
        "cudnn": offer.release.cudnn,
        "pythons": f"{offer.release.pythons[0]} to {offer.release.pythons[-1]}",
        **{
            name: {mode: outcome(prediction, mode).value for mode in MODES} if prediction else None
            for name, prediction in ways.items()
        },
        "reasons": _against(ways["image"] or ways["pip"], offer.release),
    }


def _against(prediction: Prediction | None, release: Release) -> list[dict[str, str]]:
    """Return what speaks against a release, the deciding reasons first."""
    if prediction is None:
        text = f"this project makes no image of TensorFlow {release.version} for such a machine"
        return [{"outcome": Outcome.FAILS.value, "text": text, "fact": "", "source": ""}]
    against = [
        reason for reason in prediction.reasons if reason.outcome is not Outcome.WORKS and not reason.advisory
    ]
    return [_reason(reason) for reason in against[:_REASONS]]


def _grouped(found: Sequence[Offer], predict: _Predict) -> Iterator[dict[str, Any]]:
    """Yield why releases are not chosen, newest first. Neighbours with the same reasons are one group."""

    def key(offer: Offer) -> list[str]:
        reasons = _against(predict(offer), offer.release)
        return [reason["text"].replace(offer.release.version, "") for reason in reasons]

    for _, group in itertools.groupby(found, key):
        newest, *others = group
        span = f"{others[-1].release.version} to " if others else ""
        yield {
            "releases": f"{span}{newest.release.version}",
            "reasons": _against(predict(newest), newest.release),
        }


def _reason(reason: Reason) -> dict[str, str]:
    return {"outcome": reason.label, "text": reason.sentence, "fact": reason.fact, "source": reason.source}
