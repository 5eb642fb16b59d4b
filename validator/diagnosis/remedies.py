"""Choose the remedies of a cause that fit the release, the GPU, the system and what was observed."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from ..compat.placeholders import PLACEHOLDERS, Filling, filling, nothing_works
from ..model.diagnosis import Remedy
from .causes import CauseEntry, RemedyEntry
from .lookup import chosen_finder
from .observations import Observations
from .situation import read_host, read_software
from .ways import Reader, for_uv

_NEEDED = "what `python -m validator predict --tensorflow RELEASE` names for your release (2.8 and later)"
#: How to find out a value that a command needs and the text does not contain.
_FIND_OUT = {
    "tensorflow": "your release, which `python -m pip show tensorflow` shows",
    "tensorflow_minor": "the first two numbers of your release, which `python -m pip show tensorflow` shows",
    "cuda_needed": _NEEDED,
    "cuda_major": "the first number of the CUDA that TensorFlow was built with: 12 from 2.15 on, 11 before",
    "cudnn_needed": _NEEDED,
    "cudnn_major": "the first number of that cuDNN",
    "release_for_gpu": "the newest release that runs on your GPU, as that command says (2.16.2 for Maxwell)",
    "driver_branch": "the first number of the driver's version, which `nvidia-smi` shows",
    "pid": "the process ID in the table of nvidia-smi",
    "image": "the image's name",
}
REBOOT = "reboot"
#: What remedies interrupt for others, with the sentence that says so.
INTERRUPTS = {
    REBOOT: "A reboot ends everything that runs on the machine, other people's work included.",
    "display": "This ends the graphical session with all of its programs.",
    "gpu": "Every program that uses a GPU of this machine has to end first.",
    "docker": "Restarting Docker may stop every container of the machine.",
    "kubelet": "Pods of this node are interrupted.",
}
#: Begins a remedy that is an alternative to those before it.
_OR = re.compile(r"^Or (\w)")
_ASK = "Ask whoever administers the machine:"
#: Text that has no special meaning to a shell between double quotes. Values come from pasted text.
_PLAIN = re.compile(r"[\w./@:+,~ \\\[\]-]*")
#: Stands for a release that only its log lines show to be older than 2.12.
_OLD = "2.10"
#: The system that remedies are for where it is not known.
_SYSTEM = "linux"


def fitting_remedies(
    entry: CauseEntry, values: Mapping[str, str], observations: Observations, reader: Reader
) -> tuple[Remedy, ...]:
    """Return the remedies that fit the facts and the reader, in the order to try them; at least one.

    The reader's own way comes first, and remedies for other ways are left out unless nothing is known of the
    reader. What interrupts other people comes last. A reader without root is told whom to ask.

    values: for the placeholders; `tensorflow`, `capability` and `system` also decide what fits.
    """
    find = chosen_finder(observations, {**_assumed(observations), **values})
    fitting = [remedy for remedy in entry.remedies if remedy.when.may_hold(find)]
    possible = _possible(fitting, entry.remedies, observations)
    return tuple(_remedies(_ranked(possible, reader), values, reader))


def _possible(
    fitting: Sequence[RemedyEntry], remedies: Sequence[RemedyEntry], observations: Observations
) -> list[tuple[RemedyEntry, Filling]]:
    """Return the remedies that some release of TensorFlow makes possible, each with what fills it in.

    If the release rules any of the fitting ones out, the reason why no release works comes after the others.
    If none fits at all, that reason comes instead of all remedies of the cause.
    """
    host, software = read_host(observations), read_software(observations)
    possible = []
    for entry in fitting or remedies:
        names = entry.placeholders & PLACEHOLDERS
        # Finding a release takes time.
        filled = filling(entry.way, names, entry.commands, host, software) if names else Filling({})
        if filled is not None:
            possible.append((entry, filled))
    if fitting and len(possible) == len(fitting):
        return possible
    for entry in remedies:
        names = entry.placeholders & PLACEHOLDERS
        reason = nothing_works(entry.way, names, entry.commands, host, software)
        if reason:
            return [*(possible if fitting else ()), (RemedyEntry("any", reason, ()), Filling({}))]
    return possible


def _ranked(
    possible: Sequence[tuple[RemedyEntry, Filling]], reader: Reader
) -> list[tuple[RemedyEntry, Filling]]:
    """Return the remedies for the reader, in the order to try them; all of them if none is for the reader."""
    ways = frozenset(entry.way for entry, _ in possible)
    ranked = []
    for entry, filled in possible:
        rank = reader.precedence(entry.way, ways)
        if rank is not None and not (reader.rebooted and entry.interrupts == REBOOT):
            ranked.append((bool(entry.interrupts), rank, entry, filled))
    ranked = ranked or [(bool(entry.interrupts), 0, entry, filled) for entry, filled in possible]
    return [(entry, filled) for _, _, entry, filled in sorted(ranked, key=lambda row: row[:2])]


def _remedies(
    ranked: Sequence[tuple[RemedyEntry, Filling]], values: Mapping[str, str], reader: Reader
) -> Iterator[Remedy]:
    """Yield the remedies, filled in. Only the first one that has a placeholder left explains it."""
    explained: set[str] = set()
    for number, (entry, filled) in enumerate(ranked):
        missing = entry.placeholders - {*values, *filled.values, "doctor"} - explained
        explained |= missing
        if number == 0:
            # The remedy that it is an alternative to may not fit the reader.
            entry = replace(entry, says=_OR.sub(lambda match: match[1].upper(), entry.says))
        yield _remedy(entry, values, filled, reader, _hints(missing))


def _hints(missing: Collection[str]) -> str:
    """Return how to find out values that are missing; empty if none needs an explanation."""
    names: dict[str, list[str]] = {}
    for name, hint in _FIND_OUT.items():
        if name in missing:
            names.setdefault(hint, []).append(name.upper())
    return "; ".join(
        f"{' and '.join(same)} {'are' if len(same) > 1 else 'is'} {hint}" for hint, same in names.items()
    )


def _remedy(
    entry: RemedyEntry, values: Mapping[str, str], filled: Filling, reader: Reader, hints: str
) -> Remedy:
    # Only values from the pasted text are checked for characters that are special to a shell.
    own = {"doctor": reader.doctor, **filled.values}
    plain = {name: value for name, value in values.items() if _PLAIN.fullmatch(value)}
    commands = [filled_in(command, {**plain, **own}) for command in entry.commands]
    # What the release needs comes before all commands and after those with which pip installs it.
    installs = [number for number, command in enumerate(commands, 1) if "pip install" in command]
    end = installs[-1] if installs else len(commands)
    commands = [*filled.before, *commands[:end], *filled.after, *commands[end:]]
    says = filled_in(entry.says, {**values, **own})
    sentences = [f"{says} ({hints}.)" if hints else says, *filled.notes]
    if entry.way == "host" and not reader.has_root:
        sentences.insert(0, _ASK)
        # Show no command that interrupts other people, so that nobody runs it by mistake.
        commands = [] if entry.interrupts else commands
    if entry.interrupts:
        sentences.append(INTERRUPTS[entry.interrupts])
    if "uv" in reader.ways and entry.way == "pip":
        commands = [for_uv(command) for command in commands]
    return Remedy(entry.way, " ".join(sentences), tuple(commands), entry.interrupts)


def _assumed(observations: Observations) -> Mapping[str, str]:
    """Return the facts to assume when remedies are chosen and these facts are not known."""
    return {"system": _SYSTEM, **({"tensorflow": _OLD} if observations.has("before_2_12") else {})}


class _Placeholders(dict[str, str]):
    """Values by name. A name without a value becomes `NAME`: a shell would read `<name>` as a redirection."""

    def __missing__(self, name: str) -> str:
        return name.upper()


def filled_in(template: str, values: Mapping[str, str]) -> str:
    """Return a template with its values. A value that is not known stays a placeholder, `NAME`."""
    return template.format_map(_Placeholders(values))
