"""Diagnose a pasted text or a report: causes, what is harmless, and what was not recognized."""

from __future__ import annotations

import functools
import itertools
import re
import sys
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, BinaryIO

from ..compat.hardware import first_toolkit_for
from ..compat.offers import (
    needs_another_python,
    newest_that_works,
    notes_about,
    other_driver,
    requirement,
    why_not,
)
from ..compat.releases import (
    driver_with,
    libraries_by_release,
    newest_for_cudnn,
    newest_for_driver,
    newest_with,
    older_releases,
    oldest_driver,
    release_of_any_age,
)
from ..conditions import Find
from ..errors import InputError
from ..model.diagnosis import GPU_USED, NO_FAULT, NOT_SHOWN, Cause, Diagnosis, FailingReason, Harmless
from ..model.diagnosis import UNRECOGNIZED as UNRECOGNIZED_FAULT
from ..model.prediction import LINUX, WINDOWS, WSL2, Host
from ..versions import CudaVersion, DriverRelease, leading_numbers, major, minor_in
from . import conclusions, observe, remedies, text
from .catalogue import (
    ASKED,
    CERTAIN,
    CPU_WANTED,
    FAULT,
    LIKELY,
    PLAIN_QUESTION,
    POSSIBLE,
    SAID,
    STRENGTHS,
    UNRECOGNIZED,
    CauseEntry,
    Sign,
    answers,
    catalogue,
    causes,
    chosen_finder,
    finder,
    language,
    printed,
    table,
)
from .combination import is_judged, judge, read_host, read_software
from .observations import Certainty, Observation, Observations, tensorflow
from .remedies import WORKS, Reader, assumed, filled_in, fitting_remedies, lawful_text

if TYPE_CHECKING:
    from ..model.report import Report


# Decide which causes are the answer, and in which order they have to be fixed.


#: Lines of evidence that are given for a cause.
_EVIDENCE = 12
#: The named condition that holds where the text shows that TensorFlow does not use the GPU.
_SYMPTOM = "gpu_fails"
#: How many causes are named at most if only a person's words show them.
_MOST = 3
#: How many remedies of a cause are given at most. They are sorted, so the best ones stay.
_REMEDIES = 4
#: Kinds of observations, and the cause that somebody names, where something is wrong although the GPU works.
COMPLAINTS = {"oom_said", "gpu_oom_said", "hang_said", "process_dies_said", "gpu_out_of_memory"}
#: A value such as a version or the name of a library, in which a text can't hide a sentence.
_WORD = re.compile(r"[\w.+-]{1,32}")


@dataclass(frozen=True)
class _ShownSign:
    """A sign and the observations that make it true. strength: that of the sign, or lower."""

    sign: Sign
    observations: Sequence[Observation]
    strength: str

    def only_in(self, lines: Set[str]) -> bool:
        """Return whether only what a person says in these lines makes it true."""
        return bool(self.observations) and all(
            one.certainty is Certainty.STATED and one.where in lines for one in self.observations
        )

    @property
    def apart(self) -> bool:
        """Return whether lines with a question make it true even without the question."""
        return all(one.apart for one in self.observations)

    @property
    def complains(self) -> bool:
        return any({one.kind, one.values.get("of")} & COMPLAINTS for one in self.observations)

    @property
    def judged(self) -> bool:
        """True if a combination of facts that can't work makes it true."""
        return any(map(is_judged, self.observations))

    def values(self, facts: Mapping[str, str], reader: Reader) -> Mapping[str, str]:
        """Return the facts and the observed values. The first observation that has a value decides.

        For a reader who gets no quotes, only single words and what `compat` says are left.
        """
        values = dict(facts)
        for observation in reversed(self.observations):
            values.update(observation.values)
        if reader.quotes:
            return values
        own = {name for one in self.observations if is_judged(one) for name in one.values}
        return {name: value for name, value in values.items() if name in own or _WORD.fullmatch(value)}


@dataclass(frozen=True)
class _ShownCause:
    """A cause and the signs that show it, surest first. position: in the causal chain."""

    entry: CauseEntry
    position: int
    signs: Sequence[_ShownSign]

    @property
    def strength(self) -> str:
        """Return how sure the cause is: certain if both a message and a combination of facts show it."""
        likely = [shown for shown in self.signs if shown.strength != POSSIBLE]
        if any(shown.judged for shown in likely) and any(not shown.judged for shown in likely):
            return CERTAIN
        return self.signs[0].strength

    @property
    def evidence(self) -> list[Observation]:
        """The lines and fields that show it."""
        observations = itertools.chain(*(shown.observations for shown in self.signs))
        return [observation for observation in observations if observation.text or observation.where]

    @property
    def only_said(self) -> bool:
        """True if only the words of a person show it."""
        return bool(self.evidence) and all(observation.kind == SAID for observation in self.evidence)

    @property
    def by_words(self) -> bool:
        """True if a person's text as a whole resembles those about this cause."""
        return any(one.where == _BY_WORDS for one in self.evidence)

    @property
    def reasons(self) -> tuple[FailingReason, ...]:
        """The reasons of the combinations that show it, each once."""
        names = [field.name for field in fields(FailingReason)]
        judged = filter(is_judged, itertools.chain(*(shown.observations for shown in self.signs)))
        return tuple(
            dict.fromkeys(
                FailingReason(**{name: reason.values[name] for name in names if name in reason.values})
                for reason in judged
            )
        )

    def explains(self, other: _ShownCause) -> bool:
        """Return whether the other cause is only a consequence of this one; never if the other is surer."""
        is_as_sure = _doubt(self.strength) <= _doubt(other.strength) and not other.by_words
        return is_as_sure and other.entry.code in self.entry.explains

    def title(self, facts: Mapping[str, str], reader: Reader) -> tuple[str, Mapping[str, str]]:
        """Return the title and the values for it.

        The title is that of the first sign whose values are all known, among the surest signs. If there is
        none, it is the title of the cause itself.
        """
        for shown in self.signs:
            if shown.strength != self.signs[0].strength:
                break
            values = shown.values(facts, reader)
            try:
                return shown.sign.title.format_map(values) or self.entry.title, values
            except KeyError:
                continue
        return self.entry.title, self.signs[0].values(facts, reader)


def causes_in_order(
    observations: Observations, facts: Mapping[str, str], reader: Reader, title: str = ""
) -> tuple[Cause, ...]:
    """Return the causes in the order in which they have to be fixed: surer ones first, then along the chain.

    A consequence is named with its cause instead of separately. A cause that is only possible is named only
    if there is none better.

    facts: values for titles and remedies. reader: who gets them. title: where the text's title is, if any.
    """
    if observations.has(_NOTHING_WRONG):
        return ()
    harmless = any(one.harmless for one in observations)
    shown = _shown_causes(functools.cache(finder(observations, facts)), title, harmless)
    explained_by = {
        other.entry.code: cause.entry.code for cause in shown for other in shown if cause.explains(other)
    }
    roots = [cause for cause in shown if cause.entry.code not in explained_by]
    most = _MOST if all(root.only_said for root in roots) else None
    # A second guess brings no list of its own.
    return tuple(
        _cause(
            root,
            _consequences(root.entry.code, explained_by),
            observations,
            facts,
            reader,
            title,
            remedies=1 if place and root.strength == POSSIBLE else _REMEDIES,
        )
        for place, root in enumerate(sorted(roots, key=_order)[:most])
    )


def _order(shown: _ShownCause) -> tuple[int, int, int, int]:
    """Return the place of a cause: the surest first, then along the causal chain.

    If only a person's words show the causes, the one that all of them together resemble comes first, then the
    one that they mention first: it is usually in the title.
    """
    doubt = _doubt(shown.strength)
    if shown.by_words:
        return -1, 0, 0, shown.position
    if not shown.only_said:
        return doubt, 0, 0, shown.position
    general = all(observation.values.get("general") for observation in shown.evidence)
    digits = [re.search(r"\d+", observation.where) for observation in shown.evidence]
    first = min(int(match[0]) if match else sys.maxsize for match in digits)
    return doubt, 2 if general else 1, first, shown.position


def _shown_causes(find: Find[Observation], title: str, harmless: bool) -> Sequence[_ShownCause]:
    symptom = language().parse(_SYMPTOM).holds(find)
    works = harmless and language().parse(WORKS).holds(find)
    complains = any(map(find, ("gpu_wished", "computed_on_cpu", "gpu_list_empty", "both_results_said")))
    asked = set() if complains else {one.where for one in find(PLAIN_QUESTION) or ()}
    shown = []
    for position, entry in enumerate(causes()):
        signs = []
        for sign in entry.signs:
            result = sign.when.evaluate(find)
            if result.truth:
                strength = _strength(sign, result.evidence, symptom)
                signs.append(_ShownSign(sign, result.evidence, strength))
        # Few causes have a sign, so what rules a cause out is asked last.
        if not signs or entry.ruled_out_by.holds(find):
            continue
        # The words of a question describe no fault.
        signs = [sign for sign in signs if sign.apart or not sign.only_in(asked)]
        # A word in a title shows nothing next to harmless messages of a GPU that works.
        signs = [sign for sign in signs if sign.complains or not (works and sign.only_in({title}))]
        # Guesses count only where there is nothing better.
        signs = [sign for sign in signs if sign.strength != POSSIBLE] or signs
        if signs:
            by_doubt = sorted(signs, key=lambda sign: _doubt(sign.strength))
            shown.append(_ShownCause(entry, position, by_doubt))
    shown = [cause for cause in shown if cause.by_words or cause.strength != POSSIBLE] or shown
    return [cause for cause in shown if cause.by_words or not cause.entry.last_resort] or shown


def _strength(sign: Sign, evidence: Sequence[Observation], symptom: bool) -> str:
    """Return how sure a sign is: without a symptom, facts that can't work together show at most `likely`.

    These facts may come from a machine or environment other than the failing one, or may not matter there.
    """
    by_facts = any(map(is_judged, evidence))
    return LIKELY if sign.strength == CERTAIN and by_facts and not symptom else sign.strength


def _doubt(strength: str) -> int:
    return STRENGTHS.index(strength)


def _consequences(root: str, explained_by: Mapping[str, str]) -> tuple[str, ...]:
    """Return the codes that a cause explains, directly or through others."""

    def origin(code: str) -> str:
        while code in explained_by:
            code = explained_by[code]
        return code

    return tuple(code for code in explained_by if origin(code) == root)


def _cause(
    shown: _ShownCause,
    explains: tuple[str, ...],
    observations: Observations,
    facts: Mapping[str, str],
    reader: Reader,
    place_of_title: str,
    *,
    remedies: int,
) -> Cause:
    entry, reasons = shown.entry, shown.reasons
    # A title says what a text is about, and shows little by itself, if compat does not judge its facts.
    by_title = all(sign.only_in({place_of_title}) and not sign.judged for sign in shown.signs)
    title, values = shown.title(facts, reader)
    return Cause(
        code=entry.code,
        strength=POSSIBLE if by_title else shown.strength,
        title=title,
        means=lawful_text(entry.means, observations, values),
        evidence=observations.evidence(shown.evidence)[:_EVIDENCE],
        remedies=fitting_remedies(entry, values, observations, reader)[:remedies],
        sources=tuple(dict.fromkeys((*entry.sources, *(reason.source for reason in reasons)))),
        explains=explains,
        reasons=reasons,
    )


# Say which release should work on the machine that a text shows, if the text shows no cause.


def suitable_release(host: Host, python: str | None) -> str:
    """Return which release should work on a GPU and driver, as sentences; empty if one of them is not known.

    host, python: what is known about the machine. An unknown system counts as Linux.
    """
    if not host.names_gpu or not host.names_driver:
        return ""
    chosen = newest_that_works(host, python)
    if chosen is None:
        # A driver that is too new for the GPU is a cause.
        other = other_driver(host, python)
        helps = f" Driver {other.driver} or newer would help." if other and not other.is_older else ""
        return (
            "No release of TensorFlow since 2.8 is expected to use this GPU with this driver:"
            f" {why_not(host, python)}.{helps}"
        )
    python = f" with Python {chosen.python}" if needs_another_python(chosen, python) else ""
    install = f'`python -m pip install "{chosen.requirement}"`'
    works = f"On this GPU and driver, TensorFlow {chosen.release.version} should work{python}: {install}."
    return " ".join([works, *notes_about(chosen)])


#: Lines that are given as not recognized, and lines that are given for one harmless message.
_UNKNOWN, _HARMLESS = 20, 3
#: Kinds that are known as messages but still count as not recognized where no cause fits.
_SYMPTOMS = (
    "cuda_error",
    "nvml_error",
    "cudnn_handle_failed",
    "import_failed",
    "python_exception",
    "device_not_registered",
    "gpu_list_empty",
    "failure_said",
    "hang_said",
)
#: The facts about the environment besides the release; those in the second row are names, not versions.
_FACTS = ("python", "keras", "cuda", "cudnn", "driver", "driver_cuda")
_NAMED_FACTS = ("gpu", "os", "image")
_ALL_PASSED = "nothing to fix: every check that could run here passed"
_CHECKS_FAILED = "no known cause explains the checks that did not pass; their evidence is in the report"


def diagnose_log(pasted: str, *, quotes: bool = True) -> Diagnosis:
    """Name the causes that a pasted text or a report in it shows. Raises InputError if it is empty.

    quotes: False to keep the text's words out of sentences and commands; only evidence and facts quote it.
    """
    return _diagnose_text(text.read_text(pasted), "the text", quotes)


def diagnose_file(stream: BinaryIO, name: str) -> Diagnosis:
    """Name the causes that the text in a file or pipe shows, looking at most at `text.LIMIT` bytes of it.

    name: its name in errors. Raises InputError if it is empty or not text.
    """
    return _diagnose_text(text.read(stream, name), name)


def diagnose_ends(ends: text.Ends, name: str) -> Diagnosis:
    """Name the causes that a text shows which was read elsewhere. Raises InputError as `diagnose_file`."""
    return _diagnose_text(text.read_ends(ends, name), name)


def diagnose_report(
    report: Report, image: str = "", *, around: Observations | None = None, quotes: bool = True
) -> Diagnosis:
    """Name the causes that a probe's report shows.

    image: the one in which the probe ran, if it is known. around: what the text around the report shows.
    quotes: as for `diagnose_log`.
    """
    observations = observe.observe_report(report, catalogue())
    for one in around or ():
        observations.add(one)
    checks = "1 check" if len(report.checks) == 1 else f"{len(report.checks)} checks"
    read = f"a report of {report.started} with {checks}"
    late = [check.id for check in report.checks if check.outcome.value == "timeout"]
    read += f" ({', '.join(late)} reached the time limit)" if late else ""
    diagnosis = _diagnose(observations, read, image, quotes=quotes)
    if diagnosis.causes:
        return diagnosis
    failed = observations.evidence(observations.of("check_not_passed"))
    if failed:
        return replace(
            diagnosis,
            answer=UNRECOGNIZED_FAULT,
            unknown=failed,
            missing=(),
            works="",
            next_step=_CHECKS_FAILED,
        )
    if any(around or ()):
        return diagnosis
    return replace(diagnosis, unknown=(), works="", next_step=_ALL_PASSED, next_command="")


#: The most lines of a text to compare with what other people wrote: reading it once more takes time.
_LONGEST_COMPLAINT = 400
#: The topic of a text that may be compared, and topics that exclude it.
_TOPIC = re.compile(r"tensorflow|keras|cuda|cudnn|\bGPUs?\b|\bTF\b", re.IGNORECASE)
_OTHER_TOPIC = re.compile(r"torch|\bjax\b", re.IGNORECASE)
#: The place of an observation that rests on all words of a text, and its kind if nothing is wrong.
_BY_WORDS, _NOTHING_WRONG = "words of the text", "nothing_wrong"


def _diagnose_text(pasted: text.Pasted, name: str, quotes: bool = True) -> Diagnosis:
    observations = observe.observe(pasted, catalogue() if pasted.is_paste else printed())
    if pasted.report is not None:
        try:
            from ..model.report import ReportError, report_of
        except ImportError:  # in a browser
            raise InputError(f"{name} contains a report of `check`", hint=text.READ_REPORT) from None
        try:
            report = report_of(pasted.report)
        except ReportError as error:
            raise InputError(f"{name} is not a report that can be read: {error}") from error
        return diagnose_report(report, around=observations, quotes=quotes)
    title = pasted.place(1) if pasted.has_title else ""
    diagnosis = _diagnose(observations, pasted.read, title=title, quotes=quotes)
    guess = _by_its_words(pasted, observations, diagnosis)
    if guess is None:
        return diagnosis
    observations = observe.observe(pasted, catalogue())
    observations.add(guess)
    return _diagnose(observations, pasted.read, title=title, quotes=quotes)


def _by_its_words(
    pasted: text.Pasted, observations: Observations, diagnosis: Diagnosis
) -> Observation | None:
    """Return what a complaint resembles most, if the rules only guess, or find nothing; None if unclear.

    The kind is `SAID`, or `_NOTHING_WRONG`. Return None also if something else explains the text, or if the
    text is about something else. What a program printed is not prose: the catalogue knows its lines, or says
    that it doesn't.
    """
    if any(cause.strength != POSSIBLE for cause in diagnosis.causes):
        return None
    silent, explained = not diagnosis.causes, diagnosis.harmless or diagnosis.answer in (GPU_USED, NO_FAULT)
    if silent and (explained or any(map(observations.has, (UNRECOGNIZED, CPU_WANTED, PLAIN_QUESTION)))):
        return None
    from . import likeness

    lines = pasted.paste_lines()
    if len(lines) > _LONGEST_COMPLAINT:
        return None
    complaint = "\n".join(line.text for line in lines)
    named = len(_TOPIC.findall(complaint))
    if named < len(_OTHER_TOPIC.findall(complaint)) or (silent and not diagnosis.facts and not named):
        return None
    alike = likeness.table().most_like(complaint)
    if alike is None or not alike.is_clear:
        return None
    kind, values = (_NOTHING_WRONG, {}) if alike.code == likeness.NONE else (SAID, {"of": alike.code})
    return Observation(kind, values, ", ".join(alike.words), _BY_WORDS, certainty=Certainty.STATED)


def _diagnose(
    observations: Observations, read: str, image: str = "", *, title: str = "", quotes: bool = True
) -> Diagnosis:
    conclusions.conclude(observations)
    prediction = judge(observations)
    facts = _facts(observations)
    reader = Reader.of(observations, image, quotes=quotes)
    causes = causes_in_order(observations, {**facts, **_requirements(observations, facts)}, reader, title)
    harmless = _harmless(observations)
    faults = [kind for kind in (UNRECOGNIZED, FAULT, *_SYMPTOMS) if observations.has(kind)]
    if not causes and observations.has("not_working_said") and not harmless:
        faults.append("not_working_said")
    if causes or observations.has(CPU_WANTED):
        faults = [kind for kind in faults if kind == UNRECOGNIZED]
    elif observations.has(PLAIN_QUESTION):
        # What a program printed is a fault even next to a question.
        faults = [kind for kind in faults if not kind.endswith("_said")]
    unknown = observations.evidence(one for kind in faults for one in observations.of(kind))[:_UNKNOWN]
    kind = remedies.answer(observations, prediction, causes, faults)
    works = "" if causes else _answer_to_question(observations, facts, weak=not harmless)
    only_machine = False
    if not causes and not works and kind not in (GPU_USED, NO_FAULT):
        works = suitable_release(read_host(observations), read_software(observations).python)
        only_machine = bool(works) and "tensorflow" not in facts
    is_without_gpu = kind == NO_FAULT and observations.has("no_gpu_said")
    return Diagnosis(
        answer=kind,
        causes=causes,
        harmless=harmless,
        unknown=unknown,
        facts=facts,
        read=read,
        missing=prediction.missing if kind == NOT_SHOWN else (),
        works=works,
        next_step=remedies.next_step("no_gpu" if is_without_gpu else kind, only_machine=only_machine),
        next_command=reader.doctor if not is_without_gpu else "",
    )


def _answer_to_question(observations: Observations, facts: Mapping[str, str], *, weak: bool) -> str:
    """Return the answer to the first question of the text that has one; empty if there is none.

    weak: whether questions count that people with a fault ask, too.
    """
    # A question names a release that somebody needs, so it counts as mentioned in passing.
    named = [{"tensorflow": one.values["version"]} for one in observations.mentioned("tensorflow")]
    facts = {**(named[0] if named else {}), **facts}
    values = {**facts, **_requirements(observations, facts)}
    find = chosen_finder(observations, {**assumed(observations), **values})
    for asked in (*observations.of(PLAIN_QUESTION), *(observations.of(ASKED) if weak else ())):
        for entry in answers()[asked.values["of"]]:
            if entry.placeholders <= values.keys() and entry.when.holds(find):
                return filled_in(entry.says, values)
    return ""


def _facts(observations: Observations) -> dict[str, str]:
    release = tensorflow(observations)
    facts = {"tensorflow": release.values["version"]} if release is not None else {}
    for name in (*_FACTS, *_NAMED_FACTS):
        fact = observations.value(name, "name" if name in _NAMED_FACTS else "version")
        if fact:
            facts[name] = fact
    if observations.has("wsl"):
        facts["os"] = WSL2
    return facts


def _requirements(observations: Observations, facts: Mapping[str, str]) -> dict[str, str]:
    """Return the other values for remedies, as far as they are known.

    These are what the release was built with and the package that it was in before 2.1, or else what each
    release was built with; the driver that this needs and the branch of the one that is there; the GPU's
    compute capability and the newest release for it; and the system.
    """
    release = facts.get("tensorflow", "")
    likely = conclusions.likely_releases(observations)
    build = release_of_any_age(release)
    # A release that opens newer libraries than the one that is missing is not the one that runs.
    opens_newer = build and likely and leading_numbers(likely[-1].version) < leading_numbers(build.minor)
    if build is None or (opens_newer and observations.first("cuda_library_not_loaded")):
        build = conclusions.likely_release(observations)
    # Older releases print cuDNN's version as 7003.
    compiled = observations.value("cudnn_version_mismatch", "compiled") or ""
    built_with = compiled if "." in compiled else conclusions.cudnn_version(compiled)
    cudnn = built_with or (build.cudnn if build else "")
    gpu_capability = conclusions.gpu_of_ptxas(observations) or ""
    system = read_host(observations).system or ""
    on_windows = system in (WINDOWS, WSL2)
    software = read_software(observations)
    built = software.versions.get("cudatoolkit") or (build.cuda if build else software.cuda) or ""
    # Builds of others, such as NVIDIA's of 1.15, open a newer CUDA than the release of that number.
    opened = conclusions.cuda_of_libraries(observations)
    cuda = CudaVersion.or_none(max(built, opened, key=lambda one: leading_numbers(one)[:1]) or None)
    floor = oldest_driver(cuda, on_windows) if cuda else None
    # An image may ask for a CUDA that the driver has to show; the text may name that of the host.
    asked = CudaVersion.or_none(observations.value("container_cli_error", "cuda"))
    needed = driver_with(asked, on_windows) if asked else floor and floor.driver
    own = DriverRelease.or_none(facts.get("driver", ""))
    if needed and own and own >= needed:
        # The driver that is there is not the one that is needed: the CUDA in use is newer than stated.
        needed = None
    python = minor_in(software.python)
    by_driver = newest_for_driver(facts.get("driver", ""), on_windows)
    old = by_driver if by_driver in older_releases() else None
    wheel = observations.first("pip_wheel_not_supported")
    loaded = observations.value("cudnn_version_mismatch", "runtime")
    before = likely[0].version if likely and compiled else ""
    # Where it is not known which cuDNN was loaded, the release before the reader's own is the best guess.
    there = conclusions.cudnn_version(loaded) if loaded else cudnn
    before = before if loaded else minor_in(release) or ""
    same = build.cuda if build and not loaded else ""
    fitting = newest_for_cudnn(there, python, before, same) if before or loaded else None
    used = build or (newest_with(software.cuda, python=python) if software.cuda else None)
    version = f"=={release}" if len(leading_numbers(release)) > 2 else f"~={used.minor}.0" if used else ""
    requirements = {
        "tensorflow_minor": minor_in(release) or "",
        "cuda_needed": build.cuda if build else "",
        "cuda_major": major(built),
        "cudnn_needed": cudnn,
        "cudnn_major": major(cudnn),
        "builds": "" if build else libraries_by_release(python, on_windows, among=likely),
        "releases_for_cuda": libraries_by_release(python, on_windows, cuda=software.cuda or "none"),
        "drivers": "" if needed else libraries_by_release(python, on_windows, driver=True),
        "driver_needed": str(needed or ""),
        "gpu_package": f"{used.package}{version}" if used and used.package != "tensorflow" else "",
        "pin_for_cudnn": f"{fitting.package}~={fitting.minor}.0" if fitting else "",
        "release_for_driver": f"{old.minor} (CUDA {old.cuda}, cuDNN {old.cudnn})" if old else "",
        "driver_branch": major(facts.get("driver", "")),
        "cuda_for_gpu": first_toolkit_for(gpu_capability),
        "program": observations.value("program_pins_release", "program") or "",
        "pinned": observations.value("cuda_version_pinned", "pinned") or "",
        "wanted_minor": observations.value("releases_wanted", "minor") or "",
        "wheel_python": "{major}.{minor}".format_map(wheel.values)
        if wheel and "major" in wheel.values
        else "",
        **_own_release(observations, release),
        "capability": gpu_capability,
        "release_for_gpu": conclusions.newest_release_for(gpu_capability, windows=system == WINDOWS) or "",
        "system": LINUX if system == WSL2 else system,
    }
    # The extra asks for NVIDIA's wheels of CUDA, which exist only for Linux.
    extra = {"extra": "[and-cuda]" if system in ("", LINUX, WSL2) else ""}
    return extra | {name: value for name, value in requirements.items() if value}


def _own_release(observations: Observations, release: str) -> dict[str, str]:
    """Return how to install the release that was asked for, with a Python that it has wheels for.

    Empty if it has one for the reader's Python, or can't use the reader's GPU.
    """
    asked = observations.value("pip_no_matching_distribution", "version") or release
    build = release_of_any_age(asked)
    host, python = read_host(observations), minor_in(read_software(observations).python)
    if build is None or python in build.pythons or why_not(host, build.pythons[-1], asked):
        return {}
    return {
        "own_requirement": requirement(build),
        "own_pythons": ", ".join(build.pythons),
        "own_python": build.pythons[-1],
    }


def _harmless(observations: Observations) -> tuple[Harmless, ...]:
    explanations: dict[str, str] = {}
    for one in observations:
        if one.harmless is not None:
            explanations.setdefault(one.kind, one.harmless)
    if observations.has(CPU_WANTED) and not observations.has("import_needs_driver"):
        without_gpu = table("without_gpu")
        missed = (kind for kind in without_gpu["kinds"] if observations.has(kind))
        explanations |= dict.fromkeys(missed, without_gpu["says"])
    return tuple(
        Harmless(kind, explanation, observations.evidence(observations.of(kind))[:_HARMLESS])
        for kind, explanation in explanations.items()
    )
