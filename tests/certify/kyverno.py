"""Evaluate the conditions of a Kyverno policy about the predicate of an attestation, as Kyverno 1.13 does.

Sources, under the licence Apache-2.0, in https://github.com/kyverno/kyverno: `pkg/engine/variables/vars.go`
for variables, `pkg/engine/variables/operator/` for operators, `pkg/engine/jmespath/` for functions. Only what
the exported policies use is here; everything else is an error, so that a policy can't pass by being misread.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import jmespath
from jmespath.exceptions import JMESPathError

_VARIABLE = re.compile(r"\{\{[^{}]*\}\}")
_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)")
_DURATION = re.compile(r"(?P<number>\d+)(?P<unit>[smh])")
_SECONDS = {"s": 1, "m": 60, "h": 3600}


class Unresolved(Exception):
    """A condition that can't be evaluated. Kyverno blocks the image then."""


def holds(conditions: Sequence[Mapping[str, Any]], predicate: Mapping[str, Any]) -> bool:
    """Return True if the conditions of an attestation hold: each has a key `all`, `any`, or both."""
    try:
        return all(_block(block, predicate) for block in conditions)
    except (Unresolved, JMESPathError):
        return False


def _block(block: Mapping[str, Any], predicate: Mapping[str, Any]) -> bool:
    if not block.keys() <= {"all", "any"}:
        raise AssertionError(f"Kyverno does not know {sorted(block)}")
    every = [_one(condition, predicate) for condition in block.get("all", ())]
    some = [_one(condition, predicate) for condition in block.get("any", ())]
    return all(every) and (any(some) or "any" not in block)


def _one(condition: Mapping[str, Any], predicate: Mapping[str, Any]) -> bool:
    key, value = (_resolved(condition[name], predicate) for name in ("key", "value"))
    return bool(_OPERATORS[condition["operator"]](key, value))


def _resolved(written: object, predicate: Mapping[str, Any]) -> Any:
    """Replace the variables. One that is the whole text keeps its type, and has to have a value."""
    if isinstance(written, list):
        return [_resolved(one, predicate) for one in written]
    if not isinstance(written, str):
        return written
    variables = _VARIABLE.findall(written)
    for variable in variables:
        found = jmespath.search(variable[2:-2].strip(), dict(predicate), options=_OPTIONS)
        if found is None:
            raise Unresolved(f"{variable} has no value")
        if not isinstance(found, str):
            if variable != written:
                raise Unresolved(f"{variable} is not text, but only a part of one")
            return found
        written = written.replace(variable, found)
    return written


def _equals(key: object, value: object) -> bool:
    if isinstance(key, bool):
        return isinstance(value, bool) and key == value
    if isinstance(key, int | float):
        return isinstance(value, int | float) and not isinstance(value, bool) and key == value
    raise AssertionError(f"the evaluation of Equals with {key!r} is not written down here")


def _greater(key: object, value: object) -> bool:
    if isinstance(key, bool) or not isinstance(key, int | float) or not isinstance(value, int | float):
        raise AssertionError(f"the evaluation of GreaterThan with {key!r} is not written down here")
    return key > value


def _matches(one: str, other: str) -> bool:
    """Return True if one of two texts is a pattern with `*` or `?` that matches the other."""

    def pattern(text: str) -> str:
        return "".join({"*": ".*", "?": "."}.get(character, re.escape(character)) for character in text)

    return bool(re.fullmatch(pattern(one), other) or re.fullmatch(pattern(other), one))


def _all_in(key: object, value: object) -> bool:
    if not isinstance(key, list) or not isinstance(value, list):
        return False
    return all(any(_matches(str(one), str(other)) for other in value) for one in key)


def _any_in(key: object, value: object) -> bool:
    if not isinstance(value, list):
        return False
    keys = key if isinstance(key, list) else [key]
    return any(_matches(str(one), str(other)) for one in keys for other in value)


_OPERATORS = {"Equals": _equals, "GreaterThan": _greater, "AllIn": _all_in, "AnyIn": _any_in}


def _time(text: str) -> datetime:
    if not _RFC_3339.fullmatch(text):
        raise Unresolved(f"{text} is not a time of RFC 3339")
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def _written(when: datetime) -> str:
    return when.replace(microsecond=0).isoformat().replace("+00:00", "Z")


class _Functions(jmespath.functions.Functions):  # type: ignore[misc]
    """The functions that Kyverno adds to JMESPath."""

    @jmespath.functions.signature({"types": ["string"]}, {"types": ["string"]})  # type: ignore[untyped-decorator]
    def _func_regex_match(self, pattern: str, value: str) -> bool:
        return re.search(pattern, value) is not None

    @jmespath.functions.signature({"types": ["string"]}, {"types": ["string"]})  # type: ignore[untyped-decorator]
    def _func_time_after(self, one: str, other: str) -> bool:
        return _time(one) > _time(other)

    @jmespath.functions.signature({"types": ["string"]}, {"types": ["string"]})  # type: ignore[untyped-decorator]
    def _func_time_add(self, text: str, duration: str) -> str:
        match = _DURATION.fullmatch(duration)
        if match is None:
            raise Unresolved(f"{duration} is not a duration")
        seconds = int(match["number"]) * _SECONDS[match["unit"]]
        return _written(_time(text) + timedelta(seconds=seconds))

    @jmespath.functions.signature()  # type: ignore[untyped-decorator]
    def _func_time_now_utc(self) -> str:
        return _written(datetime.now(timezone.utc))


_OPTIONS = jmespath.Options(custom_functions=_Functions())
