"""Write the remarks next to the headline: why the newest release is not offered, what another driver or a
release candidate would change, and which faults of the offered releases are known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from ..compat.offers import candidate_that_works, cautions
from ..compat.other_driver import OtherDriver
from ..model.prediction import Outcome
from ..model.situation import EAGER, MODES, XLA, Host
from ..versions import Version
from .headline import HOW, answer, usable_ways
from .measured import Option, joined
from .ways import INSTALL, Way, of_image, of_pip, reasons_against, release_of

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
    yield from _candidate(ways, host, python)
    yield from _known_faults(ways)


def _why_older(found: Sequence[Option], ways: Sequence[Way]) -> Iterator[str]:
    """Yield why the newest release is not offered, and why one way offers an older release than the other."""
    certain = usable_ways(ways, EAGER)[0]["outcome"]
    best = {name: _newest(ways, name, certain) for name in HOW}
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


def _newest(ways: Sequence[Way], name: str, certain: str) -> Version | None:
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
        f" `{INSTALL.format(suggested.requirement)}`."
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
