"""Render which releases work on a machine, from the answer of `answers.what_works`, for a terminal."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..model.prediction import EAGER_ONLY
from ..model.situation import EAGER, XLA
from .printable import one_line, wrapped

_MODE_NAMES = {EAGER: "eager operations", XLA: "functions that XLA compiles"}
_WAYS = {"image": "In an image", "pip": "With pip"}


def what_works_text(answer: Mapping[str, Any], width: int) -> str:
    """Return the headline, the newest release for each mode, and each way of getting one.

    A way comes with its commands and the reasons why no newer release is chosen.
    """
    return "".join(f"{line}\n" for line in _lines(answer, width))


def _lines(answer: Mapping[str, Any], width: int) -> Iterator[str]:
    yield from wrapped(answer["headline"], width)
    for remark in answer["remarks"]:
        yield from wrapped(remark, width)
    yield from wrapped(answer["basis"], width)
    yield from wrapped(f"For {', '.join(answer['machine'])}.", width)
    yield ""
    for mode in answer["modes"]:
        yield from wrapped(f"{_MODE_NAMES[mode['mode']]}: {mode['shown']}", width, "  ", "    ")
    for way in answer["ways"]:
        only = ", only for eager operations" if way["modes"] == EAGER_ONLY else ""
        yield ""
        yield f"{_WAYS[way['way']]}: TensorFlow {way['release']}, Python {way['python']}{only}"
        for note in way["notes"]:
            yield from wrapped(note, width, "  ")
        yield from (f"      {one_line(command)}" for command in way["commands"])
        if way["newer"]:
            yield "  Why no newer release:"
            yield from _newer(way["newer"], width)
    if not answer["ways"]:
        newest = answer["releases"][0]
        yield ""
        yield f"Why TensorFlow {newest['release']} does not work:"
        for reason in newest["reasons"]:
            yield from wrapped(_reason(reason), width, "  - ", "    ")


def _newer(groups: Sequence[Mapping[str, Any]], width: int) -> Iterator[str]:
    """Yield the deciding reason of each group. Neighbors that have the same one are shown together."""
    for _, same in itertools.groupby(groups, _deciding):
        first, *others = same
        newest = first["releases"].split(" to ")[-1]
        oldest = (others or [first])[-1]["releases"].split(" to ")[0]
        span = newest if oldest == newest else f"{oldest} to {newest}"
        yield from wrapped(f"{span}: {_reason(first['reasons'][0])}", width, "  - ", "    ")


def _deciding(group: Mapping[str, Any]) -> str:
    """Return the deciding reason without the release that it names."""
    own = f"tensorflow {group['releases'].split(' to ')[-1]}"
    return str(group["reasons"][0]["text"]).replace(own, "tensorflow")


def _reason(reason: Mapping[str, str]) -> str:
    return f"{reason['text']} ({reason['fact']})" if reason["fact"] else reason["text"]
