"""From pasted text to observations."""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Collection, Mapping, Sequence

from .messages import FAULT, UNRECOGNIZED, Catalogue
from .observations import WIDTH, Observation, Observations, Said
from .text import PASTE_LINES, Block, Line, Pasted, answered, joined

#: Distinct lines whose meaning is remembered, so that one that comes a million times is read once.
_REMEMBERED = 50_000
#: Lines before the end of a process that may say why it ended; empty ones don't count.
_BEFORE = 3
#: The value that a message has which says that a process ended.
_ENDS = "ends"
#: The time before TensorFlow's lines and, behind the letter of their severity, before Abseil's.
_STAMP = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}: |[IWEF]\d{4} \d\d:\d\d:\d+\.\d+ ")


class _Shown:
    """What a line shows wherever it stands; worked out once, however often it comes.

    unrecognized: what counts only where the line shows nothing else, not even joined to others. seen: the
    rest. kinds: of it, what makes the line understood. ends: whether it tells that a process ended. again:
    how often the line came after the first time.
    """

    def __init__(self, observations: Sequence[Observation], outside: Collection[str]) -> None:
        self.kinds = {one.kind for one in observations} - {UNRECOGNIZED, *outside}
        alone = (UNRECOGNIZED,) if self.kinds else (UNRECOGNIZED, FAULT)
        self.unrecognized = [one for one in observations if one.kind in alone]
        self.seen = [one for one in observations if one.kind not in alone]
        self.ends = any(_ENDS in one.values for one in observations)
        self.again = 0


def observe(pasted: Pasted, catalogue: Catalogue, source: str = "") -> Observations:
    """Everything that the lines show. source: what stands before a line's number (`logs.host_stderr, `)."""
    found = Observations()
    paste: list[Line] | None = [] if pasted.is_paste else None
    unknown: list[tuple[int, Observation]] = []
    kinds: dict[int, set[str]] = defaultdict(set)
    facts: dict[int, set[Said]] = defaultdict(set)
    recent: deque[Block] = deque(maxlen=_BEFORE + 1)
    known: dict[str, _Shown] = {}
    for block in pasted.blocks():
        if paste is not None:
            paste += block.lines
            if len(paste) > PASTE_LINES:
                paste = None
        recent.append(block)
        if not catalogue.may_show_anything(block.data):
            continue
        for position, line in enumerate(block.lines):
            said = _unstamped(line.text)
            shown = known.get(said)
            if shown is not None:
                shown.again += 1
            else:
                observations = _observations(line.text, line.number, catalogue, source)
                if not observations:
                    continue
                shown = _Shown(observations, catalogue.outside)
                if len(known) < _REMEMBERED:
                    known[said] = shown
                for observation in shown.seen:
                    found.add(observation)
            if shown.kinds:
                kinds[line.number] |= shown.kinds
            if paste is not None:
                facts[line.number] |= {one.says for one in shown.seen if one.kind in catalogue.outside}
            unknown += [(line.number, observation) for observation in shown.unrecognized]
            if shown.ends:
                unknown += [(one.number, _before_end(one, source)) for one in _before(recent, position)]
    for shown in known.values():
        for observation in shown.seen if shown.again else ():
            found.add(observation, shown.again)
    if paste is not None:
        _add_joined(paste, kinds, facts, found, catalogue, source)
    for number, observation in unknown:
        if number not in kinds:
            found.add(observation)
    return found


def _unstamped(text: str) -> str:
    """What a line says, whenever it says it: but for its first character, without the time."""
    stamp = _STAMP.match(text)
    return text[0] + text[stamp.end() :] if stamp else text


def _before(blocks: Sequence[Block], position: int) -> list[Line]:
    """The last lines that are not empty before a position in the last block; a prompt says nothing of an end,
    nor what stands before it."""
    *earlier, last = blocks
    lines = [*(line for block in earlier for line in block.lines), *last.lines[:position]]
    told = [line for line in lines if line.text.strip()]
    asked = max((position for position, line in enumerate(told) if line.asks), default=-1)
    return told[asked + 1 :][-_BEFORE:]


def _before_end(line: Line, source: str) -> Observation:
    return Observation(FAULT, {}, line.text.strip()[:WIDTH], _where(line.number, source))


def _where(number: int, source: str) -> str:
    return source + (f"line {number}" if number else "the last part")


def _add_joined(
    lines: Sequence[Line],
    kinds: dict[int, set[str]],
    facts: Mapping[int, set[Said]],
    found: Observations,
    catalogue: Catalogue,
    source: str,
) -> None:
    """What shows only when lines are put together: those that a terminal or a mailer broke, and answers with
    what was asked. kinds, facts: what lines show alone, by their numbers."""
    for text, parts in (*answered(lines), *joined(lines)):
        alone = {kind for part in parts for kind in kinds.get(part.number, ())}
        for observation in _observations(text, parts[0].number, catalogue, source):
            if observation.kind in (UNRECOGNIZED, FAULT) or observation.kind in alone:
                continue
            if any(observation.says in facts.get(part.number, ()) for part in parts):
                continue
            found.add(observation)
            if observation.kind not in catalogue.outside:
                for part in parts:
                    kinds[part.number].add(observation.kind)


def _observations(text: str, number: int, catalogue: Catalogue, source: str) -> list[Observation]:
    messages = catalogue.matches(text)
    if not messages:
        return []
    where = _where(number, source)
    said = text.strip()[:WIDTH]
    seen = [
        Observation(message.kind, values, said, where, message.harmless)
        for message in messages
        for values in catalogue.values(message, text)
    ]
    # Several rows of one kind may say the same of a line; it counts once.
    return list({observation.key: observation for observation in seen}.values())
