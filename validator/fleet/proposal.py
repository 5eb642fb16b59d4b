"""Propose a `fleet.yaml` from the nodes that a scheduler has.

An engine that can do this has a function `open_surveyor(settings: FleetSettings) -> Surveyor` in its module,
which says which kinds of nodes there are. If the scheduler does not know the driver, a short job reads it on
one node of the kind.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from ..compat.gpus import is_known, model_of
from ..matrix.document import parse_document
from ..model.spec import NO_GPU
from ..resources import manual, source
from ..versions import DriverRelease
from .settings import NAME, settings_of

#: A feature or a label that says a driver: `r580`, `580.65.06`, `driver580`, `nvidia-driver_580`.
_DRIVER = re.compile(
    r"(?:(?:r|driver[-_]?|nvidia[-_]?(?:driver[-_]?)?)(?=\d)|(?=\d{3}\.))(\d{3}(?:\.\d{1,3}){0,2})",
    re.IGNORECASE,
)
#: The branches that there may be, so that `r210`, a rack, is not taken for a driver.
_OLDEST, _NEWEST = 390, 999


@dataclass(frozen=True)
class Seen:
    """A node's statement about itself. driver: `580.65.06`. gpu: as NVML names it."""

    driver: str
    gpu: str


@dataclass(frozen=True)
class NodeKind:
    """Nodes that look the same to their scheduler.

    nodes: how many there are. sample: the name of one. driver: its release or branch, "" if the scheduler
    does not know it. gpu: its model as in host classes, "" if the scheduler does not know it or has none.
    has_gpu: True if it has any. place: the keys of a host class by which jobs get such a node.
    """

    nodes: int
    sample: str
    driver: str
    gpu: str
    has_gpu: bool
    place: Mapping[str, object] = field(default_factory=dict)

    @property
    def host_class(self) -> str | None:
        """The host class, or None if the driver or the model is not known."""
        if not self.has_gpu:
            return NO_GPU
        if not self.driver or not self.gpu:
            return None
        return f"r{self.driver.partition('.')[0]}-{self.gpu}"


class Surveyor(Protocol):
    """Finds out which nodes a scheduler has. Both methods may raise FleetDown and MissingError."""

    #: The section of the file, and its keys besides `host_classes`, each with a comment.
    section: str
    keys: Mapping[str, tuple[str, str]]

    def survey(self) -> Sequence[NodeKind]:
        """Return the kinds of nodes. Nothing is submitted."""

    def ask(self, kind: NodeKind) -> Seen | None:
        """Ask one node of a kind for its driver and GPU, by a short job. None if it did not say."""


def propose(surveyor: Surveyor) -> str:
    """Return the text of a fleet file for the nodes that there are.

    Nodes whose driver or model could not be found out are in it as comments.
    """
    kinds = [_completed(kind, surveyor) for kind in surveyor.survey()]
    return settings_text(surveyor.section, surveyor.keys, kinds)


def settings_text(
    section: str,
    keys: Mapping[str, tuple[str, str]],
    kinds: Iterable[tuple[NodeKind, str]],
) -> str:
    """Return the text of a fleet file.

    keys: the value and a comment of each key of the section. kinds: each with what was found out by a job.
    """
    groups: dict[str | None, list[tuple[NodeKind, str]]] = {}
    for kind, said in kinds:
        groups.setdefault(kind.host_class, []).append((kind, said))
    unknown = groups.pop(None, [])
    total = sum(kind.nodes for group in [*groups.values(), unknown] for kind, _ in group)
    lines = [
        f"# yaml-language-server: $schema={source('validator/fleet/schema.json')}",
        f"# Proposed by `fleet inventory --on {section} --write` from {_counted(total)}. Check it, above all",
        f"# the lines with CHECK. All keys: {manual('reference/fleet.md')}",
        f"{section}:",
    ]
    for name, (value, comment) in keys.items():
        lines += [f"  # {comment}", f"  {name}: {json.dumps(value)}"]
    if groups:
        lines.append("  host_classes:")
    for host_class, group in sorted(groups.items(), key=lambda entry: str(entry[0])):
        # One way to get a node: the one that most of them share.
        group.sort(key=lambda entry: -entry[0].nodes)
        first, said = group[0]
        lines += [f"    # {text}" for text in (_described(first), said) if text]
        if host_class == NO_GPU and len(groups) > 1:
            lines.append("    # CHECK: make sure that these keys don't choose nodes with a GPU.")
        for other, _ in group[1:]:
            lines.append(f"    # CHECK: {_described(other)} need other keys: {_flow(other.place)}")
        lines.append(f"    {host_class}: {_flow(first.place)}")
    if NO_GPU not in groups:
        what = "are missing" if section == "slurm" else "run on any node"
        lines.append(f"  # CHECK: every node has a GPU, so `{NO_GPU}` is not here: its cells {what}.")
        lines.append("  # Add it to `host_classes` with the keys of nodes that they may use.")
    for kind, said in unknown:
        lines.append(
            f"  # CHECK: {_described(kind)}: {said or 'its driver or its model is not known'}. Add it as:"
        )
        lines.append(f"  #   rDRIVER-{kind.gpu or 'MODEL'}: {_flow(kind.place)}")
    text = "\n".join(lines) + "\n"
    if groups or section != "slurm":
        # A proposal that can't be read would be a bug of this module.
        settings_of(parse_document(text.encode(), NAME))
    return text


def _completed(kind: NodeKind, surveyor: Surveyor) -> tuple[NodeKind, str]:
    """Return a kind with its driver and its model, and what has to be said about it."""
    if kind.host_class is not None:
        return kind, ""
    seen = surveyor.ask(kind)
    if seen is None:
        return kind, f"a job on {kind.sample} could not find out its driver"
    known = replace(kind, driver=kind.driver or seen.driver, gpu=kind.gpu or model_of(seen.gpu))
    said = f"{kind.sample} said driver {seen.driver} and {seen.gpu}."
    if not kind.driver:
        said += " CHECK: the scheduler does not know the driver, so make sure that all of them have it"
    return known, said


def driver_of(words: Iterable[str]) -> str:
    """Return the driver that one of some features names (`r580`), or "" if none or several do."""
    found = {match[1] for word in words if (match := _DRIVER.fullmatch(word))}
    found = {text for text in found if _OLDEST <= DriverRelease.parse(text).branch <= _NEWEST}
    return found.pop() if len(found) == 1 else ""


def model_in(words: Iterable[str]) -> str:
    """Return the GPU model that one of some words names (`h100`), or "" if none or several do."""
    found = {model_of(text) for word in words for text in [word.replace("_", " ")] if is_known(text)}
    return found.pop() if len(found) == 1 else ""


def _described(kind: NodeKind) -> str:
    return f"{_counted(kind.nodes)}, such as {kind.sample}" if kind.nodes > 1 else f"{kind.sample}"


def _counted(nodes: int) -> str:
    return f"{nodes} node{'' if nodes == 1 else 's'}"


def _flow(place: Mapping[str, object]) -> str:
    """Return the keys as YAML in one line, whose quoted texts are those of JSON."""
    parts = []
    for name, value in place.items():
        if isinstance(value, Mapping):
            inner = ", ".join(f"{key}: {json.dumps(text)}" for key, text in value.items())
            parts.append(f"{name}: {{{inner}}}")
        else:
            parts.append(f"{name}: {json.dumps(value)}")
    return f"{{{', '.join(parts)}}}"
