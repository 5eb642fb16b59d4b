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
from ..compat.offers import offers, outcome
from ..compat.older import driver_with
from ..compat.policies import constraints
from ..compat.releases import Release
from ..compat.suggest import Suggestion, newest_that_works, requirement, suggestion_notes
from ..errors import InputError
from ..model.prediction import Outcome, Prediction, Reason
from ..model.situation import EAGER, JETSON, LINUX, MACHINES, MACOS, MODES, SYSTEMS, WINDOWS, WSL2, Situation
from ..model.spec import host_identifier
from ..reports.diagnosis_words import fact_names
from ..versions import CudaVersion, DriverRelease, Version
from .errors import rejecting
from .measured import PROVEN, REFUTED, Measured, Option, contents, joined

_PYTHON = re.compile(r"[23]\.\d{1,2}")
#: Values of `modes` in a way.
_BOTH, _EAGER_ONLY = "eager and XLA", "eager only"
#: The placeholder that `filling` fills in.
_PIN = "pin_that_works"
_INSTALL = "python -m pip install '{}'"
_BUILDS = "There is no such image to pull. This builds it; in a checkout, `python` is `.venv/bin/python`."
_SYSTEMS = {LINUX: "Linux", WSL2: "WSL2", WINDOWS: "Windows", MACOS: "macOS"}
_HOW = {"image": "in an image", "pip": "with pip"}
_TRIED = {
    PROVEN: "was certified on this kind of machine",
    "failed": "was measured on this kind of machine",
    "broken": "could not be built",
}
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
_Way = Mapping[str, Any]


#: Returns the prediction of one way of getting a release; None if it is not available in this way.
_Predict = Callable[[Option], Prediction | None]


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
    known = Measured(asked["registry"], asked["images"], asked["verdicts"], _host(machine, gpu))
    found = [known.option(offer) for offer in offers(machine, known.specs())]
    missing = fact_names(name for name in found[0].pip.prediction.missing if name in ("driver", "gpu"))
    ways = [
        *_images(found, known),
        *_pips(found, machine),
    ]
    refuted = list(_refuted(found, ways))
    modes = [_mode(ways, mode) for mode in MODES]
    return {
        "machine": list(_words(machine, gpu, driver)),
        "headline": _headline(ways, missing, refuted),
        "basis": _basis(ways, asked["verdicts"], refuted),
        "outcome": modes[MODES.index(EAGER)]["outcome"],
        "modes": modes,
        "ways": ways,
        "refuted": refuted,
        "releases": [_release(option) for option in found],
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
    """Return the best image and the newest installation with pip that can be used in a mode.

    The best image is the newest one that was certified, else the newest one. All have the same outcome: what
    works hides what is uncertain.
    """
    fitting = [way for way in ways if mode == EAGER or way["modes"] == _BOTH]
    for wanted in (Outcome.WORKS.value, Outcome.UNKNOWN.value):
        same = [way for way in fitting if way["outcome"] == wanted]
        if same:
            names = dict.fromkeys(way["way"] for way in same)
            return [max((way for way in same if way["way"] == name), key=_preference) for name in names]
    return []


def _preference(way: _Way) -> tuple[bool, Version]:
    return way["verdict"] == PROVEN, _release_of(way)


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


def _headline(ways: Sequence[_Way], missing: Sequence[str], refuted: Sequence[Mapping[str, Any]]) -> str:
    """Return the answer in a few sentences.

    It says "works" only of what was certified, and "should work" of what is only predicted.
    """
    eager, xla = (_usable(ways, mode) for mode in MODES)
    return " ".join([_answer(eager, xla, missing), *_newer_image(ways, eager), *_refutation(refuted)])


def _newer_image(ways: Sequence[_Way], usable: Sequence[_Way]) -> Iterator[str]:
    """Yield a sentence about a newer image than the certified one, if one should work."""
    proven = next((way for way in usable if way["verdict"] == PROVEN), None)
    if proven is None:
        return
    images = [way for way in ways if way["way"] == "image" and way["outcome"] == Outcome.WORKS.value]
    newest = max(images, key=_release_of)
    if _release_of(newest) > _release_of(proven):
        only = " for eager operations" if newest["modes"] == _EAGER_ONLY else ""
        yield f"An image of TensorFlow {newest['release']} should work too{only}."


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
    proven = first["verdict"] == PROVEN
    same = _same_release(usable)
    promise = f"TensorFlow {first['release']} {'works' if proven else 'should work'}"
    if same and not proven:
        return promise
    promise += f" {_HOW[first['way']]}"
    for way in others:
        release = "" if same else f" {way['release']}"
        promise += f", and{release}{' should work' if proven else ''} {_HOW[way['way']]}"
    return promise


def _refutation(refuted: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a sentence about the images that were tried and do not work."""
    if len(refuted) == 1:
        [one] = refuted
        yield f"The image of TensorFlow {one['release']} with {one['name']} {REFUTED[one['verdict']]}."
    elif refuted:
        releases = list(dict.fromkeys(one["release"] for one in refuted))
        yield f"{len(refuted)} images of TensorFlow {joined(releases)} were tried and do not work."


def _basis(
    ways: Sequence[_Way], verdicts: Mapping[str, Any] | None, refuted: Sequence[Mapping[str, Any]]
) -> str:
    """Return what the headline rests on, in one or more sentences."""
    proven = [way for way in ways if way["verdict"] == PROVEN]
    tried = [*proven, *refuted] if len(refuted) == 1 else proven
    says = [f"The image of TensorFlow {one['release']} {_TRIED[one['verdict']]}." for one in tried]
    if len(refuted) > 1:
        says.append(f"{len(refuted)} images were tried on this kind of machine.")
    if says:
        return " ".join([*says, *(["The rest is only predicted."] if len(proven) < len(ways) else [])])
    if any(way["verdict"] for way in ways):
        return "This is only predicted from published facts: the measurement of the image proved nothing."
    if any(way["other_build_certified"] for way in ways):
        return "This is only predicted from published facts: another build of the image was certified."
    if verdicts is None or any(way["way"] == "image" and way["cell"] is None for way in ways):
        return "This is only predicted, from published facts."
    return "This is only predicted from published facts, and was not measured."


def _refuted(found: Sequence[Option], ways: Sequence[_Way]) -> Iterator[dict[str, Any]]:
    """Yield the images that fail although predicted to work, of the releases that are not older than the
    newest image that can be used.
    """
    images = [_release_of(way) for way in ways if way["way"] == "image"]
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


# The ways of getting a release


def _images(found: Sequence[Option], known: Measured) -> Iterator[dict[str, Any]]:
    """Yield the newest images that work, after the newest certified one if that is older."""
    chosen = list(_chosen(found, _of_image))
    proven = next((option for option in found if option.image and option.image.verdict == PROVEN), None)
    if proven is not None and proven not in [option for option, _ in chosen]:
        chosen.insert(0, (proven, _BOTH))
    for option, modes in chosen:
        one = option.image
        if one is None:
            continue
        commands, notes = [f"docker pull {known.registry}@{one.digest}"], []
        if one.digest is None:
            identifier = one.image.identifier
            commands = [f"python -m validator build-matrix --profile full --select image={identifier}"]
            notes = [_BUILDS] if known.digests is not None else []
        if one.image.has_additions:
            notes.append(f"This image has other packages too: {one.image.identifier.partition('_')[2]}.")
        way = _way("image", option, modes, one.prediction, commands, notes, found, _of_image)
        yield way | {
            "image": one.image.identifier,
            "python": one.image.spec.python,
            "cell": one.cell,
            "verdict": one.verdict,
            "other_build_certified": one.other_build,
        }


def _pips(found: Sequence[Option], machine: Situation) -> Iterator[dict[str, Any]]:
    suggested = newest_that_works(machine)
    if suggested is not None:
        install = _INSTALL.format(suggested.requirement)
        filled = filling("pip", {_PIN}, [install], machine)
        assert filled is not None
        option = next(option for option in found if option.release == suggested.release)
        modes = _EAGER_ONLY if suggested.eager_only else _BOTH
        commands = [*filled.before, install, *filled.after]
        against = _of_pip if suggested.library_path else _alone
        notes = [*_why_older(found, suggested), *filled.notes]
        way = _way("pip", option, modes, suggested.prediction, commands, notes, found, against)
        yield way | {"python": suggested.python}
    for option, modes in _chosen(found, _of_pip):
        if suggested is None:
            wanted = True
        else:
            known = suggested.eager_only or option.release == suggested.release
            wanted = modes == _EAGER_ONLY and not known
        if wanted and not option.pip.library_path:
            yield _uncertain_pip(option, modes, found)


def _uncertain_pip(option: Option, modes: str, found: Sequence[Option]) -> dict[str, Any]:
    """Return the installation of a release that `newest_that_works` does not suggest."""
    pip, wanted = option.pip, requirement(option.release)
    suggestion = Suggestion(option.release, wanted, pip.python, False, modes == _EAGER_ONLY, pip.prediction)
    commands = [_INSTALL.format(each) for each in (wanted, *constraints(option.release.version))]
    notes = suggestion_notes(suggestion)
    return _way("pip", option, modes, pip.prediction, commands, notes, found, _alone) | {"python": pip.python}


def _why_older(found: Sequence[Option], suggested: Suggestion) -> Iterator[str]:
    """Yield a sentence that says why pip gets an older release than an image does, if it does."""
    images = _chosen(found, _of_image)
    newest = next((option for option, modes in images if suggested.eager_only or modes == _BOTH), None)
    if newest is None or found.index(newest) >= next(
        place for place, option in enumerate(found) if option.release == suggested.release
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


def _of_image(option: Option) -> Prediction | None:
    return option.image.prediction if option.image else None


def _of_pip(option: Option) -> Prediction | None:
    return option.pip.prediction


def _alone(option: Option) -> Prediction | None:
    return option.pip.alone


def _chosen(found: Sequence[Option], predict: _Predict) -> Iterator[tuple[Option, str]]:
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
    return {
        "way": name,
        "release": option.release.version,
        "modes": modes,
        "outcome": outcome(prediction, EAGER).value if modes == _EAGER_ONLY else prediction.outcome.value,
        "commands": list(commands),
        "notes": list(notes),
        "verdict": None,
        "other_build_certified": False,
        "reasons": [_reason(reason) for reason in prediction.reasons],
        "newer": list(_grouped(found[: found.index(option)], against)),
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


def _release(option: Option) -> dict[str, Any]:
    ways = {"image": _of_image(option), "pip": _of_pip(option)}
    return {
        "release": option.release.version,
        "cuda": option.release.cuda,
        "cudnn": option.release.cudnn,
        "pythons": f"{option.release.pythons[0]} to {option.release.pythons[-1]}",
        **{
            name: {mode: outcome(prediction, mode).value for mode in MODES} if prediction else None
            for name, prediction in ways.items()
        },
        "reasons": _against(ways["image"] or ways["pip"], option.release),
    }


def _against(prediction: Prediction | None, release: Release) -> list[dict[str, str]]:
    """Return what speaks against a release, the deciding reasons first."""
    if prediction is not None and prediction.outcome is Outcome.WORKS:
        return []
    if prediction is None:
        text = f"this project makes no image of TensorFlow {release.version} for such a machine"
        return [{"outcome": Outcome.FAILS.value, "text": text, "fact": "", "source": ""}]
    against = [
        reason for reason in prediction.reasons if reason.outcome is not Outcome.WORKS and not reason.advisory
    ]
    return [_reason(reason) for reason in against[:_REASONS]]


def _grouped(found: Sequence[Option], predict: _Predict) -> Iterator[dict[str, Any]]:
    """Yield why releases are not chosen, newest first. Neighbours with the same reasons are one group."""

    def key(option: Option) -> list[str]:
        reasons = _against(predict(option), option.release)
        own = f"tensorflow {option.release.version}"
        return [reason["text"].replace(own, "tensorflow") for reason in reasons]

    for _, group in itertools.groupby(found, key):
        newest, *others = group
        span = f"{others[-1].release.version} to " if others else ""
        yield {
            "releases": f"{span}{newest.release.version}",
            "reasons": _against(predict(newest), newest.release) or [_NOT_CERTIFIED],
        }


def _reason(reason: Reason) -> dict[str, str]:
    return {"outcome": reason.label, "text": reason.sentence, "fact": reason.fact, "source": reason.source}
