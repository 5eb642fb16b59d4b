"""Which of the causes that show are the answer: the first of a causal chain, and its order."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ..model.diagnosis import Cause
from .causes import POSSIBLE, STRENGTHS, CauseEntry, Signature, causes
from .observations import Observation, Observations, evidence_of
from .remedies import fitting

#: Lines of evidence given for a cause.
_EVIDENCE = 12


@dataclass(frozen=True)
class _Shown:
    """A cause with the signatures that show it best, in their order, and everything that does."""

    entry: CauseEntry
    signatures: tuple[Signature, ...]
    seen: tuple[Observation, ...]
    position: int

    @property
    def strength(self) -> str:
        return self.signatures[0].strength

    @property
    def doubt(self) -> int:
        return STRENGTHS.index(self.strength)


def rank(
    observations: Observations, facts: Mapping[str, str], ways: Sequence[Collection[str]]
) -> tuple[Cause, ...]:
    """The causes in the order to mend them: the surer first, then as they follow from one another.

    A cause that another one explains, and no surer than it, is a consequence: it is named with that one and
    not by itself. What is only possible is named where nothing better is. ways: of installing, in
    groups, the fitting first.
    """
    shown = [entry for entry in _shown(observations) if entry is not None]
    if any(entry.strength != POSSIBLE for entry in shown):
        shown = [entry for entry in shown if entry.strength != POSSIBLE]
    consequences = {
        other.entry.code: entry.entry.code
        for entry in shown
        for other in shown
        if other.entry.code in entry.entry.explains and entry.doubt <= other.doubt
    }
    roots = [entry for entry in shown if entry.entry.code not in consequences]
    roots.sort(key=lambda entry: (entry.doubt, entry.position))
    explained = {
        root.entry.code: tuple(code for code in consequences if _root(code, consequences) == root.entry.code)
        for root in roots
    }
    return tuple(_cause(root, explained[root.entry.code], observations, facts, ways) for root in roots)


def _root(code: str, consequences: Mapping[str, str]) -> str:
    while code in consequences:
        code = consequences[code]
    return code


def _shown(observations: Observations) -> list[_Shown]:
    found = []
    for position, entry in enumerate(causes()):
        if any(sign.matches(observations) for sign in entry.ruled_out_by):
            continue
        matched = [(signature, signature.matches(observations)) for signature in entry.signatures]
        matched = [(signature, seen) for signature, seen in matched if seen]
        if matched:
            matched.sort(key=lambda pair: STRENGTHS.index(pair[0].strength))
            # What is only possible proves nothing beside what is more.
            if matched[0][0].strength != POSSIBLE:
                matched = [pair for pair in matched if pair[0].strength != POSSIBLE]
            seen = tuple(observation for _, part in matched for observation in part)
            best = tuple(pair[0] for pair in matched if pair[0].strength == matched[0][0].strength)
            found.append(_Shown(entry, best, seen, position))
    return found


def _cause(
    shown: _Shown,
    explains: tuple[str, ...],
    observations: Observations,
    facts: Mapping[str, str],
    ways: Sequence[Collection[str]],
) -> Cause:
    entry = shown.entry
    title, values = _titled(shown, observations, facts)
    return Cause(
        code=entry.code,
        strength=shown.strength,
        title=title,
        means=entry.means,
        evidence=evidence_of(observations, shown.seen)[:_EVIDENCE],
        remedies=fitting(entry, values, observations, ways),
        sources=entry.sources,
        explains=explains,
    )


def _titled(
    shown: _Shown, observations: Observations, facts: Mapping[str, str]
) -> tuple[str, Mapping[str, str]]:
    """The title of the first signature all of whose values are known, and what is known there."""
    for signature in shown.signatures:
        values = _values(signature, observations, facts)
        title = _filled(signature.title, values)
        if title or not signature.title:
            return title or shown.entry.title, values
    return shown.entry.title, _values(shown.signatures[0], observations, facts)


def _values(signature: Signature, observations: Observations, facts: Mapping[str, str]) -> Mapping[str, str]:
    values = dict(facts)
    for seen in reversed(signature.matches(observations)):
        values.update(seen.values)
    return values


def _filled(template: str, values: Mapping[str, str]) -> str:
    """The template with its values, or nothing where one of them is not known."""
    try:
        return template.format_map(values)
    except KeyError:
        return ""
