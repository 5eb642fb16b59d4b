"""Rooms hand each other values. No room parses or compares the sentences that another room wrote for people.

Sentences are made in `validator/problems.py` and where people read: in `cli` and `reports`. Everywhere else a
sentence may be passed on and stored, but no decision may depend on its wording.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import validator

ROOT = Path(validator.__file__).parent

#: Where sentences are made, and code of others.
EXEMPT = {"_vendor", "cli", "problems.py", "reports"}
#: Where `reason` is a code of Slurm or Kubernetes, such as `ReqNodeNotAvail`.
SCHEDULERS = ("fleet/slurm", "fleet/kubernetes")
#: The attributes and fields that hold sentences.
SENTENCES = {"reason", "sentence", "summary", "why"}
#: Methods of `str` that look for words.
WORD_METHODS = {
    "count", "endswith", "find", "index", "partition", "removeprefix", "removesuffix", "rfind", "rpartition",
    "rsplit", "split", "splitlines", "startswith",
}  # fmt: skip
#: Functions and methods of regular expressions, and those that look for known messages in a text.
PATTERN_FUNCTIONS = {
    "Match", "findall", "finditer", "fullmatch", "match", "observe", "read_text", "search", "sub",
}  # fmt: skip


def holds_a_sentence(node: ast.AST) -> bool:
    """Tell whether an expression has a sentence in it."""
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute) and (part.attr in SENTENCES or ast.unparse(part) == "reason.text"):
            return True
        if isinstance(part, ast.Subscript) and _key(part.slice) in SENTENCES:
            return True
        if (
            isinstance(part, ast.Call)
            and _name(part) == "get"
            and part.args
            and _key(part.args[0]) in SENTENCES
        ):
            return True
    return False


def parsed_sentences(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the code of each place where a sentence is compared, searched or taken apart."""
    for node in ast.walk(ast.parse(source)):
        looked_at: list[ast.expr] = []
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if all(isinstance(side, ast.Constant) and side.value is None for side in node.comparators):
                continue
            # `is` compares members of an enumeration, which are values.
            if not all(isinstance(operator, (ast.Is, ast.IsNot)) for operator in node.ops):
                looked_at = sides
        elif isinstance(node, ast.Call):
            if _name(node) in WORD_METHODS and isinstance(node.func, ast.Attribute):
                looked_at = [node.func.value]
            elif _name(node) in PATTERN_FUNCTIONS:
                looked_at = [*node.args, *(keyword.value for keyword in node.keywords)]
        elif isinstance(node, ast.Match):
            looked_at = [node.subject]
        if any(holds_a_sentence(each) for each in looked_at):
            assert isinstance(node, (ast.expr, ast.stmt))
            yield node.lineno, ast.unparse(node).partition("\n")[0]


def _name(call: ast.Call) -> str:
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _key(node: ast.expr) -> object:
    return node.value if isinstance(node, ast.Constant) else None


def patterns_on_sentences(text: str) -> list[str]:
    """Return the fields of a table of the diagnosis whose patterns are for a sentence."""
    rows = yaml.safe_load(text)
    fields = [str(row.get("field", "")) for row in rows if isinstance(row, dict)]
    return [field for field in fields if SENTENCES & set(field.split("."))]


def test_no_room_parses_the_sentences_of_another() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {code}"
        for path in sorted(ROOT.rglob("*.py"))
        if path.relative_to(ROOT).parts[0] not in EXEMPT
        and not str(path.relative_to(ROOT)).startswith(SCHEDULERS)
        for line, code in parsed_sentences(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_no_table_of_the_diagnosis_matches_sentences() -> None:
    assert patterns_on_sentences((ROOT / "diagnosis/data/report.yaml").read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "code",
    [
        "check.summary == 'no GPU'",
        "'no GPU' in judgement.sentence",
        "check['summary'] != other",
        "re.search('ptxas', check.sentence)",
        "PATTERN.fullmatch(record.reason)",
        "record.reason.startswith('not passed')",
        "check.get('summary', '').split('; ')",
        "reason.text.startswith('advisory')",
        "check.summary.partition(':')",
        "observe(read_text(f'{check.id}: {check.sentence}'), catalogue)",
        "any(word in check.summary.lower() for word in words)",
        "match record.reason:\n    case 'no GPU': pass",
    ],
)
def test_it_is_noticed(code: str) -> None:
    assert list(parsed_sentences(code))


@pytest.mark.parametrize(
    "code",
    [
        "Record(reason=judgement.sentence)",
        "f'{check.id}: {check.sentence}'",
        "check.summary is None",
        "if reason := unmet(): raise Refusal(reason)",
        "judgement.reason is Reason.NO_GPU",
        "problem.code == 'no_gpu'",
        "line.startswith('E ')",
    ],
)
def test_values_and_passing_on_are_fine(code: str) -> None:
    assert not list(parsed_sentences(code))


def test_a_pattern_on_a_sentence_is_noticed() -> None:
    table = (
        "- {kind: a, field: checks.xla_toolchain.summary, pattern: '.*ptxas.*'}\n- {kind: b, check: driver}\n"
    )
    assert patterns_on_sentences(table) == ["checks.xla_toolchain.summary"]
