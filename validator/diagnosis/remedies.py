"""Which of a cause's remedies fit: by release, GPU, system and what was seen; with the values filled in."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Collection, Mapping, Sequence

from ..model.diagnosis import Remedy
from .builds import Number, number
from .causes import CauseEntry, RemedyEntry
from .observations import Observations

#: How to find out what a command names and the text did not tell.
_FIND_OUT = {
    "tensorflow": "your release, which `python -m pip show tensorflow` tells",
    "tensorflow_minor": "the first two numbers of your release, which `python -m pip show tensorflow` tells",
    "cuda_needed": "what `python -m validator predict --tensorflow <your release>` names (2.8 and later)",
    "cuda_major": "the first number of the CUDA that TensorFlow was built with: 12 from 2.15 on, 11 before",
    "cudnn_needed": "what `python -m validator predict --tensorflow <your release>` names (2.8 and later)",
    "cudnn_major": "its first number",
    "release_for_gpu": "the newest of which that command says that it runs on your GPU (2.16.2 for Maxwell)",
    "driver_branch": "the first number of the driver's version, which `nvidia-smi` tells",
    "pid": "the number in the row of nvidia-smi",
    "image": "the image's name",
}
#: What a shell takes for nothing but text between double quotes; values come from pasted text.
_PLAIN = re.compile(r"[\w./@:+,~ \\\[\]-]*")
_RANGE = re.compile(r"(>=|<=|==|<|>)([\d.]+)")
_COMPARE: Mapping[str, Callable[[Number, Number], bool]] = {
    ">=": lambda found, bound: found >= bound,
    "<=": lambda found, bound: found <= bound,
    "==": lambda found, bound: found == bound,
    "<": lambda found, bound: found < bound,
    ">": lambda found, bound: found > bound,
}
#: What stands for a release of which only its log lines tell that it is older than 2.12.
_OLD = "2.10"
#: The system that remedies are for where nothing tells it.
_SYSTEM = "linux"


def fitting(
    entry: CauseEntry, values: Mapping[str, str], observations: Observations, ways: Sequence[Collection[str]]
) -> tuple[Remedy, ...]:
    """The remedies that fit, in the order of the list; all of them where none fits.

    ways: of installing; remedies for those of the first group come first, for those of none last. values: by
    which placeholders are filled; `tensorflow`, `capability` and `system` decide what fits.
    """
    order = {way: position for position, group in enumerate(ways) for way in group}
    found = [remedy for remedy in entry.remedies if _fits(remedy, values, observations)] or entry.remedies
    found = sorted(found, key=lambda remedy: order.get(remedy.way, len(order)))
    return tuple(_remedy(remedy, values) for remedy in found)


def _remedy(entry: RemedyEntry, values: Mapping[str, str]) -> Remedy:
    harmless = {name: value for name, value in values.items() if _PLAIN.fullmatch(value)}
    commands = tuple(named(command, harmless) for command in entry.commands)
    asked = [name for name in _FIND_OUT if name not in values and _names((entry.says, *entry.commands), name)]
    told = [f"<{name}> is {_FIND_OUT[name]}" for name in asked]
    says = named(entry.says, values)
    return Remedy(entry.way, f"{says} ({'; '.join(told)}.)" if told else says, commands)


def _names(templates: Sequence[str], name: str) -> list[str]:
    return [text for text in templates if any(part[1] == name for part in string.Formatter().parse(text))]


def _fits(entry: RemedyEntry, values: Mapping[str, str], observations: Observations) -> bool:
    when = entry.when
    release = values.get("tensorflow", _OLD if observations.has("before_2_12") else "")
    return (
        within(release, when.get("tensorflow", ()))
        and within(values.get("capability", ""), when.get("capability", ()))
        and (not when.get("os") or values.get("system", _SYSTEM) in when["os"])
        and (not when.get("seen") or any(observations.has(kind) for kind in when["seen"]))
        and not any(observations.has(kind) for kind in when.get("unseen", ()))
    )


def within(version: str, ranges: Sequence[str]) -> bool:
    """Whether a version is in every range (`>=2.16`, compared by as many numbers as the bound has). What is
    not known may be in a range, but is not taken for one release (`==2.16.1`)."""
    found = number(version)
    for text in ranges:
        match = _RANGE.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is no range: write >=2.16 or the like")
        bound = number(match[2])
        if not found and match[1] == "==":
            return False
        if found and not _COMPARE[match[1]]((*found, *[0] * len(bound))[: len(bound)], bound):
            return False
    return True


class _Missing(dict[str, str]):
    """Values by name; one that is not known stands for itself, as `<name>`."""

    def __missing__(self, name: str) -> str:
        return f"<{name}>"


def named(template: str, values: Mapping[str, str]) -> str:
    """A template with its values; one that is not known stands for itself, as `<name>`."""
    return template.format_map(_Missing(values))
