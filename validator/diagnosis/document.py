"""The list of causes as a page: `python -m validator.diagnosis.document` writes `docs/causes.md`."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from .causes import CERTAIN, CauseEntry, RemedyEntry, Sign, Signature, causes
from .messages import Catalogue, catalogue
from .remedies import named

#: The copy that is checked in.
PATH = Path(__file__).parents[2] / "docs" / "causes.md"
#: Real lines shown for one cause, and characters of each.
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

What `python -m validator doctor` can name, in the order of the causal chain: what comes first is to be mended
first, and what comes later may be its consequence. Made from `validator/diagnosis/data/causes.yaml` by
`python -m validator.diagnosis.document`; change it there.

A *sign* is something seen in a pasted text or in a probe's report; its names are those of
`validator/diagnosis/data/messages/` and `report.yaml`. Any one of a cause's signs shows it. A *likely* sign
fits it better than anything else, a *possible* one is named only where nothing better is. `<…>` in a command
stands for what was seen, or is to be filled in.
"""


def text() -> str:
    """The page. Ends with a newline."""
    known = causes()
    rows = [f"| [`{entry.code}`](#{entry.code}) | {_cell(entry.title)} |" for entry in known]
    parts = [_HEAD, "| cause | in a sentence |", "|---|---|", *rows]
    for entry in known:
        parts += ["", *_cause(entry, catalogue())]
    return "\n".join(parts) + "\n"


def _cause(entry: CauseEntry, messages: Catalogue) -> Iterator[str]:
    yield f"## `{entry.code}`"
    yield ""
    yield f"**{_prose(entry.title)}** {_prose(entry.means)}"
    yield ""
    yield "Signs:"
    yield ""
    yield from (f"- {_signature(signature)}" for signature in entry.signatures)
    lines = _real_lines(entry, messages)
    if lines:
        yield ""
        yield "Lines that show it, among others:"
        yield ""
        yield from _block("text", lines)
    if entry.ruled_out_by:
        yield ""
        yield f"Ruled out by {_or(entry.ruled_out_by)}."
    if entry.explains:
        links = ", ".join(f"[`{code}`](#{code})" for code in entry.explains)
        yield ""
        yield f"May have as consequences: {links}."
    for remedy in entry.remedies:
        yield ""
        yield f"*{_WAYS[remedy.way]}{_when(remedy)}:* {_prose(named(remedy.says, {}))}"
        if remedy.commands:
            yield ""
            yield from _block("sh", [named(command, {}) for command in remedy.commands])
    yield ""
    yield f"Sources: {'; '.join(_prose(source) for source in entry.sources)}."


def _when(remedy: RemedyEntry) -> str:
    """What a remedy is for, where it is not for all."""
    when = remedy.when
    said = [
        *(f"TensorFlow {_prose(bound)}" for bound in when.get("tensorflow", ())),
        *(f"compute capability {_prose(bound)}" for bound in when.get("capability", ())),
        *([" or ".join(_SYSTEMS[name] for name in when["os"])] if when.get("os") else []),
        *([f"with {' or '.join(f'`{kind}`' for kind in when['seen'])}"] if when.get("seen") else []),
        *([f"without {' or '.join(f'`{kind}`' for kind in when['unseen'])}"] if when.get("unseen") else []),
    ]
    return f" ({', '.join(said)})" if said else ""


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


def _real_lines(entry: CauseEntry, messages: Catalogue) -> list[str]:
    """Examples of the catalogue that show the cause by themselves: one for each signature, then more."""
    alone = [signature.all[0] for signature in entry.signatures if len(signature.all) == 1]
    found = [
        [
            line if len(line) <= _WIDTH else f"{line[:_WIDTH]} …"
            for message in messages.messages
            if message.kind == sign.kind
            for line in message.examples
            if any(_shows(sign, values) for values in messages.values(message, line))
        ]
        for sign in alone
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
    """A sentence in which nothing is taken for HTML or emphasis."""
    if sentence.startswith("https://"):
        return f"<{sentence}>"
    return sentence.replace("<", "\\<").replace("*", "\\*")


def _cell(sentence: str) -> str:
    return _prose(sentence).replace("|", "\\|")


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
