"""Read `fleet.yaml`, next to `matrix.yaml`: the names that a site has for the things that jobs need.

Features, GRES types, partitions, accounts, reservations, node labels, namespaces and queues are different on
every cluster, so none of them is in the code.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from yaml import MappingNode

from ..errors import InputError
from ..matrix.document import Document, plain_value, read_document
from ..matrix.document import Path as Place
from ..matrix.problems import MatrixError, join_words, quote, unknown_name
from ..matrix.shape import check_shape
from ..model.spec import NO_GPU
from ..resources import manual
from .settings_schema import (
    CONTAINERS,
    EFFECTS,
    FleetFile,
    KubernetesPlace,
    KubernetesSection,
    SlurmPlace,
    SlurmSection,
)

#: The file's name, next to the matrix.
NAME = "fleet.yaml"
HINT = f"{manual('reference/fleet.md')} describes the file; `fleet inventory --write` proposes one"

_HOST_CLASS = re.compile(r"r\d{3,4}(\.\d{1,3}){0,2}-[a-z0-9][a-z0-9.-]*")
#: One word, which no program takes for an option and no shell changes.
_WORD = re.compile(r"[A-Za-z0-9_][\w.:+@/,-]*")
#: Features with the operators of `sbatch --constraint`.
_CONSTRAINT = re.compile(r"[A-Za-z0-9_(\[][\w.:+=&|()\[\]*,-]*")
_GRES = re.compile(r"[A-Za-z0-9]\w*(:[\w.+-]+){0,2}(,[A-Za-z0-9]\w*(:[\w.+-]+){0,2})*")
_CONTEXT = re.compile(r"[\w.:@/+-]+")
#: Names of Kubernetes: of most objects, and of labels and their values.
_DNS_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_DNS_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?)?")
_LABEL_KEY = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?")

_Place = TypeVar("_Place", SlurmPlace, KubernetesPlace)


@dataclass(frozen=True)
class SlurmSettings:
    """A Slurm cluster.

    directory: absolute; this machine and all nodes see it. container: one of CONTAINERS. python: that of the
    nodes. setup: shell commands that a job runs first. places: by host class; others have no node here.
    """

    directory: Path
    container: str
    python: str
    setup: str
    places: Mapping[str, SlurmPlace]

    def place(self, host_class: str) -> SlurmPlace | None:
        """Return how a job gets a node of a host class, or None if no node here belongs to it."""
        return self.places.get(host_class)


@dataclass(frozen=True)
class KubernetesSettings:
    """A Kubernetes cluster.

    context, namespace: empty for those of the kubeconfig. pull_secret: empty if images need none.
    places: those of the host classes that the file names. default: for the others.
    """

    context: str = ""
    namespace: str = ""
    pull_secret: str = ""
    places: Mapping[str, KubernetesPlace] = field(default_factory=dict)
    default: KubernetesPlace = field(default_factory=KubernetesPlace)

    def place(self, host_class: str) -> KubernetesPlace:
        """Return how a pod gets a node of a host class."""
        return self.places.get(host_class, self.default)


@dataclass(frozen=True)
class FleetSettings:
    """The clusters of a site. slurm: None if the file has no such section, because it needs a directory."""

    slurm: SlurmSettings | None = None
    kubernetes: KubernetesSettings = field(default_factory=KubernetesSettings)


def read_settings(path: Path) -> FleetSettings:
    """Read the file. Raises InputError, with line and column of each problem."""
    try:
        return settings_of(read_document(path))
    except MatrixError as error:
        raise InputError(str(error), hint=HINT) from None


def settings_of(document: Document) -> FleetSettings:
    """Return the settings in a document. Raises MatrixError with every problem."""
    check_shape(document, FleetFile)
    document.raise_problems()
    content = plain_value(document.root)
    assert isinstance(document.root, MappingNode)
    slurm = _slurm(content["slurm"], document) if "slurm" in content else None
    kubernetes = _kubernetes(content.get("kubernetes", {}), document)
    document.raise_problems()
    return FleetSettings(slurm, kubernetes)


def _slurm(given: dict[str, Any], document: Document) -> SlurmSettings:
    section = msgspec.convert(given, SlurmSection, strict=False)
    if not section.directory.startswith("/") or "\n" in section.directory:
        message = (
            f"{quote(section.directory)} is not an absolute path; all nodes have to see it under this path"
        )
        document.report(("slurm", "directory"), message)
    if section.container not in CONTAINERS:
        document.report(("slurm", "container"), unknown_name(section.container, CONTAINERS))
    places, _ = _places(given, "slurm", SlurmPlace, document)
    for name, place in places.items():
        if name != NO_GPU and not (place.constraint or place.gres or place.partition or place.reservation):
            message = (
                "needs a constraint, a gres, a partition or a reservation; without one, any node would do"
            )
            document.report(("slurm", "host_classes", name), message)
    return SlurmSettings(Path(section.directory), section.container, section.python, section.setup, places)


def _kubernetes(given: dict[str, Any], document: Document) -> KubernetesSettings:
    for entry in given.get("host_classes", {}).values():
        # A file may give a single value for a label.
        for label, values in entry.get("node_selector", {}).items():
            entry["node_selector"][label] = [values] if isinstance(values, str) else values
    section = msgspec.convert(given, KubernetesSection, strict=False)
    places, default = _places(given, "kubernetes", KubernetesPlace, document)
    return KubernetesSettings(section.context, section.namespace, section.pull_secret, places, default)


def _places(
    given: dict[str, Any], section: str, kind: type[_Place], document: Document
) -> tuple[dict[str, _Place], _Place]:
    """Return the places of a section, each with what the section says for all host classes, and only that."""
    _check_values(given, (section,), document)
    shared = {name: value for name, value in given.items() if name in kind.__struct_fields__}
    found = {}
    for name, entry in given.get("host_classes", {}).items():
        path = (section, "host_classes", name)
        if name != NO_GPU and not _HOST_CLASS.fullmatch(name):
            message = f'{quote(name)} is not a host class (such as "r580-h100", or "{NO_GPU}")'
            document.report(path, message, at_key=True)
        _check_values(entry, path, document)
        found[name] = msgspec.convert({**shared, **entry}, kind, strict=False)
    return found, msgspec.convert(shared, kind, strict=False)


#: What a value may look like, by its key. All of them end in a command line, a batch script or a manifest.
_PATTERNS = {
    **dict.fromkeys(("python", "partition", "account", "reservation", "qos"), _WORD),
    "constraint": _CONSTRAINT,
    "gres": _GRES,
    "context": _CONTEXT,
    "namespace": _DNS_LABEL,
    "pull_secret": _DNS_NAME,
    "queue": _DNS_NAME,
    "resource": _LABEL_KEY,
}
_SAMPLES = {
    "constraint": "features with operators, such as r580&h100, without spaces",
    "gres": "a generic resource, such as gpu:h100:1",
    "namespace": "a namespace: lower-case letters, digits and dashes",
    "resource": "a resource of a node, such as nvidia.com/gpu",
}


def _check_values(given: Mapping[str, Any], path: Place, document: Document) -> None:
    """Report every value of a section or of a host class that can't be right."""
    for name, value in given.items():
        if name in _PATTERNS and not _PATTERNS[name].fullmatch(value):
            expected = _SAMPLES.get(name, "a name without spaces")
            document.report((*path, name), f"{quote(value)} is not {expected}")
    for index, taint in enumerate(given.get("tolerations", [])):
        place = (*path, "tolerations", index)
        _check_label(taint["key"], taint.get("value", ""), place, document)
        if "effect" in taint and taint["effect"] not in EFFECTS:
            message = f"{quote(taint['effect'])} is not an effect of a taint: {join_words(EFFECTS)}"
            document.report((*place, "effect"), message)
    for key, values in given.get("node_selector", {}).items():
        for index, value in enumerate(values):
            _check_label(key, value, (*path, "node_selector", key, index), document)


def _check_label(key: str, value: str, path: Place, document: Document) -> None:
    for what, text, pattern in (("key", key, _LABEL_KEY), ("value", value, _LABEL_VALUE)):
        if not pattern.fullmatch(text):
            document.report(path, f"{quote(text)} is not the {what} of a label or a taint in Kubernetes")
