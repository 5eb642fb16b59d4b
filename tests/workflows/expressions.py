"""Evaluate GitHub's expressions, as far as the workflows here use them.

The grammar is that of GitHub Docs, "Evaluate expressions in workflows and actions". What is not known here is
an error and never an empty string, so that a slip in a workflow fails a test.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_INSIDE = re.compile(r"\$\{\{(.*?)\}\}", re.S)
_TOKEN = re.compile(
    r"\s*(?:(?P<string>'(?:[^']|'')*')|(?P<number>\d+)|(?P<operator>&&|\|\||==|!=|[!().,])"
    r"|(?P<name>[A-Za-z_][\w-]*))"
)
#: Contexts in which an unset name is an empty string, as on GitHub.
OPTIONAL = frozenset({"vars", "secrets"})


class ExpressionError(Exception):
    """The expression can't be read, or names something that does not exist."""


@dataclass(frozen=True)
class Scope:
    """The contexts and functions, by name, that an expression may use."""

    contexts: Mapping[str, Any]
    functions: Mapping[str, Callable[..., Any]]


def text(template: str, scope: Scope) -> str:
    """Return the text with every `${{ … }}` in it replaced by its value."""
    return _INSIDE.sub(lambda match: as_text(evaluate(match[1], scope)), template)


def value(template: Any, scope: Scope) -> Any:
    """Return the value of a template that is one expression, else its text; other values unchanged."""
    if not isinstance(template, str):
        return template
    whole = _INSIDE.fullmatch(template.strip())
    return evaluate(whole[1], scope) if whole else text(template, scope)


def condition(template: str, scope: Scope) -> bool:
    """Evaluate an `if:`, which may lack the braces."""
    whole = _INSIDE.fullmatch(template.strip())
    return truth(evaluate(whole[1] if whole else template, scope))


def evaluate(expression: str, scope: Scope) -> Any:
    """Return the value of an expression without its braces."""
    parser = _Parser(list(_tokens(expression)), scope, expression)
    found = parser.either()
    parser.end()
    return found


def truth(found: Any) -> bool:
    return found not in (None, False, 0, "")


def as_text(found: Any) -> str:
    if isinstance(found, bool):
        return "true" if found else "false"
    if found is None:
        return ""
    if isinstance(found, (dict, list)):
        raise ExpressionError(f"an object where a text is wanted: {found!r:.80}")
    return str(found)


def standard_functions(*, failed: bool, cancelled: bool) -> dict[str, Callable[..., Any]]:
    return {
        "fromJSON": json.loads,
        "always": lambda: True,
        "cancelled": lambda: cancelled,
        "success": lambda: not failed and not cancelled,
        "failure": lambda: failed,
    }


def _tokens(expression: str) -> Iterator[tuple[str, str]]:
    position, expression = 0, expression.rstrip()
    while position < len(expression):
        match = _TOKEN.match(expression, position)
        if match is None:
            raise ExpressionError(f"{expression!r}: not understood from {expression[position:]!r} on")
        yield str(match.lastgroup), match[str(match.lastgroup)]
        position = match.end()


class _Parser:
    """Recursive descent, one method per level of precedence; both sides of && and || are evaluated."""

    def __init__(self, tokens: list[tuple[str, str]], scope: Scope, source: str) -> None:
        self._tokens, self._scope, self._source = tokens, scope, source

    def end(self) -> None:
        if self._tokens:
            raise ExpressionError(f"{self._source!r}: {self._tokens[0][1]!r} is too much")

    def either(self) -> Any:
        left = self._both()
        while self._take("||"):
            right = self._both()
            left = left if truth(left) else right
        return left

    def _both(self) -> Any:
        left = self._compared()
        while self._take("&&"):
            right = self._compared()
            left = right if truth(left) else left
        return left

    def _compared(self) -> Any:
        left = self._unary()
        for operator, wanted in (("==", True), ("!=", False)):
            if self._take(operator):
                right = self._unary()
                if type(left) is not type(right):
                    raise ExpressionError(f"{self._source!r}: compares {left!r} with {right!r}")
                return (left == right) is wanted
        return left

    def _unary(self) -> Any:
        if self._take("!"):
            return not truth(self._unary())
        if self._take("("):
            inside = self.either()
            self._need(")")
            return inside
        kind, word = self._next()
        if kind == "string":
            return word[1:-1].replace("''", "'")
        if kind == "number":
            return int(word)
        if kind != "name":
            raise ExpressionError(f"{self._source!r}: {word!r} where a value is wanted")
        if word in ("true", "false", "null"):
            return {"true": True, "false": False, "null": None}[word]
        return self._call(word) if self._take("(") else self._property(word)

    def _call(self, name: str) -> Any:
        if name not in self._scope.functions:
            raise ExpressionError(f"{self._source!r}: the function {name} is not known here")
        arguments: list[Any] = []
        while not self._take(")"):
            if arguments:
                self._need(",")
            arguments.append(self.either())
        return self._scope.functions[name](*arguments)

    def _property(self, name: str) -> Any:
        if name not in self._scope.contexts:
            raise ExpressionError(f"{self._source!r}: the context {name} is not there")
        found, path = self._scope.contexts[name], name
        while self._take("."):
            key = self._next()[1]
            if not isinstance(found, Mapping) or (key not in found and path not in OPTIONAL):
                raise ExpressionError(f"{self._source!r}: {path} has no {key}")
            found, path = found.get(key, ""), f"{path}.{key}"
        return found

    def _next(self) -> tuple[str, str]:
        if not self._tokens:
            raise ExpressionError(f"{self._source!r}: ends too early")
        return self._tokens.pop(0)

    def _take(self, operator: str) -> bool:
        if self._tokens and self._tokens[0] == ("operator", operator):
            self._tokens.pop(0)
            return True
        return False

    def _need(self, operator: str) -> None:
        if not self._take(operator):
            raise ExpressionError(f"{self._source!r}: {operator!r} is missing")
