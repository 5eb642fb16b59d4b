"""From pasted text to observations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import islice

from .messages import UNRECOGNIZED, Catalogue
from .observations import WIDTH, Observation, Observations
from .text import PASTE_LINES, Line, Pasted, answered, joined

#: Distinct lines whose meaning is remembered, so that one that comes a million times is read once.
_REMEMBERED = 50_000
#: Lines that are looked at together first: of a long log most show nothing.
_BATCH = 16


def observe(pasted: Pasted, catalogue: Catalogue, source: str = "") -> Observations:
    """Everything that the lines show. source: what stands before a line's number (`logs.host_stderr, `)."""
    found = Observations()
    paste: list[Line] | None = []
    unknown: list[tuple[int, Observation]] = []
    kinds: dict[int, set[str]] = defaultdict(set)
    known: dict[str, list[Observation]] = {}
    lines = iter(pasted)
    while batch := list(islice(lines, _BATCH)):
        if paste is not None:
            paste += batch
            if len(paste) > PASTE_LINES:
                paste = None
        if not catalogue.shows_anything(line.text for line in batch):
            continue
        for line in batch:
            seen = known.get(line.text)
            if seen is None:
                seen = _observations(line.text, line.number, catalogue, source)
                if seen and len(known) < _REMEMBERED:
                    known[line.text] = seen
            for observation in seen:
                if observation.kind == UNRECOGNIZED:
                    unknown.append((line.number, observation))
                else:
                    kinds[line.number].add(observation.kind)
                    found.add(observation)
    if paste is not None:
        _add_joined(paste, kinds, found, catalogue, source)
    for number, observation in unknown:
        if number not in kinds:
            found.add(observation)
    return found


def _add_joined(
    lines: Sequence[Line], kinds: dict[int, set[str]], found: Observations, catalogue: Catalogue, source: str
) -> None:
    """What shows only when lines are put together: those that a terminal or a mailer broke, and answers with
    what was asked."""
    for text, parts in (*answered(lines), *joined(lines)):
        alone = {kind for part in parts for kind in kinds.get(part.number, ())}
        for observation in _observations(text, parts[0].number, catalogue, source):
            if observation.kind != UNRECOGNIZED and observation.kind not in alone:
                found.add(observation)
                for part in parts:
                    kinds[part.number].add(observation.kind)


def _observations(text: str, number: int, catalogue: Catalogue, source: str) -> list[Observation]:
    where = source + (f"line {number}" if number else "the last part")
    return [
        Observation(message.kind, values, text.strip()[:WIDTH], where, message.harmless)
        for message in catalogue.matches(text)
        for values in message.read(text)
    ]
