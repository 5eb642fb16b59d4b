"""Rate vulnerabilities: as their database does, or by the base score of CVSS 3
(https://www.first.org/cvss/v3.1/specification-document, 7 and 8.2).
"""

from __future__ import annotations

from enum import IntEnum

from .osv import Affected, Entry


class Rating(IntEnum):
    """The severity of a vulnerability. UNKNOWN: no database says."""

    UNKNOWN = 0
    LOW = 1
    MEDIUM = 2
    HIGH = 3
    CRITICAL = 4

    @property
    def text(self) -> str:
        return self.name.lower()


#: The words of GitHub's and Debian's databases.
_WORDS = {
    "low": Rating.LOW, "moderate": Rating.MEDIUM, "medium": Rating.MEDIUM,
    "high": Rating.HIGH, "critical": Rating.CRITICAL, "unimportant": Rating.LOW,
}  # fmt: skip
_ATTACK = {"N": 0.85, "A": 0.62, "L": 0.55, "P": 0.2}
_COMPLEXITY = {"L": 0.77, "H": 0.44}
_PRIVILEGES = {"N": 0.85, "L": 0.62, "H": 0.27}
#: Where the scope changes.
_PRIVILEGES_CHANGED = {"N": 0.85, "L": 0.68, "H": 0.5}
_INTERACTION = {"N": 0.85, "R": 0.62}
_IMPACT = {"H": 0.56, "L": 0.22, "N": 0.0}


def rating(entry: Entry, affected: Affected) -> Rating:
    """Return how severe a vulnerability is for an affected package."""
    for specific in (affected.database_specific, entry.database_specific, affected.ecosystem_specific):
        for word in (specific.severity, specific.urgency) if specific else ():
            if isinstance(word, str) and (found := _WORDS.get(word.lower().rstrip("*"))):
                return found
    scores = [
        base_score(one.score) for one in (*(affected.severity or ()), *(entry.severity or ()))
        if one.type == "CVSS_V3"
    ]  # fmt: skip
    return max((_of_score(score) for score in scores if score is not None), default=Rating.UNKNOWN)


def base_score(vector: str) -> float | None:
    """Return the base score of a vector such as `CVSS:3.1/AV:N/AC:L/…`, or None if it is not one."""
    version, *parts = vector.split("/")
    metrics = dict(part.partition(":")[::2] for part in parts)
    if version not in ("CVSS:3.0", "CVSS:3.1") or metrics.get("S") not in ("U", "C"):
        return None
    changed = metrics["S"] == "C"
    try:
        confidentiality, integrity, availability = (_IMPACT[metrics[name]] for name in "CIA")
        privileges = (_PRIVILEGES_CHANGED if changed else _PRIVILEGES)[metrics["PR"]]
        exploitability = (
            8.22
            * _ATTACK[metrics["AV"]]
            * _COMPLEXITY[metrics["AC"]]
            * privileges
            * _INTERACTION[metrics["UI"]]
        )
    except KeyError:
        return None
    base = 1 - (1 - confidentiality) * (1 - integrity) * (1 - availability)
    impact = 7.52 * (base - 0.029) - 3.25 * (base - 0.02) ** 15 if changed else 6.42 * base
    if impact <= 0:
        return 0.0
    score = (1.08 if changed else 1.0) * (impact + exploitability)
    return _rounded_up(min(score, 10.0))


def _rounded_up(score: float) -> float:
    """Return the smallest number with one decimal that is not less, as the specification computes it."""
    number = round(score * 100_000)
    return number / 100_000 if number % 10_000 == 0 else (number // 10_000 + 1) / 10


def _of_score(score: float) -> Rating:
    """Return the rating of a score (5 of the specification). A score of zero is the lowest rating."""
    bounds = ((9.0, Rating.CRITICAL), (7.0, Rating.HIGH), (4.0, Rating.MEDIUM))
    return next((found for bound, found in bounds if score >= bound), Rating.LOW)
