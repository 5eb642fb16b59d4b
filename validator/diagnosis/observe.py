"""Read pasted text, and a probe's report, into observations.

The fields and the problems of a report are read by `data/report.yaml`, and its logs like any text.
"""

from __future__ import annotations

import functools
import re
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from .. import problems
from ..conditions import Comparison, Language
from ..model.diagnosis import shortened
from ..versions import DriverRelease
from . import commands
from .catalogue import (
    COMMAND,
    FAULT,
    PLAIN_QUESTION,
    SAID,
    UNRECOGNIZED,
    WORDS,
    Catalogue,
    Message,
    completed,
    section,
)
from .observations import (
    DISTRIBUTIONS,
    KEPT,
    NEGATED,
    SENTENCE,
    WIDTH,
    Certainty,
    Content,
    Observation,
    Observations,
    is_in_passing,
    normalized,
    package,
    works_with,
)
from .text import Block, Line, Pasted, answers, continued, evenly_spaced, read_text, table_rows, unwrapped

if TYPE_CHECKING:
    from ..model.report import CheckResult, Finding, Report

#: Distinct lines whose meaning is remembered, so that a line that comes a million times is matched once.
_REMEMBERED = 50_000
#: Lines before the end of a process that may say why it ended. Empty lines don't count.
_BEFORE_END = 3
#: The value of messages that report the end of a process.
_ENDS = "ends"
#: Kinds with only one value at a time. If several were read, the last one before the first fault counts.
_ONE_VALUE = frozenset(
    {"tensorflow", "package", "package_installed", "python", "cuda", "cudnn", "driver", "driver_cuda"}
)
#: Kinds of lines that show a fault, although their words don't report one.
_SYMPTOMS = frozenset({"gpu_list_empty", "empty_list", "cudart_not_opened", "gpu_libraries_not_opened"})
#: The time before TensorFlow's lines and, after the letter of the severity, before Abseil's.
_STAMP = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}: |[IWEF]\d{4} \d\d:\d\d:\d+\.\d+ ")
#: Text that occurs only in lines that a program printed, never in a person's own words.
_PROGRAM = re.compile(
    r"\.(?:cc|cpp|go):|Warning: |^\s*(?:\[?\d{4}-\d\d-\d\d[ T]\d\d:|[IWEF]\d{4} |INFO\b|File \"|https?://\S*$"
    r"|\"[\w.$-]+\": )"
)
#: A field whose value denies its name, and the kinds that its name alone would show.
_DENIED_FIELD = re.compile(
    r"[\w /.-]{1,40}[\"']?\s*[:=]\s*[\"']?(?:false|none|null|n/a|no(?=[\"']?\s*(?:[,;)}\]]|$)))",
    re.IGNORECASE,
)
_PLACES = ("wsl", "container", "os", "machine", "jetson", "hosted_notebook", "vgpu", "rocm")
#: The example in the label of a form, such as "OS (e.g., Linux Ubuntu 16.04): ".
_PLACEHOLDER = re.compile(r" ?\(e\.g\.[^()]*\)(?=\W{0,4}:)")
#: A line of a traceback that names a file. The next line is code, which shows no symptom.
_FRAME = re.compile(r'\s*File "[^"]*", line \d+')
#: A question in which somebody supposes a cause.
_SUPPOSITION = re.compile(
    r"\b(?:(?:is|was) (?:it|this|that|there|the|my)|(?:could|might|may|can) (?:it|this|that) be|maybe|perhaps"
    r"|(?:do|does|should|must|(?<!how )can) (?:i|we|it))\b(?:[^?.!\n]|\.\d){0,120}\?",
    re.IGNORECASE,
)
#: The part of a sentence in which somebody says what the problem is not, or was only thought to be, what
#: others write, what a queue has, or asks whether a thing can happen.
_EXCLUDED = re.compile(
    r"(?:\bnot|n['\u2019]t\b)(?: \w+){0,3}? (?:like|about|due to|because of|caused by|related to|a matter of"
    r"|(?:an?|the|any) (?:problem|issue|question|fault|matter)(?: (?:of|with|in))?)\b[^?.!,;\n]{0,120}"
    r"|\b(?:(?:first|initial) (?:thought|guess|idea|suspicion|assumption) (?:was|is)"
    r"|(?:at )?(?:first|initially),? (?:I|we) (?:thought|suspected|assumed|believed)"
    r"|(?:I|we) (?:at )?(?:first|initially) (?:thought|suspected|assumed|believed))\b[^?.!;\n]{0,120}? but\b"
    r"|(?:\bnot|n['\u2019]t|\bnever)(?: (?:get|become|going|any|much|too|very|so|really)){0,2}"
    r" (?:slow(?:er)?|wrong|leak(?:ing)?)\b(?: at all\b)?"
    r"|\bno (?:wrong|incorrect) \w+|\b(?:no|without an?y?) (?:memory )?leaks?\b"
    r"|\bI (?:have )?read (?:somewhere )?that\b[^?.!,;\n]{0,60}\b(?:leaks?|nans?|slower|wrong \w+)\b"
    r"|\b(?:queue|partition|scheduler|quota|price list) (?:says?|shows?|has|reports?)"
    r" (?:\w+ )?(?:zero|0|no) (?:\w+ )?GPUs?\b[^?.!,;\n]{0,60}"
    r"|\b(?:zero|0|no) GPUs? (?:(?:are|is|free|available) ){0,2}(?:in|of) (?:the|our|this) "
    r"(?:queue|partition|pool)\b"
    r"|(?<![^.!?] )\b(?:does|do|can|could|will|would|may) (?!any|some|you|we)(?:\w[\w.]* ){1,3}?"
    r"(?:have|get|make|give|cause|become|leak)\b(?:[^?.!\n]|\.\w){0,60}?"
    r"\b(?:leaks?|nans?|slower|wrong \w+)\b"
    r"(?:[^?.!\n]|\.\w){0,80}\?"
    r"|\b(?:at night|overnight|at weekends?|after (?:the )?training)\b[^?.!,;\n]{0,20} do(?:es)? nothing\b"
    r"|\b(?:stops|ends|exits|quits|closes) (?:without|with no) (?:an |any )?errors?"
    r"(?:,? (?:so|and)? ?(?:all|everything) is \w+| (?:when|after|once) [^?.!,;\n]{0,30}\b(?:done|finished))"
    r"|\b(?:do|did)(?: not|n['\u2019]t) ask for [^?.!,;\n]{0,40}",
    re.IGNORECASE,
)
#: Kinds of what people say is wrong.
_SAID_FAULTS = (SAID, "hang_said")
#: A sentence that asks something.
_QUESTION = re.compile(r"(?:[^?.!\n]|[.!]\S)*\?")
#: The part of a sentence that says what somebody does not want, or has no trouble with.
_UNWANTED = re.compile(
    r"\b(?:and not|rather than|without having to|no (?:problem|issue|trouble)s? with)\b"
    r"(?:[^?.!,;\n]|\.\d){0,60}",
    re.IGNORECASE,
)
#: A sentence that says that something works. A negation or a fault in it reverses its meaning.
_FINE = re.compile(
    r"\b(?:works?|worked|runs?|ran|trains?|trained|is|are|was|were) (?:\w+ )?"
    r"(?:fine|ok|okay|all right|well|perfectly|normally"
    r"|without (?:an? |any )?(?:problem|issue|error|trouble)s?)\b",
    re.IGNORECASE,
)
#: The beginning of a line that a program logged.
_LOGGED = re.compile(r"[\s`>]*(?:\[?\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d|[IWEF]\d{4} |[IWEF] tensorflow/)")


def observe(pasted: Pasted, catalogue: Catalogue, source: str = "") -> Observations:
    """Return everything that the lines show.

    source: what to put before a line's number in the place of an observation (`logs.host_stderr, `).
    """
    reader = _Reader(catalogue, source, pasted)
    recent: deque[Block] = deque(maxlen=_BEFORE_END + 1)
    for block in pasted.blocks():
        recent.append(block)
        if catalogue.may_show_anything(block.data):
            for position, line in enumerate(block.lines):
                if reader.read(line):
                    reader.read_before_end(_lines_before(recent, position))
    paste = pasted.paste_lines()
    for joined in (continued, answers, table_rows, evenly_spaced, unwrapped):
        for text, parts in joined(paste):
            reader.read_together(text, parts)
    for shown, line in commands.read_manifests(paste):
        reader.read_file(shown, line)
    observations = reader.finish()
    empty = observations.first("empty_list")
    if empty is not None and sum(bool(line.text.strip()) for line in paste) == 1:
        # Somebody asked for the GPUs, and copied only the answer.
        observations.conclude("gpu_list_empty", {}, empty)
    return observations


@dataclass(frozen=True)
class _Meaning:
    """The observations in a line, wherever it is in the text.

    counted: what counts in any case. unrecognized: what counts only if the line shows nothing else, not even
    together with its neighbours. explaining: the kinds that explain the line. shows_fault: something is wrong
    there.
    """

    counted: tuple[Observation, ...]
    unrecognized: tuple[Observation, ...]
    explaining: frozenset[str]
    ends_process: bool
    shows_fault: bool


class _Reader:
    """Collect what the lines of one text show, separately and together.

    Two things are kept by the number of a line: the kinds that explain it, and what to report if nothing
    does.
    """

    def __init__(self, catalogue: Catalogue, source: str, pasted: Pasted) -> None:
        self._catalogue, self._source, self._pasted = catalogue, source, pasted
        self._titled: list[Observation] = []
        self._single: dict[str, list[tuple[int, Observation]]] = defaultdict(list)
        self._installed_releases: list[tuple[int, Observation]] = []
        self._first_fault = 0
        self._after_frame = False
        self._found = Observations()
        self._meanings: dict[str, _Meaning | None] = {}
        self._joined: set[tuple[str, int]] = set()
        self._explained: dict[int, set[str]] = defaultdict(set)
        self._unrecognized: list[tuple[int, Observation]] = []

    def read(self, line: Line) -> bool:
        """Add what a line shows by itself. Return whether it reports the end of a process."""
        meaning = self._meaning(line)
        is_code = self._after_frame
        self._after_frame = _FRAME.match(line.text) is not None
        if meaning is None:
            return False
        if meaning.shows_fault and not self._first_fault:
            self._first_fault = line.number
        for observation in meaning.counted:
            if not (is_code and observation.kind == SAID):
                self._add(observation, line.number)
        if meaning.explaining:
            self._explained[line.number] |= meaning.explaining
        self._unrecognized += [(line.number, observation) for observation in meaning.unrecognized]
        return meaning.ends_process

    def read_before_end(self, lines: Iterable[Line]) -> None:
        """Add lines that may say why a process ended."""
        for line in lines:
            observation = Observation(
                FAULT, {}, shortened(line.text.strip(), WIDTH), self._place(line.number)
            )
            self._unrecognized.append((line.number, observation))

    def read_together(self, text: str, parts: Sequence[Line]) -> None:
        """Add what lines show when they are joined to one text, unless one of them shows it by itself."""
        joined = (text, parts[0].number)
        observations = () if joined in self._joined else self._observations(*joined)
        self._joined.add(joined)
        if not observations:
            return
        explained = {kind for part in parts for kind in self._explained.get(part.number, ())}
        facts = {content for part in parts for content in self._facts(part)}
        # The CUDA version that nvidia-smi shows in one line is not a toolkit's in the joined lines either.
        facts |= {("cuda", values) for kind, values in facts if kind == "driver_cuda"}
        # In joined rows of a list of packages, a name may seem to have the version of another row.
        packages = {dict(values).get("name") for kind, values in facts if kind == "package"}
        for observation in observations:
            kind = observation.kind
            if kind in (UNRECOGNIZED, FAULT, SAID, *explained) or observation.content in facts:
                continue
            if kind == "package" and observation.values["name"] in packages:
                continue
            self._add(observation, parts[0].number)
            if kind not in self._catalogue.outside:
                for part in parts:
                    self._explained[part.number].add(kind)

    def read_file(self, shown: commands.Shown, line: Line) -> None:
        """Add what a file that was pasted shows, at the line where it begins."""
        values = MappingProxyType(dict(shown.values))
        self._add(
            Observation(shown.kind, values, shortened(line.text.strip(), WIDTH), self._place(line.number)),
            line.number,
        )

    def _add(self, observation: Observation, number: int) -> None:
        by_person = observation.certainty is Certainty.STATED or observation.kind == "package"
        if by_person and observation.kind not in WORDS and self._pasted.has_title and number == 1:
            self._titled.append(observation)
            return
        self._found.add(observation)
        typed = observation.kind == "pip_install" and observation.certainty is Certainty.OBSERVED
        if typed and observation.values["name"] in DISTRIBUTIONS and observation.values.get("version"):
            self._installed_releases.append((number, observation))
        if observation.kind in _ONE_VALUE and observation.certainty is not Certainty.MENTIONED:
            # What has only one value at a time is a kind, or a kind with the name of a package.
            seen = self._single[f"{observation.kind} {normalized(observation.values.get('name', ''))}"]
            if len(seen) < KEPT:
                seen.append((number, observation))

    def finish(self) -> Observations:
        """Return everything that was found, with the lines that nothing explains."""
        for observation in self._titled:
            # A title names what the text is about. It counts where the text itself does not say more.
            better = _is_said_elsewhere(observation, self._found)
            self._found.add(replace(observation, certainty=Certainty.MENTIONED) if better else observation)
        for seen in self._single.values():
            self._found.prefer(_at_fault(seen, self._first_fault))
        self._prefer_installed_later()
        for number, observation in self._unrecognized:
            if number not in self._explained:
                self._found.add(observation)
        return self._found

    def _prefer_installed_later(self) -> None:
        """Let a release that a typed command installs count before one that a person states above it, if the
        first fault comes after both."""
        stated = self._single.get("tensorflow ")
        installed = [(number, one) for number, one in self._installed_releases if number < self._first_fault]
        if not stated or not installed:
            return
        number, last = installed[-1]
        version = last.values["version"]
        replaced = (one.values["version"] != version for _, one in stated)
        if all(replaced) and all(one.certainty is Certainty.STATED and line < number for line, one in stated):
            values = MappingProxyType({"version": version})
            in_use = replace(last, kind="tensorflow", values=values, certainty=Certainty.STATED)
            self._found.add(in_use)
            self._found.prefer(in_use)

    def _facts(self, line: Line) -> Iterable[Content]:
        """Return the facts that a line states by itself."""
        meaning = self._meaning(line)
        counted = meaning.counted if meaning else ()
        return (observation.content for observation in counted if observation.kind in self._catalogue.outside)

    def _meaning(self, line: Line) -> _Meaning | None:
        words = _without_stamp(line.text)
        if words in self._meanings:
            return self._meanings[words]
        observations = self._observations(line.text, line.number)
        meaning = None
        if observations:
            kinds = {observation.kind for observation in observations}
            explaining = kinds - {UNRECOGNIZED, *self._catalogue.outside}
            unrecognized = (UNRECOGNIZED,) if explaining else (UNRECOGNIZED, FAULT)
            meaning = _Meaning(
                tuple(observation for observation in observations if observation.kind not in unrecognized),
                tuple(observation for observation in observations if observation.kind in unrecognized),
                frozenset(explaining),
                ends_process=any(_ENDS in observation.values for observation in observations),
                shows_fault=not kinds.isdisjoint((UNRECOGNIZED, FAULT, *_SYMPTOMS)),
            )
        # The meaning of a question in a title is not remembered: it counts for more there than elsewhere.
        if len(self._meanings) < _REMEMBERED and (line.number != 1 or "?" not in words):
            self._meanings[words] = meaning
        return meaning

    def _observations(self, text: str, number: int) -> Sequence[Observation]:
        where, shown = self._place(number), shortened(text.strip(), WIDTH)
        text = _PLACEHOLDER.sub("", text)
        messages = self._catalogue.matches(text)
        if messages and _PROGRAM.search(text):
            messages = [one for one in messages if one.kind not in WORDS and not one.kind.endswith("_said")]
        if any(message.kind in _PLACES for message in messages) and _DENIED_FIELD.search(text):
            kept = self._catalogue.matches(_DENIED_FIELD.sub(" ", text))
            messages = [one for one in messages if one.kind not in _PLACES or one in kept]
        if any(message.kind in _SAID_FAULTS for message in messages):
            # What somebody does not want, or says to be fine, is no evidence for a fault. A question whether
            # something is the cause is none either, except in a title.
            stated = _complaints(text)
            stated = _SUPPOSITION.sub(" ", stated) if number != 1 else stated
            kept = messages if stated == text else self._catalogue.matches(stated)
            messages = [one for one in messages if one.kind not in _SAID_FAULTS or one in kept]
        told = any(one.certainty is Certainty.STATED for one in messages)
        if told and _EXCLUDED.search(text) and not _LOGGED.match(text):
            questions = [one for one in messages if one.kind == PLAIN_QUESTION]
            asserted = [*self._catalogue.matches(_EXCLUDED.sub(" ", text)), *questions]
            messages = [one for one in messages if one.certainty is not Certainty.STATED or one in asserted]
        if not messages:
            return ()
        # What stands next to a question is no part of it.
        asks = "?" in text and any(message.kind == PLAIN_QUESTION for message in messages)
        apart = self._catalogue.matches(_QUESTION.sub(" ", text)) if asks else []
        observations = [
            Observation(
                message.kind,
                completed(message.kind, values),
                shown,
                where,
                message.harmless,
                # Whoever asks what a GPU needs has it, or will have it.
                Certainty.STATED
                if asks and message.kind == "gpu" and message not in apart
                else _certainty(message, values, shown),
                apart=message in apart,
            )
            for message in messages
            if message.kind != COMMAND
            for values in self._catalogue.values(message, text)
            if message.kind != "driver" or DriverRelease.or_none(values["version"])
        ]
        if any(message.kind == COMMAND for message in messages):
            observations += (
                Observation(
                    one.kind, MappingProxyType(dict(one.values)), shown, where, None, _of_command(one, text)
                )
                for one in commands.read_commands(text)
            )
        shows = {one.kind for one in observations}
        if {"driver_cuda", "cuda"} <= shows:
            # nvidia-smi shows the newest CUDA that the driver supports. It says nothing of a toolkit.
            observations = [one for one in observations if one.kind != "cuda"]
        # Several messages of one kind may say the same about a line; it counts once.
        return list({observation.key: observation for observation in observations}.values())

    def _place(self, number: int) -> str:
        return self._source + self._pasted.place(number)


def _complaints(text: str) -> str:
    """Return a text without what somebody says to be fine or does not want."""
    for sentence in SENTENCE.split(text):
        if _FINE.search(sentence) and not NEGATED.search(sentence):
            text = text.replace(sentence, " ")
    return _UNWANTED.sub(" ", text)


def _certainty(message: Message, values: Mapping[str, str], line: str) -> Certainty:
    """Return how certain a line is. A person may be describing a state other than the failing one."""
    if message.certainty is not Certainty.STATED or _LOGGED.match(line):
        return Certainty.OBSERVED
    in_passing = any(is_in_passing(line, value) for value in values.values())
    return Certainty.MENTIONED if in_passing else Certainty.STATED


def _of_command(shown: commands.Shown, line: str) -> Certainty:
    if shown.typed:
        return Certainty.OBSERVED
    return Certainty.MENTIONED if is_in_passing(line, shown.text) else Certainty.STATED


def _is_said_elsewhere(titled: Observation, observations: Observations) -> bool:
    """Return whether the text below a title gives the fact that the title gives."""
    if titled.kind != "package":
        return observations.has(titled.kind)
    name = normalized(titled.values["name"])
    return package(observations, name) is not None or (
        name == "tensorflow" and observations.has("tensorflow")
    )


def _at_fault(seen: Sequence[tuple[int, Observation]], first_fault: int) -> Observation:
    """Return the last value before the first fault, or else the first value. What a program printed takes
    precedence over what a person states, and that over what a person says of a state that works."""
    failing = [
        (number, one)
        for number, one in seen
        if not any(works_with(one.text, value) for value in one.values.values())
    ]
    printed = [place for place in seen if place[1].certainty is Certainty.OBSERVED] or failing or seen
    before = [observation for number, observation in printed if number <= first_fault]
    return before[-1] if before else printed[0][1]


def _without_stamp(text: str) -> str:
    """Return a line without its time, so that the same words at another time are equal. The letter of the
    severity stays."""
    stamp = _STAMP.match(text)
    return text[0] + text[stamp.end() :] if stamp else text


def _lines_before(blocks: Sequence[Block], position: int) -> list[Line]:
    """Return the last nonempty lines before a position in the last block, from the last prompt on."""
    *earlier, last = blocks
    lines = [*(line for block in earlier for line in block.lines), *last.lines[:position]]
    shown = [line for line in lines if line.text.strip()]
    prompt = max((position for position, line in enumerate(shown) if line.asks), default=-1)
    return shown[prompt + 1 :][-_BEFORE_END:]


#: The text of an absent value. Only a pattern that is exactly this text matches it.
_NULL = "null"
#: What the probe writes around a check and around what it provokes (`section` in validator/probe/child.py).
_MARK = re.compile(r"\[probe (begin|end): (check|provoked by) (\S+)\]$")
_PROVOKED = re.compile(
    r"triggered tf\.function retracing|unsupported operations .*\bPyFunc\b"
    r"|tf2xla conversion failed while converting __inference_one_step_on_data_\d+\["
)
#: The main value of a problem in conditions.
_CODE = "code"


@dataclass(frozen=True)
class FieldRow:
    """A field of the report that shows something.

    path: names joined by dots; `*` is every entry of a list or every key.
    pattern: for the whole text of the field (`null`, `true`, a number, a string); named groups are values.
    key: the name of the value that holds the key that the last `*` stands for.
    """

    kind: str
    path: tuple[str, ...]
    pattern: str
    values: Mapping[str, str]
    key: str


@dataclass(frozen=True)
class ProblemRow:
    """Problems of a check that show something.

    when: a condition on one problem: the kind is its check, the values are its fields, its code and the
    outcome of the check. fields: name of the value -> name of the field.
    """

    kind: str
    when: Comparison
    values: Mapping[str, str]
    fields: Mapping[str, str]

    def matches(self, problem: _Problem) -> bool:
        """Return whether a problem matches. A statement matches only a condition with a code."""
        if problem.check.id != self.when.kind or (problem.is_statement and _CODE not in self.when.values):
            return False
        fields = {name: _text(value) for name, value in problem.finding.entry.items()}
        outcome = problem.check.outcome.value
        return bool(self.when.accepts({**fields, _CODE: problem.finding.code, "outcome": outcome}))


@dataclass(frozen=True)
class _Problem:
    """A problem or a statement of a check. where: its place in the report."""

    check: CheckResult
    finding: Finding
    where: str
    is_statement: bool = False


def observe_report(report: Report, catalogue: Catalogue) -> Observations:
    """Return everything that the report shows."""
    observations = Observations()
    for row in field_rows():
        for value, where in _places(report.raw, row.path):
            observation = _of_field(row, value, where)
            if observation is not None:
                observations.add(observation)
    reported = [problem for check in report.checks for problem in _problems_of(check)]
    for problem_row in problem_rows():
        for problem in reported:
            if problem_row.matches(problem):
                observations.add(_of_problem(problem_row, problem))
    for where, text in _printed(report, reported):
        for observation in observe(read_text(text), catalogue, where):
            # Lines that no pattern recognizes are left out, because the check itself reports what went wrong.
            if observation.kind not in (UNRECOGNIZED, FAULT):
                observations.add(observation)
    for check in report.checks:
        outcome = check.outcome.value
        if check.went_wrong:
            kind, text, values = "check_not_passed", f"{outcome}: {check.sentence}", {"outcome": outcome}
        elif outcome == "pass":
            kind, text, values = "check_passed", check.sentence, {}
        else:
            continue
        shown = shortened(f"{check.id}: {text}", WIDTH)
        values = {"check": check.id, **values}
        observations.add(Observation(kind, MappingProxyType(values), shown, f"checks.{check.id}"))
    return observations


def _problems_of(check: CheckResult) -> Iterator[_Problem]:
    """Yield the statement of a check, and its problems."""
    if check.statement is not None:
        yield _Problem(check, check.statement, f"checks.{check.id}.statement", is_statement=True)
    for number, finding in enumerate(check.problems):
        yield _Problem(check, finding, f"checks.{check.id}.problems[{number}]")


def _printed(report: Report, reported: Sequence[_Problem]) -> Iterator[tuple[str, str]]:
    """Yield the output of other software with its place: the logs, and what failed checks caught of it."""
    printed = {
        "logs.host_stderr, ": without_provoked(report.logs.host_stderr or ""),
        "logs.tensorflow_stderr, ": without_provoked(report.logs.tensorflow_stderr or ""),
    }
    for check in report.checks:
        if check.went_wrong:
            quoted = [text for problem in reported if problem.check is check for text in _quoted(problem)]
            printed[f"checks.{check.id}, "] = "\n".join([*quoted, *check.evidence.printed])
    yield from ((where, text) for where, text in printed.items() if text.strip())


def _quoted(problem: _Problem) -> Iterator[str]:
    """Yield the fields of a problem that hold text that other software printed or raised."""
    kind = problems.CATALOGUE.get(problem.finding.code)
    for name, type_ in (kind.fields if kind else {}).items():
        value = problem.finding.entry.get(name)
        if type_.rstrip("?") == "quoted" and isinstance(value, str):
            yield value


def without_provoked(log: str) -> str:
    """Return the log of a probe without the lines that its checks provoked; those left keep their numbers.

    Three things count as provoked: the lines between the probe's two marks; the warning about retracing,
    because each function is traced in every mode; and, up to probe 2.2, which wrote no marks, XLA's refusal
    of a step that calls Python, which tells the probe that XLA compiles at all. A check may print such marks
    itself, or die before the second one. So a section counts only if it is complete, and names the check
    around it.
    """
    lines = log.split("\n")
    check: str | None = None
    begun: tuple[int, str] | None = None
    provoked: set[int] = set()
    for number, line in enumerate(lines):
        mark = _MARK.search(line)
        if mark is None:
            continue
        edge, kind, name = mark.groups()
        if kind == "check":
            check, begun = name if edge == "begin" else None, None
        elif edge == "begin":
            begun = (number, name) if check in (None, name) else None
        else:
            if begun is not None and begun[1] == name:
                provoked.update(range(begun[0] + 1, number))
            begun = None
    return "\n".join(
        "" if number in provoked or _PROVOKED.search(line) else _MARK.sub("", line)
        for number, line in enumerate(lines)
    )


@functools.cache
def field_rows() -> tuple[FieldRow, ...]:
    """Return the rows that are about fields."""
    return tuple(
        FieldRow(
            kind=row["kind"],
            path=tuple(row["field"].split(".")),
            pattern=row["pattern"],
            values=row.get("values", {}),
            key=row.get("key", ""),
        )
        for row in section("report")
        if "field" in row
    )


@functools.cache
def problem_rows() -> tuple[ProblemRow, ...]:
    """Return the rows that are about problems of checks."""
    language = Language(default_main=_CODE)
    return tuple(
        ProblemRow(
            kind=row["kind"],
            when=language.comparison(row["when"], row["kind"]),
            values=row.get("values", {}),
            fields=row.get("fields", {}),
        )
        for row in section("report")
        if "when" in row
    )


def _of_problem(row: ProblemRow, problem: _Problem) -> Observation:
    entry = {**problem.finding.entry, _CODE: problem.finding.code}
    fields = {
        "problem": problem.finding.code,
        # A statement has no severity.
        "severity": entry.get("severity") or None,
        "sentence": problems.clause(entry) or None,
        **{name: entry.get(field) for name, field in row.fields.items()},
    }
    values = {name: _text(value) for name, value in fields.items() if value is not None}
    shown = shortened(problems.sentence(entry), WIDTH)
    return Observation(row.kind, MappingProxyType({**values, **row.values}), shown, problem.where)


def _of_field(row: FieldRow, value: Any, where: str) -> Observation | None:
    if value is None and row.pattern != _NULL:
        return None
    text = _text(value)
    match = re.fullmatch(row.pattern, text, re.DOTALL | re.ASCII)
    if match is None:
        return None
    groups = {name: group for name, group in match.groupdict().items() if group is not None}
    if row.key:
        groups[row.key] = where.rpartition(".")[2]
    shown = completed(row.kind, MappingProxyType({**row.values, **groups}))
    return Observation(row.kind, shown, shortened(text, WIDTH), where)


def _places(document: Any, path: tuple[str, ...], where: str = "") -> Iterator[tuple[Any, str]]:
    """Yield each value at a path, and its place."""
    if not path:
        yield document, where
        return
    name, rest = path[0], path[1:]
    if isinstance(document, dict):
        for key in [key for key in document if name in ("*", key)]:
            yield from _places(document[key], rest, f"{where}.{key}".lstrip("."))
    elif isinstance(document, list) and name == "*":
        for number, entry in enumerate(document):
            yield from _places(entry, rest, f"{where}[{number}]")


def _text(value: Any) -> str:
    if value is None:
        return _NULL
    if isinstance(value, bool):
        return str(value).lower()
    # Python reads bytes that are not text in a path or a variable as surrogates, which can't be encoded.
    return str(value).encode(errors="backslashreplace").decode()
