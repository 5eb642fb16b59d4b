"""Write the list of causes as a page: `python -m validator.diagnosis.document` writes `docs/causes.md`."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from .causes import CERTAIN, CauseEntry, RemedyEntry, Sign, Signature, causes
from .compile import examples
from .messages import catalogue
from .remedies import filled_in

#: The committed copy.
PATH = Path(__file__).parents[2] / "docs" / "causes.md"
#: Real lines that are shown for one cause, and characters of each.
_LINES, _WIDTH = 6, 400
_WAYS = {
    "any": "However it was installed",
    "host": "On the machine, as its administrator",
    "pip": "With pip",
    "conda": "With conda",
    "docker": "With Docker",
    "wsl": "In WSL2",
}
_SYSTEMS = {"linux": "Linux", "windows": "native Windows", "macos": "macOS"}
_HEAD = """\
# Causes

These are the causes that `python -m validator doctor` can name, in the order of the causal chain: an earlier
cause has to be fixed first, and a later one may be its consequence. `python -m validator.diagnosis.document`
writes this page from `validator/diagnosis/data/causes.yaml`; make changes there.

A *sign* is something that was observed in a pasted text or in a probe's report. The names of signs are those
in `validator/diagnosis/data/messages/` and `report.yaml`. Any one of its signs shows a cause. A *likely* sign
fits this cause better than any other; a *possible* one counts only where there is nothing better. `<…>` in a
command stands for a value that was observed, or that you fill in.
"""


def text() -> str:
    """Return the page. It ends with a newline."""
    known = causes()
    rows = [f"| [`{entry.code}`](#{entry.code}) | {_cell(entry.title)} |" for entry in known]
    parts = [_HEAD, "| cause | in one sentence |", "|---|---|", *rows]
    for entry in known:
        parts += ["", *_cause(entry)]
    return "\n".join(parts) + "\n"


def _cause(entry: CauseEntry) -> Iterator[str]:
    yield f"## `{entry.code}`"
    yield ""
    yield f"**{_prose(entry.title)}** {_prose(entry.means)}"
    yield ""
    yield "Signs:"
    yield ""
    yield from (f"- {_signature(signature)}" for signature in entry.signatures)
    lines = _real_lines(entry)
    if lines:
        yield ""
        yield "Some lines that show it:"
        yield ""
        yield from _block("text", lines)
    if entry.ruled_out_by:
        yield ""
        yield f"Ruled out by {_or(entry.ruled_out_by)}."
    if entry.explains:
        links = ", ".join(f"[`{code}`](#{code})" for code in entry.explains)
        yield ""
        yield f"Possible consequences: {links}."
    for remedy in entry.remedies:
        yield ""
        yield f"*{_WAYS[remedy.way]}{_when(remedy)}:* {_prose(filled_in(remedy.says, {}))}"
        if remedy.commands:
            yield ""
            yield from _block("sh", [filled_in(command, {}) for command in remedy.commands])
    yield ""
    yield f"Sources: {'; '.join(_prose(source) for source in entry.sources)}."


def _when(remedy: RemedyEntry) -> str:
    """Return the conditions of a remedy, in parentheses; nothing if it has none."""
    when = remedy.when
    conditions = [
        *(f"TensorFlow {_prose(bound)}" for bound in when.get("tensorflow", ())),
        *(f"compute capability {_prose(bound)}" for bound in when.get("capability", ())),
        *([" or ".join(_SYSTEMS[name] for name in when["os"])] if when.get("os") else []),
        *([f"with {' or '.join(f'`{kind}`' for kind in when['seen'])}"] if when.get("seen") else []),
        *([f"without {' or '.join(f'`{kind}`' for kind in when['unseen'])}"] if when.get("unseen") else []),
    ]
    return f" ({', '.join(conditions)})" if conditions else ""


def _signature(signature: Signature) -> str:
    strength = "" if signature.strength == CERTAIN else f" ({signature.strength})"
    without = f", without {_or(signature.none)}" if signature.none else ""
    return " with ".join(_sign(sign) for sign in signature.all) + without + strength


def _or(signs: Iterable[Sign]) -> str:
    return " or ".join(_sign(sign) for sign in signs)


def _sign(sign: Sign) -> str:
    values = ", ".join(
        f"{name} {' or '.join(f'`{value}`' for value in wanted)}" for name, wanted in sign.values.items()
    )
    return f"`{sign.kind}` ({values})" if values else f"`{sign.kind}`"


def _real_lines(entry: CauseEntry) -> list[str]:
    """Return real lines that show the cause by themselves: one for each signature, then more."""
    messages, lines = catalogue(), examples()
    single = [signature.all[0] for signature in entry.signatures if len(signature.all) == 1]
    found = [
        [
            line if len(line) <= _WIDTH else f"{line[:_WIDTH]} …"
            for message in messages.messages
            if message.kind == sign.kind
            for line in lines[message.pattern]
            if any(_shows(sign, values) for values in messages.values(message, line))
        ]
        for sign in single
    ]
    turns = [line for turn in itertools.zip_longest(*found) for line in turn if line is not None]
    return list(dict.fromkeys(turns))[:_LINES]


def _shows(sign: Sign, values: Mapping[str, str]) -> bool:
    return all(values.get(name) in wanted for name, wanted in sign.values.items())


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
