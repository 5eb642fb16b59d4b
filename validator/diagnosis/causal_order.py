"""Decide which causes are the answer, and in which order they have to be fixed."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Protocol, TypeVar

from ..conditions import Find
from ..model.diagnosis import Cause, FailingReason
from .causes import CERTAIN, LIKELY, POSSIBLE, STRENGTHS, CauseEntry, Sign, causes, language
from .combination import is_judged
from .lookup import finder
from .messages import SAID
from .observations import Observation, Observations
from .remedies import fitting_remedies
from .ways import Reader

#: Lines of evidence that are given for a cause.
_EVIDENCE = 12
#: The named condition that holds where the text shows that TensorFlow does not use the GPU.
_SYMPTOM = "gpu_not_used"


#: How many causes are named at most if only a person's words show them.
_MOST = 3


class _Sure(Protocol):
    @property
    def strength(self) -> str: ...


_Finding = TypeVar("_Finding", bound=_Sure)


@dataclass(frozen=True)
class _ShownSign:
    """A sign and the observations that make it true. strength: that of the sign, or lower."""

    sign: Sign
    observations: Sequence[Observation]
    strength: str

    @property
    def judged(self) -> bool:
        """True if a combination of facts that can't work makes it true."""
        return any(is_judged(one) for one in self.observations)

    def values(self, facts: Mapping[str, str]) -> Mapping[str, str]:
        """Return the facts and the observed values. The first observation that has a value decides."""
        values = dict(facts)
        for observation in reversed(self.observations):
            values.update(observation.values)
        return values


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
    def evidence(self) -> Iterator[Observation]:
        for shown in self.signs:
            yield from (one for one in shown.observations if one.text or one.where)

    @property
    def reasons(self) -> tuple[FailingReason, ...]:
        """The reasons of the combinations that show it, each once."""
        names = [field.name for field in fields(FailingReason)]
        found = [one.values for shown in self.signs for one in shown.observations if is_judged(one)]
        return tuple(
            dict.fromkeys(
                FailingReason(**{name: values[name] for name in names if name in values}) for values in found
            )
        )

    def explains(self, other: _ShownCause) -> bool:
        """Return whether the other cause is only a consequence of this one; never if the other is surer."""
        return other.entry.code in self.entry.explains and _doubt(self) <= _doubt(other)

    def title(self, facts: Mapping[str, str]) -> tuple[str, Mapping[str, str]]:
        """Return the title and the values for it.

        The title is that of the first sign whose values are all known, among the surest signs. If there is
        none, it is the title of the cause itself.
        """
        for shown in self.signs:
            if shown.strength != self.signs[0].strength:
                break
            values = shown.values(facts)
            try:
                return shown.sign.title.format_map(values) or self.entry.title, values
            except KeyError:
                continue
        return self.entry.title, self.signs[0].values(facts)


def causes_in_order(
    observations: Observations, facts: Mapping[str, str], reader: Reader
) -> tuple[Cause, ...]:
    """Return the causes in the order in which they have to be fixed: surer ones first, then along the chain.

    A consequence is named with its cause instead of separately. A cause that is only possible is named only
    if there is none better.

    facts: values for titles and remedies. reader: who gets them.
    """
    shown = _shown_causes(functools.cache(finder(observations, facts)))
    explained_by = {
        other.entry.code: one.entry.code for one in shown for other in shown if one.explains(other)
    }
    roots = [one for one in shown if one.entry.code not in explained_by]
    return tuple(
        _cause(root, _consequences(root.entry.code, explained_by), observations, facts, reader)
        for root in sorted(roots, key=_order)[: _MOST if all(map(_only_said, roots)) else None]
    )


def _order(shown: _ShownCause) -> tuple[int, int, int, int]:
    """Return the place of a cause: the surest first, then along the causal chain.

    If only a person's words show the causes, the one that they mention first comes first: it is usually in
    the title.
    """
    if not _only_said(shown):
        return _doubt(shown), 0, 0, shown.position
    general = all(one.values.get("general") for one in shown.evidence)
    return _doubt(shown), 2 if general else 1, min(map(_line, shown.evidence)), shown.position


def _only_said(shown: _ShownCause) -> bool:
    evidence = list(shown.evidence)
    return bool(evidence) and all(one.kind == SAID for one in evidence)


def _line(observation: Observation) -> int:
    digits = re.search(r"\d+", observation.where)
    return int(digits[0]) if digits else sys.maxsize


def _shown_causes(find: Find[Observation]) -> Sequence[_ShownCause]:
    symptom = language().parse(_SYMPTOM).holds(find)
    shown = []
    for position, entry in enumerate(causes()):
        if entry.ruled_out_by.holds(find):
            continue
        results = [(sign, sign.when.evaluate(find)) for sign in entry.signs]
        signs = _without_guesses(
            [
                _ShownSign(sign, found.evidence, _strength(sign, found.evidence, symptom))
                for sign, found in results
                if found.truth
            ]
        )
        if signs:
            shown.append(_ShownCause(entry, position, sorted(signs, key=_doubt)))
    return _without_guesses(shown)


def _strength(sign: Sign, evidence: Sequence[Observation], symptom: bool) -> str:
    """Return how sure a sign is: without a symptom, facts that can't work together show at most `likely`.

    These facts may come from a machine or environment other than the failing one, or may not matter there.
    """
    by_facts = any(is_judged(one) for one in evidence)
    return LIKELY if sign.strength == CERTAIN and by_facts and not symptom else sign.strength


def _without_guesses(findings: Sequence[_Finding]) -> Sequence[_Finding]:
    """Return the findings that are more than possible, or all of them where there are none."""
    return [one for one in findings if one.strength != POSSIBLE] or findings


def _doubt(finding: _Sure) -> int:
    return STRENGTHS.index(finding.strength)


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
) -> Cause:
    entry = shown.entry
    title, values = shown.title(facts)
    reasons = shown.reasons
    return Cause(
        code=entry.code,
        strength=shown.strength,
        title=title,
        means=entry.means,
        evidence=observations.evidence(shown.evidence)[:_EVIDENCE],
        remedies=fitting_remedies(entry, values, observations, reader),
        sources=tuple(dict.fromkeys((*entry.sources, *(reason.source for reason in reasons)))),
        explains=explains,
        reasons=reasons,
    )
