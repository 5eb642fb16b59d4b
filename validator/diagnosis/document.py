"""Write the list of causes as a page: `python -m validator.diagnosis.document` writes `docs/causes.md`."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from ..compat import known_issues
from ..conditions import AllOf, AnyOf, Comparison, Condition, Named, NoneOf
from ..model.diagnosis import WAYS
from ..resources import root_directory
from .causes import ALWAYS, CERTAIN, CauseEntry, RemedyEntry, Sign, causes, language
from .compile import conditions, examples
from .lookup import FACTS
from .messages import catalogue
from .remedies import INTERRUPTS, filled_in

#: The committed copy.
PATH = root_directory() / "docs" / "causes.md"
#: Real lines that are shown for one cause, and characters of each.
_LINES, _WIDTH = 6, 400
_WAYS = {
    **{way: said[:1].upper() + said[1:] for way, said in WAYS.items()},
    "any": "However it was installed",
    "host": "On the machine, as its administrator",
}
_HEAD = """\
# Causes

These are the causes that `python -m validator doctor` can name, in the order of the causal chain: an earlier
cause has to be fixed first, and a later one may be its consequence. `python -m validator.diagnosis.document`
writes this page from the files of families in `validator/diagnosis/data/`; make changes there.

A *sign* is a condition on what was observed in a pasted text or in a probe's report. The names in it are
kinds of messages in those files and in `report.yaml`, or [named conditions](#named-conditions). One of its
signs is enough to show a cause. A *likely* sign fits this cause better than any other; a *possible* one
counts only where there is nothing better. A word in capitals in a command, such as `CUDA_NEEDED`, stands for
a value that was observed, or that you fill in.
"""
_CONDITIONS_HEAD = """\
## Named conditions

| name | holds with |
|---|---|"""


def text() -> str:
    """Return the page. It ends with a newline."""
    known = causes()
    rows = [f"| [`{entry.code}`](#{entry.code}) | {_cell(entry.title)} |" for entry in known]
    parts = [_HEAD, "| cause | in one sentence |", "|---|---|", *rows]
    for entry in known:
        parts += ["", *_cause(entry)]
    parts += ["", _CONDITIONS_HEAD]
    for name in sorted(conditions()):
        named = language().parse(name)
        assert isinstance(named, Named)
        parts.append(f"| `{name}` | {_cell(_condition(named.condition))} |")
    return "\n".join(parts) + "\n"


def _cause(entry: CauseEntry) -> Iterator[str]:
    yield f"## `{entry.code}`"
    yield ""
    yield f"**{_prose(entry.title)}** {_prose(entry.means)}"
    yield ""
    yield "Signs:"
    yield ""
    yield from (f"- {_sign(sign)}" for sign in entry.signs)
    lines = _real_lines(entry)
    if lines:
        yield ""
        yield "Some lines that show it:"
        yield ""
        yield from _block("text", lines)
    if any(entry.ruled_out_by.comparisons()):
        yield ""
        yield f"Ruled out by {_condition(entry.ruled_out_by)}."
    if entry.explains:
        links = ", ".join(f"[`{code}`](#{code})" for code in entry.explains)
        yield ""
        yield f"Possible consequences: {links}."
    for remedy in entry.remedies:
        yield ""
        says = " ".join(filter(None, (filled_in(remedy.says, {}), INTERRUPTS.get(remedy.interrupts))))
        yield f"*{_WAYS[remedy.way]}{_prose(_when(remedy))}:* {_prose(says)}"
        if remedy.commands:
            yield ""
            yield from _block("sh", [filled_in(command, {}) for command in remedy.commands])
    yield ""
    yield f"Sources: {'; '.join(_prose(source) for source in entry.sources)}."


def _when(remedy: RemedyEntry) -> str:
    """Return the condition of a remedy, in parentheses; nothing if it always fits."""
    return "" if remedy.when == ALWAYS else f" ({_condition(remedy.when)})"


def _sign(sign: Sign) -> str:
    strength = "" if sign.strength == CERTAIN else f" ({sign.strength})"
    return _prose(_condition(sign.when)) + strength


def _condition(condition: Condition, inner: bool = False) -> str:
    """Return a condition in words. inner: in parentheses if it has several parts."""
    if isinstance(condition, Comparison):
        return _comparison(condition)
    if isinstance(condition, Named):
        return f"`{condition.name}`"
    assert isinstance(condition, AllOf | AnyOf | NoneOf)
    parts = condition.conditions
    text = (" with " if isinstance(condition, AllOf) else " or ").join(
        _condition(part, inner=len(parts) > 1) for part in parts
    )
    if isinstance(condition, NoneOf):
        return f"without {text}"
    text = text.replace(" with without ", " without ")
    return f"({text})" if inner and len(parts) > 1 else text


def _comparison(comparison: Comparison) -> str:
    if comparison.kind in known_issues.by_kind():
        return f"the fact `{known_issues.by_kind()[comparison.kind].fact.id}`"
    values = {
        name: " or ".join(one.text if one.range else f"`{one.text}`" for one in wanted)
        for name, wanted in comparison.values.items()
    }
    if list(values) == [FACTS.get(comparison.kind)]:
        return f"`{comparison.kind}` {next(iter(values.values()))}"
    listed = ", ".join(f"{name} {wanted}" for name, wanted in values.items())
    return f"`{comparison.kind}` ({listed})" if listed else f"`{comparison.kind}`"


def _real_lines(entry: CauseEntry) -> list[str]:
    """Return real lines that show the cause by themselves: one for each observation that does, then more."""
    messages, lines = catalogue(), examples()
    single = [comparison for sign in entry.signs for comparison in _alone(sign.when)]
    found = [
        [
            line if len(line) <= _WIDTH else f"{line[:_WIDTH]} …"
            for message in messages.messages
            if message.kind == comparison.kind
            for line in lines[message.pattern]
            if any(comparison.accepts(values) for values in messages.values(message, line))
        ]
        for comparison in single
    ]
    turns = [line for turn in itertools.zip_longest(*found) for line in turn if line is not None]
    return list(dict.fromkeys(turns))[:_LINES]


def _alone(condition: Condition) -> Iterator[Comparison]:
    """Yield the comparisons each of which makes a condition true by itself."""
    if isinstance(condition, Comparison):
        yield condition
    elif isinstance(condition, Named):
        yield from _alone(condition.condition)
    elif isinstance(condition, AnyOf):
        for part in condition.conditions:
            yield from _alone(part)


def _block(language: str, lines: Iterable[str]) -> Iterator[str]:
    yield f"```{language}"
    yield from lines
    yield "```"


def _prose(sentence: str) -> str:
    """Return a sentence with HTML and emphasis escaped."""
    if sentence.startswith("https://"):
        return f"<{sentence}>"
    return sentence.replace("<", "\\<").replace("*", "\\*")


def _cell(sentence: str) -> str:
    return _prose(sentence).replace("|", "\\|")


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
