"""Tell the values that describe the failing state from those that a sentence mentions in passing."""

from __future__ import annotations

import re

#: Ends the part of a sentence that says something about a value.
_BREAK = re.compile(r"[.;!?](?=\s|$)|,? \b(?:but|however|whereas|while)\b", re.IGNORECASE)
#: Words that say that something does not work. They are about the failing state.
_DENIED = re.compile(
    r"(?:\bnot|n['\u2019]?t|\bnever|\bno longer|\bstop(?:s|ped)?|\bwithout|\bhardly)\s+(?:\w+\s+){0,5}?"
    r"(?:work\w*|used? to|support\w*|compatible)|\bnvidia-smi(?: \w+)? works?\b",
    re.IGNORECASE,
)
#: Words before a value that is a requirement, or is from another state or machine than the failing one.
_BEFORE = re.compile(
    r"\b(?:works?|worked|working)\b(?: \w+){0,5} ?(?:on|with|in|for|under|using|at|until|before)\b"
    r"|\b(?:used to (?:work|run|use|have)|ran fine|runs fine|is fine|was fine)\b"
    r"|\b(?:previously|formerly|earlier I|in the past|back in|up to(?! date)|until)\b"
    r"|\b(?:downgrad|revert|roll)\w*(?: [\w.]+){0,3} (?:to|back)\b"
    r"|\b(?:upgrad|updat|switch|mov|migrat|chang)\w*(?: \w+){0,3} from\b"
    r"|\b(?:also|even) (?:tried|tested|happens|happened|fails|failed|occurs|seen|reproduced)\b"
    r"|\btried (?:downgrad|to downgrad|other|older|different|several|many)\w*"
    r"|\b(?:the )?same (?:\w+ ){0,4}(?:with|on|in|for|under|as)\b"
    r"|\b(?:instead of|rather than|as opposed to|unlike|compared (?:to|with)|other than|not only)\b"
    r"|\b(?:requires?|required|needs?|needed|expects?|wants?|supports?|supported|recommends?|recommended)\b"
    r"|\b(?:compatible with|introduced in|fixed in|removed in|dropped in|deprecated in|available in)\b"
    r"|\b(?:at least|minimum|older than|newer than|later than|earlier than|prior to|lower than|higher than)\b"
    r"|\b(?:such as|e\.g\.|for example|tutorial for|guide for|instructions for|docs? (?:for|of))",
    re.IGNORECASE,
)
#: Words after such a value.
_AFTER = re.compile(
    r"^[\w.)*`\"'-]*,? *(?:(?:it|this|that|everything|all|which) )?"
    r"(?:(?:always|just|still) )?(?:works?\b|worked\b|working\b|runs fine|ran fine|(?:is|was|were|runs?|ran) "
    r"(?:fine|ok|okay|good|working|required|needed|recommended|supported)\b|used to work)"
    r"|^[\w.)*`\"'-]* (?:or|and) (?:later|newer|higher|above|up|older|lower|earlier|below)\b",
    re.IGNORECASE,
)
#: An upgrade names two states, and the second one is what fails.
_FROM_TO = re.compile(r"^(?!.*\bdowngrad).*\bfrom \S+(?: \S+){0,3} to\b", re.IGNORECASE)
#: Characters on each side of a value that are looked at.
_REACH = 100


def is_in_passing(line: str, value: str) -> bool:
    """Return whether a sentence mentions a value only in passing: as a version that worked, another one that
    was tried, or one that is required."""
    place = line.find(value)
    if place < 0:
        return False
    before = line[max(0, place - _REACH) : place]
    after = line[place + len(value) : place + len(value) + _REACH]
    breaks = [match.end() for match in _BREAK.finditer(before)]
    before = _DENIED.sub(" ", before[breaks[-1] if breaks else 0 :])
    end = _BREAK.search(after)
    after = after[: end.start() if end else len(after)]
    return _BEFORE.search(_FROM_TO.sub(" ", before)) is not None or _AFTER.search(after) is not None
