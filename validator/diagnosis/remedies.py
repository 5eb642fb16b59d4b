"""Choose the remedies of a cause that fit the release, the GPU, the system and what was observed."""

from __future__ import annotations

import re
import string
from collections.abc import Collection, Mapping, Sequence

from ..model.diagnosis import Remedy
from .causes import CauseEntry, RemedyEntry
from .known import chosen_finder
from .observations import Observations

#: How to find out a value that a command needs and the text does not contain.
_FIND_OUT = {
    "tensorflow": "your release, which `python -m pip show tensorflow` shows",
    "tensorflow_minor": "the first two numbers of your release, which `python -m pip show tensorflow` shows",
    "cuda_needed": "what `python -m validator predict --tensorflow <your release>` names (2.8 and later)",
    "cuda_major": "the first number of the CUDA that TensorFlow was built with: 12 from 2.15 on, 11 before",
    "cudnn_needed": "what `python -m validator predict --tensorflow <your release>` names (2.8 and later)",
    "cudnn_major": "its first number",
    "release_for_gpu": "the newest release that runs on your GPU, as that command says (2.16.2 for Maxwell)",
    "driver_branch": "the first number of the driver's version, which `nvidia-smi` shows",
    "pid": "the process ID in the table of nvidia-smi",
    "image": "the image's name",
}
#: Text that has no special meaning to a shell between double quotes. Values come from pasted text.
_PLAIN = re.compile(r"[\w./@:+,~ \\\[\]-]*")
#: Stands for a release that only its log lines show to be older than 2.12.
_OLD = "2.10"
#: The system that remedies are for where it is not known.
_SYSTEM = "linux"


def fitting_remedies(
    entry: CauseEntry, values: Mapping[str, str], observations: Observations, ways: Sequence[Collection[str]]
) -> tuple[Remedy, ...]:
    """Return the remedies that fit, in the order of the list; all of them if none fits.

    values: for the placeholders; `tensorflow`, `capability` and `system` also decide what fits.
    ways: of installing, in groups. Remedies for the first group come first, those for no group last.
    """
    order = {way: position for position, group in enumerate(ways) for way in group}
    find = chosen_finder(observations, {**_assumed(observations), **values})
    found = [remedy for remedy in entry.remedies if remedy.when.may_hold(find)] or entry.remedies
    found = sorted(found, key=lambda remedy: order.get(remedy.way, len(order)))
    return tuple(_remedy(remedy, values) for remedy in found)


def _remedy(entry: RemedyEntry, values: Mapping[str, str]) -> Remedy:
    plain = {name: value for name, value in values.items() if _PLAIN.fullmatch(value)}
    commands = tuple(filled_in(command, plain) for command in entry.commands)
    says = filled_in(entry.says, values)
    missing = _placeholders((entry.says, *entry.commands)) - set(values)
    hints = [f"<{name}> is {hint}" for name, hint in _FIND_OUT.items() if name in missing]
    return Remedy(entry.way, f"{says} ({'; '.join(hints)}.)" if hints else says, commands)


def _placeholders(templates: Sequence[str]) -> set[str]:
    return {name for template in templates for _, name, _, _ in string.Formatter().parse(template) if name}


def _assumed(observations: Observations) -> Mapping[str, str]:
    """Return the facts that remedies are chosen by where they are not known."""
    return {"system": _SYSTEM, **({"tensorflow": _OLD} if observations.has("before_2_12") else {})}


class _Placeholders(dict[str, str]):
    """Values by name. A name without a value stands for itself, as `<name>`."""

    def __missing__(self, name: str) -> str:
        return f"<{name}>"


def filled_in(template: str, values: Mapping[str, str]) -> str:
    """Return a template with its values. A value that is not known stays a placeholder, `<name>`."""
    return template.format_map(_Placeholders(values))
