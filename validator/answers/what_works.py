"""Answer "What works on my GPU and driver?" for every release that the facts know, on the page and in
`predict`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..compat import evidence, hardware
from ..compat.hardware import compat_packages
from ..compat.judge import judge_host, parse_driver, parse_gpu
from ..compat.offers import OtherDriver, candidate_that_works, cautions, offers, other_driver
from ..compat.releases import driver_with
from ..errors import InputError
from ..model.prediction import (
    EAGER,
    EAGER_ONLY,
    JETSON,
    LINUX,
    MACHINES,
    MACOS,
    MODES,
    SYSTEMS,
    WINDOWS,
    WSL2,
    X86_64,
    XLA,
    Host,
    Outcome,
)
from ..model.spec import host_identifier
from ..reports.printable import fact_names
from ..versions import ComputeCapability, CudaVersion, DriverRelease, Version, minor_in
from . import rejecting
from .ways import (
    BOTH,
    PROVEN,
    REFUTED,
    Measured,
    Option,
    Way,
    image_ways,
    install,
    joined,
    of_image,
    of_pip,
    pip_ways,
    reasons_against,
    refuted_images,
    release_of,
    release_row,
)

# Say in a few sentences which releases work on a machine, and what that rests on.


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
        return "This answer is only predicted, from published facts."
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
            same.sort(key=lambda way: (way["verdict"] == PROVEN, release_of(way)))
            best = {way["way"]: way for way in same}
            return [best[name] for name in dict.fromkeys(way["way"] for way in ways) if name in best]
    return []


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


# Write the remarks next to the headline: why the newest release is not offered, what another driver or a
# release candidate would change, and which faults of the offered releases are known.


#: Returns the ways of getting a release on another machine.
Ask = Callable[[Host], Sequence[Way]]


def remarks(
    found: Sequence[Option],
    ways: Sequence[Way],
    host: Host,
    python: str | None,
    other: OtherDriver | None,
    ask: Ask,
) -> Iterator[str]:
    """Yield sentences, the most important first.

    found: what each release offers, the newest first. ways: those that are offered. other: the driver that
    allows a newer release, None if there is none.
    """
    if ways:
        yield from _why_older(found, ways)
        yield from _why_not_with_xla(found, ways)
    if other is not None:
        yield _with_driver(other, host, ask)
        yield from _with_compat(ways, host, ask)
    yield from _candidate(ways, host, python)
    yield from _known_faults(ways)


def _why_older(found: Sequence[Option], ways: Sequence[Way]) -> Iterator[str]:
    """Yield why the newest release is not offered, and why one way offers an older release than the other."""
    certain = usable_ways(ways, EAGER)[0]["outcome"]
    best = {name: _remarks_newest(ways, name, certain) for name in HOW}
    known = [release for release in best.values() if release is not None]
    newest = found[0]
    # The headline says which images were tried and do not work.
    if Version(newest.release.version) > max(known) and not newest.refuted:
        prediction = of_image(newest) or of_pip(newest)
        for reason in reasons_against(prediction, newest.release, EAGER)[:1]:
            yield _does_not_work("", newest, reason)
    option = next(one for one in found if Version(one.release.version) == max(known))
    if best["pip"] is not None and best["pip"] < max(known):
        yield from _why_older_with_pip(option, str(best["pip"]))
    if best["image"] is not None and best["image"] < max(known) and not option.refuted:
        for reason in reasons_against(of_image(option), option.release, EAGER)[:1]:
            yield _does_not_work("In an image, ", option, reason)


def _remarks_newest(ways: Sequence[Way], name: str, certain: str) -> Version | None:
    same = [way for way in ways if way["way"] == name and way["outcome"] == certain]
    return max(map(release_of, same), default=None)


def _why_older_with_pip(option: Option, own: str) -> Iterator[str]:
    name = option.release.version
    if option.pip.library_path:
        yield (
            f"With pip, {name} finds CUDA's libraries only if LD_LIBRARY_PATH names their directories; {own}"
            " needs no such setting."
        )
    else:
        for reason in reasons_against(option.pip.alone, option.release, EAGER)[:1]:
            yield _does_not_work("With pip, ", option, reason)


def _why_not_with_xla(found: Sequence[Option], ways: Sequence[Way]) -> Iterator[str]:
    """Yield why the newest release that works for eager operations does not work with XLA."""
    eager, xla = (usable_ways(ways, mode) for mode in MODES)
    if eager[0]["outcome"] != Outcome.WORKS.value:
        return
    newest = max(map(release_of, eager))
    if xla and xla[0]["outcome"] == Outcome.WORKS.value and max(map(release_of, xla)) >= newest:
        return
    option = next(one for one in found if Version(one.release.version) == newest)
    for reason in reasons_against(of_image(option) or of_pip(option), option.release, XLA)[:1]:
        yield _does_not_work("With XLA, ", option, reason)


def _does_not_work(where: str, option: Option, reason: Mapping[str, str]) -> str:
    verb = "does not" if reason["outcome"] == Outcome.FAILS.value else "may not"
    return f"{where}TensorFlow {option.release.version} {verb} work here: {reason['text']}."


def _with_driver(other: OtherDriver, host: Host, ask: Ask) -> str:
    """Return what works with another driver."""
    ways = ask(replace(host, driver=str(other.driver), driver_cuda=None))
    eager, xla = (usable_ways(ways, mode) for mode in MODES)
    says = answer(eager, xla, () if host.capability else ("the GPU",))
    if not says.startswith("TensorFlow"):
        says = f"{says[0].lower()}{says[1:]}"
    name = f"R{other.driver}" if other.driver.is_branch else str(other.driver)
    windows = " for Windows" if host.on_windows else ""
    last = f"R{other.last_branch}, the last branch for this GPU"
    if other.is_older:
        return f"With driver {last}{windows}: {says}"
    return f"With driver {name} or newer{windows}{f', up to {last}' if other.last_branch else ''}: {says}"


def _with_compat(ways: Sequence[Way], host: Host, ask: Ask) -> Iterator[str]:
    """Yield what works with this driver and NVIDIA's package of a newer libcuda, if the GPU may use one."""
    driver = judge_host(host).driver
    if driver is None or host.system not in (None, LINUX):
        return
    now = _remarks_newest(ways, "pip", Outcome.WORKS.value)
    for compat in compat_packages(driver.branch):
        there = _remarks_newest(ask(replace(host, compat=compat)), "pip", Outcome.WORKS.value)
        if there is not None and (now is None or there > now):
            package = f"cuda-compat-{compat.replace('.', '-')}"
            yield (
                f"If the driver has to stay, install NVIDIA's package {package} and put its directory,"
                f" /usr/local/cuda-{compat}/compat, on LD_LIBRARY_PATH: TensorFlow {there} should work"
                " with pip."
            )
            return


def _candidate(ways: Sequence[Way], host: Host, python: str | None) -> Iterator[str]:
    """Yield a release candidate that works where no stable release does."""
    works = Outcome.WORKS.value
    lacking = [mode for mode in MODES if works not in [way["outcome"] for way in usable_ways(ways, mode)]]
    suggested = candidate_that_works(host, python) if lacking else None
    if suggested is None:
        return
    too = " with XLA too" if lacking == [XLA] else ""
    yield (
        f"The release candidate {suggested.release.version}, which is not a stable release, should work{too}:"
        f" `{install(suggested)}`."
    )
    for reason in cautions(suggested.prediction):
        if reason.mode in lacking:
            yield f"Note for {suggested.release.version}: {reason.text}."


def _known_faults(ways: Sequence[Way]) -> Iterator[str]:
    """Yield the known faults of the releases that are offered."""
    for text in dict.fromkeys(text for way in ways for text in way["cautions"]):
        concerned = [way for way in ways if text in way["cautions"]]
        names = joined(list(dict.fromkeys(way["release"] for way in concerned)))
        kinds = list(dict.fromkeys(HOW[way["way"]] for way in concerned))
        where = "" if len(concerned) == len(ways) else f" {joined(kinds)}"
        yield f"Note for TensorFlow {names}{where}: {text}."


_PYTHON = re.compile(r"[23]\.\d{1,2}")
_SYSTEMS = {LINUX: "Linux", WSL2: "WSL2", WINDOWS: "Windows", MACOS: "macOS"}


def what_works(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the newest releases that work on a machine, how to get them, and why newer ones don't.

    asked: `gpu`, `driver` and `python` as a person wrote them, each of which may be empty; `system` and
    `machine` as in `Host`; `registry`: the repository of the images, or None; `images`: the digest of
    each image that can be pulled from there, by its identifier, or None if nobody has looked; `verdicts`: of
    each cell that was measured, by its identifier, the newest `verdict`, the `digest` of the image that got
    it, and its `limits` as in `Limit` if there are any, or None if nobody has looked.

    Raises RejectedField for what can't be understood, and InputError for a system that does not exist.
    """
    with rejecting("gpu"):
        gpu = parse_gpu(asked["gpu"]) if asked["gpu"].strip() else Host()
    with rejecting("driver"):
        driver = parse_driver(asked["driver"]) if asked["driver"].strip() else Host()
    python = _python(asked["python"])
    host = Host(
        gpu=gpu.gpu,
        capability=gpu.capability,
        driver=driver.driver,
        driver_cuda=driver.driver_cuda,
        system=_one_of(asked["system"], SYSTEMS),
        # People keep the default Linux, but some GPUs are only in systems with an Arm processor.
        machine=gpu.machine or _one_of(asked["machine"], MACHINES),
    )
    measured = Measured(asked["registry"], asked["images"], asked["verdicts"], _class_name(host))
    options = _options(host, python, measured)
    missing = fact_names(name for name in options[0].pip.prediction.missing if name in ("driver", "gpu"))
    ways = _ways(options, measured, host, python)
    refuted = list(refuted_images(options, ways))
    modes = [newest_in_mode(ways, mode) for mode in MODES]
    named = any(way["measured"] for way in ways)
    otherwise = () if named else evidence.measured_on(host, judge_host(host))

    def ask(other: Host) -> list[dict[str, Any]]:
        there = replace(measured, host=_class_name(other))
        return _ways(_options(other, python, there), there, other, python)

    return {
        "machine": list(_words(host, python)),
        "headline": headline(ways, missing, refuted),
        "remarks": list(remarks(options, ways, host, python, other_driver(host, python), ask)),
        "basis": " ".join([basis(ways, asked["verdicts"], refuted), *otherwise]),
        "outcome": modes[MODES.index(EAGER)]["outcome"],
        "modes": modes,
        "ways": ways,
        "refuted": refuted,
        "releases": [release_row(option, python) for option in options],
    }


def what_works_on(host: Host, python: str | None) -> dict[str, Any]:
    """Return the answer of `what_works` for a machine, without looking at images or verdicts.

    A GPU whose name the facts don't know counts by its compute capability, if that is given.
    """
    gpu = host.gpu if not host.capability or hardware.is_known(host.gpu or "") else host.capability
    return what_works({
        "gpu": gpu or "",
        "driver": host.driver or "",
        "python": python or "",
        "system": host.system or LINUX,
        "machine": host.machine or X86_64,
        "registry": None,
        "images": None,
        "verdicts": None,
    })  # fmt: skip


def _options(host: Host, python: str | None, measured: Measured) -> list[Option]:
    return [measured.option(offer) for offer in offers(host, python, measured.specs())]


def _ways(
    options: Sequence[Option], measured: Measured, host: Host, python: str | None
) -> list[dict[str, Any]]:
    return [*image_ways(options, measured), *pip_ways(options, host, python)]


def _python(text: str) -> str | None:
    if not text.strip():
        return None
    if not _PYTHON.fullmatch(minor_in(text) or ""):
        with rejecting("python"):
            raise InputError(f'"{text[:20]}" is not a Python version', hint="write it as 3.12")
    return minor_in(text)


def _one_of(value: str, known: Sequence[str]) -> str:
    if value not in known:
        raise InputError(f'"{value[:20]}" is not one of {", ".join(known)}')
    return value


def _words(host: Host, python: str | None) -> Iterator[str]:
    """Yield how the question was understood."""
    if host.capability:
        yield f"{f'{host.gpu}, ' if host.gpu else ''}compute capability {host.capability}"
    if host.driver:
        yield f"driver {host.driver}"
    elif host.driver_cuda:
        oldest, cuda = driver_with(CudaVersion.parse(host.driver_cuda)), host.driver_cuda
        yield f"CUDA {cuda} in nvidia-smi, so driver R{oldest.branch}" if oldest else cuda
    system = _SYSTEMS[host.system or LINUX]
    yield f"{system} on NVIDIA Jetson" if host.machine == JETSON else f"{system} {host.machine}"
    if python:
        yield f"Python {python}"


def _class_name(host: Host) -> str | None:
    """Return the name of the machine's host class in the matrix; None if that needs more facts."""
    driver = DriverRelease.or_none(host.driver)
    if driver is None and host.driver_cuda:
        driver = driver_with(CudaVersion.parse(host.driver_cuda))
    if not host.capability or driver is None:
        return None
    slug = hardware.model_of(host.gpu) if host.gpu else None
    return host_identifier(DriverRelease(driver.branch), slug, ComputeCapability.parse(host.capability))
