"""The small evaluator of GitHub's expressions."""

from __future__ import annotations

from typing import Any

import pytest

from .expressions import ExpressionError, Scope, condition, evaluate, standard_functions, text, value

SCOPE = Scope(
    {
        "needs": {"plan": {"outputs": {"cells": '{"include": [{"id": "a"}]}', "any": "true"}}},
        "vars": {"PROFILE": ""},
        "secrets": {},
        "matrix": {"runner": ["self-hosted", "x"]},
    },
    standard_functions(failed=False, cancelled=False),
)


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("'it''s'", "it's"),
        ("vars.PROFILE || 'nightly'", "nightly"),
        ("vars.NOBODY_SET || ''", ""),
        ("secrets.KEY", ""),
        ("!cancelled() && needs.plan.outputs.any == 'true'", True),
        ("!(success() && true)", False),
        ("failure() || 'x' != 'x'", False),
        ("fromJSON(needs.plan.outputs.cells)", {"include": [{"id": "a"}]}),
        ("matrix.runner", ["self-hosted", "x"]),
    ],
)
def test_values(expression: str, wanted: Any) -> None:
    assert evaluate(expression, SCOPE) == wanted


def test_templates() -> None:
    assert text("a-${{ vars.PROFILE || 'b' }}-${{ true }}", SCOPE) == "a-b-true"
    assert value("${{ matrix.runner }}", SCOPE) == ["self-hosted", "x"]
    assert value(30, SCOPE) == 30
    assert condition("always()", SCOPE) and not condition("${{ failure() }}", SCOPE)


@pytest.mark.parametrize(
    "expression",
    [
        "needs.plan.outputs.nothing",
        "github.sha",
        "contains('a', 'b')",
        "a &",
        "(true",
        "true true",
        "needs.plan.outputs.any == true",
        "'a' ||",
    ],
)
def test_unknown_names_are_an_error(expression: str) -> None:
    with pytest.raises(ExpressionError):
        evaluate(expression, SCOPE)


def test_an_object_is_not_text() -> None:
    with pytest.raises(ExpressionError, match="an object"):
        text("${{ matrix.runner }}", SCOPE)
