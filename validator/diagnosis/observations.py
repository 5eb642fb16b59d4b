"""Collect what was observed, in one vocabulary for pasted text and for reports: a kind with values, and a
place."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from types import MappingProxyType

from ..model.diagnosis import Evidence, shortened
from ..versions import leading_numbers

#: Observations of one kind that are kept. A log may repeat a message a million times with different values.
KEPT = 200
#: Characters of a line that are kept as evidence.
WIDTH = 400


class Certainty(str, Enum):
    """The certainty of a fact, most certain first.

    OBSERVED: a program printed it. STATED: a person says so. MENTIONED: it comes up in passing and does not
    describe the failing state, as in "it worked on 2.15".
    """

    OBSERVED = "observed"
    STATED = "stated"
    MENTIONED = "mentioned"


_ORDER = {certainty: position for position, certainty in enumerate(Certainty)}

#: A kind and its values.
Content = tuple[str, tuple[tuple[str, str], ...]]
Key = tuple[Content, bytes, Certainty]
_NUMBERS = b"0123456789.:"


@dataclass(frozen=True)
class Observation:
    """One thing that was observed.

    kind: in snake_case; never a cause. values: what the message says about it, as text.
    text: the line. where: its number, or the report's field. harmless: why it may be ignored, if it may.
    apart: the line asks a question, and shows this without it too.
    """

    kind: str
    values: Mapping[str, str]
    text: str = ""
    where: str = ""
    harmless: str | None = None
    certainty: Certainty = Certainty.OBSERVED
    apart: bool = False

    @property
    def content(self) -> Content:
        """The kind and the values."""
        return self.kind, tuple(sorted(self.values.items()))

    @cached_property
    def key(self) -> Key:
        """The key of observations that count as the same: they have the same content and certainty, and
        their lines differ only in numbers, such as those of time stamps."""
        # Bytes are translated in a sixth of the time that text takes.
        return self.content, self.text.encode(errors="replace").translate(None, _NUMBERS), self.certainty


@dataclass
class _Counted:
    observation: Observation
    count: int


@dataclass
class Observations:
    """Everything that was observed, in order. The same thing again is only counted.

    Only what was observed or stated is judged. What was only mentioned is kept apart: `mentioned` and
    iteration give it, the other methods don't.
    """

    _kinds: dict[str, dict[Key, _Counted]] = field(default_factory=dict)
    #: Kinds of which it is not known whether they would have been observed.
    undecided: set[str] = field(default_factory=set)

    def add(self, observation: Observation, times: int = 1) -> None:
        """Add an observation that was made `times` times."""
        of_kind = self._kinds.get(observation.kind)
        if of_kind is None:
            of_kind = self._kinds[observation.kind] = {}
        counted = of_kind.get(observation.key)
        if counted is not None:
            counted.count += times
        elif len(of_kind) < KEPT:
            of_kind[observation.key] = _Counted(observation, times)

    def conclude(self, kind: str, values: Mapping[str, str], *bases: Observation) -> None:
        """Add what follows from other observations, at the place of the first of them.

        It is as certain as the least certain of them.
        """
        text = " / ".join(dict.fromkeys(base.text for base in bases if base.text))
        where = bases[0].where if bases else ""
        certainty = max(
            (base.certainty for base in bases), key=_ORDER.__getitem__, default=Certainty.OBSERVED
        )
        self.add(
            Observation(
                kind, MappingProxyType(dict(values)), shortened(text, WIDTH), where, certainty=certainty
            )
        )

    def prefer(self, observation: Observation) -> None:
        """Put an observation that describes the failing state before the others of its kind."""
        of_kind = self._kinds.get(observation.kind, {})
        if observation.key in of_kind:
            self._kinds[observation.kind] = {observation.key: of_kind[observation.key], **of_kind}

    def of(self, kind: str) -> tuple[Observation, ...]:
        """Return all observations of a kind that are judged: what a program printed comes before what a
        person states, and of several values the one of the failing state comes first."""
        if kind not in self._kinds:
            return ()
        judged = (one for one in self._all(kind) if one.certainty is not Certainty.MENTIONED)
        return tuple(sorted(judged, key=lambda one: _ORDER[one.certainty]))

    def mentioned(self, kind: str) -> tuple[Observation, ...]:
        """Return the observations of a kind that were only mentioned in passing."""
        return tuple(one for one in self._all(kind) if one.certainty is Certainty.MENTIONED)

    def _all(self, kind: str) -> Iterator[Observation]:
        return (counted.observation for counted in self._kinds.get(kind, {}).values())

    def first(self, kind: str) -> Observation | None:
        """Return the most certain observation of a kind."""
        return next(iter(self.of(kind)), None)

    def value(self, kind: str, name: str) -> str | None:
        """Return a value from the most certain observation of a kind that has it."""
        return next((one.values[name] for one in self.of(kind) if name in one.values), None)

    def with_value(self, kind: str, name: str, value: str) -> Observation | None:
        """Return the first observation of a kind that has exactly this value."""
        return next((one for one in self.of(kind) if one.values.get(name) == value), None)

    def has(self, kind: str) -> bool:
        """Return whether there is an observation of a kind that is judged."""
        return any(one.certainty is not Certainty.MENTIONED for one in self._all(kind))

    def __iter__(self) -> Iterator[Observation]:
        for of_kind in self._kinds.values():
            yield from (counted.observation for counted in of_kind.values())

    def evidence(self, observations: Iterable[Observation]) -> tuple[Evidence, ...]:
        """Return observations as evidence with their counts: each line once, however many things it shows.

        A command is left out if another piece of evidence shows it together with its output.
        """
        evidence: dict[tuple[str, str], Evidence] = {}
        for one in observations:
            text = shortened(one.text, WIDTH)
            if (one.where, text) not in evidence:
                counted = self._kinds.get(one.kind, {}).get(one.key)
                evidence[one.where, text] = Evidence(text, one.where, counted.count if counted else 1)
        texts: dict[str, list[str]] = defaultdict(list)
        for where, text in evidence:
            texts[where].append(text)
        return tuple(
            one
            for one in evidence.values()
            if not any(text.startswith((f"{one.text}: ", f"{one.text} / ")) for text in texts[one.where])
        )


#: Distributions that install the package `tensorflow`.
DISTRIBUTIONS = (
    "tensorflow",
    "tensorflow-gpu",
    "tensorflow-cpu",
    "tensorflow-intel",
    "tf-nightly",
    "tf-nightly-cpu",
)


def tensorflow(observations: Observations) -> Observation | None:
    """Return the observation of the release in use: its version, the installed package, or else the one that
    was asked for. What a program printed counts before what a person states."""
    candidates = [one for one in observations.of("tensorflow") if one.values.get("version")]
    installed = observations.of("package_installed")
    candidates += [one for one in installed if normalized(one.values["name"]) in DISTRIBUTIONS][:1]
    candidates += [one for name in DISTRIBUTIONS if (one := package(observations, name)) is not None]
    asked = (one for kind in ("pip_install", "conda_install") for one in observations.of(kind))
    pinned = [one for one in asked if one.values["name"] in DISTRIBUTIONS and one.values.get("version")]
    failing = [one for one in pinned if not works_with(one.text, one.values["version"])] or pinned
    return min(candidates, key=lambda one: _ORDER[one.certainty], default=None) or next(iter(failing), None)


def release(observations: Observations) -> tuple[str, Observation] | None:
    """Return the version of the release in use and its observation; None if no number is known."""
    in_use = tensorflow(observations)
    version = in_use.values["version"] if in_use is not None else ""
    return (version, in_use) if in_use is not None and leading_numbers(version) else None


def package(observations: Observations, name: str) -> Observation | None:
    """Return the installed package of a normalized name."""
    return next((one for one in observations.of("package") if normalized(one.values["name"]) == name), None)


def normalized(name: str) -> str:
    """Return a package's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def on_windows(observations: Observations) -> Observation | None:
    """Return what shows native Windows. WSL2 rules it out, unless the text sets the two apart."""
    if (native := observations.with_value("os", "apart", "wsl")) is not None:
        return native
    if observations.has("wsl") or observations.has("container"):
        return None
    return observations.with_value("os", "name", "windows")


# Tell the values that describe the failing state from those that a sentence mentions in passing.


#: Ends the part of a sentence that says something about a value.
_BREAK = re.compile(
    r"[.;!?](?=\s|$)|,? \b(?:but|however|whereas|while)\b"
    r"|(?<!usly)(?<!past)(?<!rlier), (?:my (?!gpu)|(?:our|i|we) )",
    re.IGNORECASE,
)
#: Words that say that something does not work, or what somebody works with. They are about the failing state.
_DENIED = re.compile(
    r"(?:\bnot|n['\u2019]?t|\bnever|\bno longer|\bstop(?:s|ped)?|\bwithout|\bhardly)\s+(?:\w+\s+){0,5}?"
    r"(?:work\w*|used? to|support\w*|compatible)|\bnvidia-smi(?: \w+)? works?\b"
    r"|^\W*(?:does|do|will|can|is|are) (?:[\w.-]+ ){0,4}?support(?:ed)?\b"
    r"|\b(?:I|we)(?: am|['\u2019]m| are|['\u2019]re)? work(?:ing)? (?:with|in|on|under)\b",
    re.IGNORECASE,
)
#: Words before a value that is a requirement, or is from another state or machine than the failing one.
_BEFORE = re.compile(
    r"\b(?:works?|worked|working)\b(?: \w+){0,5} ?(?:on|with|in|for|under|using|at|until|before)\b"
    r"|\b(?:used to (?:work|run|use|have)|ran fine|runs fine|is fine|was fine)\b"
    r"|\b(?:previously|formerly|earlier I|in the past|back in|up to(?! date)|until)\b"
    r"|\b(?:downgrad|revert|roll)\w*(?: [\w.]+){0,3} (?:to|back)\b"
    r"|\b(?:upgrad|updat|switch|mov|migrat|chang|going|gone|went|jump)\w*(?: \w+){0,3} from\b"
    r"|\b(?:also|even) (?:tried|tested|happens|happened|fails|failed|occurs|seen|reproduced)\b"
    r"|\btried (?:downgrad|to downgrad|other|older|different|several|many)\w*"
    r"|\b(?:the )?same (?:\w+ ){0,4}(?:with|on|in|for|under|as)\b"
    r"|\b(?:instead of|rather than|as opposed to|unlike|compared (?:to|with)|other than|not only)\b"
    r"|\b(?:look|search|ask)(?:s|ed|ing)? for\b"
    r"|\b(?:requires?|required|needs?|needed|expects?|wants?(?! to\b)|supports?|supported"
    r"|recommends?|recommended)\b"
    r"(?! (?:about |over |up to )?\d+(?:\.\d+)? ?(?:s|min|h|sec|hour|day|week)\w*\b)"
    r"|\b(?:(?:can(?:no|['\u2019])t|could(?:n['\u2019]| no)t|unable to) (?:reproduce|get|see) (?:it|th\w+)"
    r"|(?:does|did)(?:n['\u2019]| no)t (?:happen|occur|appear)|never (?:happens|happened|occurs))"
    r"(?: \w+){0,2} (?:on|in|with|under|using)\b|\bnor (?:on|in|with|under)\b"
    r"|\b(?:compatible with|introduced in|fixed in|removed in|dropped in|deprecated in|available in)\b"
    r"|\b(?:at least|minimum|older than|newer than|later than|earlier than|prior to|lower than|higher than)\b"
    r"|\bthe (?:one|build|package|archive) for\b"
    r"|\b(?:such as|e\.g\.|for (?:example|instance)|(?:(?:tutorial|guide|instructions) for|docs? (?:for|of))"
    r"\b[^(]*$)",
    re.IGNORECASE,
)
#: Words before a value with which somebody asks how to make it work, so that it does not work yet.
_ASKED = re.compile(
    r"(?:\b(?:any|some)(?:one|body)|n['\u2019]t|\bnot|\bunable to|\btry(?:ing)? to|\bhow (?:to|do I|can I))"
    r" (?:\w+ ){0,3}?(?:got|get|getting|gotten|bring|make)\b",
    re.IGNORECASE,
)
#: Words after such a value.
_AFTER = re.compile(
    r"^[\w.)*`\"'-]*,? *(?:(?:it|this|that|everything|all|which|it['\u2019]s been|it has been"
    r"|the (?:loss|results?|training|model|same(?: \w+){0,2}?)) )?"
    r"(?:(?:always|just|still) )?(?:work(?:s|ed|ing)?\b|fine\b|(?:is|was|were|runs?|ran) "
    r"(?:fine|ok|okay|good|(?:much |far )?faster|working|required|needed|recommended|supported)\b"
    r"|used to work)|^(?: \w+){1,6} without (?:this|that|(?:the |any )?(?:errors?|problems?))(?:[,.;]|$)"
    r"|^[\w.)*`\"'-]*,? (?:the|this|my) (?:very )?(?:same|identical) \w+(?: \w+)? "
    r"(?:trains|trained|runs|ran|works|worked|learns|converges)\b"
    r"|^[\w.)*`\"'-]*,? (?:the |my )?GPU (?:has no (?:problem|issue|trouble)"
    r"|(?:is|was) (?:found|visible|detected|seen|used)\b)"
    r"|^,? (?:I|we) (?:can(?:no|['\u2019])t|could(?:n['\u2019]| no)t) (?:reproduce|get|see) (?:it|this|that)"
    r"(?:[,.;]|$| (?:nor|either|at all)\b)"
    r"|^[\w.)*`\"'-]*,? (?:at (?:the )?(?:very )?most|as a maximum|is the (?:maximum|newest|highest))\b"
    r"|^[\w.)*`\"'-]* (?:or|and) (?:later|newer|higher|above|up|older|lower|earlier|below)\b",
    re.IGNORECASE,
)
#: An upgrade names two states, and the second one is what fails.
_FROM_TO = re.compile(r"^(?!.*\bdowngrad).*\bfrom \S+(?: \S+){0,3} to\b", re.IGNORECASE)
#: Characters on each side of a value that are looked at.
_REACH = 100


#: Words that say that something works. A negation in the same sentence reverses their meaning.
_WORKS = re.compile(
    r"\b(?:(?:GPUs?|cards?) (?:is|are|was|were|gets?|got) used\b"
    r"|without (?:any? )?(?:complaints?|problems?|issues?|trouble)"
    r"|uses? (?:(?:the|my|both|all|its) )?(?:GPUs?|cards?|it|them|\w+ GPUs?)\b"
    r"|(?:works?|worked|runs?|ran|trains?|trained) (?:on (?:the |my )?(?:GPU|card) )?"
    r"(?:\w+ )?(?:fine|well|there|perfectly|normally|okay)\b"
    r"|(?:it|that|this|everything|all|which|one|same|GPU|card|env\w*)\b(?: \w+)? (?:works?|worked)\b"
    r"|does \w+ fine\b|funciona\w*|funktioniert|fonctionne|работает|可以用|正常|動きました|됩니다)",
    re.IGNORECASE,
)
NEGATED = re.compile(
    r"\b(?:not|never|nothing|no longer|neither|only|until|n[ãa]o|nicht|pas|fail\w*|crash\w*|errors?|slow\w*"
    r"|hang\w*|how|whether|why|which|then|torch|pytorch|at \d+ ?%|for an? (?:step|second|minute))\b"
    r"|n['\u2019]t\b|\?|不|не |报错|失败",
    re.IGNORECASE,
)
SENTENCE = re.compile(
    r"[.;!?](?=\s|$)|[\u3002\uff01\uff1f\uff1b\uff0c]"
    r"|,? \b(?:but|however|whereas|while|aber|mas|pero|mais)\b",
    re.IGNORECASE,
)


def works_with(line: str, value: str) -> bool:
    """Return whether a sentence that names a value says that something works."""
    for place in re.finditer(rf"(?<![\d.]){re.escape(value)}(?![\d.]*\d)", line):
        before = SENTENCE.split(line[: place.start()])[-1]
        sentence = before + SENTENCE.split(line[place.start() :])[0]
        if _WORKS.search(sentence) is not None and not NEGATED.search(sentence):
            return True
    return False


def is_in_passing(line: str, value: str) -> bool:
    """Return whether a sentence mentions a value only in passing: as a version that worked, another one that
    was tried, or one that is required."""
    place = line.lower().find(value.lower())
    if place < 0:
        return False
    before = line[max(0, place - _REACH) : place]
    after = line[place + len(value) : place + len(value) + _REACH]
    breaks = [match.end() for match in _BREAK.finditer(before)]
    before = _DENIED.sub(" ", before[breaks[-1] if breaks else 0 :])
    end = _BREAK.search(after)
    after = after[: end.start() if end else len(after)]
    if _BEFORE.search(_FROM_TO.sub(" ", before)) is not None:
        return True
    return _AFTER.search(after) is not None and _ASKED.search(before) is None
