"""Rooms hand each other values. No room parses or compares the sentences that another room wrote for people.

Sentences are made in `validator/problems.py`, and by the rules of `compat`. A sentence may be passed on,
stored and shown, but no decision may depend on its wording.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Set
from pathlib import Path

import pytest
import yaml

import validator

ROOT = Path(validator.__file__).parent

#: Where sentences are made, and code of others.
EXEMPT = {"_vendor", "problems.py"}
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


#: What the probe prints about a check while it runs (`Progress` in `validator/probe/stages.py`).
PROGRESS = re.compile(r"(^|[^\w\s]): \(?(pass|fail|skip)\b|\bchecks? skipped\b")
Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef


def is_a_sentence(node: ast.AST, names: Set[str] = frozenset()) -> bool:
    """Tell whether an expression is a sentence, or what a method makes of one.

    names: the variables that hold sentences.
    """
    if isinstance(node, ast.Attribute):
        return node.attr in SENTENCES or (
            node.attr == "text" and isinstance(node.value, ast.Name) and node.value.id == "reason"
        )
    if isinstance(node, ast.Subscript):
        return _key(node.slice) in SENTENCES or is_a_sentence(node.value, names)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        field = _name(node) == "get" and node.args and _key(node.args[0]) in SENTENCES
        return bool(field) or is_a_sentence(node.func.value, names)
    if isinstance(node, ast.BoolOp):
        return any(is_a_sentence(value, names) for value in node.values)
    return isinstance(node, ast.Name) and node.id in names


def holds_a_sentence(node: ast.AST, names: Set[str]) -> bool:
    """Tell whether an expression has a sentence in it."""
    return any(is_a_sentence(part, names) for part in ast.walk(node))


def parsed_sentences(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the code of each place where a sentence is compared, searched or taken apart."""
    if not any(word in source for word in SENTENCES):
        return
    tree = ast.parse(source)
    for scope in (node for node in ast.walk(tree) if isinstance(node, Scope)):
        yield from _parsed_in(scope)


def _parsed_in(scope: Scope) -> Iterator[tuple[int, str]]:
    names: set[str] = set()
    for node in _of_scope(scope):
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if is_a_sentence(node.value, names):
                names |= {target.id for target in targets if isinstance(target, ast.Name)}
    for node in _of_scope(scope):
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
        if any(holds_a_sentence(each, names) for each in looked_at):
            assert isinstance(node, (ast.expr, ast.stmt))
            yield node.lineno, ast.unparse(node).partition("\n")[0]


def _of_scope(scope: Scope) -> Iterator[ast.AST]:
    """Yield what belongs to a function or module, in the order of the source, without the functions in it."""
    for node in ast.iter_child_nodes(scope):
        yield from _outside_functions(node)


def _outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    if not isinstance(node, Scope):
        yield node
        for child in ast.iter_child_nodes(node):
            yield from _outside_functions(child)


def patterns_on_progress(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the code of each literal for what the probe prints while it runs."""
    if not re.search("pass|fail|skip", source):
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and PROGRESS.search(node.value):
            yield node.lineno, node.value.partition("\n")[0]


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


@pytest.mark.slow
def test_no_room_parses_the_sentences_of_another() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {code}"
        for path in sorted(ROOT.rglob("*.py"))
        if path.relative_to(ROOT).parts[0] not in EXEMPT
        and not str(path.relative_to(ROOT)).startswith(SCHEDULERS)
        for line, code in parsed_sentences(path.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.slow
def test_no_code_outside_the_probe_reads_its_progress() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {code}"
        for path in sorted(ROOT.rglob("*.py"))
        if path.relative_to(ROOT).parts[0] not in {*EXEMPT, "probe"}
        for line, code in patterns_on_progress(path.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize(
    "code",
    [
        r"""re.compile(r"(?P<check>\w+): skip: (?P<reason>.*?)(?: \(see \w+\))?")""",
        r"""re.search(r"^\w+: (pass|fail)", line)""",
        """line.endswith(": skip")""",
        """'checks skipped' in line""",
    ],
)
def test_a_pattern_for_progress_is_noticed(code: str) -> None:
    assert list(patterns_on_progress(code))


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
        "text = reason.text\nif text.startswith('tensorflow '): pass",
        "def f(check):\n    said = check.sentence or ''\n    return 'no GPU' in said",
        "if (why := record.reason.lower()) == 'no gpu': pass",
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
        "def f(check): text = check.sentence\ndef g(text): return text.split()",
        "text = reason.text\nprint(text)",
    ],
)
def test_values_and_passing_on_are_fine(code: str) -> None:
    assert not list(parsed_sentences(code))


def test_a_pattern_on_a_sentence_is_noticed() -> None:
    table = (
        "- {kind: a, field: checks.xla_toolchain.summary, pattern: '.*ptxas.*'}\n- {kind: b, check: driver}\n"
    )
    assert patterns_on_sentences(table) == ["checks.xla_toolchain.summary"]
