"""Answer "What works on my GPU and driver?" for every release that the facts know, on the page and in
`predict`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..compat import gpus, loose
from ..compat.hardware import Driver, Gpu, parse_driver, parse_gpu
from ..compat.instructions import filling
from ..compat.offers import Offer, offers, outcome
from ..compat.older import driver_with
from ..compat.policies import constraints
from ..compat.releases import Release
from ..compat.suggest import Suggestion, newest_that_works, requirement, suggestion_notes
from ..errors import InputError
from ..model.prediction import Outcome, Prediction, Reason
from ..model.situation import EAGER, JETSON, LINUX, MACHINES, MACOS, MODES, SYSTEMS, WINDOWS, WSL2, Situation
from ..model.spec import cell_identifier, host_identifier
from ..reports.diagnosis_words import fact_names
from ..versions import CudaVersion, DriverRelease, Version
from .errors import rejecting

_PYTHON = re.compile(r"[23]\.\d{1,2}")
#: Values of `modes` in a way.
_BOTH, _EAGER_ONLY = "eager and XLA", "eager only"
#: The placeholder that `filling` fills in.
_PIN = "pin_that_works"
_INSTALL = "python -m pip install '{}'"
_BUILDS = "There is no such image to pull. This builds it; in a checkout, `python` is `.venv/bin/python`."
_SYSTEMS = {LINUX: "Linux", WSL2: "WSL2", WINDOWS: "Windows", MACOS: "macOS"}
_HOW = {"image": "in an image", "pip": "with pip"}
#: The verdict that shows that an image works, and those that show that it does not. A browser can't import
#: `Verdict`.
_PROVEN = "certified"
_REFUTED = {"failed": "failed when it was measured", "broken": "could not be built"}
_TRIED = {
    _PROVEN: "was certified on this kind of machine",
    "failed": "was measured on this kind of machine",
    "broken": "could not be built",
}
#: The most reasons that are given for one release.
_REASONS = 3

#: Returns the prediction of one way of getting a release; None if it is not available in this way.
_Predict = Callable[[Offer], Prediction | None]
#: A way of getting a release, as `_way` makes it.
_Way = Mapping[str, Any]


def what_works(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the newest releases that work on a machine, how to get them, and why newer ones don't.

    asked: `gpu`, `driver` and `python` as a person wrote them, each of which may be empty; `system` and
    `machine` as in `Situation`; `registry`: the repository of the images, or None; `images`: the digest of
    each image that can be pulled from there, by its identifier, or None if nobody has looked; `verdicts`: of
    each cell that was measured, by its identifier, the newest `verdict` and the `digest` of the image that
    got it, or None if nobody has looked.

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
        # People leave "Linux" as it is, but a Jetson has an Arm processor.
        machine=JETSON if gpu and gpu.is_jetson else _one_of(asked["machine"], MACHINES),
    )
    found = list(offers(machine, asked["images"] or ()))
    missing = fact_names(name for name in found[0].pip.prediction.missing if name in ("driver", "gpu"))
    ways = [
        *_images(found, machine, gpu, asked["registry"], asked["images"], asked["verdicts"]),
        *_pips(found, machine),
    ]
    modes = [_mode(ways, mode) for mode in MODES]
    return {
        "machine": list(_words(machine, gpu, driver)),
        "headline": _headline(ways, missing),
        "basis": _basis(ways, asked["verdicts"]),
        "outcome": modes[MODES.index(EAGER)]["outcome"],
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
        oldest = driver_with(CudaVersion.parse(driver.cuda))
        yield f"CUDA {driver.cuda} in nvidia-smi, so driver R{oldest.branch}" if oldest else driver.cuda
    system = _SYSTEMS[machine.system or LINUX]
    yield f"{system} on NVIDIA Jetson" if machine.machine == JETSON else f"{system} {machine.machine}"
    if machine.python:
        yield f"Python {machine.python}"


# What follows from the ways


def _usable(ways: Sequence[_Way], mode: str) -> list[_Way]:
    """Return the newest image and the newest installation with pip that can be used in a mode.

    All have the same outcome: what works hides what is uncertain. None is known to fail.
    """
    fitting = [way for way in ways if mode == EAGER or way["modes"] == _BOTH]
    for wanted in (Outcome.WORKS.value, Outcome.UNKNOWN.value):
        same = [way for way in fitting if way["outcome"] == wanted]
        if same:
            names = dict.fromkeys(way["way"] for way in same)
            return [max((way for way in same if way["way"] == name), key=_release_of) for name in names]
    return []


def _release_of(way: _Way) -> Version:
    return Version(way["release"])


def _newest(usable: Sequence[_Way]) -> str:
    return str(max(usable, key=_release_of)["release"])


def _mode(ways: Sequence[_Way], mode: str) -> dict[str, Any]:
    """Return the newest release that can be used in a mode."""
    usable = _usable(ways, mode)
    if not usable:
        return {"mode": mode, "release": None, "outcome": Outcome.FAILS.value, "shown": "no release"}
    if _same_release(usable):
        shown = usable[0]["release"]
    else:
        shown = ", ".join(f"{way['release']} {_HOW[way['way']]}" for way in usable)
    outcome = usable[0]["outcome"]
    doubt = ", not certain" if outcome == Outcome.UNKNOWN.value else ""
    return {
        "mode": mode,
        "release": _newest(usable),
        "outcome": outcome,
        "shown": f"TensorFlow {shown}{doubt}",
    }


def _same_release(usable: Sequence[_Way]) -> bool:
    """Return whether a release can be used both in an image and with pip."""
    return len(usable) > 1 and len({way["release"] for way in usable}) == 1


def _headline(ways: Sequence[_Way], missing: Sequence[str]) -> str:
    """Return the answer in one to three sentences.

    It says "works" only of what was certified, and "should work" of what is only predicted.
    """
    eager, xla = (_usable(ways, mode) for mode in MODES)
    return " ".join([_answer(eager, xla, missing), *_refuted(ways)])


def _answer(eager: Sequence[_Way], xla: Sequence[_Way], missing: Sequence[str]) -> str:
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


def _promise(usable: Sequence[_Way]) -> str:
    """Return which release works and how to get it, as a sentence without a full stop."""
    first, *others = usable
    proven = first["verdict"] == _PROVEN
    same = _same_release(usable)
    promise = f"TensorFlow {first['release']} {'works' if proven else 'should work'}"
    if same and not proven:
        return promise
    promise += f" {_HOW[first['way']]}"
    for way in others:
        release = "" if same else f" {way['release']}"
        promise += f", and{release}{' should work' if proven else ''} {_HOW[way['way']]}"
    return promise


def _refuted(ways: Sequence[_Way]) -> Iterator[str]:
    """Yield a sentence about each image that was tried and does not work."""
    for way in ways:
        if way["verdict"] in _REFUTED:
            yield f"In an image, TensorFlow {way['release']} {_REFUTED[way['verdict']]}."


def _basis(ways: Sequence[_Way], verdicts: Mapping[str, Any] | None) -> str:
    """Return what the headline rests on, in one or more sentences."""
    tried = [way for way in ways if way["verdict"] in (_PROVEN, *_REFUTED)]
    if tried:
        says = [f"The image of TensorFlow {way['release']} {_TRIED[way['verdict']]}." for way in tried]
        return " ".join(says + ["The rest is only predicted."] * (len(tried) < len(ways)))
    if any(way["verdict"] for way in ways):
        return "This is only predicted from published facts: the measurement of the image proved nothing."
    if any(way["other_build_certified"] for way in ways):
        return "This is only predicted from published facts: another build of the image was certified."
    if verdicts is None or any(way["way"] == "image" and way["cell"] is None for way in ways):
        return "This is only predicted, from published facts."
    return "This is only predicted from published facts, and was not measured."


# The ways of getting a release


def _images(
    found: Sequence[Offer],
    machine: Situation,
    gpu: Gpu | None,
    registry: str | None,
    digests: Mapping[str, str] | None,
    verdicts: Mapping[str, Mapping[str, str | None]] | None,
) -> Iterator[dict[str, Any]]:
    host = _host(machine, gpu)
    for offer, modes in _chosen(found, _of_image):
        if offer.image is None:
            continue
        spec = offer.image.spec
        digest = (digests or {}).get(spec.identifier)
        cell = cell_identifier(spec.identifier, host) if host else None
        measured = (verdicts or {}).get(cell or "", {})
        verdict, other_build = measured.get("verdict"), False
        if verdict == _PROVEN and not (registry and digest and measured["digest"] == digest):
            # A certificate is about one build of the image, and this is another one.
            verdict, other_build = None, True
        commands, notes = [f"docker pull {registry}@{digest}"], []
        if verdict in _REFUTED:
            commands = []
        elif not (registry and digest):
            commands = [f"python -m validator build-matrix --profile full --select image={spec.identifier}"]
            notes = [_BUILDS] if digests is not None else []
        way = _way("image", offer, modes, offer.image.prediction, commands, notes, found, _of_image)
        way |= {
            "image": spec.identifier,
            "python": spec.python,
            "cell": cell,
            "verdict": verdict,
            "other_build_certified": other_build,
        }
        if verdict == _PROVEN:
            # The checks that a certificate requires use XLA.
            way |= {"modes": _BOTH, "outcome": Outcome.WORKS.value}
        elif verdict in _REFUTED:
            way["outcome"] = Outcome.FAILS.value
        yield way


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
        if suggested is None:
            wanted = True
        else:
            known = suggested.eager_only or offer.release == suggested.release
            wanted = modes == _EAGER_ONLY and not known
        if wanted and not offer.pip.library_path:
            yield _uncertain_pip(offer, modes, found)


def _uncertain_pip(offer: Offer, modes: str, found: Sequence[Offer]) -> dict[str, Any]:
    """Return the installation of a release that `newest_that_works` does not suggest."""
    pip, wanted = offer.pip, requirement(offer.release)
    suggestion = Suggestion(offer.release, wanted, pip.python, False, modes == _EAGER_ONLY, pip.prediction)
    commands = [_INSTALL.format(each) for each in (wanted, *constraints(offer.release.version))]
    notes = suggestion_notes(suggestion)
    return _way("pip", offer, modes, pip.prediction, commands, notes, found, _alone) | {"python": pip.python}


def _why_older(found: Sequence[Offer], suggested: Suggestion) -> Iterator[str]:
    """Yield a sentence that says why pip gets an older release than an image does, if it does."""
    images = _chosen(found, _of_image)
    newest = next((offer for offer, modes in images if suggested.eager_only or modes == _BOTH), None)
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
        "other_build_certified": False,
        "reasons": [_reason(reason) for reason in prediction.reasons],
        "newer": list(_grouped(found[: found.index(offer)], against)),
    }


def _host(machine: Situation, gpu: Gpu | None) -> str | None:
    """Return the name of the machine's host class in the matrix; None if that needs more facts."""
    driver = loose.driver(machine.driver)
    if driver is None and machine.driver_cuda:
        driver = driver_with(CudaVersion.parse(machine.driver_cuda))
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
        own = f"tensorflow {offer.release.version}"
        return [reason["text"].replace(own, "tensorflow") for reason in reasons]

    for _, group in itertools.groupby(found, key):
        newest, *others = group
        span = f"{others[-1].release.version} to " if others else ""
        yield {
            "releases": f"{span}{newest.release.version}",
            "reasons": _against(predict(newest), newest.release),
        }


def _reason(reason: Reason) -> dict[str, str]:
    return {"outcome": reason.label, "text": reason.sentence, "fact": reason.fact, "source": reason.source}
