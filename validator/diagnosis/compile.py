"""Compile the data that people edit, `data/*.yaml`, to the JSON that is read at run time.

    python -m validator.diagnosis.compile           writes data/compiled.json
    python -m validator.diagnosis.compile --check   fails if that file is not current

Examples and their sources stay behind: only the tests and docs/causes.md use them.
"""

from __future__ import annotations

import functools
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..compat.compile import read_yaml
from ..compat.facts import source_line
from ..conditions import ConditionError
from .catalogue import DATA, PATH, POSSIBLE, SAID, cause, language_with, remedy
from .patterns import AllOf, AnyOf, Need

if sys.version_info >= (3, 11):
    from re import _constants as constants
    from re import _parser as parser
else:
    import sre_constants as constants
    import sre_parse as parser

Row = Mapping[str, Any]
Words = tuple[str, ...]
#: Fields of a message that only people read.
_FOR_PEOPLE = ("examples", "seen", "source")
#: The families of messages and causes. The causes are in the order of the causal chain: an earlier one has to
#: be fixed first. Messages are tried in this order.
FAMILIES = (
    "machine",
    "driver",
    "container",
    "cuda",
    "install",
    "packages",
    "libraries",
    "gpu",
    "memory",
    "xla",
    "distributed",
    "performance",
    "harmless",
    "facts",
    "remedies",
    "unknown",
    "said",
    "questions",
)
#: The family of messages that only describe the environment.
_FACTS = "facts"
#: The name of a fragment in a pattern. Repetitions, such as {0,60}, have no letters.
_FRAGMENT = re.compile(r"(?<!\\[pP])\{[a-z_]+\}")
#: The least number of characters in a word, and in a word by which patterns are looked up. Shorter words are
#: in too many texts.
_SHORTEST, _SHORTEST_LOOKED_UP = 2, 3


def content() -> str:
    """Return the compiled data as JSON with one row per line, so that a diff shows what changed."""
    sections = {
        "messages": [_message(family, row) for family, row in messages()],
        "causes": _causes(),
        "law": list(rows("law")),
        "answers": _answers(),
        "places": family(_FACTS)["places"],
        "report": read_yaml(DATA / "report.yaml"),
        "cuda_errors": read_yaml(DATA / "cuda_errors.yaml"),
    }
    parts = [
        f'"{name}": [\n' + ",\n".join(_compact(row) for row in entries) + "\n]"
        for name, entries in sections.items()
    ]
    parts.append(f'"conditions": {_compact(conditions())}')
    parts.append(f'"tables": {_compact(family("remedies")["tables"])}')
    return "{" + ",\n".join(parts) + "}\n"


@functools.cache
def family(name: str) -> Mapping[str, Any]:
    """Return a family's file: its conditions, fragments, messages and causes, each if it has any."""
    content: Mapping[str, Any] = read_yaml(DATA / f"{name}.yaml")
    return content


def messages() -> Iterator[tuple[str, Row]]:
    """Yield each message with its family, in the order in which they are tried. Raises ValueError."""
    for name in FAMILIES:
        fragments = family(name).get("fragments", {})
        for row in family(name).get("messages", ()):
            yield name, {**row, "pattern": expanded(row["pattern"], fragments)} if fragments else row


def expanded(pattern: str, fragments: Mapping[str, str]) -> str:
    """Return a pattern with the fragments in place of their names, such as `{gap}`.

    A fragment may contain others that stand before it. Raises ValueError for an unknown name.
    """
    for name, fragment in reversed(list(fragments.items())):
        pattern = pattern.replace(f"{{{name}}}", fragment)
    if unknown := _FRAGMENT.search(pattern):
        raise ValueError(f"{unknown[0]} in a pattern is not the name of a fragment: {pattern[:80]}")
    return pattern


def conditions() -> dict[str, Any]:
    """Return the named conditions of all families. Raises ValueError if a name is defined twice."""
    named: dict[str, Any] = {}
    for name in FAMILIES:
        for condition, written in family(name).get("conditions", {}).items():
            if condition in named:
                raise ValueError(f"{name}.yaml: the condition `{condition}` is already defined elsewhere")
            named[condition] = written
    return named


def examples() -> Mapping[str, tuple[str, ...]]:
    """Return the real lines that are listed for each message, by its pattern."""
    return {row["pattern"]: tuple(row["examples"]) for _, row in messages()}


def rows(section: str) -> Iterator[Row]:
    """Yield the rows of a section of all families."""
    for name in FAMILIES:
        yield from family(name).get(section, ())


def _message(family: str, row: Row) -> Row:
    for example in row["examples"]:
        if not isinstance(example, str):
            raise ValueError(
                f"{family}.yaml: an example of `{row['pattern']}` is not text but {example!r}:"
                " put it in quotes"
            )
    kept = {name: value for name, value in row.items() if name not in _FOR_PEOPLE}
    fact = {"fact": True} if family == _FACTS and "fact" not in row else {}
    words, also = required_words(row["pattern"]), needs(row["pattern"])
    if also in ((), words, (words,)):
        return {**kept, **fact, "words": words}
    return {**kept, **fact, "words": words, "needs": also}


def _causes() -> list[Row]:
    """Return the causes. Raises ConditionError for a condition that can't be read."""
    language = language_with(conditions())
    entries = [_cause(row) for row in rows("causes")]
    for row in entries:
        cause(row, language)
    return entries


def _answers() -> list[Row]:
    """Return the answers to questions. Raises ConditionError for a condition that can't be read."""
    language = language_with(conditions())
    entries: list[Row] = [
        {"of": code, "way": "any", **row, "says": " ".join(row["says"].split())}
        for code, rows in family("questions")["answers"].items()
        for row in rows
    ]
    for number, row in enumerate(entries):
        remedy({name: value for name, value in row.items() if name != "of"}, language, f"answers[{number}]")
    return entries


def _cause(row: Row) -> Row:
    unless = {"none": row["said_unless"]} if "said_unless" in row else {}
    said = {"when": {"all": [{SAID: {"of": row["code"]}}], **unless}, "strength": POSSIBLE}
    return {
        **{name: value for name, value in row.items() if name != "said_unless"},
        "signs": [*row["signs"], said],
        "means": " ".join(row["means"].split()),
        "sources": [_source(key) for key in row["sources"]],
    }


def _source(key: str) -> str:
    """Return the line for a key of compat's sources or an issue (`owner/name#123`), or any other text."""
    return key if key.startswith("https://") or " " in key else source_line(key)


def _compact(row: object) -> str:
    return json.dumps(row, ensure_ascii=False, separators=(",", ":"))


def required_words(expression: str) -> Words:
    """Return words in lower case of which every match contains at least one; empty where there are none."""
    return _looked_up(needs(expression))


@functools.cache
def needs(expression: str) -> AllOf:
    """Return what every match contains, in lower case; see `Pattern.needs`."""
    return _in_sequence(parser.parse(expression).data)


def _in_sequence(items: Iterable[Any]) -> AllOf:
    required: list[Need] = []
    word = ""
    for operator, argument in items:
        if operator is constants.LITERAL:
            word += chr(argument).lower()
            continue
        required, word = [*required, word], ""
        if operator is constants.SUBPATTERN:
            required += _in_sequence(argument[-1])
        elif operator in (constants.MAX_REPEAT, constants.MIN_REPEAT) and argument[0] > 0:
            required += _in_sequence(argument[2])
        elif operator is constants.BRANCH:
            branches = [_in_sequence(branch) for branch in argument[1]]
            if all(branches):
                required.append(_any_of(branches))
    required = [need for need in (*required, word) if not isinstance(need, str) or len(need) >= _SHORTEST]
    words = [need for need in required if isinstance(need, str)]
    # A word that is part of another one need not be searched for separately.
    return tuple(
        need
        for need in dict.fromkeys(required)
        if not isinstance(need, str) or not any(need in other for other in words if need != other)
    )


def _any_of(branches: Iterable[AllOf]) -> AnyOf:
    alternatives: list[str | AllOf] = []
    for branch in branches:
        if len(branch) > 1:
            alternatives.append(branch)
        elif isinstance(branch[0], str):
            alternatives.append(branch[0])
        else:
            alternatives += branch[0]
    return tuple(dict.fromkeys(alternatives))


def _looked_up(needs: AllOf) -> Words:
    """Return the alternatives that are least likely to be in a text by chance."""
    choices = [(need,) if isinstance(need, str) else _looked_up_in_each(need) for need in needs]
    usable = [words for words in choices if words and min(map(len, words)) >= _SHORTEST_LOOKED_UP]
    return max(usable, key=lambda words: (min(map(len, words)), -len(words)), default=())


def _looked_up_in_each(alternatives: AnyOf) -> Words:
    choices = [(each,) if isinstance(each, str) else _looked_up(each) for each in alternatives]
    return tuple(dict.fromkeys(word for words in choices for word in words)) if all(choices) else ()


def is_current() -> bool:
    """Return True if the committed file is current."""
    return PATH.read_text(encoding="utf-8") == content()


if __name__ == "__main__":
    try:
        if "--check" not in sys.argv[1:]:
            PATH.write_text(content(), encoding="utf-8")
        elif not is_current():
            sys.exit(f"{PATH} is not current: run python -m validator.diagnosis.compile")
    except (ConditionError, ValueError) as error:
        sys.exit(f"{DATA}: {error}")
