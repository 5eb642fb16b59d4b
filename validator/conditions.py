"""The language of conditions over facts: it is parsed and evaluated here, and nowhere else.

A condition is a value as YAML or JSON gives it:

    wsl                                         this kind was observed, or the condition of this name holds
    {tensorflow: ">=2.14,<2.16"}                the main value of this kind is in the range
    {system: [linux, wsl2]}                     the main value of this kind is one of these texts
    {fact: KB-NUMPY2}                           this fact of `compat` holds; several in a list: one of them
    {docker_run: {gpus: "no", image: nginx}}    one observation of this kind has all of these values
    {all: [...], any: [...], none: [...]}       conditions; the parts of one mapping must all hold

A text that starts with `<`, `>`, `=` or `!` is a range of versions. Any other text must match exactly.

The answer is True, False or None, which stands for *unknown*. A comparison with a fact that is not known is
unknown; an observation that was not made is False. `all`, `any` and `none` follow Kleene's logic.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from .versions import Comparer, Range, driver_comparer, leading_numbers, release_comparer

_COMBINATIONS = ("all", "any", "none")
#: The first characters of a range of versions.
_OPERATORS = ("<", ">", "=", "!")
#: Kinds whose versions are not compared as releases.
_COMPARERS: Mapping[str, Callable[[str], Comparer]] = {"driver": driver_comparer}


class ConditionError(ValueError):
    """A condition that can't be read. The message says where it is and what is wrong with it."""


class Valued(Protocol):
    """An observation or a fact: values by name, as text."""

    @property
    def values(self) -> Mapping[str, str]: ...


@dataclass(frozen=True)
class Value:
    """A plain observation or fact."""

    values: Mapping[str, str]


V = TypeVar("V", bound=Valued)
#: Returns everything of a kind, or None for a fact that is not known.
Find = Callable[[str], Sequence[V] | None]


@dataclass(frozen=True)
class Result(Generic[V]):
    """The truth of a condition, None if it is not known, and what makes it true."""

    truth: bool | None
    evidence: tuple[V, ...] = ()


# A diagnosis evaluates thousands of conditions, most of which are false.
_FALSE: Result[Any] = Result(False)
_UNKNOWN: Result[Any] = Result(None)


class Condition:
    """A parsed condition."""

    def evaluate(self, find: Find[V]) -> Result[V]:
        """Return whether the condition holds, and the evidence."""
        raise NotImplementedError

    def comparisons(self) -> Iterator[Comparison]:
        """Yield every comparison in it, named conditions included."""
        raise NotImplementedError

    def holds(self, find: Find[Any]) -> bool:
        return self.evaluate(find).truth is True

    def may_hold(self, find: Find[Any]) -> bool:
        """Return True unless the condition is false, or is unknown and asks for one exact version."""
        truth = self.evaluate(find).truth
        return truth is True or (truth is None and not any(one.is_exact for one in self.comparisons()))


@dataclass(frozen=True)
class Wanted:
    """The wanted value: in a range, accepted by a test, or exactly the text, which is as it was written."""

    text: str
    range: Range | None = None
    test: Callable[[str], bool] | None = None

    def accepts(self, found: str | None) -> bool | None:
        """Return whether a value is the wanted one, or None if it can't be compared with the range."""
        if self.test is not None:
            return found is not None and self.test(found)
        if self.range is None:
            return found == self.text
        if not found or not leading_numbers(found):
            return None
        try:
            return self.range.contains(found)
        except ValueError:
            # Text such as 2.18.0-3-g85c: the numbers decide.
            return self.range.contains(".".join(map(str, leading_numbers(found))))


@dataclass(frozen=True)
class Comparison(Condition):
    """A condition that is true if an observation or fact of a kind has a wanted value for each name."""

    kind: str
    values: Mapping[str, tuple[Wanted, ...]] = field(hash=False)

    @property
    def is_exact(self) -> bool:
        """True if one of the ranges is a single version (`==2.16.1`)."""
        return any(
            one.range is not None and one.range.is_exact for wanted in self.values.values() for one in wanted
        )

    def accepts(self, values: Mapping[str, str]) -> bool | None:
        """Return whether the values of one observation are as wanted."""
        answers = [
            _any(one.accepts(values.get(name)) for one in wanted) for name, wanted in self.values.items()
        ]
        if False in answers:
            return False
        return None if None in answers else True

    def evaluate(self, find: Find[V]) -> Result[V]:
        found = find(self.kind)
        if found is None:
            return _UNKNOWN if self.values else _FALSE
        if not found:
            return _FALSE
        answers = [(one, self.accepts(one.values)) for one in found]
        truth = _any(answer for _, answer in answers)
        return Result(truth, tuple(one for one, answer in answers if answer))

    def comparisons(self) -> Iterator[Comparison]:
        yield self


@dataclass(frozen=True)
class _FactHolds(Comparison):
    """A condition that is true if a fact holds. condition: that of the fact."""

    condition: Condition

    @property
    def is_exact(self) -> bool:
        return any(one.is_exact for one in self.condition.comparisons())


@dataclass(frozen=True)
class Named(Condition):
    """A condition that is defined once and used by its name."""

    name: str
    condition: Condition

    def evaluate(self, find: Find[V]) -> Result[V]:
        return self.condition.evaluate(find)

    def comparisons(self) -> Iterator[Comparison]:
        return self.condition.comparisons()


@dataclass(frozen=True)
class _Several(Condition):
    conditions: tuple[Condition, ...]

    def comparisons(self) -> Iterator[Comparison]:
        for one in self.conditions:
            yield from one.comparisons()


class AllOf(_Several):
    """A condition that is true if all of its parts are true. Its evidence is that of all parts, in order."""

    def evaluate(self, find: Find[V]) -> Result[V]:
        results = []
        for one in self.conditions:
            result = one.evaluate(find)
            if result.truth is False:
                return _FALSE
            results.append(result)
        return Result(True, _evidence(results)) if all(one.truth for one in results) else _UNKNOWN


class AnyOf(_Several):
    """A condition that is true if any of its parts is true. Its evidence is that of the true parts."""

    def evaluate(self, find: Find[V]) -> Result[V]:
        results = [result for one in self.conditions if (result := one.evaluate(find)).truth is not False]
        if not results:
            return _FALSE
        return Result(_any(one.truth for one in results), _evidence(results))


class NoneOf(_Several):
    """A condition that is true if none of its parts is true. It has no evidence."""

    def evaluate(self, find: Find[V]) -> Result[V]:
        truth = _any(one.evaluate(find).truth for one in self.conditions)
        return Result(None if truth is None else not truth)


#: The key of conditions that ask `compat`, and the beginning of the kind of what holds.
FACT = "fact"


def fact_kind(identifier: str) -> str:
    """Return the kind that stands for a fact. Its presence is unknown if the fact can't be decided."""
    return f"{FACT}:{identifier}"


_CLASSES = {"all": AllOf, "any": AnyOf, "none": NoneOf}


@dataclass
class Language:
    """The kinds and the named conditions that conditions may use.

    main: kind -> name of its main value. default_main: that of all other kinds, if they have one.
    named: the named conditions, as they are written. kinds: all kinds; None if any name may be a kind.
    facts: the conditions of the facts that may be named; None if `fact` is a kind like any other.
    """

    main: Mapping[str, str] = field(default_factory=dict)
    named: Mapping[str, Any] = field(default_factory=dict)
    kinds: Collection[str] | None = None
    default_main: str | None = None
    facts: Mapping[str, Condition] | None = None
    _parsed: dict[str, Named | None] = field(default_factory=dict, init=False)

    def parse(self, written: Any, where: str = "condition") -> Condition:
        """Read a condition. where: its place, for errors. Raises ConditionError."""
        if isinstance(written, str):
            return self._name(written, where)
        if not isinstance(written, Mapping) or not written:
            raise ConditionError(f"{where}: expected a name or a mapping, not {written!r}")
        combinations = [name for name in _COMBINATIONS if name in written]
        if len(combinations) == len(written):
            parts = [_CLASSES[name](self._several(written[name], f"{where}.{name}")) for name in combinations]
            return parts[0] if len(parts) == 1 else AllOf(tuple(parts))
        if len(written) > 1:
            names = ", ".join(str(name) for name in written)
            raise ConditionError(f"{where}: one mapping has several kinds ({names}); put them under `all`")
        ((kind, values),) = written.items()
        if kind == FACT and self.facts is not None:
            return self._fact(values, f"{where}.{FACT}")
        return self._comparison(kind, values, where)

    def any_of(self, written: Sequence[Any], where: str = "conditions") -> AnyOf:
        """Read a list of conditions, of which one must hold. Raises ConditionError."""
        return AnyOf(self._several(written, where))

    def comparison(self, written: Any, where: str = "condition") -> Comparison:
        """Read a condition that is a single comparison. Raises ConditionError."""
        condition = self.parse(written, where)
        if not isinstance(condition, Comparison):
            raise ConditionError(f"{where}: expected a kind with its values, not {written!r}")
        return condition

    def _several(self, written: Any, where: str) -> tuple[Condition, ...]:
        if not isinstance(written, Sequence) or isinstance(written, str):
            raise ConditionError(f"{where}: expected a list of conditions, not {written!r}")
        return tuple(self.parse(one, f"{where}[{number}]") for number, one in enumerate(written))

    def _name(self, name: str, where: str) -> Condition:
        if name not in self.named:
            return self._comparison(name, {}, where)
        if name not in self._parsed:
            self._parsed[name] = None
            self._parsed[name] = Named(name, self.parse(self.named[name], f"conditions.{name}"))
        known = self._parsed[name]
        if known is None:
            raise ConditionError(f"{where}: the condition `{name}` refers to itself; remove the reference")
        return known

    def _fact(self, written: Any, where: str) -> Condition:
        found = []
        for one in written if isinstance(written, list | tuple) else [written]:
            if one not in (self.facts or {}):
                raise ConditionError(f"{where}: `{one}` is not a fact that compat can decide")
            found.append(_FactHolds(fact_kind(one), {"holds": (Wanted("yes"),)}, (self.facts or {})[one]))
        return found[0] if len(found) == 1 else AnyOf(tuple(found))

    def _comparison(self, kind: Any, written: Any, where: str) -> Comparison:
        if kind in self.named:
            raise ConditionError(f"{where}: `{kind}` is a named condition, which has no values")
        if not isinstance(kind, str) or (self.kinds is not None and kind not in self.kinds):
            raise ConditionError(f"{where}: `{kind}` is not a kind or a named condition")
        if not isinstance(written, Mapping):
            main = self.main.get(kind, self.default_main)
            if main is None:
                raise ConditionError(f"{where}: `{kind}` has no main value; write {kind}: {{name: value}}")
            written = {main: written}
        values = {name: _wanted(kind, value, f"{where}.{kind}.{name}") for name, value in written.items()}
        return Comparison(kind, values)


def _wanted(kind: str, written: Any, where: str) -> tuple[Wanted, ...]:
    texts = written if isinstance(written, list | tuple) else [written]
    for text in texts:
        if not isinstance(text, str):
            raise ConditionError(f"{where}: {text!r} is not text; put it in quotes")
    comparer = _COMPARERS.get(kind, release_comparer)
    try:
        return tuple(
            Wanted(text, Range.parse(text, comparer) if text.startswith(_OPERATORS) else None)
            for text in texts
        )
    except ValueError as error:
        raise ConditionError(f"{where}: {error}") from None


def _any(answers: Iterator[bool | None]) -> bool | None:
    unknown = False
    for answer in answers:
        if answer:
            return True
        unknown |= answer is None
    return None if unknown else False


def _evidence(results: Sequence[Result[V]]) -> tuple[V, ...]:
    return tuple(one for result in results for one in result.evidence)
