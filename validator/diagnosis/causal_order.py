"""Decide which causes are the answer, and in which order they have to be fixed."""

from __future__ import annotations

import functools
import itertools
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

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


@dataclass(frozen=True)
class _ShownSign:
    """A sign and the observations that make it true. strength: that of the sign, or lower."""

    sign: Sign
    observations: Sequence[Observation]
    strength: str

    @property
    def judged(self) -> bool:
        """True if a combination of facts that can't work makes it true."""
        return any(map(is_judged, self.observations))

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
    def evidence(self) -> list[Observation]:
        """The lines and fields that show it."""
        observations = itertools.chain(*(shown.observations for shown in self.signs))
        return [observation for observation in observations if observation.text or observation.where]

    @property
    def only_said(self) -> bool:
        """True if only the words of a person show it."""
        return bool(self.evidence) and all(observation.kind == SAID for observation in self.evidence)

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
        return other.entry.code in self.entry.explains and _doubt(self.strength) <= _doubt(other.strength)

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
        other.entry.code: cause.entry.code for cause in shown for other in shown if cause.explains(other)
    }
    roots = [cause for cause in shown if cause.entry.code not in explained_by]
    most = _MOST if all(root.only_said for root in roots) else None
    return tuple(
        _cause(root, _consequences(root.entry.code, explained_by), observations, facts, reader)
        for root in sorted(roots, key=_order)[:most]
    )


def _order(shown: _ShownCause) -> tuple[int, int, int, int]:
    """Return the place of a cause: the surest first, then along the causal chain.

    If only a person's words show the causes, the one that they mention first comes first: it is usually in
    the title.
    """
    doubt = _doubt(shown.strength)
    if not shown.only_said:
        return doubt, 0, 0, shown.position
    general = all(observation.values.get("general") for observation in shown.evidence)
    digits = [re.search(r"\d+", observation.where) for observation in shown.evidence]
    first = min(int(match[0]) if match else sys.maxsize for match in digits)
    return doubt, 2 if general else 1, first, shown.position


def _shown_causes(find: Find[Observation]) -> Sequence[_ShownCause]:
    symptom = language().parse(_SYMPTOM).holds(find)
    shown = []
    for position, entry in enumerate(causes()):
        if entry.ruled_out_by.holds(find):
            continue
        signs = []
        for sign in entry.signs:
            result = sign.when.evaluate(find)
            if result.truth:
                strength = _strength(sign, result.evidence, symptom)
                signs.append(_ShownSign(sign, result.evidence, strength))
        # Guesses count only where there is nothing better.
        signs = [sign for sign in signs if sign.strength != POSSIBLE] or signs
        if signs:
            by_doubt = sorted(signs, key=lambda sign: _doubt(sign.strength))
            shown.append(_ShownCause(entry, position, by_doubt))
    return [cause for cause in shown if cause.strength != POSSIBLE] or shown


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
) -> Cause:
    entry, reasons = shown.entry, shown.reasons
    title, values = shown.title(facts)
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
