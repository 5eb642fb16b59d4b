"""Find what conditions ask about: observations, and the facts of the environment that follow from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from ..compat import known_issues
from ..conditions import Find
from .observations import Observation, Observations, tensorflow

#: The facts of the environment, each with the name of its main value. If a fact is not known, a condition on
#: it is unknown, not false.
FACTS = {
    "tensorflow": "version",
    "python": "version",
    "keras": "version",
    "cuda": "version",
    "cudnn": "version",
    "driver": "version",
    "driver_cuda": "version",
    "gpu": "name",
    "capability": "value",
    "system": "name",
}
#: The facts for which one value is chosen or concluded from all observations.
_CHOSEN = ("tensorflow", "capability", "system")


def finder(observations: Observations, values: Mapping[str, str]) -> Find[Observation]:
    """Return a function that finds observations by kind, and facts that were concluded where there is none.

    values: the facts of the environment by name.
    """

    def find(kind: str) -> Sequence[Observation] | None:
        found = observations.of(kind)
        if kind in observations.undecided:
            return None
        return found if found or kind not in FACTS else _fact(kind, observations, values)

    return find


def chosen_finder(observations: Observations, values: Mapping[str, str]) -> Find[Observation]:
    """Return a function like that of `finder`, for which only chosen values count, not all observed ones.

    Facts of compat are decided from these values too.
    """
    find = finder(observations, values)
    chosen = {name: values[name] for name in _CHOSEN if values.get(name)}

    def find_chosen(kind: str) -> Sequence[Observation] | None:
        if kind in _CHOSEN:
            return _fact(kind, observations, values)
        fact = known_issues.by_kind().get(kind)
        if fact is None:
            return find(kind)
        holds = fact.holds(chosen)
        if holds is None:
            return None
        return (Observation(kind, MappingProxyType({"holds": "yes"})),) if holds else ()

    return find_chosen


def _fact(kind: str, observations: Observations, values: Mapping[str, str]) -> Sequence[Observation] | None:
    value = values.get(kind)
    if not value:
        return None
    base = tensorflow(observations) if kind == "tensorflow" else None
    text, where = (base.text, base.where) if base is not None else ("", "")
    return (Observation(kind, MappingProxyType({FACTS[kind]: value}), text, where),)
